"""What the tests of the fast runtime share: prompts, upstream's word on them, and ways to read and grow a session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from stubs import dense, quantised
from torch import Tensor

from specdecode.models.dense.model import DenseModel
from specdecode.models.lm import read
from specdecode.types import Prompt, Row

STORED = ["float32", "float16", "bfloat16", "int8", "q8_0", "q4_0", "q4_1"]
"""How weights are stored: types that `dtype` names, and those of quantised files, which are kept."""
PIECE = 60  # tokens: shorter than what the wide path takes


def made(name: str, stored: str, **changes: Any) -> DenseModel:
    """The model of DENSE on the fast runtime."""
    model = dense(name, **changes)
    if hasattr(torch, stored):
        return DenseModel(model, dtype=getattr(torch, stored))
    return DenseModel(quantised(model, stored))


def tokens(count: int, seed: int = 7) -> tuple[int, ...]:
    rng = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, 97, (count,), generator=rng).tolist())


def upstream(model: Any, ids: Sequence[int]) -> Tensor:
    """[n, V] transformers' own logits after each of `ids`, without any cache."""
    with torch.no_grad():
        logits: Tensor = model(torch.tensor([list(ids)]), use_cache=False).logits[0]
    return logits


def opened(lm: Any, *prefixes: Sequence[int]) -> Any:
    """A cache that has committed each of `prefixes`, which may be empty, by exact passes."""
    cache = lm.open([Prompt((0, *prefix)) for prefix in prefixes])
    for begin in range(0, max(map(len, prefixes)), PIECE):
        read(lm, cache, {row: prefix[begin : begin + PIECE] for row, prefix in enumerate(prefixes)})
    return cache


def logits(lm: Any, cache: Any, row: Row) -> Tensor:
    out: Tensor = lm.score(cache, [row])[0].logits
    return out


def one_by_one(lm: Any, prefix: Sequence[int], path: Sequence[int]) -> Tensor:
    """[n, V] logits after each token of `path` behind `prefix`, each in a pass of its own and committed: plain
    decoding."""
    cache, out = opened(lm, prefix), []
    for token in path:
        out.append(logits(lm, cache, Row(0, (token,), (-1,))))
        cache.keep(0, [0])
    return torch.cat(out)


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
