"""The pass over a dense stack in torch's own operators, for any device; recorded as a CUDA graph where there are such.

Everything a pass reads beside weights and memory is in two tensors of fixed shape, and nothing in it waits for the
host. Arithmetic is that of the weights' dtype, as upstream's. Knows no rows, drafts or sessions.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu

from ...types import Sublayers
from .stack import Layer, Stack

Linear = tuple[Tensor, Tensor | None]  # [out, in] weights, [out] bias

WARM_UPS = 2  # passes before one is recorded: libraries and kernels are loaded by then


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a pass over B rows of T nodes reads.

    numbers: [3, B, T] the nodes' ids, their positions, and where they are written in the memory seen as B * S slots.
    seen:    [W, B, T, S] bool, the slots that each node attends to, for each of the stack's W windows."""

    numbers: Tensor
    seen: Tensor

    def to(self, device: torch.device) -> Inputs:
        return Inputs(self.numbers.to(device), self.seen.to(device))


@dataclass(frozen=True, eq=False)
class _Fused:
    """A decoder layer whose projections of the same input are one matrix."""

    attention_norm: Tensor
    qkv: Linear
    head_norms: Tensor | None  # [H + Hk, d] of query and key heads
    out: Linear
    feed_norm: Tensor
    gate_up: Linear
    down: Linear
    window: int  # index among the stack's windows


