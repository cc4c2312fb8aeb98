"""SpecDec's verification: a drafted token need not be the likeliest, only among the first and near. Greedy decoding."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..errors import check_count, check_number
from ..sampling import Noise
from ..types import Draft, Verdict
from . import Rows
from .relaxed import check_budget, gap, left_of, tolerate


@dataclass(frozen=True)
class TopBeta:
    """beta: a token passes if fewer than beta are likelier; 1 is exact. tau: and if its log-probability is at most tau
    nats below the likeliest's, which is lenience with l = e^-tau. budget: the most nats an answer may cost; None is no
    limit.

    Xia et al. 2023 (2203.16487), Spec-Verification; the defaults are those of its code."""

    beta: int = 5
    tau: float = 3.0
    budget: float | None = None

    name, lossless, keyed, draws = "topbeta", False, False, False

    def __post_init__(self) -> None:
        check_count("rule 'topbeta': beta", self.beta, 1)
        check_number("rule 'topbeta': tau", self.tau, lambda x: x >= 0, "nats, a number >= 0")
        check_budget(self.name, self.budget)

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        """rows: [n + 1, V] the target's laws, logits up to a constant; -inf is probability 0."""

        def allows(node: int, row: Tensor) -> bool:
            token = draft.tokens[node]
            return gap(row, token) <= self.tau and rank(row, token) < self.beta

        return tolerate(draft, rows, allows, left_of(self.budget, spent))


def rank(row: Tensor, token: int) -> int:
    """How many tokens of a row [V] are likelier."""
    return int((row > row[token]).sum())
