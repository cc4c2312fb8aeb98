"""A draft tree that grows out of a model's laws, level by level, in the shape that was planned.

It knows one session, a plan and the rows of logits it is given; not which model they come from, nor how it is run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..sampling import Argmax, Stream, best
from ..session import Session
from ..tree import children, path_to
from ..types import EMPTY, Draft, Verdict
from .shapes import Path, Plan

WIDEST = 8  # ranks whose acceptance is measured
FIRST, LATER = 0.6, 0.3  # the chance of a first child, and of a later one once its elders were refused, ...
TRIALS = 4.0  # ... worth so many trials


class Growth:
    """frontier: the nodes whose children come next, -1 the newest committed token; empty when the tree is grown.
    level:    the newest nodes, of which those of the frontier are some.

    Children are the tokens that the session's own noise favours: the likeliest in greedy decoding, those of the largest
    keys under sampling.Keyed, draws under sampling.Stream, without replacement unless `replacement` is asked for
    (SpecInfer's with, Sequoia's without). A plan with a beam takes the likeliest as point masses where the noise draws.

    confidence: a node whose law gives no token this much probability gets no children, or with `keeps_last` none that
                have children. The law tells, not the token drawn from it: drawn tokens dropped for what they are would
                no longer follow q."""

    def __init__(
        self,
        session: Session,
        plan: Plan,
        *,
        replacement: bool = False,
        confidence: float | None = None,
        keeps_last: bool = False,
    ) -> None:
        self.session, self._plan = session, plan
        self._chooses = self.ranked and isinstance(session.noise, Stream)  # where other plans draw
        self._replacement = replacement and isinstance(session.noise, Stream) and not self.ranked
        self._confidence, self._keeps_last = confidence, keeps_last
        self._last: set[int] = set()  # nodes that keeps_last kept
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self._paths: list[Path] = []
        self._laws: list[Tensor] = []
        self._values: list[float] = []  # log-probabilities of the paths, where nodes are ranked
        self.frontier: list[int] = [-1] if plan.width(()) else []
        self.level: Sequence[int] = self.frontier

    @property
    def ranked(self) -> bool:
        """Whether the likeliest nodes are kept of what is grown."""
        return self._plan.beam is not None

    def extend(self, rows: Tensor) -> None:
        """Give the m nodes of the frontier their children. rows: [m, V] logits of what may follow each of them, over
        the target's vocabulary; finite, but for -inf."""
        begin = len(self.tokens)
        for node, raw in zip(self.frontier, rows, strict=True):
            self._branch(node, raw)
        self.level = range(begin, len(self.tokens))
        ends = self.session.stopping.stop_ids
        grown = [
            node
            for node in self.level
            if self.tokens[node] not in ends and node not in self._last and self._plan.width(self._paths[node])
        ]
        if self._plan.beam is not None and len(grown) > self._plan.beam:
            grown = sorted(self._likeliest(grown, self._plan.beam))
        self.frontier = grown

    def draft(self) -> Draft:
        if not self.tokens:
            return EMPTY
        laws = None if self.ranked or isinstance(self.session.noise, Argmax) else tuple(self._laws)
        if self._plan.nodes is None or len(self.tokens) <= self._plan.nodes:
            return Draft(tuple(self.tokens), tuple(self.parents), q=laws, replacement=self._replacement)
        nodes = sorted(self._likeliest(range(len(self.tokens)), self._plan.nodes))
        place = {-1: -1} | {node: i for i, node in enumerate(nodes)}
        return Draft(tuple(self.tokens[i] for i in nodes), tuple(place[self.parents[i]] for i in nodes))

    def _likeliest(self, nodes: Sequence[int], n: int) -> list[int]:
        """A parent is as likely as its child at least and stands before it, so no path has a gap."""
        return sorted(nodes, key=lambda node: (-self._values[node], node))[:n]

    def _branch(self, node: int, raw: Tensor) -> None:
        session, path = self.session, self._paths[node] if node >= 0 else ()
        prefix = [*session.tokens, *(self.tokens[i] for i in path_to(self.parents, node))]
        law = session.filters.apply(raw, prefix)
        doubts = self._confidence is not None and bool(law.softmax(-1).max() < self._confidence)
        if law.max() == -math.inf or (doubts and not self._keeps_last):
            return
        width, position = self._plan.width(path), len(prefix)
        if self._replacement:
            tokens, keys = [session.noise.draw(law, position) for _ in range(width)], law
        else:
            keys = law if self._chooses else session.noise.keys(law, position)
            tokens = best(keys, width)
        if doubts:
            self._last.update(range(len(self.tokens), len(self.tokens) + len(tokens)))
        self.tokens += tokens
        self.parents += [node] * len(tokens)
        self._paths += [(*path, rank) for rank in range(len(tokens))]
        self._laws += [law] * len(tokens)
        if self.ranked:
            above = self._values[node] if node >= 0 else 0.0
            self._values += (torch.log_softmax(keys, -1)[tokens] + above).tolist()


class Ranks:
    """How often the child of each rank is the accepted one, as far as a session has shown: Sequoia's acceptance vector,
    2402.12374 4.1."""

    def __init__(self) -> None:
        self._accepted = [FIRST * TRIALS, *[LATER * TRIALS] * (WIDEST - 1)]
        self._tried = [TRIALS] * WIDEST

    def see(self, draft: Draft, verdict: Verdict) -> None:
        """Each node on the accepted path shows which of its children was taken, if any."""
        offspring = children(draft.parents)
        node = -1
        for taken in (*verdict.path, None):
            for rank, child in enumerate(offspring[node + 1][:WIDEST]):
                self._tried[rank] += 1
                if child == taken:
                    self._accepted[rank] += 1
                    break
            if taken is None:
                return
            node = taken

    @property
    def acceptance(self) -> tuple[float, ...]:
        """[WIDEST] falling, in steps of a 64th, so that a plan holds for some time."""
        out: list[float] = []
        left = 1.0
        for accepted, tried in zip(self._accepted, self._tried, strict=True):
            share = min(left * accepted / tried, out[-1] if out else 1.0)
            left -= share
            out.append(share)
        return tuple(int(64 * share) / 64 for share in out)
