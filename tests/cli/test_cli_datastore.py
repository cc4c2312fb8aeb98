"""`specdecode datastore`: building a store, what it holds, drafting from it, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import texts
from runner import Cli

from specdecode.datastore import Store, fingerprint

TEXT = "the END stop ab aby ok\n" * 8


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in paths:
        path.write_text(TEXT)
    return paths


@pytest.fixture
def store(cli: Cli, folder: Path, files: list[Path], tmp_path: Path) -> Path:
    result = cli("datastore", "build", *files, "--out", tmp_path / "new" / "store", "--model", folder)
    assert (result.code, result.err) == (0, "")
    assert f"store: {2 * (1 + len(texts.encode(texts.TOKENIZER, TEXT)))} tokens of 2 texts" in result.out
    return tmp_path / "new" / "store"


def test_it_holds_the_tokens_of_the_texts(store: Path) -> None:
    assert [path.name for path in store.parent.iterdir()] == ["store"]
    found = Store.open(store)
    assert found.about.tokenizer == fingerprint(texts.TOKENIZER)
    assert texts.TOKENIZER.decode(found.array.tokens.tolist()[:-1][: found.about.tokens // 2 - 1]) == TEXT


def test_json_and_info_say_the_same(cli: Cli, folder: Path, files: list[Path], store: Path) -> None:
    built = cli("datastore", "build", *files, "--out", store, "--model", folder, "--json").json
    assert cli("datastore", "info", store, "--json").json == built
    assert (built["documents"], built["kind"], built["bytes"]) == (2, "texts", store.stat().st_size)
    assert built["tokenizer"] in cli("datastore", "info", store).out


def test_generate_drafts_from_it(cli: Cli, folder: Path, store: Path) -> None:
    args = ["generate", "the END", "--raw", "--model", folder, "--max-new-tokens", "12"]
    plain = cli(*args, "--drafter", "null").out
    result = cli(*args, "--drafter", "rest", "--option", f"store={store}", "--option", "floor=0")
    assert result.out == plain
    assert "drafter rest" in result.err
    described = cli(*args, "--drafter", "rest", "--option", f"store={store}", "--dry-run").json["drafter"]
    assert (described["store"], described["k"]) == (str(store), 16)


def test_suffix_remembers_answers_in_a_file(cli: Cli, folder: Path, tmp_path: Path) -> None:
    args = ["generate", "the END", "--raw", "--model", folder, "--max-new-tokens", "30", "--drafter", "suffix"]
    memory = ["--option", f"memory={tmp_path / 'answers'}", "--json"]
    first, second = (cli(*args, *memory).json["completions"][0] for _ in range(2))
    assert first["text"] == second["text"]
    assert second["metrics"]["steps"] < first["metrics"]["steps"]
    assert cli("datastore", "info", tmp_path / "answers", "--json").json["kind"] == "answers"


def test_what_cannot_be_done_is_refused_before_anything_is_loaded(cli: Cli, files: list[Path], tmp_path: Path) -> None:
    absent, out = tmp_path / "absent", tmp_path / "out"
    assert "absent is not there" in cli("datastore", "build", files[0], absent, "--out", out, "--model", absent).error
    assert "is no file" in cli("datastore", "build", tmp_path, "--out", out, "--model", absent).error
    assert "is empty" in cli("datastore", "build", files[0], "--out", "", "--model", absent).error
    assert "cannot read datastore" in cli("datastore", "info", absent).error
    assert "is no datastore" in cli("datastore", "info", files[0]).error
    assert "cannot read datastore" in cli("generate", "x", "--drafter", "rest", "--option", f"store={absent}").error
    assert "needs the option 'store'" in cli("generate", "x", "--drafter", "rest").error
    assert not out.exists()
    assert cli("datastore", "build", files[0]).code == 2
    again = cli("datastore", "build", *files, "--out", files[0], "--model", absent).error
    assert "is one of the texts, which would be lost" in again


@pytest.mark.parametrize("out", ["/", ".", ".."])
def test_a_folder_is_no_place_to_write_to(cli: Cli, folder: Path, files: list[Path], out: str) -> None:
    assert "cannot write" in cli("datastore", "build", files[0], "--out", out, "--model", folder).error


def test_a_binary_leaves_no_file(cli: Cli, folder: Path, files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    out = tmp_path / "out" / "store"
    told = cli("datastore", "build", files[0], tmp_path / "binary", "--out", out, "--model", folder).error
    assert "binary is no UTF-8 text" in told
    assert not out.parent.exists()


def test_a_store_of_another_tokenizer_is_refused(cli: Cli, folder: Path, tmp_path: Path) -> None:
    Store.of([[1, 2, 3]], "another").write(tmp_path / "theirs")
    args = [
        "generate",
        "the",
        "--raw",
        "--model",
        folder,
        "--drafter",
        "rest",
        "--option",
        f"store={tmp_path / 'theirs'}",
    ]
    assert "theirs was built with another tokenizer" in cli(*args).error
