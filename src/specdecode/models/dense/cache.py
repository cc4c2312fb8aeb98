"""Keys and values for the fast runtime: each session has its own memory, laid out as the pass reads it.

Keys are panels of slots [L * Hk, S / PANEL, d, PANEL], values are rows [L * Hk, S, dp]; a score is then a product with
a panel, as a projection is. Rollback is the length. Knows no model, mask or draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .kernels import PANEL

GROWTH = 256  # slots: a multiple of PANEL

Floats = npt.NDArray[np.float32]


class Slots:
    """One session's memory: room for whole blocks of GROWTH slots, a fifth more than asked for."""

    def __init__(self, lines: int, width: int) -> None:
        self._padded = -(-width // PANEL) * PANEL
        self.keys: Floats = np.zeros((lines, 0, width, PANEL), np.float32)
        self.values: Floats = np.zeros((lines, 0, self._padded), np.float32)

    @property
    def room(self) -> int:
        return int(self.values.shape[1])

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.values.nbytes

    def reserve(self, slots: int) -> None:
        if slots <= self.room:
            return
        room = -(-max(slots, self.room * 5 // 4) // GROWTH) * GROWTH
        lines, blocks, width, _ = self.keys.shape
        keys = np.zeros((lines, room // PANEL, width, PANEL), np.float32)
        values = np.zeros((lines, room, self._padded), np.float32)
        keys[:, :blocks], values[:, : self.room] = self.keys, self.values
        self.keys, self.values = keys, values

    def move(self, sources: Sequence[int], start: int) -> None:
        """Bring slots `sources` (ascending, none of them before its new place) to start, start + 1, ..."""
        stop = start + len(sources)
        source, target = np.asarray(sources), np.arange(start, stop)
        self.values[:, start:stop] = self.values[:, source]
        self.keys[:, target // PANEL, :, target % PANEL] = self.keys[:, source // PANEL, :, source % PANEL]


class DenseCache:
    """The Cache of the fast runtime (models/lm.py). lines: layers times key heads; width: of a head."""

    def __init__(self, batch: int, lines: int, width: int) -> None:
        self._lengths = [0] * batch
        self._scratch: list[tuple[int, ...]] = [()] * batch  # parents of the uncommitted nodes behind each prefix
        self._slots: list[Slots | None] = [Slots(lines, width) for _ in range(batch)]

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self._lengths)

    @property
    def nbytes(self) -> int:
        return sum(slots.nbytes for slots in self._slots if slots is not None)

    def uncommitted(self, row: int) -> tuple[int, ...]:
        """Parents of the nodes that passes left behind the prefix of `row` since the last keep."""
        return self._scratch[row]

    def write(self, row: int, parents: tuple[int, ...]) -> Slots:
        """The memory of `row`, with room for the tree `parents` behind its prefix; it counts as written from now on."""
        slots = self._slots[row]
        assert slots is not None, f"row {row} was released"
        slots.reserve(self._lengths[row] + len(parents))
        self._scratch[row] = parents
        return slots

    def keep(self, row: int, path: Sequence[int]) -> None:
        length, scratch, slots = self._lengths[row], len(self._scratch[row]), self._slots[row]
        assert all(a < b for a, b in pairwise(path)), f"a path runs from root to leaf: {path}"
        assert not path or 0 <= path[0] <= path[-1] < scratch, f"path {path} leaves the {scratch} nodes of row {row}"
        gap = next((i for i, node in enumerate(path) if node != i), len(path))
        if gap < len(path):
            assert slots is not None
            slots.move([length + node for node in path[gap:]], length + gap)
        self._lengths[row] = length + len(path)
        self._scratch[row] = ()

    def release(self, row: int) -> None:
        self._slots[row] = None
