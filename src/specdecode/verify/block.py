"""Block verification: the tokens of a chain are accepted together. Knows laws and draws; no model, no filter."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..sampling import Noise
from ..types import Draft, Verdict
from . import Rows
from .traversal import climb
from .walk import candidate_children


@dataclass(frozen=True)
class Block:
    """The emitted tokens have the target's law; of a chain it accepts no fewer than rejection does, on average.

    Sun et al. 2025 (2403.10444), Algorithm 2: with P_i = min(1, P_i-1 p(X_i) / q(X_i)) and S_i the mass of
    max(P_i p - q, 0) after X_i, the longest prefix that passes its coin is accepted, of which the whole chain does with
    probability P_g and a shorter one with S_i / (S_i + 1 - P_i). Tried from the end this is traversal of a tree without
    branches, and that is how it is done. Rows behind a token of probability 0 are not read.

    A rule for chains: of a tree it takes the first child of each node, and leaves the others to `traversal`."""

    name, lossless, keyed, draws = "block", True, False, True

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        """rows: [n + 1, V] the target's laws, logits up to a constant; -inf is probability 0. `noise` must be
        independent of the draws that made the draft."""
        eldest = [siblings[:1] for siblings in candidate_children(draft)]
        return climb(draft, eldest, rows, noise, position)
