"""`specdecode demo`: the same prompts, decoded plainly and with drafters that need nothing more."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

from .settings import LIMITS, MODEL, Settings, flag

if TYPE_CHECKING:
    from ..drafters import Drafter
    from ..text.completion import Completion, Piece
    from ..text.model import Model

PROMPTS = {
    "A question": "Why is the sky blue?",
    "A text to copy, which is where n-grams shine": (
        "Repeat this text word for word:\n\n"
        "The lighthouse keeper climbed the stairs every evening at six. He lit the lamp, wound the clock, and wrote "
        "the weather in his book. When the fog came in from the sea, he rang the bell until the morning. He did this "
        "for forty years, and not one ship was lost."
    ),
}

SHOWN = ("null", "ngram", "suffix", "auto")

Told = tuple[list["Piece"], "Completion"]


def demo(
    model: Annotated[str | None, flag(MODEL, "Another model than the default one.")] = None,
    max_new_tokens: Annotated[int, flag(LIMITS, "Tokens of each answer (96).")] = 96,
) -> None:
    """See speculative decoding at work: the same text, sooner."""
    from . import show
    from .resolve import Resolved

    resolved = Resolved.of(Settings(model=model, max_new_tokens=max_new_tokens))
    console = show.console()
    with show.busy("Loading the model"):
        target, drafter = resolved.load()
        target.generate(target.encode("Once upon a time"), max_new_tokens=4)  # the first passes are always slow
    show.measure(target.lm, drafter)
    for title, text in PROMPTS.items():
        console.rule(title)
        console.print(text, markup=False, highlight=False, style="dim")
        told = {}
        for drafter in drafters_at_hand():
            with show.busy(f"Decoding with {drafter.name}"):
                told[drafter.name] = _tell(target, text, drafter, max_new_tokens)
        console.print(_side_by_side(told), _table(told))
    if show.in_colour(sys.stdout):
        print(f"Colours: {show.legend()}", flush=True)


def drafters_at_hand() -> list[Drafter]:
    """Those that are shown: they need no other model and no training. Plain decoding comes first."""
    from ..drafters import make_drafter

    return [make_drafter(name) for name in SHOWN]


def _tell(model: Model, text: str, drafter: Drafter, max_new_tokens: int) -> Told:
    pieces = list(model.stream(model.prompt(text), drafter=drafter, max_new_tokens=max_new_tokens))
    completion = pieces[-1].completion
    assert completion is not None
    return pieces, completion


def _side_by_side(told: dict[str, Told]) -> Any:
    from rich.panel import Panel
    from rich.table import Table
    from rich.text import Text

    from . import show

    grid = Table.grid(expand=True)
    panels = []
    for name, (pieces, _) in told.items():
        grid.add_column(ratio=1)
        colours = {True: show.DRAFTED, False: show.OWN}
        panels.append(Panel(Text.assemble(*((p.text, colours[p.drafted]) for p in pieces)), title=name))
    grid.add_row(*panels)
    return grid


def _table(told: dict[str, Told]) -> Any:
    from rich.table import Table

    from . import show

    table = Table("drafter", "tokens/s", "speed-up", "tokens per step", "identical")
    _, plain = told["null"]
    for name, (_, done) in told.items():
        versus = show.comparison([done], [plain])
        same = "yes" if versus["identical"] else "no"
        rates = show.figure(versus["tokens_per_second"]), show.figure(versus["speed_up"], 2)
        table.add_row(name, *rates, show.figure(done.metrics.tokens_per_step, 2), same)
    return table
