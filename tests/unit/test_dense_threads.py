"""Several threads and processes on one model of the fast runtime, whose passes share threads and scratch memory."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from dense_helpers import logits, made, opened, threads, tokens
from texts import TOKENIZER

import specdecode as sd
from specdecode.models.dense import calls, cpu
from specdecode.models.dense.model import DenseModel
from specdecode.types import Row

PROMPTS = [tokens(n, n) for n in (3, 20, 70)]  # the last is long enough to be read in bfloat16


def answers(lm: DenseModel) -> list[Callable[[], Any]]:
    """Requests of several kinds, each as a call."""
    model = sd.Model(lm, TOKENIZER)
    drafter = sd.make_drafter("ngram", min_match=1)
    laws = [sd.Sampling(), sd.Sampling(temperature=1.0, seed=3)]
    return [
        lambda ids=ids, law=law: model.generate(ids, sampling=law, drafter=drafter, max_new_tokens=16).tokens
        for ids in PROMPTS
        for law in laws
    ]


@pytest.mark.parametrize("count", [1, 2])
def test_threads_that_generate_at_once_say_what_they_say_alone(count: int) -> None:
    lm = made("llama", "float16")
    with threads(count):
        alone = [answer() for answer in answers(lm)]
        with ThreadPoolExecutor(3) as pool:
            together = list(pool.map(lambda answer: answer(), answers(lm)))
    assert together == alone


def test_two_models_share_the_threads_and_nothing_else() -> None:
    first, second = made("llama", "float16"), made("qwen3, mixed", "int8")
    with threads(2):
        alone = [answer() for lm in (first, second) for answer in answers(lm)]
        mixed = [answer for pair in zip(answers(first), answers(second), strict=True) for answer in pair]
        with ThreadPoolExecutor(2) as pool:
            together = list(pool.map(lambda answer: answer(), mixed))
    assert together[::2] + together[1::2] == alone


def test_streams_may_be_read_by_turns() -> None:
    model = sd.Model(made("llama", "float16"), TOKENIZER)
    alone = [model.generate(ids, max_new_tokens=30, drafter=None).tokens for ids in PROMPTS[:2]]
    streams = [model.stream(ids, max_new_tokens=30, drafter=None) for ids in PROMPTS[:2]]
    said: list[tuple[int, ...]] = [(), ()]
    for pieces in zip(*streams, strict=True):
        for i, piece in enumerate(pieces):
            said[i] += piece.tokens
    assert said == alone


def in_a_fork(check: Callable[[], bool]) -> None:
    """`check` holds in a forked process. A process that waits for ever is killed, and fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of any thread when they fork
        child = os.fork()
    if child == 0:
        signal.alarm(60)
        os._exit(0 if check() else 1)
    _, status = os.waitpid(child, 0)
    assert status == 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_forked_process_has_threads_of_its_own(count: int) -> None:
    """As servers do that load a model once. The child would wait for ever on threads that it did not inherit."""
    lm, row = made("llama", "float16"), Row(0, (1, 2, 3), (-1, 0, 0))
    with threads(count):
        expected = logits(lm, opened(lm, PROMPTS[1]), row)
        in_a_fork(lambda: torch.equal(logits(lm, opened(lm, PROMPTS[1]), row), expected))
        assert torch.equal(logits(lm, opened(lm, PROMPTS[1]), row), expected)


@pytest.mark.parametrize("count", [1, 2])
def test_an_interrupt_before_a_share_is_run_leaves_the_model_usable(count: int) -> None:
    """Ctrl-C, when the other threads already run theirs and wait for this one at a barrier."""
    lm = made("llama", "float16")

    def usable() -> bool:
        before, run = logits(lm, opened(lm, PROMPTS[1]), Row(0, (1,), (-1,))), cpu.program.run

        def interrupted(*shares: Any) -> None:
            if shares[-2] == 0:
                raise KeyboardInterrupt
            run(*shares)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cpu.program, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                opened(lm, PROMPTS[1])
        return torch.equal(logits(lm, opened(lm, PROMPTS[1]), Row(0, (1,), (-1,))), before)

    with threads(count):
        in_a_fork(usable)


def test_an_interrupt_while_shares_are_handed_out_leaves_the_model_usable() -> None:
    """Ctrl-C as the pool has taken a share and not returned yet: its thread waits at a barrier for one that never
    comes."""
    lm = made("llama", "float16")

    def usable() -> bool:
        before = logits(lm, opened(lm, PROMPTS[1]), Row(0, (1,), (-1,)))

        def interrupted(self: ThreadPoolExecutor, *share: Any) -> None:
            submit(self, *share)
            raise KeyboardInterrupt

        submit = ThreadPoolExecutor.submit
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ThreadPoolExecutor, "submit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                opened(lm, PROMPTS[1])
        return torch.equal(logits(lm, opened(lm, PROMPTS[1]), Row(0, (1,), (-1,))), before)

    with threads(2):
        in_a_fork(usable)


def test_scratch_memory_grows_with_rows_slots_and_threads() -> None:
    """And one session that is longer than all before does not disturb the next one."""
    lm, said = made("llama, biases", "float16", max_position_embeddings=1024), []
    for count, length in ((1, 5), (1, 600), (2, 5), (1, 5)):
        with threads(count):
            logits(lm, opened(lm, tokens(length)), Row.chain(0, tokens(length // 2 + 1)))
            said.append(logits(lm, opened(lm, PROMPTS[1]), Row.chain(0, (1, 2, 3))))
    assert all(torch.equal(other, said[0]) for other in said)


def test_code_is_compiled_without_a_folder_to_keep_it_in() -> None:
    """numba raises RuntimeError where it finds no place to write."""
    asked: list[bool] = []

    def decorate(cache: bool) -> str:
        asked.append(cache)
        if cache:
            raise RuntimeError("no locator available")
        return "compiled"

    assert calls.kept(decorate) == "compiled"
    assert asked == [True, False]
