"""What was measured: one StepRecord a step, and the Metrics that sum them up, over one session or many.

Pure bookkeeping. Everything is counted, nothing is estimated from options, and what cannot be known is None, never 0.
It knows no model, no clock and no text: whoever runs the step fills in the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, takewhile
from typing import Any

DEFINITIONS = {
    "acceptance_rate": "accepted / drafted tokens; falls as drafts get longer, so never choose a draft length by it",
    "tokens_per_step": "emitted tokens / target passes, the next token included; plain decoding is 1.0",
    "per_position": "share of all steps that accepted the i-th drafted token",
    "histogram": "number of steps that accepted 0, 1, 2, ... drafted tokens",
    "nats": "what a relaxed rule let the tokens cost: greedy, the log-probability lost against the target's choice; "
    "sampling, the log of how much likelier it made them; 0 under a lossless rule",
    "nats_per_token": "nats / emitted tokens",
    "rest_s": "seconds spent neither drafting nor in the target",
}
"""What the reported figures mean, in one phrase each."""


def accepted_prefix(matches: Iterable[object]) -> int:
    """How many drafted tokens were accepted, given for each whether it matched: those before the first mismatch."""
    return sum(1 for _ in takewhile(bool, matches))


def first_difference(plain: Sequence[int], tokens: Sequence[int]) -> int | None:
    """How many tokens two answers share from their beginning; None where they are equal."""
    if tuple(plain) == tuple(tokens):
        return None
    return accepted_prefix(a == b for a, b in zip(plain, tokens, strict=False))


@dataclass(frozen=True)
class StepRecord:
    """One step of one session, counted after clipping.

    drafted:  depth of the candidate tree (its longest root path), so at most this many could be accepted.
    nodes:    all candidate nodes; probes: nodes that only rode along.
    accepted: emitted tokens that had been drafted; emitted: all of them.
    draft_s, target_s, total_s: seconds drafting, in the target pass, and altogether. Sessions that share a batch step
              share its time equally.
    nats:     what the emitted tokens cost under a relaxed rule.
    """

    drafted: int
    nodes: int
    probes: int
    accepted: int
    emitted: int
    draft_s: float
    target_s: float
    total_s: float
    nats: float = 0.0

    def __post_init__(self) -> None:
        assert 0 <= self.accepted <= min(self.drafted, self.emitted), f"impossible counts: {self}"
        assert self.drafted <= self.nodes, f"a path longer than its tree has nodes: {self}"


@dataclass(frozen=True)
class Metrics:
    """Sums over steps, and the rates that follow from them. `histogram[i]` steps accepted i drafted tokens; it reaches
    to the longest draft. DEFINITIONS explains the rates."""

    steps: int
    drafted: int
    nodes: int
    probes: int
    accepted: int
    emitted: int
    histogram: tuple[int, ...]
    draft_s: float
    target_s: float
    total_s: float
    nats: float = 0.0

    @classmethod
    def from_records(cls, records: Iterable[StepRecord]) -> Metrics:
        """The metrics of any records: one session's, or the concatenated records of several."""
        steps = list(records)
        counts = [0] * (1 + max((step.drafted for step in steps), default=0))
        for step in steps:
            counts[step.accepted] += 1
        return cls(
            steps=len(steps),
            drafted=sum(step.drafted for step in steps),
            nodes=sum(step.nodes for step in steps),
            probes=sum(step.probes for step in steps),
            accepted=sum(step.accepted for step in steps),
            emitted=sum(step.emitted for step in steps),
            histogram=tuple(counts),
            draft_s=sum((step.draft_s for step in steps), 0.0),
            target_s=sum((step.target_s for step in steps), 0.0),
            total_s=sum((step.total_s for step in steps), 0.0),
            nats=sum((step.nats for step in steps), 0.0),
        )

    @property
    def acceptance_rate(self) -> float | None:
        """None when nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def tokens_per_step(self) -> float | None:
        """None before the first step."""
        return self.emitted / self.steps if self.steps else None

    @property
    def nats_per_token(self) -> float | None:
        """None before the first step."""
        return self.nats / self.emitted if self.emitted else None

    @property
    def per_position(self) -> list[float]:
        """[longest draft] shares; empty when nothing was drafted."""
        at_least = list(accumulate(reversed(self.histogram)))[::-1]
        return [count / self.steps for count in at_least[1:]]

    @property
    def rest_s(self) -> float:
        """Seconds spent neither drafting nor in the target."""
        return self.total_s - self.draft_s - self.target_s

    def to_dict(self) -> dict[str, Any]:
        """Every sum and rate under its own name, and the DEFINITIONS, ready for JSON."""
        return {
            **asdict(self),
            "histogram": list(self.histogram),
            "acceptance_rate": self.acceptance_rate,
            "tokens_per_step": self.tokens_per_step,
            "per_position": self.per_position,
            "nats_per_token": self.nats_per_token,
            "rest_s": self.rest_s,
            "definitions": DEFINITIONS,
        }
