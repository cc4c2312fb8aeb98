"""Compiled parts of a pass: rotary positions, keys and values, and attention along each row's own path.

A path's scores are brought side by side as if it were committed, and summed in its order, so that a node gets the same
bits in any tree. Knows the arrays of `layout`; no matrices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import carray

from .calls import accumulate
from .kernels import F32, GROUP, PANEL, TILE
from .machine import exp, pointer
from .products import compiled, copy, fill, normalise, settle, share


@compiled
def rotate(x: Any, cos: Any, sin: Any, factor: Any, out: Any) -> Any:
    """Rotary position embedding of one head, halves paired, times a factor."""
    half = cos.size
    a, b, into_a, into_b = x[:half], x[half:], out[:half], out[half:]
    for j in range(half):
        left, right = a[j], b[j]
        into_a[j] = (left * cos[j] - right * sin[j]) * factor
        into_b[j] = (right * cos[j] + left * sin[j]) * factor


@compiled
def turn(w: Any, k: Any, s: Any, layer: Any, h: Any, m: Any) -> Any:
    """Normalise and rotate query or key head h of a row."""
    d = w.sizes[3]
    x = s.qkv[m, h * d : (h + 1) * d]
    if w.head_norms.shape[0] > 0:
        normalise(x, w.head_norms[2 * layer + (h >= w.sizes[1])], w.eps, x)
    factor = np.float32(w.scale) if h < w.sizes[1] else np.float32(1)
    rotate(x, k.cos[k.positions[m]], k.sin[k.positions[m]], factor, x)


@compiled
def store(w: Any, k: Any, s: Any, layer: Any, session: Any, h: Any, first: Any, last: Any) -> Any:
    """Write the keys and values of head h, rows first..last of a session, behind its prefix."""
    _, heads, groups, d, _, _, _ = w.sizes
    dp = (d + PANEL - 1) // PANEL * PANEL
    room, line = k.room[session], layer * groups + h - heads
    keys = carray(pointer(k.sessions[session, 2]), (w.windows.size * groups, room // PANEL, d, PANEL), np.float32)
    values = carray(pointer(k.sessions[session, 3]), (w.windows.size * groups, room, dp), np.float32)
    begin = (h + groups) * d
    for m in range(first, last):
        copy(s.qkv[m, begin : begin + d], values[line, k.slots[m], :d])
    for j in range(d):
        for m in range(first, last):
            slot = k.slots[m]
            keys[line, slot // PANEL, j, slot % PANEL] = s.qkv[m, h * d + j]


@compiled
def remember_rows(w: Any, k: Any, s: Any, layer: Any, thread: Any, threads: Any) -> Any:
    """This thread's heads of all rows: keys of neighbouring rows share cache lines, which threads must not."""
    begin, end = share(w.sizes[1] + w.sizes[2], thread, threads)
    batch, rows = k.sessions.shape[0], k.hidden.shape[0]
    for h in range(begin, end):
        for m in range(rows):
            turn(w, k, s, layer, h, m)
        if h < w.sizes[1]:
            continue
        for session in range(batch):
            last = k.sessions[session + 1, 0] if session + 1 < batch else rows
            for m in range(k.sessions[session, 0], last, PANEL):  # so many rows at a time stay in the first cache
                store(w, k, s, layer, session, h, m, min(m + PANEL, last))


@compiled
def soften(scores: Any) -> Any:
    """Replace scores by exp(score - largest) and return their sum."""
    largest = scores[0]
    for j in range(scores.size):
        largest = max(largest, scores[j])
    total = np.float32(0)
    for j in range(scores.size):
        e = exp(scores[j] - largest)
        scores[j] = e
        total += e
    return total


