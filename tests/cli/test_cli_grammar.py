"""Grammars on the command line: files and what is typed, and what is refused before a model is loaded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from runner import Cli

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 3}, "n": {"enum": [1, 22]}},
    "required": ["name", "n"],
    "additionalProperties": False,
}
SUMS = Path(__file__).with_name("sums.lark")


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps(SCHEMA))
    return path


def test_a_schema_from_its_file_or_as_it_is(cli: Cli, folder: Path, schema: Path) -> None:
    for given in (schema, json.dumps(SCHEMA), " " + json.dumps(SCHEMA)):
        result = cli("generate", "the stop", "--model", folder, "--json-schema", given, "--drafter", "ngram")
        assert result.code == 0
        assert list(json.loads(result.out)) == ["name", "n"]
        assert "ended by grammar" in result.err


def test_a_regular_expression(cli: Cli, folder: Path) -> None:
    result = cli("generate", "the stop", "--model", folder, "--regex", "(ab|the)[cd]{3}", "--raw")
    assert re.fullmatch("(ab|the)[cd]{3}\n?", result.out)


def test_a_grammar_from_its_file(cli: Cli, folder: Path) -> None:
    result = cli("generate", "the stop", "--model", folder, "--grammar", SUMS, "--json")
    (done,) = result.json["completions"]
    assert re.fullmatch(r"[0-9](\+[0-9]){1,3}", done["text"])
    assert result.json["config"]["grammar"] == {"kind": "lark", "text": SUMS.read_text()}


def test_it_is_compared_with_plain_decoding_under_the_same_grammar(cli: Cli, folder: Path, schema: Path) -> None:
    result = cli("generate", "the", "--model", folder, "--json-schema", schema, "--compare", "--drafter", "forced")
    assert "the text is identical" in result.err
    assert "accepted" in result.err


def test_every_turn_of_a_chat_fits(cli: Cli, folder: Path) -> None:
    result = cli("chat", "--model", folder, "--regex", "[ab]{4}", stdin="the\nstop\n/exit\n")
    assert result.code == 0
    assert re.fullmatch("([ab]{4}\n){2}", result.out)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--regex", "a", "--json-schema", "{}"], "--json-schema and --regex cannot both"),
        (["--regex", "(a"], "unclosed group"),
        (["--json-schema", '{"type": "foo"}'], "Invalid type: foo"),
        (["--json-schema", '{"type": '], "will not do as a JSON schema"),
        (["--json-schema", "no/such/file.json"], "--json-schema 'no/such/file.json': "),
        (["--grammar", "no/such/file.lark"], "--grammar 'no/such/file.lark': "),
        (["--grammar", ""], "--grammar"),
        (["--drafter", "forced"], "nothing is forced without --json-schema, --regex or --grammar"),
        (["--json-schema", ""], "--json-schema"),
    ],
)
def test_what_is_no_grammar_is_refused_before_a_model_is_loaded(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, args: list[str], said: str
) -> None:
    monkeypatch.setattr("specdecode.models.loading.read_model", lambda *_, **__: pytest.fail("a model was loaded"))
    assert said in (error := cli("generate", "hi", *args).error)
    assert cli("generate", "hi", *args, "--dry-run").error == error


def test_a_file_that_is_no_text_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.lark"
    path.write_bytes(b"\xff\xfe\x00")
    assert "give a text file" in cli("generate", "hi", "--grammar", path).error


def test_a_token_that_the_model_lacks_is_refused_in_one_line(cli: Cli, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.lark"
    path.write_text('start: <|nothing|> "a"')
    assert "unknown special token" in cli("generate", "hi", "--model", folder, "--grammar", path).error
