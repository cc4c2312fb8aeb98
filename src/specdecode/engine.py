"""The loop: draft, score, verify, clip, keep, observe. Knows protocols only: no method, no architecture, no text.

Plain decoding is this loop with the null drafter; prefill stops one token early, so that prefill, plain decoding, full
acceptance, full rejection and empty drafts are one path. After each step every session holds one token more than its
cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import torch
from torch import Tensor

from . import tree
from .drafters import Drafter
from .errors import Incompatible, NumericalError
from .metrics import StepRecord
from .models.lm import LM, read
from .session import Session
from .types import Budget, Draft, Row, Scores, TokenLogprob, Verdict
from .verify import Verifier


@dataclass(frozen=True)
class Emission:
    """What one step gave one session: its tokens, how many of them had been drafted, and why it ended, if it did."""

    row: int
    tokens: tuple[int, ...]
    accepted: int
    finish_reason: str | None


class Generation:
    """A batch of sessions being decoded together; row b of everything belongs to sessions[b].

    Nothing outlives it and nothing is shared between two of them but the model's weights, so it may be abandoned at any
    point. Raises whatever `lm.open` and `drafter.begin` refuse, before any pass; NumericalError from `step`."""

    def __init__(self, lm: LM, drafter: Drafter, sessions: Sequence[Session], rules: Sequence[Verifier]) -> None:
        assert len(sessions) == len(rules)
        self.sessions = list(sessions)
        self.active = list(range(len(self.sessions)))
        self._lm, self._rules = lm, list(rules)
        started = perf_counter()
        self._cache = lm.open([session.prompt for session in self.sessions])
        self._drafting = drafter.begin(self.sessions, lm, self._cache)
        if self._drafting.taps and not lm.capabilities.taps:
            raise Incompatible(
                f"drafter {drafter.name!r} reads hidden states, which this model does not give: choose another drafter"
            )
        read(lm, self._cache, {row: session.tokens[:-1] for row, session in enumerate(self.sessions)})
        self.prefill_s = perf_counter() - started

    def __iter__(self) -> Iterator[list[Emission]]:
        while self.active:
            yield self.step()

    def step(self) -> list[Emission]:
        """One pass for every unfinished session."""
        rows, started = list(self.active), perf_counter()
        sessions = [self.sessions[row] for row in rows]
        drafts = self._drafting.draft(rows, [Budget(session.remaining - 1) for session in sessions])
        drafted = perf_counter()
        asked = [Row.of(row, s.newest, draft) for row, s, draft in zip(rows, sessions, drafts, strict=True)]
        scores = self._score(asked, drafts)
        scored = perf_counter()
        verdicts = [self._settle(*each) for each in zip(rows, drafts, scores, strict=True)]
        seconds = (drafted - started, scored - drafted, perf_counter() - started)
        for session, draft, verdict in zip(sessions, drafts, verdicts, strict=True):
            session.records.append(_record(draft, verdict, [s / len(rows) for s in seconds]))
        return [
            Emission(r, v.tokens, v.accepted, self.sessions[r].finish_reason)
            for r, v in zip(rows, verdicts, strict=True)
        ]

    def _score(self, rows: Sequence[Row], drafts: Sequence[Draft]) -> list[Scores]:
        """The target's pass; where drafts have been through its first layers, one for each layer to resume at."""
        scores: dict[int, Scores] = {}
        for entry in {draft.entry for draft in drafts}:
            some = [row for row, draft in zip(rows, drafts, strict=True) if draft.entry == entry]
            layers = range(entry, self._lm.n_layers) if entry else None
            passed = self._lm.score(self._cache, some, taps=self._drafting.taps, layers=layers)
            scores |= {row.index: s for row, s in zip(some, passed, strict=True)}
        return [scores[row.index] for row in rows]

    def _settle(self, row: int, draft: Draft, scores: Scores) -> Verdict:
        """Verify, clip, keep and observe for one session."""
        session = self.sessions[row]
        laws = session.filters.rows(scores.logits, session.tokens, draft)
        verdict = self._rules[row].verify(draft, laws, session.noise, session.position, session.spent)
        verdict, reason = session.stopping.clip(verdict, session.new_tokens)
        _check_finite(scores.logits.amax(-1)[list(verdict.nodes)], session)  # drafts that were not taken may be odd
        session.filters.commit(laws, verdict.path)
        self._cache.keep(row, verdict.nodes)
        session.tokens.extend(verdict.tokens)
        session.spent += sum(verdict.nats)
        if session.top_logprobs is not None:
            session.logprobs += _logprobs(scores.logits, verdict, session.top_logprobs)
        self._drafting.observe(row, draft, verdict, scores)
        if reason is not None:
            session.finish_reason = reason
            self.active.remove(row)
            self._cache.release(row)
            self._drafting.release(row)
        return verdict


def _check_finite(largest: Tensor, session: Session) -> None:
    """largest: [m] the largest logit of each emitted token's row; -inf elsewhere is a model's way to forbid tokens."""
    if not torch.isfinite(largest).all():
        raise NumericalError(
            f"the model returned NaN or infinite logits after {len(session.tokens)} tokens: its weights are damaged or "
            "overflow in this dtype; check the files or load it in float32"
        )


def _record(draft: Draft, verdict: Verdict, seconds: Sequence[float]) -> StepRecord:
    candidates = [node for node in range(len(draft)) if draft.is_candidate(node)]
    depth = tree.depths(draft.parents)
    return StepRecord(
        drafted=max((depth[node] + 1 for node in candidates), default=0),
        nodes=len(candidates),
        probes=len(draft) - len(candidates),
        accepted=verdict.accepted,
        emitted=len(verdict.tokens),
        nats=sum(verdict.nats),
        draft_s=seconds[0],
        target_s=seconds[1],
        total_s=seconds[2],
    )


def _logprobs(logits: Tensor, verdict: Verdict, top: int) -> list[TokenLogprob]:
    laws = logits[list(verdict.nodes)].log_softmax(-1)
    out = []
    for law, token in zip(laws, verdict.tokens, strict=True):
        values, ids = law.topk(top) if top else (law[:0], law[:0].long())
        out.append(TokenLogprob(token, float(law[token]), dict(zip(ids.tolist(), values.tolist(), strict=True))))
    return out
