"""Where files are kept for later, how they get there (whole or not at all), and files of JSON lines. Knows nothing of
what they hold."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from .errors import BadInput, LoadError


def cache_dir() -> Path:
    """Where all that can be made again lives: $SPECDECODE_CACHE, else `specdecode` in the user's cache folder. Raises
    LoadError for a home that does not exist."""
    chosen = os.environ.get("SPECDECODE_CACHE")
    try:
        if chosen:
            return Path(chosen).expanduser()
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "specdecode"
    except RuntimeError as error:
        where, why = chosen or "~/.cache", str(error).rstrip(".")
        raise LoadError(f"no cache in {where}: {why}; set SPECDECODE_CACHE to another folder") from error


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """A file beside `path` to be written, which takes its place where the body ends well and is gone where it fails or
    is interrupted. The folder is made if it is not there. Raises OSError."""
    if not path.name:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{uuid4().hex}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text in UTF-8. Raises OSError."""
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def json_lines(path: Path | str, things: str, thing: str) -> Iterator[tuple[str, Any]]:
    """("FILE, line N", its value) for each line of a UTF-8 file that is not blank. things, thing: what the file holds,
    for messages. Raises BadInput for a file that cannot be read, and for a line that is no JSON."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")  # JSON may hold other line ends as they are
    except (OSError, ValueError) as error:  # ValueError: no UTF-8, or no path
        reason = getattr(error, "strerror", None) or error
        raise BadInput(f"{things} cannot be read from {path} ({reason}); give a file of JSON lines in UTF-8") from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            where = f"{path}, line {number}"
            try:
                yield where, json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadInput(f"{where} is no JSON ({error}); give one {thing} a line") from error
