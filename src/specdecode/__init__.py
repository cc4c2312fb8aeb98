"""specdecode: lossless speculative decoding. `import specdecode as sd`, then `sd.load().generate("...").text`.

Names are imported when first used, so importing the package costs nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .drafters import DRAFTERS, make_drafter
    from .errors import SpecError
    from .grammar import Grammar
    from .sampling import Sampling
    from .text.completion import Completion, Piece
    from .text.load import draft_model, load
    from .text.model import Model
    from .text.request import Limits
    from .verify import RULES, make_rule

# Threads that spin while they wait keep the cores from those that work: torch's, after each of its operations, from a
# pass of the dense runtime; anybody's on a busy machine. It is read when torch is imported: whoever does that decides.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_HOMES = {
    "load": "text.load",
    "draft_model": "text.load",
    "Model": "text.model",
    "Sampling": "sampling",
    "Limits": "text.request",
    "Completion": "text.completion",
    "Piece": "text.completion",
    "make_drafter": "drafters",
    "make_rule": "verify",
    "DRAFTERS": "drafters",
    "RULES": "verify",
    "SpecError": "errors",
    "Grammar": "grammar",
}

__all__ = [
    "DRAFTERS",
    "RULES",
    "Completion",
    "Grammar",
    "Limits",
    "Model",
    "Piece",
    "Sampling",
    "SpecError",
    "draft_model",
    "load",
    "make_drafter",
    "make_rule",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
