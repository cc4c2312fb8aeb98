"""The shape of the package: which module may know which, and a few habits that no file may take up."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "specdecode"

# Imports go from later rows to earlier ones. The units of one row are strangers to each other.
LAYERS = [
    {"errors"},
    {"files"},
    {"registry"},
    {"types"},
    {"tree"},
    {"sampling"},
    {"stages", "grammar"},
    {"constraints"},
    {"stopping"},
    {"metrics"},
    {"theory"},
    {"session"},
    {"verify", "models", "nets"},
    {"costs"},
    {"policy"},
    {"datastore"},
    {"drafters"},
    {"engine"},
    {"text"},
    {"bench", "train", "tuning", "server", "integrations"},
    {"certify"},
    {"cli"},
    {"__init__", "__main__"},
]
RANK = {unit: rank for rank, units in enumerate(LAYERS) for unit in units}
STRANGERS = {("drafters", "verify")}  # though one row is before the other: a drafter knows no verification rule
HEAVY = {"optuna", "transformers", "accelerate", "gguf", "scipy", "psutil", "rich", "typer"}  # imported where used
OF_THE_COMMAND_LINE = {"rich", "typer"}
LONGEST = 320  # lines

SOURCES = sorted(PACKAGE.rglob("*.py"))
PYTHON = [*SOURCES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "bench").rglob("*.py"))]


def unit(path: Path) -> str:
    """The row entry a source file belongs to: its top-level module or package."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(path: Path, node: ast.AST) -> list[str]:
    """The absolute names of the modules that a statement imports, and of what it takes from them."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module.split(".") if node.module else []
    if node.level:
        package = ["specdecode", *path.relative_to(PACKAGE).parts[:-1]]
        base = [*package[: len(package) - node.level + 1], *base]
    return [".".join([*base, alias.name]) for alias in node.names]


def units_known(path: Path, tree: ast.AST) -> set[str]:
    """The other units that a file imports anywhere: inside functions and for type checking too."""
    names = {name for node in ast.walk(tree) for name in imported(path, node)}
    parts = [name.split(".") for name in names]
    known = {part[1] if len(part) > 1 and part[1] in RANK else "__init__" for part in parts if part[0] == "specdecode"}
    return known - {unit(path)}


def top_level(tree: ast.Module) -> Iterator[ast.AST]:
    """What runs at import: nothing inside functions, nor what is for type checkers alone."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for_checkers = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not for_checkers and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += ast.iter_child_nodes(node)


def broken_directions(path: Path, text: str) -> list[str]:
    """The imports of a file that go the wrong way."""
    here = unit(path)
    known = sorted(units_known(path, ast.parse(text)))
    wrong = [other for other in known if RANK[other] >= RANK[here] or (here, other) in STRANGERS]
    return [f"{here} must not know {other}" for other in wrong]


def heavy_imports(path: Path, text: str) -> list[str]:
    """The imports at a file's top level that belong inside functions."""
    names = {name for node in top_level(ast.parse(text)) for name in imported(path, node)}
    heavy = HEAVY - OF_THE_COMMAND_LINE if unit(path) == "cli" else HEAVY
    return sorted(name for name in names if name.split(".")[0] in heavy)


def patches(text: str) -> list[str]:
    """Assignments to attributes of imported things, by statement or by setattr."""
    tree = ast.parse(text)
    foreign = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    found = []
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "setattr":
            found.append(ast.unparse(node))
        for target in targets:
            root = target
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if root is not target and isinstance(root, ast.Name) and root.id in foreign:
                found.append(ast.unparse(node))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
