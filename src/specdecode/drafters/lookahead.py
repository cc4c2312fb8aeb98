"""Lookahead decoding: the target writes n-grams ahead of the text in the passes that check earlier ones.

Fu et al. 2024 (2402.02057). It runs no model of its own and knows one session's tokens and scores.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BadOption, check_count, check_flag
from ..models.lm import LM, Cache, check_trees
from ..session import Session
from ..types import Budget, Draft, Scores, Verdict
from .pool import NgramPool
from .prediction import predict, rows_by_path


@dataclass(frozen=True)
class Lookahead:
    """window:  W, the columns that each pass continues by a token.
    level:   N, the length of the n-grams that they become.
    guesses: G, how many n-grams are kept for each first token. All are tried when that token is the newest.
    text:    whether the pool also takes the n-grams of the prompt and of what is said.
    Raises BadOption for numbers out of range, and for more nodes than a step has.

    A pass is both branches of the paper: the window as probes, from which the drafter reads how its columns go on, and
    the pool's tails of N - 1 tokens as candidates, all of which can be accepted. Where paths agree they share nodes.
    When sampling, columns go on by the session's own draws where noise is keyed by position, by the likeliest tokens
    elsewhere. Either way candidates are chosen by what earlier passes said, so lossless rules stay lossless."""

    window: int = 5
    level: int = 5
    guesses: int = 5
    text: bool = True

    name = "lookahead"

    def __post_init__(self) -> None:
        for option, least in (("window", 1), ("level", 2), ("guesses", 1)):
            check_count(f"drafter 'lookahead': {option}", getattr(self, option), least)
        check_flag("drafter 'lookahead': text", self.text)
        nodes = self.window * (self.level - 1) - 1 + self.guesses * (self.level - 1)
        if nodes > Budget.nodes:
            raise BadOption(
                f"drafter 'lookahead': window={self.window}, level={self.level} and guesses={self.guesses} take up to "
                f"{nodes} nodes, and a step has {Budget.nodes}; lower one of them"
            )

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> Looking:
        check_trees(target, self.name, "choose another drafter")
        return Looking(self, sessions)


class Looking:
    """The windows and pools of each session."""

    taps: tuple[int, ...] = ()

    def __init__(self, options: Lookahead, sessions: Sequence[Session]) -> None:
        self._options = options
        self._sessions = sessions
        self._pools = {row: NgramPool(options.guesses) for row in range(len(sessions))}
        self._windows = {row: Window(s.prompt.ids, options.window, options.level) for row, s in enumerate(sessions)}
        for row, session in enumerate(sessions):
            self._read(row, session.prompt_length)

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        return [self._draft(row, budget) for row, budget in zip(rows, budgets, strict=True)]

    def _draft(self, row: int, budget: Budget) -> Draft:
        """The candidates first; then of the columns those that fit, for one without its end says nothing."""
        tree = _Tree(budget)
        for tail in self._pools[row].tails(self._sessions[row].newest):
            tree.add(tail, candidate=True)
        for path in self._windows[row].paths():
            if tree.fits(path):
                tree.add(path, candidate=False)
        return tree.draft()

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        session, window, pool, rows = self._sessions[row], self._windows[row], self._pools[row], rows_by_path(draft)
        before = session.tokens[: -len(verdict.tokens)]
        ends: list[int | None] = []
        for path in window.paths():
            at = rows.get(path)
            ends.append(None if at is None else predict(session, scores.logits[at], [*before, *path]))
        for ngram in window.advance(before[-1], ends, len(verdict.tokens)):
            pool.add(ngram)
        self._read(row, len(verdict.tokens))

    def release(self, row: int) -> None:
        del self._pools[row], self._windows[row]

    def _read(self, row: int, new: int) -> None:
        """Take the n-grams of the text that end in one of its `new` newest tokens."""
        if self._options.text:
            tokens, n = self._sessions[row].tokens, self._options.level
            for end in range(max(n, len(tokens) - new + 1), len(tokens) + 1):
                self._pools[row].add(tokens[end - n : end])


class Window:
    """W trajectories of Jacobi iteration. Column i holds N - 1 tokens of the positions i, i + 1, ... from the newest
    token on; the first tokens of all columns are level 0, one run of text that each column follows up to its own place
    and then leaves. Of column 0 the first token is the newest itself.

    Fresh columns are stretches of the prompt, each as if a trajectory had come through it. Where they begin is drawn
    from a generator of the window's own, the same for every session."""

    def __init__(self, prompt: Sequence[int], width: int, level: int) -> None:
        self._prompt, self._width, self._level = prompt, width, level
        self._places = random.Random(0)
        self._columns = [self._fresh() for _ in range(width)]

    def paths(self) -> list[tuple[int, ...]]:
        """[W] tokens from the newest one (left out) to the last of each column."""
        run = [column[0] for column in self._columns[1:]]
        return [(*run[:i], *column[1:]) for i, column in enumerate(self._columns)]

    def advance(self, newest: int, ends: Sequence[int | None], by: int) -> list[tuple[int, ...]]:
        """Move on by the `by` tokens of a step. Returns the n-grams that the columns have become.

        newest: the token that was the newest; ends: [W] what the target says at the end of each path, None where it was
        not asked: such a column stays."""
        self._columns[0][0] = newest
        ngrams: list[tuple[int, ...]] = []
        for i, end in enumerate(ends):
            if end is not None:
                ngrams.append((*self._columns[i], end))
                self._columns[i] = list(ngrams[-1][1:])
        del self._columns[: by - 1]  # each has moved on by one
        self._columns += [self._fresh() for _ in range(len(self._columns), self._width)]
        return ngrams

    def _fresh(self) -> list[int]:
        """Behind the prompt's end comes its beginning."""
        start, length = self._places.randrange(len(self._prompt)), len(self._prompt)
        return [self._prompt[(start + i) % length] for i in range(self._level - 1)]


class _Tree:
    """A draft while it grows, in which no path is twice. What is candidate and probe is a candidate."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._nodes: dict[tuple[int, ...], int] = {}
        self._parents: list[int] = []
        self._candidates = 0

    def fits(self, path: tuple[int, ...]) -> bool:
        known = next((n for n in range(len(path), 0, -1) if path[:n] in self._nodes), 0)
        return len(path) <= self._budget.depth and len(self._nodes) + len(path) - known <= self._budget.nodes

    def add(self, path: tuple[int, ...], *, candidate: bool) -> None:
        """As much of the path as there is room for. Candidates come first."""
        parent = -1
        for depth in range(1, min(len(path), self._budget.depth) + 1):
            node = self._nodes.get(path[:depth])
            if node is None:
                if len(self._nodes) >= self._budget.nodes:
                    return
                node = self._nodes[path[:depth]] = len(self._nodes)
                self._parents.append(parent)
                self._candidates += candidate
            parent = node

    def draft(self) -> Draft:
        n = len(self._nodes)
        flags = None if self._candidates == n else tuple(node < self._candidates for node in range(n))
        return Draft(tuple(path[-1] for path in self._nodes), tuple(self._parents), candidate=flags)
