"""Compiled parts of a pass: rows times matrices that are stored as panels, one thread's share at a time.

Knows the arrays of `layout`; no attention and no order of layers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numba import carray, njit

from .calls import accumulate, dot, kept, unpack
from .kernels import GROUP, PANEL, TILE
from .layout import GATE_UP
from .machine import REORDER, exp, pointer

F = TypeVar("F", bound=Callable[..., Any])


def _digest() -> str:
    sources = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:12]


VERSION = _digest()


def compiled(function: F) -> F:
    """Machine code that is kept on disk. Numba compiles a kept function again when its own file changes, not when a
    function that it calls does: so its name there stands for all these files."""
    function.__qualname__ += f"_{VERSION}"
    machine: F = kept(lambda cache: njit(nogil=True, cache=cache, error_model="numpy", fastmath=REORDER)(function))
    return machine


@compiled
def share(n: Any, thread: Any, threads: Any) -> Any:
    """The part of range(n) that falls to a thread."""
    return n * thread // threads, n * (thread + 1) // threads


@compiled
def copy(source: Any, out: Any) -> Any:
    """One row into another; numpy's own assignment takes the compiler many times longer."""
    for j in range(out.size):
        out[j] = source[j]


@compiled
def fill(out: Any, value: Any) -> Any:
    for j in range(out.size):
        out[j] = value


@compiled
def normalise(x: Any, weight: Any, eps: Any, out: Any) -> Any:
    """RMSNorm of one row."""
    total = np.float32(0)
    for j in range(weight.size):
        total += x[j] * x[j]
    factor = np.float32(1) / np.sqrt(total / np.float32(weight.size) + eps)
    for j in range(weight.size):
        out[j] = x[j] * factor * weight[j]


@compiled
def settle(values: Any, whole: Any, shares: Any) -> Any:
    """Bring whole groups of inputs to whole numbers of 16 bits, a factor each."""
    for g in range(shares.shape[0]):
        x, into = values[g * GROUP : (g + 1) * GROUP], whole[g * GROUP : (g + 1) * GROUP]
        largest = lost = np.float32(0)
        for j in range(GROUP):
            largest = max(largest, abs(x[j]))
            lost += x[j] * np.float32(0)  # NaN where x is none or infinite: no whole number says so
        factor = largest / np.float32(32767) + lost
        inverse = np.float32(32767) / largest if largest > 0 else np.float32(0)
        total = np.int32(0)
        for j in range(GROUP):
            number = np.int32(np.floor(x[j] * inverse + np.float32(0.5)))
            into[j] = np.int16(number)
            total += number
        shares[g, 0] = factor
        shares[g, 1] = factor * np.float32(total)


@compiled
def normalise_rows(w: Any, x: Any, weight: Any, out: Any, thread: Any, threads: Any) -> Any:
    """The rows' norms, ready to be multiplied."""
    begin, end = share(x.shape[0], thread, threads)
    for m in range(begin, end):
        normalise(x[m], weight, np.float32(w.eps), out.values[m])
        if w.dot != 0:
            settle(out.values[m], out.whole[m], out.shares[m])


@compiled
def panels(w: Any, layer: Any, which: Any, x: Any, rows: Any, out: Any, first: Any, last: Any, column: Any) -> Any:
    """Add the product of `rows` rows of x with panels first..last of a matrix to `out`, from its column `column` on."""
    kind, weights, size, step, scales, scales_size, n = w.matrices[layer, which]
    x_row, whole_row, shares_row, out_row = x.values.strides[0], x.whole.strides[0], x.shares.strides[0], out.strides[0]
    for p in range(first, last):
        place, shared = weights + p * size, scales + p * scales_size
        target = out.ctypes.data + 4 * (column + (p - first) * PANEL)
        for m in range(0, rows, TILE):
            count, into = min(TILE, rows - m), target + m * out_row
            if w.dot != 0 and scales != 0:
                whole, shares = x.whole.ctypes.data + m * whole_row, x.shares.ctypes.data + m * shares_row
                dot(w.dot, kind, count, place, shared, whole, whole_row, shares, shares_row, n, into, out_row)
            else:
                values = x.values.ctypes.data + m * x_row
                accumulate(w.accumulate, kind, count, place, shared, step, values, x_row, n, into, out_row)


@compiled
def clear(out: Any, w: Any, layer: Any, which: Any, first: Any, last: Any) -> Any:
    """Set the columns of panels first..last to the bias, or to zero."""
    begin, end = first * PANEL, last * PANEL
    if w.biases[layer, which] != 0:
        bias = carray(pointer(w.biases[layer, which]), (end,), np.float32)
        for m in range(out.shape[0]):
            copy(bias[begin:end], out[m, begin:end])
    else:
        for m in range(out.shape[0]):
            fill(out[m, begin:end], np.float32(0))


@compiled
def project(w: Any, layer: Any, which: Any, x: Any, out: Any, columns: Any, thread: Any, threads: Any) -> Any:
    """out = x @ matrix + bias, this thread's part of the columns."""
    first, last = share(columns // PANEL, thread, threads)
    clear(out, w, layer, which, first, last)
    panels(w, layer, which, x, out.shape[0], out, first, last, first * PANEL)


@compiled
def project_onto(w: Any, layer: Any, which: Any, x: Any, out: Any, thread: Any, threads: Any) -> Any:
    """out += x @ matrix + bias, this thread's columns: the residual connection."""
    first, last = share(out.shape[1] // PANEL, thread, threads)
    if w.biases[layer, which] != 0:
        bias = carray(pointer(w.biases[layer, which]), (out.shape[1],), np.float32)
        for m in range(out.shape[0]):
            for j in range(first * PANEL, last * PANEL):
                out[m, j] += bias[j]
    panels(w, layer, which, x, out.shape[0], out, first, last, first * PANEL)


@compiled
def feed_forward(w: Any, layer: Any, x: Any, rows: Any, gates: Any, out: Any, thread: Any, threads: Any) -> Any:
    """out = silu(gate) * up, whose panels alternate in the matrix GATE_UP, ready to be multiplied."""
    width = out.values.shape[1]
    first, last = share(width // PANEL, thread, threads)
    for p in range(first, last):
        begin, end = p * PANEL, (p + 1) * PANEL
        if w.biases[layer, GATE_UP] != 0:
            bias = carray(pointer(w.biases[layer, GATE_UP]), (2 * width,), np.float32)
            for m in range(rows):
                copy(bias[2 * begin : 2 * end], gates[m])
        else:
            for m in range(rows):
                fill(gates[m], np.float32(0))
        panels(w, layer, GATE_UP, x, rows, gates, 2 * p, 2 * p + 2, 0)
        for m in range(rows):
            gate, up, into = gates[m, :PANEL], gates[m, PANEL:], out.values[m, begin:end]
            for j in range(PANEL):
                into[j] = gate[j] / (np.float32(1) + exp(-gate[j])) * up[j]
            if w.dot != 0:
                settle(into, out.whole[m, begin:end], out.shares[m, p : p + 1])


@compiled
def unpack_matrix(w: Any, layer: Any, which: Any, out: Any, columns: Any, thread: Any, threads: Any) -> Any:
    """This thread's columns of a matrix [n, columns] as bfloat16 at the address `out`; gates first, then the others."""
    count = columns // PANEL
    first, last = share(count, thread, threads)
    kind, weights, size, _, scales, scales_size, n = w.matrices[layer, which]
    for p in range(first, last):
        place = (p % 2) * (count // 2) + p // 2 if which == GATE_UP else p
        unpack(kind, weights + p * size, scales + p * scales_size, n, out + 2 * place * PANEL, 2 * columns)
