"""Kind 10: keys and values after partial acceptance. The drafter's own cache is tested in
tests/unit/test_drafter_lm.py, the target's, node by node, in tests/unit/test_hf.py."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from enroll import METHODS
from stubs import mix, tiny
from whole import Pair, base, begin, make, run, say, transformers, upstream

from specdecode.errors import CannotRollBack
from specdecode.models.hf import HFModel

NEW = 60


@cache
def windowed(attention: str) -> Pair:
    return transformers("mistral", attention=attention)


@cache
def text(attention: str, length: int) -> tuple[list[int], list[int]]:
    """A prompt, and what transformers' generate says after it, past the window of 8."""
    prompt = torch.randint(0, 97, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    return prompt, upstream(windowed(attention).target, prompt, NEW)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("length", [5, 20])
def test_sliding_windows(attention: str, length: int) -> None:
    """Fault 63: prompts below and beyond a window of 8, MIX[3,0,4,1]."""
    prompt, truth = text(attention, length)
    drafter = mix(truth, (3, 0, 4, 1))
    assert say(windowed(attention).target, drafter, prompt, n=NEW) == truth
    assert {turn.verdict.accepted for turn in drafter.seen} >= {0, 1, 3, 4}


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_sliding_windows_of_the_drafter(attention: str) -> None:
    """Fault 63: a windowed model drafts, for itself (and is always right) and for another."""
    lm = windowed(attention).target
    prompt, truth = text(attention, 20)
    (session,) = run(lm, make("lm", Pair(lm, lm, None), k=4), prompt, n=NEW)
    assert session.new_tokens == truth
    assert all(record.accepted == record.drafted for record in session.records)
    other = transformers().target
    assert say(other, make("lm", Pair(other, lm, None), k=4), prompt, n=NEW) == base(other, prompt, n=NEW)


@pytest.mark.parametrize("kind", ["mamba", "lfm2"])
def test_a_state_that_cannot_be_cut_back(kind: str) -> None:
    """Fault 65: recurrent and hybrid models are refused before the first token."""
    with pytest.raises(CannotRollBack, match="cannot forget rejected drafts"):
        HFModel(tiny(kind))


@pytest.mark.parametrize("method", METHODS)
def test_rollback_moves_no_buffer(method: str) -> None:
    """Fault 66: the cache is preallocated and ours; within its capacity its buffers stay where they are."""
    pair = transformers()
    generation = begin(pair.target, make(method, pair), [10, 3, 5], n=30)
    cache = generation._cache
    generation.step()
    before = [tensor.data_ptr() for tensor in (*cache._keys.values(), *cache._values.values())]
    assert len(before) == 4
    for _ in generation:
        assert [tensor.data_ptr() for tensor in (*cache._keys.values(), *cache._values.values())] == before
