"""The dense runtime on a GPU: recorded passes, the same run one by one and those of transformers, and their times.

A random Llama of 1.2 billion weights behind 512 tokens: agreement in float32, then times in bfloat16 (medians, the arms
in turn). Without CUDA it says so and ends well."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from specdecode.models.dense.device import DeviceModel
from specdecode.models.hf import HFModel
from specdecode.models.lm import read
from specdecode.models.loading import speed_up
from specdecode.types import Prompt, Row

WIDTHS, CONTEXT, ROUNDS, WARM_UP = (1, 2, 3, 4, 8, 16, 32), 512, 20, 3
LLAMA: dict[str, Any] = {
    "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip


def arms(dtype: torch.dtype) -> dict[str, Callable[[Row], Tensor]]:
    """Name -> a pass over a row behind the same prefix, which gives its logits [m, V]."""
    from transformers import AutoConfig, AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **LLAMA)).to("cuda", dtype).eval()
    speed_up(model)
    ours, ids = DeviceModel(model), tuple(range(CONTEXT))
    last = (ours.n_layers - 1,)  # a pass with taps is not recorded

    def arm(lm: Any, taps: tuple[int, ...] = ()) -> Callable[[Row], Tensor]:
        cache = lm.open([Prompt(ids)])
        read(lm, cache, {0: ids})
        return lambda row: lm.score(cache, [row], taps=taps)[0].logits

    return {"upstream": arm(HFModel(model)), "one by one": arm(ours, last), "recorded": arm(ours)}


def disagreement(runs: dict[str, Callable[[Row], Tensor]]) -> dict[str, float]:
    """The largest difference from upstream, in standard deviations of its logits, over chains and stars, run twice."""
    offs: dict[str, list[Tensor]] = {name: [] for name in runs}
    for width in WIDTHS * 2:
        for row in (Row.chain(0, range(width)), Row(0, tuple(range(width)), (-1,) + (0,) * (width - 1))):
            logits = {name: run(row) for name, run in runs.items()}
            for name, got in logits.items():
                offs[name].append((got - logits["upstream"]).abs().max() / logits["upstream"].std())
    return {name: float(torch.stack(each).max()) for name, each in offs.items()}  # NaN if any is


def milliseconds(runs: dict[str, Callable[[Row], Tensor]], width: int) -> dict[str, float]:
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(WARM_UP + ROUNDS):
        for name, run in runs.items():
            torch.cuda.synchronize()
            started = time.perf_counter()
            run(Row.chain(0, range(width)))
            torch.cuda.synchronize()
            taken[name].append(1e3 * (time.perf_counter() - started))
    return {name: round(statistics.median(times[WARM_UP:]), 3) for name, times in taken.items()}


if __name__ == "__main__":
    if not torch.cuda.is_available():
        print("no CUDA device here: nothing to check")
        sys.exit()
    worst, runs = disagreement(arms(torch.float32)), arms(torch.bfloat16)
    print(json.dumps({"device": torch.cuda.get_device_name(), "float32 off by sd": worst}))
    for width in WIDTHS:
        print(json.dumps({"rows": width, "ms": milliseconds(runs, width)}), flush=True)
    sys.exit(None if all(off < 1e-2 for off in worst.values()) else "the dense runtime disagrees with upstream")
