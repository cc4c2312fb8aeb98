"""A datastore: documents as ids with their suffix array, and the file that keeps them.

The file is a line of magic, a JSON line (the header), and two arrays: the ids, newest first, and their order. It is
mapped, not read, and appears whole or not at all. Knows no tokenizer, only the fingerprint of the one that was used.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput, LoadError, WriteError, is_count, shown
from ..files import whole
from .array import SEPARATOR, WIDTH, SuffixArray

MAGIC = b"specdecode datastore\n"
VERSION = 1  # of the file: raise it when it holds something else
MOST = 2**31 - 1  # tokens
HEADER = 1 << 12  # bytes that the header may take


@dataclass(frozen=True)
class About:
    """kind: what the documents are; tokenizer: the fingerprint of the one that made the ids, "" where nobody said;
    tokens: separators included."""

    kind: str
    tokenizer: str
    documents: int
    tokens: int


@dataclass(frozen=True, eq=False)
class Store:
    """Documents to draft from. name: what messages call it."""

    array: SuffixArray
    about: About
    name: str = "in memory"

    @classmethod
    def of(
        cls, documents: Iterable[Sequence[int] | NDArray[np.uint32]], tokenizer: str = "", kind: str = "texts"
    ) -> Store:
        """The store of documents of ids, sorted now: half a second for a million tokens. Raises BadInput for too many
        tokens or none, and for what are no ids."""
        end = np.array([SEPARATOR], np.uint32)
        parts = [part for ids in documents for part in (_ids(ids), end)]
        tokens = np.concatenate(parts) if parts else end[:0]
        count = len(parts) // 2
        if not count < len(tokens) <= MOST:
            found = len(tokens) - count
            raise BadInput(f"a datastore holds 1 to {MOST} tokens, and these documents have {found}; give others")
        return cls(SuffixArray.of(tokens), About(kind, tokenizer, count, len(tokens)))

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """The store in a file, checked from end to end. Raises LoadError for a file that is none, or damaged."""
        try:
            with Path(path).open("rb") as file:
                found = os.fstat(file.fileno()).st_size
                content = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if found else b"")
        except (OSError, ValueError) as error:
            raise LoadError(f"cannot read datastore {path}: {_reason(error)}; give the file of one") from error
        start = bytes(content[:HEADER]).find(b"\n", len(MAGIC)) + 1
        if bytes(content[: len(MAGIC)]) != MAGIC:
            raise LoadError(f"{path} is no datastore; make one with `specdecode datastore build`")
        about, checksum = _parse(bytes(content[len(MAGIC) : start]), path)
        size = start + 2 * WIDTH * about.tokens
        if found != size:
            raise LoadError(f"datastore {path} has {found} bytes, not {size}: it is damaged; build it again")
        if zlib.crc32(content[start:], _salt(about)) != checksum:
            raise LoadError(f"datastore {path} is corrupt: its checksum differs; build it again")
        middle = start + WIDTH * about.tokens
        return cls(SuffixArray(content[start:middle], content[middle:]), about, str(path))

    def write(self, path: str | Path) -> None:
        """Keep it in a file, whole or not at all. Raises WriteError."""
        text, order = self.array.text, self.array.order.cast("B")
        checksum = zlib.crc32(order, zlib.crc32(text, _salt(self.about)))
        header = {"version": VERSION, "byteorder": sys.byteorder, **asdict(self.about), "checksum": checksum}
        try:
            with whole(Path(path)) as partial, partial.open("xb") as file:
                file.writelines((MAGIC, json.dumps(header).encode() + b"\n", text, order))
        except OSError as error:
            raise WriteError(f"cannot write {path}: {_reason(error)}; choose another place") from error


def _ids(document: Sequence[int] | NDArray[np.uint32]) -> NDArray[np.uint32]:
    """[n] a document's ids, which may be none. Raises BadInput for what are no ids."""
    ids = np.asarray(document)
    if ids.ndim != 1 or (ids.size and (ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= SEPARATOR)):
        raise BadInput(f"a document is a list of ids from 0 to {SEPARATOR - 1}, found {shown(document)}; give one")
    return ids.astype(np.uint32)


def _parse(line: bytes, path: str | Path) -> tuple[About, int]:
    """What a header says, and the checksum of the rest. Raises LoadError."""
    try:
        header = json.loads(line)
        version, order, checksum = (header.pop(name) for name in ("version", "byteorder", "checksum"))
        if (version, order) != (VERSION, sys.byteorder):
            raise LoadError(
                f"datastore {path} is of version {shown(version)} for {shown(order)}-endian machines, not of version "
                f"{VERSION} for {sys.byteorder}-endian ones; build it again"
            )
        about = About(**header)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise LoadError(f"datastore {path} has a damaged header; build it again") from error
    sound = is_count(about.tokens, 1) and is_count(about.documents, 1) and isinstance(about.tokenizer, str)
    if not sound or not is_count(checksum):
        raise LoadError(f"datastore {path} has a damaged header; build it again")
    return about, checksum


def _salt(about: About) -> int:
    """What the checksum starts from: the header is under it too."""
    return zlib.crc32(json.dumps(asdict(about)).encode())


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
