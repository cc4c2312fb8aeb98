"""Text files to documents of ids. Knows a tokenizer by its two calls, and no model.

Files are cut into pieces at line ends, so that a large one takes little memory and all cores have work.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import BadInput

PIECE = 1 << 16  # characters that are tokenised at once
PIECES = 64  # in one call


def fingerprint(tokenizer: Any) -> str:
    """What tells vocabularies apart: a hash of all tokens with their ids."""
    tokens = sorted((i, token) for token, i in tokenizer.get_vocab().items())
    return hashlib.sha256(json.dumps(tokens).encode()).hexdigest()[:32]


def tokenise(
    paths: Sequence[Path], tokenizer: Any, advance: Callable[[int], None] = lambda done: None
) -> Iterator[NDArray[np.uint32]]:
    """The ids of each file, without special tokens. advance: told the bytes of each file that is done.

    Raises BadInput for a file that cannot be read or is no UTF-8."""
    for path in paths:
        try:
            data = path.read_bytes()
            pieces = list(_pieces(data.decode("utf-8")))
        except OSError as error:
            raise BadInput(f"cannot read {path}: {error.strerror or error}; leave it out") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is no UTF-8 text (byte {error.start}); convert it, or leave it out") from error
        ids: list[int] = []
        for first in range(0, len(pieces), PIECES):
            for part in tokenizer(pieces[first : first + PIECES], add_special_tokens=False, verbose=False)["input_ids"]:
                ids += part
        yield np.array(ids, np.uint32)
        advance(len(data))


def _pieces(text: str) -> Iterator[str]:
    """The text, cut after line ends where it has any."""
    start = 0
    while start < len(text):
        stop = start + PIECE
        end = text.rfind("\n", start, stop) + 1 if stop < len(text) else len(text)
        end = end or min(stop, len(text))
        yield text[start:end]
        start = end
