"""The arrays of one pass and of the model, by name, as compiled code takes them. Pure data."""

from __future__ import annotations

from typing import Any, NamedTuple

QKV, OUT, GATE_UP, DOWN = range(4)  # the matrices of a layer, each one stored as panels


class Weights(NamedTuple):
    """The model. Matrices and biases are given by address; the rest are float32 arrays.

    accumulate: the address of the kernel for rows of floats; dot: of that for rows of whole numbers, 0 without it.
    matrices: [L + 1, 4, 7] of QKV, OUT, GATE_UP, DOWN, and in the last line the head: how it is stored, the address of
              its panels, bytes of a panel and of a unit of inputs, address of its scales, bytes of a panel's, inputs.
    biases:   [L + 1, 4] addresses of rows to start from, 0 where there are none.
    norms:    [2 * L + 1, D] before attention, before the feed-forward part, ..., and the last.
    head_norms: [2 * L, d] of queries and keys; empty where there are none.
    windows:  [L] slots that a layer's attention reaches back, 0 for all.
    sizes:    D, query heads, key heads, head width d, padded columns of Q|K|V, of the inner layer, of the logits.
    """

    accumulate: int
    dot: int
    matrices: Any
    biases: Any
    norms: Any
    head_norms: Any
    windows: Any
    sizes: tuple[int, int, int, int, int, int, int]
    eps: float
    scale: float


class Work(NamedTuple):
    """The rows of one pass, session by session.

    hidden:    [M, Dp] states that enter the first layer; overwritten with those that leave the last.
    positions: [M]; slots: [M] where each row's key and value go.
    runs:      [M] how many slots behind the prefix lead a row's path without a gap; tails: [M + 1] where its other
               slots begin in `path`.
    sessions:  [B, 4] first row, committed length, addresses of the keys [L * Hk, blocks, d, PANEL] and of the values
               [L * Hk, slots, dp]; slots: [B] how many slots each holds.
    cos, sin:  [positions, d / 2].
    layers:    the layers to run; parts: what of each of them, 1 attention, 2 the feed-forward part, 3 both.
    taps:      [L] where each layer's output goes in `tapped`, -1 for nowhere.
    """

    hidden: Any
    positions: Any
    slots: Any
    runs: Any
    tails: Any
    path: Any
    sessions: Any
    room: Any
    cos: Any
    sin: Any
    layers: Any
    parts: Any
    taps: Any
    tapped: Any
    logits: Any


class Rows(NamedTuple):
    """What a matrix multiplies: values [M, n] float32; with the kernel for whole numbers also whole [M, n] int16 and
    shares [M, n / GROUP, 2]: the factor of a group of inputs, and their sum."""

    values: Any
    whole: Any
    shares: Any


class Scratch(NamedTuple):
    """Memory of a pass, reused by the next: [M, ...] activations, and what belongs to one thread ([T, ...])."""

    normed: Rows
    qkv: Any
    attended: Rows
    inner: Rows
    queries: Any
    scores: Any
    values: Any
    totals: Any
    gates: Any
