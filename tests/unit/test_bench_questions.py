"""Question files: what is read, what is chosen, and what is refused in one line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from specdecode.bench.questions import OURS, TASKS, Question, read_questions, select
from specdecode.errors import BadInput, BadOption, SpecError


def line(key: Any = 1, category: Any = "qa", turns: Any = ("why?",)) -> str:
    return json.dumps({"question_id": key, "category": category, "turns": turns})


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_spec_bench_lines_are_questions(tmp_path: Path) -> None:
    file = write(tmp_path / "q.jsonl", line(81, "writing", ["a", "b"]), "", line(161, "translation", ["ü"]))
    assert read_questions(file) == (
        Question("81", "conversation", ("a", "b")),
        Question("161", "translation", ("ü",)),
    )


def test_our_own_questions_cover_the_six_tasks_and_three_more() -> None:
    questions = read_questions()
    counts = Counter(question.task for question in questions)
    assert set(counts) == {*TASKS, "edit", "copy", "chat"}
    assert all(counts[task] >= 4 for task in TASKS)
    assert any(len(question.turns) == 2 for question in questions)
    assert OURS.is_file()


def test_the_six_are_chosen_by_default_and_other_tasks_by_name() -> None:
    questions = read_questions()
    assert {question.task for question in select(questions)} == set(TASKS)
    assert [question.task for question in select(questions, ["chat", "edit"])] == ["edit"] * 3 + ["chat"] * 2
    strange = (Question("1", "poems", ("a",)), Question("2", "riddles", ("b",)))
    assert select(strange) == strange


def test_some_of_a_task_are_spread_over_it() -> None:
    questions = tuple(Question(str(i), "qa" if i < 80 else "rag", ("x",)) for i in range(100))
    assert [q.id for q in select(questions, ["qa"], 4)] == ["0", "20", "40", "60"]
    assert len(select(questions, ["rag"], 30)) == 20
    assert [q.id for q in select(questions, (), 1)] == ["0", "80"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no questions"),
        ("\n \n", "holds no questions"),
        ("what?", "line 1 is no JSON"),
        (line() + "\n{", "line 2 is no JSON"),
        ("[1, 2]", "needs a question_id and a category"),
        ('{"category": "qa", "turns": ["a"]}', "needs a question_id and a category"),
        (line(True), "needs a question_id and a category"),
        (line(category=""), "needs a question_id and a category"),
        (line(turns=[]), "turns must be a list of texts"),
        (line(turns="why?"), "turns must be a list of texts"),
        (line(turns=["a", " "]), "turns must be a list of texts"),
        (line(turns=["a", 3]), "turns must be a list of texts"),
        (line(turns=["\ud800"]), "line 1: .* no Unicode character"),
        (line(category="overall"), "all tasks together"),
        ("[" * 100_000, "line 1 is no JSON"),
        (line() + "\n" + line(), "line 2: question_id 1 is there twice"),
    ],
)
def test_a_file_that_holds_no_questions_is_refused(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(BadInput, match=said) as info:
        read_questions(write(tmp_path / "q.jsonl", content))
    assert "\n" not in str(info.value)


def test_a_line_ends_where_json_says_so(tmp_path: Path) -> None:
    """Texts may hold what Python calls line ends, and a file may begin with a byte order mark."""
    turn = "one\u2028two\x85three\x0bfour"
    content = json.dumps({"question_id": 1, "category": "qa", "turns": [turn]}, ensure_ascii=False)
    assert read_questions(write(tmp_path / "q.jsonl", "\ufeff" + content))[0].turns == (turn,)


@pytest.mark.parametrize("name", ["missing.jsonl", ".", "binary", "null\0byte"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "binary").write_bytes(b'{"question_id": "\xff"}')
    with pytest.raises(BadInput, match="questions cannot be read") as info:
        read_questions(tmp_path / name)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"tasks": ["poems"]}, "there are qa"), ({"tasks": [""]}, "''"), ({"per_task": 0}, "per_task=0")],
)
def test_a_choice_that_is_empty_is_refused(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said) as info:
        select((Question("1", "qa", ("a",)),), **asked)
    assert isinstance(info.value, BadOption)
