"""`specdecode chat`: a conversation, one line a turn."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from .settings import OUTPUT, Settings, flag, spread

HELP = "/reset forgets the conversation, /exit ends it"


@spread
def chat(
    settings: Settings,
    system: Annotated[str | None, flag(OUTPUT, "A system message.")] = None,
    dry_run: Annotated[bool, flag(OUTPUT, "Show the resolved settings and stop.", "--dry-run")] = False,
) -> None:
    """Talk with the model. /reset forgets the conversation, /exit ends it."""
    from ..errors import SpecError
    from . import show
    from .resolve import Resolved

    resolved = Resolved.of(settings)
    if dry_run:
        show.document({**resolved.describe(), "system": system, "dry_run": True})
        return
    with show.busy("Loading the model"):
        model, drafter = resolved.load()
    show.measure(model.lm, drafter)
    opening = [] if system is None else [{"role": "system", "content": system}]
    history = list(opening)
    show.note(f"{model.name}; {HELP}")
    while (line := _read()) not in (None, "/exit"):
        if line == "/reset":
            history = list(opening)
        elif line:
            asked = [*history, {"role": "user", "content": line}]
            try:
                done = show.stream(model.stream(model.chat_prompt(asked), drafter=drafter, **resolved.request()))
            except SpecError as error:  # the conversation may have outgrown the context: this turn alone is lost
                show.note(f"error: {error}")
                continue
            history = [*asked, {"role": "assistant", "content": done.text}]
            for words in (*show.summary(done), *show.explanation(resolved.told)):
                show.note(words)
            resolved.told.clear()


def _read() -> str | None:
    """The next line of the user's; None at the end of the input, or without one. A prompt is shown to people only."""
    if sys.stdin is None:
        return None
    if sys.stdin.isatty():
        typer.echo("> ", nl=False, err=True)
    line = sys.stdin.readline()
    return line.strip() if line else None
