"""The rules of drawn drafts where they broke elsewhere: one test for each public fault report that concerns them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from stubs import point_mass
from torch import Tensor
from verify_helpers import (
    EXACT,
    POSITION,
    Context,
    Drafting,
    Law,
    check,
    chosen,
    constant,
    decode,
    logits,
    measure,
    outcomes,
    random_law,
    rows,
    sampled,
    script,
)

from specdecode.sampling import Noise, Stream
from specdecode.types import Draft
from specdecode.verify import RULES, Verifier, make_rule

P = constant(0.5, 0.3, 0.2)
DRAWN = [name for name, row in RULES.items() if row.lossless and name not in ("greedy", "coupled")]


@pytest.fixture(params=DRAWN)
def rule(request: pytest.FixtureRequest) -> Verifier:
    return make_rule(request.param)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_the_correction_comes_from_the_row_of_the_rejected_token(rule: Verifier, k: int, wrong: int) -> None:
    """Fault 5: target one-hot at every position, drafter wrong at one position of each draft."""
    wanted = [int(t) for t in np.random.default_rng(0).integers(0, 9, 40)]

    def drafting(context: Context) -> Draft:
        tokens = wanted[len(context) : len(context) + k]
        tokens[min(wrong, k - 1)] = 9
        return Draft.chain(tokens, [point_mass(t, 10) for t in tokens])

    tokens, verdicts = decode(rule, script(wanted, 10), drafting, Stream(0), 30)
    assert tokens[:30] == wanted[:30]
    assert {v.accepted for v in verdicts} == {min(wrong, k - 1)}


def test_the_first_drafted_token_is_checked(rule: Verifier) -> None:
    """Fault 7: a draft of one token that is never right; then one that is right at its first token only."""
    wanted = [1, 4, 2, 0, 3] * 20
    never, _ = decode(rule, script(wanted, 6), lambda c: Draft.chain([5]), Stream(0), 40)
    assert never == wanted[:40]
    tokens, verdicts = decode(rule, script(wanted, 6), lambda c: Draft.chain([wanted[len(c)], 5]), Stream(0), 40)
    assert tokens == wanted[: len(tokens)]
    assert {v.accepted for v in verdicts} == {1}


def argmax_chain(q: Law, *, stated: bool) -> Drafting:
    """The likeliest token of q, chosen; `stated` is the fault: it comes with q as if it had been drawn from it."""
    law = logits(q(()))
    return lambda noise: Draft.chain([int(law.argmax())], [law if stated else None])


def test_an_argmax_draft_is_a_point_mass(rule: Verifier) -> None:
    """Fault 9: the drafter takes its argmax. With soft q in the ratio token 0 comes out at .857 in place of .6."""
    target, q = constant(0.6, 0.4), constant(0.7, 0.3)
    assert measure(rule, argmax_chain(q, stated=False), target).joint[0] == pytest.approx(0.6, abs=EXACT)
    assert measure(rule, argmax_chain(q, stated=True), target).joint[0] == pytest.approx(0.857, abs=5e-4)


def test_the_stated_law_must_be_the_filtered_one(rule: Verifier) -> None:
    """Fault 10: top_k = 2 on both sides; the fault draws from the filtered q and states the unfiltered."""
    target, q, raw = constant(3 / 7, 4 / 7, 0, 0), constant(4 / 7, 3 / 7, 0, 0), logits((0.4, 0.3, 0.2, 0.1))

    def misstated(noise: Noise) -> Draft:
        return Draft(sampled(q, 1)(noise).tokens, (-1,), q=(raw,))

    assert measure(rule, sampled(q, 1), target).error < EXACT
    assert measure(rule, sampled(q, 1), target).joint[2:].sum() == 0
    assert measure(rule, misstated, target).joint[:2] == pytest.approx([0.571, 0.429], abs=1e-3)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
@pytest.mark.parametrize("kept", [2, 3])
def test_filters_of_the_target_hold_whatever_the_drafter(rule: Verifier, temperature: float, kept: int) -> None:
    """Fault 11: target raw [.5, .3, .15, .05] cut to its head; whether the drafter filters or not, it is the law."""
    raw = np.array([0.5, 0.3, 0.15, 0.05])

    head = np.where(np.arange(4) < kept, raw, 0) ** (1 / temperature)
    target = constant(*head / head.sum())
    for q in (constant(*raw), constant(0.1, 0.2, 0.3, 0.4), target):
        measured = measure(rule, sampled(q, 2), target)
        assert measured.error < EXACT
        assert measured.joint[kept:].sum() == 0
    one_side_only = measure(rule, sampled(target, 1), constant(*raw))
    assert abs(one_side_only.joint - target(())).max() > 0.01


@pytest.mark.parametrize("q", [None, (0.2, 0.3, 0.5)])
def test_inputs_are_not_mutated(rule: Verifier, q: tuple[float, ...] | None) -> None:
    """Fault 13: p and q are bit-equal before and after, and the law stays right when they are used again."""
    law = None if q is None else logits(q)
    draft = Draft((1, 2, 0), (-1, -1, -1), q=(law,) * 3)
    target = rows(P, draft)
    before, law_before = target.clone(), None if law is None else law.clone()
    for seed in range(50):
        check(rule.verify(draft, target, Stream(seed), POSITION), draft)
    assert torch.equal(target, before)
    assert law is None or law_before is None or torch.equal(law, law_before)
    again = measure(rule, chosen(1), P)
    assert again.error < EXACT
    assert again.acceptance == pytest.approx(0.3, abs=EXACT)


def test_children_picked_by_rank_are_lossless(rule: Verifier) -> None:
    """Fault 15: children [0, 1] picked, not drawn: one-hot q, the tried token zeroed, p renormalised."""
    measured = measure(rule, chosen(0, 1), constant(0.4, 0.3, 0.2, 0.1))
    assert measured.error < EXACT
    assert measured.acceptance == pytest.approx(0.4 if rule.name == "block" else 0.7, abs=EXACT)  # of the first child


@dataclass
class Unlucky:
    """The uniform number just below 1, always; draws that refuse anything but a law."""

    draws: Stream

    def uniform(self) -> float:
        return 0.99999999

    def draw(self, logits: Tensor, position: int) -> int:
        assert not logits.isnan().any()
        assert logits.max() > -math.inf
        return self.draws.draw(logits, position)


ONE_HOT = logits((0, 1, 0))


@pytest.mark.parametrize("replacement", [True, False])
@pytest.mark.parametrize(
    ("p", "q"),
    [
        (logits((0.5, 0.5)), logits((0.5 + 1e-7, 0.5 - 1e-7))),
        (logits((0.5, 0.5)), logits((0.5, 0.5))),
        (logits((0.5, 0.5)), None),
        (ONE_HOT, logits((0.3, 0.3, 0.4))),
        (ONE_HOT, ONE_HOT),
        (ONE_HOT, logits((1, 0, 0))),
        (ONE_HOT, None),
        (logits((1 - 1e-8, 1e-8, 0)), None),
        (logits((0.5, 0.5, 0)), torch.full((3,), -math.inf)),
        (logits((0.5, 0.5, 0)), torch.full((3,), math.nan)),
    ],
)
def test_a_degenerate_residual_gives_a_possible_token(
    rule: Verifier, p: Tensor, q: Tensor | None, replacement: bool
) -> None:
    """Fault 19: no residual mass, equal laws, one-hot rows, broken laws, all with the least favourable coins."""
    for tokens in ((0, 1), (1, 0), (0, 0), (1, 1)):
        draft = Draft(tokens, (-1, -1), q=(q, q), replacement=replacement)
        verdict = rule.verify(draft, p.expand(3, -1), Unlucky(Stream(0)), POSITION)
        check(verdict, draft)
        assert all(p[t] > -math.inf for t in verdict.tokens)


@pytest.mark.parametrize("replacement", [True, False])
def test_a_residual_without_mass_leaves_the_target(rule: Verifier, replacement: bool) -> None:
    """Fault 19: one law stated twice, up to a constant, rounds so that q is nowhere below p: nothing is left of p."""
    stated = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0)) * 4
    p, q = stated.softmax(-1), (stated + 2.7).softmax(-1)
    hollow = ((q >= p).all(-1) & (q > p).any(-1)).nonzero().flatten().tolist()
    assert len(hollow) > 50
    for i in hollow[:50]:
        token = int((q[i] - p[i]).argmax())
        draft = Draft((token, token), (-1, -1), q=(stated[i] + 2.7,) * 2, replacement=replacement)
        verdict = rule.verify(draft, stated[i].expand(3, -1), Unlucky(Stream(i)), POSITION)
        check(verdict, draft)
        assert verdict.accepted == 0


def test_an_exact_drafter_is_always_accepted(rule: Verifier) -> None:
    """Fault 21: p = q: the ratio rule wastes nothing."""
    measured = measure(rule, sampled(P, 1, 1), P, length=2)
    assert measured.accepted == {2: pytest.approx(1.0, abs=EXACT)}
    assert measured.error < EXACT


DEGENERATE: dict[str, Drafting] = {
    "1x1": sampled(random_law(2, vocab=5), 1),
    "1x4": sampled(random_law(2, vocab=5), 4),
    "4x1": sampled(random_law(2, vocab=5, zeros=3), 1, 1, 1, 1),
    "width over vocabulary": sampled(random_law(2, vocab=5), 8),
    "width over support": sampled(random_law(2, vocab=5, zeros=3), 4),
    "repeats": sampled(random_law(2, vocab=5), 4, replacement=True),
    "all chosen": chosen(0, 1, 2, 3, 4, 0, 1, 2),
    "not from its law": lambda noise: Draft((4, 4, 4), (-1, -1, -1), q=(logits((1, 0, 0, 0, 0)),) * 3),
}


@pytest.mark.parametrize("shape", DEGENERATE)
def test_degenerate_trees(rule: Verifier, shape: str) -> None:
    """Fault 114: depth or width 1, more siblings than tokens, tokens that their law cannot give."""
    assert measure(rule, DEGENERATE[shape], random_law(1, vocab=5)).error < EXACT


@pytest.mark.parametrize("kept", [2, 3])
def test_the_order_of_ties_is_no_matter_when_drawing(rule: Verifier, kept: int) -> None:
    """Fault 72: exactly tied tokens come out equally often, whichever of them is drafted."""
    tied = constant(*(1 / kept if token < kept else 0 for token in range(4)))
    for drafting in (chosen(0), chosen(kept - 1), sampled(constant(0.4, 0.3, 0.2, 0.1), 2)):
        measured = measure(rule, drafting, tied)
        assert measured.joint == pytest.approx(tied(()), abs=EXACT)


def test_the_order_of_branches_does_not_leak_into_the_law(rule: Verifier) -> None:
    """Fault 112: a chain, a wide and a ragged tree of the same choices give one law."""
    target = random_law(1)
    for tokens, parents in (((0, 1), (-1, 0)), ((2, 0, 1), (-1,) * 3), ((1, 0, 2, 0, 1), (-1, -1, 0, 2, 1))):
        assert measure(rule, chosen(*tokens, parents=parents), target, length=3).error < EXACT


def test_what_the_filters_forbid_is_never_accepted(rule: Verifier) -> None:
    """Faults 32 and 34: a token behind a marker, or of a grammar, that the target's row forbids: rejected whatever its
    stated law, and an allowed one takes its place; what hangs on it is not accepted either."""
    target = random_law(3, vocab=4)

    def allowed(context: Context) -> np.ndarray:
        law = target(context) * np.array([1, 1, 0, 0])
        return np.array([0, 0, 0, 1.0]) if not context else law / law.sum()

    for q in (None, logits((0.1, 0.1, 0.7, 0.1))):
        draft = Draft((3, 2, 3, 0), (-1, 0, 1, 1), q=(None, q, q, None))
        for probability, verdict in outcomes(lambda noise: rule.verify(draft, rows(allowed, draft), noise, POSITION)):  # noqa: B023
            assert probability > 0
            assert verdict.tokens[0] == 3
            assert verdict.accepted == 1
            assert verdict.tokens[1] in (0, 1)
