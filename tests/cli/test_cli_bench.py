"""`specdecode bench` on a tiny model: what it prints and writes, what it refuses, and how it ends."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from runner import Cli

from specdecode.bench.ours import Engine
from specdecode.bench.records import RECORDS

ASK = ["--tasks", "qa,edit", "--per-task", "1", "--max-new-tokens", "6", "--runtime", "transformers", "--warmups", "0"]
ARMS = ["--arm", "upstream", "--arm", "ngram:k=4"]


@pytest.fixture
def args(folder: Path, tmp_path: Path) -> list[Any]:
    return ["bench", "--model", folder, "--out", tmp_path / "run", *ASK, *ARMS]


def test_it_prints_a_table_and_writes_a_report(cli: Cli, args: list[Any], tmp_path: Path) -> None:
    result = cli(*args)
    assert result.code == 0
    for words in ("plain", "upstream", "ngram:k=4", "tokens/s", "over plain", "0 of 2"):
        assert words in result.out
    assert result.err == f"report: {tmp_path / 'run' / 'report.html'}\n"
    assert "viewport" in (tmp_path / "run" / "report.html").read_text()
    assert {file.name for file in (tmp_path / "run").iterdir()} == {
        ".lock",
        "run.json",
        RECORDS,
        "results.json",
        "report.html",
    }


def test_json_is_one_document_and_nothing_else(cli: Cli, args: list[Any], tmp_path: Path) -> None:
    result = cli(*args, "--json", "--repeats", "2")
    assert result.err == ""
    assert result.json == json.loads((tmp_path / "run" / "results.json").read_text())
    assert result.json["settings"]["arms"] == ["plain", "upstream", "ngram:k=4"]
    assert result.json["arms"]["plain"]["overall"]["answers"] == 4
    assert result.json["divergences"] == []


def test_the_settings_can_be_seen_without_a_run(cli: Cli, args: list[Any], tmp_path: Path) -> None:
    told = cli(*args, "--dry-run").json
    assert (told["max_new_tokens"], told["tasks"], told["questions"]) == (6, ["qa", "edit"], 2)
    assert told["out"] == str(tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_runs_of_other_settings_have_other_folders(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    names = [cli("bench", *more, "--dry-run").json["out"] for more in ([], [], ["--repeats", "2"])]
    assert names[0] == names[1] != names[2]
    assert all(name.startswith("specdecode-bench-") for name in names)
    assert list(tmp_path.iterdir()) == []


def test_spec_bench_questions_are_read_from_a_file(cli: Cli, args: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "question.jsonl"
    lines = [{"question_id": i, "category": c, "turns": ["hi"]} for i, c in enumerate(["math", "rag", "rag"])]
    file.write_text("\n".join(map(json.dumps, lines)))
    told = cli(*args[:5], *ASK[4:], "--arm", "plain", "--questions", file, "--json").json
    assert told["settings"]["tasks"] == ["conversation", "rag"]
    assert list(told["arms"]["plain"]) == ["overall", "conversation", "rag"]


def test_an_interrupt_keeps_the_answers_and_the_same_command_goes_on(
    cli: Cli, args: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calls = Engine.run, []

    def interrupted(self: Engine, *given: Any) -> Any:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return run(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "run", interrupted)
        result = cli(*args)
    assert (result.code, result.out, result.err) == (130, "", "specdecode: interrupted\n")
    kept = (tmp_path / "run" / RECORDS).read_text()
    assert kept.count('"kind": "answer"') == 4
    assert cli(*args).code == 0
    whole = (tmp_path / "run" / RECORDS).read_text()
    assert whole.startswith(kept)
    assert whole.count('"kind": "answer"') == 6


def test_a_full_disk_at_the_report_is_one_line(
    cli: Cli, args: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("specdecode.bench.benchmark.write_whole", full)
        error = cli(*args).error
    assert "No space left on device" in error
    assert str(tmp_path / "run" / RECORDS) in error
    assert cli(*args, "--json").json["arms"]["plain"]["overall"]["answers"] == 2


def test_a_run_of_other_settings_is_refused(cli: Cli, args: list[Any]) -> None:
    assert cli(*args).code == 0
    assert "max_new_tokens 6, not 7" in cli(*args, "--max-new-tokens", "7").error


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--questions", "missing.jsonl"], "questions cannot be read from missing.jsonl"),
        (["--questions", "."], "questions cannot be read from ."),
        (["--questions", ""], "questions cannot be read"),
        (["--tasks", "poems"], "no questions for the task 'poems'"),
        (["--tasks", ""], "no questions for the task ''"),
        (["--per-task", "0"], "per_task=0"),
        (["--arm", "nonsense"], "arm 'nonsense' does not exist"),
        (["--arm", "ngram:x=1"], "'ngram' has no option 'x'"),
        (["--arm", "ngram:k=4"], "arm ngram:k=4 is given twice"),
        (["--arm", "auto:clock=1"], "clock=1 is no function"),
        (["--arm", "auto:sources=ngram+auto"], "is no source of itself"),
        (["--arm", "auto:curve=x"], "curve='x' is no function"),
        (["--arm", "lm:sources=ngram"], "arm lm has no sources"),
        (["--arm", "ngram:rule=nonsense"], "rule 'nonsense' does not exist"),
        (["--arm", "ngram:rule=5"], "rule 5 does not exist"),
        (["--arm", "ngram:rule=lenient,rule.x=1"], "rule 'lenient' has no option 'x'"),
        (["--arm", "ngram:rule=lenient,lenience=0.3"], "those of rule 'lenient' are given as rule.NAME=value"),
        (["--arm", "ngram:rule.lenience=0.5"], "give rule=NAME too"),
        (["--arm", "upstream:int8"], "no weights of dtype int8"),
        (["--out", ""], "--out is empty"),
        (["--arm", "lm"], "name the draft model"),
        (["--arm", "llamacpp:q9"], "no quantisation"),
        (["--arm", "llamacpp:q4_0"], "specdecode[peers]"),
        (["--max-new-tokens", "1"], "max_new_tokens=1"),
        (["--repeats", "0"], "repeats=0"),
        (["--warmups", "-1"], "warmups=-1"),
        (["--threads", "0"], "--threads 0"),
        (["--model", ""], "--model is empty"),
        (["--dtype", "int3"], "int3"),
        (["--runtime", "magic"], "magic"),
        (["--device", "nope"], "nope"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_line(
    cli: Cli, args: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: list[str], said: str
) -> None:
    """Before any model is loaded, and before anything is written."""
    monkeypatch.setattr("specdecode.models.loading.read_model", lambda *_, **__: pytest.fail("a model was loaded"))
    monkeypatch.setattr("specdecode.bench.llamacpp.find_spec", lambda name: None)
    monkeypatch.chdir(tmp_path)
    assert said in cli(*args, *more).error
    assert list(tmp_path.iterdir()) == []


def test_a_rule_has_its_options(cli: Cli, args: list[Any]) -> None:
    arms = [f"ngram:rule=lenient,rule.lenience={lenience}" for lenience in (1, 0.01)]
    told = cli(*args[:5], *ASK, "--arm", arms[0], "--arm", arms[1], "--json").json["arms"]
    assert {arm: told[arm]["overall"]["answers"] for arm in arms} == dict.fromkeys(arms, 2)


def test_turns_that_do_not_fit_are_told(cli: Cli, args: list[Any]) -> None:
    result = cli(*args, "--max-new-tokens", "100000")
    assert result.code == 0
    assert "2 turns were left out" in result.err


def test_a_folder_that_cannot_be_written_to_is_refused_before_any_model_is_loaded(
    cli: Cli, args: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("specdecode.models.loading.read_model", lambda *_, **__: pytest.fail("a model was loaded"))
    (tmp_path / "file").touch()
    assert "cannot be written to" in cli(*args, "--out", tmp_path / "file").error
