"""What a curve means for drafting: how many rows are nearly free, and which acceptance a draft length needs to pay.

Knows the theory of chains and no drafter.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..theory import speedup
from .curve import Curve

NEARLY = 1.15  # times a pass over one row: what a pass over more may take for them to be called nearly free
MOST_ROWS = 64


@dataclass(frozen=True)
class Floors:
    """The least that a pass can take: its weights have to be read, and to be multiplied with each row.

    nbytes, weights: of the model; bandwidth: bytes a second; speed: floating-point operations a second, two of which
    take a weight for a row."""

    nbytes: int
    weights: int
    bandwidth: float
    speed: float

    @property
    def memory_s(self) -> float:
        return self.nbytes / self.bandwidth

    def arithmetic_s(self, rows: int) -> float:
        return 2 * self.weights * rows / self.speed


def nearly_free(curve: Curve, context: float) -> int:
    """The most rows of which a pass takes at most NEARLY times as long as of one, as far as MOST_ROWS."""
    return max(rows for rows in range(1, MOST_ROWS + 1) if curve(rows, context) <= NEARLY * curve(1, context))


def needed_acceptance(curve: Curve, context: float, k: int, step_s: float = 0.0) -> float | None:
    """The least acceptance, the same for each token, at which drafts of k tokens are no slower than plain decoding;
    None where none is enough. step_s: seconds to draft a token."""
    one = curve(1, context)

    def pays(acceptance: float) -> bool:
        return float(speedup(acceptance, k, step_s / one, curve(k + 1, context) / one)) >= 1

    low, high = 0.0, 1.0
    if not pays(high):
        return None
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high
