"""Prompt lookup: what is drafted, and what the rows of a batch and one request after another owe each other."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from stubs import BranchLM, ScriptLM, Watched, decode, make_session, oracle, plain

from specdecode.drafters.ngram import Lookup, Ngram
from specdecode.types import Budget

WIDE = Budget(depth=64)


def lookup(tokens: Sequence[int], budget: Budget = WIDE, options: Ngram | None = None) -> list[int]:
    """The draft after `tokens`."""
    session = make_session(ScriptLM([]), tokens)
    (draft,) = Lookup(options or Ngram(), [session]).draft([0], [budget])
    assert draft.q is None, "a copied token is a point mass"
    return list(draft.tokens)


def test_the_longest_match_wins_and_of_equal_ones_the_latest() -> None:
    assert lookup([1, 2, 3, 40, 9, 2, 3, 50, 1, 2, 3], options=Ngram(k=1)) == [40], "three tokens beat two"
    assert lookup([1, 2, 3, 40, 1, 2, 3, 50, 1, 2, 3], options=Ngram(k=1)) == [50], "the latest of equals"
    text = [1, 2, 3, 40, 9, 2, 3, 50, 1, 2, 3]
    assert lookup(text, options=Ngram(k=1, max_match=2)) == [50], "matches count as max_match tokens at most"


def test_a_short_match_is_no_match() -> None:
    assert lookup([1, 2, 3, 9, 3]) == []
    assert lookup([1, 2, 3, 9, 3], options=Ngram(min_match=1, k=2)) == [9, 3]
    assert lookup([1, 2, 3, 9, 2, 3], options=Ngram(min_match=3)) == []


@pytest.mark.parametrize("period", [1, 2, 3, 5])
def test_a_period_goes_on_as_far_as_k(period: int) -> None:
    """The match reaches into the suffix itself; the draft goes on with what it drafted."""
    block = list(range(10, 10 + period))
    text = (block * 20)[: 4 * period + 3]
    draft = lookup(text, options=Ngram(k=23))
    assert [*text, *draft] == (block * 40)[: len(text) + 23]


def test_the_suffix_does_not_match_itself() -> None:
    """Fault 85: without a repeated n-gram there is no draft at all, and never a filler."""
    assert lookup([1]) == []
    assert lookup([1, 2, 3, 4, 5]) == []
    assert lookup([0, 0]) == [], "one repeated token is shorter than min_match"


def test_no_match_drafts_nothing_and_says_so() -> None:
    """Fault 85: proposals are empty, drafted is 0, and the rate is unknown instead of 0."""
    script = list(range(20, 60))
    watched, target = Watched(Ngram()), ScriptLM(script)
    (session,) = decode(target, watched, [1, 2, 3], n=40)
    assert session.new_tokens == script
    assert {len(turn.draft) for turn in watched.seen} == {0}
    assert sum(record.drafted for record in session.records) == 0
    assert [p.nodes for p in target.passes] == [1] * 40


@pytest.mark.parametrize(("depth", "nodes", "expected"), [(3, 64, 3), (64, 2, 2), (0, 64, 0), (-1, 64, 0), (64, 0, 0)])
def test_the_budget_cuts_the_draft(depth: int, nodes: int, expected: int) -> None:
    """Fault 49: no draft reaches past what may still be emitted."""
    assert len(lookup([1, 2, 3, 4] * 5, Budget(depth, nodes))) == expected


@pytest.mark.parametrize("n", range(1, 11))
def test_the_output_ends_on_time(n: int) -> None:
    """Fault 45, 49: exactly n tokens, and no draft longer than what remains after the next token."""
    watched, target = Watched(Ngram(k=8)), ScriptLM([1, 2, 3, 4] * 10)
    (session,) = decode(target, watched, [1, 2, 3, 4, 1, 2, 3, 4], n=n)
    assert session.new_tokens == ([1, 2, 3, 4] * 10)[:n]
    assert all(len(turn.draft) <= n - (len(turn.prefix) - 8) - 1 for turn in watched.seen)
    assert max(position for p in target.passes for row in p.positions for position in row) < 8 + n


def test_empty_and_full_drafts_in_turns() -> None:
    """Fault 84: an empty draft feeds one token and emits one; nothing drifts over 200 tokens."""
    script = [i * 7 % 90 for i in range(200)]
    target, watched = ScriptLM(script), oracle(script, lengths=(0, 3))
    (session,) = decode(target, watched, [10, 3], n=200)
    assert session.new_tokens == script
    assert [p.nodes for p in target.passes] == [1 + len(turn.draft) for turn in watched.seen]
    assert {len(turn.verdict.tokens) for turn in watched.seen if not turn.draft.tokens} == {1}


def test_lookup_alternates_between_hits_and_misses() -> None:
    """Fault 84, with real lookups: hits, misses and rejected drafts in one text."""
    rng = random.Random(3)
    script: list[int] = []
    while len(script) < 200:
        script += [50, 51, 52, 53, 54, *(rng.randrange(49) for _ in range(rng.randint(1, 4)))]
    watched = Watched(Ngram(k=3))
    (session,) = decode(ScriptLM(script), watched, [10, 3], n=200)
    assert session.new_tokens == script[:200]
    assert {0, 3} <= {len(turn.draft) for turn in watched.seen}
    assert {0, 3} <= {turn.verdict.accepted for turn in watched.seen if len(turn.draft) == 3}


def test_one_object_serves_one_request_after_another() -> None:
    """Fault 86: what an earlier request said is gone; each request drafts like the first of a fresh object."""
    used = Ngram()
    for prompt in ([1, 2, 3, 4] * 8, [30, 31, 32, 30], [1, 2, 3, 4, 1, 2]):
        again, fresh = Watched(used), Watched(Ngram())
        for watched in (again, fresh):
            decode(BranchLM(vocab=40, seed=4), watched, prompt, n=30)
        assert [turn.draft.tokens for turn in again.seen] == [turn.draft.tokens for turn in fresh.seen]


def test_the_rows_of_a_batch_know_nothing_of_each_other() -> None:
    """Fault 68: each row of a batch drafts and says what it does alone, in any order."""
    prompts = [
        [1, 2, 3] * 4,
        [4, 5] * 9,
        [6] * 5,
        [7, 8, 9, 10] * 3,
        [11],
        [12, 13],
        [14, 15, 16, 17, 18],
        [19, 20, 21],
    ]
    alone = {}
    for prompt in prompts:
        watched = Watched(Ngram())
        (session,) = decode(BranchLM(vocab=30, scale=4), watched, prompt, n=25)
        alone[tuple(prompt)] = ([turn.draft.tokens for turn in watched.seen], session.new_tokens)
        assert session.new_tokens == plain(BranchLM(vocab=30, scale=4), prompt, 25)
    for order in (prompts, random.Random(0).sample(prompts, len(prompts))):
        watched = Watched(Ngram())
        sessions = decode(BranchLM(vocab=30, scale=4), watched, *order, n=25)
        for row, (prompt, session) in enumerate(zip(order, sessions, strict=True)):
            drafts = [turn.draft.tokens for turn in watched.seen if turn.row == row]
            assert (drafts, session.new_tokens) == alone[tuple(prompt)]


def test_an_ended_session_frees_its_automaton() -> None:
    """Fault 104: nothing of a session outlives it."""
    lookup = Lookup(Ngram(), [make_session(ScriptLM([]), [1, 2, 3]), make_session(ScriptLM([]), [4, 5])])
    lookup.draft([0, 1], [WIDE, WIDE])
    lookup.release(0)
    assert list(lookup._automata) == [1]
    lookup.draft([1], [WIDE])
