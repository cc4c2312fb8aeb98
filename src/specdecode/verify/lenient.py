"""Lenience: the draft's law is lowered, or the likeliest token's lead forgiven. Knows laws and draws; no model."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from ..errors import check_number
from ..sampling import Argmax, Noise
from ..types import Draft, Verdict
from . import Rows
from .relaxed import check_budget, gap, left_of, reject_leniently, tolerate


@dataclass(frozen=True)
class Lenient:
    """lenience: l in (0, 1]; 1 is exact. budget: the most nats an answer may cost; None is no limit.

    Sampling: a drafted token is accepted with probability min(1, p / (l q)), that is alpha(l) = sum of min(p / l, q) of
    them; what is left after a refusal is norm(max(p - q, 0)), as in rejection. No token becomes more than 1 / l times
    as likely, so one costs at most ln(1 / l) nats.
    Greedy: a drafted token passes if p(token) >= l max p, and costs at most ln(1 / l) too.

    Leviathan et al. 2023 (2211.17192) A.5, which leaves open what residual is meant, and whose inequality for
    greedy decoding is printed in reverse: l = 1 has to be exact."""

    lenience: float = 0.5
    budget: float | None = None

    name, lossless, keyed, draws = "lenient", False, False, True

    def __post_init__(self) -> None:
        check_number("rule 'lenient': lenience", self.lenience, lambda x: 0 < x <= 1, "a number > 0 and <= 1")
        check_budget(self.name, self.budget)

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        """rows: [n + 1, V] the target's laws, logits up to a constant; -inf is probability 0."""
        left = left_of(self.budget, spent)
        if isinstance(noise, Argmax):
            lead = -math.log(self.lenience)
            return tolerate(draft, rows, lambda node, row: gap(row, draft.tokens[node]) <= lead, left)
        return reject_leniently(draft, rows, noise, position, lambda share: share / self.lenience, left)
