"""`specdecode check`: the certificate of a model, a drafter and a rule on this machine, or of texts from elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .settings import LIMITS, OUTPUT, Settings, flag, spread

if TYPE_CHECKING:
    from ..bench.questions import Question
    from ..certify import Certificate, Counts
    from ..certify.findings import Tick

COLOURS = {"pass": "green", "FAIL": "bold red"}


@dataclass(frozen=True)
class Asked:
    """What `check` is asked beyond the settings."""

    prompts: Annotated[str | None, flag(LIMITS, "Questions like `bench` takes; our own if absent.")] = None
    prompts_count: Annotated[int | None, flag(LIMITS, "Greedy texts (8).")] = None
    seeds: Annotated[int | None, flag(LIMITS, "Sampled texts with and without speculation (8).")] = None
    thorough: Annotated[bool, flag(LIMITS, "Test four times as much and more.", "--thorough")] = False
    outputs: Annotated[
        str | None,
        flag(
            OUTPUT,
            "Judge the texts of this file instead, in float32 unless --dtype is given: JSON lines with prompt_ids, "
            "sampling and output_ids.",
        ),
    ] = None
    gap: Annotated[
        float | None, flag(OUTPUT, "With --outputs: the largest gap in logits at which a greedy token is excused.")
    ] = None
    out: Annotated[str | None, flag(OUTPUT, "JSON file for the certificate.")] = None
    json: Annotated[bool, flag(OUTPUT, "Print one JSON document and nothing else.", "--json")] = False
    dry_run: Annotated[bool, flag(OUTPUT, "Show the resolved settings and stop.", "--dry-run")] = False


@spread
def check(settings: Settings, asked: Asked) -> None:
    """Certify a model, a drafter and a rule here: the same greedy texts, the same law, an intact cache.

    Ends with 1 where a test fails. Sampled tests are at temperature 1 and by rejection, unless told otherwise."""
    from . import show

    _refuse(settings, asked)
    found = _outside(settings, asked) if asked.outputs is not None else _inside(settings, asked)
    if found is None:
        return
    certificate, config = found
    document = {**certificate.to_dict(), "settings": config}
    if asked.out is not None:
        _write(Path(asked.out), show.as_json(document))
    if asked.json:
        show.document(document)
    else:
        _report(certificate)
        if asked.out is not None:
            show.note(asked.out)
    if not certificate.passed:
        raise typer.Exit(1)


def _refuse(settings: Settings, asked: Asked) -> None:
    """Raises BadOption for what would be left undone."""
    from ..errors import BadOption

    if settings.explain:
        raise BadOption("--explain tells how one answer came about; `specdecode generate` has it")
    if asked.gap is not None and not 0 <= asked.gap < float("inf"):
        raise BadOption(f"--gap {asked.gap:g}: give logits, a number >= 0")
    if asked.gap is not None and asked.outputs is None:
        raise BadOption("--gap is for texts from elsewhere; give it with --outputs")
    if asked.out is not None and (not asked.out or Path(asked.out).is_dir()):
        raise BadOption(f"--out {asked.out} is no file; name one, such as certificate.json")
    if asked.outputs == "":
        raise BadOption("--outputs names no file; give one, such as outputs.jsonl")
    if asked.outputs is not None:
        moot = _changed(settings, settings.of_the_model)
        moot += _changed(asked, ("outputs", "gap", "out", "json", "dry_run"))
        if moot:
            flag = "--" + moot[0].replace("_", "-")
            raise BadOption(f"{flag} says how to decode, and --outputs judges texts that are there; leave one out")


def _changed(given: Any, others: Collection[str]) -> list[str]:
    """The fields of `given` that are not as they are by default, `others` aside."""
    usual = type(given)()
    return [f.name for f in fields(given) if f.name not in others and getattr(given, f.name) != getattr(usual, f.name)]


def _inside(settings: Settings, asked: Asked) -> tuple[Certificate, dict[str, Any]] | None:
    """Our own decoding. None where the settings were only to be shown."""
    from .. import certify
    from . import show
    from .resolve import Resolved

    counts, questions = _counts(asked), _questions(asked.prompts)
    resolved = Resolved.of(_sampled(settings))
    config = {**resolved.describe(), "prompts": asked.prompts, "counts": asdict(counts)}
    if asked.dry_run:
        show.document({**config, "dry_run": True})
        return None
    with show.busy("Loading the model"):
        model, drafter = resolved.load()
    show.measure(model.lm, drafter)
    with _progress(counts.units) as tick:
        options: dict[str, Any] = {**resolved.request(), "questions": questions, "counts": counts, "tick": tick}
        return certify.check(model, drafter, **options), config


def _outside(settings: Settings, asked: Asked) -> tuple[Certificate, dict[str, Any]] | None:
    """Texts from elsewhere. None where the settings were only to be shown."""
    from .. import certify
    from . import show
    from .resolve import Resolved

    lines = certify.read_outputs(asked.outputs or "")
    resolved = Resolved.of(replace(settings, dtype=settings.dtype or "float32"))  # the judge is not to round
    config = {"model": resolved.describe()["model"], "outputs": asked.outputs, "gap": asked.gap}
    if asked.dry_run:
        show.document({**config, "dry_run": True})
        return None
    with show.busy("Loading the model"):
        model, _ = resolved.load()
    with _progress(len(lines)) as tick:
        return certify.judge(model, lines, gap=asked.gap, tick=tick), config


def _counts(asked: Asked) -> Counts:
    from ..certify import DEFAULT_COUNTS, THOROUGH

    given = {"prompts": asked.prompts_count, "seeds": asked.seeds}
    return replace(THOROUGH if asked.thorough else DEFAULT_COUNTS, **{k: v for k, v in given.items() if v is not None})


def _questions(path: str | None) -> tuple[Question, ...]:
    from ..bench.questions import read_questions

    return () if path is None else read_questions(path)


def _sampled(settings: Settings) -> Settings:
    """Without a rule and a temperature, what is drawn is drawn by rejection at temperature 1."""
    from ..certify.certificate import RULE
    from ..verify import make_rule

    settings = replace(settings, rule=RULE if settings.rule is None else settings.rule)
    cuts = (settings.temperature, settings.top_k, settings.top_p, settings.min_p, settings.typical_p)
    draws = make_rule(str(settings.rule)).draws
    return replace(settings, temperature=1.0) if draws and all(cut is None for cut in cuts) else settings


@contextmanager
def _progress(total: int) -> Iterator[Tick]:
    """A bar on the terminal over all tests."""
    from . import show

    with show.progress() as progress:
        bar = progress.add_task("Checking", total=total)
        yield lambda what: progress.update(bar, advance=1, description=what)


def _report(certificate: Certificate) -> None:
    from rich.markup import escape
    from rich.table import Table

    from . import show

    table = Table()
    for column in ("test", "outcome", "found", "limit"):
        table.add_column(column, no_wrap=column != "found")
    for finding in certificate.findings:
        colour = COLOURS.get(finding.outcome)
        outcome = f"[{colour}]{finding.outcome}[/]" if colour else finding.outcome
        found = "; ".join(filter(None, (finding.found, finding.reason)))
        table.add_row(finding.test, outcome, escape(found), escape(finding.limit))
    show.console().print(table)
    failed = [finding.test for finding in certificate.findings if finding.outcome == "FAIL"]
    if not certificate.passed:
        verdict = f"not certified: {', '.join(failed) or 'no test applied'}"
    elif certificate.about.get("lossless", True):
        verdict = "certified"
    else:
        verdict = "certified as relaxed, which is not to have the model's own law"
    print(f"{_subject(certificate)}: {verdict}", flush=True)


def _subject(certificate: Certificate) -> str:
    about = certificate.about
    what = f"{about['outputs']} texts" if "outputs" in about else f"drafter {about['drafter']}, rule {about['rule']}"
    return f"{about['model']}, {what}"


def _write(path: Path, text: str) -> None:
    from ..errors import WriteError
    from ..files import write_whole

    try:
        write_whole(path, text)
    except OSError as error:
        raise WriteError(f"cannot write {path} ({error.strerror}); give another place with --out") from error
