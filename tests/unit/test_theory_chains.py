"""What a chain gains: formulas against published tables and against each other."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction as Frac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_helpers import UNIT

from specdecode import theory
from specdecode.errors import BadOption


@pytest.mark.parametrize(
    ("a", "g", "operations", "speed"),
    [
        (0.6, 2, 1.53, 1.96),
        (0.7, 3, 1.58, 2.53),
        (0.8, 2, 1.23, 2.44),
        (0.8, 5, 1.63, 3.69),
        (0.9, 2, 1.11, 2.71),
        (0.9, 10, 1.60, 6.86),
    ],
)
def test_leviathan_table_1(a, g, operations, speed):
    assert round(theory.operations_factor(a, g), 2) == operations
    assert round(theory.speedup(a, g, 0), 2) == speed


TABLE_4 = [
    (7, 0.75, 0.02, 3.2, True),
    (7, 0.80, 0.04, 3.3, True),
    (7, 0.82, 0.11, 2.5, True),
    (7, 0.62, 0.02, 2.3, True),
    (5, 0.68, 0.04, 2.4, False),
    (3, 0.71, 0.11, 2.0, False),
    (5, 0.65, 0.02, 2.4, True),
    (5, 0.73, 0.04, 2.6, True),
    (3, 0.74, 0.11, 2.0, True),
    (5, 0.53, 0.02, 1.9, True),
    (3, 0.55, 0.04, 1.8, True),
    (3, 0.56, 0.11, 1.6, False),
]


@pytest.mark.parametrize(("g", "a", "c", "printed", "rounds_to_it"), TABLE_4)
def test_leviathan_table_4(g, a, c, printed, rounds_to_it):
    """Nine rows round to the print; all agree once a and c may be off by the half unit their own print hides."""
    assert (round(theory.speedup(a, g, c), 1) == printed) == rounds_to_it
    lowest, highest = theory.speedup(a - 0.005, g, c + 0.005), theory.speedup(a + 0.005, g, c - 0.005)
    assert lowest - 0.05 <= printed <= highest + 0.05


@pytest.mark.parametrize(("a", "printed"), [(0.75, 3.30), (0.8, 3.87), (0.87, 4.91)])
def test_leviathan_lenience_at_temperature_zero(a, printed):
    assert round(theory.speedup(a, 8, 0.015), 2) == printed


def test_leviathan_bigram():
    assert theory.speedup(Frac(2, 10), 3, 0) == Frac(1248, 1000)


@pytest.mark.parametrize(
    ("c", "lengths", "gains"),
    [
        (0.01, (5, 7, 9, 14, 24), (1.88, 2.30, 2.97, 4.23, 7.49)),
        (0.02, (4, 6, 8, 11, 19), (1.79, 2.17, 2.76, 3.82, 6.37)),
        (0.05, (3, 4, 6, 8, 13), (1.63, 1.92, 2.35, 3.09, 4.67)),
        (0.10, (2, 3, 4, 6, 10), (1.46, 1.67, 1.98, 2.47, 3.43)),
    ],
)
def test_optimal_draft_lengths(c, lengths, gains):
    best = [theory.best_length(a, c) for a in (0.5, 0.6, 0.7, 0.8, 0.9)]
    assert tuple(g for g, _ in best) == lengths
    assert tuple(round(gain, 2) for _, gain in best) == gains


@pytest.mark.parametrize(("branches", "tokens"), [(1, 1.9375), (2, 2.543), (7, 3.8295), (15, 4.4719)])
def test_lookahead_with_several_candidates(branches, tokens):
    assert theory.expected_tokens(0.5, 4, branches) == pytest.approx(tokens, abs=5e-5)


@given(UNIT.filter(lambda a: a < 1), st.integers(0, 12))
def test_expected_tokens_is_the_closed_form(a, g):
    assert theory.expected_tokens(a, g) == (1 - a ** (g + 1)) / (1 - a)


def test_expected_tokens_at_the_ends():
    assert theory.expected_tokens(1, 7) == theory.expected_tokens(1.0, 7, 3) == 8
    assert theory.expected_tokens(0, 7) == theory.expected_tokens(0.9, 0) == 1


@pytest.mark.parametrize(("g", "branches"), [(1, 1), (4, 1), (3, 2), (2, 3)])
def test_expected_tokens_by_enumeration(g, branches):
    """Every pattern of accepted and refused tokens in every branch, with its exact probability."""
    a, total = Frac(2, 7), Frac(0)
    for flags in itertools.product((True, False), repeat=g * branches):
        chance = math.prod(a if flag else 1 - a for flag in flags)
        chains = [flags[i * g : (i + 1) * g] for i in range(branches)]
        total += chance * (1 + max([*chain, False].index(False) for chain in chains))
    assert theory.expected_tokens(a, g, branches) == total


@given(UNIT, st.integers(0, 8))
def test_law_of_emitted_tokens(a, g):
    law = theory.emitted_law(a, g)
    assert len(law) == g + 1
    assert sum(law) == 1
    assert sum(n * chance for n, chance in enumerate(law, 1)) == theory.expected_tokens(a, g)
    assert all(sum(law[k:]) == a**k for k in range(g + 1))


@given(UNIT, st.integers(1, 8))
def test_longer_drafts_spread_more(a, g):
    """Longer drafts never lower the variance of the tokens of a step (Chen's caveat on tail latency)."""

    def variance(law):
        mean = sum(n * x for n, x in enumerate(law))
        return sum((n - mean) ** 2 * x for n, x in enumerate(law))

    assert variance(theory.emitted_law(a, g)) >= variance(theory.emitted_law(a, g - 1))


@given(UNIT, st.fractions(0, 2, max_denominator=20))
def test_speculation_pays_if_and_only_if_acceptance_exceeds_cost(a, c):
    length, gain = theory.best_length(a, c, longest=10)
    assert (length > 0) == (gain > 1) == theory.can_improve(a, c)
    if theory.can_improve(a, c):
        assert gain >= theory.speedup(a, 1, c) == (1 + a) / (1 + c)
    else:
        assert (length, gain) == (0, 1)


@given(UNIT, st.fractions(0, 2, max_denominator=20), st.integers(0, 9))
def test_best_length_is_no_worse_than_any(a, c, g):
    length, gain = theory.best_length(a, c, longest=9)
    assert gain >= theory.speedup(a, g, c)
    assert gain == theory.speedup(a, length, c)


def test_best_length_prefers_the_shortest_of_equals_and_respects_the_limit():
    assert theory.best_length(Frac(1, 3), Frac(1, 3)) == (0, 1)
    assert theory.best_length(Frac(9, 10), 0, longest=3)[0] == 3
    assert theory.best_length(0.9, 0.01, longest=0) == (0, 1)


def test_measured_verify_cost():
    """The cost of the verifying pass replaces the 1 of the paper: E / (g c + cost)."""
    assert theory.speedup(Frac(1, 2), 2, Frac(1, 4), Frac(3, 2)) == Frac(7, 4) / 2
    dear = [0, 1, 1, 1, 3, 5]
    assert theory.best_length(Frac(9, 10), 0, longest=5, verify_cost=dear.__getitem__)[0] == 3
    assert theory.best_length(Frac(9, 10), 0, verify_cost=lambda g: 1 + g) == (0, 1)


def test_operations_of_the_drafter_count():
    assert theory.operations_factor(Frac(1, 2), 1, Frac(1, 10)) == Frac(21, 10) / Frac(3, 2)
    assert theory.operations_factor(1, 5) == 1


def test_pipelined_guesses_trade_compute_for_latency():
    """Simulated layer by layer: positions start when guessed rightly below, or when the one before is done."""
    layers, exit, match, k = 12, 9, Frac(2, 3), 3
    finished, work, right = Frac(0), 0, [True, True, False] * 40
    for guessed in right:
        begun = finished - (layers - exit) if guessed else finished
        work += layers + (layers - exit) * (k - guessed)
        finished = begun + layers
    latency, compute = theory.pipelined(match, Frac(exit, layers), k)
    assert latency == finished / (layers * len(right))
    assert compute == Frac(work, layers * len(right))


@pytest.mark.parametrize(("match", "exit", "k"), [(1.1, 0.5, 1), (0.5, 0.4, 1), (0.5, 1.1, 1), (0.5, 0.5, 0)])
def test_pipelined_arguments_out_of_range_are_refused(match, exit, k):
    with pytest.raises(BadOption):
        theory.pipelined(match, exit, k)


def test_no_overlap_is_plain_decoding():
    assert theory.pipelined(0.7, 1, 3) == (1, 1)
    assert theory.pipelined(0, 0.5, 2) == (1, 2)
