"""How a model that drafts follows the sessions: what it has read of them, and the nodes that it runs ahead.

OwnCache is another model's way, TargetCache that of a part of the target itself. They know sessions and passes; not
what is drafted, nor why.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from ..models.lm import LM, Cache, read
from ..session import Session
from ..tree import children, depths
from ..types import EMPTY, Draft, Row, Scores, Sublayers
from .merged import take

log = logging.getLogger(__name__)

LAG = 32  # tokens: a longer lag is read without logits first


class Reading(Protocol):
    """exit: the layer at which scoring may resume the nodes that were run here; None where it may not."""

    exit: int | None

    def feeds(self, rows: Collection[int]) -> dict[int, list[int]]:
        """What is to be run first for each of `rows`, its newest token last. Rows that cannot be followed are left
        out."""
        ...

    def room(self, row: int) -> int:
        """How many more tokens fit behind the session's."""
        ...

    def readable(self, row: int, draft: Draft) -> Draft:
        """What of a draft behind the session's tokens can be run."""
        ...

    def run(self, rows: Sequence[Row], logits: bool = True) -> list[Scores]:
        """One pass over nodes behind what was fed (Row.index is the session's); with `exit` the states that leave the
        layer before it are tapped."""
        ...

    def give_up(self, row: int, obstacle: str) -> None:
        """Do not follow this session any further."""
        ...

    def release(self, row: int) -> None: ...


@dataclass(eq=False)
class _Reader:
    """How far a model with a cache of its own has read a session."""

    session: Session
    slot: int  # the session's row in that cache
    ran: list[int] = field(default_factory=list)  # nodes run since the last commit, as Row counts them
    parents: list[int] = field(default_factory=list)


class OwnCache:
    """Another model, of whose tokenizer the target's vocabulary is. What it runs stays uncommitted in its cache until
    the session has decided. What turns out to be the session's own is then kept, and what is missing is read first. So
    nothing is special about a draft accepted whole, in part or not at all, nor about tokens that came from
    elsewhere."""

    exit: int | None = None

    def __init__(self, lm: LM, sessions: Sequence[Session]) -> None:
        self._lm = lm
        self._warned = False
        obstacles = [self._obstacle(len(s.prompt.ids), s.prompt.ids) for s in sessions]
        readable = [row for row, obstacle in enumerate(obstacles) if obstacle is None]
        self._readers = {row: _Reader(sessions[row], slot) for slot, row in enumerate(readable)}
        self._cache = lm.open([sessions[row].prompt for row in readable])
        read(lm, self._cache, {reader.slot: reader.session.tokens[:-1] for reader in self._readers.values()})
        for row, obstacle in enumerate(obstacles):
            if obstacle is not None:
                self._warn(row, obstacle)

    def feeds(self, rows: Collection[int]) -> dict[int, list[int]]:
        feeds: dict[int, list[int]] = {}
        for row in rows:
            if row in self._readers:
                feed = self._settle(self._readers[row])
                obstacle = self._obstacle(len(self._readers[row].session.tokens), feed)
                if obstacle is None:
                    feeds[row] = feed
                else:
                    self.give_up(row, obstacle)
        late = {row: feed for row, feed in feeds.items() if len(feed) > LAG}
        read(self._lm, self._cache, {self._readers[row].slot: feed[:-1] for row, feed in late.items()})
        return feeds | {row: feed[-1:] for row, feed in late.items()}

    def room(self, row: int) -> int:
        return self._lm.context - len(self._readers[row].session.tokens)

    def readable(self, row: int, draft: Draft) -> Draft:
        if row not in self._readers:
            return EMPTY
        nodes: list[int] = []
        for node, (token, parent, depth) in enumerate(
            zip(draft.tokens, draft.parents, depths(draft.parents), strict=True)
        ):
            if token < self._lm.vocab and depth < self.room(row) and (parent < 0 or parent in nodes):
                nodes.append(node)
        return take(draft, nodes)

    def run(self, rows: Sequence[Row], logits: bool = True) -> list[Scores]:
        own = []
        for row in rows:
            reader = self._readers[row.index]
            reader.ran += row.tokens
            reader.parents += row.parents
            own.append(replace(row, index=reader.slot))
        return self._lm.score(self._cache, own, logits=logits)

    def give_up(self, row: int, obstacle: str) -> None:
        self.release(row)
        self._warn(row, obstacle)

    def release(self, row: int) -> None:
        reader = self._readers.pop(row, None)
        if reader is not None:
            self._cache.release(reader.slot)

    def _settle(self, reader: _Reader) -> list[int]:
        """Commit what was run ahead as far as the session took it over, and return the session's tokens from there on:
        at least the newest, because its law is asked for."""
        unread = reader.session.tokens[self._cache.lengths[reader.slot] :]
        offspring, path = children(reader.parents), [-1]
        for token in unread[:-1]:
            node = next((child for child in offspring[path[-1] + 1] if reader.ran[child] == token), None)
            if node is None:
                break
            path.append(node)
        self._cache.keep(reader.slot, path[1:])
        reader.ran.clear()
        reader.parents.clear()
        return unread[len(path) - 1 :]

    def _obstacle(self, length: int, unread: Sequence[int]) -> str | None:
        """Why the model cannot read on in a session of `length` tokens, of which `unread` are new to it."""
        if length >= self._lm.context:
            return f"{length} tokens fill its context of {self._lm.context}"
        if max(unread) >= self._lm.vocab:
            return f"token id {max(unread)} is outside its vocabulary of {self._lm.vocab}"
        return None

    def _warn(self, row: int, obstacle: str) -> None:
        if not self._warned:
            log.warning("the draft model cannot follow session %d: %s; it goes on without drafts", row, obstacle)
        self._warned = True


class TargetCache:
    """A part of the target, which reads the target's own keys and values and writes behind them. Nothing of that is
    ever committed: the scoring pass begins behind the prefix again, or resumes at `exit`.

    run: the parts of the stack that draft."""

    def __init__(
        self, lm: LM, cache: Cache, sessions: Sequence[Session], run: Sublayers, exit: int | None = None
    ) -> None:
        self.exit = exit
        self._lm, self._cache, self._sessions, self._run = lm, cache, sessions, run
        self._silent: set[int] = set()

    def feeds(self, rows: Collection[int]) -> dict[int, list[int]]:
        return {row: [self._sessions[row].newest] for row in rows if row not in self._silent}

    def room(self, row: int) -> int:
        return self._lm.context - len(self._sessions[row].tokens)

    def readable(self, row: int, draft: Draft) -> Draft:
        return draft

    def run(self, rows: Sequence[Row], logits: bool = True) -> list[Scores]:
        taps = () if self.exit is None else (self.exit - 1,)
        return self._lm.score(self._cache, rows, layers=self._run, taps=taps, logits=logits)

    def give_up(self, row: int, obstacle: str) -> None:
        log.warning("this model's layers cannot draft for session %d: %s; it goes on without drafts", row, obstacle)
        self._silent.add(row)

    def release(self, row: int) -> None:
        self._silent.discard(row)
