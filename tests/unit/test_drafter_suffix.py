"""Trees of what followed before: their shape, their confidences and their limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from stubs import BranchLM, ScriptLM, Watched, decode, make_session, plain

from specdecode.drafters import make_drafter
from specdecode.drafters.auto import Auto
from specdecode.drafters.ngram import RECURRENCE
from specdecode.drafters.suffix import Recalling, Suffix
from specdecode.errors import BadOption, Incompatible
from specdecode.models.lm import Capabilities
from specdecode.tree import depths, path_to
from specdecode.types import Budget, Draft

WIDE = Budget(depth=64)
ALL = Suffix(k=64, floor=0.0, width=64)


def draft(tokens: Sequence[int], budget: Budget = WIDE, options: Suffix = ALL, **stopping: object) -> Draft:
    """What is drafted after `tokens`."""
    session = make_session(ScriptLM([]), tokens, **stopping)
    (made,) = Recalling(options, [session], vocab=100).draft([0], [budget])
    assert made.is_chosen
    return made


def paths(made: Draft) -> dict[tuple[int, ...], float]:
    """The confidence of each node, by the tokens on its path."""
    assert made.confidence is not None
    return {
        tuple(made.tokens[i] for i in path_to(made.parents, node)): sure for node, sure in enumerate(made.confidence)
    }


def worth(made: Draft) -> list[float]:
    """[n] the probability of each node from the root."""
    assert made.confidence is not None
    out: list[float] = []
    for sure, parent in zip(made.confidence, made.parents, strict=True):
        out.append(sure * (out[parent] if parent >= 0 else 1.0))
    return out


def new(length: int) -> float:
    """How often something new comes behind a match, for each time that it occurred once."""
    return 1 / RECURRENCE[length - 1] - 1


def test_what_followed_once_is_as_sure_as_its_match_is_long() -> None:
    found = paths(draft([1, 2, 3, 4, 5, 6, 40, 41, 42, 1, 2, 3]))
    assert found[(4,)] == pytest.approx(RECURRENCE[2])
    assert found[(4, 5)] == pytest.approx(RECURRENCE[3])
    assert found[(4, 5, 6)] == pytest.approx(RECURRENCE[4])


def test_frequency_weighs_and_shorter_matches_have_the_rest() -> None:
    """[1, 2] was followed by 3 twice and by 4 once; [2] by 5 once more."""
    found = paths(draft([1, 2, 3, 50, 1, 2, 3, 51, 1, 2, 4, 52, 7, 2, 5, 53, 1, 2]))
    left = new(2) / (3 + new(2))
    below = 4 + new(1)
    assert found[(3,)] == pytest.approx(2 / (3 + new(2)) + left * 2 / below)
    assert found[(4,)] == pytest.approx(1 / (3 + new(2)) + left * 1 / below)
    assert found[(5,)] == pytest.approx(left * 1 / below)
    assert sum(found[(token,)] for token in (3, 4, 5)) < 1


def test_a_path_goes_on_from_the_longest_match() -> None:
    """[1, 2] was followed by [3, 4]; [2] alone by [3, 5] too, which weighs less."""
    found = paths(draft([1, 2, 3, 4, 50, 8, 2, 3, 5, 51, 1, 2]))
    assert found[(3, 4)] == pytest.approx(1 / (1 + new(3)) + new(3) / (1 + new(3)) / (2 + new(2)), abs=0.01)
    assert found[(3, 4)] > 2 * found[(3, 5)] > 0


def test_the_likeliest_nodes_come_first_and_a_smaller_budget_is_a_beginning() -> None:
    text = [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 6, 4, 1, 2, 3, 4, 7, 1, 2]
    whole = draft(text)
    values = worth(whole)
    assert values == sorted(values, reverse=True)
    assert len({(p, t) for p, t in zip(whole.parents, whole.tokens, strict=True)}) == len(whole) > 20
    for n in (1, 2, 5, 11):
        assert draft(text, Budget(64, n)).tokens == whole.tokens[:n]
        assert draft(text, options=replace(ALL, k=n)).tokens == whole.tokens[:n]


def test_floor_and_width_cut_the_tree() -> None:
    text = [1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 6, 4, 1, 2, 3, 4, 7, 1, 2]
    whole = worth(draft(text))
    assert worth(draft(text, options=replace(ALL, floor=0.2))) == [value for value in whole if value >= 0.2]
    chain = draft(text, options=replace(ALL, width=1))
    assert chain.parents == tuple(range(-1, len(chain) - 1))


@pytest.mark.parametrize("text", [[1], [1, 2, 3, 4], []])
def test_nothing_that_came_before_is_nothing_to_draft(text: list[int]) -> None:
    """Fault 85."""
    assert len(draft(text)) == 0


@pytest.mark.parametrize("period", [1, 2, 3, 5])
def test_a_period_goes_on(period: int) -> None:
    block = list(range(10, 10 + period))
    text = (block * 20)[: 6 * period + 3]
    made = draft(text, options=replace(ALL, width=1, k=23))
    assert [*text, *made.tokens] == (block * 40)[: len(text) + 23]


@pytest.mark.parametrize(("depth", "nodes"), [(0, 64), (-1, 64), (64, 0), (1, 64), (3, 5), (2, 1)])
def test_the_budget_is_kept(depth: int, nodes: int) -> None:
    """Fault 49."""
    made = draft([1, 2, 3, 1, 2, 4, 1, 2, 3, 4, 1, 2] * 3, Budget(depth, nodes))
    assert len(made) <= max(0, nodes)
    assert max(depths(made.parents), default=-1) < max(0, depth)
    assert (len(made) > 0) == (depth > 0 and nodes > 0)


def test_nothing_follows_a_token_that_ends_the_answer() -> None:
    text = [1, 2, 3, 4, 5, 1, 2]
    assert (3, 4) in paths(draft(text))
    assert all(3 not in path[:-1] for path in paths(draft(text, stop_ids=frozenset({3}))))


def test_it_decodes_and_may_be_a_source_of_auto() -> None:
    prompt = [1, 2, 3, 4, 5] * 4
    script = ([1, 2, 3, 4, 5] * 12)[:50]
    for drafter in (Suffix(), Auto((Suffix(),), curve=lambda rows, context: 1 + rows / 100, clock=lambda: 0.0)):
        watched = Watched(drafter)
        (session,) = decode(ScriptLM(script), watched, prompt, n=50)
        assert session.new_tokens == script
        assert len(watched.seen) < 8


def test_rows_know_nothing_of_each_other() -> None:
    """Fault 68: each row of a batch drafts and says what it does alone."""
    prompts = [[1, 2, 3] * 4, [4, 5] * 9, [6] * 5, [11], [1, 2, 3, 1]]
    lm = BranchLM(vocab=30, scale=4)
    watched = Watched(Suffix())
    sessions = decode(lm, watched, *prompts, n=25)
    for row, (prompt, session) in enumerate(zip(prompts, sessions, strict=True)):
        alone = Watched(Suffix())
        decode(lm, alone, prompt, n=25)
        assert [t.draft.tokens for t in watched.seen if t.row == row] == [t.draft.tokens for t in alone.seen]
        assert session.new_tokens == plain(BranchLM(vocab=30, scale=4), prompt, 25)


def test_one_object_serves_one_request_after_another() -> None:
    """Fault 86: without a memory, what an earlier request said is gone."""
    used = Suffix()
    for prompt in ([1, 2, 3, 4] * 8, [30, 31, 32, 30], [1, 2, 3, 4, 1, 2]):
        again, fresh = Watched(used), Watched(Suffix())
        for watched in (again, fresh):
            decode(BranchLM(vocab=40, seed=4), watched, prompt, n=30)
        assert [turn.draft.tokens for turn in again.seen] == [turn.draft.tokens for turn in fresh.seen]


def test_an_ended_session_frees_its_automaton() -> None:
    """Fault 104."""
    recalling = Recalling(ALL, [make_session(ScriptLM([]), ids) for ids in ([1, 2, 3], [4, 5])], 100)
    recalling.release(0)
    assert list(recalling._automata) == list(recalling._sessions) == [1]
    recalling.draft([1], [WIDE])


def test_a_model_that_scores_no_trees_is_asked_for_chains() -> None:
    lm = ScriptLM([1, 2, 3] * 9)
    lm.capabilities = Capabilities(trees=False)
    with pytest.raises(Incompatible, match=r"'suffix' drafts trees, which this target cannot score; give it width=1"):
        decode(lm, Suffix(), [1, 2, 3])
    (session,) = decode(lm, Suffix(width=1), [1, 2, 3], n=20)
    assert session.new_tokens == ([1, 2, 3] * 9)[:20]


@pytest.mark.parametrize(
    ("option", "bad"), [("k", 0), ("k", 1.5), ("width", 0), ("floor", -0.1), ("floor", 2), ("floor", True)]
)
def test_other_options_are_refused(option: str, bad: object) -> None:
    with pytest.raises(BadOption, match=rf"'suffix': {option}={bad!r} "):
        make_drafter("suffix", **{option: bad})