class DeviceStack:
    """Fused weights of a Stack on its device and in its dtype: q|k|v and gate|up are copies, the rest is shared.

    windows: the different windows of its layers, ascending, 0 for none."""

    def __init__(self, stack: Stack) -> None:
        self.windows = sorted({layer.window for layer in stack.layers})
        self._heads, self._groups, self._width = stack.heads, stack.groups, stack.head_width
        self._eps, self._scale = stack.eps, stack.attention_scale
        self._frequencies = stack.frequencies
        self._embedding, self._last_norm, self._head = stack.embedding, stack.last_norm, stack.head
        self._layers = [_fuse(layer, stack, self.windows) for layer in stack.layers]
        matrices = [part[0] for layer in self._layers for part in (layer.qkv, layer.out, layer.gate_up, layer.down)]
        self.nbytes = sum(matrix.nbytes for matrix in (*matrices, self._head))

    def embed(self, tokens: Tensor) -> Tensor:
        """[B, T, D] input embeddings of [B, T] ids."""
        return embedding(tokens, self._embedding)

    def run(
        self, inputs: Inputs, hidden: Tensor, memory: Tensor, layers: Sublayers, taps: Collection[int] = ()
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Run `layers` on the [B, T, D] states `hidden`, writing keys and values to `memory` [L, 2, B, S, Hk, d].

        Returns the states that leave the last of them, and those that leave each of the layers `taps`."""
        _, positions, places = inputs.numbers
        turn = self._rotation(positions, hidden.dtype)
        masks = self._masks(inputs.seen, hidden.dtype)
        tapped = {}
        for index, layer in enumerate(self._layers):
            if index in layers.attention:
                normed = rms_norm(hidden, hidden.shape[-1:], layer.attention_norm, self._eps)
                attended = self._attend(layer, normed, turn, memory[index], places.flatten(), masks[layer.window])
                hidden = hidden + linear(attended, *layer.out)
            if index in layers.feed_forward:
                normed = rms_norm(hidden, hidden.shape[-1:], layer.feed_norm, self._eps)
                gate, up = linear(normed, *layer.gate_up).chunk(2, -1)
                hidden = hidden + linear(silu(gate) * up, *layer.down)
            if index in taps:
                tapped[index] = hidden
        return hidden, tapped

    def logits(self, hidden: Tensor) -> Tensor:
        """[B, T, V] float32 of [B, T, D] states that left the last layer."""
        return linear(rms_norm(hidden, hidden.shape[-1:], self._last_norm, self._eps), self._head).float()

    def _rotation(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """[B, T, 1, d] cosines and sines, as upstream computes them."""
        angles = positions[..., None, None].float() * self._frequencies
        angles = torch.cat([angles, angles], -1)
        return (angles.cos() * self._scale).to(dtype), (angles.sin() * self._scale).to(dtype)

    def _masks(self, seen: Tensor, dtype: torch.dtype) -> Tensor:
        """[W, B, 1, H / Hk * T, S] zero where a node sees a slot, else -inf; once a pass and not once a layer."""
        mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(~seen, float("-inf"))
        return mask.repeat(1, 1, self._heads // self._groups, 1).unsqueeze(2)

    def _attend(
        self, layer: _Fused, normed: Tensor, turn: tuple[Tensor, Tensor], memory: Tensor, places: Tensor, mask: Tensor
    ) -> Tensor:
        """[B, T, H * d] attention over one layer's memory [2, B, S, Hk, d], the new nodes' places in it included.

        The query heads of a group are laid side by side, as rows of one head: the kernels that take a mask do not take
        groups, and would be given copies of the keys for every query head."""
        b, t, _ = normed.shape
        heads, groups, d = self._heads, self._groups, self._width
        parts = linear(normed, *layer.qkv).view(b, t, heads + 2 * groups, d)
        turned, value = parts[:, :, : heads + groups], parts[:, :, heads + groups :]
        if layer.head_norms is not None:
            turned = rms_norm(turned, (d,), None, self._eps) * layer.head_norms
        cos, sin = turn
        left, right = turned.chunk(2, -1)
        turned = turned * cos + torch.cat([-right, left], -1) * sin
        query, key = turned[:, :, :heads], turned[:, :, heads:]
        keys, values = memory
        for held, new in ((keys, key), (values, value)):
            held.view(-1, groups, d).index_copy_(0, places, new.reshape(-1, groups, d))
        query = query.transpose(1, 2).reshape(b, groups, -1, d)
        out = scaled_dot_product_attention(query, keys.transpose(1, 2), values.transpose(1, 2), mask)
        return out.reshape(b, heads, t, d).transpose(1, 2).flatten(2)


class Recorder:
    """Records passes over whole stacks as CUDA graphs, which share their scratch memory and so never run at once."""

    def __init__(self, stack: DeviceStack, layers: Sublayers, device: torch.device) -> None:
        self._stack, self._layers, self._device = stack, layers, device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, inputs: Inputs, memory: Tensor) -> Recorded:
        """The pass over `memory` that `inputs` (on the device) describes. It is run here, to no other effect than that
        of running it once."""

        def run() -> Tensor:
            hidden, _ = self._stack.run(inputs, self._stack.embed(inputs.numbers[0]), memory, self._layers)
            return self._stack.logits(hidden)

        with torch.cuda.device(self._device):
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    run()
            torch.cuda.current_stream().wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, self._pool, self._stream, capture_error_mode="thread_local"):
                logits = run()
        return Recorded(inputs, graph, logits)


@dataclass(frozen=True, eq=False)
class Recorded:
    """A CUDA graph, and where it reads its inputs and leaves its logits [B, T, V]."""

    inputs: Inputs
    graph: torch.cuda.CUDAGraph
    logits: Tensor

    def replay(self, inputs: Inputs) -> Tensor:
        """[B, T, V] logits that the next replay leaves alone."""
        self.inputs.numbers.copy_(inputs.numbers)
        self.inputs.seen.copy_(inputs.seen)
        self.graph.replay()
        return self.logits.clone()


def _fuse(layer: Layer, stack: Stack, windows: list[int]) -> _Fused:
    norms = None
    if layer.head_norms is not None:
        query, key = layer.head_norms
        norms = torch.cat([query.expand(stack.heads, -1), key.expand(stack.groups, -1)])
    *qkv, out = layer.biases
    gate, up, down = layer.feed_biases
    return _Fused(
        attention_norm=layer.attention_norm,
        qkv=_join([layer.query, layer.key, layer.value], qkv),
        head_norms=norms,
        out=(layer.out, out),
        feed_norm=layer.feed_norm,
        gate_up=_join([layer.gate, layer.up], [gate, up]),
        down=(layer.down, down),
        window=windows.index(layer.window),
    )


def _join(matrices: list[Tensor], biases: list[Tensor | None]) -> Linear:
    """Matrices one above the other, with zeros for the biases that are missing where others are not."""
    whole = torch.cat(matrices)
    if all(bias is None for bias in biases):
        return whole, None
    return whole, torch.cat([m.new_zeros(len(m)) if b is None else b for m, b in zip(matrices, biases, strict=True)])
