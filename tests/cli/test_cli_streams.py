"""What the command line does to the streams it was given: closed, full, of a narrow encoding, without colours."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runner import Cli, Result

import specdecode as sd
from specdecode.cli import show
from specdecode.text.completion import Piece

LENGTH = ["--max-new-tokens", "12"]
COMMAND = [sys.executable, "-m", "specdecode"]
ESCAPE = "\x1b"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard output as a terminal with colours. No fixture: pytest would put its own stream back before the test."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    return terminal


def interrupted(*texts: str) -> Iterator[Piece]:
    for text in texts:
        yield Piece(text, (1,), False)
    raise KeyboardInterrupt


@pytest.mark.parametrize("command", [["generate", "-"], ["chat"]])
def test_a_closed_standard_input_is_an_empty_one(cli: Cli, folder: Path, command: list[str]) -> None:
    result = cli(*command, "--model", folder, stdin=None)
    assert result.out == ""
    assert result.code == 0 if command == ["chat"] else "the prompt is empty" in result.error


def test_standard_input_that_is_no_text_is_refused(cli: Cli, folder: Path) -> None:
    """Whatever the locale: under UTF-8 the stream itself would raise."""
    stdin = io.TextIOWrapper(io.BytesIO(b"ab\xff"), encoding="utf-8")
    assert cli("generate", "-", "--model", folder, stdin=stdin).error


def test_a_closed_standard_error_hides_the_notes_alone(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    text = sd.load(folder).chat("hi", max_new_tokens=12).text
    assert cli("generate", "hi", "--model", folder, *LENGTH) == Result(0, text + "\n", "")
    assert cli("generate", "hi", "--k", "0") == Result(2, "", "")


def test_a_closed_standard_output_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from specdecode.cli.main import run

    monkeypatch.setattr(sys, "argv", ["specdecode", "methods"])
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(SystemExit, match="1"):
        run()
    assert re.fullmatch("specdecode: error: standard output is closed.*\n", capsys.readouterr().err)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
@pytest.mark.parametrize("args", [["--help"], ["methods", "--json"]])
def test_a_full_disk_ends_in_one_line(args: list[str]) -> None:
    """A process of its own, since Python flushes once more when it ends."""
    with open("/dev/full", "w") as full:
        result = subprocess.run([*COMMAND, *args], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 1
    assert re.fullmatch("specdecode: error: .*No space left on device\n", result.stderr)


@pytest.mark.parametrize("args", [[], ["--json"], ["--dry-run"]])
def test_an_encoding_that_lacks_a_character_is_written_around(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    result = cli("generate", "é 😀 the", "--model", folder, *args, *LENGTH)
    assert (result.code, "Traceback" in result.err) == (0, False)
    if args:
        told = json.loads(written.getvalue())
        assert told.get("config", told)["prompt"] == "é 😀 the"


def test_an_unspeakable_answer_is_streamed_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    from specdecode.cli.main import run

    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["specdecode", "methods"])
    with pytest.raises(SystemExit):
        run()
    print("é", flush=True)
    assert written.getvalue().endswith(b"\\xe9\n")


@pytest.mark.parametrize(("begun", "out"), [(["ab", "c"], "abc\n"), ([], "")])
def test_an_interrupt_ends_with_130_and_one_line(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, begun: list[str], out: str
) -> None:
    monkeypatch.setattr(sd.Model, "stream", lambda *_, **__: interrupted(*begun))
    result = cli("generate", "hi", "--model", folder)
    assert (result.code, result.out, result.err) == (130, out, "specdecode: interrupted\n")


def test_an_interrupt_while_importing_is_caught_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting:
        def __getattr__(self, name: str) -> Any:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "specdecode.cli.app", Interrupting())
    result = cli("methods")
    assert (result.code, result.out, result.err) == (130, "", "specdecode: interrupted\n")


def test_the_entry_point_is_light_and_help_needs_no_model_library() -> None:
    code = (
        "import sys, specdecode.cli.main; early = {'typer', 'rich'} & set(sys.modules); import specdecode.cli.app;"
        "print(sorted(early | {'torch', 'transformers', 'numpy'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("variable", ["NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"])
@pytest.mark.parametrize("command", [["demo"], ["methods"], ["generate", "hi", "--json"], ["generate", "hi"]])
def test_a_pipe_gets_no_escape_codes(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], variable: str
) -> None:
    monkeypatch.setenv(variable, "1")
    where = [] if command == ["methods"] else ["--model", folder, *LENGTH]
    result = cli(*command, *where)
    assert result.code == 0
    assert ESCAPE not in result.out + result.err


@pytest.mark.parametrize(
    ("variable", "value", "coloured"), [("COLUMNS", "80", True), ("NO_COLOR", "1", False), ("TERM", "dumb", False)]
)
def test_a_terminal_is_coloured_unless_it_is_told_not_to_be(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, coloured: bool
) -> None:
    terminal = screen(monkeypatch)
    monkeypatch.setenv(variable, value)
    cli("demo", "--model", folder, *LENGTH)
    assert (ESCAPE in terminal.getvalue()) == ("drafted and accepted" in terminal.getvalue()) == coloured
    assert show.in_colour(terminal) == coloured


def test_a_terminal_shows_where_text_comes_from(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours differ by origin, and taking them away leaves the text."""
    terminal = screen(monkeypatch)
    done = show.stream(sd.load(folder).stream("the the the", max_new_tokens=20))
    assert ESCAPE in terminal.getvalue()
    assert re.sub(r"\x1b\[\d*m", "", terminal.getvalue()) == done.text + "\n"
    drafted, own = show.paint(Piece("x", (1,), True), True), show.paint(Piece("x", (1,), False), True)
    assert len({drafted, own, "x"}) == 3


@pytest.mark.parametrize("mode", ["--json", "--dry-run"])
def test_numbers_that_json_lacks_are_written_as_strings(cli: Cli, folder: Path, mode: str) -> None:
    def strict(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    result = cli("generate", "hi", "--model", folder, "--logit-bias", "5=-Infinity", mode, *LENGTH)
    told = json.loads(result.out, parse_constant=strict)
    assert told.get("config", told)["sampling"]["logit_bias"] == {"5": "-Infinity"}
