"""What the rules share: the candidates that hang on a node, and the walk along the target's own choices.

Knows no model, no chance and no draft law: a walk is told how to choose.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from ..tree import children
from ..types import Draft, Verdict
from . import Rows


def candidate_children(draft: Draft) -> list[list[int]]:
    """[n + 1] lists: the children of the newest token, then of each node, in the order drafted. Probes are left out."""
    return [[node for node in siblings if draft.is_candidate(node)] for siblings in children(draft.parents)]


def walk(draft: Draft, rows: Rows | Tensor, choose: Callable[[Tensor, int], int], position: int) -> Verdict:
    """Follow `choose(row, position)` from the top of the tree for as long as it names a drafted child; the first choice
    that was not drafted is the next token. Of siblings with the same token the first is taken."""
    offspring = candidate_children(draft)
    path: list[int] = []
    row = 0
    while True:
        token = choose(rows[row], position + len(path))
        node = next((child for child in offspring[row] if draft.tokens[child] == token), None)
        if node is None:
            return Verdict.of(draft, path, token)
        path.append(node)
        row = node + 1
