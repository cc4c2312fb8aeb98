"""The drafter that chooses: what it asks of its sources, what it cuts, what it learns, and what it tells.

How fast it is, is told by a clock of the tests' own in test_auto_speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from stubs import (
    Clock,
    DistLM,
    ScriptLM,
    Slow,
    TimedLM,
    Watched,
    chancy,
    decode,
    drawn_tree,
    fix,
    mix,
    oracle,
    top_tree,
)

from specdecode import costs
from specdecode.drafters import DEFAULT, DRAFTERS, make_drafter
from specdecode.drafters.auto import Auto
from specdecode.drafters.choosing import Decision
from specdecode.drafters.lm import DraftLM
from specdecode.drafters.merged import Merged
from specdecode.drafters.ngram import RECURRENCE, Ngram
from specdecode.errors import BadOption
from specdecode.sampling import Sampling
from specdecode.types import Budget, Draft, Scores, Verdict

SCRIPT = [5, 6, 7, 5, 6, 7, 5, 6, 8, 1, 2, 3, 1, 2, 3, 1] * 3
N = len(SCRIPT)


def cheap(rows: int, context: float) -> float:
    """A row costs next to nothing."""
    return 1 + 0.001 * rows


def auto(*sources: Any, **options: Any) -> Auto:
    made = tuple(source.drafter if isinstance(source, Watched) else source for source in sources)
    return Auto(made, **{"curve": cheap, "clock": Clock(), **options})


def decoded(drafter: Any, *prompts: Sequence[int], n: int = N, **options: Any) -> tuple[Watched, list[Any]]:
    watched = Watched(drafter)
    sessions = decode(ScriptLM(SCRIPT), watched, *(prompts or ([1, 2],)), n=n, **options)
    assert all(session.new_tokens == SCRIPT[:n] for session in sessions)
    return watched, sessions


class Log:
    """A source that notes what it is asked and told, and drafts what another does."""

    name = "log"

    def __init__(self, drafter: Any, model_free: bool = True) -> None:
        self.drafter, self.model_free = getattr(drafter, "drafter", drafter), model_free
        self.asked: list[tuple[list[int], list[Budget]]] = []
        self.told: list[tuple[int, Draft, Verdict, Scores]] = []
        self.released: list[int] = []

    def begin(self, *args: Any) -> Log:
        self.drafting = self.drafter.begin(*args)
        self.taps = (4,) if self.model_free else (2, 4)
        return self

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        self.asked.append((list(rows), list(budgets)))
        drafts: list[Draft] = self.drafting.draft(rows, budgets)
        return drafts

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        self.told.append((row, draft, verdict, scores))
        self.drafting.observe(row, draft, verdict, scores)

    def release(self, row: int) -> None:
        self.released.append(row)
        self.drafting.release(row)


class Untapped(Log):
    def begin(self, *args: Any) -> Log:
        super().begin(*args)
        self.taps = ()
        return self


def test_it_is_the_default() -> None:
    assert DEFAULT == "auto"
    assert DRAFTERS["auto"].needs is None
    assert make_drafter("auto") == Auto()
    assert [source.name for source in Auto().made] == list(Auto().sources)


def test_by_default_it_asks_lookups_for_more_than_they_draft_alone() -> None:
    (lookup,) = Auto().made
    assert isinstance(lookup, Ngram)
    assert lookup.k > Ngram().k
    assert lookup.min_match == 1


def test_what_is_worth_it_is_drafted() -> None:
    """Beside the first step, which is plain."""
    watched, _ = decoded(auto(oracle(SCRIPT, k=5)))
    assert [len(turn.draft) for turn in watched.seen[:3]] == [0, 5, 5]


def test_each_session_has_its_budget() -> None:
    """Watched asserts the engine's; `nodes` is the drafter's own."""
    watched, _ = decoded(auto(oracle(SCRIPT, k=9), nodes=3), [1], [2, 3])
    assert max(len(turn.draft) for turn in watched.seen) == 3


def test_drafts_are_cut_where_they_are_not_worth_their_rows() -> None:
    """A row costs a tenth of a pass. Only the confident beginning is worth that."""
    clock = Clock()
    lm = TimedLM(ScriptLM(SCRIPT), clock, lambda rows, context: 0.9 + 0.1 * rows)

    class Fading(Untapped):
        def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
            drafts = super().draft(rows, budgets)
            return [Draft.chain(d.tokens, confidence=(0.9, 0.9, 0.05, 0.9)[: len(d)]) for d in drafts]

    watched = Watched(Auto((Fading(oracle(SCRIPT, k=4)),), curve=lambda r, c: 0.9 + 0.1 * r, clock=clock))
    decode(lm, watched, [1], n=12)
    assert [turn.draft.tokens for turn in watched.seen[:2]] == [(), tuple(SCRIPT[1:3])]


def test_the_best_nodes_of_all_sessions_are_drafted() -> None:
    """Rows are dear: the session whose drafts are right is drafted for, the other soon is not."""
    clock = Clock()

    def dear(rows: int, context: float) -> float:
        return 1 + 0.15 * rows

    lm = TimedLM(ScriptLM(SCRIPT), clock, dear)
    watched = Watched(Auto((mix(SCRIPT, (4,), (0,)).drafter,), curve=dear, clock=clock))
    decode(lm, watched, [1], [2], n=30)
    drafted = {row: [len(turn.draft) for turn in watched.seen if turn.row == row] for row in (0, 1)}
    assert sum(drafted[0]) / len(drafted[0]) > 2
    assert sum(drafted[1]) / len(drafted[1]) < 0.5


def test_trees_are_cut_to_their_likely_branches() -> None:
    lm = ScriptLM(SCRIPT)
    watched, sessions = decoded(auto(top_tree(lm.law, (2, 2, 2))))
    drafts = [turn.draft for turn in watched.seen if turn.draft.tokens]
    assert any(len(set(draft.parents)) < len(draft) for draft in drafts), "there are branches"
    assert all(len(draft) < 14 for draft in drafts[4:]), "not all of them, once the first child is known to be right"
    assert max(record.accepted for record in sessions[0].records) == 3


def test_sources_that_agree_share_their_nodes_and_others_branch() -> None:
    watched, _ = decoded(auto(oracle(SCRIPT, k=3), oracle(SCRIPT, k=4), fix([90, 91])), n=20)
    draft = watched.seen[1].draft
    assert draft.tokens[:4] == tuple(SCRIPT[1:5]) or sorted(draft.tokens)[-1] == 91
    assert len(draft) <= 6


def test_a_drawn_draft_is_never_cut() -> None:
    """Whatever its nodes are worth: how deep it goes was decided before it was drawn. Here four siblings are drawn from
    a flat law, where each is right one time in eight and a row costs a fifth of a pass."""
    lm = DistLM([1 / 8] * 8)
    log = Untapped(drawn_tree(lm.law, (4, 4)))
    watched = Watched(auto(log, curve=lambda rows, context: 0.8 + 0.2 * rows))
    decode(lm, watched, [1, 2], n=40, rule="rejection", sampling=Sampling(temperature=1.0, seed=1))
    assert [turn.draft.tokens for turn in watched.seen] == [draft.tokens for _, draft, _, _ in log.told]
    asked = [budgets[0].depth for _, budgets in log.asked]
    assert [len(turn.draft) for turn in watched.seen[1:]] == [[0, 4, 20][depth] for depth in asked[1:]]
    assert len(watched.seen[0].draft) == 1, "one node tells that it draws"
    assert 1 in asked[1:], "as deep as pays"


def test_a_source_that_takes_time_is_asked_for_a_depth() -> None:
    log = Untapped(chancy(SCRIPT, lambda i: 1.0), model_free=False)
    decoded(auto(log))
    depths = [budgets[0].depth for _, budgets in log.asked]
    assert depths[:3] == [0, 1, depths[2]], "the first step is plain, one token tells what it takes"
    assert depths[2] > 1
    assert len(log.told) == len(depths), "it is told of the steps in which it was not asked, too"


def test_a_draft_model_and_lookups_work_together() -> None:
    """The draft model, which takes a fifth of a pass, reads on where lookups were right; where they are sure it is not
    asked."""
    small, clock = ScriptLM(SCRIPT), Clock()
    told: list[Decision] = []
    model = Slow(DraftLM(small, k=4), clock, 0.2)
    watched, _ = decoded(auto(Ngram(min_match=2), model, clock=clock, tell=told.append))
    assert len(watched.seen) <= N / 3
    cache = small.caches[0].rows[0]
    assert [1, 2, *SCRIPT][: len(cache.tokens)] == cache.tokens
    assert len(cache.tokens) > 5
    assert any(decision.offered["slow"] and decision.draft_s for decision in told)
    sure = [decision for decision in told if decision.offered["ngram"] >= 6][-3:]
    assert [decision.offered["slow"] for decision in sure] == [0, 0, 0]


def test_every_source_sees_its_own_part_of_a_step() -> None:
    """Each is shown its nodes that were scored, and what else was accepted behind them; scores are of just these."""
    first, second = Untapped(oracle(SCRIPT, k=2)), Untapped(mix(SCRIPT, (4,), (1,), k=5))
    decoded(auto(first, second), n=30)
    for log in (first, second):
        for _, draft, verdict, scores in log.told:
            assert len(scores.logits) == len(draft) + 1
            assert tuple(draft.tokens[node] for node in verdict.path) == verdict.tokens[:-1]
    assert any(len(draft) > 2 for _, draft, _, _ in first.told), "the other one's accepted tokens are shown"
    assert first.released == second.released == [0]


def test_taps_are_those_of_all_sources() -> None:
    lm = ScriptLM(SCRIPT)
    drafting = auto(Log(fix([1])), Log(fix([2]), model_free=False)).begin([], lm, lm.open([]))
    assert drafting.taps == (2, 4)


def test_each_step_is_told_once() -> None:
    told: list[Decision] = []
    watched, sessions = decoded(auto(oracle(SCRIPT, k=4), tell=told.append), [1], [2, 3])
    assert len(told) == max(len(session.records) for session in sessions)
    assert sum(decision.gained + len(told) * 0 for decision in told) == 2 * N - len(watched.seen)
    assert sum(decision.drafted for decision in told) == sum(len(turn.draft) for turn in watched.seen)
    assert told[0].reason == "the first step is plain"
    assert told[1].offered == {"stub": 8}
    assert told[1].expected > 1
    assert told[1].pass_s > told[1].plain_s > 0


def test_it_measures_the_model_where_no_curve_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = ScriptLM(SCRIPT)
    decode(lm, Watched(Auto((oracle(SCRIPT).drafter,))), [1], n=10)
    assert costs.known(lm) is not None
    passes = len(lm.passes)
    decode(lm, Watched(Auto((oracle(SCRIPT).drafter,))), [1], n=1)
    assert len(lm.passes) == passes + 1


def test_the_models_whose_costs_count() -> None:
    target, small = ScriptLM([1]), ScriptLM([2])
    assert Auto().models(target) == [target]
    assert auto(Ngram(), DraftLM(small)).models(target) == [target, small]


class TestWhereASeedsTextDependsOnTheDrafts:
    """Under rejection: time must not decide, nor the other sessions of a batch (faults 77, 78)."""

    SAMPLING = Sampling(temperature=1.0, seed=5)

    def text(self, *prompts: list[int], jitter: float = 0.0) -> list[list[int]]:
        class Erratic(Clock):
            def __call__(self) -> float:
                self.now += jitter * (1 + 7 * (int(self.now * 1e3) % 3))
                return self.now

        lm = ScriptLM(SCRIPT)
        lm.law = lambda prefix, i: ScriptLM(SCRIPT).law(prefix, i) / 8  # type: ignore[method-assign]
        sources = (chancy(SCRIPT, lambda i: 0.5).drafter, DraftLM(ScriptLM(SCRIPT), k=3))
        drafter = Auto(sources, curve=cheap, clock=Erratic())
        return [s.new_tokens for s in decode(lm, drafter, *prompts, n=30, rule="rejection", sampling=self.SAMPLING)]

    def test_a_seed_gives_its_text_whatever_the_clock(self) -> None:
        assert self.text([1, 2]) == self.text([1, 2], jitter=0.05)

    def test_and_in_any_batch(self) -> None:
        (alone,) = self.text([1, 2])
        assert self.text([3], [1, 2], [4, 4, 4])[1] == alone


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"sources": ()}, "sources"),
        ({"sources": "ngram"}, "sources='ngram' is no tuple"),
        ({"sources": ["ngram"]}, "is no tuple"),
        ({"sources": ("nonsense",)}, "'nonsense' does not exist"),
        ({"sources": ("lm",)}, "'lm' needs the option 'lm'"),
        ({"sources": (Ngram,)}, "is no drafter"),
        ({"nodes": 0}, "nodes=0"),
        ({"nodes": 2.5}, "nodes=2.5"),
        ({"sources": ("ngram", "auto")}, "is no source of itself"),
        ({"sources": (Merged((Ngram(), Auto())),)}, "is no source of itself"),
        ({"clock": 1}, "clock=1 is no function"),
        ({"clock": None}, "clock=None is no function"),
        ({"curve": "x"}, "curve='x' is no function"),
        ({"tell": True}, "tell=True is no function"),
        ({"width": 3}, "no option 'width'"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        make_drafter("auto", **options)


def test_lookups_say_how_sure_they_are() -> None:
    """The longer the match, and with each token of the draft that is right it is one longer."""
    lm = ScriptLM(SCRIPT)
    (session,) = decode(lm, fix([]), [1, 2, 3, 9, 1, 2, 3], n=1)
    session.tokens.pop()
    (draft,) = Ngram(k=3).begin([session], lm, lm.open([])).draft([0], [Budget(9)])
    assert draft.tokens == (9, 1, 2)
    assert draft.confidence == RECURRENCE[2:5]
    assert list(RECURRENCE) == sorted(RECURRENCE)
    (long,) = Ngram(k=40, min_match=1).begin([session], lm, lm.open([])).draft([0], [Budget(40)])
    assert long.confidence is not None
    assert len(long.confidence) == len(long) == 40
    assert long.confidence[-1] == RECURRENCE[-1]
