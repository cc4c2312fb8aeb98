"""Any tree, any laws, any draft: what is true of every verdict of every rule."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from verify_helpers import POSITION, check

from specdecode.sampling import Argmax, Keyed, Noise, Stream
from specdecode.types import Draft, Verdict
from specdecode.verify import RULES, make_rule
from specdecode.verify.coupled import Coupled
from specdecode.verify.greedy import Greedy

VOCAB = 4
NUMBERS = st.one_of(st.just(-math.inf), st.floats(-60, 60, width=32), st.sampled_from([0.0, 1.0]))
LAWS = st.lists(NUMBERS, min_size=VOCAB, max_size=VOCAB).filter(lambda row: max(row) > -math.inf).map(torch.tensor)


@dataclass(frozen=True)
class Case:
    draft: Draft
    rows: Tensor  # [n + 1, V]
    seed: int

    def law_at(self, path: tuple[int, ...]) -> Tensor:
        return self.rows[path[-1] + 1 if path else 0]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    n = draw(st.integers(0, 8))
    laws = [None, draw(LAWS), draw(LAWS)]
    draft = Draft(
        tokens=tuple(draw(st.lists(st.integers(0, VOCAB - 1), min_size=n, max_size=n))),
        parents=tuple(draw(st.integers(-1, i - 1)) for i in range(n)),
        candidate=draw(st.none() | st.lists(st.booleans(), min_size=n, max_size=n).map(tuple)),
        q=draw(st.none() | st.lists(st.sampled_from(laws), min_size=n, max_size=n).map(tuple)),
        replacement=draw(st.booleans()),
    )
    return Case(draft, torch.stack(draw(st.lists(LAWS, min_size=n + 1, max_size=n + 1))), draw(st.integers(0, 2**31)))


def check_step(case: Case, verdict: Verdict) -> None:
    check(verdict, case.draft)
    for depth, token in enumerate(verdict.tokens):
        assert case.law_at(verdict.path[:depth])[token] > -math.inf


def snapshot(case: Case) -> list[Tensor]:
    return [case.rows.clone(), *(law.clone() for law in case.draft.q or () if law is not None)]


def untouched(case: Case, before: list[Tensor]) -> bool:
    return all(map(torch.equal, snapshot(case), before))


def drafted_children(case: Case, path: tuple[int, ...]) -> set[int]:
    node = path[-1] if path else -1
    draft = case.draft
    return {draft.tokens[i] for i, p in enumerate(draft.parents) if p == node and draft.is_candidate(i)}


@settings(max_examples=60, deadline=None)
@given(cases())
@pytest.mark.parametrize("name", [name for name in RULES if name not in ("greedy", "coupled")])
def test_every_rule(name: str, case: Case) -> None:
    """An unbroken path, no impossible token, the inputs as they were, and the same again from the same noise."""
    rule, before = make_rule(name), snapshot(case)
    noises: list[tuple[Noise, Noise]] = [(Stream(case.seed), Stream(case.seed))] if rule.draws else []
    if not rule.lossless:
        noises.append((Argmax(), Argmax()))
    for noise, again in noises:
        verdict = rule.verify(case.draft, case.rows, noise, POSITION)
        check_step(case, verdict)
        assert untouched(case, before)
        assert verdict == rule.verify(case.draft, case.rows, again, POSITION)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_greedy_is_the_argmax_walk(case: Case) -> None:
    before = snapshot(case)
    verdict = Greedy().verify(case.draft, case.rows, Argmax(), POSITION)
    check_step(case, verdict)
    assert untouched(case, before)
    for depth, token in enumerate(verdict.tokens):
        row = case.law_at(verdict.path[:depth]).tolist()
        assert token == row.index(max(row))
    assert verdict.tokens[-1] not in drafted_children(case, verdict.path)


@settings(max_examples=100, deadline=None)
@given(cases())
def test_coupled_emits_the_draws_of_its_positions(case: Case) -> None:
    before = snapshot(case)
    verdict = Coupled().verify(case.draft, case.rows, Keyed(case.seed, VOCAB), POSITION)
    check_step(case, verdict)
    assert untouched(case, before)
    for depth, token in enumerate(verdict.tokens):
        assert token == Keyed(case.seed, VOCAB).draw(case.law_at(verdict.path[:depth]), POSITION + depth)
    assert verdict.tokens[-1] not in drafted_children(case, verdict.path)
