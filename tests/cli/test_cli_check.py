"""`specdecode check` on a tiny model: what it prints and writes, what it refuses, and how it ends."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from runner import Cli

import specdecode as sd
from specdecode import certify
from specdecode.certify import Counts

SMALL = Counts(prompts=2, seeds=2, answers=2, places=1, draws=32, rows=2)
TESTS = ["greedy parity", "logit gap", "coupled parity", "frequencies", "score", "ranks", "KV integrity"]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certify, "DEFAULT_COUNTS", SMALL, raising=False)


@pytest.fixture
def args(folder: Path) -> list[Any]:
    return ["check", "--model", folder, "--runtime", "transformers", "--drafter", "ngram", "--max-new-tokens", "6"]


@pytest.fixture
def texts(folder: Path, tmp_path: Path) -> Path:
    """A greedy and a sampled text, as another engine would hand them in."""
    model = sd.load(folder, runtime="transformers")
    law = {"temperature": 1.0, "top_k": 20}
    lines = []
    for told, sampling in (({}, sd.Sampling()), (law, sd.Sampling(**law, seed=1))):
        done = model.generate([5, 6, 7, 5], drafter=None, sampling=sampling, max_new_tokens=30)
        lines.append({"prompt_ids": [5, 6, 7, 5], "sampling": told, "output_ids": list(done.tokens)})
    path = tmp_path / "texts.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def change(path: Path) -> None:
    """Another token in the middle of the greedy text."""
    first, *rest = path.read_text().splitlines()
    line = json.loads(first)
    line["output_ids"][3] ^= 1
    path.write_text("\n".join([json.dumps(line), *rest]))


def test_it_prints_a_table_and_writes_a_certificate(cli: Cli, args: list[Any], tmp_path: Path) -> None:
    out = tmp_path / "new" / "certificate.json"
    result = cli(*args, "--out", out, "--seed", "3")
    assert result.code == 0
    for words in (*TESTS, "pass", "2 of 2 texts equal", "drafter ngram, rule rejection: certified"):
        assert words in result.out
    assert result.err == f"{out}\n"
    written = json.loads(out.read_text())
    assert (written["passed"], written["seed"], written["counts"]["prompts"]) == (True, 3, 2)
    assert [test["test"] for test in written["tests"]] == TESTS
    assert written["settings"]["drafter"]["name"] == "ngram"
    assert {"processor", "torch"} <= written["machine"].keys()
    assert [path.name for path in out.parent.iterdir()] == [out.name]


def test_json_is_one_document_and_nothing_else(cli: Cli, args: list[Any], tmp_path: Path) -> None:
    asked = ["--json", "--prompts-count", "1", "--seeds", "3", "--seed", "1", "--out", tmp_path / "c.json"]
    result = cli(*args, *asked)
    assert (result.code, result.err) == (0, "")
    assert result.json == json.loads((tmp_path / "c.json").read_text())
    assert "1 of 1 texts" in result.json["tests"][0]["found"]
    assert "3 of 3 texts" in result.json["tests"][2]["found"]


def test_the_settings_can_be_seen_without_a_run(cli: Cli, args: list[Any]) -> None:
    told = cli(*args, "--dry-run").json
    assert (told["rule"]["name"], told["sampling"]["temperature"], told["counts"]["draws"]) == ("rejection", 1.0, 32)
    thorough = cli(*args, "--dry-run", "--thorough", "--seeds", "5").json["counts"]
    assert thorough == {**asdict(certify.THOROUGH), "seeds": 5}


def test_a_rule_that_draws_nothing_is_certified_for_greedy_texts(cli: Cli, args: list[Any]) -> None:
    result = cli(*args, "--rule", "topbeta")
    assert result.code == 0
    assert "not promised" in result.out
    assert "not applicable" in result.out
    assert "no budget" in result.out


def test_prompts_come_from_a_file(cli: Cli, args: list[Any], tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text(json.dumps({"question_id": 1, "category": "qa", "turns": ["the stop the stop the"]}))
    assert "1 of 1 texts equal" in cli(*args, "--prompts", file).out


def test_texts_from_elsewhere_are_judged(cli: Cli, args: list[Any], texts: Path) -> None:
    result = cli(*args[:5], "--outputs", texts)
    assert result.code == 0
    assert "2 texts: certified" in result.out
    assert "frequencies" not in result.out


def test_a_failure_ends_with_1_and_names_the_test(cli: Cli, args: list[Any], texts: Path, tmp_path: Path) -> None:
    change(texts)
    result = cli(*args[:5], "--outputs", texts, "--out", tmp_path / "c.json")
    assert result.code == 1
    assert "not certified: greedy parity, logit gap" in result.out
    assert json.loads((tmp_path / "c.json").read_text())["passed"] is False
    found = cli(*args[:5], "--outputs", texts, "--json")
    assert (found.code, found.json["passed"]) == (1, False)
    assert "text 1 parts after 3 tokens" in found.json["tests"][0]["found"]
    assert cli(*args[:5], "--outputs", texts, "--gap", "1000").code == 0


def test_a_bad_line_refuses_the_file_before_the_model_is_loaded(
    cli: Cli, args: list[Any], texts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with texts.open("a") as file:
        file.write('\n{"prompt_ids": [1], "sampling": {"heat": 2}, "output_ids": [1]}\n')
    monkeypatch.setattr("specdecode.models.loading.read_model", lambda *_, **__: pytest.fail("a model was loaded"))
    error = cli(*args[:5], "--outputs", texts).error
    assert f"{texts}, line 3: sampling has no option 'heat'" in error


def test_ids_of_another_model_are_refused(cli: Cli, args: list[Any], texts: Path) -> None:
    texts.write_text('{"prompt_ids": [1], "sampling": {}, "output_ids": [1, 99999]}')
    assert "line 1: output_ids holds 99999" in cli(*args[:5], "--outputs", texts).error


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--prompts-count", "0"], "prompts=0"),
        (["--seeds", "-1"], "seeds=-1"),
        (["--prompts", "missing.jsonl"], "questions cannot be read from missing.jsonl"),
        (["--outputs", "missing.jsonl"], "--drafter says how to decode"),
        (["--gap", "1"], "--outputs"),
        (["--explain"], "--explain"),
        (["--out", ""], "--out"),
        (["--out", "."], "--out ."),
        (["--rule", "magic"], "'magic' does not exist"),
        (["--rule", "greedy", "--temperature", "1"], "cannot draw"),
        (["--drafter", "lm"], "--draft-model"),
        (["--threads", "0"], "--threads"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_line(
    cli: Cli, args: list[Any], monkeypatch: pytest.MonkeyPatch, more: list[str], said: str
) -> None:
    monkeypatch.setattr("specdecode.models.loading.read_model", lambda *_, **__: pytest.fail("a model was loaded"))
    assert said in cli(*args, *more).error


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--outputs", "missing.jsonl"], "outputs cannot be read from missing.jsonl"),
        (["--outputs", ""], "--outputs names no file"),
        (["--outputs", "x", "--gap", "-1"], "--gap -1"),
        (["--outputs", "x", "--gap", "nan"], "--gap nan"),
        (["--outputs", "x", "--seeds", "3"], "--seeds says how to decode"),
        (["--outputs", "x", "--temperature", "1"], "--temperature says how to decode"),
    ],
)
def test_wrong_requests_for_texts_from_elsewhere(cli: Cli, args: list[Any], more: list[str], said: str) -> None:
    assert said in cli(*args[:5], *more).error


def test_a_place_that_cannot_be_written_is_one_line(cli: Cli, args: list[Any], texts: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot write" in cli(*args[:5], "--outputs", texts, "--out", tmp_path / "file" / "c.json").error
