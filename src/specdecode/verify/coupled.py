"""The coupled rule: the target draws its own token at each position, and what was drafted only saves passes.

Knows no draft law: drafter and target agree as often as they do because both draw with the noise of the position.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..sampling import Noise
from ..types import Draft, Verdict
from . import Rows
from .walk import walk


@dataclass(frozen=True)
class Coupled:
    """The token at position t is argmax(log p + g_t) with Gumbel noise g_t keyed by (seed, t) (sampling.Keyed), so a
    seed gives the same text with speculation on or off, whatever the drafter, tree or batch.

    Lossless: row p depends on the tokens before t alone, hence on g_1 .. g_{t-1}, of which g_t is independent; so
    argmax(log p + g_t) has law p (Gumbel-max). The draft appears nowhere in it: it may know g_t, and may be anything.

    With a drafter that draws argmax(log q + g_t) a token is accepted with probability
    sum_x 1 / sum_y max(p(y)/p(x), q(y)/q(x)) >= (1 - TV) / (1 + TV); independent draws would give sum_x p(x) q(x).
    Daliri, Musco and Suresh 2024 (2408.07978), "Coupling without Communication and Drafter-Invariant Speculative
    Decoding". On trees: the walk of SpecInfer (2305.09781) along these draws."""

    name, lossless, keyed, draws = "coupled", True, True, True

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        """rows: [n + 1, V] the target's laws. The guarantee of one text a seed needs position-keyed `noise`; with any
        other the law is still p."""
        return walk(draft, rows, noise.draw, position)
