"""A dense decoder stack as an LM on a GPU: passes of a few fixed shapes, recorded once and replayed.

Pads the rows of a pass to one of a few widths, so that decoding meets the same shapes again and again. A pass that
wants more than logits, or reads a prompt, runs the same operators one by one, and so does any on a device without CUDA.
Knows no drafter, rule, sampling or text.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...tree import ancestor_mask, depths
from ...types import Prompt, Row, Scores, Sublayers
from ..lm import Cache, Capabilities, check_prompt
from . import stack
from .device_cache import DeviceCache, Memories, Memory, Shape
from .device_pass import DeviceStack, Inputs, Recorder

WIDEST = 64  # nodes a row in a recorded pass; wider ones come in multiples of it

_one_at_a_time = threading.Lock()  # recorded passes share scratch memory, and a process records one at a time


class DeviceModel:
    """LM over the weights of a loaded transformers model, which is not needed afterwards; on its device, in its dtype.

    vocab: how many ids may be drafted or emitted; None takes the width of the logits.
    Raises Incompatible for a model that the fast runtime does not fit."""

    capabilities = Capabilities()

    def __init__(self, model: Any, vocab: int | None = None) -> None:
        parts = stack.read(model)
        self.device = parts.embedding.device
        width = len(parts.head)
        self.vocab = min(width, vocab or width)
        self.context = parts.context
        self.n_layers = len(parts.layers)
        dtype = parts.embedding.dtype
        kind, sizes = str(dtype).removeprefix("torch."), f"{self.n_layers}x{parts.width} V{width}"
        self.signature = f"dense {parts.name} {kind} {sizes} on {self.device}"
        self._stack = DeviceStack(parts)
        self._everything = Sublayers.of(range(self.n_layers))
        shape = Shape(self.n_layers, parts.groups, parts.head_width, dtype, self.device, self._stack.nbytes)
        self._memories = Memories(shape)
        on_cuda = self.device.type == "cuda"
        self._recorder = Recorder(self._stack, self._everything, self.device) if on_cuda else None

    @property
    def nbytes(self) -> int:
        """What a pass reads of the weights."""
        return self._stack.nbytes

    def open(self, prompts: Sequence[Prompt]) -> DeviceCache:
        for prompt in prompts:
            check_prompt(prompt, self.vocab, self.context)
        return DeviceCache(len(prompts), self._memories)

    @torch.inference_mode(False)  # what the cache holds must outlive a caller's inference mode
    @torch.no_grad()
    def score(
        self,
        cache: Cache,
        rows: Sequence[Row],
        *,
        taps: Sequence[int] = (),
        layers: Sequence[int] | Sublayers | None = None,
        logits: bool = True,
    ) -> list[Scores]:
        assert isinstance(cache, DeviceCache), "a cache that `open` of this runtime made"
        batch = _Batch(cache, rows, self._stack.windows)
        plain = logits and not taps and layers is None and not any(row.embeds or row.hidden is not None for row in rows)
        tapped: dict[int, Tensor] = {}
        if plain and self._recorder is not None and batch.width <= WIDEST:
            out = self._replay(self._recorder, batch)
        else:
            inputs = batch.inputs.to(self.device)
            states = self._enter(batch, rows, inputs)
            chosen = self._everything if layers is None else Sublayers.of(layers)
            states, tapped = self._stack.run(inputs, states, batch.memory.data, chosen, taps)
            out = self._stack.logits(states) if logits else states.new_empty(*states.shape[:2], 0)
        spans = [(cache.line(row.index), len(row.tokens)) for row in rows]
        return [
            Scores(out[line, :m, : self.vocab], {layer: states[line, :m] for layer, states in tapped.items()})
            for line, m in spans
        ]

    def _replay(self, recorder: Recorder, batch: _Batch) -> Tensor:
        """[B, T, V] logits of a pass that is recorded when its shape first comes."""
        recorded = batch.memory.recorded
        with _one_at_a_time:
            if batch.width not in recorded:
                recorded[batch.width] = recorder.record(batch.inputs.to(self.device), batch.memory.data)
            return recorded[batch.width].replay(batch.inputs)

    def _enter(self, batch: _Batch, rows: Sequence[Row], inputs: Inputs) -> Tensor:
        """[B, T, D] states with which the rows enter the first layer."""
        states = self._stack.embed(inputs.numbers[0])
        resumed = [row for row in rows if row.hidden is not None]
        assert len(resumed) in (0, len(rows)), "either all rows of a pass resume from hidden states or none does"
        for row in rows:
            line = batch.lines[row.index]
            if row.hidden is not None:
                states[line, : len(row.tokens)] = row.hidden.to(states)
            for node, vector in row.embeds.items():
                states[line, node] = vector.to(states)
        return states


class _Batch:
    """The rows of one pass, padded to [B, T]; padding reads and writes the last slot of its row alone.

    inputs: in main memory. lines: row index -> line of the batch."""

    inputs: Inputs
    lines: dict[int, int]
    memory: Memory

    def __init__(self, cache: DeviceCache, rows: Sequence[Row], windows: Sequence[int]) -> None:
        assert len({row.index for row in rows}) == len(rows), "a pass takes each row of the cache once"
        trees = {row.index: _whole_tree(cache, row) for row in rows}
        self.memory = cache.write(trees)
        self.lines = {row.index: cache.line(row.index) for row in rows}
        self.width = padded_width(max(len(row.tokens) for row in rows))
        size, slots = self.memory.rows, self.memory.slots
        numbers = torch.zeros(3, size, self.width, dtype=torch.long)
        firsts = torch.arange(size) * slots
        numbers[2] = (firsts + slots - 1)[:, None]
        seen = torch.zeros(len(windows), size, self.width, slots, dtype=torch.bool)
        seen[..., -1] = True
        for row in rows:
            line, length, parents = self.lines[row.index], cache.lengths[row.index], trees[row.index]
            m, stop = len(row.tokens), length + len(parents)
            positions = torch.cat([torch.arange(length), torch.tensor(depths(parents)) + length])
            here = positions[stop - m :]
            numbers[:, line, :m] = torch.stack(
                [torch.tensor(row.tokens), here, firsts[line] + torch.arange(stop - m, stop)]
            )
            seen[:, line, :m, :length] = True
            seen[:, line, :m, length:stop] = ancestor_mask(parents)[row.start :]
            seen[:, line, :m, -1] = False
            for index, window in enumerate(windows):
                if window:
                    seen[index, line, :m, :stop] &= here[:, None] - positions < window
        self.inputs = Inputs(numbers, seen)


def _whole_tree(cache: DeviceCache, row: Row) -> tuple[int, ...]:
    """Parents of a row's uncommitted nodes, the earlier ones first."""
    earlier = cache.uncommitted(row.index)
    assert row.start <= len(earlier), f"row {row.index} holds {len(earlier)} uncommitted nodes, not {row.start}"
    return (*earlier[: row.start], *row.parents)


def padded_width(nodes: int) -> int:
    """The nodes a row of a pass that has room for `nodes`: a power of two, or a multiple of WIDEST."""
    return 1 << (nodes - 1).bit_length() if nodes <= WIDEST else -(-nodes // WIDEST) * WIDEST
