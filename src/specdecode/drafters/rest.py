"""REST: continuations of the newest tokens, retrieved from a datastore of texts.

He et al. 2023 (2311.08252): the longest suffix that the store holds, and what followed it there, merged into one tree
by frequency. It runs no model and draws nothing, so its drafts are point masses. It knows the store's text and a
session's last tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..datastore import LONGEST, Store
from ..errors import BadOption, Incompatible, shown
from ..models.lm import LM, Cache, check_trees
from ..session import Session
from ..types import Budget, Draft, Scores, Verdict
from .continuations import Criteria, capped, check_options, grow
from .recall import recall

# How often what followed a match of 1, 2, 3, ... tokens in other modules of a library came again: bench/datastore.py.
RECURRENCE = (0.08, 0.15, 0.25, 0.4, 0.45, 0.55, 0.65, 0.65, 0.75, 0.8, 0.8, 0.8, 0.85, 0.85, 0.85, 0.9)


@dataclass(frozen=True)
class Rest:
    """store: the file that `specdecode datastore build` wrote, or a Store.
    k:     the most nodes in a draft.
    floor: the least estimated probability, from the root, of a node.
    width: the most siblings; 1 drafts chains.
    Raises BadOption for other values, and LoadError for a file that is no datastore, or damaged."""

    store: str | Path | Store
    k: int = 16
    floor: float = 0.1
    width: int = 4
    opened: Store = field(init=False, repr=False, compare=False)

    name = "rest"
    model_free = True

    def __post_init__(self) -> None:
        check_options(self.name, self.k, self.floor, self.width)
        if not isinstance(self.store, str | Path | Store) or self.store == "":
            raise BadOption(f"drafter 'rest': store={shown(self.store)} is no file; give that of a datastore")
        object.__setattr__(self, "opened", self.store if isinstance(self.store, Store) else Store.open(self.store))

    def check_tokenizer(self, fingerprint: str) -> None:
        """Raises Incompatible for a tokenizer whose ids are not the store's."""
        found = self.opened.about.tokenizer
        if found not in ("", fingerprint):
            raise Incompatible(
                f"datastore {self.opened.name} was built with another tokenizer ({found}, the model's is "
                f"{fingerprint}); build one with --model"
            )

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> Retrieving:
        if self.width > 1:
            check_trees(target, self.name, "give it width=1")
        return Retrieving(self, sessions, target.vocab)


class Retrieving:
    """A look-up a draft; nothing is kept."""

    taps: tuple[int, ...] = ()

    def __init__(self, options: Rest, sessions: Sequence[Session], vocab: int) -> None:
        self._options, self._sessions = options, sessions
        self._criteria = Criteria(RECURRENCE, vocab, options.floor, options.width)

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        return [self._retrieve(self._sessions[row], budget) for row, budget in zip(rows, budgets, strict=True)]

    def _retrieve(self, session: Session, budget: Budget) -> Draft:
        budget = capped(budget, self._options.k)
        start = recall(self._options.opened.array, session.tokens[-LONGEST:], budget)
        return grow(start, budget, self._criteria, session.stopping.stop_ids)

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        pass

    def release(self, row: int) -> None:
        pass
