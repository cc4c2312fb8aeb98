"""How matrices are stored: nothing is lost that a type can hold, errors are bounded elsewhere, damage stays damage."""

from __future__ import annotations

import pytest
import torch
from dense_helpers import STORED, logits, made, opened, tokens
from hypothesis import given, settings
from hypothesis import strategies as st
from stubs import dense, quantised
from texts import TOKENIZER
from torch import Tensor

import specdecode as sd
from specdecode.errors import NumericalError
from specdecode.models.dense.kernels import GROUP, PANEL
from specdecode.models.dense.model import DenseModel
from specdecode.models.dense.weights import NAMES, Panels, alternate, pack, padded, row
from specdecode.types import Row

SHAPES = [(1, 1), (PANEL, GROUP), (PANEL - 1, 40), (70, 3 * GROUP), (2 * PANEL + 1, 2 * GROUP - 1)]
QUANTISED = ["q8_0", "q4_0", "q4_1"]
SUBNORMAL = 2.0**-25  # half a step of the smallest float16 numbers, which the smallest scales are


def random(outputs: int, inputs: int, seed: int = 0) -> Tensor:
    return torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(seed))


def on_grid(outputs: int, inputs: int, kind: str) -> Tensor:
    layer = torch.nn.Linear(inputs, outputs, bias=False)
    with torch.no_grad():
        layer.weight.copy_(random(outputs, inputs))
    return quantised(layer, kind).weight.detach()


