"""Drafters that propose what a test wants, and a watch over any drafter."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from specdecode.drafters import Drafter, Drafting
from specdecode.models.lm import LM, Cache
from specdecode.sampling import Argmax
from specdecode.session import Session
from specdecode.tree import depths
from specdecode.types import EMPTY, Budget, Draft, Scores, Verdict

Tokens = Sequence[int]


@dataclass(frozen=True, eq=False)
class Turn:
    """One step of one session as its drafter saw it: the tokens it drafted after, the draft, and what became of it."""

    row: int
    prefix: tuple[int, ...]
    draft: Draft
    verdict: Verdict


@dataclass(frozen=True)
class Watched:
    """Any drafter, with what engine and drafter owe each other asserted, and every step of every session logged in
    `seen`, in order."""

    drafter: Drafter
    seen: list[Turn] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.drafter.name

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> _WatchedDrafting:
        assert not any(cache.lengths), "a drafter begins, and may refuse, before any pass"
        return _WatchedDrafting(self.drafter.begin(sessions, target, cache), self.seen, sessions, target, cache)


class _WatchedDrafting:
    def __init__(
        self, drafting: Drafting, seen: list[Turn], sessions: Sequence[Session], target: LM, cache: Cache
    ) -> None:
        self.taps = drafting.taps
        self._drafting, self._seen, self._sessions, self._vocab, self._cache = (
            drafting,
            seen,
            sessions,
            target.vocab,
            cache,
        )
        self._live = set(range(len(sessions)))
        self._open: dict[int, tuple[tuple[int, ...], Draft]] = {}

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        assert len(set(rows)) == len(rows) == len(budgets)
        for row in rows:
            assert row in self._live, f"row {row} has ended"
            assert row not in self._open, f"row {row} was not told what became of its last draft"
            assert self._cache.lengths[row] == len(self._sessions[row].tokens) - 1, "only the newest token is unscored"
        drafts = self._drafting.draft(rows, budgets)
        assert len(drafts) == len(rows), "a draft a row"
        for row, budget, draft in zip(rows, budgets, drafts, strict=True):
            assert max(depths(draft.parents), default=-1) < max(0, budget.depth), f"{draft} exceeds {budget}"
            assert len(draft) <= max(0, budget.nodes), f"{draft} exceeds {budget}"
            assert all(0 <= token < self._vocab for token in draft.tokens), f"{draft} leaves the target's vocabulary"
            self._open[row] = (tuple(self._sessions[row].tokens), draft)
        return drafts

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        prefix, drafted = self._open.pop(row)
        assert drafted is draft
        assert tuple(self._sessions[row].tokens) == (*prefix, *verdict.tokens), (
            "observe comes after the tokens are appended"
        )
        assert len(scores.logits) == len(draft) + 1, "one line of scores a node, and one for the newest token"
        self._seen.append(Turn(row, prefix, draft, verdict))
        self._drafting.observe(row, draft, verdict, scores)

    def release(self, row: int) -> None:
        self._live.remove(row)
        self._drafting.release(row)


Propose = Callable[[int, int, Session, Budget], Draft]  # (row, turn of that row, session, budget) -> a draft in budget
Law = Callable[[tuple[int, ...], int], Tensor]  # as StubLM.law
Truth = Tokens | Mapping[tuple[int, ...], Tokens]  # the right new tokens, or those of each prompt


@dataclass(frozen=True)
class _Proposer:
    propose: Propose

    name = "stub"
    model_free = True

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> _Proposing:
        return _Proposing(self.propose, sessions)


class _Proposing:
    taps: tuple[int, ...] = ()

    def __init__(self, propose: Propose, sessions: Sequence[Session]) -> None:
        self._propose, self._sessions = propose, sessions
        self._turns = [0] * len(sessions)

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        drafts = []
        for row, budget in zip(rows, budgets, strict=True):
            drafts.append(self._propose(row, self._turns[row], self._sessions[row], budget))
            self._turns[row] += 1
        return drafts

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        pass

    def release(self, row: int) -> None:
        pass


def stub(propose: Propose) -> Watched:
    """A drafter that proposes what a function says."""
    return Watched(_Proposer(propose))


def fix(tokens: Tokens) -> Watched:
    """FIX: proposes `tokens` at every step."""
    return stub(lambda row, turn, session, budget: _chain(tokens, budget))


def mix(truth: Truth, *patterns: Tokens, k: int = 4, vocab: int = 97) -> Watched:
    """MIX: in turn i, pattern[i] tokens of the truth and wrong ones up to k, cycling. One pattern serves every row of a
    batch; of several, row b takes patterns[b]."""

    def propose(row: int, turn: int, session: Session, budget: Budget) -> Draft:
        pattern = patterns[row % len(patterns)]
        ahead = _truth(truth, session)[: min(k, budget.depth)]
        right = pattern[turn % len(pattern)]
        return _chain([*ahead[:right], *((token + 1) % vocab for token in ahead[right:])], budget)

    return stub(propose)


def oracle(truth: Truth, k: int = 4, lengths: Tokens = ()) -> Watched:
    """ORACLE: drafts what the target wants to say; `lengths` replaces k by a cycle of draft lengths."""

    def propose(row: int, turn: int, session: Session, budget: Budget) -> Draft:
        return _chain(_truth(truth, session)[: lengths[turn % len(lengths)] if lengths else k], budget)

    return stub(propose)


def chancy(
    truth: Tokens, chance: Callable[[int], float], *, k: int = 16, confidence: float | None = None, vocab: int = 97
) -> Watched:
    """Drafts the right token for new token i with chance(i), decided once for each i, and a wrong one else."""
    right = [random.Random(i).random() < chance(i) for i in range(len(truth))]

    def propose(row: int, turn: int, session: Session, budget: Budget) -> Draft:
        done = len(session.tokens) - session.prompt_length
        ahead = range(done, min(len(truth), done + min(k, budget.depth, budget.nodes)))
        tokens = [truth[i] if right[i] else (truth[i] + 1) % vocab for i in ahead]
        return Draft.chain(tokens, confidence=None if confidence is None else (confidence,) * len(tokens))

    return stub(propose)


def anti(truth: Truth, k: int = 4, vocab: int = 97) -> Watched:
    """ANTI: drafts only wrong ids."""
    return mix(truth, (0,), k=k, vocab=vocab)


def drawn_tree(law: Law, widths: Tokens, *, replacement: bool = False) -> Watched:
    """Every node of depth d has widths[d] children, drawn from q = the session's filters over `law`, with or without
    replacement. Widths of 1 make a chain. In a greedy session the draws are the likeliest tokens, as point masses."""

    def children_of(prefix: tuple[int, ...], width: int, session: Session) -> list[tuple[int, Tensor | None]]:
        q = session.filters.apply(law(prefix, len(prefix) - session.prompt_length), prefix)
        left = q.clone()
        out: list[tuple[int, Tensor | None]] = []
        while len(out) < width and left.max() > -math.inf:
            token = session.noise.draw(left, len(prefix))
            out.append((token, None if isinstance(session.noise, Argmax) else q))
            if not replacement:
                left[token] = -math.inf
        return out

    return stub(lambda row, turn, session, budget: _tree(session, budget, widths, children_of, replacement))


def top_tree(law: Law, widths: Tokens) -> Watched:
    """Every node of depth d has the widths[d] likeliest tokens as children: chosen, not drawn (point masses)."""

    def children_of(prefix: tuple[int, ...], width: int, session: Session) -> list[tuple[int, Tensor | None]]:
        q = session.filters.apply(law(prefix, len(prefix) - session.prompt_length), prefix)
        return [(token, None) for token in q.topk(min(width, len(q))).indices.tolist()]

    return stub(lambda row, turn, session, budget: _tree(session, budget, widths, children_of, False))


def _chain(tokens: Tokens, budget: Budget) -> Draft:
    return Draft.chain(tokens[: max(0, min(budget.depth, budget.nodes))])


def _truth(truth: Truth, session: Session) -> Tokens:
    """The right tokens from the next one on."""
    whole = truth[session.prompt.ids] if isinstance(truth, Mapping) else truth
    return whole[len(session.tokens) - session.prompt_length :]


def _tree(session: Session, budget: Budget, widths: Tokens, children_of: Any, replacement: bool) -> Draft:
    """Breadth first, up to the budget."""
    tokens: list[int] = []
    parents: list[int] = []
    laws: list[Tensor | None] = []
    layer = [(-1, tuple(session.tokens))]
    for width in widths[: budget.depth]:
        following = []
        for parent, prefix in layer:
            for token, law in children_of(prefix, width, session)[: budget.nodes - len(tokens)]:
                following.append((len(tokens), (*prefix, token)))
                tokens.append(token)
                parents.append(parent)
                laws.append(law)
        layer = following
    return Draft(tuple(tokens), tuple(parents), q=tuple(laws), replacement=replacement) if tokens else EMPTY
