"""The benchmark: Spec-Bench's protocol, with our drafters, transformers' generate and llama.cpp as arms.

    from specdecode.bench import Plan, run
    results = run(Plan(arms=("upstream", "plain", "ngram:k=10"), max_new_tokens=96), "folder")

Names are imported when first used, so that a peer's process can start light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .arms import Source
    from .benchmark import run
    from .questions import Question, read_questions, select
    from .runner import Plan

_HOMES = {
    "Plan": "runner",
    "Question": "questions",
    "Source": "arms",
    "read_questions": "questions",
    "run": "benchmark",
    "select": "questions",
}

__all__ = ["Plan", "Question", "Source", "read_questions", "run", "select"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)
