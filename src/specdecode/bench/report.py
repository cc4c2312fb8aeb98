"""The report: results as one HTML page with drawings, which needs nothing beside it and is readable on a phone.

Takes the document of `summary` and turns figures into tables and charts; it computes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from . import charts
from .arms import PLAIN
from .questions import OVERALL

OVERVIEW = ("arm", "tokens/s", "over plain", "quartiles", "with prefill", "first s", "tokens/step", "differ", "gap")
MOST_DIVERGENCES = 100  # rows of the page; the JSON document has all
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.45 system-ui, sans-serif; max-width: 46rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
svg { width: 100%; max-width: 34rem; height: auto; display: block; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; }
td, th { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #8884; white-space: nowrap; }
td:first-child, th:first-child { text-align: left; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; font-size: .85rem; margin: .3rem 0; }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; }
dt { font-weight: 600; margin-top: .5rem; } dd { margin: 0; } .note { opacity: .75; font-size: .9rem; }
""".strip()


def page(results: Mapping[str, Any]) -> str:
    """The whole document."""
    body = "\n".join(
        f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>" for title, content in _parts(results)
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>specdecode bench</title>\n<style>\n{STYLE}\n</style>\n</head>\n<body>\n"
        f"<h1>specdecode bench</h1>\n<p>{escape(headline(results))}</p>\n{body}\n</body>\n</html>\n"
    )


def headline(results: Mapping[str, Any]) -> str:
    """Every arm over the plain one, in a sentence."""
    over = results["speed_up"][PLAIN]
    told = ", ".join(f"{arm} {_figure(over[arm][OVERALL]['decoding'])}" for arm in over if arm != PLAIN)
    settings = results["settings"]
    asked = f"{settings['questions']} questions, {settings['max_new_tokens']} new tokens at most, greedy, batch 1"
    return f"Decoding speed over {PLAIN}: {told or 'nothing to compare'}. {asked}."


def overview(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Head and rows of the table that says most, an arm a row."""
    rows = []
    for arm, tasks in results["arms"].items():
        of = tasks[OVERALL]
        versus = results["speed_up"][PLAIN][arm][OVERALL]
        rows.append(
            [
                arm,
                _figure(of["tokens_per_second"], 1),
                _figure(versus["decoding"]),
                "-".join(_figure(versus[name]) for name in ("q1", "q3")),
                _figure(versus["with_prefill"]),
                _figure(of["first_s"], 3),
                _figure(of["tokens_per_step"]),
                *_differing(results, arm),
            ]
        )
    return list(OVERVIEW), rows


def _parts(results: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    arms, speed_up = results["arms"], results["speed_up"]
    yield "Overall", _table(*overview(results))
    yield f"Speed-up per task over {PLAIN}", charts.bars(_by_task(speed_up[PLAIN], "decoding"), mark=1.0)
    for base in [arm for arm in arms if arm.partition(":")[0] == "upstream"]:
        yield f"Speed-up per task over {base}", charts.bars(_by_task(speed_up[base], "decoding"), mark=1.0)
    yield "Tokens per step", charts.bars(_by_task(arms, "tokens_per_step"), mark=1.0)
    depths = {arm: of[OVERALL]["acceptance_by_depth"] for arm, of in arms.items()}
    if any(depths.values()):
        yield "Acceptance by depth: share of steps that took at least so many drafted tokens", charts.curves(depths)
    split = {arm: of[OVERALL]["time_split"] for arm, of in arms.items() if of[OVERALL]["time_split"]}
    if split:
        yield "Where the time of a step goes", charts.stacked(split)
    yield "All ratios: decoding speed of the row over the column", _table(*_matrix(speed_up))
    for arm, of in [(arm, of) for arm, of in speed_up[PLAIN].items() if arm != PLAIN]:
        yield f"{arm} over {PLAIN}, task by task", _table(*_tasks(of))
    yield "Answers that differ from plain", _divergences(results)
    if results["left_out"]:
        head = ["question", "turn", "prompt tokens"]
        rows = [[e["question"], str(e["turn"] + 1), str(e["prompt_tokens"])] for e in results["left_out"]]
        yield "Left out, because prompt and answer exceed the model's context", _table(head, rows)
    yield "What the arms ran", _table(["arm", "model"], results["about"].items())
    yield "Settings and machine", _table(["setting", "value"], _settings(results["settings"]))
    yield "What the figures mean", _definitions(results["definitions"])


def _by_task(of: Mapping[str, Any], figure: str) -> dict[str, dict[str, float | None]]:
    """{task: {arm: figure}} of {arm: {task: figures}}."""
    tasks = list(next(iter(of.values()), {}))
    return {task: {arm: figures[task][figure] for arm, figures in of.items()} for task in tasks}


def _matrix(speed_up: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    names = list(speed_up)
    rows = [[arm, *(_figure(speed_up[base][arm][OVERALL]["decoding"]) for base in names)] for arm in names]
    return ["", *names], rows


def _tasks(of: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    figures = ("decoding", "with_prefill", "median", "q1", "q3")
    head = ["task", *(figure.replace("_", " ") for figure in figures)]
    return head, [[task, *(_figure(ratios[figure]) for figure in figures)] for task, ratios in of.items()]


def _differing(results: Mapping[str, Any], arm: str) -> tuple[str, str]:
    """How many of an arm's answers differ from the plain ones, and the largest gap in logits where they do."""
    found = [entry for entry in results["divergences"] if entry["arm"] == arm]
    gaps = [entry["gap"] for entry in found if entry["gap"] is not None]
    count = "" if arm == PLAIN else f"{len(found)} of {results['arms'][arm][OVERALL]['answers']}"
    return count, _figure(max(gaps, default=None), 4)


def _divergences(results: Mapping[str, Any]) -> str:
    found = results["divergences"]
    rows = [
        [
            entry["arm"],
            str(entry["place"]["question"]),
            *(str(entry["place"][name] + 1) for name in ("turn", "repeat")),
            *("end" if entry[name] is None else str(entry[name]) for name in ("position", "plain", "token")),
            _figure(entry["gap"], 4),
        ]
        for entry in found[:MOST_DIVERGENCES]
    ]
    note = f"<p>{len(found)} in all" + (
        f"; the first {len(rows)} are shown.</p>" if len(rows) < len(found) else ".</p>"
    )
    head = ["arm", "question", "turn", "round", "after tokens", "plain's token", "its token", "gap in logits"]
    return note + (_table(head, rows) if rows else "")


def _settings(settings: Mapping[str, Any]) -> list[list[str]]:
    flat = {**settings, **settings["machine"]}
    del flat["machine"]
    return [
        [name.replace("_", " "), ", ".join(value) if isinstance(value, list) else str(value)]
        for name, value in flat.items()
        if value is not None
    ]


def _definitions(definitions: Mapping[str, str]) -> str:
    return "<dl>" + "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in definitions.items()) + "</dl>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    def line(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    body = "\n".join(line(row, "td") for row in rows)
    return f'<div class="scroll"><table>\n{line(head, "th")}\n{body}\n</table></div>'


def _figure(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"
