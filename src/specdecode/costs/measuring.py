"""Timing passes through the LM protocol. Knows no machine and keeps nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from ..models.lm import LM, Cache, read
from ..types import Prompt, Row
from .curve import Curve

TICK = 1e-9  # seconds: no pass takes less, whatever a clock that stands still or was set back says


@dataclass(frozen=True)
class Plan:
    """What to measure: every number of rows at every context, in at most `rounds` rounds. Past `budget_s` seconds no
    further round begins, and a third of it spent on reading stops the reading of longer contexts."""

    rows: tuple[int, ...]
    contexts: tuple[int, ...]
    rounds: int
    budget_s: float

    def within(self, context: int) -> Plan:
        """The part of it that a model of this context can run."""
        rows = tuple(r for r in self.rows if r < context - 1) or (1,)
        contexts = sorted({max(0, min(c, context - 1 - rows[-1])) for c in self.contexts})
        return Plan(rows, tuple(contexts), self.rounds, self.budget_s)


QUICK = Plan(rows=(1, 2, 4, 8, 16), contexts=(64, 512), rounds=12, budget_s=2.0)
LONG = Plan(rows=(1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64), contexts=(64, 512, 1500), rounds=7, budget_s=180.0)


def measure(
    lm: LM,
    plan: Plan = QUICK,
    *,
    clock: Callable[[], float] = perf_counter,
    advance: Callable[[float], None] = lambda share: None,
) -> Curve:
    """Time passes of `lm`. Rounds over all points are interleaved, so that a disturbance meets all points alike, and
    the lower quartile of each is taken, for a disturbance only adds. advance: told the share of rounds that is done."""
    started, plan = clock(), plan.within(lm.context)
    caches: dict[int, Cache] = {}
    for context in plan.contexts:
        if caches and clock() - started > plan.budget_s / 3:
            break
        caches[context] = _filled(lm, context)
    points = [(context, rows) for context in caches for rows in plan.rows]
    times: dict[tuple[int, int], list[float]] = {point: [] for point in points}
    for done in range(plan.rounds):
        begun = clock()
        for context, rows in points:
            times[context, rows].append(_time_pass(lm, caches[context], rows, clock))
        advance((done + 1) / plan.rounds)
        if 2 * clock() - begun - started > plan.budget_s:  # another round would end too late
            break
    return Curve.fit(plan.rows, tuple(caches), [[_quartile(times[c, r]) for r in plan.rows] for c in caches])


def _quartile(times: list[float]) -> float:
    return sorted(times)[len(times) // 4]


def _filled(lm: LM, context: int) -> Cache:
    ids = tuple(i % lm.vocab for i in range(context + 1))
    cache = lm.open([Prompt(ids)])
    read(lm, cache, {0: ids[:-1]})
    return cache


def _time_pass(lm: LM, cache: Cache, rows: int, clock: Callable[[], float]) -> float:
    """Seconds of a pass over a chain. Nothing of it is kept, so the next one finds the cache as it was."""
    row = Row.chain(0, [i % lm.vocab for i in range(rows)])
    started = clock()
    (scores,) = lm.score(cache, [row])
    float(scores.logits[-1, 0])  # waits for a device that works on its own
    return max(TICK, clock() - started)
