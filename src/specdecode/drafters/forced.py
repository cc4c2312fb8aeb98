"""Drafts that a grammar leaves no choice about. The target's law then allows one token, so they are accepted whatever
the model says, and cost no more than their rows.

Knows sessions and their place in a grammar; no text and no tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..models.lm import LM, Cache
from ..session import Session
from ..types import EMPTY, Budget, Draft, Scores, Verdict
from . import Drafter
from .auto import Auto
from .merged import Merged
from .null import Null


@dataclass(frozen=True)
class Forced:
    """Drafts the forced tokens of sessions that have a grammar, and nothing for others."""

    name = "forced"
    model_free = True

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> Forcing:
        return Forcing(sessions)


class Forcing:
    """The drafter at work: it asks each session's own matcher."""

    taps: tuple[int, ...] = ()

    def __init__(self, sessions: Sequence[Session]) -> None:
        self._sessions = sessions

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        return [_forced(self._sessions[row], budget.longest) for row, budget in zip(rows, budgets, strict=True)]

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        pass

    def release(self, row: int) -> None:
        pass


def with_forced(drafter: Drafter) -> Drafter:
    """`drafter` and the forced tokens together, as one tree. Plain decoding stays plain."""
    if isinstance(drafter, Null | Forced):
        return drafter
    if isinstance(drafter, Auto):
        return replace(drafter, sources=(Forced(), *drafter.sources))
    return Merged((Forced(), *(drafter.sources if isinstance(drafter, Merged) else (drafter,))))


def _forced(session: Session, most: int) -> Draft:
    tokens = session.grammar.forced(session.new_tokens)[:most] if session.grammar and most else []
    return Draft.chain(tokens, confidence=(1.0,) * len(tokens)) if tokens else EMPTY
