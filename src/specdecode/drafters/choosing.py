"""A drafter that chooses, at work: its sources, their drafts, and the clock, by which `policy` decides how much of what
they propose is drafted.

Knows no rule, no text and not how the sources were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..policy import ANY, FAINT, Choice, Policy
from ..session import Session
from ..theory import child_ranks
from ..tree import children, depths
from ..types import EMPTY, Budget, Draft, Scores, Verdict
from . import Drafting
from .merged import Union, merge, take, taps_of, view

LEVELS = 20  # of confidence, within which nodes are alike
NEWEST = 0.25  # share of the newest measurement in what a source is held to take

Proposed = Mapping[int, list[Draft]]  # by row, a draft of each source


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

    def took(self, seconds: float, depth: int) -> None:
        new = seconds / depth
        self.step_s = new if self.step_s is None else self.step_s + NEWEST * (new - self.step_s)


@dataclass(eq=False)
class Team:
    """Sessions that are decided for together.

    free: the sources that are asked for all they have at every step, which is then cut to what is worth its rows. For
          the others it is decided beforehand how deep to draft, and what they draft is drafted: those that take time,
          and those that draw (`merge` says why)."""

    rows: tuple[int, ...]
    policy: Policy
    free: set[int] = field(default_factory=set)

    def spokesman(self, row: int) -> int:
        """Whose acceptance is looked at: the session's own where there are several."""
        return row if len(self.rows) > 1 else ANY


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
        self._sources, self._sessions, self._teams = list(sources), sessions, teams
        self._nodes, self._clock, self._tell = nodes, clock, tell
        self._steps: dict[int, _Step] = {}

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        within = {
            row: Budget(min(b.depth, self._nodes), min(b.nodes, self._nodes))
            for row, b in zip(rows, budgets, strict=True)
        }
        active = [(team, some) for team in self._teams if (some := [row for row in team.rows if row in within])]
        for team, some in active:
            team.policy.begin(len(some), sum(len(self._sessions[row].tokens) for row in some) / len(some) - 1)
        proposed: dict[int, list[Draft]] = {row: [EMPTY] * len(self._sources) for row in rows}
        draft_s = dict.fromkeys(self._teams, 0.0)
        for source in sorted(self._sources, key=lambda s: any(s.index not in team.free for team, _ in active)):
            for team, seconds in self._ask(source, active, within, proposed):
                draft_s[team] += seconds
        for team, some in active:
            self._settle(team, {row: merge(proposed[row]) for row in some}, draft_s[team])
        return [self._steps[row].unions[row].draft for row in rows]

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        step = self._steps.pop(row)
        policy = step.team.policy
        if step.taken_s is None:
            taken = self._now() - step.began
            step.taken_s = taken if taken > 0 else step.choice.seconds  # a clock that stands still tells nothing
            policy.timed(step.taken_s)
        policy.emitted(len(verdict.tokens))
        step.gained += len(verdict.tokens) - 1
        union = step.unions[row]
        for source, own, places in zip(self._sources, union.drafts, union.places, strict=True):
            _learn(step.team, row, source.index, own, places, verdict)
            source.drafting.observe(row, *view(own, places, draft, verdict, scores))
        step.waiting -= 1
        if step.waiting == 0 and self._tell is not None:
            self._tell(self._decision(step))

    def release(self, row: int) -> None:
        for source in self._sources:
            source.drafting.release(row)

    def _ask(
        self,
        source: Source,
        active: Sequence[tuple[Team, list[int]]],
        within: Mapping[int, Budget],
        proposed: dict[int, list[Draft]],
    ) -> Iterable[tuple[Team, float]]:
        """Have the source draft for every row, if only to a depth of 0: it is told of each step. Returns the seconds of
        those teams that decided beforehand."""
        decided: dict[Team, int] = {}
        depth: dict[int, int] = {}
        for team, some in active:
            most = max(within[row].depth for row in some)
            if source.index not in team.free:
                offered = _offered(team, {row: proposed[row] for row in some})
                most = decided[team] = team.policy.depth(source.index, most, offered, source.step_s)
            depth |= {row: min(most, within[row].depth) for row in some}
        began = self._now()
        drafts = source.drafting.draft(list(within), [Budget(depth[row], b.nodes) for row, b in within.items()])
        seconds = self._now() - began
        for row, draft in zip(within, drafts, strict=True):
            proposed[row][source.index] = draft
        for team, some in active:
            if not all(proposed[row][source.index].is_chosen for row in some):
                team.free.discard(source.index)
        if self._clock is None:
            return [(team, (source.step_s or 0.0) * depth) for team, depth in decided.items()]
        asked = [(team, seconds) for team, depth in decided.items() if depth]
        for team, _ in asked:
            source.took(seconds, decided[team])
        return asked

    def _settle(self, team: Team, unions: dict[int, Union], draft_s: float) -> None:
        """Choose of what was proposed to a team, and open its step."""
        choice, kept = _choose(team, unions, draft_s)
        for row, union in unions.items():
            place = {node: i for i, node in enumerate(kept[row])}
            places = [[place.get(node, -1) for node in own] for own in union.places]
            unions[row] = Union(take(union.draft, kept[row]), union.drafts, places)
        step = _Step(team, unions, choice, draft_s, self._now(), len(unions))
        self._steps |= dict.fromkeys(unions, step)

    def _now(self) -> float:
        return 0.0 if self._clock is None else self._clock()

    def _decision(self, step: _Step) -> Decision:
        unions, choice = step.unions.values(), step.choice
        offered = {s.name: sum(len(union.drafts[s.index]) for union in unions) for s in self._sources}
        seconds = (choice.seconds, choice.plain, step.taken_s or 0.0, step.draft_s)
        return Decision(
            offered, sum(len(union.draft) for union in unions), choice.expected, step.gained, *seconds, choice.reason
        )


