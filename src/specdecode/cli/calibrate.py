"""`specdecode calibrate`: what passes and drafts cost on this machine, thoroughly, and what that means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .settings import DRAFTING, OUTPUT, ModelSettings, Settings, flag, spread

if TYPE_CHECKING:
    from ..costs import Curve
    from ..costs.verdict import Floors
    from ..drafters import Drafter
    from ..models.lm import LM
    from ..text.model import Model

LENGTHS = (1, 2, 4, 6, 8, 12, 16)  # of drafts, of which it is told what acceptance they need
TOKENS = 48  # decoded to see what drafting takes


@dataclass(frozen=True)
class Calibrate(ModelSettings):
    """What `calibrate` is asked."""

    draft_model: Annotated[str | None, flag(DRAFTING, "A smaller model, measured as well.")] = None
    plot: Annotated[str | None, flag(OUTPUT, "PNG file for the curves; beside the stored ones if absent.")] = None
    json: Annotated[bool, flag(OUTPUT, "Print one JSON document and nothing else.", "--json")] = False
    dry_run: Annotated[bool, flag(OUTPUT, "Show the resolved settings and stop.", "--dry-run")] = False


@spread
def calibrate(asked: Calibrate) -> None:
    """Measure what a pass costs on this machine, by rows and context, and what drafting does.

    The drafter auto decides by it. Without this command it measures a few points when it is first used."""
    from ..errors import BadOption
    from . import show
    from .curves import draw
    from .resolve import Resolved

    resolved = Resolved.of(Settings(**asked.of_the_model, draft_model=asked.draft_model))
    if asked.plot == "":
        raise BadOption("--plot is empty; give a file, or leave it out")
    if asked.dry_run:
        show.document({**resolved.describe(), "plot": asked.plot, "json": asked.json, "dry_run": True})
        return
    with show.busy("Loading the model"):
        model, drafter = resolved.load()
    lms = [model.lm, *([drafter.lm] if hasattr(drafter, "lm") else [])]
    with _progress(len(lms)) as advance:
        measured = [_measure(lm, advance) for lm in lms]
    with show.busy("Timing the drafters"):
        steps = _drafter_steps(model, drafter)
        floors = _floors(model.lm)
    curve, stored = measured[0]
    found = _results(model.lm, curve, floors, steps)
    found["stored"] = [str(path) for _, path in measured if path]
    if asked.plot is not None or stored is not None:
        picture = Path(asked.plot) if asked.plot is not None else Path(str(stored)).with_suffix(".png")
        draw(picture, curve, floors, f"{model.name}, {found['threads']} threads")
        found["plot"] = str(picture)
    if asked.json:
        show.document(found)
    else:
        _report(model.name, curve, found)


def _measure(lm: LM, advance: Callable[[float], None]) -> tuple[Curve, Path | None]:
    from .. import costs

    curve = costs.measure(lm, costs.LONG, advance=advance)
    return curve, costs.remember(lm, curve)


def _drafter_steps(model: Model, extra: Drafter) -> dict[str, float]:
    """Seconds for each step of the drafters at hand, by name; for each token of a draft model."""
    from .demo import PROMPTS, drafters_at_hand

    text = list(PROMPTS.values())[-1]
    ids = model.prompt(text)
    seconds = {}
    for drafter in drafters_at_hand()[1:]:  # the first one drafts nothing
        done = model.generate(ids, drafter=drafter, max_new_tokens=TOKENS).metrics
        seconds[drafter.name] = done.draft_s / done.steps
    if hasattr(extra, "lm"):
        done = model.generate(ids, drafter=extra, max_new_tokens=TOKENS).metrics
        seconds[extra.name] = done.draft_s / max(done.drafted, 1)
    return seconds


def _floors(lm: LM) -> Floors | None:
    """None for a model that does not say what it weighs, or that runs elsewhere than on the CPU."""
    from ..costs.hardware import multiplication_speed, read_bandwidth
    from ..costs.verdict import Floors

    nbytes, weights = getattr(lm, "nbytes", None), getattr(lm, "n_weights", None)
    if nbytes is None or weights is None or str(getattr(lm, "device", "cpu")) != "cpu":
        return None
    return Floors(nbytes, weights, read_bandwidth(), multiplication_speed())


def _results(lm: LM, curve: Curve, floors: Floors | None, steps: dict[str, float]) -> dict[str, Any]:
    import torch

    from ..costs import machine
    from ..costs.verdict import nearly_free, needed_acceptance

    context = curve.contexts[0]
    model_steps = {"lookup": 0.0, **{name: seconds for name, seconds in steps.items() if name == "lm"}}
    return {
        "machine": machine(),
        "threads": torch.get_num_threads(),
        "signature": lm.signature,
        "curve": asdict(curve),
        "floors": None if floors is None else {**asdict(floors), "memory_s": floors.memory_s},
        "drafter_step_s": steps,
        "nearly_free_rows": nearly_free(curve, context),
        "needed_acceptance": {
            name: {str(k): needed_acceptance(curve, context, k, step_s) for k in LENGTHS}
            for name, step_s in model_steps.items()
        },
    }


def _report(name: str, curve: Curve, found: dict[str, Any]) -> None:
    """The table, and the verdict in words."""
    from rich.table import Table

    from . import show

    table = Table(title=f"A pass of {name} in ms", title_justify="left")
    for column in ("rows", *(f"context {context}" for context in curve.contexts), "times one row"):
        table.add_column(column, justify="right")
    for rows in curve.rows:
        ms = [show.figure(1000 * curve(rows, context)) for context in curve.contexts]
        table.add_row(str(rows), *ms, show.figure(curve(rows, curve.contexts[0]) / curve(1, curve.contexts[0]), 2))
    show.console().print(table)
    print(f"{found['machine']}, {found['threads']} threads; {found['signature']}", flush=True)
    for line in _verdict(curve, found):
        print(line, flush=True)
    for path in (*found["stored"], *([found["plot"]] if "plot" in found else [])):
        show.note(path)


def _verdict(curve: Curve, found: dict[str, Any]) -> Iterator[str]:
    from . import show

    rows, one = found["nearly_free_rows"], curve(1, curve.contexts[0])
    share = curve(rows, curve.contexts[0]) / one
    yield (
        f"{rows} rows are nearly free here: a pass over them takes {share:.2f} times one row's {1000 * one:.1f} ms."
        if rows > 1
        else "No second row is nearly free here: drafts have to be right to pay."
    )
    if found["floors"] is not None:
        floor = found["floors"]["memory_s"]
        yield f"Reading the weights alone takes {1000 * floor:.1f} ms; one row takes {one / floor:.1f} times that."
    for name, needed in found["needed_acceptance"].items():
        told = ", ".join(f"{k}: {'never' if a is None else show.percent(a, 1)}" for k, a in needed.items())
        yield f"Acceptance at which a fixed draft length pays, {name}: {told}"
    yield "A draft takes " + ", ".join(f"{1000 * s:.2f} ms ({name})" for name, s in found["drafter_step_s"].items())


@contextmanager
def _progress(models: int) -> Iterator[Callable[[float], None]]:
    """A bar on the terminal over what is measured of all models; told each one's share."""
    from . import show

    with show.progress() as progress:
        bars = [progress.add_task("Measuring passes", total=1.0) for _ in range(models)]

        def advance(share: float) -> None:
            bar = next(bar for bar in bars if not progress.tasks[bar].finished)
            progress.update(bar, completed=share)

        yield advance
