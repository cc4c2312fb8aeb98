"""The commands, as typer knows them."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any

import typer

from ..errors import BadOption
from .bench import bench
from .calibrate import calibrate
from .chat import chat
from .check import check
from .datastore import app as datastore
from .demo import demo
from .generate import generate
from .methods import methods
from .tune import app as tune

NAME = "specdecode"

app = typer.Typer(
    help="Lossless speculative decoding: several times faster, the same text.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (generate, chat, methods, demo, bench, calibrate, check):
    app.command()(command)
app.add_typer(datastore, name="datastore")
app.add_typer(tune, name="tune")


UsageError: Any = typer.BadParameter.__base__  # click's, wherever this typer keeps it


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if show_version:
        typer.echo(f"{NAME} {version(NAME)}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> int:
    """Runs what the command line asks for; the exit code. Raises BadOption for a command line that makes no sense."""
    try:
        return app(prog_name=NAME, standalone_mode=False) or 0
    except UsageError as error:
        hint = f"; see `{error.ctx.command_path} --help`" if error.ctx else ""  # which does not always say where
        raise BadOption(error.format_message().rstrip(".") + hint) from error
    except typer.Abort as end:  # how older versions say interrupted, where newer ones return 130
        raise KeyboardInterrupt from end
