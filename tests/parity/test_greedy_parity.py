"""Greedy output is upstream's, token for token: every method x rule x architecture, alone and in a ragged batch."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from enroll import METHODS, build
from stubs import Watched, make_session, primed, tiny

from specdecode.engine import Generation
from specdecode.models.hf import HFModel
from specdecode.types import Row
from specdecode.verify import make_rule

KINDS = ["llama", "qwen2", "mistral", "gpt2", "gemma2", "gemma3_text"]
LENGTHS = (1, 2, 3, 5, 8, 13, 21, 34)
NEW = 40


@cache
def target(kind: str) -> Any:
    return tiny(kind, seed=0, attention="eager" if kind == "gemma2" else "sdpa")


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
def upstream(kind: str) -> list[list[int]]:
    out = []
    for ids in prompts():
        inputs = torch.tensor([ids])
        made = target(kind).generate(
            inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=NEW, pad_token_id=0
        )
        out.append(made[0, len(ids) :].tolist())
    return out


@cache
def law(kind: str) -> Any:
    """The law that stub trees draft from: the small model's, one fresh pass for each prefix."""
    small = HFModel(tiny(kind, seed=1, attention="eager" if kind == "gemma2" else "sdpa"))
    known: dict[tuple[int, ...], torch.Tensor] = {}

    def at(prefix: tuple[int, ...], _: int) -> torch.Tensor:
        if prefix not in known:
            cache = primed(small, prefix)
            known[prefix] = small.score(cache, [Row(0, prefix[-1:], (-1,))])[0].logits[0]
        return known[prefix]

    return small, at


def run(kind: str, method: str, rule: str, asked: list[tuple[int, ...]]) -> list[list[int]]:
    small, at = law(kind)
    drafter = build(method, small, at)
    lm = HFModel(target(kind))
    sessions = [make_session(lm, ids, max_new_tokens=NEW) for ids in asked]  # greedy noise, whatever the rule
    watched = drafter if isinstance(drafter, Watched) else Watched(drafter)
    generation = Generation(lm, watched, sessions, [make_rule(rule)] * len(sessions))
    for _ in generation:
        for row in generation.active:
            assert generation._cache.lengths[row] == len(sessions[row].tokens) - 1
    return [session.new_tokens for session in sessions]


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_ids_equal_upstream_generate(kind: str, method: str, rule: str) -> None:
    """Faults 1, 2, 63, 68, 69: first round, partial acceptance, windows, ragged batches; each row as alone."""
    expected = upstream(kind)
    assert run(kind, method, rule, prompts()) == expected, "a ragged batch of eight"
    for i in (0, 4, 7):
        assert run(kind, method, rule, [prompts()[i]]) == [expected[i]], f"prompt of {LENGTHS[i]} tokens alone"
