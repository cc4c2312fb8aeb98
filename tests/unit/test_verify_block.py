"""Block verification: the published numbers, Algorithm 2 as printed beside it, and no fewer tokens than one by one."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from verify_helpers import EXACT, POSITION, chosen, constant, logits, measure, outcomes, random_law, rows, sampled

from specdecode import theory
from specdecode.sampling import Noise, Stream
from specdecode.types import Draft, Verdict
from specdecode.verify import Rows, Verifier
from specdecode.verify.block import Block
from specdecode.verify.rejection import Rejection
from specdecode.verify.traversal import Traversal

RULE = Block()
P, Q = constant(0.5, 0.3, 0.2), constant(0.2, 0.3, 0.5)
P2, Q2 = constant(1 / 3, 2 / 3), constant(2 / 3, 1 / 3)


def test_the_canonical_case() -> None:
    """Facts 2.4: 11/9 accepted tokens against 10/9 token by token; 4/3 is an upper bound and not the answer."""
    block, token = measure(RULE, sampled(Q2, 1, 1), P2, length=3), measure(Rejection(), sampled(Q2, 1, 1), P2, length=3)
    assert (block.mean, token.mean) == (pytest.approx(11 / 9, abs=EXACT), pytest.approx(10 / 9, abs=EXACT))
    assert max(block.error, token.error) < EXACT


@pytest.mark.parametrize(("g", "expected"), [(1, 0.7), (2, 1.25), (3, 1.695), (4, 2.0635)])
def test_published_mean_of_accepted_tokens_on_a_chain(g: int, expected: float) -> None:
    measured = measure(RULE, sampled(Q, *[1] * g), P)
    assert measured.mean == pytest.approx(expected, abs=EXACT)
    assert measured.mean == pytest.approx(float(theory.block_expected_tokens(P(()), Q(()), g)) - 1, abs=EXACT)


@dataclass(frozen=True)
class Printed:
    """Algorithm 2 as printed: all coins are tossed, the longest prefix that passes is taken. `hasty` stops at the first
    that does not pass, which is the fault."""

    hasty: bool = False
    name, lossless, keyed, draws = "printed", True, False, True

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        assert draft.q is not None
        g, weights, taken = len(draft), [1.0], 0
        p = [rows[i].double().softmax(-1) for i in range(g + 1)]
        q = [law.double().softmax(-1) for law in draft.q if law is not None]
        for i, token in enumerate(draft.tokens):
            weights.append(min(weights[-1] * float(p[i][token] / q[i][token]), 1.0))
        for i in range(1, g + 1):
            passes = weights[g]
            if i < g:
                mass = float((weights[i] * p[i] - q[i]).clamp(min=0).sum())
                passes = mass / (mass + 1 - weights[i]) if mass + 1 - weights[i] else 1.0
            if noise.uniform() < passes:
                taken = i
            elif self.hasty:
                break
        left = p[g] if taken == g else (weights[taken] * p[taken] - q[taken]).clamp(min=0)
        return Verdict.of(draft, range(taken), noise.draw(left.log(), position + taken))


def test_the_algorithm_as_printed_gives_the_same_steps() -> None:
    drafting, target = sampled(random_law(2), 1, 1, 1), random_law(1)
    ours, printed = measure(RULE, drafting, target, length=3), measure(Printed(), drafting, target, length=3)
    assert ours.accepted == pytest.approx(printed.accepted, abs=EXACT)
    assert printed.error < EXACT


def test_control_stopping_at_the_first_failure_fails() -> None:
    assert measure(Printed(hasty=True), sampled(random_law(2), 1, 1, 1), random_law(1), length=3).error > 0.01


WEIGHTS = st.lists(st.integers(0, 6), min_size=3, max_size=3).filter(any)


@settings(max_examples=40, deadline=None)
@given(WEIGHTS, WEIGHTS, st.integers(1, 3))
def test_no_fewer_tokens_than_token_by_token(p: list[int], q: list[int], g: int) -> None:
    target, draft = constant(*(x / sum(p) for x in p)), constant(*(x / sum(q) for x in q))
    block = measure(RULE, sampled(draft, *[1] * g), target, length=2)
    assert block.error < EXACT
    assert block.mean >= measure(Rejection(), sampled(draft, *[1] * g), target).mean - EXACT


@pytest.mark.parametrize("seed", range(4))
def test_no_fewer_tokens_where_laws_depend_on_the_path(seed: int) -> None:
    target, drafting = random_law(seed), sampled(random_law(seed + 10), 1, 1, 1)
    assert measure(RULE, drafting, target).mean >= measure(Rejection(), drafting, target).mean


def test_one_token_is_the_token_rule() -> None:
    draft = sampled(Q, 1)
    assert measure(RULE, draft, P).accepted == pytest.approx(measure(Rejection(), draft, P).accepted, abs=EXACT)


def test_a_chosen_chain_is_the_token_rule() -> None:
    """Point masses leave nothing to be gained from the whole: a prefix is accepted with its probability."""
    measured = measure(RULE, chosen(1, 0, 2, parents=(-1, 0, 1)), P, length=3)
    assert measured.accepted == pytest.approx({0: 0.7, 1: 0.15, 2: 0.12, 3: 0.03}, abs=EXACT)
    assert measured.error < EXACT


def steps(rule: Verifier, draft: Draft, target: Tensor) -> list[tuple[float, Verdict]]:
    return list(outcomes(lambda noise: rule.verify(draft, target, noise, POSITION)))


def test_of_a_tree_the_first_children_are_a_chain() -> None:
    target = rows(P, Draft((0, 1, 2, 0), (-1, -1, 0, 0)))
    of_tree = steps(RULE, Draft((0, 1, 2, 0), (-1, -1, 0, 0)), target)
    of_chain = steps(RULE, Draft((0, 2), (-1, 0)), target[[0, 1, 3]])
    assert [(p, v.tokens) for p, v in of_tree] == [(p, v.tokens) for p, v in of_chain]


def test_on_a_chain_it_is_traversal() -> None:
    target = random_law(1)
    for _, draft in outcomes(sampled(random_law(2), 1, 1, 1)):
        assert steps(RULE, draft, rows(target, draft)) == steps(Traversal(), draft, rows(target, draft))


def test_rows_behind_an_impossible_token_are_not_read() -> None:
    """Fault 20: whatever stands there, broken numbers too."""
    target = torch.stack([logits((0.5, 0.5, 0)), logits((0.2, 0.3, 0.5)), torch.full((3,), torch.nan)])
    draft = Draft.chain([0, 2], [logits((1, 0, 0)), logits((0.5, 0.5, 0))])
    impossible = Draft.chain([2, 0], draft.q)
    for probability, verdict in outcomes(lambda noise: RULE.verify(impossible, target, noise, POSITION)):
        assert probability > 0
        assert verdict.accepted == 0


def test_a_broken_row_spoils_what_hangs_on_it_alone() -> None:
    """The row after token 0 is NaN: that is an error where 0 is accepted, and no matter where it is not."""
    target = torch.stack([logits((0.2, 0.3, 0.5)), torch.full((3,), torch.nan), logits((0.2, 0.3, 0.5))])
    draft = Draft.chain([0, 1], [logits((0.8, 0.1, 0.1)), logits((0.5, 0.5, 0))])
    refused = 0.0
    for seed in range(200):
        verdict = RULE.verify(draft, target, Stream(seed), POSITION)
        assert verdict.accepted < 2
        refused += verdict.accepted == 0
    assert 0.6 < refused / 200 < 0.9, "token 0 is accepted once in four"
