"""Prompt lookup: when the newest tokens were seen before in this session, draft what followed them then.

Saxena, "Prompt Lookup Decoding" (2023), with the longest match instead of a fixed n-gram. It runs no model and draws
nothing, so its drafts are point masses. It knows one session's own tokens, and no other text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BadOption, check_count
from ..models.lm import LM, Cache
from ..session import Session
from ..types import EMPTY, Budget, Draft, Scores, Verdict
from .automaton import SuffixAutomaton

# How often the token that followed a match of 1, 2, 3, ... tokens came again: docs/experiments.md, 2026-11-30.
RECURRENCE = (0.2, 0.45, 0.55, 0.65, 0.7, 0.75, 0.8, 0.8, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85, 0.85, 0.95)


@dataclass(frozen=True)
class Ngram:
    """k:         tokens in a draft.
    min_match: a shorter match than this many tokens is not worth drafting from.
    max_match: longer matches count as this many tokens long; of equal ones the most recent is taken.
    Raises BadOption for values that are not whole numbers of at least 1, or a min_match above max_match.
    """

    k: int = 6
    min_match: int = 2
    max_match: int = 16

    name = "ngram"
    model_free = True

    def __post_init__(self) -> None:
        for option in ("k", "min_match", "max_match"):
            check_count(f"drafter 'ngram': {option}", getattr(self, option), 1)
        if self.min_match > self.max_match:
            raise BadOption(
                f"drafter 'ngram': min_match={self.min_match} exceeds max_match={self.max_match}; "
                "lower the first or raise the second"
            )

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> Lookup:
        return Lookup(self, sessions)


class Lookup:
    """A suffix automaton of each session's committed tokens, brought up to date when a draft is asked for."""

    taps: tuple[int, ...] = ()

    def __init__(self, options: Ngram, sessions: Sequence[Session]) -> None:
        self._options = options
        self._sure = RECURRENCE + RECURRENCE[-1:] * options.k
        self._automata = {row: SuffixAutomaton(s.tokens, options.max_match) for row, s in enumerate(sessions)}

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        return [
            self._continue(self._automata[row], min(self._options.k, budget.longest))
            for row, budget in zip(rows, budgets, strict=True)
        ]

    def _continue(self, automaton: SuffixAutomaton, n: int) -> Draft:
        """The n tokens that followed the match. At the end of the text they go on with the draft itself, and so repeat
        what lies between the match and the end."""
        length, end = automaton.longest()
        if length < self._options.min_match:
            return EMPTY
        tokens = automaton.tokens[end + 1 : end + 1 + n]
        while len(tokens) < n:
            tokens = [*tokens, *tokens[: n - len(tokens)]]
        matched = min(length, len(RECURRENCE)) - 1  # one more for each token of the draft that is accepted
        return Draft.chain(tokens, confidence=self._sure[matched : matched + n])

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        pass

    def release(self, row: int) -> None:
        del self._automata[row]
