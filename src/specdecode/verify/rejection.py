"""Rejection sampling (speculative sampling) on chains and trees. Knows laws and draws; no model, no filter.

At a node with target law p and children x_1, x_2, ... a residual law R starts at p. Child x, proposed by law D, is
accepted with probability min(1, R(x) / D(x)); after a rejection R becomes norm(max(R - D, 0)). A node that is left
without an accepted child emits a draw from R, so a leaf emits one from p.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ..sampling import Noise
from ..types import Draft, Verdict
from . import Rows
from .laws import Laws, log, rest, share
from .walk import candidate_children

Accept = Callable[[list[int], Tensor], "tuple[int | None, Tensor]"]
"""(siblings, [V] logits of the target's law) -> the one that is accepted, or None and the [V] logits from which the
next token is to be drawn."""


@dataclass(frozen=True)
class Rejection:
    """The emitted tokens have the target's law, whatever the draft laws are.

    Lossless: with x drawn from D the token is y by acceptance with probability min(R(y), D(y)), and by the residual
    with max(R(y) - D(y), 0); together R(y). Hence by induction over the children each node emits p.

    Laws says what D is. One drawn child a node is Leviathan et al. 2023 (2211.17192) Algorithm 1 and Chen et al. 2023
    (2302.01318) Algorithm 2; several are SpecInfer (2305.09781) Algorithm 2 or Sequoia (2402.12374) Algorithm 2.

    `noise` must be independent of the draws that made the draft, as successive draws of sampling.Stream are."""

    name, lossless, keyed, draws = "rejection", True, False, True

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        """rows: [n + 1, V] the target's laws, logits up to a constant; -inf is probability 0."""

        def accept(siblings: list[int], logits: Tensor) -> tuple[int | None, Tensor]:
            return accept_one(draft, siblings, logits, lambda node, target, drawn: noise.uniform() < target / drawn)

        return descend(draft, rows, noise, position, accept)


def descend(draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, accept: Accept) -> Verdict:
    """From the top of the tree to an accepted child each time, until none is."""
    offspring = candidate_children(draft)
    path: list[int] = []
    row = 0
    while True:
        logits = rows[row]
        node, left = accept(offspring[row], logits) if offspring[row] else (None, logits)
        if node is None:
            return Verdict.of(draft, path, noise.draw(left, position + len(path)))
        path.append(node)
        row = node + 1


def accept_one(
    draft: Draft, siblings: list[int], logits: Tensor, takes: Callable[[int, float, float], bool]
) -> tuple[int | None, Tensor]:
    """Accept, one sibling after the other. takes: (node, R of its token, D of its token) -> whether it is accepted."""
    residual = logits.softmax(-1)
    laws = Laws(draft, residual)
    for node in siblings:
        token, law = draft.tokens[node], laws.of(node)
        if takes(node, float(residual[token]), share(law, token)):
            return node, residual
        left = rest(residual, token, law)
        mass = left.sum()
        if mass > 0:  # rounding alone leaves none: R and D are then the same law, and R stands
            residual = left.div_(mass)
        laws.refuse(node)
    return None, log(residual)
