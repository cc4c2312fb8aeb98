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
    """An index of each session's committed tokens, brought up to date when a draft is asked for."""

    taps: tuple[int, ...] = ()

    def __init__(self, options: Ngram, sessions: Sequence[Session]) -> None:
        self._options = options
        self._sure = RECURRENCE + RECURRENCE[-1:] * options.k
        self._indices = {row: SuffixIndex(s.tokens, options.max_match) for row, s in enumerate(sessions)}

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        return [
            self._continue(self._indices[row], min(self._options.k, budget.depth, budget.nodes))
            for row, budget in zip(rows, budgets, strict=True)
        ]

    def _continue(self, index: SuffixIndex, n: int) -> Draft:
        """The n tokens that followed the match. At the end of the text they go on with the draft itself, and so repeat
        what lies between the match and the end."""
        length, end = index.longest()
        if length < self._options.min_match:
            return EMPTY
        tokens = index.tokens[end + 1 : end + 1 + n]
        while len(tokens) < n:
            tokens = [*tokens, *tokens[: n - len(tokens)]]
        matched = min(length, len(RECURRENCE)) - 1  # one more for each token of the draft that is accepted
        return Draft.chain(tokens, confidence=self._sure[matched : matched + n])

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        pass

    def release(self, row: int) -> None:
        del self._indices[row]


class _Context:
    """A stretch of tokens that occurred: `end`, where it last ended, and the stretches one longer, by the token before
    it. These are told apart once two occurrences differ further back; until then `end` stands for all of them."""

    __slots__ = ("end", "longer")

    def __init__(self, end: int) -> None:
        self.end = end
        self.longer: dict[int, _Context] = {}


class SuffixIndex:
    """Where the newest tokens of a growing list occurred before: a trie of its stretches, read backwards.

    tokens: the list, read in place; it only ever grows.
    depth:  the longest stretch told apart. Whatever the length of the list, a token costs at most 4 * depth reads and
            `depth` new nodes (in practice one, of some 200 bytes).
    """

    def __init__(self, tokens: Sequence[int], depth: int) -> None:
        self.tokens = tokens
        self._depth = depth
        self._root = _Context(-1)
        self._seen = 0
        self._longest = (0, -1)

    def longest(self) -> tuple[int, int]:
        """(length, end): the longest suffix of `tokens`, at most `depth` of them, that also ends at an earlier index,
        and the latest such index; (0, -1) where the newest token is new."""
        for end in range(self._seen, len(self.tokens)):
            self._longest = self._add(end)
        self._seen = len(self.tokens)
        return self._longest

    def _add(self, end: int) -> tuple[int, int]:
        """Index the token at `end` and return the longest earlier match of the list up to it."""
        node, match, shared = self._root, (0, -1), 0
        for depth in range(self._depth):  # an earlier match has less before it, so this never runs off the beginning
            token = self.tokens[end - depth]
            found = node.longer.get(token)
            if found is None:
                node.longer[token] = _Context(end)
                break
            match = (depth + 1, found.end)
            if not found.longer:
                shared = shared or self._shared(found.end, end)
                if shared == min(self._depth, found.end + 1):  # nothing here differs as far back as it reaches
                    match, found.end = (shared, found.end), end
                    break
                found.longer[self.tokens[found.end - depth - 1]] = _Context(found.end)
            found.end, node = end, found
        return match

    def _shared(self, earlier: int, later: int) -> int:
        """How many tokens up to `earlier` equal those up to `later`, reading backwards, at most `depth`."""
        limit = min(self._depth, earlier + 1)
        return next((i for i in range(limit) if self.tokens[earlier - i] != self.tokens[later - i]), limit)
