"""Drafters: where proposed tokens come from. They know sessions and models, and no verification rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from inspect import Parameter, signature
from typing import Protocol

from ..errors import BadOption
from ..models.lm import LM, Cache
from ..session import Session
from ..types import Budget, Draft, Scores, Verdict


class Drafting(Protocol):
    """A drafter at work on one batch of sessions. All state of a generation lives here and ends with it."""

    taps: tuple[int, ...]  # target layers whose hidden states `observe` wants to see

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        """A draft for each of `rows` (indices into the batch), within its budget; an empty one where there is nothing
        worth proposing. A budget of depth 0 means an empty draft."""
        ...

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        """Told after each step, when session.tokens already holds verdict.tokens. scores: the target's raw view of the
        step (row 0 the previous newest token, row i + 1 draft node i)."""
        ...

    def release(self, row: int) -> None:
        """The session of `row` has ended."""
        ...


class Drafter(Protocol):
    """A way of drafting, with its options. Immutable: one drafter serves any number of generations at once."""

    name: str

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> Drafting:
        """Start on sessions whose prompts are in session.tokens. `cache` is the target's own.
        Raises Incompatible when this drafter cannot serve this target."""
        ...


@dataclass(frozen=True)
class Entry:
    """A row of the table of drafters. factory: "module:Class" inside this package, imported when first asked for."""

    name: str
    summary: str
    needs_training: bool
    source: str
    factory: str


DRAFTERS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "null",
            "plain decoding: no drafts",
            needs_training=False,
            source="",
            factory="null:Null",
        ),
        Entry(
            "ngram",
            "prompt lookup: what followed the longest earlier match of the newest tokens",
            needs_training=False,
            source="Saxena, Prompt Lookup Decoding (2023)",
            factory="ngram:Ngram",
        ),
        Entry(
            "lm",
            "a small model of the same tokenizer drafts a chain",
            needs_training=False,
            source="Leviathan et al. 2023 (2211.17192); Chen et al. 2023 (2302.01318); Gante 2023, Assisted Generation",
            factory="lm:DraftLM",
        ),
    )
}


def make_drafter(name: str, **options: object) -> Drafter:
    """The drafter called `name`. Raises BadOption for a name that is not in DRAFTERS, for an option that the drafter
    has not, and for one that it needs and was not given."""
    if name not in DRAFTERS:
        raise BadOption(f"drafter {name!r} does not exist; choose one of: {', '.join(DRAFTERS)}")
    module, _, attribute = DRAFTERS[name].factory.partition(":")
    factory: Callable[..., Drafter] = getattr(import_module(f".{module}", __name__), attribute)
    parameters = signature(factory).parameters
    known = ", ".join(parameters) or "none"
    unknown = [option for option in options if option not in parameters]
    if unknown:
        raise BadOption(f"drafter {name!r} has no option {', '.join(map(repr, unknown))}; its options are: {known}")
    needed = [option for option, p in parameters.items() if p.default is Parameter.empty and option not in options]
    if needed:
        raise BadOption(f"drafter {name!r} needs the option {', '.join(map(repr, needed))}; its options are: {known}")
    return factory(**options)


def check_count(drafter: str, **options: object) -> None:
    """Raises BadOption unless every option is a whole number of at least 1."""
    for option, value in options.items():
        if type(value) is not int or value < 1:
            raise BadOption(f"drafter {drafter!r}: {option}={value!r} is not a whole number of at least 1; give one")
