"""The entry point: commands, and errors in one line."""

from __future__ import annotations

import sys

import typer

from ..errors import SpecError
from .chat import chat
from .demo import demo
from .generate import generate
from .methods import methods

app = typer.Typer(
    help="Lossless speculative decoding: several times faster, the same text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (generate, chat, methods, demo):
    app.command()(command)


def run() -> None:
    """Exit codes: 0, 1 for what could not be done, 2 for a wrong command line, 130 when interrupted."""
    try:
        app()
    except SpecError as error:
        print("specdecode: error:", " ".join(str(error).split()), file=sys.stderr)
        sys.exit(1)
