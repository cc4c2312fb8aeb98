"""Suffix matches: a tree of what followed the newest tokens before, in this session and in earlier answers.

SAM Decoding (2411.10666) finds the longest match with a suffix automaton; SuffixDecoding (2411.04975) weighs what
followed it by how often it did. Runs no model and draws nothing, so its drafts are point masses. It knows tokens alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..datastore import LONGEST
from ..models.lm import LM, Cache, check_trees
from ..session import Session
from ..types import Budget, Draft, Scores, Verdict
from .automaton import SuffixAutomaton
from .continuations import Criteria, Places, capped, check_options, grow
from .memory import Memory
from .ngram import RECURRENCE
from .recall import recall


@dataclass(frozen=True)
class Suffix:
    """k:      the most nodes in a draft.
    floor:  the least estimated probability, from the root, of a node.
    width:  the most siblings; 1 drafts chains.
    memory: earlier answers to draft from as well: a Memory, which drafters may share, or the file of one.
    Raises BadOption for other values, and LoadError for a file that is damaged.

    A generation drafts from answers that were complete when it began, so its rows do not influence each other. Where
    the draw of a seed depends on what was drafted (sampling.Stream), the text of a seed depends on the memory."""

    k: int = 16
    floor: float = 0.2
    width: int = 4
    memory: Memory | str | Path | None = None
    answers: Memory | None = field(init=False, repr=False, compare=False)

    name = "suffix"
    model_free = True

    def __post_init__(self) -> None:
        check_options(self.name, self.k, self.floor, self.width)
        memory = self.memory
        object.__setattr__(self, "answers", memory if memory is None or isinstance(memory, Memory) else Memory(memory))

    def check_tokenizer(self, fingerprint: str) -> None:
        """Raises Incompatible for a memory of other ids."""
        if self.answers is not None:
            self.answers.check_tokenizer(fingerprint)

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> Recalling:
        if self.width > 1:
            check_trees(target, self.name, "give it width=1")
        return Recalling(self, sessions, target.vocab)


class Recalling:
    """An automaton of each session's committed tokens, and the earlier answers as they were when it began."""

    taps: tuple[int, ...] = ()

    def __init__(self, options: Suffix, sessions: Sequence[Session], vocab: int) -> None:
        self._options = options
        self._criteria = Criteria(RECURRENCE, vocab, options.floor, options.width)
        self._sessions = dict(enumerate(sessions))
        self._automata = {row: SuffixAutomaton(s.tokens, LONGEST + 1) for row, s in enumerate(sessions)}
        self._earlier = options.answers.snapshot() if options.answers is not None else None
        self._answers: list[list[int]] = []  # of rows that have ended, with the tokens before that lead to them

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        return [self._continue(row, capped(budget, self._options.k)) for row, budget in zip(rows, budgets, strict=True)]

    def _continue(self, row: int, budget: Budget) -> Draft:
        automaton = self._automata[row]
        start: Places = {automaton.levels: automaton.place()}
        if self._earlier is not None:
            start |= recall(self._earlier, automaton.tokens[-LONGEST:], budget)
        return grow(start, budget, self._criteria, self._sessions[row].stopping.stop_ids)

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        pass

    def release(self, row: int) -> None:
        """The answer of the row is complete; all are remembered together, once the last one is."""
        session = self._sessions.pop(row)
        del self._automata[row]
        if self._options.answers is not None:
            self._answers.append(session.tokens[max(0, session.prompt_length - LONGEST) :])
            if not self._sessions:
                self._options.answers.add(self._answers)
