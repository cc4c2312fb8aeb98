"""Files that are there whole or not at all. Knows nothing of what they hold."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4


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
