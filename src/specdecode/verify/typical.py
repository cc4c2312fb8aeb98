"""Medusa's typical acceptance: what is likely enough for the target's own uncertainty passes. Knows laws and draws."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from ..errors import check_number
from ..sampling import Argmax, Noise
from ..types import Draft, Verdict
from . import Rows
from .greedy import Greedy
from .rejection import Rejection
from .relaxed import check_budget, left_of, longest


@dataclass(frozen=True)
class Typical:
    """epsilon, delta: a drafted token passes if p(token) > min(epsilon, delta exp(-H(p))), H in nats. The longest path
    of such tokens is accepted, of equally long ones the likeliest, and the next token drawn from p.
    budget: the most nats an answer may cost; None is no limit.

    Greedy decoding is exact. When sampling, a token that passes costs -ln p(token), for it comes out surely and not
    with probability p. A step whose first token could cost more than is left is one of the rule `rejection`.

    Cai et al. 2024 (2401.10774) section 2.3.1; the defaults are those of its command line. Its code adds 1e-5 to p
    before the logarithm; this does not."""

    epsilon: float = 0.09
    delta: float = 0.3
    budget: float | None = None

    name, lossless, keyed, draws = "typical", False, False, True

    def __post_init__(self) -> None:
        for option in ("epsilon", "delta"):
            value = getattr(self, option)
            check_number(f"rule 'typical': {option}", value, lambda x: 0 < x <= 1, "a number > 0 and <= 1")
        check_budget(self.name, self.budget)

    def threshold(self, law: Tensor) -> float:
        """[V] probabilities -> the one that a token has to exceed."""
        entropy = float(torch.special.entr(law).sum())
        return min(self.epsilon, self.delta * math.exp(-entropy))

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        """rows: [n + 1, V] the target's laws, logits up to a constant; -inf is probability 0."""
        if isinstance(noise, Argmax):
            return Greedy().verify(draft, rows, noise, position)

        @cache
        def after(parent: int) -> tuple[Tensor, float]:
            law = rows[parent + 1].softmax(-1)
            return law, self.threshold(law)

        def price(node: int) -> float:
            law, least = after(draft.parents[node])
            share = float(law[draft.tokens[node]])
            return max(0.0, -math.log(share)) if share > least else math.inf

        left = left_of(self.budget, spent)
        if left < -math.log(after(-1)[1]):
            return Rejection().verify(draft, rows, noise, position)
        path, nats = longest(draft, price, left)
        last = rows[path[-1] + 1 if path else 0]
        return Verdict.of(draft, path, noise.draw(last, position + len(path)), nats)
