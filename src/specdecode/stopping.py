"""When a session ends, and at which token: stop ids, a stop string, a complete grammar, the length limit.

It cuts a step's verdict before anything is committed, so nothing past the end is ever kept, counted or streamed. It
knows ids only; stop strings and grammars live behind a Scanner, because finding their end takes a tokenizer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from .errors import BadOption, check_count
from .types import Verdict


class Scanner(Protocol):
    """Finds where a session's output ends by its text."""

    def scan(self, tokens: Sequence[int]) -> int | None:
        """How many of `tokens` (all new tokens of the session, those about to be emitted included) to keep: the last
        one kept completes the stop string, or the grammar. None where that is still to come."""
        ...


@dataclass(frozen=True)
class Stopping:
    """max_new_tokens: the most tokens emitted.
    min_new_tokens: that many tokens come before a stop id can stop (`constraints.Filters` forbids the end token until
                    then). Stop strings are not held back by it.
    stop_ids:       ids that end the output, being its last token. Empty: only the other limits end it.
    scanner:        finds stop strings; None where the request has none.
    grammar:        finds where the grammar is complete, whatever min_new_tokens says; None where there is none.
    Raises BadOption for limits that are not whole numbers or exclude each other.
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    stop_ids: frozenset[int] = frozenset()
    scanner: Scanner | None = None
    grammar: Scanner | None = None

    def __post_init__(self) -> None:
        check_count("max_new_tokens", self.max_new_tokens, 1)
        check_count("min_new_tokens", self.min_new_tokens, 0)
        if self.min_new_tokens > self.max_new_tokens:
            raise BadOption(
                f"min_new_tokens={self.min_new_tokens} exceeds max_new_tokens={self.max_new_tokens}; "
                "lower the first or raise the second"
            )

    def clip(self, verdict: Verdict, new_tokens: Sequence[int]) -> tuple[Verdict, str | None]:
        """The verdict cut at the session's end, and why it ended: "eos" (a stop id), "stop" (a stop string), "grammar"
        (it is complete), "length", or None where it goes on. The earliest cut wins; at one and the same token the
        reasons rank in that order.

        new_tokens: what the session emitted before this step."""
        done = len(new_tokens)
        assert done < self.max_new_tokens, f"this session ended at {done} of {self.max_new_tokens} tokens"
        cuts = [
            ("eos", self._stop_id_cut(verdict.tokens, done)),
            ("stop", _cut(self.scanner, verdict.tokens, new_tokens)),
            ("grammar", _cut(self.grammar, verdict.tokens, new_tokens)),
            ("length", self.max_new_tokens - done),
        ]
        reason, cut = min(((r, c) for r, c in cuts if c is not None), key=lambda pair: pair[1])
        return (verdict.clip(cut), reason) if cut <= len(verdict.tokens) else (verdict, None)

    def _stop_id_cut(self, tokens: Sequence[int], done: int) -> int | None:
        """How many of `tokens` to keep so that the first effective stop id is the last; None without one."""
        first = max(0, self.min_new_tokens - done)
        return next((i + 1 for i in range(first, len(tokens)) if tokens[i] in self.stop_ids), None)


def _cut(scanner: Scanner | None, tokens: Sequence[int], new_tokens: Sequence[int]) -> int | None:
    """How many of `tokens` to keep so that the last one completes what `scanner` looks for; None without one."""
    kept = None if scanner is None else scanner.scan([*new_tokens, *tokens])
    if kept is None:
        return None
    assert kept > len(new_tokens), f"the output ends at token {kept}, which an earlier step had emitted"
    return kept - len(new_tokens)
