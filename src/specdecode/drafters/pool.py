"""The n-grams that a lookahead drafter has seen, by their first token. Knows tokens only."""

from __future__ import annotations

from collections.abc import Sequence


class NgramPool:
    """For each key the tails that were seen behind it, at most `most`: those seen least recently go first (Fu et al.
    2024, 2402.02057, section 3.3). So it holds no more than `most` tails for each token of the vocabulary."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._tails: dict[int, dict[tuple[int, ...], None]] = {}  # dicts keep the order in which keys came

    def add(self, ngram: Sequence[int]) -> None:
        """The first token is the key, the others the tail."""
        key, *rest = ngram
        tails, tail = self._tails.setdefault(key, {}), tuple(rest)
        tails.pop(tail, None)
        tails[tail] = None
        if len(tails) > self._most:
            del tails[next(iter(tails))]

    def tails(self, key: int) -> list[tuple[int, ...]]:
        """Those of `key`, the last seen first."""
        return list(reversed(self._tails.get(key, {})))
