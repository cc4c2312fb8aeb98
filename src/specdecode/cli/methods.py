"""`specdecode methods`: the drafters and rules there are."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer


def methods(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """List the drafters and the verification rules."""
    from ..drafters import DRAFTERS
    from ..verify import RULES
    from . import show

    rows = {"drafters": list(map(_row, DRAFTERS.values())), "rules": list(map(_row, RULES.values()))}
    if as_json:
        show.document(rows)
        return
    _table("Drafters (lossless: under every lossless rule)", rows["drafters"])
    _table("Rules", rows["rules"])


def _row(entry: Any) -> dict[str, Any]:
    return {name: value for name, value in asdict(entry).items() if name not in ("factory", "needs")}


def _table(title: str, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from . import show

    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column.replace("_", " "), no_wrap=column == "name")
    for row in rows:
        table.add_row(*({True: "yes", False: "no"}.get(value, value) for value in row.values()))
    show.console().print(table)
