"""What the tests of filters share: options in our words and in transformers', and a session's loop on a tiny target."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import torch

from specdecode.constraints import Filters
from specdecode.sampling import Sampling
from specdecode.types import EMPTY, Draft
from specdecode.verify.greedy import Greedy

INF = math.inf
V = 97
EOS = 96
PROMPT = (5, 4, 9, 5, 4)
Draw = Callable[[list[int]], Draft]

# Each option in our words and in transformers'.
OPTIONS = {
    "nothing": ({}, {}),
    "temperature": ({"temperature": 0.7}, {"temperature": 0.7}),
    "top_k": ({"top_k": 5}, {"top_k": 5}),
    "top_p": ({"top_p": 0.8}, {"top_p": 0.8}),
    "min_p": ({"min_p": 0.2}, {"min_p": 0.2}),
    "typical_p": ({"typical_p": 0.6}, {"typical_p": 0.6}),
    "repetition_penalty": ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
    "logit_bias": ({"logit_bias": {3: 2.5, 9: -INF}}, {"sequence_bias": [[[3], 2.5], [[9], -INF]]}),
    "bad_words": ({"bad_words": ((3,), (4, 9), (5, 4, 8), (EOS,))}, {"bad_words_ids": [[3], [4, 9], [5, 4, 8], [EOS]]}),
    "only the end as a bad word": ({"bad_words": ((EOS,),)}, {"bad_words_ids": [[EOS]]}),
    "no_repeat_ngram_size": ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}),
    "unigrams": ({"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 1}),
    "suppress": ({"suppress": (1, 2, 40)}, {"suppress_tokens": [1, 2, 40]}),
}
TOGETHER = ["temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "logit_bias", "bad_words"]
OPTIONS["together"] = tuple(
    {k: v for name in [*TOGETHER, "suppress"] for k, v in OPTIONS[name][i].items()} for i in (0, 1)
)
OURS_ALONE = {"presence_penalty": 0.7, "frequency_penalty": 0.4}


def filters_of(options: dict, prompt_length: int = 4, **more: object) -> Filters:
    return Filters(Sampling(**options), prompt_length=prompt_length, vocab=V, **more)


# A target that sees one token only: row [token] is its logits. Its greedy text runs in a circle:
# 53 10 25 77 47 73 79 90 25 77 47 73 79 90 25 ...
MARKOV = torch.randn(V, V, generator=torch.Generator().manual_seed(13)) * 2
MARKOV.fill_diagonal_(-20)


def plain(filters: Filters, prompt: Sequence[int], n: int) -> list[int]:
    return speculative(filters, prompt, n, lambda tokens: EMPTY)


def speculative(filters: Filters, prompt: Sequence[int], n: int, draw: Draw) -> list[int]:
    """What the engine does with a session's filters, on the Markov target."""
    tokens = list(prompt)
    while (left := n - len(tokens) + len(prompt)) > 0 and tokens[-1] != EOS:
        draft = draw(tokens)
        rows = filters.rows(MARKOV[[tokens[-1], *draft.tokens]], tokens, draft)
        verdict = Greedy().verify(draft, rows, None, len(tokens)).clip(left)
        if EOS in verdict.tokens:
            verdict = verdict.clip(verdict.tokens.index(EOS) + 1)
        filters.commit(rows, verdict.path)
        tokens.extend(verdict.tokens)
    return tokens[len(prompt) :]


def drafter(truth: Sequence[int], seed: int, good: float = 0.75, most: int = 9) -> Draw:
    """Random trees whose nodes continue the true path (prompt and output) with probability `good`."""
    rng = random.Random(seed)

    def draw(tokens: list[int]) -> Draft:
        drafted: list[int] = []
        parents: list[int] = []
        ahead = [len(tokens)]  # index of the true token behind each row
        for node in range(rng.randint(0, most)):
            row = rng.choice([0, node, node, node])
            true = truth[ahead[row]] if ahead[row] < len(truth) else EOS
            drafted.append(true if rng.random() < good else rng.randrange(V))
            parents.append(row - 1)
            ahead.append(ahead[row] + 1)
        return Draft(tuple(drafted), tuple(parents))

    return draw


def chains(truth: Sequence[int], lengths: Sequence[int]) -> Draw:
    """Chains of true tokens followed by a wrong one, of the given lengths in turn; past the end they go on."""
    turns = iter(range(10**6))

    def draw(tokens: list[int]) -> Draft:
        n = lengths[next(turns) % len(lengths)]
        return Draft.chain([*truth[len(tokens) : len(tokens) + n], 11, 12])

    return draw


def with_processor(processor: Callable, **options: object) -> Filters:
    return filters_of({"processors": (processor,), **options}, len(PROMPT), eos_ids=(EOS,))
