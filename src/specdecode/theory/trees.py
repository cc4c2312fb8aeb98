"""Drafts as trees: what a tree is worth, and the best one of a size. Knows acceptance by a child's rank alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

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


def likeliest_nodes(acceptances: Sequence[Sequence[Real]], size: int) -> tuple[tuple[int, ...], ...]:
    """The `size` nodes of the infinite tree that are reached and accepted most often, likeliest first; the root is not
    counted. A node is the ranks on its path: (0, 1) is the second choice after the first one.

    acceptances: [D][b] by depth, chance that a node's first, second, ... child is the accepted one; no later one above
    an earlier one, so that elder siblings come first. The tree is D deep at most. [Medusa] 2.3.3 makes its trees like
    this of its heads' accuracies; where every depth has the same acceptances, it is the `best_tree` of that depth."""
    check_count("tree size", size, 0)
    for row in acceptances:
        check_rank_acceptance(row)
        if any(later > earlier for earlier, later in pairwise(row)):
            raise BadOption(f"child acceptances are {list(row)}; give the likeliest child's first, and none above it")
    # Of siblings only the next one is on the heap, and its own first child once it is taken: neither is likelier.
    heap: list[tuple[Real, tuple[int, ...], Real]] = []

    def offer(path: tuple[int, ...], above: Real) -> None:
        row = acceptances[len(path) - 1] if len(path) <= len(acceptances) else ()
        if path[-1] < len(row) and row[path[-1]] > 0:
            heappush(heap, (-above * row[path[-1]], path, above))

    out: list[tuple[int, ...]] = []
    offer((0,), 1)
    while heap and len(out) < size:
        value, path, above = heappop(heap)
        out.append(path)
        offer((*path[:-1], path[-1] + 1), above)
        offer((*path, 0), -value)
    return tuple(out)
