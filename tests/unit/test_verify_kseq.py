"""K-SEQ: published acceptances and factors, and rejection wherever siblings are no independent draws of one law."""

from __future__ import annotations

import pytest
from verify_helpers import (
    EXACT,
    POSITION,
    Law,
    chosen,
    constant,
    logits,
    measure,
    outcomes,
    random_law,
    rows,
    sampled,
)

from specdecode import theory
from specdecode.types import Draft
from specdecode.verify import kseq
from specdecode.verify.kseq import KSeq
from specdecode.verify.rejection import Rejection

RULE = KSeq()
P, Q = constant(0.5, 0.3, 0.2), constant(0.2, 0.3, 0.5)


@pytest.mark.parametrize(
    ("target", "q", "k", "expected"),
    [
        (P, Q, 1, 0.7),
        (P, Q, 2, 0.7914),
        (P, Q, 3, 0.8585),
        (constant(1, 0), constant(0.5, 0.5), 2, 0.75),
    ],
)
def test_published_acceptance_of_siblings(target: Law, q: Law, k: int, expected: float) -> None:
    """Facts 2.5; also printed in Sequoia F.3."""
    measured = measure(RULE, sampled(q, k, replacement=True), target)
    assert measured.acceptance == pytest.approx(expected, abs=5e-5)
    assert measured.acceptance == pytest.approx(theory.kseq_acceptance(target(()), q(()), k), abs=EXACT)
    assert measured.error < EXACT


@pytest.mark.parametrize("rho", [1.0, 1.2])
def test_control_a_factor_too_small_fails(monkeypatch: pytest.MonkeyPatch, rho: float) -> None:
    """1.4568 is the smallest that keeps the law: what is accepted would exceed it."""
    monkeypatch.setattr(kseq, "smallest_rho", lambda beta, k: rho)
    assert measure(RULE, sampled(Q, 2, replacement=True), P).error > 0.01


def test_a_larger_factor_costs_acceptance_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kseq, "smallest_rho", lambda beta, k: 1.9)
    measured = measure(RULE, sampled(Q, 2, replacement=True), P)
    assert measured.error < EXACT
    assert measured.acceptance < 0.78


@pytest.mark.parametrize(
    "draft",
    [
        Draft((0, 2, 1), (-1, -1, 0)),
        Draft((0, 2), (-1, -1), q=(logits(Q(())),) * 2),
        Draft((0, 2), (-1, -1), q=(logits(Q(())), logits((0.3, 0.3, 0.4))), replacement=True),
        Draft((2, 1), (-1, 0), q=(logits(Q(())),) * 2, replacement=True),
    ],
    ids=["chosen", "without replacement", "another law each", "chain"],
)
def test_siblings_that_are_no_group_are_tried_as_rejection_does(draft: Draft) -> None:
    target = rows(P, draft)
    ours, token = (
        [
            (v.tokens, v.path, p)
            for p, v in outcomes(lambda noise, rule=rule: rule.verify(draft, target, noise, POSITION))
        ]
        for rule in (RULE, Rejection())
    )
    assert [step[:2] for step in ours] == [step[:2] for step in token]
    assert [step[2] for step in ours] == pytest.approx([step[2] for step in token], abs=EXACT)


def test_a_group_ends_where_a_token_was_not_drawn_from_its_law() -> None:
    law = logits((0.8, 0.2, 0))
    draft = Draft((0, 2, 1), (-1, -1, -1), q=(law,) * 3, replacement=True)
    target = rows(P, draft)
    steps = list(outcomes(lambda noise: RULE.verify(draft, target, noise, POSITION)))
    assert sum(p for p, _ in steps) == pytest.approx(1, abs=EXACT)
    assert {v.tokens[0] for _, v in steps} == {0, 1, 2}


@pytest.mark.parametrize("k", [2, 3])
def test_laws_without_common_token(k: int) -> None:
    """Nothing in common: beta is 0, and 0 / 0 must not show."""
    measured = measure(RULE, sampled(constant(0, 0, 0.4, 0.6), k, replacement=True), constant(0.3, 0.7, 0, 0))
    assert measured.accepted == {0: pytest.approx(1, abs=EXACT)}
    assert measured.error < EXACT


def test_a_law_equal_to_the_target_is_always_accepted() -> None:
    """Fault 21: beta is 1 and rho too; nothing is wasted."""
    measured = measure(RULE, sampled(P, 2, 1, replacement=True), P, length=2)
    assert measured.accepted == {2: pytest.approx(1, abs=EXACT)}
    assert measured.error < EXACT


def test_chosen_children_are_accepted_with_their_share_of_the_target() -> None:
    assert measure(RULE, chosen(2, 1), random_law(1)).error < EXACT
    assert measure(RULE, chosen(2, 1), P).acceptance == pytest.approx(0.5, abs=EXACT)
