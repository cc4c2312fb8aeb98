"""The results of a run as one document, ready for JSON: every arm's figures, every pair's ratios, every divergence.

Puts together what `figures` computes; knows no model and no page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .figures import DEFINITIONS, compare, describe
from .questions import OVERALL, Question
from .records import Answer, Journal


def results(settings: Mapping[str, Any], questions: Sequence[Question], journal: Journal) -> dict[str, Any]:
    """settings: those of the run. The arms are theirs, the first to be asked first.

    "arms" holds {arm: {task: figures}} and "speed_up" {baseline: {arm: {task: ratios}}}; one of the tasks is "overall",
    which is computed over all questions and is not the mean of the others."""
    task_of = {question.id: question.task for question in questions}
    groups: dict[str, dict[str, list[Answer]]] = {
        arm: {OVERALL: [], **{task: [] for task in dict.fromkeys(task_of.values())}} for arm in settings["arms"]
    }
    for answer in journal.answers.values():
        groups[answer.arm][OVERALL].append(answer)
        groups[answer.arm][task_of[answer.place.question]].append(answer)
    return {
        "settings": dict(settings),
        "about": {arm: entry.what for arm, entry in journal.about.items()},
        "arms": {arm: {task: describe(found) for task, found in of.items()} for arm, of in groups.items()},
        "speed_up": {
            base: {
                arm: {task: compare(groups[arm][task], groups[base][task]) for task in groups[arm]} for arm in groups
            }
            for base in groups
        },
        "divergences": [asdict(entry) for entry in journal.divergences.values()],
        "left_out": [asdict(entry) for entry in journal.left_out.values()],
        "definitions": DEFINITIONS,
    }
