"""Matrices as panels in a chosen precision: what a pass reads from memory, laid out in the order it is read.

A matrix [out, in] becomes panels: the weights of PANEL outputs for the first input (of whole numbers, for the first
unit of inputs), then for the second, and so on. Weights that were quantised in groups of 32 (GGUF's Q4_0, Q4_1, Q8_0)
are recognised by their values and stored as whole numbers again, without changing one. Knows tensors and the numbers of
`kernels`; nothing of layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from .kernels import BF16, F16, F32, GROUP, INT4, INT8, LANES, PANEL, UNIT, row_bytes

STORED = {torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16, torch.int8: INT8}
NAMES = {F32: "float32", F16: "float16", BF16: "bfloat16", INT8: "int8", INT4: "int4"}
LEVELS = 15  # the largest 4-bit number


@dataclass(frozen=True, eq=False)
class Panels:
    """weights: [out / PANEL, in, PANEL] floats, or bytes [out / PANEL, in / UNIT, PANEL / LANES, LANES, 2] of whole
    numbers as `kernels` reads them.
    scales: None, or float16 [out / PANEL, in / GROUP, PANEL] factors (INT8) or [.., 2, PANEL] factors and offsets
            (INT4): weight = whole number * factor + offset.
    Whole numbers have a multiple of GROUP inputs, zeros added."""

    kind: int
    weights: Tensor
    scales: Tensor | None = None

    @property
    def nbytes(self) -> int:
        return self.weights.nbytes + (0 if self.scales is None else self.scales.nbytes)

    @property
    def inputs(self) -> int:
        return self.weights.shape[1] * UNIT[self.kind]

    def address(self) -> tuple[int, ...]:
        """As compiled code takes it (layout.Weights.matrices)."""
        scales = (0, 0) if self.scales is None else (self.scales.data_ptr(), self.scales[0].nbytes)
        return self.kind, self.weights.data_ptr(), self.weights[0].nbytes, row_bytes(self.kind), *scales, self.inputs

    def rows(self, outputs: Tensor) -> Tensor:
        """[n, in] float32: the weights of some outputs, as an embedding is looked up in a head that is tied to it."""
        panel, lane = outputs // PANEL, outputs % PANEL
        if self.scales is None:
            return _pick(self.weights, panel, lane).float()
        found = _pick(self.weights.flatten(2, 3), panel, lane)  # [n, in / UNIT, 2] bytes
        scales = self.scales[panel, ..., lane].float().repeat_interleave(GROUP, 1)
        if self.kind == INT8:
            return found.flatten(1) * scales
        return torch.stack([found & LEVELS, found >> 4], 2).flatten(1) * scales[:, :, 0] + scales[:, :, 1]


def _pick(weights: Tensor, panel: Tensor, lane: Tensor) -> Tensor:
    """weights[panel, :, lane] by numpy: torch wakes its threads for it, and these wait on cores that the pass needs."""
    plain = weights.view(torch.int16) if weights.dtype == torch.bfloat16 else weights
    return torch.from_numpy(plain.numpy()[panel.numpy(), :, lane.numpy()]).view(weights.dtype)


def padded(n: int) -> int:
    """n rounded up to whole panels."""
    return -(-n // PANEL) * PANEL


def pack(matrix: Tensor, dtype: torch.dtype | None = None) -> Panels:
    """Panels of a matrix [out, in], its outputs padded with zeros.

    dtype: float32, float16, bfloat16 or int8, which rounds to largest / 127 of each GROUP inputs of an output. None
    keeps weights that were quantised as they are, to the bit, and takes float16 for others."""
    matrix = pad(matrix.float(), (0, 0, 0, padded(len(matrix)) - len(matrix)))
    if dtype is None:
        return _as_int4(matrix) or _as_int8(matrix, exact=True) or Panels(F16, _panels(matrix.half()))
    if dtype == torch.int8:
        packed = _as_int8(matrix, exact=False)
        assert packed is not None
        return packed
    return Panels(STORED[dtype], _panels(matrix.to(dtype)))


def _as_int8(matrix: Tensor, exact: bool) -> Panels | None:
    """Factors of whole numbers from -127 to 127. None where `exact` is asked for and a weight would change."""
    blocks = pad(matrix, (0, -matrix.shape[1] % GROUP)).view(len(matrix), -1, GROUP)
    factor = (blocks.abs().amax(2, keepdim=True) / 127).half().float()
    if exact and not _same(blocks[:PANEL], _rounded(blocks[:PANEL], factor[:PANEL]), factor[:PANEL]):
        return None  # the first outputs say it of most matrices
    whole = _rounded(blocks, factor)
    if exact and not _same(blocks, whole, factor):
        return None
    pairs = whole.to(torch.int8).view(-1, PANEL // LANES, LANES, blocks[0].numel() // 2, 2)
    return Panels(INT8, pairs.permute(0, 3, 1, 2, 4).contiguous(), _panels(factor[:, :, 0].half()))


def _rounded(
    blocks: Tensor, factor: Tensor, offset: Tensor | float = 0.0, least: int = -127, most: int = 127
) -> Tensor:
    return torch.where(factor == 0, 0.0, (blocks - offset) / factor).round().clamp(least, most)


def _same(blocks: Tensor, whole: Tensor, factor: Tensor, offset: Tensor | float = 0.0) -> bool:
    return torch.equal(whole * factor + offset, blocks)


def _as_int4(matrix: Tensor) -> Panels | None:
    """Factors and offsets of whole numbers from 0 to 15; None where a weight would change.

    The quantiser of Q4_1 gives a group's smallest weight the number 0 and its largest 15; that of Q4_0 gives the one
    farthest from zero the number 0 and zero itself 8."""
    if matrix.shape[1] % GROUP:
        return None
    blocks = matrix.view(len(matrix), -1, GROUP)
    found = _grid(blocks[:PANEL]) and _grid(blocks)  # the first outputs say it of most matrices
    if not found:
        return None
    factor, offset, whole = found
    fours = whole.to(torch.uint8).view(-1, PANEL // LANES, LANES, blocks[0].numel() // 4, 2, 2)
    both = (fours[..., 0, :] | fours[..., 1, :] << 4).permute(0, 3, 1, 2, 4)
    scales = torch.cat([factor, offset], 2).half().view(-1, PANEL, blocks.shape[1], 2).permute(0, 2, 3, 1)
    return Panels(INT4, both.contiguous(), scales.contiguous())


def _grid(blocks: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """(factor, offset, whole numbers) that give every block exactly, or None."""
    least, most = blocks.amin(2, keepdim=True), blocks.amax(2, keepdim=True)
    farthest = torch.where(-least > most, least, most)
    for offset, factor in ((least, (most - least) / LEVELS), (farthest, -farthest / 8)):
        offset, factor = offset.half().float(), factor.half().float()
        whole = _rounded(blocks, factor, offset, 0, LEVELS)
        if _same(blocks, whole, factor, offset):
            return factor, offset, whole
    return None


def _panels(matrix: Tensor) -> Tensor:
    return matrix.view(-1, PANEL, matrix.shape[1]).transpose(1, 2).contiguous()


def alternate(gate: Tensor, up: Tensor) -> Tensor:
    """[2 * padded, in]: the panels of two matrices (or biases [out]) by turns."""
    both = []
    for m in (gate, up):
        whole = pad(m, (0, 0) * (m.dim() - 1) + (0, padded(len(m)) - len(m)))
        both.append(whole.view(-1, PANEL, *m.shape[1:]))
    return torch.stack(both, 1).flatten(0, 2)


def row(parts: Sequence[Tensor | None], widths: Sequence[int]) -> Tensor | None:
    """Biases side by side as float32, zeros for absent ones, padded to whole panels; None where all are absent."""
    if all(part is None for part in parts):
        return None
    whole = torch.cat([torch.zeros(n) if part is None else part.float() for part, n in zip(parts, widths, strict=True)])
    return pad(whole, (0, padded(len(whole)) - len(whole)))
