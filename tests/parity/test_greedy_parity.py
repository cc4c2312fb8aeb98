"""Greedy output is upstream's, token for token: every method x rule x architecture x runtime, alone and in a ragged
batch."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from enroll import METHODS, build
from stubs import Watched, dense, make_session, tiny

from specdecode.engine import Generation
from specdecode.models.dense.model import DenseModel
from specdecode.models.hf import HFModel
from specdecode.models.lm import LM
from specdecode.verify import make_rule

ON_TRANSFORMERS = ["llama", "qwen2", "mistral", "gpt2", "gemma2", "gemma3_text"]
ON_DENSE = ["llama", "qwen2", "mistral", "qwen3"]  # with odd shapes, scaled positions, biases and norms of heads
TARGETS = [*ON_TRANSFORMERS, *(f"dense {name}" for name in ON_DENSE)]
LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34)
NEW = 40


@cache
def model(name: str) -> Any:
    if name.startswith("dense "):
        return dense(name.removeprefix("dense "))
    return tiny(name, attention="eager" if name == "gemma2" else "sdpa")


@cache
def target(name: str) -> LM:
    return DenseModel(model(name), dtype=torch.float32) if name.startswith("dense ") else HFModel(model(name))


@cache
def prompts() -> list[tuple[int, ...]]:
    """Half of them repeat themselves, so that lookup has something to find."""
    rng = torch.Generator().manual_seed(3)
    out = []
    for i, n in enumerate(LENGTHS):
        ids = torch.randint(0, 97, (n,), generator=rng).tolist()
        out.append(tuple(ids if i % 2 else (ids[:4] * n)[:n]))
    return out


@cache
def upstream(name: str) -> list[list[int]]:
    out = []
    for ids in prompts():
        inputs = torch.tensor([ids])
        made = model(name).generate(
            inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=NEW, pad_token_id=0
        )
        out.append(made[0, len(ids) :].tolist())
    return out


@cache
def small(on_transformers: bool) -> LM:
    """A smaller model to draft with."""
    return HFModel(tiny("gpt2", 1)) if on_transformers else DenseModel(tiny("llama", 1))


def run(name: str, method: str, rule: str, asked: list[tuple[int, ...]]) -> list[list[int]]:
    lm = target(name)
    drafter = build(method, small(name == "gpt2"))  # one of each runtime will do: the text is the target's, whatever
    sessions = [make_session(lm, ids, max_new_tokens=NEW) for ids in asked]  # greedy noise, whatever the rule
    watched = drafter if isinstance(drafter, Watched) else Watched(drafter)
    generation = Generation(lm, watched, sessions, [make_rule(rule)] * len(sessions))
    for _ in generation:
        for row in generation.active:
            assert generation._cache.lengths[row] == len(sessions[row].tokens) - 1
    return [session.new_tokens for session in sessions]


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", TARGETS)
def test_ids_equal_upstream_generate(name: str, method: str, rule: str) -> None:
    """Faults 1, 2, 63, 68, 69: first round, partial acceptance, windows, ragged batches; each row as alone."""
    expected = upstream(name)
    assert run(name, method, rule, prompts()) == expected, "a ragged batch of eight"
    for i in (0, 4, 7):
        assert run(name, method, rule, [prompts()[i]]) == [expected[i]], f"prompt of {LENGTHS[i]} tokens alone"
