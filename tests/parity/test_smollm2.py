"""Parity on a real model: SmolLM2-135M-Instruct in float32, against upstream `generate` and against plain decoding.

Rows of one pass may round differently from single passes. A difference counts as rounding only where the two leading
scores lie within 1e-4 of each other; each such place is printed, and comparison of that text ends there.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from stubs import primed

import specdecode as sd
from specdecode.drafters import Drafter
from specdecode.drafters.lm import DraftLM
from specdecode.drafters.ngram import Ngram
from specdecode.drafters.null import Null
from specdecode.sampling import Keyed, Sampling
from specdecode.types import Prompt, Row

pytestmark = pytest.mark.slow

CLOSE = 1e-4
NEW = 64
TOPICS = ["the sea", "bread", "winter", "a bicycle", "volcanoes", "sleep", "the moon", "chess", "rivers", "glass"]
ASKS = ["Write a short poem about {}.", "List five facts about {}.", "Repeat this twice: I like {}, and {} likes me."]
SAMPLING = {"temperature": 0.8, "top_p": 0.9}


@pytest.fixture(scope="module")
def model() -> sd.Model:
    return sd.load()


@cache
def prompts(model: Any) -> list[tuple[int, ...]]:
    return [model.chat_prompt(ask.format(topic, topic)) for topic in TOPICS for ask in ASKS]


def compare(
    model: Any, ids: Sequence[int], ours: Sequence[int], theirs: Sequence[int], noise: Keyed | None = None
) -> None:
    """Fails where two texts differ at scores further apart than rounding. noise: the draws of a sampled text."""
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    if at == len(ours) == len(theirs):
        return
    assert at < min(len(ours), len(theirs)), f"one text ends at {at}, the other goes on"
    prefix = (*ids, *ours[:at])
    scores = model.lm.score(primed(model.lm, prefix), [Row(0, prefix[-1:], (-1,))])[0].logits[0]
    if noise is not None:
        scores = scores / SAMPLING["temperature"] + noise._noise(len(prefix), scores.device)
    gap = float((scores[ours[at]] - scores[theirs[at]]).abs())
    print(f"token {at}: {ours[at]} against {theirs[at]}, scores {gap:.2e} apart")
    assert gap < CLOSE, f"the texts differ at token {at}, where the scores are {gap:.2e} apart"


def arms(model: Any) -> dict[str, tuple[Drafter, int]]:
    """Every drafter of the table and a size of batch, each with two draft lengths and alone as well as in batches of
    eight. The draft model is the target's own lower half."""
    small = LowerHalf(model.lm)
    return {
        "null, batch 8": (Null(), 8),
        "ngram k=3": (Ngram(k=3), 1),
        "ngram k=12, batch 8": (Ngram(k=12, min_match=1), 8),
        "lm k=2": (DraftLM(small, k=2), 1),
        "lm assisted, batch 8": (DraftLM(small, k=4, schedule="assisted", confidence=0.3), 8),
    }


class LowerHalf:
    """The first layers of an LM as a draft model of their own: cheap, poor and of the same vocabulary."""

    def __init__(self, lm: Any) -> None:
        self.lm, self.layers = lm, range(lm.n_layers // 2)
        self.vocab, self.context, self.n_layers, self.capabilities = lm.vocab, lm.context, lm.n_layers, lm.capabilities

    def open(self, asked: Sequence[Prompt]) -> Any:
        return self.lm.open(asked)

    def score(self, cache: Any, rows: Sequence[Row], *, logits: bool = True, taps: Sequence[int] = ()) -> Any:
        return self.lm.score(cache, rows, logits=logits, layers=self.layers)


def test_greedy_ids_equal_upstream_generate(model: sd.Model) -> None:
    """30 prompts x 64 tokens, every drafter."""
    upstream = []
    for ids in prompts(model):
        inputs = torch.tensor([ids])
        made = model.lm.model.generate(
            inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=NEW, pad_token_id=0
        )
        upstream.append(made[0, len(ids) :].tolist())
    for name, (drafter, size) in {"null": (Null(), 1), **arms(model)}.items():
        print(name)
        for start in range(0, len(upstream), size):
            asked = prompts(model)[start : start + size]
            done = model.generate([list(ids) for ids in asked], drafter=drafter, max_new_tokens=NEW)
            for ids, completion, expected in zip(asked, done, upstream[start:], strict=False):
                compare(model, ids, completion.tokens, expected)


def test_one_seed_one_text(model: sd.Model) -> None:
    """Coupled rule: 50 seeds x 64 tokens at T=.8, top-p .9 are the same text with every drafter, draft length and
    batch."""
    ids = list(prompts(model)[1])
    seeds = range(50)

    def texts(drafter: Drafter, size: int) -> list[tuple[int, ...]]:
        out = []
        for start in range(0, len(seeds), size):
            laws = [Sampling(**SAMPLING, seed=seed) for seed in seeds[start : start + size]]
            done = model.generate([ids] * len(laws), sampling=laws, drafter=drafter, max_new_tokens=NEW)
            out += [completion.tokens for completion in done]
        return out

    expected = texts(Null(), 1)
    assert len(set(expected)) == len(expected), "different seeds must give different texts"
    for name, (drafter, size) in arms(model).items():
        print(name)
        for seed, ours, theirs in zip(seeds, texts(drafter, size), expected, strict=True):
            compare(model, ids, ours, theirs, Keyed(seed, model.lm.vocab))
