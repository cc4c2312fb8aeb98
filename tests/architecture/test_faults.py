"""Every row of the list of public fault reports is a named test, or waits on docs/structure.md with its reason."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]

APPLY: dict[str, set[int]] = {
    "01 greedy parity": {1, 2, 3, 4, 5, 7},
    "02 sampling distribution": {9, 10, 11, 13, 15, 17, 19, 20, 21},
    "03 logits processors": {22, 23, 26, 27, 28, 29},
    "04 constraints": {31, 32, 34},
    "05 end of sequence": {36, 38, 39},
    "06 stop strings": {41, 42, 44},
    "07 length limits": {45, 47, 49},
    "08 context limits": {50, 53},
    "09 vocabularies": {54, 55},
    "10 cache and state": {61, 62, 63, 65, 66},
    "11 batches": {68, 69},
    "12 numerics": {72, 74},
    "13 seeds and temperature": {77, 78, 80, 81, 82},
    "14 empty drafts": {84, 85, 86},
    "15 streaming": {89, 90},
    "16 log-probabilities": {92, 94},
    "18 speed and memory": {101, 104},
    "19 model families": {110},
    "20 trees": {111, 112, 114},
    "23 metrics": {129, 130, 132, 133, 135, 136},
    "24 command line and API": {138, 139, 141},
}
"""The rows that speak of parts which exist. A row moves here from the page when its part is added."""
ROWS = 95
NUMBERS = r"(\d+(?:(?:, | and )\d+)*)"


def numbers(text: str) -> set[int]:
    return {int(number) for number in re.findall(r"\d+", text)}


def rows_tested() -> set[int]:
    """Rows named by a test: its docstring begins "Fault 13: ..." or "Faults 1, 2 and 63: ...\"."""
    rows: set[int] = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                named = re.match(rf"Faults? {NUMBERS}\b", ast.get_docstring(node) or "")
                rows |= numbers(named[1]) if named else set()
    return rows


def waiting() -> set[int]:
    """Rows of the page: lines such as "- 52, 71: reason"."""
    page = (ROOT / "docs" / "structure.md").read_text(encoding="utf-8")
    section = page.partition("## Fault cases not yet applicable\n")[2].partition("\n## ")[0]
    return set().union(*(numbers(line) for line in re.findall(rf"^- {NUMBERS}: \S", section, re.MULTILINE)))


def applying() -> set[int]:
    return set().union(*APPLY.values())


def test_every_row_that_applies_is_a_named_test() -> None:
    assert applying() - rows_tested() == set()


def test_no_row_applies_and_waits() -> None:
    assert applying() & waiting() == set()


def test_no_row_is_forgotten() -> None:
    assert len(applying() | waiting()) == ROWS
