"""Kind 12: ties and rounding."""

from __future__ import annotations

import copy
import math
from functools import cache

import pytest
import torch
from enroll import LOSSLESS, METHODS
from stubs import StubLM, tiny
from whole import Pair, base, law_of, make, near, run, say

from specdecode.models.hf import HFModel

# --- ties -------------------------------------------------------------------------------------------------------------


def tied(favourite: int) -> StubLM:
    """Ids 3 and 7 are exactly tied at every step; a drafter prefers one of them by a hair."""
    logits = torch.zeros(23)
    logits[[3, 7]] = 5.0
    logits[favourite] += 0.0 if favourite == 3 else 1e-3
    return StubLM(lambda *_: logits, 23)


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("drafts", [3, 7])
def test_the_lowest_of_equal_ids(drafts: int, method: str, rule: str) -> None:
    """Fault 72: every method x rule says 3, whichever of the two is drafted, alone and in a batch."""
    small = tied(drafts)
    drafter = make(method, Pair(tied(3), small, small.law))
    for prompts in ([[7, 7, 7]], [[7, 7, 7], [1], [3, 7, 3, 7]]):
        sessions = run(tied(3), drafter, *prompts, n=12, rule=rule)
        assert [session.new_tokens for session in sessions] == [[3] * 12] * len(prompts)


# --- bfloat16 ---------------------------------------------------------------------------------------------------------


def gaps(model: torch.nn.Module, prompt: list[int], new: list[int]) -> list[float]:
    """For each new token, how far its logit is below the row's maximum in a pass over the whole text, in units in the
    last place of a bfloat16 of the maximum's size."""
    with torch.no_grad():
        rows = model(torch.tensor([[*prompt, *new]])).logits[0, len(prompt) - 1 : -1].float()
    return [
        float(row.max() - row[t]) / 2.0 ** (math.frexp(float(row.max()))[1] - 8)
        for row, t in zip(rows, new, strict=True)
    ]


ULPS = 4
"""The bound of a token's gap in bfloat16: one pass of several rows and several passes of one row round differently, by
one or two units here. Float32 is exact (tests/parity)."""


def half(model: torch.nn.Module) -> HFModel:
    return HFModel(copy.deepcopy(model).to(torch.bfloat16))


@cache
def halves() -> Pair:
    small = half(near())
    return Pair(half(tiny()), small, law_of(small))


@pytest.mark.parametrize("method", METHODS)
def test_bfloat16_diverges_at_near_ties_only(method: str) -> None:
    """Fault 74: every emitted token is within ULPS of the maximum when the text is fed back in one pass; where it
    leaves plain decoding's text, the first divergence is printed with its gap."""
    pair = halves()
    for seed in (0, 3):  # texts with near-ties
        prompt = torch.randint(0, 97, (5 + seed,), generator=torch.Generator().manual_seed(seed)).tolist()
        new, plain = say(pair.target, make(method, pair), prompt), base(pair.target, prompt)
        worst = gaps(pair.target.model, prompt, new)
        first = next((i for i, (a, b) in enumerate(zip(new, plain, strict=True)) if a != b), None)
        if first is not None:
            print(f"{method}: first divergence at new token {first}, gap {worst[first]:.0f} ulp")
        assert max(worst) <= ULPS, f"token {worst.index(max(worst))} of {new} is {max(worst):.0f} ulp below the maximum"


def test_a_wrong_token_exceeds_the_bound() -> None:
    """Negative control of the above: the runner-up of an ordinary row is further away."""
    target = half(tiny())
    new = base(target, [5, 6, 7])
    wrong = [(token + 1) % 97 for token in new[:1]] + new[1:]
    assert gaps(target.model, [5, 6, 7], new)[0] <= ULPS < gaps(target.model, [5, 6, 7], wrong)[0]
