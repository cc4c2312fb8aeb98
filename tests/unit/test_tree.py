"""Trees as parent lists, on trees of four nodes worked out by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specdecode import tree

FORK = (-1, 0, 0, 2)  # a root with two children, the second of which has one


@st.composite
def parent_lists(draw: st.DrawFn) -> list[int]:
    n = draw(st.integers(0, 12))
    return [draw(st.integers(-1, i - 1)) for i in range(n)]


def test_depths_children_and_paths_of_a_fork() -> None:
    assert tree.depths(FORK) == [0, 1, 1, 2]
    assert tree.children(FORK) == [[0], [1, 2], [], [3], []]
    assert tree.path_to(FORK, 3) == (0, 2, 3)
    assert tree.path_to(FORK, -1) == ()


def test_a_fork_sees_its_ancestors_only() -> None:
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]]
    assert tree.ancestor_mask(FORK).tolist() == [[bool(x) for x in row] for row in expected]


def test_a_chain_is_a_tree() -> None:
    assert tree.is_chain((-1, 0, 1))
    assert not tree.is_chain(FORK)
    assert torch.equal(tree.ancestor_mask((-1, 0, 1)), torch.ones(3, 3).tril().bool())


@pytest.mark.parametrize("parents", [(), (-1,)])
def test_smallest_trees(parents: tuple[int, ...]) -> None:
    assert tree.is_chain(parents)
    assert tree.ancestor_mask(parents).shape == (len(parents), len(parents))


@given(parent_lists())
def test_mask_depth_path_and_children_agree(parents: list[int]) -> None:
    mask, depth, below = tree.ancestor_mask(parents), tree.depths(parents), tree.children(parents)
    for node in range(len(parents)):
        path = tree.path_to(parents, node)
        assert mask[node].nonzero().flatten().tolist() == list(path)
        assert len(path) == depth[node] + 1
        assert node in below[parents[node] + 1]
    assert sum(map(len, below)) == len(parents)
