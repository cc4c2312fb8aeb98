"""What is measured, as frozen records, and the file that keeps them one by one while a benchmark runs.

Every record is on the disk before the next one begins, so that an interrupt loses at most the answer at work. Knows no
model and no arithmetic.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from filelock import FileLock, Timeout

from ..errors import BadInput, BadOption, WriteError, shown
from ..files import write_whole

SETTINGS, RECORDS, LOCK = "run.json", "records.jsonl", ".lock"


@dataclass(frozen=True)
class Timing:
    """How an arm answered one prompt.

    tokens:    every new id, an end token included.
    steps:     how many of them each step emitted, the first step's included.
    first_s:   seconds until the first step's tokens were out: the prompt was read, and one step made.
    total_s:   seconds until the last token was out.
    draft_s, target_s, steps_s: seconds drafting, in the model, and altogether, of all steps; None where it is not told.
    drafted, accepted: drafted tokens that could have been accepted, and those that were; None likewise.
    """

    tokens: tuple[int, ...]
    steps: tuple[int, ...]
    first_s: float
    total_s: float
    draft_s: float | None = None
    target_s: float | None = None
    steps_s: float | None = None
    drafted: int | None = None
    accepted: int | None = None


@dataclass(frozen=True)
class Place:
    """Which prompt: turn `turn` of a question, in round `repeat`."""

    question: str
    turn: int
    repeat: int


@dataclass(frozen=True)
class About:
    """What an arm runs, in words: the model's runtime and precision, or its file."""

    arm: str
    what: str


@dataclass(frozen=True)
class Answer:
    """One arm's answer at one place."""

    arm: str
    place: Place
    prompt_tokens: int
    timing: Timing


@dataclass(frozen=True)
class Divergence:
    """Where an arm's answer leaves the plain arm's: after `position` equal tokens. `plain` and `token` are the two ids
    there, None where that answer has ended; `gap` is how much higher the plain arm's model rates its own token, in
    logits (None where an answer has ended)."""

    arm: str
    place: Place
    position: int
    plain: int | None
    token: int | None
    gap: float | None


@dataclass(frozen=True)
class LeftOut:
    """A turn that no arm was asked, because its prompt and the answer would not fit into the model's context."""

    question: str
    turn: int
    prompt_tokens: int


Record = About | Answer | Divergence | LeftOut
KINDS = {"about": About, "answer": Answer, "divergence": Divergence, "left_out": LeftOut}


class Journal:
    """The records of a run folder, old ones read when it is opened, new ones appended. A context manager: while it is
    open no other process may write there.

    settings: what the run depends on, ready for JSON. Raises BadOption for a folder that holds a run of other settings,
    WriteError for one that is being written to or cannot be, and BadInput where its files are damaged."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder = folder
        self.about: dict[str, About] = {}
        self.answers: dict[tuple[str, Place], Answer] = {}
        self.divergences: dict[tuple[str, Place], Divergence] = {}
        self.left_out: dict[tuple[str, int], LeftOut] = {}
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with ExitStack() as stack:
                stack.enter_context(FileLock(folder / LOCK, timeout=0))
                self._settle(json.loads(json.dumps(settings)))
                self._read(folder / RECORDS)
                self._file = stack.enter_context((folder / RECORDS).open("ab", buffering=0))
                self._open = stack.pop_all()
        except Timeout as error:
            raise WriteError(
                f"another benchmark is writing to {folder}; wait for it, or choose another folder"
            ) from error
        except OSError as error:
            raise WriteError(f"{folder} cannot be written to ({error.strerror}); choose another folder") from error

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def append(self, record: Record) -> None:
        """Keep a record, on the disk when this returns. Raises WriteError where it cannot be."""
        kind = next(name for name, cls in KINDS.items() if isinstance(record, cls))
        line = json.dumps({"kind": kind, **asdict(record)}).encode() + b"\n"
        try:
            if self._file.write(line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            raise WriteError(
                f"{self.folder / RECORDS} takes no more records ({error.strerror}); make room and give the same "
                "command again, which goes on from here"
            ) from error
        self._take(record)

    def answer(self, arm: str, question: str, turn: int, repeat: int) -> Answer | None:
        return self.answers.get((arm, Place(question, turn, repeat)))

    def _take(self, record: Record) -> None:
        if isinstance(record, About):
            self.about[record.arm] = record
        elif isinstance(record, Answer):
            self.answers[record.arm, record.place] = record
        elif isinstance(record, Divergence):
            self.divergences[record.arm, record.place] = record
        else:
            self.left_out[record.question, record.turn] = record

    def _settle(self, settings: dict[str, Any]) -> None:
        """Write the settings of a new run, or compare with those of an old one."""
        path = self.folder / SETTINGS
        if not path.exists():
            write_whole(path, json.dumps(settings, indent=1))
            return
        try:
            there = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError, RecursionError) as error:
            raise BadInput(f"{path} is damaged; choose another folder, or remove this one") from error
        for name in sorted({*there, *settings}):
            if there.get(name) != settings.get(name):
                raise BadOption(
                    f"{self.folder} holds a run with {name} {shown(there.get(name))}, not {shown(settings.get(name))}; "
                    "choose another folder, or the same settings to go on with it"
                )

    def _read(self, path: Path) -> None:
        """Take the records of an earlier run. A last line that was cut off is cut off for good."""
        if not path.exists():
            return
        content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(path, whole)
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                self._take(_parse(json.loads(line)))
            except (ValueError, TypeError, LookupError, RecursionError) as error:
                raise BadInput(
                    f"{path}, line {number} is damaged; choose another folder, or remove the line"
                ) from error


def _parse(line: Any) -> Record:
    entry = dict(line)
    kind = KINDS[entry.pop("kind")]
    if "place" in entry:
        entry["place"] = Place(**entry["place"])
    if "timing" in entry:
        timing = entry["timing"]
        entry["timing"] = Timing(**{**timing, "tokens": tuple(timing["tokens"]), "steps": tuple(timing["steps"])})
        if min(timing["steps"]) < 1 or not 0 <= timing["first_s"] <= timing["total_s"]:
            raise ValueError("steps that emit nothing, or times that run backwards")
    record: Record = kind(**entry)
    return record
