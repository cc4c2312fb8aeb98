"""Time that only stubs make: a clock, models and drafters that take as long as they are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specdecode.drafters import Drafter, Drafting
from specdecode.models.lm import LM, Cache
from specdecode.session import Session
from specdecode.types import Budget, Draft, Row, Scores, Verdict

from .lms import StubCache, StubLM

Curve = Callable[[int, float], float]  # (rows of a pass, mean context) -> seconds


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class TimedLM(StubLM):
    """A stub whose passes take `curve` seconds by a clock; reading prompts takes none. disturb: pass -> factor."""

    def __init__(
        self, lm: StubLM, clock: Clock, curve: Curve, disturb: Callable[[int], float] = lambda index: 1.0
    ) -> None:
        super().__init__(lm.law, lm.vocab, lm.context)
        self._clock, self._curve, self._disturb = clock, curve, disturb

    def score(self, cache: StubCache, rows: Sequence[Row], *, logits: bool = True, **options: Any) -> list[Scores]:
        if logits:
            nodes = sum(len(row.tokens) for row in rows)
            context = sum(cache.lengths[row.index] for row in rows) / len(rows)
            self._clock.now += self._curve(nodes, context) * self._disturb(len(self.passes))
        return super().score(cache, rows, logits=logits, **options)


@dataclass(frozen=True)
class Slow:
    """A drafter that takes `step_s` by a clock for each token of a draft's depth."""

    drafter: Drafter
    clock: Clock
    step_s: float

    name = "slow"

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> _SlowDrafting:
        return _SlowDrafting(self.drafter.begin(sessions, target, cache), self)


class _SlowDrafting:
    def __init__(self, drafting: Drafting, options: Slow) -> None:
        self.taps, self._drafting, self._options = drafting.taps, drafting, options

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        drafts = self._drafting.draft(rows, budgets)
        self._options.clock.now += self._options.step_s * max(map(len, drafts))
        return drafts

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        self._drafting.observe(row, draft, verdict, scores)

    def release(self, row: int) -> None:
        self._drafting.release(row)
