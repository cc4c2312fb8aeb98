"""Kind 06, as far as the engine goes: where a scanner ends a session, tokens, log-probabilities, counts, cache and
chance all end. Real tokenizers and text are tested in tests/unit/test_text_*.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from enroll import LOSSLESS, METHODS
from stubs import ScriptLM, oracle
from whole import Generation, begin, habit, make, metrics

from specdecode.drafters import Drafter
from specdecode.models.lm import LM
from specdecode.sampling import Sampling

LETTERS = "abcdefghijklmnopqrstuvw"  # one a token of the habit pair
PROMPT = [1, 2, 3, 1, 2, 3]


@dataclass(frozen=True)
class Find:
    """A scanner for one token a character."""

    stop: str

    def scan(self, tokens: Sequence[int]) -> int | None:
        at = "".join(LETTERS[token] for token in tokens).find(self.stop)
        return None if at < 0 else at + len(self.stop)


def ids(text: str) -> list[int]:
    return [LETTERS.index(letter) for letter in text]


def stopped(lm: LM, drafter: Drafter, stop: str | None, **options: Any) -> Generation:
    """A finished generation of one session with a stop string."""
    generation = begin(lm, drafter, PROMPT, **options)
    (session,) = generation.sessions
    if stop is not None:
        session.stopping = replace(session.stopping, scanner=Find(stop))
    for _ in generation:
        pass
    return generation


def test_a_stop_string_early_in_a_long_window() -> None:
    """Fault 41: all of the text is accepted in one step; it still stops where the stop string is complete."""
    script = ids("wabvabwvuts")
    generation = stopped(ScriptLM(script, 23), oracle(script, k=12), "ab", n=12)
    (session,) = generation.sessions
    assert session.new_tokens == ids("wab")
    assert session.finish_reason == "stop"
    assert metrics(session).steps == 1


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize("method", METHODS)
def test_everything_ends_at_the_same_token(method: str, rule: str) -> None:
    """Faults 42 and 44: tokens, log-probabilities, counts and cache end with the token that completes the stop string;
    up to there the text of a seed is the one without a stop."""
    asked = {
        "n": 40,
        "rule": rule,
        "logprobs": 1,
        "sampling": Sampling(temperature=0 if rule == "greedy" else 1, seed=2),
    }
    pair = habit()
    (free,) = stopped(pair.target, make(method, pair), None, **asked).sessions
    stop = "".join(LETTERS[token] for token in free.new_tokens[9:11])
    pair = habit()
    generation = stopped(pair.target, make(method, pair), stop, **asked)
    (session,) = generation.sessions
    assert session.finish_reason == "stop"
    n = Find(stop).scan(free.new_tokens)
    assert session.new_tokens == free.new_tokens[:n]
    assert [entry.token for entry in session.logprobs] == session.new_tokens
    assert metrics(session).emitted == n
    assert generation._cache.rows[0].tokens == [*PROMPT, *session.new_tokens[:-1]]


@pytest.mark.parametrize("lengths", [(2, 9), (3, 9), (4, 9), (0,), (1,)])
def test_a_stop_string_over_two_rounds(lengths: Sequence[int]) -> None:
    """Fault 44: d | ef, de | f and def in one round; the round in which it began is over."""
    script = ids("abcdefghij")
    drafter = oracle(script, lengths=lengths)
    (session,) = stopped(ScriptLM(script, 23), drafter, "def", n=10).sessions
    assert session.new_tokens == ids("abcdef")
    assert sum(record.emitted for record in session.records) == 6
