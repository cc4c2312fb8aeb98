"""A dense decoder stack as an LM, on the fast runtime.

Turns rows into the arrays of one pass. A node's logits depend on the tokens before it alone, bit for bit: not on the
draft around it, the other sessions, or the number of threads; nor on how they were read, but for prompts, which may be
read in bfloat16 (`wide`). Knows no drafter, rule, sampling or text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import tree
from ...errors import BadOption
from ...types import Prompt, Row, Scores, Sublayers
from ..lm import Cache, Capabilities, check_prompt
from . import stack
from .cache import DenseCache
from .cpu import Packed
from .kernels import PANEL
from .layout import Work
from .weights import STORED, padded

ROWS = 512  # in one pass over the weights, unless a single session brings more


class DenseModel:
    """LM over the weights of a loaded transformers model, which is not needed afterwards.

    dtype: what the matrices are stored in. None keeps weights that were quantised in groups of 32 as they are, exactly,
           and takes float16 for others. Arithmetic is float32 whatever they are.
    vocab: how many ids may be drafted or emitted; None takes the width of the logits.
    Raises Incompatible for a model that the fast runtime does not fit, BadOption for another dtype."""

    capabilities = Capabilities()

    def __init__(self, model: Any, vocab: int | None = None, dtype: torch.dtype | None = None) -> None:
        parts = stack.read(model)
        assert parts.embedding.device.type == "cpu", "a model on another device runs as a DeviceModel"
        if dtype is not None and dtype not in STORED:
            names = ", ".join(str(known).removeprefix("torch.") for known in STORED)
            raise BadOption(f"the fast runtime cannot store weights as {dtype}; choose one of: {names}")
        self._width, self._logits = parts.width, len(parts.head)
        self._frequencies, self._angle_scale = parts.frequencies, parts.attention_scale
        self._packed = Packed(parts, dtype)
        self.vocab = min(self._logits, vocab or self._logits)
        self.context = parts.context
        self.n_layers = len(parts.layers)
        stored = "+".join(self._packed.stored)
        self.signature = f"dense {parts.name} {stored} {self.n_layers}x{parts.width} V{self._logits}"
        self._cos, self._sin = self._angles(0)
        self._everything = _parts(range(self.n_layers))
        self.score(self.open([Prompt((0,))]), [Row.chain(0, (0,))])  # the first pass waits for the compiler

    @property
    def nbytes(self) -> int:
        """What a pass reads of the weights."""
        return self._packed.nbytes

    def open(self, prompts: Sequence[Prompt]) -> DenseCache:
        for prompt in prompts:
            check_prompt(prompt, self.vocab, self.context)
        return DenseCache(len(prompts), self.n_layers * self._packed.groups, self._packed.head_width)

    def score(
        self,
        cache: Cache,
        rows: Sequence[Row],
        *,
        taps: Sequence[int] = (),
        layers: Sequence[int] | Sublayers | None = None,
        logits: bool = True,
    ) -> list[Scores]:
        assert isinstance(cache, DenseCache), "a cache that `open` of this runtime made"
        assert len({row.index for row in rows}) == len(rows), "a pass takes each row of the cache once"
        chosen = self._everything if layers is None else _parts(layers)
        out: list[Scores] = []
        for group in _groups(rows) if logits else [[row] for row in rows]:
            out += self._pass(cache, group, tuple(taps), chosen, logits)
        return out

    def _pass(
        self, cache: DenseCache, rows: Sequence[Row], taps: tuple[int, ...], chosen: tuple[Any, Any], logits: bool
    ) -> list[Scores]:
        layers, parts = chosen
        sizes = [len(row.tokens) for row in rows]
        total = sum(sizes)
        places = _Places(cache, rows)
        if places.last >= len(self._cos):
            self._cos, self._sin = self._angles(places.last + 1)
        # Lines a multiple of 4096 bytes apart would get into each other's way in the first cache.
        out = torch.empty(total if logits else 0, padded(self._logits) + PANEL)
        tapped = torch.empty(len(taps), total, self._width)
        where = np.full(self.n_layers, -1, np.int64)
        where[list(taps)] = np.arange(len(taps))
        hidden = self._enter(rows, total)
        self._packed.run(
            Work(
                hidden.numpy(), places.positions, places.slots, places.runs, places.tails, places.path, places.sessions,
                places.room, self._cos, self._sin, layers, parts, where, tapped.numpy(), out.numpy(),
            ),
            None if logits or len(rows) > 1 or rows[0].start or not places.is_chain else places.memory,
        )  # fmt: skip
        ends = np.cumsum(sizes).tolist()
        spans = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        visible = out[:, : self.vocab]
        return [Scores(visible[span], {layer: tapped[i, span] for i, layer in enumerate(taps)}) for span in spans]

    def _enter(self, rows: Sequence[Row], total: int) -> Tensor:
        """[M, Dp] states with which the rows enter the first layer."""
        hidden = torch.zeros(total, padded(self._width))
        resumed = [row.hidden for row in rows if row.hidden is not None]
        assert len(resumed) in (0, len(rows)), "either all rows of a pass resume from hidden states or none does"
        if resumed:
            hidden[:, : self._width] = torch.cat(resumed)
            return hidden
        hidden[:, : self._width] = self._packed.embed(torch.tensor([token for row in rows for token in row.tokens]))
        first = 0
        for row in rows:
            for node, vector in row.embeds.items():
                hidden[first + node, : self._width] = vector
            first += len(row.tokens)
        return hidden

    def _angles(self, positions: int) -> tuple[Any, Any]:
        """Cosines and sines [P, d / 2] for P >= positions, as upstream computes them."""
        count = 1 << max(positions - 1, 255).bit_length()
        angles = torch.arange(count).float()[:, None] * self._frequencies
        return (angles.cos() * self._angle_scale).numpy(), (angles.sin() * self._angle_scale).numpy()


class _Places:
    """Where the rows of a pass stand: the arrays of `Work` that describe positions, slots, paths and sessions."""

    def __init__(self, cache: DenseCache, rows: Sequence[Row]) -> None:
        positions: list[int] = []
        slots: list[int] = []
        runs: list[int] = []
        tails, path = [0], list[int]()
        sessions, room = [], []
        lengths = cache.lengths
        self.is_chain = True
        for row in rows:
            earlier, length = cache.uncommitted(row.index), lengths[row.index]
            assert row.start <= len(earlier), f"row {row.index} holds {len(earlier)} uncommitted nodes, not {row.start}"
            parents = (*earlier[: row.start], *row.parents)
            memory = cache.write(row.index, parents)
            sessions.append((len(slots), length, memory.keys.ctypes.data, memory.values.ctypes.data))
            room.append(memory.room)
            self.memory = torch.from_numpy(memory.keys), torch.from_numpy(memory.values)
            nodes = range(row.start, len(parents))
            slots += [length + node for node in nodes]
            if tree.is_chain(parents):
                positions += [length + node for node in nodes]
                runs += [node + 1 for node in nodes]
                tails += [len(path)] * len(nodes)
                continue
            self.is_chain = False
            for node in nodes:
                way = tree.path_to(parents, node)
                run = next((i for i, step in enumerate(way) if step != i), len(way))
                positions.append(length + len(way) - 1)
                runs.append(run)
                path += [length + step for step in way[run:]]
                tails.append(len(path))
        self.last = max(positions)
        self.positions, self.slots, self.runs, self.tails, self.path, self.sessions, self.room = (
            np.array(values, np.int64) for values in (positions, slots, runs, tails, path, sessions, room)
        )


def _parts(layers: Sequence[int] | Sublayers) -> tuple[Any, Any]:
    """The layers to run and what of each, as Work has them."""
    some = Sublayers.of(layers)
    parts = [(i in some.attention) + 2 * (i in some.feed_forward) for i in some.layers]
    return np.array(some.layers, np.int64), np.array(parts, np.int64)


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows in order, in groups of at most ROWS nodes or one row."""
    groups: list[list[Row]] = []
    held = ROWS
    for row in rows:
        if held + len(row.tokens) > ROWS:
            groups.append([])
            held = 0
        groups[-1].append(row)
        held += len(row.tokens)
    return groups
