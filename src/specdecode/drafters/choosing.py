"""A drafter that chooses, at work: its sources, their drafts, and the clock, by which `policy` decides how much of what
they propose is drafted.

Knows no rule, no text and not how the sources were made. What is here runs at every step, plain ones included, with
cold caches after a pass: it is written to do little where little is proposed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from ..policy import ANY, FAINT, Choice, Policy
from ..session import Session
from ..tree import depths
from ..types import Budget, Draft, Scores, Verdict
from . import Drafting
from .merged import Union, cut, merge, scored, taps_of, view
from .worth import learn, values

NEWEST = 0.25  # share of the newest measurement in what a source is held to take
MOST = 4.0  # times as long as it is held to take: what takes longer still was disturbed


@dataclass(frozen=True)
class Decision:
    """What was decided in a step, for all sessions that are decided for together, and what came of it.

    offered:  nodes that each source proposed; drafted: those that were scored.
    expected: tokens that they were expected to add to the step; gained: those that they did add.
    pass_s, plain_s: seconds that the pass was expected to take, and to take without them.
    taken_s, draft_s: seconds that it took, and that costly sources took before.
    reason:   why no more was drafted."""

    offered: dict[str, int]
    drafted: int
    expected: float
    gained: int
    pass_s: float
    plain_s: float
    taken_s: float
    draft_s: float
    reason: str


@dataclass(eq=False)
class Source:
    """step_s: seconds that it takes for each token of depth; None while that is not known."""

    index: int
    name: str
    drafting: Drafting
    step_s: float | None = None

    def took(self, seconds: float, depth: int) -> float:
        """Learn from a measurement. Returns its seconds, or as many of them as are believable."""
        if not 0 < seconds < inf:  # a clock that stands still or was set tells nothing
            self.step_s = self.step_s or 0.0
            return self.step_s * depth
        new = seconds / depth
        if self.step_s:
            new = min(new, MOST * self.step_s)
            self.step_s += NEWEST * (new - self.step_s)
        else:
            self.step_s = new
        return new * depth


@dataclass(eq=False)
class Team:
    """Sessions that are decided for together.

    free: the sources that are asked for all they have at every step, which is then cut to what is worth its rows. For
          the others it is decided beforehand how deep to draft, and what they draft is drafted: those that take time,
          and those that draw (`merge` says why).
    width: of those others, how many nodes they last drafted for each token of depth."""

    rows: tuple[int, ...]
    policy: Policy
    free: set[int] = field(default_factory=set)
    width: dict[int, float] = field(default_factory=dict)

    def session(self, row: int) -> int:
        """By what a session's acceptance goes: its row, where there are several."""
        return row if len(self.rows) > 1 else ANY

    def offered(self, proposed: Mapping[int, Sequence[Draft]]) -> list[float]:
        """By depth, the value of all nodes that were proposed so far."""
        by_depth: list[float] = []
        for row, drafts in proposed.items():
            union = merge(drafts)
            value = values(self.policy.acceptance, self.session(row), union)
            for depth, v in zip(depths(union.draft.parents), value, strict=True):
                by_depth += [0.0] * (depth + 1 - len(by_depth))
                by_depth[depth] += v
        return by_depth


@dataclass(eq=False)
class _Step:
    """A team's step that `waiting` sessions have not observed yet. unions: what was proposed, by row, with the places
    of its nodes in what was drafted; began: when scoring did."""

    team: Team
    unions: dict[int, Union]
    choice: Choice
    draft_s: float
    began: float
    waiting: int
    gained: int = 0
    taken_s: float | None = None


