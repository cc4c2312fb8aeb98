"""The shapes of trees: published ones by their counts, optimal ones by their value, budgets, and what is refused."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from specdecode import theory
from specdecode.drafters.published import PUBLISHED
from specdecode.drafters.shapes import Cartesian, Chain, Dynamic, Known, Listed, Optimal, Path, Plan, make_shape
from specdecode.errors import BadOption
from specdecode.tree import ancestor_mask

WIDE = (99, 999)  # a budget that cuts nothing


def nodes(plan: Plan) -> list[Path]:
    """Every node of a plan without a beam, level by level."""
    level: list[Path] = [()]
    out: list[Path] = []
    while level:
        level = [(*path, rank) for path in level for rank in range(plan.width(path))]
        out += level
    return out


def parents(paths: list[Path]) -> list[int]:
    place = {path: i for i, path in enumerate(paths)}
    return [place.get(path[:-1], -1) for path in paths]


@pytest.mark.parametrize(
    ("name", "histogram", "leaves", "ones"),
    [
        ("mc_sim_7b_63", [10, 28, 23, 2], 42, 207),
        ("vicuna_7b_stage1", [10, 32, 20, 1], 44, 202),
        ("vicuna_7b_stage2", [10, 23, 23, 7], 42, 217),
    ],
)
def test_the_trees_of_medusa(name: str, histogram: list[int], leaves: int, ones: int) -> None:
    """63 nodes by depth, paths from root to leaf, and entries of the ancestor mask, root and itself included."""
    shape = make_shape(name)
    paths = nodes(shape.plan(*WIDE, None))
    assert len(paths) == 63
    assert [n for _, n in sorted(Counter(map(len, paths)).items())] == histogram
    assert len(paths) - len({path[:-1] for path in paths} - {()}) == leaves
    assert int(ancestor_mask([-1, *(parent + 1 for parent in parents(paths))]).sum()) == ones
    assert isinstance(shape, Listed)
    assert set(shape.paths) == set(paths)
    assert {"".join(map(str, path)) for path in shape.paths[:9]} == set(PUBLISHED[name].split("/")[:9])


def test_widths_make_a_cartesian_tree() -> None:
    paths = nodes(Cartesian((4, 2, 1)).plan(*WIDE, None))
    assert [n for _, n in sorted(Counter(map(len, paths)).items())] == [4, 8, 8]
    assert nodes(make_shape("4x2x1").plan(*WIDE, None)) == paths


def test_a_list_in_any_order_is_the_same_tree() -> None:
    assert nodes(make_shape("01/00/0/1").plan(*WIDE, None)) == [(0,), (1,), (0, 0), (0, 1)]
    assert nodes(make_shape("01/00/0/1").plan(9, 2, None)) == [(0,), (1,)], "read level by level"
    assert nodes(make_shape("0/00/01/1").plan(9, 2, None)) == [(0,), (0, 0)], "in its own order where it has one"


@pytest.mark.parametrize(
    "shape", [Chain(6), Cartesian((3, 2, 2)), make_shape("mc_sim_7b_63"), Optimal(20, acceptance=(0.6, 0.2, 0.1))]
)
@pytest.mark.parametrize("budget", [(1, 9), (9, 1), (2, 5), (3, 64)])
def test_a_budget_is_kept(shape: Chain | Cartesian | Listed | Optimal, budget: tuple[int, int]) -> None:
    paths = nodes(shape.plan(*budget, None))
    assert 0 < len(paths) <= budget[1]
    assert max(map(len, paths)) <= budget[0]
    assert {path[:-1] for path in paths} - {()} <= set(paths), "every parent is there"


def test_the_optimal_tree_has_the_value_of_the_dynamic_programme() -> None:
    """Sequoia's lists (facts 2.6), where its depth has no limit: .6, .2, .1 for 1 to 10 nodes, root included."""
    acceptance, values = (0.6, 0.2, 0.1), [1, 1.6, 1.96, 2.176, 2.376, 2.5056, 2.6256, 2.7456, 2.8456, 2.9234]
    for size, value in enumerate(values[1:], 2):
        paths = nodes(Optimal(size - 1, 16, acceptance).plan(*WIDE, None))
        assert len(paths) == size - 1
        assert theory.tree_value(parents(paths), acceptance) == pytest.approx(value, abs=5e-5)
        assert theory.tree_value(parents(paths), acceptance) == pytest.approx(
            theory.best_tree(acceptance, size).values[-1]
        )


