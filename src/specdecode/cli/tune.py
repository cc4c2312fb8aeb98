"""`specdecode tune`: settings that are searched for on this machine and kept by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from .settings import DRAFTING, OUTPUT, ModelSettings, Settings, flag, spread

app = typer.Typer(help="Search for settings on this machine.")


@dataclass(frozen=True)
class LayerSkipSearch(ModelSettings):
    """What `tune layer-skip` is asked."""

    trials: Annotated[int, flag(DRAFTING, "Sets to try, those of an earlier search included.")] = 100
    max_new_tokens: Annotated[int, flag(DRAFTING, "Tokens to decode for each of four prompts.")] = 32
    name: Annotated[str, flag(OUTPUT, "What to keep the best set under; the drafter takes 'tuned' by itself.")] = (
        "tuned"
    )
    json: Annotated[bool, flag(OUTPUT, "Print one JSON document and nothing else.", "--json")] = False


@app.command("layer-skip")
@spread
def layer_skip(asked: LayerSkipSearch) -> None:
    """Search for the parts of its layers that a model drafts best without, by measured tokens per second.

    Each trial is kept: the same command goes on after an interrupt, or with more trials. The best set serves the
    drafter layer_skip from then on."""
    from ..tuning.layer_skip import Search, search
    from . import show
    from .resolve import Resolved

    wanted = Search(asked.trials, asked.max_new_tokens, asked.name)
    resolved = Resolved.of(Settings(**asked.of_the_model, drafter="null"))
    with show.busy("Loading the model"):
        model, _ = resolved.load()
    with _progress(asked.trials) as tell:
        found = search(model, wanted, tell)
    if asked.json:
        show.document({**asdict(found), "skip": found.skip.text, "name": asked.name, "path": str(found.path)})
        return
    print(found.skip.text, flush=True)
    show.note(
        f"kept as {asked.name!r}: {found.speed_up:.2f} of plain decoding's speed, {found.tokens_per_step:.2f} tokens a "
        f"step, the best of {found.trials} sets"
    )
    if found.speed_up < 1:
        show.note("drafting with part of its layers does not pay for this model on this machine")


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int, float], None]]:
    """A bar on the terminal over the trials, and the best speed-up so far."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from . import show

    columns = (
        TextColumn("Trying sets, best {task.fields[best]:.2f}x"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with show.progress(*columns) as progress:
        bar = progress.add_task("", total=total, best=0.0)
        yield lambda trial, best: progress.update(bar, completed=trial, best=best)
