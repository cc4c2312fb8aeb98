"""Traversal verification: a tree is tried from its leaves to its root, and a path is accepted as a whole.

Knows laws and draws; no model, no filter.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from ..sampling import Noise
from ..types import Draft, Verdict
from . import Rows
from .laws import Laws, log, rest, share
from .walk import candidate_children


@dataclass(frozen=True)
class Traversal:
    """The emitted tokens have the target's law. At a node with weight P (the root's is 1), law R (the target's at
    first) and children of laws D, a child x gets the weight min(1, P R(x) / D(x)) and is tried first, with all that
    hangs on it. If nothing there is accepted, what is left of the node is d = max(P R - D, 0) with mass S: R becomes
    d / S and P becomes S / (S + 1 - P). A node without children left is accepted with probability P, path and all, and
    the next token drawn from R; the root always.

    Lossless: a node of weight P and law R emits what follows it with measure P R. For a leaf that is so; and if it is
    so below a child x, the child emits D(x) min(1, P R(x) / D(x)) = min(D(x), P R(x)), and all is refused with
    probability 1 - P + S, so that the node, left with weight S / (S + 1 - P), emits the missing max(P R - D, 0).

    Weng et al. 2025 (2505.12398); kinds of siblings as in Laws."""

    name, lossless, keyed, draws = "traversal", True, False, True

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        """rows: [n + 1, V] the target's laws, logits up to a constant; -inf is probability 0. `noise` must be
        independent of the draws that made the draft."""
        return climb(draft, candidate_children(draft), rows, noise, position)


def climb(draft: Draft, offspring: list[list[int]], rows: Rows | Tensor, noise: Noise, position: int) -> Verdict:
    """Traversal of the part of the tree that `offspring` tells, in walk.candidate_children's form."""
    path: list[int] = []
    forks = [_Fork(draft, rows, 0, 1.0, offspring[0])]
    while True:
        fork = forks[-1]
        if fork.waiting:
            node = fork.waiting[0]
            weight = fork.weight_of(node)
            if weight > 0:
                path.append(node)
                forks.append(_Fork(draft, rows, node + 1, weight, offspring[node + 1]))
            else:
                fork.refuse(node)
        elif not path or noise.uniform() < fork.weight:
            return Verdict.of(draft, path, noise.draw(fork.logits(), position + len(path)))
        else:
            forks.pop()
            forks[-1].refuse(path.pop())


class _Fork:
    """A node of the path that is being tried, with what its refused children have left of its weight and law. Its row
    is read when it is needed. waiting: the children that are still to be tried."""

    def __init__(self, draft: Draft, rows: Rows | Tensor, row: int, weight: float, children: list[int]) -> None:
        self.weight, self.waiting = weight, deque(children)
        self._draft, self._rows, self._row = draft, rows, row
        self._is_leaf = not children

    @cached_property
    def _law(self) -> Tensor:
        return self._rows[self._row].softmax(-1)

    @cached_property
    def _laws(self) -> Laws:
        return Laws(self._draft, self._law)

    def weight_of(self, child: int) -> float:
        token = self._draft.tokens[child]
        weight = self.weight * float(self._law[token]) / share(self._laws.of(child), token)
        return min(1.0, weight) if weight > 0 else 0.0  # nothing hangs on a row of NaN

    def refuse(self, child: int) -> None:
        """The first of those waiting."""
        left = rest(self.weight * self._law, self._draft.tokens[child], self._laws.of(child))
        mass = float(left.sum())
        if mass > 0:
            self._law, self.weight = left.div_(mass), mass / (mass + 1 - self.weight)
        elif mass == 0 and self.weight < 1:  # at weight 1 rounding alone leaves none: R is D, and stands
            self.weight = 0.0
        self._laws.refuse(child)
        self.waiting.popleft()

    def logits(self) -> Tensor:
        """[V] of the law that is left."""
        return self._rows[self._row] if self._is_leaf else log(self._law)
