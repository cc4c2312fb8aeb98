"""The draft model: how far it drafts, in batches, and past what it can read."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import pytest
import torch
from stubs import (
    BranchLM,
    DistLM,
    ScriptLM,
    Spy,
    StubCache,
    StubLM,
    Watched,
    decode,
    make_session,
    measured,
    mix,
    plain,
    tiny,
    torn,
)
from torch import Tensor

from specdecode.drafters.lm import DraftLM
from specdecode.drafters.model_drafting import ModelDrafting
from specdecode.engine import Generation
from specdecode.models.hf import HFModel
from specdecode.sampling import Sampling
from specdecode.session import Session
from specdecode.types import EMPTY, Budget, Draft, Scores, Verdict
from specdecode.verify import make_rule

WIDE = Budget(depth=64)


def at_work(drafter: DraftLM, sessions: list[Session], vocab: int) -> ModelDrafting:
    """For a target of so many ids."""
    return drafter.begin(sessions, ScriptLM([0], vocab=vocab), StubCache([]))


# --- its draft length -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 10])
def test_no_draft_reaches_past_the_end(n: int) -> None:
    """Fault 49: near the end drafts shrink, the draft model runs no position that could not be used, and what counts as
    drafted was drafted."""
    script = list(range(10, 60))
    drafter = ScriptLM(script)
    watched = Watched(DraftLM(drafter, k=8))
    (session,) = decode(ScriptLM(script), watched, [1, 2, 3], n=n)
    assert session.new_tokens == script[:n]
    for turn in watched.seen:
        remaining = n - (len(turn.prefix) - 3)
        assert len(turn.draft) == min(8, remaining - 1)
    assert max((pos for p in drafter.passes for row in p.positions for pos in row), default=0) < 3 + n - 1
    assert measured(session).drafted == sum(len(turn.draft) for turn in watched.seen)


def test_the_node_budget_is_kept() -> None:
    session = make_session(ScriptLM([]), [1])
    (draft,) = at_work(DraftLM(ScriptLM([1, 2, 3])), [session], 97).draft([0], [Budget(depth=9, nodes=2)])
    assert draft.tokens == (1, 2)


def test_nothing_follows_a_drafted_end_token() -> None:
    """Rows behind an end token could never be used."""
    watched = Watched(DraftLM(ScriptLM([5, 9, 6, 7, 8]), k=5))
    (session,) = decode(ScriptLM([5, 9, 6, 7, 8]), watched, [1], n=10, stop_ids=frozenset({9}))
    assert session.new_tokens == [5, 9]
    assert [turn.draft.tokens for turn in watched.seen] == [(5, 9)]


def test_the_assisted_schedule() -> None:
    """Two more after a draft accepted whole, one less otherwise, never under 1 (facts.md section 4)."""
    script = [i * 7 % 90 for i in range(300)]
    wrong = {20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31}
    drafted = [95 if i in wrong else token for i, token in enumerate(script)]
    watched = Watched(DraftLM(ScriptLM(drafted), k=3, schedule="assisted"))
    (session,) = decode(ScriptLM(script), watched, [1], n=60)
    assert session.new_tokens == script[:60]
    lengths = [len(turn.draft) for turn in watched.seen]
    assert lengths[:3] == [3, 5, 7], "growing while all is right"
    assert lengths[3:15] == [9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1], "shrinking to 1 and no further"
    assert lengths[15:18] == [1, 3, 5]


def test_the_schedule_is_each_sessions_own() -> None:
    script = list(range(10, 90))
    target = ScriptLM(script)
    drafter = StubLM(lambda prefix, i: (1 if prefix[0] == 1 else -1) * target.law(prefix, i), 97)
    watched = Watched(DraftLM(drafter, k=3, schedule="assisted"))
    decode(target, watched, [1], [2], n=20)
    assert [len(turn.draft) for turn in watched.seen if turn.row == 0] == [3, 5, 7, 1]
    assert [len(turn.draft) for turn in watched.seen if turn.row == 1][:5] == [3, 2, 1, 1, 1]


def test_an_empty_draft_says_nothing_about_the_schedule() -> None:
    session = make_session(ScriptLM([]), [1], max_new_tokens=9)
    chains = at_work(DraftLM(ScriptLM([1, 2, 3, 4, 5]), k=3, schedule="assisted"), [session], 97)
    chains.observe(0, EMPTY, Verdict((1,), (), 0), Scores(torch.empty(1, 97)))
    session.tokens.append(1)
    assert len(chains.draft([0], [WIDE])[0]) == 3


@pytest.mark.parametrize(
    ("depth", "then"), [(0, 3), (64, 2)], ids=["what others drafted", "what it drafted beside them"]
)
def test_what_other_sources_had_accepted_is_not_its_own(depth: int, then: int) -> None:
    """Behind its own nodes, if any, stand those that another source had accepted."""
    session = make_session(ScriptLM([]), [1], max_new_tokens=20)
    chains = at_work(DraftLM(ScriptLM([9] * 20), k=3, schedule="assisted"), [session], 97)
    (own,) = chains.draft([0], [Budget(depth)])
    n = len(own)
    draft = Draft((*own.tokens, 1, 2), (*own.parents, -1, n))
    chains.observe(0, draft, Verdict((1, 2, 3), (n, n + 1), 2), Scores(torch.empty(n + 3, 97)))
    session.tokens += [1, 2, 3]
    assert len(chains.draft([0], [WIDE])[0]) == then


def test_drafting_stops_before_a_token_it_is_not_sure_of() -> None:
    """The unsure token itself is not drafted, and the decision looks at the law only."""
    sure, unsure = [0.9, 0.05, 0.05], [0.4, 0.3, 0.3]
    laws = [torch.tensor(p).log() for p in (sure, sure, unsure, sure)]
    drafter = StubLM(lambda prefix, i: laws[min(i, 3)], 3)
    watched = Watched(DraftLM(drafter, k=4, confidence=0.5))
    decode(DistLM(sure), watched, [0], n=20)
    assert [len(turn.draft) for turn in watched.seen[:3]] == [2, 4, 4]
    assert watched.seen[0].draft.tokens == (0, 0)
    decode(DistLM(sure), everything := Watched(DraftLM(drafter, k=4)), [0], n=20)
    assert len(everything.seen[0].draft) == 4


def test_an_unsure_draft_is_cut_by_its_law_and_not_by_its_token() -> None:
    """With a stop that looked at the drawn token, the drafted tokens would no longer follow q."""
    p = [0.6, 0.2, 0.2]
    drawn = [0, 0, 0]
    for seed in range(300):
        session = make_session(DistLM(p), [0], Sampling(temperature=1, seed=seed), rule="rejection")
        (draft,) = at_work(DraftLM(DistLM(p), k=1, confidence=0.5), [session], 3).draft([0], [WIDE])
        drawn[draft.tokens[0]] += 1
    assert sum(drawn) == 300
    assert abs(drawn[0] / 300 - 0.6) < 4.5 * math.sqrt(0.24 / 300)


# --- batches, and what it cannot read ---------------------------------------------------------------------------------


def test_a_batch_drafts_in_one_pass_a_depth() -> None:
    """Rows with a smaller budget drop out; none runs a pass of its own."""
    drafter = BranchLM()
    sessions = [make_session(BranchLM(), prompt) for prompt in ([1, 2, 3], [4], [0, 0])]
    drafts = at_work(DraftLM(drafter, k=4), sessions, 5).draft([0, 1, 2], [Budget(4), Budget(0), Budget(2)])
    assert [len(draft) for draft in drafts] == [4, 0, 2]
    assert [p.rows for p in drafter.passes] == [(0, 2), (0, 2), (0,), (0,)]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_rows_of_a_batch_are_as_alone(order: Sequence[int]) -> None:
    """Fault 68, 69: drafts, verdicts and text of a row do not depend on the others, nor on their end."""
    prompts = [[1, 2, 3], [4, 4, 4, 4, 4], [0], [6, 5]]
    lengths = [9, 40, 23, 30]

    def run(rows: Sequence[int]) -> dict[int, tuple[list[int], list[tuple[int, ...]]]]:
        target = BranchLM(vocab=7)
        watched = Watched(DraftLM(torn(target), k=4))
        sessions = [make_session(target, prompts[row], max_new_tokens=lengths[row]) for row in rows]
        for _ in Generation(target, watched, sessions, [make_rule("greedy")] * len(rows)):
            pass
        drafts = [[turn.draft.tokens for turn in watched.seen if turn.row == i] for i in range(len(rows))]
        return {row: (sessions[i].new_tokens, drafts[i]) for i, row in enumerate(rows)}

    batch = run(order)
    for row in order:
        assert batch[row] == run([row])[row]
        assert batch[row][0] == plain(BranchLM(vocab=7), prompts[row], lengths[row])


def test_real_models_in_a_batch() -> None:
    """Fault 68: the same with tensors, where rows of different length share a pass."""
    lm = HFModel(tiny())
    prompts = [[10, 3, 5], [7] * 20, [1]]
    watched = Watched(DraftLM(HFModel(tiny(seed=1)), k=3))
    sessions = decode(lm, watched, *prompts, n=30)
    assert [session.new_tokens for session in sessions] == [plain(lm, prompt, 30) for prompt in prompts]
    sessions = decode(lm, Watched(DraftLM(lm, k=3)), *prompts, n=30)
    assert {measured(session).acceptance_rate for session in sessions} == {1.0}


@pytest.mark.parametrize("length", [20, 31, 32, 33, 100])
def test_a_draft_model_of_less_context(length: int, caplog: pytest.LogCaptureFixture) -> None:
    """Fault 50: past its context there are no drafts, one warning, and the same text."""
    prompt = [i * 5 % 97 for i in range(length)]
    lm, drafter = HFModel(tiny()), Spy(HFModel(tiny(seed=1, max_position_embeddings=32)))
    watched = Watched(DraftLM(drafter))
    (session,) = decode(lm, watched, prompt, n=40)
    assert session.new_tokens == plain(lm, prompt, 40)
    assert any(len(turn.draft) for turn in watched.seen) == (length < 32)
    assert max((pos for p in drafter.passes for row in p.positions for pos in row), default=0) < 32
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "fill its context of 32" in caplog.text


def test_a_session_that_does_not_fit_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Fault 50: of a batch, only the rows that do not fit go without drafts; one warning in all."""
    script = list(range(10, 60))
    drafter = ScriptLM(script, context=16)
    watched = Watched(DraftLM(drafter, k=2))
    prompts = [[1] * 20, [2] * 3, [3] * 16, [4] * 12]
    sessions = decode(ScriptLM(script), watched, *prompts, n=9)
    assert [session.new_tokens for session in sessions] == [script[:9]] * 4
    assert drafter.opened == [[3, 12]]
    drafted = [sum(len(turn.draft) for turn in watched.seen if turn.row == row) for row in range(4)]
    assert drafted[0] == drafted[2] == 0
    assert drafted[1] == 6
    assert 0 < drafted[3] < 6
    assert len(caplog.records) == 1


