"""Files that are there whole or not at all, and where they are kept."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from specdecode.files import cache_dir, whole, write_whole


def test_a_text_is_written_and_written_again_in_a_folder_that_is_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "text"
    for text in ("old", "naïve\nnew"):
        write_whole(path, text)
        assert path.read_bytes() == text.encode()
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("end", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt(), ValueError()])
def test_what_was_there_stays_where_writing_fails(tmp_path: Path, end: BaseException) -> None:
    path = tmp_path / "text"
    write_whole(path, "old")
    with pytest.raises(type(end)), whole(path) as partial:  # noqa: PT012 - the body is what fails
        partial.write_text("half")
        raise end
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["/", ".", "", "..", "folder", "file/below"])
def test_what_is_no_place_for_a_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r".+"):
        write_whole(Path(name), "x")
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "file"}
    assert not list((tmp_path / "folder").iterdir())


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECDECODE_CACHE", str(tmp_path / "cache"))
    assert cache_dir() == tmp_path / "cache"
    monkeypatch.delenv("SPECDECODE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "specdecode"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "specdecode"
