"""A whole benchmark: measure what is left of a plan, then write its results and its report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..errors import WriteError
from ..files import write_whole
from .records import RECORDS
from .report import page
from .runner import Plan, Watch, measure
from .summary import results

RESULTS, REPORT = "results.json", "report.html"


def run(plan: Plan, folder: Path | str, watch: Watch = lambda done, total, what: None) -> dict[str, Any]:
    """Carry out `plan` in `folder`, going on where an earlier run with the same settings was interrupted. Returns the
    results, which are written to RESULTS and drawn in REPORT there.

    watch: told (answers done, answers in all, what is being done). Raises a SpecError for what cannot be honoured, and
    WriteError where the report cannot be written; the answers are kept then."""
    folder = Path(folder)
    found = results(plan.settings(), plan.questions, measure(plan, folder, watch))
    try:
        write_whole(folder / RESULTS, json.dumps(found, indent=1))
        write_whole(folder / REPORT, page(found))
    except OSError as error:
        raise WriteError(
            f"the report cannot be written to {folder} ({error.strerror}); the answers are kept in {folder / RECORDS}: "
            "make room and give the same command again"
        ) from error
    return found
