"""One pass over the stack as a single compiled program that every thread runs on its share.

Threads split panels of outputs, rows, or attention heads, and meet at barriers. Each number is computed by one thread
in a fixed order of operations that depends on nothing but the row's own path, so a row's result is bitwise the same
whatever other rows, drafts, sessions or threads share the pass. Knows arrays and addresses; no session and no text.
"""

from __future__ import annotations

from typing import Any

from .attend import attend, remember_rows
from .layout import DOWN, OUT, QKV
from .machine import barrier
from .products import compiled, copy, feed_forward, normalise_rows, project, project_onto, share


@compiled
def run(w: Any, k: Any, s: Any, counter: Any, thread: Any, threads: Any) -> Any:
    """This thread's share of the pass. counter: the address of an int64, 0 when the pass begins."""
    last, turn, rows = w.windows.size, 0, k.hidden.shape[0]
    qkv = s.qkv[:rows]
    for index in range(k.layers.size):
        layer = k.layers[index]
        if k.parts[index] & 1:
            normalise_rows(w, k.hidden, w.norms[2 * layer], s.normed, thread, threads)
            turn = barrier(counter, threads, turn)
            project(w, layer, QKV, s.normed, qkv, w.sizes[4], thread, threads)
            turn = barrier(counter, threads, turn)
            remember_rows(w, k, s, layer, thread, threads)
            turn = barrier(counter, threads, turn)
            attend(w, k, s, layer, thread, threads)
            turn = barrier(counter, threads, turn)
            project_onto(w, layer, OUT, s.attended, k.hidden, thread, threads)
            turn = barrier(counter, threads, turn)
        if k.parts[index] & 2:
            normalise_rows(w, k.hidden, w.norms[2 * layer + 1], s.normed, thread, threads)
            turn = barrier(counter, threads, turn)
            feed_forward(w, layer, s.normed, rows, s.gates[thread], s.inner, thread, threads)
            turn = barrier(counter, threads, turn)
            project_onto(w, layer, DOWN, s.inner, k.hidden, thread, threads)
            turn = barrier(counter, threads, turn)
        if k.taps[layer] >= 0:
            begin, end = share(rows, thread, threads)
            for m in range(begin, end):
                copy(k.hidden[m], k.tapped[k.taps[layer], m])
    if k.logits.shape[0] > 0:
        normalise_rows(w, k.hidden, w.norms[2 * last], s.normed, thread, threads)
        turn = barrier(counter, threads, turn)
        project(w, last, 0, s.normed, k.logits, w.sizes[6], thread, threads)
