"""Slot cache: preallocated keys and values, a length for each session, rollback by moving the length.

Row b owns slots 0..lengths[b]-1 of its committed prefix; the nodes of a pass are written behind it and stay uncommitted
until `keep`. Attention spans only the slots in use, so cost follows the tokens held and never a limit that was asked
for. This file is the only one that touches key and value tensors; it knows no model, mask or draft.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

GROWTH = 256  # slots: room is added in steps of at least this, so that growing copies rarely


class SlotCache:
    """Keys and values of a batch of B rows, one pair of tensors [B, H, S, D] a layer, allocated when a layer first
    writes.

    Rows keep their index for life; released rows give their memory back at the next pass (`compact`)."""

    def __init__(self, batch: int) -> None:
        self._lengths = [0] * batch
        self._scratch: list[tuple[int, ...]] = [()] * batch  # parents of the uncommitted nodes behind each prefix
        self._place = list(range(batch))  # row -> physical row of the tensors
        self._released: set[int] = set()
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self._lengths)

    @property
    def rows(self) -> list[int]:
        """Rows that still have memory, in the tensors' order."""
        return sorted((r for r, place in enumerate(self._place) if place >= 0), key=self._place.__getitem__)

    @property
    def nbytes(self) -> int:
        return sum(t.nbytes for t in (*self._keys.values(), *self._values.values()))

    def uncommitted(self, row: int) -> tuple[int, ...]:
        """Parents of the nodes that passes left behind the prefix of `row` since the last keep."""
        return self._scratch[row]

    def wrote(self, row: int, parents: tuple[int, ...]) -> None:
        """A pass left the tree `parents` behind the prefix of `row`."""
        self._scratch[row] = parents

    def keep(self, row: int, path: Sequence[int]) -> None:
        length, scratch = self._lengths[row], len(self._scratch[row])
        assert all(a < b for a, b in pairwise(path)), f"a path runs from root to leaf: {path}"
        assert not path or 0 <= path[0] <= path[-1] < scratch, f"path {path} leaves the {scratch} nodes of row {row}"
        if list(path) != list(range(len(path))):
            b, moved = self._place[row], slice(length, length + len(path))
            for layer, keys in self._keys.items():
                source = torch.tensor([length + node for node in path], device=keys.device)
                keys[b, :, moved] = keys[b].index_select(1, source)
                values = self._values[layer]
                values[b, :, moved] = values[b].index_select(1, source)
        self._lengths[row] = length + len(path)
        self._scratch[row] = ()

    def release(self, row: int) -> None:
        self._released.add(row)

    def compact(self) -> None:
        """Drop the tensors' rows of released sessions: one copy when sessions end, none otherwise."""
        if not self._released:
            return
        order = [row for row in self.rows if row not in self._released]
        kept = [self._place[row] for row in order]
        self._place = [order.index(row) if row in order else -1 for row in range(len(self._place))]
        self._released.clear()
        for tensors in (self._keys, self._values):
            for layer, tensor in tensors.items():
                tensors[layer] = tensor[kept]

    def write(self, layer: int, keys: Tensor, values: Tensor, bases: Sequence[int], span: int) -> tuple[Tensor, Tensor]:
        """Put the [B, H, T, D] keys and values of a pass behind slot bases[b] of each physical row b, and return those
        of all slots up to the longest row, [B, H, span, D] with span = max(bases) + T."""
        if layer not in self._keys or self._keys[layer].shape[2] < span:
            self._grow(self._keys, layer, keys, span)
            self._grow(self._values, layer, values, span)
        stores = self._keys[layer], self._values[layer]
        for store, new in zip(stores, (keys, values), strict=True):
            if len(bases) == 1:
                store[:, :, bases[0] : span] = new
                continue
            for b, base in enumerate(bases):
                store[b, :, base : base + new.shape[2]] = new[b]
        return stores[0][:, :, :span], stores[1][:, :, :span]

    def _grow(self, tensors: dict[int, Tensor], layer: int, new: Tensor, span: int) -> None:
        old = tensors.get(layer)
        slots = max(span, 0 if old is None else old.shape[2] * 5 // 4)
        tensors[layer] = new.new_zeros(new.shape[0], new.shape[1], -(-slots // GROWTH) * GROWTH, new.shape[3])
        if old is not None:
            tensors[layer][:, :, : old.shape[2]] = old


class PassCache:
    """One pass's view of a SlotCache in the shape that a transformers forward expects of its cache."""

    is_compileable = False

    def __init__(self, cache: SlotCache, bases: Sequence[int], width: int) -> None:
        self._cache, self._bases = cache, tuple(bases)
        self._length = max(bases)
        self._span = self._length + width

    def update(self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object) -> tuple[Tensor, Tensor]:
        return self._cache.write(layer_idx, keys, values, self._bases, self._span)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._length

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return self._length

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        return self._length + query_length, 0
