"""Kind 02: the sampled law. Rows about a rule alone are with the rules' unit tests; the joint law of every method is in
tests/parity/test_sampled_law.py."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from enroll import LOSSLESS
from stubs import DistLM, Watched, stub
from whole import run

from specdecode.drafters.lm import DraftLM
from specdecode.metrics import Metrics
from specdecode.sampling import Sampling
from specdecode.session import Session
from specdecode.types import Budget, Draft

P = (0.5, 0.3, 0.2)
ROWS, NEW = 25, 200


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize("k", [1, 2, 4])
def test_greedy_is_no_ratio_test(rule: str, k: int) -> None:
    """Fault 20: p(0) = .35 exceeds q(0) = .25, but at temperature 0 only token 1 may come out."""
    q = torch.tensor([0.25, 0.25, 0.25, 0.25]).log()

    def propose(row: int, turn: int, session: Session, budget: Budget) -> Draft:
        return Draft.chain([0] * min(k, budget.depth), [q] * min(k, budget.depth))

    (session,) = run(DistLM([0.35, 0.45, 0.15, 0.05]), stub(propose), [0], n=20, rule=rule)
    assert session.new_tokens == [1] * 20


def wasteful() -> Watched:
    """Draws from the target's very law, but by dice of its own."""
    dice, q = torch.Generator().manual_seed(0), torch.tensor(P).log()

    def propose(row: int, turn: int, session: Session, budget: Budget) -> Draft:
        if budget.depth < 1:
            return Draft()
        return Draft.chain([int(torch.multinomial(torch.tensor(P), 1, generator=dice))], [q])

    return stub(propose)


CASES = [("rejection", True, 1.0), ("rejection", False, 1.0), ("coupled", True, 1.0), ("coupled", False, 0.38)]


@pytest.mark.parametrize(("rule", "shared", "expected"), CASES)
def test_drafts_from_the_same_law_are_not_wasted(rule: str, shared: bool, expected: float) -> None:
    """Fault 21: with p = q the ratio rule accepts everything, and so does the coupled one if the drafter shares its
    noise; a drafter with dice of its own meets the target's draw at .38. Bounds are 4.5 sigma."""
    drafter = DraftLM(DistLM(P), k=1) if shared else wasteful()
    laws = [Sampling(temperature=1, seed=seed) for seed in range(ROWS)]
    sessions = run(DistLM(P), drafter, *[[0]] * ROWS, n=NEW, rule=rule, sampling=laws)
    rate = Metrics.from_records([record for session in sessions for record in session.records]).acceptance_rate
    assert rate == pytest.approx(expected, abs=0.04) if expected < 1 else rate == 1
    counts = Counter(token for session in sessions for token in session.new_tokens)
    for token, p in enumerate(P):
        assert counts[token] / (ROWS * NEW) == pytest.approx(p, abs=4.5 * (p * (1 - p) / (ROWS * NEW)) ** 0.5)
