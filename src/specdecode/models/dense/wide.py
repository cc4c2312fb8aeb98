"""Reading a prompt: the pass over many tokens of one session, whose cost is arithmetic rather than memory.

Matrix products and attention are torch's, in bfloat16 as upstream's own bfloat16 models compute them; the residual
stream, norms and rotary positions stay float32. It fills the cache and gives no logits. Knows the arrays of a pass; no
rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from .kernels import PANEL
from .layout import DOWN, GATE_UP, OUT, QKV, Weights, Work

LEAST = 64  # tokens; fewer are as fast, and exact, in the pass that decodes


@dataclass(frozen=True, eq=False)
class Tools:
    """What the compiled runtime lends to this pass.

    qkv:       [M, columns] float32 scratch; memory: the session's keys and values.
    matrix:    [in, out] of a layer as bfloat16, valid until the next call.
    normalise: [M, D] bfloat16, the states under one of the norms.
    remember:  rotates the queries and keys of a layer in `qkv`, and writes its keys and values."""

    qkv: Tensor
    memory: tuple[Tensor, Tensor]
    matrix: Callable[[int, int], Tensor]
    normalise: Callable[[int], Tensor]
    remember: Callable[[int], None]


@cache
def pays() -> bool:
    """Whether this processor multiplies bfloat16 faster than float32."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def run(w: Weights, work: Work, biases: Sequence[Sequence[Tensor | None]], tools: Tools) -> None:
    """Run `work`, the tokens of a single session one after another, layer by layer.

    biases: [L][4] the rows that products start from."""

    def product(x: Tensor, layer: int, which: int) -> Tensor:
        bias = biases[layer][which]
        if bias is not None and which == GATE_UP:  # as the matrix is unpacked: gates first
            bias = bias.view(-1, 2, PANEL).transpose(0, 1).flatten()
        out = x @ tools.matrix(layer, which)[: x.shape[1]]  # packing may have added inputs
        return out if bias is None else out + bias.bfloat16()

    hidden, width = torch.from_numpy(work.hidden), w.sizes[0]
    masks: dict[int, Tensor | None] = {}
    with torch.no_grad():
        for layer, parts in zip(work.layers.tolist(), work.parts.tolist(), strict=True):
            if parts & 1:
                tools.qkv.copy_(product(tools.normalise(2 * layer), layer, QKV))
                tools.remember(layer)
                window = int(w.windows[layer])
                if window not in masks:
                    masks[window] = _mask(work, window)
                hidden += product(_attend(w, work, tools, layer, masks[window]), layer, OUT)
            if parts & 2:
                gate, up = product(tools.normalise(2 * layer + 1), layer, GATE_UP).chunk(2, 1)
                hidden += product(silu(gate) * up, layer, DOWN)
            if work.taps[layer] >= 0:
                torch.from_numpy(work.tapped)[int(work.taps[layer])] = hidden[:, :width]


def _mask(work: Work, window: int) -> Tensor | None:
    """[M, S] bool: which slots each token sees; None where a plain causal mask says it."""
    count, length = len(work.positions), int(work.sessions[0, 1])
    places = torch.arange(length + count)
    here = places[length:, None]
    seen = places <= here
    if window:
        seen &= places > here - window
    return None if length == 0 and not window else seen


def _attend(w: Weights, work: Work, tools: Tools, layer: int, mask: Tensor | None) -> Tensor:
    """[M, heads * d] attention of the new tokens over the prefix in memory and over themselves."""
    _, heads, groups, d, _, _, _ = w.sizes
    length = int(work.sessions[0, 1])
    parts = tools.qkv[:, : (heads + 2 * groups) * d].bfloat16().view(len(tools.qkv), -1, d).transpose(0, 1)
    query, key, value = parts[:heads], parts[heads : heads + groups], parts[heads + groups :]
    if length:
        mine = slice(layer * groups, (layer + 1) * groups)
        keys = tools.memory[0][mine].transpose(2, 3).flatten(1, 2)[:, :length]
        key = torch.cat([keys.to(key), key], 1)
        value = torch.cat([tools.memory[1][mine, :length, :d].to(value), value], 1)
    key, value = (t.repeat_interleave(heads // groups, 0) for t in (key, value))
    out = scaled_dot_product_attention(
        query[None],
        key[None],
        value[None],
        mask,
        is_causal=mask is None,
        scale=1.0,  # the queries carry the scale
    )
    return out[0].transpose(0, 1).flatten(1)
