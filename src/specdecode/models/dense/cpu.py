"""The fast pass on a CPU: a Stack packed for `program`, its scratch memory, and the threads that run it.

Knows arrays and threads; no rows, drafts or sessions.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import program, wide
from .attend import remember_rows
from .calls import ACCUMULATE_ADDRESS, DOT_ADDRESS
from .kernels import GROUP, PANEL, TILE
from .layout import Rows, Scratch, Weights, Work
from .products import normalise_rows, unpack_matrix
from .stack import Layer, Stack
from .weights import NAMES, Panels, alternate, pack, padded, row

Counter = npt.NDArray[np.int64]
LINE = 16  # numbers of 64 bits: two cache lines
OPEN = 1 << 60  # more threads than any barrier waits for
_one_at_a_time = threading.Lock()  # passes share the threads, and two would take turns at every barrier


class Packed:
    """A model's weights in one precision, and the passes over them.

    dtype: of the matrices, see `weights.pack`. Norms, biases and all arithmetic are float32."""

    def __init__(self, stack: Stack, dtype: torch.dtype | None) -> None:
        self.width, self.heads, self.groups, self.head_width = stack.width, stack.heads, stack.groups, stack.head_width
        self.head = pack(stack.head, dtype)
        tied = stack.embedding.data_ptr() == stack.head.data_ptr()
        self._embedding = None if tied else pack(stack.embedding, dtype)
        layers = [_matrices(layer, dtype) for layer in stack.layers]
        biases = [_biases(layer) for layer in stack.layers]
        self._kept = (layers, biases)  # the program knows them by address only
        matrices = [*(panels for line in layers for panels in line), self.head]
        self.nbytes = sum(panels.nbytes for panels in matrices)
        self.stored = [NAMES[kind] for kind in sorted({panels.kind for panels in matrices})]
        lines = [*layers, [self.head] * 4]
        starts: list[list[Tensor | None]] = [*biases, [None] * 4]
        norms = [t for layer in stack.layers for t in (layer.attention_norm, layer.feed_norm)]
        head_norms = [t for layer in stack.layers for t in layer.head_norms or ()]
        whole = stack.head_width % GROUP == 0 and any(panels.scales is not None for panels in matrices)
        self._weights = Weights(
            accumulate=ACCUMULATE_ADDRESS,
            dot=DOT_ADDRESS if whole else 0,
            matrices=np.array([[panels.address() for panels in line] for line in lines], np.int64),
            biases=np.array([[0 if b is None else b.data_ptr() for b in line] for line in starts], np.int64),
            norms=torch.stack([*norms, stack.last_norm]).float().numpy(),
            head_norms=torch.stack(head_norms).float().numpy() if head_norms else np.zeros((0, 1), np.float32),
            windows=np.array([layer.window for layer in stack.layers], np.int64),
            sizes=(
                stack.width, stack.heads, stack.groups, stack.head_width,
                padded((stack.heads + 2 * stack.groups) * stack.head_width),
                padded(len(stack.layers[0].gate)), padded(len(stack.head)),
            ),
            eps=float(stack.eps),
            scale=stack.head_width**-0.5,
        )  # fmt: skip
        self._scratch = _scratch(self._weights.sizes, 0, 0, 1)
        largest = max(panels.inputs * len(panels.weights) * PANEL for panels in layers[0])
        self._unpacked = torch.empty(largest, dtype=torch.bfloat16)
        self._rough = dtype != torch.float32 and wide.pays()

    def embed(self, tokens: Tensor) -> Tensor:
        """[M, D] float32 input embeddings of [M] ids."""
        return (self._embedding or self.head).rows(tokens)[:, : self.width]

    def run(self, work: Work, memory: tuple[Tensor, Tensor] | None = None) -> None:
        """Run the pass that `work` describes, on as many threads as torch would use.

        memory: the keys and values of the only session of a pass that reads a prompt and wants no logits; such a pass
        may compute in bfloat16 where that is faster, unless the weights are float32."""
        with _one_at_a_time:
            self._reserve(len(work.positions), int(work.room.max()))
            if memory is not None and len(work.positions) >= wide.LEAST and self._rough:
                qkv = torch.from_numpy(self._scratch.qkv)[: len(work.positions)]
                normalise, remember = partial(self._normalise, work), partial(self._remember, work)
                wide.run(self._weights, work, self._kept[1], wide.Tools(qkv, memory, self._matrix, normalise, remember))
            else:
                counter = np.zeros(2 * LINE, np.int64)  # its cache line is its own
                self._together(program.run, work, self._scratch, counter[LINE:].ctypes.data, counter=counter)

    def _remember(self, work: Work, layer: int) -> None:
        self._together(remember_rows, work, self._scratch, layer)

    def _normalise(self, work: Work, norm: int) -> Tensor:
        self._together(normalise_rows, work.hidden, self._weights.norms[norm], self._scratch.normed)
        return torch.from_numpy(self._scratch.normed.values)[: len(work.hidden), : self.width].bfloat16()

    def _matrix(self, layer: int, which: int) -> Tensor:
        """[in, out] bfloat16, in memory that the next call reuses."""
        panels = self._kept[0][layer][which]
        shape = panels.inputs, len(panels.weights) * PANEL
        out = self._unpacked[: shape[0] * shape[1]].view(shape)
        self._together(unpack_matrix, layer, which, out.data_ptr(), shape[1])
        return out

    def _together(self, function: Callable[..., None], *share: object, counter: Counter | None = None) -> None:
        """Call `function` for every thread's share. counter: of the barriers at which they meet."""
        threads = torch.get_num_threads()
        others: list[Future[None]] = []
        try:
            for thread in range(1, threads):
                others.append(_pool(threads, os.getpid()).submit(function, self._weights, *share, thread, threads))
            function(self._weights, *share, 0, threads)
            for other in others:
                other.result()
        except BaseException:  # an interrupt: the others would wait for this share for ever
            if counter is not None:
                counter[LINE] = OPEN
            if threads > 1:
                _pool(threads, os.getpid()).shutdown()  # waits for every share, handed out in full or not
                _pool.cache_clear()
            raise

    def _reserve(self, rows: int, slots: int) -> None:
        """Scratch memory for so many rows and slots, and for all threads."""
        held = len(self._scratch.qkv), self._scratch.scores.shape[2], len(self._scratch.scores)
        wanted = rows, slots, torch.get_num_threads()
        if any(want > have for want, have in zip(wanted, held, strict=True)):
            self._scratch = _scratch(self._weights.sizes, *map(max, wanted, held))


