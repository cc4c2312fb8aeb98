"""BiLD, the big little decoder: the small model is believed while it is sure and not too wrong. Greedy decoding."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..errors import check_number, check_probability
from ..sampling import Noise
from ..types import Draft, Verdict
from . import Rows
from .relaxed import check_budget, left_of, tolerate


@dataclass(frozen=True)
class Bild:
    """rollback: a drafted token stays if its distance, -ln p(token), is at most so many nats (p >= .00674 at the
              default); the first that does not is replaced by the likeliest, and what follows it dropped.
    fallback: nor does it stay if its drafter is less sure of it (Draft.confidence; no matter where none is told). The
              likeliest token stays in any case. DraftLM's `confidence` ends a draft there, which saves the drafting.
    budget:   the most nats an answer may cost; None is no limit.

    Kim et al. 2023 (2302.07863), by its code: the distance decides, not a count of mismatches."""

    rollback: float = 5.0
    fallback: float = 0.6
    budget: float | None = None

    name, lossless, keyed, draws = "bild", False, False, False

    def __post_init__(self) -> None:
        check_number("rule 'bild': rollback", self.rollback, lambda x: x >= 0, "nats, a number >= 0")
        check_probability("rule 'bild': fallback", self.fallback)
        check_budget(self.name, self.budget)

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        """rows: [n + 1, V] the target's laws, logits up to a constant; -inf is probability 0."""

        def allows(node: int, row: Tensor) -> bool:
            sure = 1.0 if draft.confidence is None else draft.confidence[node]
            distance = float(row.logsumexp(-1) - row[draft.tokens[node]])
            return sure >= self.fallback and distance <= self.rollback

        return tolerate(draft, rows, allows, left_of(self.budget, spent))
