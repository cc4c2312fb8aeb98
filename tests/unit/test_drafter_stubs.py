"""The stand-ins themselves: they do what their names say, and object to what they promise to object to."""

from __future__ import annotations

import pytest
import torch
from stubs import (
    BranchLM,
    DistLM,
    ScriptLM,
    Spy,
    Watched,
    anti,
    decode,
    drawn_tree,
    fix,
    make_session,
    measured,
    mix,
    oracle,
    plain,
    primed,
    stub,
    top_tree,
)

from specdecode.sampling import Sampling
from specdecode.types import Budget, Draft, Row

TRUTH = plain(BranchLM(vocab=7), [1, 2], 40)
TREES = {
    "top": lambda law: top_tree(law, (2, 1, 9)),
    "drawn": lambda law: drawn_tree(law, (2, 2)),
    "drawn with replacement": lambda law: drawn_tree(law, (3, 1, 1), replacement=True),
}


@pytest.mark.parametrize(
    ("drafter", "accepted"),
    [
        (oracle(TRUTH), [4, 4, 4]),
        (anti(TRUTH, vocab=7), [0, 0, 0]),
        (mix(TRUTH, (2, 0, 4), vocab=7), [2, 0, 4]),
        (oracle(TRUTH, lengths=(0, 3)), [0, 3, 0]),
        (oracle({(1, 2): TRUTH}, k=1), [1, 1, 1]),
    ],
)
def test_scripted_drafters_are_right_as_often_as_asked(drafter: Watched, accepted: list[int]) -> None:
    (session,) = decode(BranchLM(vocab=7), drafter, [1, 2], n=40)
    assert session.new_tokens == TRUTH
    assert [turn.verdict.accepted for turn in drafter.seen[:3]] == accepted


def test_rows_of_a_batch_may_have_their_own_patterns() -> None:
    truth = {(row,): plain(BranchLM(vocab=7), [row], 20) for row in range(3)}
    drafter = mix(truth, (4, 4, 4), (0, 0, 0), (2, 0, 4), vocab=7)
    decode(BranchLM(vocab=7), drafter, [0], [1], [2], n=20)
    accepted = [[turn.verdict.accepted for turn in drafter.seen if turn.row == row][:3] for row in range(3)]
    assert accepted == [[4, 4, 4], [0, 0, 0], [2, 0, 4]]


def test_fix_proposes_one_list_for_ever() -> None:
    drafter = fix([5, 6, 7])
    decode(ScriptLM([5, 6, 9, 5]), drafter, [1], n=4)
    assert [(turn.draft.tokens, turn.verdict.accepted) for turn in drafter.seen] == [((5, 6, 7), 2), ((), 0)]


@pytest.mark.parametrize("name", TREES)
@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_trees_leave_the_text_alone(name: str, rule: str) -> None:
    sampling = Sampling() if rule == "greedy" else Sampling(temperature=1, seed=2)
    texts = []
    for drafter in (oracle(TRUTH, k=0), TREES[name](BranchLM(vocab=7, seed=1).law)):
        sessions = decode(BranchLM(vocab=7), drafter, [1, 2], [3], n=40, rule=rule, sampling=sampling)
        texts.append([session.new_tokens for session in sessions])
    assert texts[0] == texts[1]
    assert measured(*sessions).acceptance_rate > 0


def test_drawn_siblings_share_their_law_and_differ_without_replacement() -> None:
    target = BranchLM(vocab=7)
    session = make_session(target, [1], Sampling(temperature=1, seed=0), rule="rejection")
    for replacement in (False, True):
        tree = drawn_tree(target.law, (7, 1), replacement=replacement)
        (draft,) = tree.begin([session], target, target.open([session.prompt])).draft([0], [Budget(2)])
        siblings = [node for node in range(len(draft)) if draft.parents[node] == -1]
        assert len({id(draft.law(node)) for node in siblings}) == 1
        assert len({draft.tokens[node] for node in siblings}) == 7 or replacement
        assert torch.equal(draft.law(0), target.law((1,), 0))
        assert torch.equal(draft.law(7), target.law((1, draft.tokens[draft.parents[7]]), 1))


def test_the_stub_model_scores_trees_by_path() -> None:
    lm = Spy(BranchLM(vocab=7))
    cache = primed(lm, (1, 2))
    (scores,) = lm.score(cache, [Row(0, (2, 3, 4, 5), (-1, 0, 0, 1))])
    (more,) = lm.score(cache, [Row(0, (6,), (2,), start=4)])
    law = lm.lm.law
    assert torch.equal(scores.logits, torch.stack([law(p, 0) for p in ((1, 2), (1, 2, 3), (1, 2, 4), (1, 2, 3, 5))]))
    assert torch.equal(more.logits[0], law((1, 2, 4, 6), 0))
    assert [p.positions for p in lm.passes] == [((1, 2, 2, 3),), ((3,),)]
    assert [p.positions for p in lm.lm.passes] == [p.positions for p in lm.passes]
    cache.keep(0, [0, 2, 4])
    assert cache.rows[0].tokens == [1, 2, 4, 6]


def test_misuse_of_a_model_or_a_drafter_is_caught() -> None:
    lm = DistLM([0.5, 0.5], context=4)
    cache = primed(lm, (0, 1), (0,))
    with pytest.raises(AssertionError, match="takes each row once"):
        lm.score(cache, [Row(0, (1,), (-1,)), Row(0, (1,), (-1,))])
    with pytest.raises(AssertionError, match="leaves the vocabulary"):
        lm.score(cache, [Row(0, (2,), (-1,))])
    with pytest.raises(AssertionError, match="leaves the context"):
        lm.score(cache, [Row(0, (1, 1, 1, 1), (-1, 0, 1, 2))])
    with pytest.raises(AssertionError, match="only 0 nodes stand"):
        lm.score(cache, [Row(1, (1,), (0,), start=1)])
    lm.score(cache, [Row(0, (1, 0, 1), (-1, 0, 0))])
    with pytest.raises(AssertionError, match="no path from the root"):
        cache.keep(0, [0, 1, 2])
    cache.release(0)
    with pytest.raises(AssertionError, match="was released"):
        lm.score(cache, [Row(0, (1,), (-1,))])
    greedy = stub(lambda row, turn, session, budget: Draft.chain([1] * 9))
    with pytest.raises(AssertionError, match="exceeds"):
        decode(DistLM([0.5, 0.5]), greedy, [0], n=5)
