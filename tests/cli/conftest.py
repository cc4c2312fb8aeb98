"""The command line, run in this process."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TextIO

import pytest
import texts
from runner import Cli, Result

from specdecode.cli.main import run


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*args: str | Path, stdin: str | TextIO | None = "") -> Result:
        monkeypatch.setattr(sys, "argv", ["specdecode", *map(str, args)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin) if isinstance(stdin, str) else stdin)
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            run()
        told = capsys.readouterr()
        return Result(int(exit_info.value.code or 0), told.out, told.err)

    return call


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts.save(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts.save(tmp_path_factory.mktemp("models") / "small", 1)
