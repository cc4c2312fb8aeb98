"""What relaxed rules share: the budget of nats that an answer may cost, and the longest path that a rule lets pass.

A relaxed rule accepts more than the target's law allows, and says for each token what that costs, in nats:

- greedy decoding: ln p(argmax) - ln p(token), the log-probability lost against the target's choice;
- sampling: ln of the factor by which the rule made the token likelier than a lossless rule would on the same draft,
  where it did (each rule says how much that is).

What the steps of an answer cost adds up. With a budget it never exceeds the budget: a token that costs more than what
is left is not let pass, and with nothing left a rule does what its lossless counterpart does (`greedy`, `rejection`).
So a greedy answer loses at most the budget along its own path; and when sampling, no answer comes out more than
e^budget times as often as from the target, for the factors of its steps multiply. Without a budget the mean cost still
bounds the Kullback-Leibler divergence of the answers' law from the target's, by the same product.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from ..errors import check_number
from ..sampling import Argmax, Noise
from ..tree import path_to
from ..types import Draft, Verdict
from . import Rows
from .greedy import Greedy, argmax
from .rejection import accept_one, descend

MOST = 200.0  # nats: beyond what a float32 probability can be short of 1


def tolerate(draft: Draft, rows: Rows | Tensor, allows: Callable[[int, Tensor], bool], left: float) -> Verdict:
    """Greedy decoding: the longest path of argmax tokens and of those that are allowed, then the argmax.

    allows: (node, [V] the row that decides its place) -> whether it may pass."""
    if left <= 0:
        return Greedy().verify(draft, rows, Argmax(), 0)

    def price(node: int) -> float:
        row, token = rows[draft.parents[node] + 1], draft.tokens[node]
        if token == argmax(row):
            return 0.0
        return gap(row, token) if allows(node, row) else math.inf

    path, nats = longest(draft, price, left)
    return Verdict.of(draft, path, argmax(rows[path[-1] + 1 if path else 0]), nats)


def longest(draft: Draft, price: Callable[[int], float], left: float) -> tuple[tuple[int, ...], list[float]]:
    """The longest path whose nodes may pass and together cost no more than `left`, and what each costs; of equally long
    ones the cheapest, of those the first.

    price: of a node, in nats; infinite where it may not pass. Asked only where its parent has passed."""
    passed = {-1: (0, 0.0, 0.0)}  # node -> (tokens, nats of the path so far, its own)
    for node, parent in enumerate(draft.parents):
        if parent in passed and draft.is_candidate(node):
            tokens, nats, _ = passed[parent]
            own = price(node)
            if own < math.inf and nats + own <= left:
                passed[node] = (tokens + 1, nats + own, own)
    end = max(passed, key=lambda node: (passed[node][0], -passed[node][1]))
    path = path_to(draft.parents, end)
    return path, [passed[node][2] for node in path]


def reject_leniently(
    draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, raised: Callable[[float], float], left: float
) -> Verdict:
    """Rejection (verify/rejection.py) with R(x) raised in the test, min(1, raised(R(x)) / D(x)), and nowhere else. What
    is left of the budget bounds the factor, which is what the token costs: min(D, raised(R)) / min(D, R)."""
    nats: list[float] = []

    def takes(node: int, target: float, drawn: float) -> bool:
        most = min(raised(target), target * math.exp(min(left - sum(nats), MOST)))
        taken = noise.uniform() < most / drawn
        if taken:
            nats.append(math.log(min(drawn, most) / min(drawn, target)))
        return taken

    def accept(siblings: list[int], logits: Tensor) -> tuple[int | None, Tensor]:
        return accept_one(draft, siblings, logits, takes)

    verdict = descend(draft, rows, noise, position, accept)
    return replace(verdict, nats=(*nats, 0.0)) if any(nats) else verdict


def gap(row: Tensor, token: int) -> float:
    """ln p(argmax) - ln p(token), for a row [V] of logits up to a constant."""
    return float(row.max() - row[token])


def left_of(budget: float | None, spent: float) -> float:
    """Nats that may still be spent."""
    return math.inf if budget is None else max(0.0, budget - spent)


def check_budget(rule: str, budget: float | None) -> None:
    """Raises BadOption for a budget that is none."""
    if budget is not None:
        check_number(f"rule {rule!r}: budget", budget, lambda x: x >= 0, "nats, a number >= 0, or None for no limit")
