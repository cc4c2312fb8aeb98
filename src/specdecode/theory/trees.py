"""Drafts as trees: what a tree is worth, and the best one of a size. Knows acceptance by a child's rank alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BadOption, check_count
from .arguments import Real, check_parents, check_rank_acceptance


@dataclass(frozen=True)
class BestTree:
    """The best tree of a size, and what the best trees of all sizes up to it are worth.

    values:  [N] values[n - 1] is the expected number of tokens per step of the best tree of n nodes, root included.
    parents: [N - 1] its nodes without the root, as in Draft: -1 is the root, parents and elder siblings come first.
    ranks:   [N - 1] each node is its parent's ranks[i]-th choice, counted from 0.
    """

    values: tuple[Real, ...]
    parents: tuple[int, ...]
    ranks: tuple[int, ...]


def child_ranks(parents: Sequence[int]) -> tuple[int, ...]:
    """[n] how many elder siblings each node of a tree has."""
    check_parents(parents)
    return tuple(parents[:node].count(parent) for node, parent in enumerate(parents))


def tree_value(parents: Sequence[int], rank_acceptance: Sequence[Real]) -> Real:
    """Expected tokens per step of a tree: 1 for the root's next token, and for each node the product of the acceptances
    on its path ([Sequoia] section 3).

    parents: [n] as in Draft. rank_acceptance: [b] chance that a node's first, second, ... child is the accepted one."""
    check_rank_acceptance(rank_acceptance)
    ranks = child_ranks(parents)
    if max(ranks, default=-1) >= len(rank_acceptance):
        raise BadOption(f"a node has {max(ranks) + 1} children; give as many acceptances, not {len(rank_acceptance)}")
    reached: list[Real] = []
    for parent, rank in zip(parents, ranks, strict=True):
        reached.append(rank_acceptance[rank] * (1 if parent == -1 else reached[parent]))
    return 1 + sum(reached)


def best_tree(rank_acceptance: Sequence[Real], size: int) -> BestTree:
    """The tree of `size` nodes, root included, with the highest `tree_value` ([Sequoia] algorithm 1)."""
    check_rank_acceptance(rank_acceptance)
    check_count("tree size", size, 1)
    if size > 1 and not rank_acceptance:
        raise BadOption(f"a tree of {size} nodes was asked for with no child acceptances; give at least one")
    # table[n, b]: value of the best tree of n nodes whose root has b children, and the size of the last child's subtree
    table: dict[tuple[int, int], tuple[Real, int]] = {(1, 0): (1, 0)}
    values: list[Real] = [1]
    width = [0]  # width[n - 1]: children of the root of the best tree of n nodes
    for n in range(2, size + 1):
        widest = min(len(rank_acceptance), n - 1)
        for b in range(1, widest + 1):
            table[n, b] = max(
                (table[n - m, b - 1][0] + rank_acceptance[b - 1] * values[m - 1], m)
                for m in range(1, n - b + 1)
                if (n - m, b - 1) in table
            )
        value, children = max((table[n, b][0], b) for b in range(1, widest + 1))
        values.append(value)
        width.append(children)
    parents = _lay_out({key: m for key, (_, m) in table.items()}, width)
    return BestTree(tuple(values), parents, child_ranks(parents))


def _lay_out(last_child: dict[tuple[int, int], int], width: Sequence[int]) -> tuple[int, ...]:
    """The parents of the tree whose splits best_tree found, level by level."""
    parents: list[int] = []
    subtrees = [(-1, len(width))]  # (node, size of its subtree), grows while it is read
    for node, size in subtrees:
        sizes = []
        for b in range(width[size - 1], 0, -1):
            sizes.append(last_child[size, b])
            size -= sizes[-1]
        for child_size in reversed(sizes):
            subtrees.append((len(parents), child_size))
            parents.append(node)
    return tuple(parents)
