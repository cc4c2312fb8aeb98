"""The acceptance of one node: formulas against published values and against exact enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction as Frac

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from theory_helpers import EVEN, SURE, P, Q, law_pairs

from specdecode import theory


@pytest.mark.parametrize(
    ("lenience", "expected"), [(Frac(1), Frac(7, 10)), (Frac(1, 2), Frac(9, 10)), (Frac(2, 5), Frac(1))]
)
def test_acceptance_with_lenience(lenience, expected):
    assert theory.acceptance(P, Q, lenience) == expected


def test_lenience_scales_the_draft_law_not_the_target():
    assert theory.acceptance(EVEN, (Frac(9, 10), Frac(1, 10)), Frac(1, 2)) == 1


@given(law_pairs())
def test_acceptance_is_one_minus_total_variation(laws):
    p, q = laws
    assert theory.acceptance(p, q) == 1 - sum(abs(x - y) for x, y in zip(p, q, strict=True)) / 2


def test_lenience_at_temperature_zero():
    """The paper prints <=, by which l = 1 would accept everything: it has to be exact."""
    assert [theory.leniently_accepted(P, token, 1) for token in range(3)] == [True, False, False]
    assert [theory.leniently_accepted(P, token, Frac(6, 10)) for token in range(3)] == [True, True, False]
    assert [theory.leniently_accepted(P, token, Frac(4, 10)) for token in range(3)] == [True, True, True]


@pytest.mark.parametrize(
    ("rule", "p", "q", "k", "expected"),
    [
        (theory.mss_acceptance, SURE, EVEN, 2, Frac(3, 4)),
        (theory.without_replacement_acceptance, SURE, EVEN, 2, Frac(1)),
        (theory.naive_acceptance, SURE, EVEN, 2, Frac(3, 4)),
        (theory.top_k_acceptance, (Frac(6, 10), Frac(4, 10)), (Frac(6, 10), Frac(4, 10)), 1, Frac(6, 10)),
        (theory.mss_acceptance, (Frac(6, 10), Frac(4, 10)), (Frac(6, 10), Frac(4, 10)), 1, Frac(1)),
        (theory.without_replacement_acceptance, (Frac(6, 10), Frac(4, 10)), (Frac(6, 10), Frac(4, 10)), 1, Frac(1)),
        (theory.mss_acceptance, P, Q, 1, Frac(7, 10)),
        (theory.mss_acceptance, P, Q, 2, Frac(76, 100)),
        (theory.mss_acceptance, P, Q, 3, Frac(808, 1000)),
        (theory.without_replacement_acceptance, P, Q, 1, Frac(7, 10)),
        (theory.without_replacement_acceptance, P, Q, 2, Frac(82, 100)),
        (theory.without_replacement_acceptance, P, Q, 3, Frac(1)),
        (theory.naive_acceptance, P, Q, 2, Frac(483, 1000)),
        (theory.naive_acceptance, P, Q, 3, Frac(6161, 10000)),
        (theory.top_k_acceptance, P, Q, 2, Frac(1, 2)),
    ],
)
def test_published_and_enumerated_acceptances(rule, p, q, k, expected):
    assert rule(p, q, k) == expected
    assert rule([float(x) for x in p], [float(x) for x in q], k) == pytest.approx(float(expected))


def draws(q: list[Frac], k: int, replacement: bool) -> Iterator[tuple[tuple[int, ...], Frac]]:
    """Every ordered draw of k tokens and its probability; draws beyond the support of q are uniform over the rest."""
    for tokens in itertools.product(range(len(q)), repeat=k):
        chance = Frac(1)
        for i, token in enumerate(tokens):
            seen = set() if replacement else set(tokens[:i])
            weights = [0 if t in seen else x for t, x in enumerate(q)]
            if not any(weights):
                weights = [0 if t in seen else 1 for t in range(len(q))]
            chance *= Frac(weights[token], sum(weights))
        if chance:
            yield tokens, chance


def refused_all(p: list[Frac], q: list[Frac], tokens: tuple[int, ...], replacement: bool) -> Frac:
    """The chance that each of these drawn tokens is refused in turn: the algorithm as it is run, on one draw."""
    left, law, chance = list(p), list(q), Frac(1)
    for i, token in enumerate(tokens):
        accept = min(Frac(1), left[token] / law[token])
        if accept == 1:
            return Frac(0)
        chance *= 1 - accept
        rest = [max(x - y, Frac(0)) for x, y in zip(left, law, strict=True)]
        left = [x / sum(rest) for x in rest]
        if not replacement:
            law = [Frac(0) if t in tokens[: i + 1] else x for t, x in enumerate(law)]
            if not any(law):
                law = [Frac(t not in tokens[: i + 1]) for t in range(len(law))]
            if any(law):
                law = [x / sum(law) for x in law]
    return chance


@given(law_pairs(most=3), st.integers(1, 3))
def test_mss_by_enumeration_of_draws(laws, k):
    p, q = laws
    refused = sum(chance * refused_all(p, q, tokens, True) for tokens, chance in draws(q, k, True))
    assert theory.mss_acceptance(p, q, k) == 1 - refused


@given(law_pairs(), st.integers(1, 4))
def test_without_replacement_by_enumeration_of_draws(laws, k):
    p, q = laws
    assume(k <= len(q))
    refused = sum(chance * refused_all(p, q, tokens, False) for tokens, chance in draws(q, k, False))
    assert theory.without_replacement_acceptance(p, q, k) == 1 - refused


@given(law_pairs(), st.integers(1, 3))
def test_naive_by_enumeration_of_draws(laws, k):
    p, q = laws
    found = sum(chance * sum(p[token] for token in set(tokens)) for tokens, chance in draws(q, k, True))
    assert theory.naive_acceptance(p, q, k) == found


@given(law_pairs(), st.integers(1, 4))
def test_mss_refuses_no_more_than_naive(laws, k):
    """SpecInfer theorem 4.3."""
    assert theory.mss_acceptance(*laws, k) >= theory.naive_acceptance(*laws, k)


@pytest.mark.parametrize(
    ("p", "q", "k", "rho", "expected"),
    [(P, Q, 1, 1, 0.7), (P, Q, 2, 1.4568, 0.7914), (P, Q, 3, 1.7926, 0.8585), (SURE, EVEN, 2, 1.5, 0.75)],
)
def test_published_kseq(p, q, k, rho, expected):
    """SpecTr; printed in Sequoia F.3."""
    assert theory.kseq_rho(p, q, k) == pytest.approx(rho, abs=5e-5)
    assert theory.kseq_acceptance(p, q, k) == pytest.approx(expected, abs=5e-5)


@given(law_pairs(), st.integers(1, 5))
def test_kseq_is_the_least_that_keeps_the_law(laws, k):
    p, q = ([float(x) for x in law] for law in laws)
    rho = theory.kseq_rho(p, q, k)
    assert 1 <= rho <= k

    def excess(rho):
        beta = sum(min(y, x / rho) for x, y in zip(p, q, strict=True))
        return 1 - (1 - beta) ** k - rho * beta

    assert excess(rho) <= 1e-9
    assert rho == 1 or excess(rho - 1e-4) > -1e-12  # a plateau where p = q
    assert theory.kseq_acceptance(p, q, 1) == pytest.approx(theory.acceptance(p, q))
    assert theory.kseq_acceptance(p, q, k) >= theory.acceptance(p, q) - 1e-6


@pytest.mark.parametrize(("g", "expected"), [(1, 0.7), (2, 1.25), (3, 1.695), (4, 2.0635)])
def test_block_verification_of_published_chains(g, expected):
    assert theory.block_expected_tokens(P, Q, g) - 1 == Frac(str(expected))
    assert theory.expected_tokens(Frac(7, 10), g) <= theory.block_expected_tokens(P, Q, g)


def test_block_verification_of_the_canonical_case():
    """11/9 accepted tokens against 10/9 token by token."""
    p, q = (Frac(1, 3), Frac(2, 3)), (Frac(2, 3), Frac(1, 3))
    assert theory.block_expected_tokens(p, q, 2) == 1 + Frac(11, 9)
    assert theory.expected_tokens(theory.acceptance(p, q), 2) == 1 + Frac(10, 9)


def drafted_block(p: list[Frac], q: list[Frac], chain: tuple[int, ...]) -> Frac:
    """The expected accepted length of one drawn chain: block verification as it is run."""
    weights = [Frac(1)]
    for token in chain:
        weights.append(min(Frac(1), weights[-1] * p[token] / q[token]))
    missed, mean = Frac(1), Frac(0)
    for i in range(len(chain), 0, -1):
        passes = weights[i]
        if i < len(chain):
            mass = sum(max(weights[i] * x - y, 0) for x, y in zip(p, q, strict=True))
            passes = mass / (mass + 1 - weights[i]) if mass + 1 - weights[i] else Frac(1)
        mean += i * missed * passes
        missed *= 1 - passes
    return mean


@given(law_pairs(most=3), st.integers(0, 3))
def test_block_verification_by_enumeration_of_draws(laws, g):
    p, q = laws
    chains = [chain for chain in itertools.product(range(len(q)), repeat=g) if all(q[t] for t in chain)]
    mean = sum(math.prod(q[t] for t in chain) * drafted_block(p, q, chain) for chain in chains)
    assert theory.block_expected_tokens(p, q, g) == 1 + mean
    assert theory.block_expected_tokens(p, q, g) >= theory.expected_tokens(theory.acceptance(p, q), g)


@given(law_pairs())
def test_one_candidate_is_plain_speculative_sampling(laws):
    """Sequoia's optimal-transport property: k = 1 accepts 1 - TV."""
    single = theory.acceptance(*laws)
    assert theory.mss_acceptance(*laws, 1) == theory.without_replacement_acceptance(*laws, 1) == single


