"""Cascades: a cheaper drafter guesses what the draft model will draft. It saves passes and changes nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from stubs import BranchLM, ScriptLM, StubLM, Watched, decode, fix, plain, stub, torn

from specdecode.drafters import make_drafter
from specdecode.drafters.lm import DraftLM
from specdecode.errors import BadOption
from specdecode.sampling import Sampling
from specdecode.types import Draft

LOOP = [5, 6, 7, 8, 9] * 20


def drafts(drafter: Any, rule: str = "greedy", lm: Any = None) -> list[Any]:
    watched = Watched(drafter)
    sampling = Sampling() if rule == "greedy" else Sampling(temperature=1.0, seed=3)
    decode(lm or BranchLM(vocab=7), watched, [1, 2, 1, 2], n=60, rule=rule, sampling=sampling)
    return [(turn.draft.tokens, turn.draft.parents) for turn in watched.seen]


@pytest.mark.parametrize("rule", ["greedy", "coupled", "rejection"])
@pytest.mark.parametrize("tree", [None, "2x2", "dynamic:nodes=5:depth=3:top=2"])
def test_the_drafts_are_those_of_the_model_alone(rule: str, tree: str | None) -> None:
    small = torn(BranchLM(vocab=7))
    guesses = stub(lambda row, turn, session, budget: Draft((1, 2, 3, 1), (-1, 0, -1, 2))).drafter
    alone = drafts(DraftLM(small, tree=tree), rule)
    others = [DraftLM(torn(BranchLM(vocab=7), 4), k=3)] if rule != "rejection" else []  # there it draws for itself
    for ahead in ("ngram", guesses, *others):
        assert drafts(DraftLM(small, tree=tree, ahead=ahead), rule) == alone


def test_right_guesses_save_passes() -> None:
    small = ScriptLM(LOOP)
    decode(ScriptLM(LOOP), DraftLM(small, k=4), [1], n=100)
    slow, _ = len(small.passes), small.forget()
    (session,) = decode(ScriptLM(LOOP), DraftLM(small, k=4, ahead="ngram"), [1], n=100)
    assert session.new_tokens == LOOP
    assert slow == 80
    assert len(small.passes) <= 80 / 4 + 6, "one pass a draft, once the loop has been seen"


def test_three_models_in_a_row() -> None:
    smallest, small = ScriptLM(LOOP), ScriptLM(LOOP)
    ahead = DraftLM(smallest, k=4, ahead="ngram")
    (session,) = decode(ScriptLM(LOOP), DraftLM(small, k=4, ahead=ahead), [1], n=100)
    assert session.new_tokens == LOOP
    assert len(small.passes) == 20
    assert len(smallest.passes) < 30


def test_wrong_guesses_cost_rows_alone() -> None:
    small = ScriptLM(LOOP)
    decode(ScriptLM(LOOP), DraftLM(small, k=4, ahead=fix([3, 3]).drafter), [1], n=100)
    assert len(small.passes) == 80
    assert {p.nodes for p in small.passes} <= {1, 2, 3, 4}


def test_guesses_that_the_model_cannot_read_are_left_out() -> None:
    """Fault 54: ids beyond its vocabulary, and positions beyond its context."""
    small = StubLM(ScriptLM(LOOP, vocab=10).law, 10, context=12)
    (session,) = decode(ScriptLM(LOOP), DraftLM(small, k=4, ahead=fix([5, 50, 6]).drafter), [1], n=40)
    assert session.new_tokens == plain(ScriptLM(LOOP), [1], 40)
    (session,) = decode(ScriptLM(LOOP), DraftLM(small, k=4, ahead=fix([5, 6, 7, 8, 9, 5, 6]).drafter), [1], n=40)
    assert session.new_tokens == LOOP[:40]


@pytest.mark.parametrize("rule", ["greedy", "coupled", "rejection"])
def test_a_drafter_ahead_may_have_ids_that_the_target_has_not(rule: str) -> None:
    """As may the model that it drafts for."""
    wide = [BranchLM(vocab=12, seed=seed) for seed in (1, 2)]
    drafts(DraftLM(wide[0], tree="2x2", ahead=DraftLM(wide[1], tree="2x2")), rule)


@pytest.mark.parametrize(
    ("ahead", "says"),
    [
        (7, "ahead=7 is no drafter"),
        ("none", "'none' does not exist"),
        ("layer_skip", "'layer_skip' cannot draft for a draft model"),
        ("early_exit", "'early_exit' cannot draft for a draft model"),
    ],
)
def test_what_cannot_go_ahead_is_refused(ahead: Any, says: str) -> None:
    with pytest.raises(BadOption, match=says):
        make_drafter("lm", lm=BranchLM(), ahead=ahead)
