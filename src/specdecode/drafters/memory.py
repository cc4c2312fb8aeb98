"""Earlier answers, for the drafter `suffix`: kept for the process and, where there is a file for them, for later ones.

Knows tokens; no session, model or draft.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Lock

import numpy as np

from ..datastore import SEPARATOR, Store, SuffixArray
from ..errors import BadOption, Incompatible, WriteError, check_count, shown

KIND = "answers"  # of datastore

log = logging.getLogger("specdecode")


class Memory:
    """path:  a file that the answers are read from, if it is there, and written to whenever some are added (a datastore
           like any other; of several processes that write it the last one wins). None keeps them in memory alone.
    tokens: the most kept, some 50 ms to sort when they have changed; the oldest answers go.

    Safe to be shared by threads. Raises BadOption for other values, LoadError for a file that is damaged."""

    def __init__(self, path: str | Path | None = None, tokens: int = 1 << 17) -> None:
        check_count("memory: tokens", tokens, 1)
        if not isinstance(path, str | Path | None) or path == "":
            raise BadOption(f"memory: path={shown(path)} is no file; give one, or None")
        self.path, self._most = path, tokens
        self._lock = Lock()
        self._answers: deque[tuple[int, ...]] = deque()
        self._held = 0  # tokens of them
        self._store: Store | None = None  # of these answers, once it is asked for
        self._tokenizer = ""
        if path is not None and Path(path).exists():
            self._load(Store.open(path))

    def check_tokenizer(self, fingerprint: str) -> None:
        """Raises Incompatible where the answers are of a model with another tokenizer."""
        with self._lock:
            if self._tokenizer not in ("", fingerprint):
                raise Incompatible(
                    f"the memory {self.path or 'of this drafter'} holds answers of a model with another tokenizer "
                    f"({self._tokenizer}, not {fingerprint}); give each its own"
                )
            self._tokenizer = fingerprint

    def snapshot(self) -> SuffixArray | None:
        """The answers of now, sorted; None where there are none. What is added later does not change it."""
        with self._lock:
            return self._sorted().array if self._answers else None

    def add(self, answers: Iterable[Sequence[int]]) -> None:
        """Keep answers, and write the file. Where that fails a warning says so: what was answered is not to be lost."""
        with self._lock:
            self._keep(answers)
            if self.path is not None and self._answers:
                try:
                    self._sorted().write(self.path)
                except WriteError as error:
                    log.warning("answers are remembered in this process alone: %s", error)

    def _sorted(self) -> Store:
        if self._store is None:
            self._store = Store.of(self._answers, self._tokenizer, KIND)
        return self._store

    def _load(self, store: Store) -> None:
        if store.about.kind != KIND:
            raise BadOption(f"memory: {store.name} holds {store.about.kind}, which would be lost; give another file")
        self._tokenizer = store.about.tokenizer
        whole = store.array.tokens
        self._keep(part[:-1].tolist() for part in np.split(whole, np.flatnonzero(whole == SEPARATOR) + 1))

    def _keep(self, answers: Iterable[Sequence[int]]) -> None:
        kept = [tuple(answer[-self._most :]) for answer in answers if answer]
        self._answers.extend(kept)
        self._held += sum(map(len, kept))
        while self._held > self._most:
            self._held -= len(self._answers.popleft())
        self._store = None
