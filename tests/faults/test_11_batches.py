"""Kind 11: each row of a batch is as alone. With real tensors: tests/parity/test_greedy_parity.py."""

from __future__ import annotations

import random

import pytest
from enroll import LOSSLESS, METHODS
from stubs import Turn, mix
from whole import base, habit, make, run

from specdecode.sampling import Sampling

PROMPTS = [
    *((1, 2, 3, 4) * 3, (5, 6) * 4, (7,) * 7, (8, 9, 10) * 5),
    *((11,), (12, 13), (14, 15, 16, 17, 18), (19, 20, 21)),
]
"""Half of them repeat themselves."""


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize("method", METHODS)
def test_a_ragged_batch(method: str, rule: str) -> None:
    """Fault 68: a batch of eight, then shuffled; each row, with its own seed, drafts and says what it does alone. But
    for auto, which drafts where it pays most for all: its rows just say the same."""

    def speak(rows: list[int]) -> dict[int, tuple[list[int], list[tuple[int, ...]]]]:
        pair, temperature = habit(), 0 if rule == "greedy" else 1
        drafter = make(method, pair)
        laws = [Sampling(temperature=temperature, seed=row) for row in rows]
        sessions = run(pair.target, drafter, *[PROMPTS[row] for row in rows], n=25, rule=rule, sampling=laws)
        return {
            row: (s.new_tokens, [] if method == "auto" else drafts(drafter.seen, i))
            for i, (row, s) in enumerate(zip(rows, sessions, strict=True))
        }

    alone = {row: speak([row])[row] for row in range(8)}
    assert speak(list(range(8))) == alone
    assert speak(random.Random(0).sample(range(8), 8)) == alone


def drafts(seen: list[Turn], row: int) -> list[tuple[int, ...]]:
    return [turn.draft.tokens for turn in seen if turn.row == row]


def test_each_row_accepts_for_itself() -> None:
    """Fault 69: rows that accept everything, nothing and something; text and counts of each are its own."""
    prompts, patterns = [(1, 2), (5, 6, 7), (9,)], [(4, 4, 4), (0, 0, 0), (2, 0, 4)]
    truth = {prompt: base(habit().target, prompt, n=41) for prompt in prompts}
    sessions = run(habit().target, mix(truth, *patterns, vocab=23), *prompts, n=41)
    for prompt, pattern, session in zip(prompts, patterns, sessions, strict=True):
        (alone,) = run(habit().target, mix(truth, pattern, vocab=23), prompt, n=41)
        assert session.new_tokens == alone.new_tokens == truth[prompt]
        accepted = [record.accepted for record in session.records]
        assert accepted == [record.accepted for record in alone.records]
        assert accepted[:8] == (list(pattern) * 8)[:8]