@compiled
def attend_tile(w: Any, k: Any, s: Any, layer: Any, session: Any, head: Any, begin: Any, end: Any, thread: Any) -> Any:
    """Attention of units begin..end (row by row, and within a row query head by query head) of one key head."""
    _, heads, groups, d, _, _, _ = w.sizes
    per = heads // groups
    dp = (d + PANEL - 1) // PANEL * PANEL
    first, length, room = k.sessions[session, 0], k.sessions[session, 1], k.room[session]
    keys = k.sessions[session, 2] + 4 * (layer * groups + head) * room * d
    values = k.sessions[session, 3] + 4 * (layer * groups + head) * room * dp
    queries, scores, out = s.queries[thread], s.scores[thread], s.values[thread]
    window, count, common, low, top = w.windows[layer], end - begin, room, room, 0
    for u in range(count):
        m = first + (begin + u) // per
        column = (head * per + (begin + u) % per) * d
        copy(s.qkv[m, column : column + d], queries[u])
        common = min(common, k.runs[m])
        low = min(low, max(0, k.positions[m] - window + 1) if window > 0 else 0)
        top = max(top, k.slots[m] + 1)
    low = min(low, length + common)  # a branch may be longer than the window
    for block in range(low // PANEL, (top + PANEL - 1) // PANEL):
        place = block * PANEL
        for u in range(count):
            fill(scores[u, place : place + PANEL], np.float32(0))
        accumulate(
            w.accumulate, F32, count, keys + 4 * place * d, 0, 4 * PANEL, queries.ctypes.data, queries.strides[0], d,
            scores.ctypes.data + 4 * place, scores.strides[0],
        )  # fmt: skip
    for u in range(count):
        fill(out[u], np.float32(0))
    for u in range(count):  # a path's scores side by side, as if it were committed
        m, row = first + (begin + u) // per, scores[u]
        tail, n = k.tails[m], length + k.runs[m]
        for j in range(k.tails[m + 1] - tail):
            row[n + j] = row[k.path[tail + j]]
        n += k.tails[m + 1] - tail
        near = max(0, k.positions[m] - window + 1) if window > 0 else 0
        s.totals[thread, u] = soften(row[near:n])
        fill(row[low:near], np.float32(0))
    for c in range(0, dp, PANEL):
        accumulate(
            w.accumulate, F32, count, values + 4 * (low * dp + c), 0, 4 * dp, scores.ctypes.data + 4 * low,
            scores.strides[0], length + common - low, out.ctypes.data + 4 * c, out.strides[0],
        )  # fmt: skip
        for u in range(count):
            m = first + (begin + u) // per
            weights = scores.ctypes.data + u * scores.strides[0]
            into = out.ctypes.data + u * out.strides[0] + 4 * c
            n, rest = length + common, k.runs[m] - common
            accumulate(w.accumulate, F32, 1, values + 4 * (n * dp + c), 0, 4 * dp, weights + 4 * n, 0, rest, into, 0)
            n = length + k.runs[m]
            for j in range(k.tails[m + 1] - k.tails[m]):
                slot = k.path[k.tails[m] + j]
                accumulate(
                    w.accumulate, F32, 1, values + 4 * (slot * dp + c), 0, 4 * dp, weights + 4 * (n + j), 0, 1, into, 0
                )
    for u in range(count):
        m = first + (begin + u) // per
        column = (head * per + (begin + u) % per) * d
        factor = np.float32(1) / s.totals[thread, u]
        into = s.attended.values[m, column : column + d]
        for j in range(d):
            into[j] = out[u, j] * factor
        if w.dot != 0:
            shares = s.attended.shares[m, column // GROUP : (column + d) // GROUP]
            settle(into, s.attended.whole[m, column : column + d], shares)


@compiled
def attend(w: Any, k: Any, s: Any, layer: Any, thread: Any, threads: Any) -> Any:
    """Attention of this thread's share of all (session, key head, row, query head)."""
    _, heads, groups, _, _, _, _ = w.sizes
    per, rows, batch = heads // groups, k.hidden.shape[0], k.sessions.shape[0]
    begin, end = share(rows * heads, thread, threads)
    place = 0  # units before the current session and head
    for session in range(batch):
        last = k.sessions[session + 1, 0] if session + 1 < batch else rows
        units = (last - k.sessions[session, 0]) * per
        for head in range(groups):
            at = max(begin - place, 0)
            while at < min(units, end - place):
                stop = min(at + TILE, min(units, end - place))
                attend_tile(w, k, s, layer, session, head, at, stop, thread)
                at = stop
            place += units