@given(law_pairs())
def test_covering_the_support_accepts_surely_without_replacement(laws):
    """Sequoia's cover property, also with more candidates than tokens."""
    p, q = laws
    support = [token for token, x in enumerate(q) if x]
    assume(all(x == 0 or token in support for token, x in enumerate(p)))
    assert theory.without_replacement_acceptance(p, q, len(support)) == 1
    assert theory.without_replacement_acceptance(p, q, len(q) + 3) == 1


@given(law_pairs(), st.integers(1, 3))
@pytest.mark.parametrize(
    "rule",
    [
        theory.mss_acceptance,
        theory.without_replacement_acceptance,
        theory.naive_acceptance,
        theory.top_k_acceptance,
    ],
)
def test_more_candidates_are_accepted_no_less(rule, laws, k):
    assert 0 <= rule(*laws, k) <= rule(*laws, k + 1) <= 1


def test_top_k_breaks_ties_to_the_lowest_id():
    assert theory.top_k_acceptance((Frac(1), Frac(0), Frac(0)), (Frac(1, 4), Frac(1, 4), Frac(1, 2)), 2) == 1


@given(st.lists(st.floats(1e-9, 1), min_size=2, max_size=5), st.integers(1, 5))
def test_rounded_laws_do_no_harm(weights, k):
    """p equal to q up to rounding leaves a residual of mass 0 or nearly so."""
    p = [w / sum(weights) for w in weights]
    q = [w / math.fsum(weights) for w in weights]
    assert theory.mss_acceptance(p, q, k) == pytest.approx(1)
    assert theory.without_replacement_acceptance(p, q, k) == pytest.approx(1)
