"""`specdecode bench`: the same questions to every arm, one prompt after the other, and a report."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .settings import DRAFTING, LIMITS, MODEL, OUTPUT, Settings, flag, spread

if TYPE_CHECKING:
    from ..bench.runner import Plan, Watch

ASKED = "Questions"
COLUMNS = ("arm", "tokens/s", "over plain", "tokens/step", "differ", "gap")  # of the report's first table


@dataclass(frozen=True)
class Bench:
    """What `bench` is asked."""

    arm: Annotated[
        list[str],
        flag(
            DRAFTING,
            "What to compare, once for each: plain, a drafter with options (ngram:k=10,min_match=2), upstream, "
            "upstream:bfloat16, upstream-lookup, upstream-assistant, llamacpp:q4_0, llamacpp:q8_0. "
            "upstream, plain and the default drafter if absent.",
        ),
    ] = field(default_factory=list)
    draft_model: Annotated[str | None, flag(DRAFTING, "The smaller model of lm and upstream-assistant.")] = None

    questions: Annotated[str | None, flag(ASKED, "Spec-Bench's question.jsonl, or one like it; our own if absent.")] = (
        None
    )
    tasks: Annotated[str | None, flag(ASKED, "Some tasks, such as qa,rag; ours has edit, copy and chat too.")] = None
    per_task: Annotated[int | None, flag(ASKED, "Questions of each task, evenly spaced; all if absent.")] = None
    max_new_tokens: Annotated[int, flag(LIMITS, "The most new tokens of an answer (128).")] = 128
    repeats: Annotated[int, flag(LIMITS, "How often everything is asked (1).")] = 1
    warmups: Annotated[int, flag(LIMITS, "Answers of each arm before it is timed (1).")] = 1

    model: Annotated[str | None, flag(MODEL, "Folder, hub id or .gguf file; the default model if absent.")] = None
    dtype: Annotated[str | None, flag(MODEL, "Of our own arms; upstream has its own.")] = None
    runtime: Annotated[str | None, flag(MODEL, "Of our own arms: dense or transformers; what fits if absent.")] = None
    device: Annotated[str | None, flag(MODEL, "Where to run, such as cpu or cuda.")] = None
    threads: Annotated[int | None, flag(MODEL, "CPU threads to use, llama.cpp's too.")] = None

    out: Annotated[
        str | None, flag(OUTPUT, "Folder of records and report; the same command goes on where it was interrupted.")
    ] = None
    json: Annotated[bool, flag(OUTPUT, "Print the results as one JSON document and nothing else.", "--json")] = False
    dry_run: Annotated[bool, flag(OUTPUT, "Show the resolved settings and stop.", "--dry-run")] = False


@spread
def bench(asked: Bench) -> None:
    """Measure drafters, transformers' generate and llama.cpp on the same prompts, and write a report.

    Greedy, batch 1, prompts one by one to every arm in turn. Every answer is compared with the plain arm's."""
    from ..bench.benchmark import REPORT, run
    from ..errors import BadOption
    from . import show

    if asked.out == "":
        raise BadOption("--out is empty; give a folder, or leave it out")
    plan = _plan(asked)
    settings = plan.settings()
    folder = Path(asked.out or f"specdecode-bench-{_name(settings)}")
    if asked.dry_run:
        show.document({**settings, "out": str(folder), "dry_run": True})
        return
    with _progress() as watch:
        results = run(plan, folder, watch)
    if asked.json:
        show.document(results)
    else:
        _table(results)
        if left_out := len(results["left_out"]):
            show.note(f"{left_out} turns were left out: with the answer they exceed the model's context")
        show.note(f"report: {folder / REPORT}")


def _plan(asked: Bench) -> Plan:
    """Raises a SpecError for whatever cannot be honoured, before any model is loaded."""
    import torch

    from ..bench.arms import DEFAULT_ARMS, Source
    from ..bench.questions import OURS, read_questions, select
    from ..bench.runner import Plan
    from .resolve import Resolved

    source = Source(asked.model, asked.draft_model, asked.dtype, asked.runtime, asked.device)
    Resolved.of(Settings(**asdict(source), threads=asked.threads))
    if asked.threads is not None:
        torch.set_num_threads(asked.threads)
    tasks = [task.strip() for task in asked.tasks.split(",")] if asked.tasks is not None else []
    return Plan(
        arms=tuple(asked.arm or DEFAULT_ARMS),
        questions=select(read_questions(OURS if asked.questions is None else asked.questions), tasks, asked.per_task),
        source=source,
        max_new_tokens=asked.max_new_tokens,
        repeats=asked.repeats,
        warmups=asked.warmups,
    )


def _name(settings: dict[str, Any]) -> str:
    """Some letters that tell runs of different settings apart."""
    return hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:8]


@contextmanager
def _progress() -> Iterator[Watch]:
    """A bar on the terminal, with the time that is left."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

    from . import show

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}", markup=False))
    with show.progress(*columns) as progress:
        bar = progress.add_task("", total=None)

        def watch(done: int, total: int, what: str) -> None:
            if progress.tasks[0].total is None:
                progress.reset(bar, total=total, completed=done)  # what was there before says nothing of the speed
            progress.update(bar, completed=done, description=what)

        yield watch


def _table(results: dict[str, Any]) -> None:
    from rich.table import Table

    from ..bench.report import overview
    from . import show

    head, rows = overview(results)
    shown = [head.index(column) for column in COLUMNS]
    table = Table()
    for i in shown:
        table.add_column(head[i], no_wrap=i > 0)
    for row in rows:
        table.add_row(*(row[i] for i in shown))
    show.console().print(table)
