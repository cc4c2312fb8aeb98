"""The commands, as typer knows them."""

from __future__ import annotations

import typer

from .bench import bench
from .calibrate import calibrate
from .chat import chat
from .check import check
from .datastore import app as datastore
from .demo import demo
from .generate import generate
from .methods import methods
from .tune import app as tune

app = typer.Typer(
    help="Lossless speculative decoding: several times faster, the same text.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (generate, chat, methods, demo, bench, calibrate, check):
    app.command()(command)
app.add_typer(datastore, name="datastore")
app.add_typer(tune, name="tune")
