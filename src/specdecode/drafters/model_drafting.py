"""A model at work as a drafter: it grows a tree for each session, a pass a level.

Which model it is and what it has read is `reading`'s business, the shape of the trees `shapes`', their tokens
`growing`'s, and how far to go a pace's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import takewhile
from typing import Protocol

import torch
from torch import Tensor

from .. import costs
from ..errors import check_probability
from ..models.lm import LM
from ..session import Session
from ..types import EMPTY, Budget, Draft, Row, Scores, Verdict
from . import Drafting
from .growing import Growth, Ranks
from .merged import view
from .reading import Reading
from .shapes import Known, Seconds, Shape

StepSeconds = Callable[[int, int, int], float]  # of a step, given its context and the nodes and the depth of its draft


def remembered(lm: LM) -> Callable[[int, float], float]:
    """Seconds of a pass of `lm` by rows and context: a plan asks for the same ones at every depth that it tries."""
    return lru_cache(maxsize=256)(costs.of(lm))


def check_confidence(name: str, value: object) -> None:
    """Raises BadOption unless `value`, an option of the drafter `name`, is None or a probability."""
    if value is not None:
        check_probability(f"drafter {name!r}: confidence", value)


class Pace(Protocol):
    """How far one session's drafts go, which may change with what becomes of them. confidence, keeps_last: as Growth
    has them."""

    @property
    def shape(self) -> Shape: ...
    @property
    def confidence(self) -> float | None: ...
    @property
    def keeps_last(self) -> bool: ...

    def see(self, draft: Draft, verdict: Verdict) -> None:
        """What became of a draft that was not empty."""
        ...


@dataclass(frozen=True)
class Steady:
    """Always the same."""

    shape: Shape
    confidence: float | None = None
    keeps_last: bool = False

    def see(self, draft: Draft, verdict: Verdict) -> None:
        pass


@dataclass(eq=False)
class _Tree:
    """One session's draft while it grows.

    feed:    what is to be run first, the newest token last; ahead: guesses that are run with it, behind it.
    ran:     where the nodes of `growth` stand among those that were run, -1 the newest token; count: how many were.
    known:   [V] logits of what follows nodes of `growth`.
    guessed: (where a node was run, a token that was guessed to follow it) -> where that was run, and its logits.
    states:  of the newest token and all nodes, in the order they were run, where they are wanted."""

    row: int
    growth: Growth
    feed: list[int]
    ahead: Draft = EMPTY
    ran: dict[int, int] = field(default_factory=dict)
    count: int = 0
    known: dict[int, Tensor] = field(default_factory=dict)
    guessed: dict[tuple[int, int], tuple[int, Tensor]] = field(default_factory=dict)
    states: list[Tensor] = field(default_factory=list)

    @property
    def wants(self) -> list[int]:
        """Nodes of the frontier of which nothing is known yet."""
        return [node for node in self.growth.frontier if node not in self.known]

    def begin(self) -> Row:
        """The row to run first."""
        newest = len(self.feed) - 1
        self.ran[-1], self.count = newest, len(self.feed) + len(self.ahead)
        guesses = [newest if parent < 0 else newest + 1 + parent for parent in self.ahead.parents]
        return Row(self.row, (*self.feed, *self.ahead.tokens), (*range(-1, newest), *guesses))

    def began(self, scores: Scores) -> None:
        newest, logits = self.ran[-1], scores.logits
        self.known[-1] = logits[newest]
        for guess, (token, parent) in enumerate(zip(self.ahead.tokens, self.ahead.parents, strict=True), newest + 1):
            self.guessed.setdefault((newest if parent < 0 else newest + 1 + parent, token), (guess, logits[guess]))
        self.states += scores.taps.values()

    def next(self, nodes: Sequence[int]) -> Row:
        """The row of `nodes`, whose parents were run."""
        start, growth = self.count, self.growth
        self.ran |= {node: start + i for i, node in enumerate(nodes)}
        self.count += len(nodes)
        parents = tuple(self.ran[growth.parents[node]] for node in nodes)
        return Row(self.row, tuple(growth.tokens[node] for node in nodes), parents, start=start)

    def passed(self, nodes: Sequence[int], scores: Scores) -> None:
        self.known |= dict(zip(nodes, scores.logits, strict=False))  # none where none were asked for
        self.states += scores.taps.values()

    def extend(self, laws: Tensor) -> None:
        """Grow a level. Nodes that were guessed have been run."""
        self.growth.extend(laws)
        for node in self.growth.level:
            guess = self.guessed.get((self.ran[self.growth.parents[node]], self.growth.tokens[node]))
            if guess is not None:
                self.ran[node], self.known[node] = guess


class ModelDrafting:
    """pace: makes a session's. replacement: see Growth. seconds: for shapes that weigh them.
    ahead: a cheaper drafter, whose guesses are run along with the first pass of each draft. Where the model drafts the
    same tokens, their passes are saved; what it drafts, and from which law, is not changed."""

    taps: tuple[int, ...] = ()

    def __init__(
        self,
        reading: Reading,
        sessions: Sequence[Session],
        pace: Callable[[], Pace],
        *,
        replacement: bool = False,
        seconds: StepSeconds | None = None,
        ahead: Drafting | None = None,
    ) -> None:
        self._reading, self._sessions = reading, sessions
        self._paces = [pace() for _ in sessions]
        self._ranks = [Ranks() for _ in sessions]
        self._replacement, self._seconds, self._ahead = replacement, seconds, ahead
        self._guessed: dict[int, Draft] = {}
        self._drafts: dict[int, Draft] = {}

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        room = {row: b for row, b in zip(rows, budgets, strict=True) if b.longest}
        guesses = self._guesses(rows, budgets)
        trees = [
            _Tree(row, self._growth(row, room[row]), feed, guesses.get(row, EMPTY))
            for row, feed in self._reading.feeds(room).items()
        ]
        self._run([(tree, None) for tree in trees])
        growing = trees
        while growing := [tree for tree in growing if tree.growth.frontier]:
            self._run([(tree, self._to_run(tree)) for tree in growing if tree.wants])
            for tree in growing:
                laws = torch.stack([tree.known[node] for node in tree.growth.frontier])
                if torch.isfinite(laws.amax(-1)).all():
                    tree.extend(_widen(laws, self._sessions[tree.row].filters.vocab))
                else:
                    tree.growth.frontier = []
                    self._reading.give_up(tree.row, "its logits are NaN or infinite")
        drafts = {tree.row: tree.growth.draft() for tree in trees}
        if self._reading.exit is not None:
            drafts |= self._resumable(self._reading.exit, trees)
        self._drafts |= {row: drafts.get(row, EMPTY) for row in rows}
        return [self._drafts[row] for row in rows]

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        if self._ahead is not None:
            own = self._guessed.pop(row)
            self._ahead.observe(row, *view(own, [-1] * len(own), draft, verdict, scores))
        drafted = self._drafts.pop(row, EMPTY)  # it may have been drafted by something else
        if drafted.tokens and draft.tokens[: len(drafted)] == drafted.tokens:  # else it was not scored
            became = _part(verdict, len(drafted))
            self._paces[row].see(drafted, became)
            if self._paces[row].shape.learns:
                self._ranks[row].see(drafted, became)

    def release(self, row: int) -> None:
        self._reading.release(row)
        if self._ahead is not None:
            self._ahead.release(row)

    def _growth(self, row: int, budget: Budget) -> Growth:
        session, pace, known = self._sessions[row], self._paces[row], None
        if pace.shape.learns or pace.shape.weighs:
            known = Known(self._ranks[row].acceptance, self._step_seconds(len(session.tokens)))
        plan = pace.shape.plan(min(budget.depth, self._reading.room(row)), budget.nodes, known)
        return Growth(
            session, plan, replacement=self._replacement, confidence=pace.confidence, keeps_last=pace.keeps_last
        )

    def _step_seconds(self, context: int) -> Seconds:
        seconds = self._seconds
        return lambda nodes, depth: 1.0 if seconds is None else seconds(context, nodes, depth)

    def _guesses(self, rows: Sequence[int], budgets: Sequence[Budget]) -> dict[int, Draft]:
        """What the drafter ahead proposes, as far as the model can read it."""
        if self._ahead is None:
            return {}
        self._guessed |= dict(zip(rows, self._ahead.draft(rows, budgets), strict=True))
        guesses: dict[int, Draft] = {}
        for row, budget in zip(rows, budgets, strict=True):
            if budget.depth >= 1:
                guesses[row] = self._reading.readable(row, self._guessed[row])
        return guesses

    def _to_run(self, tree: _Tree) -> Sequence[int]:
        """Where scoring may resume, every node of the level is run, in the order of the draft."""
        return tree.wants if self._reading.exit is None or tree.growth.ranked else tree.growth.level

    def _run(self, work: Sequence[tuple[_Tree, Sequence[int] | None]], logits: bool = True) -> None:
        """One pass over nodes of trees; None is what a tree begins with."""
        rows = [tree.begin() if nodes is None else tree.next(nodes) for tree, nodes in work]
        for (tree, nodes), scores in zip(work, self._reading.run(rows, logits) if rows else [], strict=True):
            if nodes is None:
                tree.began(scores)
            else:
                tree.passed(nodes, scores)

    def _resumable(self, exit: int, trees: Sequence[_Tree]) -> dict[int, Draft]:
        """The drafts with their states: the last level still has to be run. Of trees that keep the likeliest nodes most
        were not run, and none in the order of the draft: they are scored from the first layer."""
        kept = [tree for tree in trees if not tree.growth.ranked]
        last = [(tree, [node for node in tree.growth.level if node not in tree.ran]) for tree in kept]
        self._run([(tree, nodes) for tree, nodes in last if nodes], logits=False)
        return {tree.row: replace(tree.growth.draft(), hidden=torch.cat(tree.states), entry=exit) for tree in kept}


def _part(verdict: Verdict, n: int) -> Verdict:
    """What became of the first n nodes of a draft, behind which stands what other sources had accepted (`view`)."""
    path = tuple(takewhile(lambda node: node < n, verdict.path))
    return verdict if path == verdict.path else Verdict(verdict.tokens[: len(path) + 1], path, len(path))


def _widen(logits: Tensor, vocab: int) -> Tensor:
    """[m, V of the drafter] logits over the `vocab` ids of the target: those not shared are cut off or impossible."""
    missing = vocab - logits.shape[-1]
    return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf) if missing > 0 else logits[:, :vocab]