def test_what_is_no_longer_drafted_for_frees_its_memory() -> None:
    """Fault 104: a row of the draft model's cache goes with its session, or once it cannot be read on."""
    drafter = ScriptLM(range(10, 60), context=16)
    sessions = [make_session(ScriptLM([]), [1] * 14), make_session(ScriptLM([]), [1] * 3)]
    chains = at_work(DraftLM(drafter), sessions, 97)
    sessions[0].tokens += [10, 11]
    assert [len(draft) for draft in chains.draft([0, 1], [WIDE, WIDE])] == [0, 5]
    assert [row.released for row in drafter.caches[0].rows] == [True, False]
    chains.release(0)
    chains.release(1)
    assert [row.released for row in drafter.caches[0].rows] == [True, True]


def test_drafts_go_right_up_to_the_edge_of_the_context() -> None:
    """Fault 50: no token of context is wasted, and none is exceeded (the stub asserts that)."""
    watched = Watched(DraftLM(ScriptLM(range(10, 60), context=16), k=4))
    decode(ScriptLM(range(10, 60)), watched, [1] * 3, n=30)
    ends = [len(turn.prefix) + len(turn.draft) for turn in watched.seen if len(turn.draft)]
    assert max(ends) == 16


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_broken_logits_end_the_drafts_and_not_the_text(broken: float, caplog: pytest.LogCaptureFixture) -> None:
    """Fault 76: the drafter's NaN or inf is a warning; output and the other sessions are as ever."""
    script = list(range(10, 60))

    def law(prefix: tuple[int, ...], index: int) -> Tensor:
        logits = ScriptLM(script).law(prefix, index).clone()
        if prefix[0] == 2 and index >= 5:
            logits[7] = broken
        return logits

    watched = Watched(DraftLM(StubLM(law, 97), k=3))
    sessions = decode(ScriptLM(script), watched, [1], [2], n=20)
    assert [session.new_tokens for session in sessions] == [script[:20]] * 2
    assert [len(turn.draft) for turn in watched.seen if turn.row == 1][:3] == [3, 1, 0]
    assert all(turn.verdict.accepted == len(turn.draft) for turn in watched.seen if turn.row == 0)
    assert len(caplog.records) == 1
    assert "logits are NaN or infinite" in caplog.text