def _offered(team: Team, proposed: Proposed) -> list[float]:
    """By depth, the value of all nodes that were proposed so far."""
    by_depth: list[float] = []
    for row, drafts in proposed.items():
        union = merge(drafts)
        for depth, value in zip(depths(union.draft.parents), _values(team, row, union), strict=True):
            by_depth += [0.0] * (depth + 1 - len(by_depth))
            by_depth[depth] += value
    return by_depth


def _choose(team: Team, unions: Mapping[int, Union], draft_s: float) -> tuple[Choice, dict[int, list[int]]]:
    """How much to draft, and the nodes of each session's union that this makes, in order."""
    kept: dict[int, list[int]] = {}
    decided: list[float] = []
    ranked: list[tuple[float, int, int]] = []
    for row, union in unions.items():
        whole = {
            node
            for source, (own, places) in enumerate(zip(union.drafts, union.places, strict=True))
            if source not in team.free or not own.is_chosen
            for node in places
            if node >= 0
        }
        values = _values(team, row, union)
        kept[row] = list(whole)
        decided += [values[node] for node in whole]
        ranked += [(-value, row, node) for node, value in enumerate(values) if value > FAINT and node not in whole]
    ranked.sort()  # a child is worth no more than its parent and stands behind it, so no path has a gap
    choice = team.policy.choose([-value for value, _, _ in ranked], decided, draft_s)
    for _, row, node in ranked[: choice.nodes]:
        kept[row].append(node)
    return choice, {row: sorted(nodes) for row, nodes in kept.items()}


def _values(team: Team, row: int, union: Union) -> list[float]:
    """[n] the chance of each node that it is reached and accepted. Siblings share what there is: one of them at most is
    accepted."""
    means = [0.0] * len(union.draft)
    for source, (own, places) in enumerate(zip(union.drafts, union.places, strict=True)):
        for node, mean in zip(places, _means(team, row, source, own), strict=True):
            if node >= 0:
                means[node] = max(means[node], mean)
    values: list[float] = []
    left: dict[int, float] = {}
    for mean, parent in zip(means, union.draft.parents, strict=True):
        mean = min(mean, left.get(parent, 1.0))
        left[parent] = left.get(parent, 1.0) - mean
        values.append(mean * values[parent] if parent >= 0 else mean)
    return values


def _means(team: Team, row: int, source: int, draft: Draft) -> list[float]:
    """[n] the chance of each node that it is accepted once its parent is, by what is known of its kind."""
    known, session = team.policy.acceptance, team.spokesman(row)
    if draft.is_chosen and draft.confidence is not None:
        return [known.mean((source, _level(c), 0), c, session) for c in draft.confidence]
    depth, rank = depths(draft.parents), child_ranks(draft.parents)
    first = known.by_depth(source, max(depth, default=-1) + 1, session)
    means = []
    for node, d in enumerate(depth):
        half = (1 - first[d]) / 2 ** rank[node]  # of what its elder siblings leave
        means.append(known.mean((source, -1 - d, rank[node]), half, session) if rank[node] else first[d])
    return means


def _learn(team: Team, row: int, source: int, draft: Draft, places: Sequence[int], verdict: Verdict) -> None:
    """Which nodes were right, followed from the root as far as is known: a chosen one that was not drafted is right
    where the target says the same; a drawn one has to be accepted."""
    chosen, offspring, node = draft.is_chosen, children(draft.parents), -1
    confidence = draft.confidence if chosen else None
    for depth, token in enumerate(verdict.tokens):
        siblings = [i for i in offspring[node + 1] if draft.is_candidate(i) and (chosen or places[i] >= 0)]
        said = chosen or depth < verdict.accepted
        right = next((i for i in siblings if said and draft.tokens[i] == token), None)
        for rank, i in enumerate(siblings):
            kind = (source, -1 - depth, rank) if confidence is None else (source, _level(confidence[i]), 0)
            team.policy.acceptance.see(kind, i == right, team.spokesman(row))
        if right is None:
            return
        node = right


def _level(confidence: float) -> int:
    return round(confidence * LEVELS)
