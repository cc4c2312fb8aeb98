"""Seconds of a pass as a function of its rows and their context, from measured points. Knows no model and no clock."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf
from typing import Any


@dataclass(frozen=True)
class Curve:
    """Seconds of a target pass by its rows, those of all sessions together, and the mean context of the sessions.

    rows:     [R] ascending from 1; a row is one token to be scored.
    contexts: [C] ascending; tokens that were held before the pass.
    seconds:  [C][R] above 0, never falling with rows.
    Raises ValueError for anything else."""

    rows: tuple[int, ...]
    contexts: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]

    def __post_init__(self) -> None:
        ascending = all(a < b for grid in (self.rows, self.contexts) for a, b in pairwise(grid))
        shape = [len(line) for line in self.seconds] == [len(self.rows)] * len(self.contexts)
        if not (ascending and shape and self.contexts and self.rows[:1] == (1,)):
            raise ValueError(f"rows {self.rows} x contexts {self.contexts} is no grid that begins with one row")
        if not all(0 < s < inf for line in self.seconds for s in line) or not all(
            a <= b for line in self.seconds for a, b in pairwise(line)
        ):
            raise ValueError(f"times must be above 0 and never fall with the number of rows: {self.seconds}")

    def __call__(self, rows: int, context: float) -> float:
        """Seconds: linear between the measured points and beyond the largest, never less than for fewer rows."""
        line = self._at(context)
        if len(line) == 1:
            return line[0]
        right = min(max(bisect_right(self.rows, rows), 1), len(line) - 1)
        share = (rows - self.rows[right - 1]) / (self.rows[right] - self.rows[right - 1])
        return line[right - 1] + (line[right] - line[right - 1]) * share

    def _at(self, context: float) -> list[float]:
        """[R] seconds at a context; of shorter ones than were measured, the shortest stands for all."""
        if len(self.contexts) == 1:
            return list(self.seconds[0])
        left = min(max(bisect_right(self.contexts, context) - 1, 0), len(self.contexts) - 2)
        share = max(0.0, (context - self.contexts[left]) / (self.contexts[left + 1] - self.contexts[left]))
        near, far = self.seconds[left], self.seconds[left + 1]
        return list(accumulate((a + max(0.0, b - a) * share for a, b in zip(near, far, strict=True)), max))

    @classmethod
    def fit(cls, rows: Sequence[int], contexts: Sequence[int], seconds: Sequence[Sequence[float]]) -> Curve:
        """The curve nearest to measured [C][R] seconds, in least squares, among those that never fall with rows."""
        return cls(tuple(rows), tuple(contexts), tuple(tuple(_isotonic(line)) for line in seconds))

    @classmethod
    def from_dict(cls, entry: Any) -> Curve:
        """The inverse of dataclasses.asdict, JSON in between. Raises ValueError, TypeError, KeyError or OverflowError
        for anything else."""
        lines = tuple(tuple(map(float, line)) for line in entry["seconds"])
        return cls(tuple(map(int, entry["rows"])), tuple(map(int, entry["contexts"])), lines)


def _isotonic(values: Sequence[float]) -> list[float]:
    """Pool adjacent violators: the nearest sequence, in least squares, that never falls."""
    pools: list[tuple[float, int]] = []
    for value in values:
        pool = (value, 1)
        while pools and pools[-1][0] > pool[0]:
            mean, n = pools.pop()
            pool = ((mean * n + pool[0] * pool[1]) / (n + pool[1]), n + pool[1])
        pools.append(pool)
    return [mean for mean, n in pools for _ in range(n)]
