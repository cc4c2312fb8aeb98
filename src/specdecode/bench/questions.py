"""What a benchmark asks: questions of one or more turns, each of a task, read from a file in Spec-Bench's format.

A small set of our own is shipped. Knows no model, arm or clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadInput, BadOption, check_count, shown
from ..files import json_lines
from ..text.chat import check_text

TASKS = ("conversation", "translation", "summarization", "qa", "math_reasoning", "rag")  # Spec-Bench's six
MT_BENCH = {"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"}  # conversations
OVERALL = "overall"  # what reports call all tasks together
OURS = Path(__file__).with_name("prompts.jsonl")


@dataclass(frozen=True)
class Question:
    """id: unique in its file. turns: what the user says, one after another."""

    id: str
    task: str
    turns: tuple[str, ...]


def read_questions(path: Path | str = OURS) -> tuple[Question, ...]:
    """The questions of a file: one JSON object a line, with `question_id`, `category` and `turns` (Xia et al.
    2401.07851, Spec-Bench's question.jsonl). The categories of MT-bench are one task, "conversation"; any other is a
    task of its own name.

    Raises BadInput for a file that cannot be read, naming the line."""
    found: dict[str, Question] = {}
    for where, entry in json_lines(path, "questions", "question"):
        question = _parse(entry, where)
        if question.id in found:
            raise BadInput(f"{where}: question_id {question.id} is there twice; give each its own")
        found[question.id] = question
    if not found:
        raise BadInput(f"{path} holds no questions; give a file of JSON lines with question_id, category and turns")
    return tuple(found.values())


def select(
    questions: Sequence[Question], tasks: Iterable[str] = (), per_task: int | None = None
) -> tuple[Question, ...]:
    """The questions of `tasks`, `per_task` of each (evenly spaced over the task, all where there are fewer), in their
    order. No tasks are those of the six that there are, or all if there is none of them.

    Raises BadOption for a task without questions."""
    if per_task is not None:
        check_count("per_task", per_task, 1)
    there = list(dict.fromkeys(question.task for question in questions))
    wanted = list(tasks) or [task for task in there if task in TASKS] or there
    for task in wanted:
        if task not in there:
            raise BadOption(f"there are no questions for the task {shown(task)}; there are {', '.join(there)}")
    chosen: set[str] = set()
    for task in wanted:
        ids = [question.id for question in questions if question.task == task]
        n = len(ids) if per_task is None else min(per_task, len(ids))
        chosen |= {ids[i * len(ids) // n] for i in range(n)}
    return tuple(question for question in questions if question.id in chosen)


def _parse(entry: Any, where: str) -> Question:
    fields = entry if isinstance(entry, dict) else {}
    key, category, turns = (fields.get(name) for name in ("question_id", "category", "turns"))
    if isinstance(key, bool) or not isinstance(key, int | str) or not isinstance(category, str) or not category:
        raise BadInput(f"{where}: a question needs a question_id and a category, found {shown(entry)}")
    if not (isinstance(turns, list) and turns and all(isinstance(turn, str) and turn.strip() for turn in turns)):
        raise BadInput(f"{where}: turns must be a list of texts that are not empty, found {shown(turns)}")
    if category == OVERALL:
        raise BadInput(f"{where}: the category {OVERALL!r} means all tasks together; give another")
    for turn in turns:
        try:
            check_text(turn)
        except BadInput as error:
            raise BadInput(f"{where}: {error}") from error
    return Question(str(key), "conversation" if category in MT_BENCH else category, tuple(turns))
