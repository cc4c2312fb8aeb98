"""The methods that every parity and law test runs: all drafters and lossless rules of the tables, and trees.

A new row of a table is enrolled by itself. A drafter that needs an option to be built finds it in NEEDS or fails its
tests.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

from stubs import decode

from specdecode import costs
from specdecode.costs import Curve
from specdecode.datastore import Store
from specdecode.drafters import DRAFTERS, Drafter, make_drafter
from specdecode.verify import RULES, make_rule

NEEDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "lm": lambda small: {"lm": small},
    "merged": lambda small: {"sources": (make_drafter("ngram"), make_drafter("lm", lm=small))},
    "auto": lambda small: _of_known_cost(small),
    "suffix": lambda small: {"floor": 0.0},
    "rest": lambda small: {"floor": 0.0, "store": _texts_of(small)},
}
"""Options with which a drafter of the table has all it can use, made from a small model of the target's vocabulary."""


def _of_known_cost(small: Any) -> dict[str, Any]:
    """The drafter auto with passes that take as long on every machine: a row more costs a hundredth, a pass of `small`
    a tenth, whatever a clock says."""
    costs.remember(small, Curve((1,), (0,), ((0.1,),)))
    return {
        "sources": ("ngram", make_drafter("lm", lm=small)),
        "curve": lambda rows, context: 1 + rows / 100,
        "clock": lambda: 0.0,
    }


@cache
def _texts_of(small: Any) -> Store:
    """What `small` says after each token, and noise, which pairs of any tokens are found in where there are few."""
    said = decode(small, make_drafter("null"), *([token] for token in range(min(small.vocab, 100))), n=24)
    getattr(small, "passes", []).clear()  # a stub's record is for the test
    return Store.of([random.Random(0).choices(range(small.vocab), k=4000), *(session.tokens for session in said)])


TREES: dict[str, dict[str, Any]] = {
    "lm: tree of drawn siblings": {"tree": "2x2"},
    "lm: tree of siblings drawn with replacement": {"tree": "3x1", "replacement": True},
    "lm: dynamic tree": {"tree": "dynamic:nodes=6:depth=3:top=2"},
    "lm: optimal tree": {"tree": "optimal:nodes=5:depth=3"},
    "lm: cascade": {"ahead": "ngram"},
}
"""The shapes of a draft model's drafts."""

METHODS = [*DRAFTERS, *TREES]
SELF = ["layer_skip", "early_exit", "ppd"]
"""Those that run the target's own layers to draft."""
LOSSLESS = [name for name, rule in RULES.items() if rule.lossless]
SAMPLED = [name for name in LOSSLESS if name != "greedy"]
ONE_TEXT = [name for name in LOSSLESS if name == "greedy" or make_rule(name).keyed]
"""Rules that promise the text of plain decoding for each seed, and not its law alone."""


def build(method: str, small: Any, **options: Any) -> Drafter:
    """The drafter of a method, with `small` as its model where it needs one."""
    if method in TREES:
        return make_drafter("lm", lm=small, **TREES[method])
    return make_drafter(method, **{**NEEDS.get(method, lambda _: {})(small), **options})
