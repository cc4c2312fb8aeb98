"""A small language model drafts a chain (Leviathan et al. 2211.17192, algorithm 1; Chen et al. 2302.01318).

It reads the session into a cache of its own and draws from its own law under the session's filters. It knows the size
of the target's vocabulary and nothing else of it; whether the two tokenizers agree is checked where the pair is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..errors import BadOption, check_count
from ..metrics import accepted_prefix
from ..models.lm import LM, Cache, read
from ..sampling import Argmax
from ..session import Session
from ..types import EMPTY, Budget, Draft, Row, Scores, Verdict

log = logging.getLogger(__name__)

SCHEDULES = ("fixed", "assisted")
LAG = 32  # tokens: a longer lag is read without logits first


@dataclass(frozen=True)
class DraftLM:
    """lm:         the model that drafts, with the target's tokenizer.
    k:          tokens in a draft; the first draft's length where the schedule moves it.
    schedule:   "fixed", or "assisted": two more after a draft that was accepted whole, else one less (Gante, "Assisted
                Generation", 2023).
    confidence: end a draft before a token whose law gives no token this much probability (Zhang et al. 2309.08168 and
                BiLD 2302.07863 stop like this); None never does. Decided by the law and not by the token drawn from it,
                for drawn tokens dropped for what they are would no longer follow q.
    """

    lm: LM
    k: int = 5
    schedule: str = "fixed"
    confidence: float | None = None

    name = "lm"

    def __post_init__(self) -> None:
        check_count("drafter 'lm': k", self.k, 1)
        if self.schedule not in SCHEDULES:
            raise BadOption(f"drafter 'lm': schedule={self.schedule!r} is unknown; use {' or '.join(SCHEDULES)}")
        if self.confidence is not None and not (type(self.confidence) in (int, float) and 0 <= self.confidence <= 1):
            raise BadOption(f"drafter 'lm': confidence={self.confidence!r} is no probability; give one from 0 to 1")

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> Chains:
        if not hasattr(self.lm, "score"):
            raise BadOption(
                f"drafter 'lm': lm is a {type(self.lm).__name__}; make the drafter with draft_model(model, target)"
            )
        return Chains(self, sessions, target.vocab)


@dataclass(eq=False)
class _Reader:
    """How far the draft model has read one session."""

    session: Session
    slot: int  # the session's row in the drafter's cache
    k: int  # the schedule's draft length
    ahead: list[int] = field(default_factory=list)  # tokens run since the last commit


@dataclass(eq=False)
class _Chain:
    """One row's draft while it grows: `feed` is what to run next, `prefix` the session with the draft behind it."""

    row: int
    reader: _Reader
    depth: int
    feed: list[int]
    prefix: list[int]
    tokens: list[int] = field(default_factory=list)
    laws: list[Tensor] = field(default_factory=list)

    def append(self, token: int, law: Tensor) -> None:
        self.tokens.append(token)
        self.prefix.append(token)
        self.laws.append(law)
        self.feed = [token]

    def draft(self) -> Draft:
        drawn = not isinstance(self.reader.session.noise, Argmax)
        return Draft.chain(self.tokens, self.laws if drawn else None)


class Chains:
    """The drafter at work. What it runs stays uncommitted in its cache until the session has decided. What turns out to
    be the session's own is then kept, and the next draft first reads what is missing. So nothing is special about a
    draft accepted whole, in part or not at all, nor about tokens that came from elsewhere."""

    taps: tuple[int, ...] = ()

    def __init__(self, options: DraftLM, sessions: Sequence[Session], vocab: int) -> None:
        self._options, self._lm, self._vocab = options, options.lm, vocab
        self._warned = False
        obstacles = [self._obstacle(len(s.prompt.ids), s.prompt.ids) for s in sessions]
        readable = [row for row, obstacle in enumerate(obstacles) if obstacle is None]
        self._readers = {row: _Reader(sessions[row], slot, options.k) for slot, row in enumerate(readable)}
        self._cache = self._lm.open([sessions[row].prompt for row in readable])
        read(self._lm, self._cache, {reader.slot: reader.session.tokens[:-1] for reader in self._readers.values()})
        for row, obstacle in enumerate(obstacles):
            if obstacle is not None:
                self._warn(row, obstacle)

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        chains = self._start(rows, budgets)
        self._catch_up(chains)
        growing = chains
        while growing:
            scores = self._run([(chain.reader, chain.feed) for chain in growing])
            growing = [chain for chain, s in zip(growing, scores, strict=True) if self._extend(chain, s.logits[-1])]
        drafts = {chain.row: chain.draft() for chain in chains}
        return [drafts.get(row, EMPTY) for row in rows]

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        reader = self._readers.get(row)
        if self._options.schedule == "assisted" and reader is not None and len(draft):
            reader.k = reader.k + 2 if verdict.accepted == len(draft) else max(1, reader.k - 1)

    def release(self, row: int) -> None:
        reader = self._readers.pop(row, None)
        if reader is not None:
            self._cache.release(reader.slot)

    def _start(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[_Chain]:
        """Empty chains for the rows that may and can be drafted for."""
        chains = []
        for row, budget in zip(rows, budgets, strict=True):
            reader, room = self._readers.get(row), min(budget.depth, budget.nodes)
            if reader is None or room < 1:
                continue
            tokens, feed = reader.session.tokens, self._settle(reader)
            obstacle = self._obstacle(len(tokens), feed)
            if obstacle is not None:
                self._give_up(row, obstacle)
                continue
            depth = min(room, reader.k, self._lm.context - len(tokens))
            chains.append(_Chain(row, reader, depth, feed, list(tokens)))
        return chains

    def _settle(self, reader: _Reader) -> list[int]:
        """Commit what was run ahead as far as the session took it over, and return the session's tokens from there on:
        at least the newest, because its law is asked for."""
        unread = reader.session.tokens[self._cache.lengths[reader.slot] :]
        taken = accepted_prefix(ran == token for ran, token in zip(reader.ahead, unread[:-1], strict=False))
        self._cache.keep(reader.slot, range(taken))
        reader.ahead.clear()
        return unread[taken:]

    def _catch_up(self, chains: Sequence[_Chain]) -> None:
        late = [chain for chain in chains if len(chain.feed) > LAG]
        read(self._lm, self._cache, {chain.reader.slot: chain.feed[:-1] for chain in late})
        for chain in late:
            chain.feed = chain.feed[-1:]

    def _run(self, work: Sequence[tuple[_Reader, Sequence[int]]]) -> list[Scores]:
        """One pass of the draft model: each session's tokens behind what it was last fed."""
        rows = []
        for reader, feed in work:
            rows.append(Row.chain(reader.slot, feed, start=len(reader.ahead)))
            reader.ahead += feed
        return self._lm.score(self._cache, rows)

    def _extend(self, chain: _Chain, raw: Tensor) -> bool:
        """Draw the chain's next token from raw [V of the drafter] logits; False where the chain ends."""
        if not torch.isfinite(raw.max()):
            self._give_up(chain.row, "its logits are NaN or infinite")
            return False
        session = chain.reader.session
        law = session.filters.apply(_widen(raw, self._vocab), chain.prefix)
        if law.max() == -torch.inf or self._doubts(law):
            return False
        token = session.noise.draw(law, len(chain.prefix))
        chain.append(token, law)
        return len(chain.tokens) < chain.depth and token not in session.stopping.stop_ids

    def _doubts(self, law: Tensor) -> bool:
        confidence = self._options.confidence
        return confidence is not None and bool(law.softmax(-1).max() < confidence)

    def _obstacle(self, length: int, unread: Sequence[int]) -> str | None:
        """Why the draft model cannot read on in a session of `length` tokens, of which `unread` are new to it."""
        if length >= self._lm.context:
            return f"{length} tokens fill its context of {self._lm.context}"
        if max(unread) >= self._lm.vocab:
            return f"token id {max(unread)} is outside its vocabulary of {self._lm.vocab}"
        return None

    def _give_up(self, row: int, obstacle: str) -> None:
        self.release(row)
        self._warn(row, obstacle)

    def _warn(self, row: int, obstacle: str) -> None:
        if not self._warned:
            log.warning("the draft model cannot follow session %d: %s; it goes on without drafts", row, obstacle)
        self._warned = True


def _widen(logits: Tensor, vocab: int) -> Tensor:
    """[V of the drafter] logits over the target's `vocab` ids: those it does not share are cut off or impossible."""
    missing = vocab - len(logits)
    return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf) if missing > 0 else logits[:vocab]
