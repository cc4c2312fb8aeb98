"""The stages of filtering: what a sampling law's options do to one row, in the order and with the results of
transformers' `generate`. Penalties act in greedy decoding too; temperature and truncations only where tokens are drawn.

Knows no session, no draft and not the user's own processors: a stage sees one prefix and one row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .sampling import Sampling

Stage = Callable[[Tensor, Tensor], Tensor]  # (input_ids [1, T], scores [1, V]) -> scores [1, V], its inputs unchanged
NUCLEUS = 512  # top-p first looks among so many tokens: 8 times faster than sorting a vocabulary of 49k


def penalties(sampling: Sampling, prompt_length: int, min_new_tokens: int, eos_ids: tuple[int, ...]) -> list[Stage]:
    """The stages before the temperature, in order. They act in greedy decoding too; ids are within the vocabulary."""
    stages: list[Stage] = []
    if sampling.logit_bias:
        stages.append(_bias(sampling.logit_bias))
    if sampling.repetition_penalty != 1:
        stages.append(_hf().RepetitionPenaltyLogitsProcessor(sampling.repetition_penalty))
    if sampling.presence_penalty or sampling.frequency_penalty:
        stages.append(_occurrences(sampling.presence_penalty, sampling.frequency_penalty, prompt_length))
    if sampling.no_repeat_ngram_size:
        stages.append(_hf().NoRepeatNGramLogitsProcessor(sampling.no_repeat_ngram_size))
    words = tuple(word for word in sampling.bad_words if len(word) > 1 or word[0] not in eos_ids)
    if words:
        stages.append(_bad_words(words))
    if min_new_tokens and eos_ids:
        stages.append(_minimum_length(prompt_length + min_new_tokens, eos_ids))
    if sampling.suppress:
        stages.append(_ban(sampling.suppress))
    return stages


def warpers(sampling: Sampling) -> list[Stage]:
    """Temperature and truncations, in order, for sampling that is not greedy."""
    stages: list[Stage] = []
    if sampling.effective_temperature != 1:
        stages.append(_temperature(sampling.effective_temperature))
    if sampling.top_k is not None:
        stages.append(_hf().TopKLogitsWarper(sampling.top_k))
    if sampling.top_p is not None and sampling.top_p < 1:
        stages.append(_top_p(sampling.top_p))
    if sampling.min_p is not None:
        stages.append(_hf().MinPLogitsWarper(sampling.min_p))
    if sampling.typical_p is not None and sampling.typical_p < 1:
        stages.append(_hf().TypicalLogitsWarper(sampling.typical_p))
    return stages


def _hf() -> Any:
    """transformers' own processors, for all that is more than an index operation."""
    from transformers.generation import logits_process

    return logits_process


def _bias(bias: Mapping[int, float]) -> Stage:
    tokens, added = torch.tensor(list(bias)), torch.tensor([list(bias.values())])

    def stage(_: Tensor, scores: Tensor) -> Tensor:
        return scores.index_add(1, tokens.to(scores.device), added.to(scores))

    return stage


def _occurrences(presence: float, frequency: float, prompt_length: int) -> Stage:
    def stage(ids: Tensor, scores: Tensor) -> Tensor:
        counts = torch.bincount(ids[0, prompt_length:], minlength=scores.shape[1])
        return scores - frequency * counts - presence * (counts > 0)

    return stage


def _bad_words(words: tuple[tuple[int, ...], ...]) -> Stage:
    reach = max(len(word) for word in words) - 1

    def stage(ids: Tensor, scores: Tensor) -> Tensor:
        tail = ids[0, max(0, ids.shape[1] - reach) :].tolist() if reach else []
        last = [word[-1] for word in words if len(word) == 1 or tail[1 - len(word) :] == list(word[:-1])]
        return _ban(last)(ids, scores) if last else scores

    return stage


def _minimum_length(length: int, eos_ids: tuple[int, ...]) -> Stage:
    ban = _ban(eos_ids)

    def stage(ids: Tensor, scores: Tensor) -> Tensor:
        return ban(ids, scores) if ids.shape[1] < length else scores

    return stage


def _ban(tokens: Sequence[int]) -> Stage:
    banned = torch.tensor(tokens)

    def stage(_: Tensor, scores: Tensor) -> Tensor:
        return scores.index_fill(1, banned.to(scores.device), -math.inf)

    return stage


def _temperature(temperature: float) -> Stage:
    def stage(_: Tensor, scores: Tensor) -> Tensor:
        return scores.div(max(temperature, 1e-30))  # a smaller one changes no law, but would overflow

    return stage


def _top_p(mass: float) -> Stage:
    sort_all: Stage = _hf().TopPLogitsWarper(mass)

    def stage(ids: Tensor, scores: Tensor) -> Tensor:
        top, tokens = scores.topk(min(NUCLEUS, scores.shape[1]))
        share = (top - scores.logsumexp(1, keepdim=True)).exp()
        kept = int((share.cumsum(1) - share < mass).sum())  # those before which the mass is not yet reached
        kept = max(kept, 1)  # a mass that is 0 in float32
        if kept == NUCLEUS:
            return sort_all(ids, scores)
        return torch.full_like(scores, -math.inf).scatter(1, tokens[:, :kept], top[:, :kept])

    return stage
