"""What a pass of the default model costs: the dense runtime's precisions beside upstream in float32 and bfloat16.

Rounds are interleaved and medians reported, as milliseconds and as ratios to upstream float32 at one row. Knows no
drafter: rows are scored and never kept.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import specdecode as sd
from specdecode.models.lm import read
from specdecode.models.loading import load_pretrained
from specdecode.types import Prompt, Row

CONTEXT, PROMPT, ROUNDS = 200, 1000, 15
WIDTHS = (1, 2, 4, 8, 16)
STORED = (None, "float16", "int8", "float32")

Pass = Callable[[int], None]


def upstream(dtype: str) -> tuple[Pass, Callable[[], None]]:
    """(a pass over n rows behind CONTEXT tokens, the reading of PROMPT tokens) as transformers runs them."""
    import torch
    from transformers import DynamicCache

    from specdecode.models.architecture import cache_argument

    model = load_pretrained(None, dtype=getattr(torch, dtype)).hf_model
    name = cache_argument(model)
    cache = DynamicCache(config=model.config)

    def run(ids: list[int], held: Any, keep: int) -> None:
        with torch.no_grad():
            model(torch.tensor([ids]), **{name: held}, use_cache=True, logits_to_keep=keep)

    run(list(range(100, 100 + CONTEXT)), cache, 1)

    def step(rows: int) -> None:
        run(list(range(500, 500 + rows)), cache, rows)
        cache.crop(-rows)

    return step, lambda: run(list(range(1000, 1000 + PROMPT)), DynamicCache(config=model.config), 1)


def ours(dtype: str | None) -> tuple[Pass, Callable[[], None]]:
    """The same on the dense runtime."""
    lm = sd.load(dtype=dtype, runtime="dense").lm
    held = tuple(range(100, 100 + CONTEXT))
    cache = lm.open([Prompt(held)])
    read(lm, cache, {0: held})

    def step(rows: int) -> None:
        lm.score(cache, [Row.chain(0, tuple(range(500, 500 + rows)))])

    def prefill() -> None:
        prompt = tuple(range(1000, 1000 + PROMPT))
        read(lm, lm.open([Prompt(prompt)]), {0: prompt})

    return step, prefill


def main() -> None:
    arms = {f"upstream {dtype}": upstream(dtype) for dtype in ("float32", "bfloat16")}
    arms |= {f"dense {dtype or 'as stored'}": ours(dtype) for dtype in STORED}
    seconds: dict[tuple[str, int], list[float]] = {}
    for round_ in range(ROUNDS + 1):
        for name, (step, prefill) in arms.items():
            jobs: list[tuple[int, Callable[[], None]]] = [(n, lambda n=n, step=step: step(n)) for n in WIDTHS]  # type: ignore[misc]
            if round_ % 4 == 0:
                jobs.append((0, prefill))
            step(1)  # what this arm needs is in the caches of the processor again
            for rows, job in jobs:
                started = perf_counter()
                job()
                if round_:
                    seconds.setdefault((name, rows), []).append(perf_counter() - started)
    unit = median(seconds["upstream float32", 1])
    print(f"milliseconds (ratio to upstream float32 at one row), {CONTEXT} tokens of context, prompt of {PROMPT}")
    print(f"{'':22}" + "".join(f"{f'{n} rows':>16}" for n in WIDTHS) + f"{'prompt':>12}")
    for name in arms:
        cells = [median(seconds[name, n]) for n in WIDTHS]
        line = "".join(f"{f'{1e3 * t:.1f} ({t / unit:.2f})':>16}" for t in cells)
        print(f"{name:22}{line}{1e3 * median(seconds[name, 0]):>9.0f} ms")


if __name__ == "__main__":
    main()
