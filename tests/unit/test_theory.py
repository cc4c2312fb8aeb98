"""Formulas against published tables, against exact enumeration, and against each other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction as Frac

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specdecode import theory
from specdecode.errors import BadOption

UNIT = st.fractions(0, 1, max_denominator=20)
P, Q = (Frac(5, 10), Frac(3, 10), Frac(2, 10)), (Frac(2, 10), Frac(3, 10), Frac(5, 10))
SURE, EVEN = (Frac(1), Frac(0)), (Frac(1, 2), Frac(1, 2))


@st.composite
def law_pairs(draw: st.DrawFn, most: int = 4) -> tuple[list[Frac], list[Frac]]:
    """A target and a draft law over the same few tokens, zeros included."""
    size = draw(st.integers(2, most))
    weights = st.lists(st.integers(0, 6), min_size=size, max_size=size).filter(any)
    p, q = draw(weights), draw(weights)
    return [Frac(x, sum(p)) for x in p], [Frac(x, sum(q)) for x in q]


# ---- chains


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


# ---- acceptance at one node


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


# ---- trees


def test_best_tree_of_one_child_is_a_chain():
    tree = theory.best_tree([Frac(6, 10)], 6)
    assert tree.values == tuple((1 - Frac(6, 10) ** n) / Frac(4, 10) for n in range(1, 7))
    assert [round(float(x), 4) for x in tree.values] == [1, 1.6, 1.96, 2.176, 2.3056, 2.3834]
    assert tree.parents == (-1, 0, 1, 2, 3)
    assert tree.ranks == (0, 0, 0, 0, 0)


def test_best_tree_of_three_children():
    tree = theory.best_tree([0.6, 0.2, 0.1], 10)
    assert [round(x, 4) for x in tree.values] == [
        1, 1.6, 1.96, 2.176, 2.376, 2.5056, 2.6256, 2.7456, 2.8456, 2.9234,
    ]  # fmt: skip


def all_trees(size: int, width: int) -> Iterator[tuple[int, ...]]:
    """The parents of every tree of `size` nodes, root included, with at most `width` children a node."""
    for parents in itertools.product(*(range(-1, node) for node in range(size - 1))):
        if all(parents.count(node) <= width for node in parents):
            yield parents


@pytest.mark.parametrize(
    "acceptances",
    [
        (Frac(6, 10), Frac(2, 10), Frac(1, 10)),
        (Frac(1, 10), Frac(7, 10)),
        (Frac(4, 10), Frac(1, 10), Frac(5, 10)),
        (Frac(1, 3),),
    ],
)
@pytest.mark.parametrize("size", range(1, 6))
def test_best_tree_is_the_best_of_all_trees(size, acceptances):
    """The dynamic programme needs no sorted acceptances."""
    values = [theory.tree_value(parents, acceptances) for parents in all_trees(size, len(acceptances))]
    assert theory.best_tree(acceptances, size).values[-1] == max(values)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4).filter(any), st.integers(1, 24))
def test_best_tree_holds_the_nodes_of_highest_value(weights, size):
    """With sorted acceptances the best tree is also found greedily: the likeliest nodes of the infinite tree."""
    acceptances = [Frac(w, sum(weights) + 1) for w in sorted(weights, reverse=True)]
    taken, frontier = [], [Frac(1)]
    for _ in range(size):
        frontier.sort()
        taken.append(frontier.pop())
        frontier += [taken[-1] * x for x in acceptances]
    assert theory.best_tree(acceptances, size).values == tuple(itertools.accumulate(taken))


@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.integers(1, 20))
def test_best_tree_is_a_tree_of_its_value(weights, size):
    acceptances = [Frac(w, sum(weights) + 1) for w in weights]
    tree = theory.best_tree(acceptances, size)
    assert len(tree.values) == size
    assert len(tree.parents) == len(tree.ranks) == size - 1
    assert theory.tree_value(tree.parents, acceptances) == tree.values[-1]


def test_large_best_tree_is_found_without_recursion():
    tree = theory.best_tree([0.99], 1500)
    assert tree.parents == tuple(range(-1, 1498))


@given(UNIT, st.integers(0, 9))
def test_value_of_a_chain_is_its_expected_tokens(a, g):
    assert theory.tree_value(range(-1, g - 1), [a]) == theory.expected_tokens(a, g)


def test_value_of_a_tree_by_hand():
    parents = (-1, -1, 0, 0, 1)
    assert theory.child_ranks(parents) == (0, 1, 0, 1, 0)
    assert theory.tree_value(parents, (Frac(1, 2), Frac(1, 4))) == 1 + Frac(1, 2) + Frac(1, 4) + Frac(1, 4) + Frac(
        1, 8
    ) + Frac(1, 8)
    assert theory.tree_value((), ()) == 1


# ---- arguments


@pytest.mark.parametrize(
    "call",
    [
        lambda: theory.expected_tokens(1.01, 3),
        lambda: theory.expected_tokens(-0.1, 3),
        lambda: theory.expected_tokens(math.nan, 3),
        lambda: theory.expected_tokens(0.5, -1),
        lambda: theory.expected_tokens(0.5, 2.0),  # type: ignore[arg-type]
        lambda: theory.expected_tokens(0.5, True),
        lambda: theory.expected_tokens(0.5, 2, 0),
        lambda: theory.emitted_law(1.5, 2),
        lambda: theory.emitted_law(0.5, -2),
        lambda: theory.speedup(0.5, 2, -0.1),
        lambda: theory.speedup(0.5, 2, math.inf),
        lambda: theory.speedup(0.5, 2, 0.1, 0),
        lambda: theory.speedup(0.5, 2, 0.1, math.nan),
        lambda: theory.speedup(0.5, -10, 0.1),
        lambda: theory.speedup(2, 2, 0.1),
        lambda: theory.can_improve(0.5, -1),
        lambda: theory.can_improve(1.5, 1),
        lambda: theory.best_length(0.5, 0.1, longest=-1),
        lambda: theory.best_length(0.5, -0.1, longest=0),
        lambda: theory.best_length(1.5, 0.1, longest=0),
        lambda: theory.operations_factor(0.5, 2, -1),
        lambda: theory.operations_factor(0.5, -2),
        lambda: theory.acceptance([0.5, 0.4], [0.5, 0.5]),
        lambda: theory.acceptance([0.5, 0.5], [0.5, 0.6]),
        lambda: theory.acceptance([1.5, -0.5], [0.5, 0.5]),
        lambda: theory.acceptance([math.nan, 1.0], [0.5, 0.5]),
        lambda: theory.acceptance([], []),
        lambda: theory.acceptance([1.0], [0.5, 0.5]),
        lambda: theory.acceptance(P, Q, 0),
        lambda: theory.acceptance(P, Q, 1.1),
        lambda: theory.leniently_accepted([0.5, 0.6], 0, 0.5),
        lambda: theory.leniently_accepted(P, 0, -0.5),
        lambda: theory.mss_acceptance(P, Q, 0),
        lambda: theory.mss_acceptance(P, SURE, 2),
        lambda: theory.without_replacement_acceptance(P, Q, 0),
        lambda: theory.without_replacement_acceptance(P, SURE, 2),
        lambda: theory.naive_acceptance(P, Q, -1),
        lambda: theory.naive_acceptance(P, SURE, 2),
        lambda: theory.top_k_acceptance(P, Q, 1.5),  # type: ignore[arg-type]
        lambda: theory.top_k_acceptance(P, SURE, 2),
        lambda: theory.child_ranks((-1, 1)),
        lambda: theory.tree_value((-2,), [0.5]),
        lambda: theory.tree_value((-1, -1), [0.5]),
        lambda: theory.tree_value((-1,), [1.5]),
        lambda: theory.best_tree([0.7, 0.7], 3),
        lambda: theory.best_tree([-0.1], 3),
        lambda: theory.best_tree([0.5], 0),
        lambda: theory.best_tree([], 2),
    ],
)
def test_bad_arguments_are_refused_in_one_line(call):
    with pytest.raises(BadOption, match=r"^[^\n]+; give [^\n]+$|^[^\n]+so give [^\n]+$"):
        call()
