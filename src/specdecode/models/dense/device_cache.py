"""Keys and values on a device: memories of a few fixed shapes, so that a recorded pass finds them where they were.

A memory holds B rows of S slots, S from a ladder of sizes. A cache moves to the next size when its longest row outgrows
the last, and to fewer rows when half of its sessions have ended; what it leaves is lent again, with the passes recorded
over it. Rollback is the length. Knows no model, mask or draft.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from .device_pass import Recorded

LEAST = 256  # slots; each further size has twice as many
KEPT = 16  # memories that wait for another cache


@dataclass(frozen=True)
class Shape:
    """What the memories of one model have in common. bytes_kept: what those that wait may take, all together."""

    layers: int
    groups: int
    width: int
    dtype: torch.dtype
    device: torch.device
    bytes_kept: int


def _nobody() -> None:
    """The borrower of a memory that waits."""


class Memory:
    """data: [L, 2, B, S, Hk, d] keys and values of each layer. The last slot of every row is nobody's: padding is
    written there. recorded: the passes recorded over it, by their width."""

    def __init__(self, shape: Shape, rows: int, slots: int) -> None:
        sizes = (shape.layers, 2, rows, slots, shape.groups, shape.width)
        self.data = torch.zeros(sizes, dtype=shape.dtype, device=shape.device)
        self.recorded: dict[int, Recorded] = {}
        self.borrower: Callable[[], object | None] = _nobody

    @property
    def rows(self) -> int:
        return int(self.data.shape[2])

    @property
    def slots(self) -> int:
        return int(self.data.shape[3])


class Memories:
    """Every memory of a model: those that caches hold, and the newest of those that wait for another."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._all: list[Memory] = []  # the last lent comes last
        self._one_at_a_time = threading.Lock()

    def __len__(self) -> int:
        return len(self._all)

    def lend(self, borrower: object, rows: int, slots: int) -> Memory:
        """A memory of zeros, the borrower's until it is given back or the borrower is gone."""
        with self._one_at_a_time:
            memory = next((m for m in self._waiting() if (m.rows, m.slots) == (rows, slots)), None)
            if memory is None:
                self._thin()
                memory = Memory(self._shape, rows, slots)
            else:
                self._all.remove(memory)
                memory.data.zero_()  # attention multiplies masked slots by zero, which does not forgive a NaN
            memory.borrower = weakref.ref(borrower)
            self._all.append(memory)
            return memory

    def _waiting(self) -> list[Memory]:
        return [memory for memory in self._all if memory.borrower() is None]

    def _thin(self) -> None:
        """Forget the oldest that wait, until another may join them."""
        waiting = self._waiting()
        while waiting and (len(waiting) >= KEPT or sum(m.data.nbytes for m in waiting) > self._shape.bytes_kept):
            self._all.remove(waiting.pop(0))


class DeviceCache:
    """The Cache of a DeviceModel (models/lm.py)."""

    def __init__(self, batch: int, memories: Memories) -> None:
        self._lengths = [0] * batch
        self._scratch: list[tuple[int, ...]] = [()] * batch  # parents of the uncommitted nodes behind each prefix
        self._lines = list(range(batch))  # row -> row of the memory, -1 once its session has ended
        self._memories = memories
        self._memory: Memory | None = None

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self._lengths)

    @property
    def nbytes(self) -> int:
        return 0 if self._memory is None else self._memory.data.nbytes

    def line(self, row: int) -> int:
        """Where `row` stands in the memory, until the next `write`."""
        return self._lines[row]

    def uncommitted(self, row: int) -> tuple[int, ...]:
        """Parents of the nodes that passes left behind the prefix of `row` since the last keep."""
        return self._scratch[row]

    def write(self, trees: dict[int, tuple[int, ...]]) -> Memory:
        """The memory, with room for the tree (its parents) behind the prefix of each row; they count as written."""
        for row, parents in trees.items():
            assert self._lines[row] >= 0, f"row {row} was released"
            self._scratch[row] = parents
        alive = [row for row, line in enumerate(self._lines) if line >= 0]
        slots = _size(1 + max(self._lengths[row] + len(self._scratch[row]) for row in alive))
        memory = self._memory
        if memory is None or slots > memory.slots or 2 * len(alive) <= memory.rows:
            memory = self._move(alive, slots)
        return memory

    def _move(self, alive: Sequence[int], slots: int) -> Memory:
        """Take the rows that are alive to another memory, and give back the one that they leave."""
        old, new = self._memory, self._memories.lend(self, len(alive), slots)
        for line, row in enumerate(alive):
            if old is not None:
                held = min(slots, old.slots)
                new.data[:, :, line, :held] = old.data[:, :, self._lines[row], :held]
            self._lines[row] = line
        if old is not None:
            old.borrower = _nobody
        self._memory = new
        return new

    def keep(self, row: int, path: Sequence[int]) -> None:
        length, scratch = self._lengths[row], len(self._scratch[row])
        assert all(a < b for a, b in pairwise(path)), f"a path runs from root to leaf: {path}"
        assert not path or 0 <= path[0] <= path[-1] < scratch, f"path {path} leaves the {scratch} nodes of row {row}"
        gap = next((i for i, node in enumerate(path) if node != i), len(path))
        if gap < len(path):
            assert self._memory is not None
            mine = self._memory.data[:, :, self._lines[row]]
            _gather(mine, [length + node for node in path[gap:]], length + gap)
        self._lengths[row] = length + len(path)
        self._scratch[row] = ()

    def release(self, row: int) -> None:
        self._lines[row] = -1
        if self._memory is not None and max(self._lines) < 0:
            self._memory.borrower = _nobody
            self._memory = None


def _gather(slots: Tensor, sources: list[int], start: int) -> None:
    """Bring some of the slots [L, 2, S, Hk, d] to start, start + 1, ..."""
    moved = slots.index_select(2, torch.tensor(sources, device=slots.device))
    slots[:, :, start : start + len(sources)] = moved


def _size(slots: int) -> int:
    """The smallest size of memory that has so many slots."""
    return max(LEAST, 1 << (slots - 1).bit_length())
