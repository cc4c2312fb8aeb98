"""The certificate: whether a model, a drafter and a rule keep their promises on this machine, and by how much.

    from specdecode.certify import check
    certificate = check(model, "ngram", rule="rejection")
    assert certificate.passed

Each test is a file: a judge, pure and on numbers alone, and what collects the numbers. Knows nothing of how a pass is
run or a token drawn, and takes nobody's word for it: the law that texts are judged by comes from caches that never saw
a draft (`reference`). Names are imported when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .certificate import DEFAULT_COUNTS, THOROUGH, Counts, check, judge
    from .findings import Certificate, Finding
    from .outputs import Line, read_outputs

_HOMES = {
    "Certificate": "findings",
    "Counts": "certificate",
    "DEFAULT_COUNTS": "certificate",
    "Finding": "findings",
    "Line": "outputs",
    "THOROUGH": "certificate",
    "check": "certificate",
    "judge": "certificate",
    "read_outputs": "outputs",
}

__all__ = ["DEFAULT_COUNTS", "THOROUGH", "Certificate", "Counts", "Finding", "Line", "check", "judge", "read_outputs"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