class TestEverySourceFile:
    def test_is_in_the_table_and_imports_one_way(self, path: Path) -> None:
        assert unit(path) in RANK, f"{path} belongs to no row of LAYERS"
        assert broken_directions(path, path.read_text()) == []

    def test_imports_nothing_heavy_at_its_top(self, path: Path) -> None:
        assert heavy_imports(path, path.read_text()) == []

    def test_patches_nothing(self, path: Path) -> None:
        assert patches(path.read_text()) == []


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_is_long(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= LONGEST, "one idea per file?"


def test_importing_the_package_is_light() -> None:
    code = "import specdecode, sys; print(sorted({'transformers', 'accelerate', 'gguf', 'typer'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def texts() -> Iterator[Path]:
    """The files of the repository, with or without git: no caches, builds or environments."""
    for path in ROOT.rglob("*"):
        folders = path.relative_to(ROOT).parts[:-1]
        hidden = any(part.startswith(".") and part != ".ci" for part in folders)
        if path.is_file() and not hidden and not {"shared", "build", "dist", "__pycache__"} & set(folders):
            yield path


HOME_PATH = re.compile(r"(?<![\w.])/(?:work|home|root|Users|farm)/[\w.]")


def test_no_file_names_a_place_on_somebodys_machine() -> None:
    found = {str(path.relative_to(ROOT)) for path in texts() if HOME_PATH.search(path.read_text(errors="replace"))}
    assert found == set()


class TestTheRulesThemselves:
    """Each check must find what it is there to find."""

    @pytest.mark.parametrize(
        ("file", "text", "expected"),
        [
            ("tree.py", "from .types import Row", []),
            ("tree.py", "from .sampling import Noise", ["tree must not know sampling"]),
            ("tree.py", "from . import sampling", ["tree must not know sampling"]),
            ("tree.py", "from . import load", ["tree must not know __init__"]),
            ("tree.py", "import specdecode.engine", ["tree must not know engine"]),
            ("tree.py", "from specdecode.engine import step", ["tree must not know engine"]),
            ("tree.py", "def f():\n    from .engine import step", ["tree must not know engine"]),
            ("tree.py", "if TYPE_CHECKING:\n    from .engine import step", ["tree must not know engine"]),
            ("models/hf.py", "from ..verify import Rule", ["models must not know verify"]),
            ("models/hf.py", "from . import cache\nfrom .lm import LM\nfrom ..types import Row", []),
            ("drafters/lm.py", "from ..models.lm import LM", []),
            ("drafters/lm.py", "from ..verify.greedy import Greedy", ["drafters must not know verify"]),
            ("train/data/pack.py", "from ...server import app", ["train must not know server"]),
            ("cli/main.py", "from ..server import app\nimport typer", []),
        ],
    )
    def test_direction(self, file: str, text: str, expected: list[str]) -> None:
        assert broken_directions(PACKAGE / file, text) == expected

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("import transformers", ["transformers"]),
            ("from transformers import AutoConfig", ["transformers.AutoConfig"]),
            ("try:\n    import gguf\nexcept ImportError:\n    pass", ["gguf"]),
            ("class A:\n    import rich.console", ["rich.console"]),
            ("def f():\n    import transformers", []),
            ("class A:\n    def f(self):\n        import transformers", []),
            ("if TYPE_CHECKING:\n    from transformers import AutoConfig", []),
            ("import torch", []),
        ],
    )
    def test_weight(self, text: str, expected: list[str]) -> None:
        assert heavy_imports(PACKAGE / "engine.py", text) == expected

    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ("import torch\ntorch.backends.flag = 1", 1),
            ("from transformers import Llama\nLlama.forward = f", 1),
            ("from transformers import Llama as L\nL.layers[0].forward = f", 1),
            ("import torch\ntorch.table['key'] += 1", 1),
            ("setattr(model, 'forward', f)", 1),
            ("self.value = 1\nrow.x = torch.ones(1)\nd['k'] = 1", 0),
        ],
    )
    def test_patching(self, text: str, count: int) -> None:
        assert len(patches(text)) == count

    @pytest.mark.parametrize(
        "text", ["see /wo" + "rk/main", "'/ho" + "me/ann/x'", "=/ro" + "ot/.cache", "(/Us" + "ers/bo)"]
    )
    def test_places(self, text: str) -> None:
        assert HOME_PATH.search(text)

    @pytest.mark.parametrize("text", ["src/work/x", "~/.cache", "https://a.b/home/x", "draft/work", "/usr/bin/env"])
    def test_other_paths(self, text: str) -> None:
        assert not HOME_PATH.search(text)
