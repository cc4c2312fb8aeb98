"""The relaxed rules: their published thresholds and acceptances, and where they are one another or exact."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from verify_helpers import EXACT, POSITION, Drafting, chosen, constant, logits, measure, outcomes, random_law, sampled

from specdecode import theory
from specdecode.errors import BadOption
from specdecode.sampling import Argmax, Stream
from specdecode.types import Draft, Verdict
from specdecode.verify import RULES, Verifier, make_rule
from specdecode.verify.bild import Bild
from specdecode.verify.blockwise import Blockwise
from specdecode.verify.distillspec import DistillSpec
from specdecode.verify.greedy import Greedy
from specdecode.verify.lenient import Lenient
from specdecode.verify.rejection import Rejection
from specdecode.verify.topbeta import TopBeta
from specdecode.verify.typical import Typical

P, Q = constant(0.5, 0.3, 0.2), constant(0.2, 0.3, 0.5)
RELAXED = [name for name, row in RULES.items() if not row.lossless]


def greedily(rule: Verifier, draft: Draft, target: Tensor, spent: float = 0.0) -> Verdict:
    return rule.verify(draft, target, Argmax(), POSITION, spent)


def passing(rule: Verifier, *law: float, greedy: bool = True) -> list[int]:
    """The tokens that pass as the only child of the newest."""
    target = logits(law).expand(2, -1)
    noise = Argmax() if greedy else Stream(0)
    verdicts = [rule.verify(Draft.chain([token]), target, noise, POSITION) for token in range(len(law))]
    return [token for token, verdict in enumerate(verdicts) if verdict.accepted]


# --- lenience -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lenience", "expected"), [(1.0, 0.7), (0.5, 0.9), (0.4, 1.0)])
def test_lenience_accepts_what_the_paper_says(lenience: float, expected: float) -> None:
    """Facts 2.3; no token gets more than p / l."""
    measured = measure(Lenient(lenience), sampled(Q, 1), P)
    assert measured.acceptance == pytest.approx(expected, abs=EXACT)
    assert measured.acceptance == pytest.approx(float(theory.acceptance(P(()), Q(()), lenience)), abs=EXACT)
    assert (measured.joint <= P(()) / lenience + EXACT).all()


@pytest.mark.parametrize("drafting", [sampled(Q, 2), sampled(Q, 2, 1, replacement=True), chosen(2, 1)])
def test_no_token_gets_more_than_lenience_allows_on_trees(drafting: Drafting) -> None:
    measured = measure(Lenient(0.6), drafting, P)
    assert (measured.joint <= P(()) / 0.6 + EXACT).all()
    assert measured.acceptance > measure(Rejection(), drafting, P).acceptance


@pytest.mark.parametrize("lenience", [1.0, 0.61, 0.59, 0.41, 0.39])
def test_lenience_when_greedy(lenience: float) -> None:
    expected = [token for token in range(3) if theory.leniently_accepted(P(()), token, lenience)]
    assert passing(Lenient(lenience), 0.5, 0.3, 0.2) == expected


# --- DistillSpec ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "raised"),
    [("linear", lambda p, e: p / e), ("square", lambda p, e: p / e**2), ("power", lambda p, e: p**e)],
)
@pytest.mark.parametrize("epsilon", [1.0, 0.8, 0.3])
def test_distillspec_raises_the_targets_share(shape: str, raised: Any, epsilon: float) -> None:
    expected = np.minimum(raised(P(()), epsilon), Q(())).sum()
    assert measure(DistillSpec(shape, epsilon), sampled(Q, 1), P).acceptance == pytest.approx(expected, abs=EXACT)


@pytest.mark.parametrize("drafting", [sampled(random_law(2), 1, 1), sampled(random_law(2), 2, 1), chosen(2, 0, 1)])
def test_linear_distillspec_is_lenience(drafting: Drafting) -> None:
    ours, lenient = (
        measure(rule, drafting, random_law(1), length=2) for rule in (DistillSpec("linear", 0.4), Lenient(0.4))
    )
    assert ours.joint == pytest.approx(lenient.joint, abs=EXACT)
    assert ours.accepted == pytest.approx(lenient.accepted, abs=EXACT)


# --- SpecDec --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (TopBeta(1, 9), [1]),
        (TopBeta(2, 9), [0, 1]),
        (TopBeta(3, 9), [0, 1, 3]),
        (TopBeta(4, math.log(0.4 / 0.3) + 1e-6), [0, 1]),
        (TopBeta(4, math.log(0.4 / 0.2) + 1e-6), [0, 1, 3]),
        (TopBeta(), [0, 1, 2, 3]),
        (TopBeta(tau=0), [1]),
    ],
)
def test_top_beta_and_tau(rule: TopBeta, expected: list[int]) -> None:
    assert passing(rule, 0.3, 0.4, 0.1, 0.2) == expected


NUMBERS = st.one_of(st.just(-math.inf), st.floats(-8, 8, width=32), st.sampled_from([0.0, 1.0]))
ROW = st.lists(NUMBERS, min_size=4, max_size=4).filter(lambda row: max(row) > -math.inf).map(torch.tensor)


@st.composite
def greedy_cases(draw: st.DrawFn) -> tuple[Draft, Tensor]:
    """A tree without equal siblings, and its rows."""
    edges = draw(st.lists(st.tuples(st.integers(-1, 5), st.integers(0, 3)), min_size=1, max_size=6, unique=True))
    nodes: list[tuple[int, int]] = []
    for parent, token in edges:
        nodes += [(parent, token)] if parent < len(nodes) else []
    draft = Draft(tuple(token for _, token in nodes), tuple(parent for parent, _ in nodes))
    return draft, torch.stack(draw(st.lists(ROW, min_size=len(nodes) + 1, max_size=len(nodes) + 1)))


@settings(max_examples=60, deadline=None)
@given(greedy_cases(), st.floats(0, 6))
def test_tau_alone_is_lenience(case: tuple[Draft, Tensor], tau: float) -> None:
    """Facts 2.3: beta = V; the gap of logits is one of log-probabilities, so l = e^-tau."""
    lenience = math.exp(-tau)
    ours, lenient = TopBeta(4, -math.log(lenience)), Lenient(lenience)
    assert greedily(ours, *case) == greedily(lenient, *case)


EXACT_WHEN_GREEDY: list[Verifier] = [
    Lenient(1.0),
    DistillSpec(),
    Typical(),
    TopBeta(beta=1),
    TopBeta(tau=0),
    Blockwise(top=1),
    Bild(rollback=0),
    *(make_rule(name, budget=0) for name in RELAXED),
]


@settings(max_examples=60, deadline=None)
@given(greedy_cases())
@pytest.mark.parametrize("rule", EXACT_WHEN_GREEDY, ids=repr)
def test_what_is_exact_when_greedy(rule: Verifier, case: tuple[Draft, Tensor]) -> None:
    """Of tied tokens a rule at its exact value may take another, at no cost."""
    ours, greedy = greedily(rule, *case), greedily(Greedy(), *case)
    assert not any(ours.nats)
    ties = any(int((row == row.max()).sum()) > 1 for row in case[1])
    assert ours == greedy or ties


# --- Medusa ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        ((0.5, 0.3, 0.2), 0.09),
        *(((1 / n,) * n, expected) for n, expected in ((4, 0.075), (10, 0.03), (20, 0.015), (50, 0.006))),
        ((0.99, 0.01), 0.09),
        ((1.0, 0.0), 0.09),
    ],
)
def test_typical_thresholds(law: tuple[float, ...], expected: float) -> None:
    """Facts 2.3: min(.09, .3 exp(-H)), H in nats; the defaults are not to be swapped."""
    assert Typical().threshold(torch.tensor(law)) == pytest.approx(expected, abs=EXACT)


def test_typical_acceptance_is_above_the_threshold() -> None:
    law = (0.4, 0.3, 0.2, 0.06, 0.04)
    assert Typical().threshold(torch.tensor(law)) == pytest.approx(0.078, abs=1e-4)
    assert passing(Typical(), *law, greedy=False) == [0, 1, 2]
    assert passing(Typical(epsilon=0.05), *law, greedy=False) == [0, 1, 2, 3]
    assert passing(Typical(), 0.25, 0.25, 0.25, 0.25, greedy=False) == [0, 1, 2, 3]
    quarter = float(logits((0.25, 0.75)).softmax(-1)[0])
    assert passing(Typical(quarter, 1.0), 0.25, 0.75, greedy=False) == [1], "strictly above"


def test_typical_takes_the_longest_path_and_of_two_the_likeliest() -> None:
    target = torch.stack([logits((0.5, 0.3, 0.2))] * 6)
    for draft, path in (
        (Draft((0, 1, 2), (-1, -1, 1)), (1, 2)),
        (Draft((1, 0, 2, 1), (-1, -1, 0, 1)), (1, 3)),
        (Draft((0, 0, 0, 2), (-1, -1, 0, 1), candidate=(False, True, True, True)), (1, 3)),
    ):
        for seed in range(5):
            verdict = Typical().verify(draft, target, Stream(seed), POSITION)
            assert verdict.path == path
            assert verdict.nats[:-1] == pytest.approx([-math.log(P(())[draft.tokens[i]]) for i in path], abs=EXACT)


def test_typical_draws_the_next_token_from_the_target() -> None:
    draft = Draft.chain([0, 2])
    target = torch.stack([logits((0.9, 0.05, 0.05)), logits((0.6, 0.35, 0.05)), logits((1, 0, 0))])
    nexts: dict[int, float] = {}
    for probability, verdict in outcomes(lambda noise: Typical().verify(draft, target, noise, POSITION)):
        assert verdict.path == (0,)
        nexts[verdict.tokens[1]] = nexts.get(verdict.tokens[1], 0) + probability
    assert nexts == pytest.approx({0: 0.6, 1: 0.35, 2: 0.05}, abs=EXACT)


# --- Blockwise ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Blockwise(), [0, 1]),
        (Blockwise(top=3), [0, 1, 4]),
        (Blockwise(top=1, distance=1), [0, 1, 2]),
        (Blockwise(top=1, distance=2), [0, 1, 2, 3]),
        (Blockwise(top=2, distance=1), [0, 1, 2]),
        (Blockwise(top=1, block=2), [0, 1, 2, 3, 4]),
    ],
)
def test_blockwise_criteria(rule: Blockwise, expected: list[int]) -> None:
    assert passing(rule, 0.3, 0.35, 0.05, 0.1, 0.2) == expected


@pytest.mark.parametrize("block", [1, 2, 3, 4, 9])
def test_a_minimum_block(block: int) -> None:
    """A step gives `block` tokens, as far as they are drafted: the next token is one of them."""
    verdict = greedily(Blockwise(top=1, block=block), Draft.chain([1, 2, 1]), logits(P(())).expand(4, -1))
    assert len(verdict.tokens) == min(block, 4)


def test_a_minimum_block_never_holds_what_is_forbidden() -> None:
    """Fault 34: a token that a filter forbids is not forced either."""
    target = torch.stack([logits((0.5, 0.5, 0)), logits((0.5, 0.3, 0.2)), logits((1, 0, 0))])
    assert greedily(Blockwise(block=3), Draft.chain([2, 0]), target).tokens == (0,)
    assert greedily(Blockwise(block=3), Draft.chain([1, 2]), target).tokens == (1, 2, 0)


# --- BiLD -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rollback", "least"), [(5.0, 0.00674), (2.0, 0.1353)])
def test_bild_rolls_back_by_distance(rollback: float, least: float) -> None:
    """Facts 2.3: the cross-entropy of the drafted token, so p >= e^-rollback."""
    assert math.exp(-rollback) == pytest.approx(least, abs=5e-5)
    for share, stays in ((1.01 * least, True), (0.99 * least, False)):
        assert (1 in passing(Bild(rollback), 1 - share, share)) is stays


def test_bild_falls_back_where_the_drafter_is_unsure() -> None:
    target = logits((0.5, 0.3, 0.2)).expand(3, -1)
    for confidence, accepted in (((0.7, 0.7), 2), ((0.7, 0.5), 1), ((0.5, 0.9), 0), (None, 2)):
        draft = Draft.chain([1, 1], confidence=confidence)
        assert greedily(Bild(), draft, target).accepted == accepted
    sure = Draft.chain([0, 1], confidence=(0.1, 0.9))
    assert greedily(Bild(), sure, target).accepted == 2, "the likeliest token stays in any case"


def test_bild_replaces_by_the_likeliest_and_drops_the_rest() -> None:
    target = torch.stack([logits((0.6, 0.399, 0.001)), logits((0.2, 0.799, 0.001)), logits((1, 0, 0))])
    assert greedily(Bild(), Draft.chain([1, 2]), target) == Verdict(
        (1, 1), (0,), 1, (pytest.approx(math.log(0.6 / 0.399), abs=EXACT), 0.0)
    )


# --- what cannot be asked -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {"budget": budget}) for name in RELAXED for budget in (-1, math.nan, "1", True)),
        *(("lenient", {"lenience": value}) for value in (0, 1.1, None, math.nan)),
        *(("distillspec", {"epsilon": value}) for value in (0, 2)),
        ("distillspec", {"shape": "cubic"}),
        *(("typical", {option: value}) for option in ("epsilon", "delta") for value in (0, 1.5)),
        ("topbeta", {"beta": 0}),
        ("topbeta", {"tau": -1}),
        *(("blockwise", {option: -1}) for option in ("top", "distance", "block")),
        ("bild", {"rollback": -0.1}),
        ("bild", {"fallback": 1.1}),
    ],
)
def test_options_out_of_range_are_refused(name: str, options: dict[str, Any]) -> None:
    (option,) = options
    with pytest.raises(BadOption, match=rf"rule '{name}': {option}=.*; (give|use) [^\n]+$|whole number"):
        make_rule(name, **options)
