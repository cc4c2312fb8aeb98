"""The entry point: standard streams fit to use, and every end in at most one line.

Imports nothing that takes time, so that an interrupt finds it ready. Knows no command.
"""

from __future__ import annotations

import io
import sys
from contextlib import suppress

from ..errors import BadOption, SpecError, WriteError

WRONG, INTERRUPTED = 2, 130


def run() -> None:
    """Exit codes: 0, 1 for what could not be done, 2 for a wrong command line (an option that does not exist, or that
    cannot be honoured), 130 when interrupted."""
    try:
        _prepare_streams()
        from .app import main

        code = main()
    except KeyboardInterrupt:
        _end("interrupted", INTERRUPTED)
    except SpecError as error:
        _end(f"error: {error}", WRONG if isinstance(error, BadOption) else 1)
    except OSError as error:  # a full disk, most likely
        with suppress(OSError):
            sys.stdout.close()  # what it still holds would raise once more when Python ends
        _end(f"error: {error}", 1)
    if code == INTERRUPTED:  # typer's way to say so
        _end("interrupted", INTERRUPTED)
    sys.exit(code)


def _prepare_streams() -> None:
    """Characters that an encoding has not are escaped; bytes that are no text are left to whoever reads the prompt. A
    stream that was closed is None: nothing is read or noted there, but without an output there is nothing to do."""
    if sys.stdout is None:
        raise WriteError("standard output is closed, so there is nowhere to answer to; leave it open")
    for stream, errors in ((sys.stdin, "surrogateescape"), (sys.stdout, "backslashreplace")):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)


def _end(words: str, code: int) -> None:
    if sys.stderr is not None:
        print("specdecode:", " ".join(words.split()), file=sys.stderr)
    sys.exit(code)
