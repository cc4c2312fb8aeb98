"""Blockwise decoding's approximate verification: among the first, near the best, or simply enough. Greedy decoding."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..errors import check_count
from ..sampling import Noise
from ..tree import depths
from ..types import Draft, Verdict
from . import Rows
from .greedy import argmax
from .relaxed import check_budget, left_of, tolerate
from .topbeta import rank


@dataclass(frozen=True)
class Blockwise:
    """A drafted token passes by any of three ways, each of which has a value that is exact:

    top:      it is among the target's `top` likeliest (1).
    distance: its id is at most so far from the likeliest's, where ids are a scale, such as brightness (0).
    block:    a step gives at least so many tokens, if so many are drafted, right or not (1; the paper found more to be
              harmful). A token of probability 0 is never among them.
    budget:   the most nats an answer may cost; None is no limit.

    Stern et al. 2018 (1811.03115) section 5."""

    top: int = 2
    distance: int = 0
    block: int = 1
    budget: float | None = None

    name, lossless, keyed, draws = "blockwise", False, False, False

    def __post_init__(self) -> None:
        for option, least in (("top", 1), ("distance", 0), ("block", 1)):
            check_count(f"rule 'blockwise': {option}", getattr(self, option), least)
        check_budget(self.name, self.budget)

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        """rows: [n + 1, V] the target's laws, logits up to a constant; -inf is probability 0."""
        depth = depths(draft.parents)

        def allows(node: int, row: Tensor) -> bool:
            token = draft.tokens[node]
            near = abs(token - argmax(row)) <= self.distance
            return near or rank(row, token) < self.top or depth[node] + 1 < self.block

        return tolerate(draft, rows, allows, left_of(self.budget, spent))
