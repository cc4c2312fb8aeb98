"""Kind 15, ids only: what is handed out step by step is what was said. Text is tested in tests/unit/test_text_*.py."""

from __future__ import annotations

import random

import pytest
from enroll import LOSSLESS, METHODS, ONE_TEXT
from stubs import Watched, mix
from whole import PROMPT, base, begin, habit, make

from specdecode.sampling import Sampling


def check_stream(drafter: Watched, rule: str, eos: list[int]) -> None:
    law = Sampling(temperature=0 if rule == "greedy" else 1, seed=9)
    pair = habit()
    generation = begin(pair.target, drafter, PROMPT, n=60, rule=rule, sampling=law, eos=eos)
    (session,) = generation.sessions
    streamed: list[int] = []
    ends = []
    for (emission,) in generation:
        streamed += emission.tokens
        ends.append(emission.finish_reason)
        assert session.tokens == [*PROMPT, *streamed]
        assert generation._cache.rows[0].tokens == session.tokens[:-1]
        assert drafter.seen[-1].verdict.tokens == emission.tokens
    assert session.new_tokens == streamed
    assert ends == [None] * (len(ends) - 1) + ["eos" if eos else "length"]
    assert len(streamed) == 60 or eos
    if rule in ONE_TEXT:
        assert streamed == base(habit().target, PROMPT, n=60, sampling=law, eos=eos)


@pytest.mark.parametrize("eos", [[], [13]], ids=["to the end", "stopped early"])
@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize("method", METHODS)
def test_stream_and_history_agree(method: str, rule: str, eos: list[int]) -> None:
    """Fault 89: streamed ids = new tokens of the session = committed tokens, each once and in order; one end."""
    check_stream(make(method, habit()), rule, eos)


@pytest.mark.parametrize("eos", [[], [13]], ids=["to the end", "stopped early"])
def test_stream_and_history_agree_after_random_acceptance(eos: list[int]) -> None:
    """Fault 89: the same with MIX[random]."""
    pattern = [random.Random(5).randrange(5) for _ in range(20)]
    check_stream(mix(base(habit().target, PROMPT, n=60), pattern, vocab=23), "greedy", eos)
