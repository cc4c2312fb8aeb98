"""DistillSpec's lossy speculative decoding: the target's share is raised by a function f. Knows laws and draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ..errors import BadOption, check_number, shown
from ..sampling import Argmax, Noise
from ..types import Draft, Verdict
from . import Rows
from .greedy import Greedy
from .relaxed import check_budget, left_of, reject_leniently

SHAPES: dict[str, Callable[[float, float], float]] = {
    "linear": lambda share, epsilon: share / epsilon,
    "square": lambda share, epsilon: share / epsilon**2,
    "power": lambda share, epsilon: share**epsilon,
}


@dataclass(frozen=True)
class DistillSpec:
    """shape: f(p) is p / epsilon ("linear", the same as lenience), p / epsilon^2 ("square") or p^epsilon ("power").
    epsilon: in (0, 1]; 1 is exact. budget: the most nats an answer may cost; None is no limit.

    A drafted token is accepted with probability min(1, f(p) / q), and what is left after a refusal is
    norm(max(p - q, 0)), as in rejection. A token costs at most ln(f(p) / p) nats; under "power", the rarer the more.
    Greedy decoding is exact: a law with a single token stays what it is under each f.

    Zhou et al. 2024 (2310.08461), lossy speculative decoding."""

    shape: str = "linear"
    epsilon: float = 0.5
    budget: float | None = None

    name, lossless, keyed, draws = "distillspec", False, False, True

    def __post_init__(self) -> None:
        if self.shape not in SHAPES:
            raise BadOption(f"rule 'distillspec': shape={shown(self.shape)} is unknown; use {', '.join(SHAPES)}")
        check_number("rule 'distillspec': epsilon", self.epsilon, lambda x: 0 < x <= 1, "a number > 0 and <= 1")
        check_budget(self.name, self.budget)

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        """rows: [n + 1, V] the target's laws, logits up to a constant; -inf is probability 0."""
        if isinstance(noise, Argmax):
            return Greedy().verify(draft, rows, noise, position)
        raised = SHAPES[self.shape]
        left = left_of(self.budget, spent)
        return reject_leniently(draft, rows, noise, position, lambda share: raised(share, self.epsilon), left)
