"""Parallel decoding: the target's guesses at many positions are refined together, pass by pass (Jacobi iteration).

Santilli et al. 2023 (2305.10427): greedy decoding is the system y_i = argmax p(y_i | x, y_<i); a pass computes all of
its right-hand sides from the last guess of y. Here the guess is the draft, and what the target says along it is the
next guess. It runs no model of its own and knows one session's tokens and scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BadOption, check_count, is_count, shown
from ..models.lm import LM, Cache
from ..session import Session
from ..types import Budget, Draft, Scores, Verdict
from .prediction import predict, rows_by_path

MODES = ("jacobi", "gauss-seidel", "hybrid")
INITS = ("prompt", "repeat")


@dataclass(frozen=True)
class Jacobi:
    """mode:   "jacobi" (the paper's algorithm 1, PJ): one guess of all that may still be said, refined as a whole; with
            a `block`, of so many tokens from the next one on: a window that moves with the text.
            "gauss-seidel" (algorithm 2, PGJ): the output is divided into blocks, and each is guessed once the one
            before it is final. What is left of a block is drafted, so its passes get shorter.
            "hybrid" (algorithm 3, HGJ): the same for the first `length` new tokens, and plain decoding from there on,
            for nobody knows how long the output will be.
    block:  rows of a pass at most, hence tokens of a block: the newest token's row says the first of them, so drafts
            have a node less. None, for "jacobi" alone: as many as there is room for.
    length: new tokens after which "hybrid" decodes plainly.
    init:   the first guess at a position: "prompt", the prompt's tokens in turn; "repeat", the newest token; or an id,
            such as that of the model's padding token, which is the paper's choice.
    Raises BadOption for what does not exist, numbers out of range, and options that the mode has not or lacks.

    The engine tests the guess in every pass. So no pass is spent on finding that a guess has stopped changing, and what
    is final is out while the rest is refined; the guesses are the paper's. After t passes at least t tokens are final.
    When sampling with noise keyed by position, the system is y_i = the draw of position i, and its solution the text of
    the seed; with other noise guesses are the likeliest tokens."""

    mode: str = "jacobi"
    block: int | None = 3
    length: int | None = None
    init: str | int = "prompt"

    name = "jacobi"
    model_free = True

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise BadOption(f"drafter 'jacobi': mode={shown(self.mode)} is unknown; use {', '.join(MODES)}")
        if self.init not in INITS and not is_count(self.init):
            raise BadOption(
                f"drafter 'jacobi': init={shown(self.init)} is unknown; use {', '.join(INITS)} or a token id"
            )
        if self.block is not None or self.mode != "jacobi":
            check_count("drafter 'jacobi': block", self.block, 2)
        if self.mode == "hybrid":
            check_count("drafter 'jacobi': length", self.length, 1)
        elif self.length is not None:
            raise BadOption(
                f"drafter 'jacobi': mode={self.mode!r} has no length, found {shown(self.length)}; leave it out, or use "
                "mode='hybrid'"
            )

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> Iteration:
        if not isinstance(self.init, str) and self.init >= target.vocab:
            raise BadOption(
                f"drafter 'jacobi': init={self.init} is no token; the vocabulary ends at {target.vocab - 1}"
            )
        return Iteration(self, sessions)

    def room(self, done: int) -> int | None:
        """How many tokens to draft after `done` new ones; None is all there is room for."""
        if self.block is None:
            return None
        if self.mode == "jacobi":
            return self.block - 1
        left = self.block - done % self.block
        if self.length is not None:
            left = min(left, self.length - done)
        return max(0, left - 1)


class Iteration:
    """The guess of each session: tokens of the positions behind its newest one."""

    taps: tuple[int, ...] = ()

    def __init__(self, options: Jacobi, sessions: Sequence[Session]) -> None:
        self._options = options
        self._sessions = sessions
        self._guesses: dict[int, list[int]] = {row: [] for row in range(len(sessions))}

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        return [self._draft(row, budget) for row, budget in zip(rows, budgets, strict=True)]

    def _draft(self, row: int, budget: Budget) -> Draft:
        session, guess = self._sessions[row], self._guesses[row]
        n = budget.longest
        room = self._options.room(session.position - session.prompt_length)
        if room is not None:
            n = min(n, room)
        guess += [self._first_guess(session, depth) for depth in range(len(guess), n)]
        return Draft.chain(guess[:n])

    def _first_guess(self, session: Session, depth: int) -> int:
        init = self._options.init
        if init == "prompt":
            return session.prompt.ids[(session.position + depth) % session.prompt_length]
        return session.newest if isinstance(init, str) else int(init)

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        """The next guess: what the target says along this one as far as it was scored, behind what is now final."""
        session, guess, rows = self._sessions[row], self._guesses[row], rows_by_path(draft)
        start, final = len(session.tokens) - len(verdict.tokens), len(verdict.tokens)
        path = session.tokens[:start] + guess
        said: list[int] = []
        for depth in range(final, len(guess) + 1):
            at = rows.get(tuple(guess[:depth]))
            if at is None:
                break
            said.append(predict(session, scores.logits[at], path[: start + depth]))
        self._guesses[row] = said + guess[final + len(said) :]

    def release(self, row: int) -> None:
        del self._guesses[row]
