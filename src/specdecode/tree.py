"""Token trees as parent lists: depths, ancestor masks, children, paths. A chain is a tree.

`parents[i]` is the index of node i's parent, -1 for a node that hangs on the committed prefix; a parent precedes its
children. Pure functions; nothing here knows tokens, laws or models.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def is_chain(parents: Sequence[int]) -> bool:
    return all(parent == i - 1 for i, parent in enumerate(parents))


def depths(parents: Sequence[int]) -> list[int]:
    """[n] edges between each node and the top of its tree: 0 for a node whose parent is -1."""
    out: list[int] = []
    for parent in parents:
        out.append(0 if parent < 0 else out[parent] + 1)
    return out


def children(parents: Sequence[int]) -> list[list[int]]:
    """[n + 1] lists: entry 0 holds the nodes whose parent is -1, entry i + 1 the children of node i, in order."""
    out: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for node, parent in enumerate(parents):
        out[parent + 1].append(node)
    return out


def path_to(parents: Sequence[int], node: int) -> tuple[int, ...]:
    """The nodes from the top of the tree down to `node`, both included."""
    path = []
    while node >= 0:
        path.append(node)
        node = parents[node]
    return tuple(reversed(path))


def ancestor_mask(parents: Sequence[int]) -> Tensor:
    """[n, n] bool: entry (i, j) is True where j is i or an ancestor of i (tree attention, SpecInfer section 4.1)."""
    n = len(parents)
    if is_chain(parents):
        return torch.ones(n, n, dtype=torch.bool).tril_()
    mask = torch.eye(n, dtype=torch.bool)
    for node, parent in enumerate(parents):
        if parent >= 0:
            mask[node] |= mask[parent]
    return mask
