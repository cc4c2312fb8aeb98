"""A suffix array over token ids: where the end of a text occurs in it, and what follows there.

The text is held newest token first, so that contexts that share their last tokens stand together: one search finds the
longest match. It is sorted by its LONGEST newest tokens alone, which four rounds of prefix doubling do (Manber and
Myers 1990). Knows numbers only: neither files nor tokenizers.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST = 16  # tokens of a match; a power of two
SEPARATOR = 0xFFFF_FFFF  # behind each document: no tokenizer's id
WIDTH = 4  # bytes of an id
ID = np.dtype(">u4")  # big-endian: bytes compare as the ids do


class SuffixArray:
    """text:  [n] ids as bytes, the last one first.
    order: [n] the places of `text`, sorted by the ids from there on.

    Both are buffers (bytes, a map of a file). A search takes some log2(n) steps of a fraction of a microsecond."""

    def __init__(self, text: memoryview, order: memoryview) -> None:
        self.text, self.order = text, order.cast("B").cast("I")
        self._ids: NDArray[Any] = np.frombuffer(text, ID)

    @classmethod
    def of(cls, tokens: NDArray[np.uint32]) -> SuffixArray:
        """tokens: [n] ids of documents, a SEPARATOR behind each; n below 2^31."""
        backwards = tokens[::-1]
        return cls(memoryview(backwards.astype(ID).tobytes()), memoryview(sort(backwards).tobytes()))

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def tokens(self) -> NDArray[np.uint32]:
        """[n] the ids as they were given."""
        return self._ids[::-1].astype(np.uint32)

    def matches(self, context: Sequence[int], least: int, enough: int) -> list[tuple[int, range]]:
        """(length, where in `order`) of the longest match of the context's end, LONGEST at most, and, as long as they
        are fewer than `enough`, of its halves; none below `least` tokens. context: ids below 2^32."""
        needle = np.array(context[: -LONGEST - 1 : -1], ID).tobytes()
        text, order = self.text, self.order

        def place(length: int) -> Any:
            return lambda at: text[WIDTH * at : WIDTH * (at + length)].tobytes()

        near = bisect_left(order, needle, key=place(LONGEST))
        length = max((self._shared(order[i], needle) for i in (near - 1, near) if 0 <= i < len(order)), default=0)
        found: list[tuple[int, range]] = []
        low = high = near
        while length >= least:
            part = needle[: WIDTH * length]
            low = bisect_left(order, part, 0, low, key=place(length))
            high = bisect_right(order, part, high, key=place(length))
            if not found or high - low > len(found[-1][1]):
                found.append((length, range(low, high)))
            if high - low >= enough or length == least:
                break
            length = max(least, length // 2)
        return found

    def after(self, found: range, n: int) -> list[list[int]]:
        """The n tokens that follow each of the places found, in order; SEPARATORs behind the last document."""
        places = np.array([self.order[i] for i in found], np.int64)
        rows: list[list[int]] = self._ids[np.maximum(places[:, None] - np.arange(1, n + 1), 0)].tolist()
        return rows

    def _shared(self, place: int, needle: bytes) -> int:
        """How many ids of the needle stand at the place."""
        n = len(needle) // WIDTH
        found = self.text[WIDTH * place : WIDTH * (place + n)].tobytes()
        while found != needle[: len(found)]:
            found = found[:-WIDTH]
        return len(found) // WIDTH


def sort(ids: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """[n] the places of `ids` in the order of the LONGEST ids from there on; where those are equal, in their own."""
    n = len(ids)
    rank = np.unique(ids, return_inverse=True)[1].astype(np.int64)
    known = 1  # ids that the ranks tell apart
    while True:
        key = rank << 32
        key[: n - known] += rank[known:] + 1  # nothing comes before everything
        order = np.argsort(key, kind="stable")
        known *= 2
        if known >= LONGEST or n <= known:
            return order.astype(np.uint32)
        key = key[order]
        rank[order[0]] = 0
        rank[order[1:]] = np.cumsum(key[1:] != key[:-1])
