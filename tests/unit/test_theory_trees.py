"""The best tree: against published values, all trees of its size, and a greedy search."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction as Frac

import pytest
from hypothesis import given
from hypothesis import strategies as st
from theory_helpers import UNIT

from specdecode import theory


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