def test_one_drafter_serves_many_generations_at_once() -> None:
    """Fault 86, 97: all state is in the drafting; two generations that take turns do not meet."""
    target = BranchLM(vocab=7)
    drafter = DraftLM(torn(target), k=3)
    sessions = [make_session(target, prompt, max_new_tokens=30) for prompt in ([1, 2], [6, 5, 4])]
    running = [Generation(target, drafter, [session], [make_rule("greedy")]) for session in sessions]
    while any(generation.active for generation in running):
        for generation in running:
            if generation.active:
                generation.step()
    assert [s.new_tokens for s in sessions] == [plain(BranchLM(vocab=7), p, 30) for p in ([1, 2], [6, 5, 4])]


def test_drafts_of_another_drafter_are_read_like_its_own() -> None:
    """A step may have been drafted by something else; what was accepted is the session's, whoever said it first."""
    truth = plain(BranchLM(vocab=7), [1, 2], 60)
    own, other = DraftLM(BranchLM(vocab=7), k=3), mix(truth, (3, 1, 0), k=3, vocab=7)

    class Turns:
        taps: tuple[int, ...] = ()

        def __init__(self, sessions, target, cache) -> None:
            self.parts = [own.begin(sessions, target, cache), other.drafter.begin(sessions, target, cache)]
            self.turn = 0

        def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
            self.turn += 1
            return self.parts[self.turn % 2].draft(rows, budgets)

        def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
            for part in self.parts:
                part.observe(row, draft, verdict, scores)

        def release(self, row: int) -> None:
            for part in self.parts:
                part.release(row)

    class Both:
        name = "both"

        def begin(self, *args):
            return Turns(*args)

    watched = Watched(Both())
    (session,) = decode(BranchLM(vocab=7), watched, [1, 2], n=60)
    assert session.new_tokens == truth
    ours = watched.seen[1::2]
    assert all(turn.verdict.accepted == len(turn.draft) for turn in ours), "its own drafts are always right"