def test_acceptance_by_depth_makes_trees_as_medusa_does() -> None:
    """The likeliest six by the product of the accuracies of two heads: .5, .35, .2, .14, .1, .05."""
    paths = nodes(Optimal(6, acceptance=((0.5, 0.2, 0.1), (0.7, 0.1))).plan(*WIDE, None))
    assert set(paths) == {(0,), (0, 0), (1,), (1, 0), (2,), (2, 0)}
    with pytest.raises(BadOption, match="the likeliest child's first"):
        Optimal(6, acceptance=((0.5, 0.2), (0.1, 0.2)))


def test_its_size_is_what_gives_most_tokens_per_second() -> None:
    """Every node costs a row, every level a pass of the drafter."""
    shape = Optimal(acceptance=(0.5, 0.25))
    assert nodes(shape.plan(9, 64, Known((), lambda nodes, depth: 1 + nodes + depth))) == []
    assert nodes(shape.plan(9, 64, Known((), lambda nodes, depth: 1 + 0.3 * nodes))) == [(0,)]
    assert len(nodes(shape.plan(9, 64, Known((), lambda nodes, depth: 1.0)))) == 64
    assert {len(p) for p in nodes(shape.plan(9, 64, Known((), lambda nodes, depth: 1 + 0.2 * depth**2)))} == {1}
    for cost in (0.01, 0.05, 0.1, 0.2):
        sizes = range(1, 65)
        rates = [
            theory.best_tree((0.5, 0.25), n + 1).values[-1] / (1 + cost * n) for n in sizes
        ]  # no limit to the depth there, nor any reached here
        best = sizes[max(range(64), key=rates.__getitem__)]
        free = Optimal(depth=64, acceptance=(0.5, 0.25))
        assert len(nodes(free.plan(99, 64, Known((), lambda nodes, depth, c=cost: 1 + c * nodes)))) == best  # type: ignore[misc]


def test_measured_acceptance_is_read_where_none_is_given() -> None:
    known = Known((0.9, 0.0), lambda nodes, depth: 1.0)
    assert nodes(Optimal(4).plan(*WIDE, known)) == [(0,), (0, 0), (0, 0, 0), (0, 0, 0, 0)]
    assert Optimal(4).learns
    assert not Optimal(4).weighs
    assert Optimal(acceptance=(0.5,)).weighs


def test_a_dynamic_tree_is_bounded() -> None:
    assert Dynamic(60, 6, 10).plan(4, 30, None) == Plan(10, 4, beam=10, nodes=30)
    assert make_shape("dynamic:nodes=60:depth=6:top=10") == Dynamic(60, 6, 10)
    assert make_shape("optimal:acceptance=.6/.2/.1:nodes=8") == Optimal(8, acceptance=(0.6, 0.2, 0.1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "() is no node of a tree"),
        ("bushy", "dynamic, optimal, mc_sim_7b_63"),
        ("4xx2", "is no tree"),
        ("4x0", "children of a node=0 is not a whole number of at least 1"),
        ("99x99", "has 9900 nodes; keep to 1024"),
        ("0/1/00/00", "found 4, 3 different"),
        ("0/2", "node 2 but not 1"),
        ("0/1-", "is no tree"),
        ("00", "node 0-0 but not 0"),
        ("dynamic:nodes=0", "nodes=0 is not"),
        ("dynamic:nodes=2.5", "nodes=2.5 is not"),
        ("dynamic:size=9", "'size=9' is none of its options"),
        ("dynamic:nodes=3:nodes=4", "once each"),
        ("dynamic:", "'' is none of its options"),
        ("optimal:acceptance=high", "should give numbers, such as .6/.2/.1"),
        ("optimal:acceptance=.9/.9", "one child at most is accepted"),
        ("optimal:acceptance=nan", "acceptances are"),
        ("optimal:depth=0", "depth=0 is not"),
    ],
)
def test_what_is_no_tree_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(BadOption, match=re.escape(says)) as error:
        make_shape(text)
    assert "\n" not in str(error.value)