class Choosing:
    """The sources at work, and the policies that learn from each step.

    nodes: the most in one session's draft.
    clock: None leaves measured times out of account: seconds are those that the curves say. With a clock there is one
           team, for it is the whole pass that is timed.
    tell:  who is told of each step, if anyone is."""

    def __init__(
        self,
        sources: Sequence[Source],
        sessions: Sequence[Session],
        teams: Sequence[Team],
        nodes: int,
        clock: Callable[[], float] | None,
        tell: Callable[[Decision], None] | None,
    ) -> None:
        assert clock is None or len(teams) == 1
        self.taps = taps_of([source.drafting for source in sources])
        self._sources, self._sessions, self._teams = sources, sessions, teams
        self._nodes, self._clock, self._tell = nodes, clock, tell
        self._begun = False
        self._rows: list[int] = []
        self._active: list[tuple[Team, list[int]]] = []  # for these rows
        self._steps: dict[int, _Step] = {}

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        if rows != self._rows:
            self._rows = list(rows)
            self._active = [(team, some) for team in self._teams if (some := [r for r in team.rows if r in rows])]
        for team, some in self._active:
            context = 0
            for row in some:
                context += len(self._sessions[row].tokens)
            team.policy.begin(len(some), context / len(some) - 1)
        if not self._begun:  # a plain step: one node tells whether a source draws, and costs little if it does
            budgets, self._begun = [Budget(min(b.depth, 1), min(b.nodes, 1)) for b in budgets], True
        budget = dict(zip(rows, budgets, strict=True))
        proposed: dict[int, list[Draft]] = {row: [] for row in rows}
        draft_s: dict[Team, float] = {}
        for source in self._sources:
            decided = {team: 0 for team, _ in self._active if source.index not in team.free}
            asked = self._decide(source, decided, budget, proposed) if decided else budgets
            began = self._now() if decided else 0.0
            drafts = source.drafting.draft(rows, asked)
            if decided:
                self._account(source, decided, self._now() - began, draft_s)
            for row, draft in zip(rows, drafts, strict=True):
                proposed[row].append(draft)
        for team, some in self._active:
            self._settle(team, {row: (proposed[row], budget[row]) for row in some}, draft_s.get(team, 0.0))
        return [self._steps[row].unions[row].draft for row in rows]

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        step = self._steps.pop(row)
        policy = step.team.policy
        if step.taken_s is None:
            taken = self._now() - step.began
            step.taken_s = taken if taken > 0 else step.choice.seconds  # a clock that stands still tells nothing
            policy.timed(step.taken_s)
        if len(verdict.tokens) > 1:
            step.gained += len(verdict.tokens) - 1
        policy.emitted(len(verdict.tokens))
        union = scored(step.unions[row], draft)
        for source, own, places in zip(self._sources, union.drafts, union.places, strict=True):
            if own.tokens:
                learn(policy.acceptance, step.team.session(row), source.index, own, places, verdict)
            alone = len(self._sources) == 1  # and sees what there is
            seen = (draft, verdict, scores) if alone else view(own, places, draft, verdict, scores)
            source.drafting.observe(row, *seen)
        step.waiting -= 1
        if step.waiting == 0 and self._tell is not None:
            self._tell(self._decision(step))

    def release(self, row: int) -> None:
        for source in self._sources:
            source.drafting.release(row)

    def _decide(
        self,
        source: Source,
        decided: dict[Team, int],
        budget: Mapping[int, Budget],
        proposed: Mapping[int, Sequence[Draft]],
    ) -> list[Budget]:
        """Fill in the depth for each team that decides beforehand, and return what to ask for by row. It is asked for
        every row, if only to a depth of 0: a source is told of each step."""
        asked = dict(budget)
        for team, some in self._active:
            if team in decided:
                most = min(self._nodes, max(budget[row].depth for row in some))
                offered = team.offered({row: proposed[row] for row in some})
                width = team.width.get(source.index, 1.0)
                decided[team] = team.policy.depth(source.index, most, offered, source.step_s, width)
                for row in some:
                    whole = sum(len(d) for i, d in enumerate(proposed[row]) if i not in team.free)
                    nodes = min(self._nodes, budget[row].nodes) - whole
                    asked[row] = Budget(min(decided[team], budget[row].depth, nodes), nodes)
        return list(asked.values())

    def _account(self, source: Source, decided: Mapping[Team, int], seconds: float, draft_s: dict[Team, float]) -> None:
        """What a source took is the teams' that had decided to ask it."""
        for team, depth in decided.items():
            if depth:
                taken = (source.step_s or 0.0) * depth if self._clock is None else source.took(seconds, depth)
                draft_s[team] = draft_s.get(team, 0.0) + taken

    def _settle(self, team: Team, proposed: Mapping[int, tuple[Sequence[Draft], Budget]], draft_s: float) -> None:
        """Choose of what was proposed to a team, and open its step. A draft that was not chosen node by node shows that
        its source draws."""
        unions: dict[int, Union] = {}
        kept: dict[int, list[int]] = {}
        decided: list[float] = []
        ranked: list[tuple[float, int, int]] = []
        for row, (drafts, budget) in proposed.items():
            unions[row] = union = merge(drafts)
            whole: set[int] = set()
            for source, draft in enumerate(drafts):
                if not draft.is_chosen:
                    team.free.discard(source)
                if draft.tokens and source not in team.free:
                    whole.update(node for node in union.places[source] if node >= 0)
                    team.width[source] = len(draft) / (1 + max(depths(draft.parents)))
            kept[row] = list(whole)
            if union.draft.tokens:
                value = values(team.policy.acceptance, team.session(row), union)
                decided += [value[node] for node in whole]
                mine = [(-v, row, node) for node, v in enumerate(value) if v > FAINT and node not in whole]
                mine.sort()  # a child is worth no more than its parent and stands behind it: no path has a gap
                ranked += mine[: max(0, min(self._nodes, budget.nodes) - len(whole))]
        if len(unions) > 1:
            ranked.sort()
        choice = team.policy.choose([-value for value, _, _ in ranked], decided, draft_s)
        for _, row, node in ranked[: choice.nodes]:
            kept[row].append(node)
        for row, nodes in kept.items():
            unions[row] = cut(unions[row], sorted(nodes))
        step = _Step(team, unions, choice, draft_s, self._now(), len(unions))
        for row in unions:
            self._steps[row] = step

    def _now(self) -> float:
        return 0.0 if self._clock is None else self._clock()

    def _decision(self, step: _Step) -> Decision:
        unions, choice = step.unions.values(), step.choice
        offered = {s.name: sum(len(union.drafts[s.index]) for union in unions) for s in self._sources}
        seconds = (choice.seconds, choice.plain, step.taken_s or 0.0, step.draft_s)
        drafted = sum(len(union.draft) for union in unions)
        return Decision(offered, drafted, choice.expected, step.gained, *seconds, choice.reason)
