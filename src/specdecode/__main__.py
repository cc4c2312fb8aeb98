"""`python -m specdecode` is the command line."""

from .cli.main import run

run()
