"""The journal of a run: records survive, torn ones are dropped, and other settings are refused."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from specdecode.bench import records
from specdecode.bench.records import About, Answer, Divergence, Journal, LeftOut, Place, Timing
from specdecode.errors import BadInput, BadOption, SpecError, WriteError

SETTINGS = {"arms": ("plain", "ngram"), "max_new_tokens": 8}
PLACE = Place("q", 0, 0)
RECORDS = [
    About("plain", "a model"),
    Answer("plain", PLACE, 5, Timing((1, 2, 3), (1, 2), 0.5, 1.5, 0.1, 0.2, 1.0, 2, 1)),
    Answer("ngram", PLACE, 5, Timing((1, 2), (2,), 0.5, 1.5)),
    Divergence("ngram", PLACE, 2, 3, None, None),
    LeftOut("r", 1, 9000),
]


def everything(journal: Journal) -> list[Any]:
    of = (journal.about, journal.answers, journal.divergences, journal.left_out)
    return [record for part in of for record in part.values()]


def filled(folder: Path) -> Path:
    with Journal(folder, SETTINGS) as journal:
        for record in RECORDS:
            journal.append(record)
    return folder


def test_what_was_kept_is_there_again(tmp_path: Path) -> None:
    with Journal(filled(tmp_path / "a" / "run"), SETTINGS) as journal:
        assert everything(journal) == RECORDS
        assert journal.answer("ngram", "q", 0, 0) == RECORDS[2]
        assert journal.answer("ngram", "q", 1, 0) is None


def test_each_record_is_on_the_disk_before_the_next(tmp_path: Path) -> None:
    with Journal(tmp_path, SETTINGS) as journal:
        for i, record in enumerate(RECORDS, 1):
            journal.append(record)
            assert (tmp_path / records.RECORDS).read_text().count("\n") == i


def test_a_line_cut_off_by_a_crash_is_dropped(tmp_path: Path) -> None:
    file = filled(tmp_path) / records.RECORDS
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"kind": "answer", "arm')
    with Journal(tmp_path, SETTINGS) as journal:
        assert everything(journal) == RECORDS
        journal.append(About("ngram", "another"))
    assert file.read_bytes().startswith(whole + b'{"kind": "about"')


@pytest.mark.parametrize(
    "damage",
    [
        b"garbage\n",
        b'{"kind": "poem"}\n',
        b'{"kind": "about", "arm": "x"}\n',
        b"[]\n",
        b"5\n",
        b"null\n",
        b'"about"\n',
        b"[" * 100_000 + b"\n",
        b'{"kind": "answer", "arm": "x", "place": {"question": "q", "turn": 0, "repeat": 0}, "prompt_tokens": 5, '
        b'"timing": {"tokens": [1], "steps": [], "first_s": 1, "total_s": 2}}\n',
        b'{"kind": "answer", "arm": "x", "place": {"question": "q", "turn": 0, "repeat": 0}, "prompt_tokens": 5, '
        b'"timing": {"tokens": [1], "steps": [1], "first_s": 1, "total_s": null}}\n',
    ],
)
def test_a_damaged_line_is_refused_by_number(tmp_path: Path, damage: bytes) -> None:
    file = filled(tmp_path) / records.RECORDS
    file.write_bytes(file.read_bytes() + damage)
    with pytest.raises(BadInput, match="line 6 is damaged"):
        Journal(tmp_path, SETTINGS)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"max_new_tokens": 9}, "max_new_tokens 8, not 9"),
        ({"arms": ("plain",)}, "arms .*ngram.*, not .*plain"),
        ({"device": "cuda"}, "device None, not 'cuda'"),
    ],
)
def test_a_run_of_other_settings_is_not_gone_on_with(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        Journal(filled(tmp_path), {**SETTINGS, **changed})
    with Journal(tmp_path, SETTINGS) as journal:
        assert everything(journal) == RECORDS


@pytest.mark.parametrize("damage", ["{", "5", "null", '"x"', "[" * 100_000])
def test_damaged_settings_are_refused(tmp_path: Path, damage: str) -> None:
    (filled(tmp_path) / records.SETTINGS).write_text(damage)
    with pytest.raises(BadInput, match=r"run\.json is damaged"):
        Journal(tmp_path, SETTINGS)


def test_only_one_process_writes(tmp_path: Path) -> None:
    with Journal(tmp_path, SETTINGS), pytest.raises(WriteError, match="another benchmark is writing"):
        Journal(tmp_path, SETTINGS)


def test_a_place_that_cannot_be_written_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(WriteError, match="cannot be written to"):
            Journal(folder, SETTINGS)


def test_a_full_disk_keeps_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    filled(tmp_path)
    with Journal(tmp_path, SETTINGS) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(SpecError, match=r"takes no more records \(No space left on device\); make room"):
                journal.append(About("new", "x"))
        assert "new" not in journal.about
    with Journal(tmp_path, SETTINGS) as journal:
        assert [record for record in everything(journal) if record != About("new", "x")] == RECORDS