@cache
def _pool(threads: int, process: int) -> ThreadPoolExecutor:
    """process: a fork inherits the pool but not its threads, so each process has its own."""
    return ThreadPoolExecutor(threads - 1, thread_name_prefix="specdecode")


def _matrices(layer: Layer, dtype: torch.dtype | None) -> list[Panels]:
    whole = [
        torch.cat([layer.query, layer.key, layer.value]),
        layer.out,
        alternate(layer.gate, layer.up),
        _widen(layer.down, padded(len(layer.gate))),
    ]
    return [pack(matrix, dtype) for matrix in whole]


def _widen(matrix: Tensor, inputs: int) -> Tensor:
    return torch.nn.functional.pad(matrix, (0, inputs - matrix.shape[1]))


def _biases(layer: Layer) -> list[Tensor | None]:
    query, key, value, out = layer.biases
    gate, up, down = layer.feed_biases
    sizes = [len(m) for m in (layer.query, layer.key, layer.value)]
    gates = row([gate], [len(layer.gate)]), row([up], [len(layer.up)])
    both = None if gates[0] is None or gates[1] is None else alternate(gates[0], gates[1])
    return [row([query, key, value], sizes), row([out], [len(layer.out)]), both, row([down], [len(layer.down)])]


def _scratch(sizes: Sequence[int], rows: int, slots: int, threads: int) -> Scratch:
    width, heads, _, d, qkv, inner, _ = sizes
    rows, slots = 1 << max(rows - 1, 0).bit_length(), max(slots, PANEL)

    def floats(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
        return np.zeros(shape, np.float32)

    def operand(n: int) -> Rows:
        return Rows(floats(rows, n), np.zeros((rows, n), np.int16), floats(rows, n // GROUP, 2))

    return Scratch(
        normed=operand(padded(width)),
        qkv=floats(rows, qkv),
        attended=operand(padded(heads * d)),
        inner=operand(inner),
        queries=floats(threads, TILE, d),
        scores=floats(threads, TILE, slots),
        values=floats(threads, TILE, padded(d)),
        totals=floats(threads, TILE),
        gates=floats(threads, rows, 2 * PANEL),
    )
