"""Kind 07: never too long, never too short, and no work that could not be used."""

from __future__ import annotations

import pytest
from enroll import METHODS
from stubs import ScriptLM, oracle
from whole import PROMPT, Pair, base, habit, make, metrics, run, say

from specdecode.tree import depths

EOS = 22


@pytest.mark.parametrize("method", METHODS)
def test_exactly_as_many_as_asked_for(method: str) -> None:
    """Fault 45: max_new_tokens of 1 to 8 with drafts of 5, on a prompt that repeats itself."""
    for n in range(1, 9):
        pair = habit()
        assert say(pair.target, make(method, pair, k=5), PROMPT, n=n) == base(pair.target, PROMPT, n=8)[:n]


@pytest.mark.parametrize("method", [*METHODS, "oracle"])
def test_no_end_before_the_minimum(method: str) -> None:
    """Fault 47: the text wants to end from index 2 on and may from index 6; the window that straddles it is barred from
    ending below 6 only."""
    target = ScriptLM([5, 6], 23, filler=EOS)
    want = [5, 6, 0, 0, 0, 0, EOS]
    asked = {"n": 12, "min_new_tokens": 6, "eos": [EOS]}
    assert base(target, PROMPT, **asked) == want
    drafter = oracle(want, k=4) if method == "oracle" else make(method, Pair(target, target, target.law), k=4)
    (session,) = run(target, drafter, PROMPT, **asked)
    assert session.new_tokens == want
    assert session.finish_reason == "eos"
    if method == "oracle":
        assert [record.emitted for record in session.records] == [5, 2], "the second window straddles the minimum"


@pytest.mark.parametrize("method", [*METHODS, "oracle"])
def test_no_draft_past_the_end(method: str) -> None:
    """Fault 49: 10 new tokens with drafts of 8: no path longer than what remains after the next token, no position past
    the end for target or drafter, and what is reported as drafted was drafted."""
    pair = habit()
    truth = base(pair.target, PROMPT, n=10)
    del pair.target.passes[:]
    drafter = oracle(truth, k=8) if method == "oracle" else make(method, pair, k=8)
    (session,) = run(pair.target, drafter, PROMPT, n=10)
    assert session.new_tokens == truth
    drafted = 0
    for draft, prefix in ((turn.draft, turn.prefix) for turn in drafter.seen):
        lengths = [depth + 1 for depth in depths(draft.parents)]
        assert max(lengths, default=0) <= 10 - (len(prefix) - len(PROMPT)) - 1
        drafted += max((length for node, length in enumerate(lengths) if draft.is_candidate(node)), default=0)
    assert metrics(session).drafted == drafted
    fed = [position for p in (*pair.target.passes, *pair.small.passes) for row in p.positions for position in row]
    assert max(fed) < len(PROMPT) + 10
