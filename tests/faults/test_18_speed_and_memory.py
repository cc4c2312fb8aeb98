"""Kind 18: work and memory, counted and never timed."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

import pytest
import torch
from enroll import METHODS, SELF
from stubs import StubLM, oracle, plain
from whole import PROMPT, Pair, V, habit, make, passes, run, transformers

from specdecode.sampling import Sampling


@pytest.mark.parametrize("method", [method for method in METHODS if method not in SELF])
def test_no_token_is_fed_twice(method: str) -> None:
    """Fault 101: one pass a step after one for the prompt; the target is fed the prompt, each step's newest token and
    its drafts, and nothing else. What runs of the target's own layers is counted in test_drafter_early_exit.py."""
    pair = transformers()
    drafter = make(method, pair)
    with passes(pair.target) as seen:
        (session,) = run(pair.target, drafter, [10, 3, 5], n=30)
    assert [positions.shape for positions in seen] == [(1, 2), *((1, 1 + len(turn.draft)) for turn in drafter.seen)]
    assert len(seen) == 1 + len(session.records)
    if method == "null":
        assert len(seen) == 1 + 30


def test_right_drafts_save_passes() -> None:
    """Fault 101: ORACLE k=4, 50 tokens: 10 passes and one for the prompt."""
    target = transformers().target
    truth = plain(target, [10, 3, 5], 50)
    with passes(target) as seen:
        run(target, oracle(truth, k=4), [10, 3, 5], n=50)
    assert len(seen) == 11


def live() -> tuple[int, int]:
    """Number and bytes of the tensors that exist, less the frozen ones."""
    gc.collect()
    tensors = [o for o in gc.get_objects() if issubclass(type(o), torch.Tensor)]
    return len(tensors), sum(tensor.nbytes for tensor in tensors)


def check_memory(call: Callable[[], object]) -> None:
    """30 calls, 10 of them to warm up."""
    after = []
    gc.collect()
    gc.freeze()  # what exists before is of no interest
    try:
        for done in range(1, 31):
            call()
            if done in (10, 20, 30):
                after.append(live())
    finally:
        gc.unfreeze()
    assert after == [after[0]] * 3


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_kept_between_requests(method: str) -> None:
    """Fault 104: tensors stay as many and as large as they were, for one drafter that serves request after request."""
    pair, law = habit(), Sampling(temperature=1, seed=1)
    drafter = make(method, pair)

    def call() -> None:
        run(pair.target, drafter, PROMPT, n=20, sampling=law, rule="coupled")
        del drafter.seen[:]

    check_memory(call)


def test_caches_of_transformers_are_let_go() -> None:
    """Fault 104: keys and values of target and drafter."""
    pair = transformers()
    check_memory(lambda: run(pair.target, make("lm", pair, k=2), [10, 3, 5], n=10))


def test_what_is_kept_is_seen() -> None:
    """Negative control of the above."""
    kept: list[torch.Tensor] = []
    with pytest.raises(AssertionError):
        check_memory(lambda: kept.append(torch.zeros(3)))


def test_nothing_is_kept_once_drafting_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    """Fault 104: the drafter falls silent in the middle of each request."""
    caplog.set_level(logging.CRITICAL)
    pair = habit()
    short = Pair(pair.target, StubLM(pair.law, V, context=len(PROMPT) + 8), pair.law)
    (session,) = run(pair.target, make("lm", short), PROMPT, n=20)
    assert session.records[0].drafted
    assert not session.records[-2].drafted
    check_memory(lambda: run(pair.target, make("lm", short), PROMPT, n=20))
