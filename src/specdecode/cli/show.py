"""What the commands print: streamed text, summaries, comparisons, JSON. Text goes to stdout, all the rest to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from statistics import mean, median
from typing import TYPE_CHECKING, Any, Literal, TextIO

import typer

from .. import costs
from ..drafters import Drafter
from ..drafters.auto import Auto
from ..drafters.choosing import Decision
from ..models.lm import LM
from ..text.completion import Completion, Piece
from ..verify import RULES

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

DRAFTED, OWN = typer.colors.GREEN, typer.colors.YELLOW
FIRST = 5  # positions of a draft that a summary tells of


@contextmanager
def busy(what: str) -> Iterator[None]:
    """A line on the terminal while the body runs."""
    with console(stderr=True).status(what):
        yield


def progress(*columns: ProgressColumn) -> Progress:
    """A bar with these columns, rich's own if there are none; on a terminal only, and gone when it is left."""
    from rich.progress import Progress

    terminal = console(stderr=True)
    return Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal)


def measure(lm: LM, drafter: Drafter) -> None:
    """What passes cost, measured now if `drafter` chooses by it and it is not known yet."""
    for model in drafter.models(lm) if isinstance(drafter, Auto) else ():
        if costs.known(model) is None:
            with busy("Measuring what a pass costs on this machine (once)"):
                costs.of(model)


def console(*, stderr: bool = False) -> Console:
    """Rich's, under our own rule for colours: to rich, FORCE_COLOR makes a terminal of a pipe."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    colours: Literal["auto"] | None = "auto" if in_colour(stream) else None
    return Console(stderr=stderr, force_terminal=_is_terminal(stream), color_system=colours)


def in_colour(stream: TextIO | None) -> bool:
    """Whether it is a terminal that takes colours, and nobody asked for none."""
    return _is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()


def paint(piece: Piece, colour: bool) -> str:
    """The piece's text, in the colour of its origin."""
    return typer.style(piece.text, fg=DRAFTED if piece.drafted else OWN) if colour and piece.text else piece.text


def legend() -> str:
    return f"{typer.style('drafted and accepted', fg=DRAFTED)}, {typer.style('chosen by the model itself', fg=OWN)}"


def stream(pieces: Iterable[Piece]) -> Completion:
    """Print pieces as they come, and return the completion that the last one brings. An interrupt ends the line too."""
    colour, piece = in_colour(sys.stdout), None
    try:
        for piece in pieces:
            print(paint(piece, colour), end="", flush=True)
    finally:
        if piece is not None:
            print(flush=True)
    assert piece is not None
    assert piece.completion is not None
    return piece.completion


def note(text: str, *, dim: bool = True) -> None:
    """A line on stderr."""
    typer.echo(typer.style(text, dim=True) if dim and in_colour(sys.stderr) else text, err=True)


def document(content: Any) -> None:
    """A JSON document on stdout."""
    print(as_json(content), flush=True)


def as_json(content: Any) -> str:
    """In ASCII whatever the encoding. Infinities, which JSON has not, become strings."""
    plain = json.loads(json.dumps(content), parse_constant=str)
    return json.dumps(plain, indent=2, allow_nan=False)


def summary(done: Completion) -> list[str]:
    """What a user wants to know of a finished answer, in a few lines."""
    m = done.metrics
    seed = "" if done.seed is None else f", seed {done.seed}"
    lines = [
        f"{len(done.tokens)} tokens in {done.decode_s:.2f} s, {figure(done.tokens_per_second)} tokens/s; prompt: "
        f"{done.prompt_tokens} tokens in {done.prefill_s:.2f} s; ended by {done.finish_reason}",
        f"drafter {done.drafter}, rule {done.rule}{seed}; {figure(m.tokens_per_step, 2)} tokens per step",
    ]
    if m.drafted:
        least = "1" if len(m.per_position) == 1 else "1, 2, ..."
        shares = ", ".join(percent(share, 1) for share in m.per_position[:FIRST])
        more = ", ..." if len(m.per_position) > FIRST else ""
        trees = f"; paths of trees with {m.nodes} nodes" if m.nodes > m.drafted else ""
        lines.append(
            f"accepted {m.accepted} of {m.drafted} drafted tokens ({percent(m.accepted, m.drafted)}); steps that "
            f"accepted at least {least} of them: {shares}{more}{trees}"
        )
    if not RULES[done.rule].lossless:
        each = f"{m.nats:.2f} nats spent, {figure(m.nats_per_token, 3)} a token" if m.nats else "0 nats spent"
        lines.append(f"relaxed: {each}")
    parts = {"draft": m.draft_s, "target": m.target_s, "rest": m.rest_s}
    lines.append("time: " + ", ".join(f"{name} {percent(seconds, m.total_s)}" for name, seconds in parts.items()))
    return lines


def explanation(told: Sequence[Decision]) -> list[str]:
    """What a drafter that chooses has decided, by the number of nodes it drafted: in how many steps, what it expected
    and what came of it, what passes were to take and took, and why it drafted no more."""
    if not told:
        return []
    lines = ["nodes steps  tokens expected, gained  ms expected, taken, plain  why no more"]
    for nodes in sorted({decision.drafted for decision in told}):
        some = [decision for decision in told if decision.drafted == nodes]
        expected, gained = mean(d.expected for d in some), mean(d.gained for d in some)
        times = [1000 * median(getattr(d, name) for d in some) for name in ("pass_s", "taken_s", "plain_s")]
        reasons = Counter(decision.reason for decision in some).most_common()
        figures = (
            f"{nodes:5} {len(some):5}  {expected:15.2f} {gained:7.2f}  {times[0]:11.1f} {times[1]:6.1f} {times[2]:5.1f}"
        )
        lines.append(f"{figures}  {', '.join(f'{reason} ({count})' for reason, count in reasons)}")
    offered = sum((Counter(decision.offered) for decision in told), Counter[str]())
    lines.append("offered: " + (", ".join(f"{n} nodes by {name}" for name, n in offered.items()) or "nothing"))
    drafting = [decision.draft_s for decision in told if decision.draft_s]
    return [*lines, f"asked costly sources in {len(drafting)} steps, {sum(drafting):.2f} s"] if drafting else lines


def comparison(fast: Sequence[Completion], plain: Sequence[Completion]) -> dict[str, Any]:
    """Speculation against plain decoding of the same request."""
    rates = rate(fast), rate(plain)
    return {
        "tokens_per_second": rates[0],
        "plain_tokens_per_second": rates[1],
        "speed_up": rates[0] / rates[1] if rates[0] and rates[1] else None,
        "identical": [c.text for c in fast] == [c.text for c in plain],
    }


def rate(batch: Sequence[Completion]) -> float | None:
    """Tokens per second of completions that were decoded together."""
    seconds = max(c.decode_s for c in batch)
    return sum(len(c.tokens) for c in batch) / seconds if seconds else None


def figure(value: float | None, digits: int = 1) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "n/a"
