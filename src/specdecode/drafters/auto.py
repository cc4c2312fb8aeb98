"""The drafter that chooses: which sources to ask and how much of what they propose to draft, nothing included.

Its options, and the start of a generation; `choosing` has it at work. It knows no rule and no text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from .. import costs
from ..errors import BadOption, check_count, shown
from ..models.lm import LM, Cache
from ..policy import Policy
from ..sampling import Stream
from ..session import Session
from . import Drafter, make_drafter, parts
from .choosing import Choosing, Decision, Source, Team
from .merged import begin_all, check_sources

SOURCES = ("ngram",)  # those that need no model and no training
EAGER: dict[str, dict[str, object]] = {"ngram": {"k": 16, "min_match": 1}}  # what is too much is cut off here


@dataclass(frozen=True)
class Auto:
    """sources: drafters, or names of those that need nothing more. Of equal worth, the first comes first.
    nodes:   the most nodes of one session's draft.
    curve:   seconds of a target pass, given its rows and the context; None takes those that `costs` has measured.
    clock:   seconds, by which passes and sources are timed.
    tell:    called with each step's Decision.
    Raises BadOption for a source that does not exist, is no drafter or chooses itself, and for other values.

    What is drafted depends on the time that passes take, which changes no text under the greedy and the coupled rule.
    Where the draw of a seed depends on what was drafted (sampling.Stream), each session is decided for by itself and by
    the curves alone, so that the seed gives its text again in this process, and where the curves are kept."""

    sources: tuple[str | Drafter, ...] = SOURCES
    nodes: int = 32
    curve: Callable[[int, float], float] | None = field(default=None, repr=False)
    clock: Callable[[], float] = field(default=perf_counter, repr=False)
    tell: Callable[[Decision], None] | None = field(default=None, repr=False)

    name = "auto"

    def __post_init__(self) -> None:
        check_count("drafter 'auto': nodes", self.nodes, 1)
        for option in ("curve", "clock", "tell"):
            value = getattr(self, option)
            if not callable(value) and (value is not None or option == "clock"):
                raise BadOption(f"drafter 'auto': {option}={shown(value)} is no function, which Python alone can give")
        check_sources("auto", self.made if isinstance(self.sources, tuple) else self.sources)
        if any(isinstance(part, Auto) for source in self.made for part in parts(source)):
            raise BadOption(
                "drafter 'auto' is no source of itself, for it would choose twice; give its sources instead"
            )

    @property
    def made(self) -> tuple[Drafter, ...]:
        """The sources as drafters."""
        return tuple(make_drafter(s, **EAGER.get(s, {})) if isinstance(s, str) else s for s in self.sources)

    def models(self, target: LM) -> list[LM]:
        """The models whose costs are to be known."""
        return [target, *(drafter.lm for drafter in self.made if hasattr(drafter, "lm"))]

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> Choosing:
        made = self.made
        begun = begin_all(self.name, made, sessions, target, cache)
        curve = self.curve or costs.of(target)
        sources = [
            Source(i, drafter.name, drafting, _step_s(drafter, target, curve))
            for i, (drafter, drafting) in enumerate(zip(made, begun, strict=True))
        ]
        apart = [row for row, session in enumerate(sessions) if isinstance(session.noise, Stream)]
        together = [row for row in range(len(sessions)) if row not in apart]
        teams = [
            Team(tuple(rows), Policy(curve), {i for i, s in enumerate(made) if getattr(s, "model_free", False)})
            for rows in (together, *([row] for row in apart))
        ]
        return Choosing(sources, sessions, teams, self.nodes, None if apart else self.clock, self.tell)


def _step_s(drafter: Drafter, target: LM, curve: Callable[[int, float], float]) -> float | None:
    """Seconds that a source takes for each token of depth, by the curves; None where they do not tell."""
    if hasattr(drafter, "lm"):
        return costs.of(drafter.lm)(1, 0)
    return drafter.share(target) * curve(1, 0) if hasattr(drafter, "share") else None
