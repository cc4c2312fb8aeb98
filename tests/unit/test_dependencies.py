"""What the package imports is what it asks pip for."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imports(path: Path) -> set[str]:
    """The top-level packages that a file imports anywhere when it runs, ours and Python's own excepted."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(str(node.module).partition(".")[0])
    return names - sys.stdlib_module_names


def test_every_import_is_a_declared_dependency() -> None:
    listed = re.search(r"^dependencies = \[(.*?)^\]", (ROOT / "pyproject.toml").read_text(), re.S | re.M)
    assert listed is not None
    declared = {name.replace("-", "_") for name in re.findall(r'^  "([\w-]+)', listed[1], re.M)}
    imported = set[str]().union(*map(imports, (ROOT / "src").rglob("*.py")))
    extra = {"llama_cpp", "optuna"}  # of `peers` and `tune`; asked for before they are imported
    assert imported - {"typing_extensions"} - extra <= declared  # that one is for type checkers alone
