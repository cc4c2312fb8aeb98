"""Stop strings: where the output ends, and which text is held back because it may be the beginning of one.

Works on the text of new tokens alone, whatever steps they came in. Knows no model and no session.
"""

from __future__ import annotations

from collections.abc import Sequence

from .detokenize import Decoder, Detokenizer


class StopStrings:
    """Finds the token that completes a stop string (stopping.Scanner): the first one after which the text of all new
    tokens holds any of `strings`. Each token is decoded once; tokens that were taken back are noticed and forgotten."""

    def __init__(self, decoder: Decoder, strings: Sequence[str]) -> None:
        self._decoder = decoder
        self._strings = tuple(strings)
        self._reach = max(map(len, strings)) - 1  # characters before new text in which a stop string can begin
        self._seen: list[int] = []
        self._state = (Detokenizer(decoder), "")  # after the tokens seen, none of which completes a stop string

    def scan(self, tokens: Sequence[int]) -> int | None:
        """How many of `tokens` to keep, the last one completing the stop string; None where there is none."""
        known = len(self._seen)
        if list(tokens[:known]) != self._seen:
            known, self._state = 0, (Detokenizer(self._decoder), "")
        detokenizer, tail = self._state[0].copy(), self._state[1]
        for i in range(known, len(tokens)):
            tail += detokenizer.push(tokens[i])
            text = tail + detokenizer.rest()
            if any(stop in text for stop in self._strings):
                return i + 1
            tail = tail[max(0, len(tail) - self._reach) :]
        self._seen, self._state = list(tokens), (detokenizer, tail)
        return None


class Writer:
    """One session's output text as it grows, cut at its stop string.

    include: whether the stop string itself belongs to the text."""

    def __init__(self, decoder: Decoder, stops: Sequence[str] = (), include: bool = False) -> None:
        self._detokenizer = Detokenizer(decoder)
        self._stops = tuple(stops)
        self._include = include
        self._held = ""

    def push(self, tokens: Sequence[int]) -> str:
        """The text that can be shown after these tokens."""
        self._held += self._detokenizer.extend(tokens)
        safe = self._safe()
        piece, self._held = self._held[:safe], self._held[safe:]
        return piece

    def finish(self) -> str:
        """What remains to be shown when no token follows."""
        text, self._held = self._held + self._detokenizer.rest(), ""
        found = find(text, self._stops)
        if found is None:
            return text
        return text[: found[1] if self._include else found[0]]

    def _safe(self) -> int:
        """How many of the held characters cannot belong to a stop string."""
        found = find(self._held, self._stops)
        if found is not None:
            return found[0]
        starts = range(max(0, len(self._held) - max(map(len, self._stops), default=0)), len(self._held))
        held = self._held
        return next((i for i in starts if any(stop.startswith(held[i:]) for stop in self._stops)), len(held))


def find(text: str, stops: Sequence[str]) -> tuple[int, int] | None:
    """(begin, end) of the stop string that is complete first; of those that end together, the longest."""
    spans = [(begin + len(stop), begin) for stop in stops if (begin := text.find(stop)) >= 0]
    if not spans:
        return None
    end, begin = min(spans)
    return begin, end