def unpacked(panels: Panels, shape: tuple[int, int]) -> Tensor:
    return panels.rows(torch.arange(shape[0]))[:, : shape[1]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_floats_come_back_as_they_are_stored(shape: tuple[int, int], dtype: torch.dtype) -> None:
    matrix = random(*shape)
    panels = pack(matrix, dtype)
    assert torch.equal(unpacked(panels, shape), matrix.to(dtype).float())
    assert NAMES[panels.kind] == str(dtype).removeprefix("torch.")
    assert panels.nbytes == padded(shape[0]) * shape[1] * dtype.itemsize


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_looked_up_in_any_order(shape: tuple[int, int]) -> None:
    ids = torch.tensor([shape[0] - 1, 0, shape[0] // 2, 0])
    for dtype in (torch.float32, torch.int8):
        panels = pack(random(*shape), dtype)
        assert torch.equal(panels.rows(ids), panels.rows(torch.arange(shape[0]))[ids])


@settings(max_examples=40, deadline=None)
@given(shape=st.sampled_from(SHAPES), size=st.floats(-6, 3), seed=st.integers(0, 99))
def test_eight_bits_lose_at_most_half_a_step_of_their_group(shape: tuple[int, int], size: float, seed: int) -> None:
    """A step is 1/127 of the largest weight of a group. Groups differ in size by orders of magnitude here."""
    matrix = random(*shape, seed) * 10.0 ** (size - random(*shape, seed + 1).abs())
    lost = (unpacked(pack(matrix, torch.int8), shape) - matrix).abs()
    for begin in range(0, shape[1], GROUP):
        group = slice(begin, begin + GROUP)
        step = matrix[:, group].abs().amax(1, keepdim=True) / 127
        assert (lost[:, group] <= step * 0.57 + 127 * SUBNORMAL).all()  # .07: scales are rounded to float16


def test_groups_of_zeros_stay_zero_and_leave_the_others_alone() -> None:
    matrix = random(PANEL, 3 * GROUP)
    matrix[:, GROUP : 2 * GROUP] = 0
    matrix[5] = 0
    back = unpacked(pack(matrix, torch.int8), (PANEL, 3 * GROUP))
    assert (back[matrix == 0] == 0).all()
    assert (back - matrix).abs().max() < matrix.abs().max() / 127
    assert (unpacked(pack(torch.zeros(3, 40), torch.int8), (3, 40)) == 0).all()
    assert (unpacked(pack(torch.zeros(PANEL, GROUP)), (PANEL, GROUP)) == 0).all()


@pytest.mark.parametrize("kind", QUANTISED)
@pytest.mark.parametrize("shape", [(1, GROUP), (PANEL, GROUP), (70, 3 * GROUP)])
def test_weights_of_quantised_files_are_kept_to_the_bit(shape: tuple[int, int], kind: str) -> None:
    matrix = on_grid(*shape, kind)
    panels = pack(matrix)
    assert torch.equal(unpacked(panels, shape), matrix)
    assert NAMES[panels.kind] == ("int8" if kind == "q8_0" else "int4")
    assert panels.nbytes < padded(shape[0]) * shape[1] * (1.1 if kind == "q8_0" else 0.65)


def test_other_weights_are_kept_in_float16() -> None:
    """One weight off the grid is enough, wherever it stands."""
    for place in ((0, 0), (2 * PANEL - 1, GROUP - 1)):
        other = on_grid(2 * PANEL, GROUP, "q4_0")
        other[place] += 1e-3
        panels = pack(other)
        assert NAMES[panels.kind] == "float16"
        assert torch.equal(unpacked(panels, (2 * PANEL, GROUP)), other.half().float())


def test_gate_and_up_stand_by_turns() -> None:
    gate, up = random(40, 3), random(40, 3, 1)
    both = alternate(gate, up).view(2, 2, PANEL, 3)
    assert torch.equal(both[:, 0].reshape(-1, 3)[:40], gate)
    assert torch.equal(both[:, 1].reshape(-1, 3)[:40], up)
    assert (both[1, :, 8:] == 0).all()


def test_biases_stand_side_by_side_with_zeros_for_absent_ones() -> None:
    bias = random(1, 5)[0]
    assert row([None, None], [4, 5]) is None
    whole = row([None, bias.half()], [4, 5])
    assert whole is not None
    assert torch.equal(whole, torch.cat([torch.zeros(4), bias.half().float(), torch.zeros(PANEL - 9)]))


@pytest.mark.parametrize("damage", [float("nan"), float("inf")])
@pytest.mark.parametrize("stored", ["float16", "int8", "q4_0"])
@pytest.mark.parametrize("name", ["llama, biases", "qwen3, mixed"])
def test_damaged_weights_never_become_numbers(name: str, stored: str, damage: float) -> None:
    """Wherever they are: none is lost in a softmax, an activation or in whole numbers."""
    model = dense(name) if hasattr(torch, stored) else quantised(dense(name), stored)
    last = f"layers.{model.config.num_hidden_layers - 1}"
    for part, weight in model.named_parameters():
        if "layers" in part and last not in part:
            continue
        place = 5 * 32 if "embed" in part else 0  # the first token below, or any that comes first
        with torch.no_grad():
            before = weight.view(-1)[place].clone()
            weight.view(-1)[place] = damage
            lm = DenseModel(model, dtype=getattr(torch, stored, None))
            weight.view(-1)[place] = before
        said = logits(lm, opened(lm, ()), Row.chain(0, (5, *tokens(10))))
        assert not said[-1].isfinite().all(), part


def test_weights_too_large_for_their_type_are_refused_in_one_line() -> None:
    model = dense("llama, biases")
    with torch.no_grad():
        model.model.layers[0].self_attn.q_proj.weight[0, 0] = 1e5
    asked = sd.Model(DenseModel(model, dtype=torch.float16), TOKENIZER)
    with pytest.raises(NumericalError, match="load it in float32") as caught:
        asked.generate([1, 2, 3], drafter=None)
    assert "\n" not in str(caught.value)
    fine = sd.Model(DenseModel(model, dtype=torch.float32), TOKENIZER)
    assert fine.generate([1, 2, 3], drafter=None, max_new_tokens=3).tokens


def test_what_is_read_of_the_weights_is_counted() -> None:
    """Layers and head, each matrix once."""
    sizes = {stored: made("qwen3, mixed", stored).nbytes for stored in STORED}
    assert sizes["float32"] == 2 * sizes["float16"] == 2 * sizes["bfloat16"]
    assert sizes["float16"] / 2 < sizes["int8"] == sizes["q8_0"] < sizes["float16"]
    assert sizes["q4_0"] == sizes["q4_1"] < 0.65 * sizes["q8_0"]
