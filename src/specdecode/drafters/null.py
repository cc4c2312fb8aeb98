"""Plain decoding as a drafter: it never proposes anything, so each step scores the newest token alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..models.lm import LM, Cache
from ..session import Session
from ..types import EMPTY, Budget, Draft, Scores, Verdict


@dataclass(frozen=True)
class Null:
    """Drafts nothing."""

    name = "null"

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> Silence:
        return Silence()


class Silence:
    """The drafting of a drafter that has nothing to say."""

    taps: tuple[int, ...] = ()

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        return [EMPTY] * len(rows)

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        pass

    def release(self, row: int) -> None:
        pass
