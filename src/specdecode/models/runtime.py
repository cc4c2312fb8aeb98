"""Which runtime runs a loaded model: the fast one for dense stacks where it fits, transformers' own otherwise.

Knows what each needs; nothing of files, tokenizers or decoding.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch

from ..errors import BadOption, Incompatible
from .hf import HFModel
from .lm import LM
from .loading import speed_up

RUNTIMES = ("dense", "transformers")
DENSE_DTYPES = (None, torch.float32, torch.float16, torch.bfloat16, torch.int8)


def check_runtime(runtime: str | None, dtype: torch.dtype | None, device: torch.device | None = None) -> None:
    """Raises BadOption for a runtime that does not exist, or that cannot compute in `dtype`, or not on `device`."""
    if runtime is not None and runtime not in RUNTIMES:
        raise BadOption(f"runtime {runtime!r} does not exist; choose one of: {', '.join(RUNTIMES)}")
    name = str(dtype).removeprefix("torch.")
    if runtime == "dense" and dtype not in DENSE_DTYPES:
        raise BadOption(f"the dense runtime does not store weights as {name}; use float32, float16, bfloat16 or int8")
    if runtime == "transformers" and dtype == torch.int8:
        raise BadOption("int8 weights need the dense runtime: leave out runtime='transformers', or give another dtype")
    if dtype == torch.int8 and device is not None and device.type != "cpu":
        raise BadOption(f"int8 weights are for the CPU, and the device is {device}: give another dtype, or no device")


def may_be_dense(runtime: str | None, dtype: torch.dtype | None, device: torch.device) -> bool:
    """Whether the fast runtime of CPUs is worth considering, before anything is loaded."""
    return runtime != "transformers" and dtype in DENSE_DTYPES and device.type == "cpu"


def run(
    hf_model: Any, vocab: int, runtime: str | None = None, dtype: torch.dtype | None = None, *, ours: bool = True
) -> LM:
    """An LM over a loaded model. runtime: None takes the fast one where it fits a model of our own loading.

    On a GPU the fast one must be asked for, and runs in the model's own dtype: it has not been measured there yet.
    ours: whether the model is of our own loading, and may be brought to `dtype` and another attention function.
    Raises Incompatible where the runtime asked for cannot run the model."""
    reason = _unfit(hf_model, runtime) if runtime == "dense" or (runtime is None and ours) else "not asked for"
    if reason is None and dtype in DENSE_DTYPES:
        return _dense(hf_model, vocab, dtype)
    if runtime == "dense":
        raise Incompatible(f"{type(hf_model).__name__} does not fit the dense runtime: {reason}; use 'transformers'")
    if dtype == torch.int8:
        raise Incompatible(f"int8 weights need the dense runtime, which does not fit: {reason}; give another dtype")
    if ours:
        if hf_model.device.type == "cpu":
            hf_model = hf_model.to(dtype or torch.float32)
        speed_up(hf_model)
    return HFModel(hf_model, vocab=vocab)


def _dense(hf_model: Any, vocab: int, dtype: torch.dtype | None) -> LM:
    if hf_model.device.type == "cpu":
        from .dense.model import DenseModel

        return DenseModel(hf_model, vocab, dtype)
    from .dense.device import DeviceModel

    return DeviceModel(hf_model, vocab)


def _unfit(hf_model: Any, runtime: str | None) -> str | None:
    if hf_model.device.type != "cpu" and runtime is None:
        return f"its weights are on {hf_model.device}, where it must be asked for"
    if hf_model.device.type == "cpu" and find_spec("numba") is None:
        return "it is compiled with numba, which is not installed here"
    from .dense.stack import misfit

    return misfit(hf_model)
