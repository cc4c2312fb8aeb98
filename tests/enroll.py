"""The methods that every parity and law test runs: all drafters and lossless rules of the tables, and stub trees.

A new row of a table is enrolled by itself. A drafter that needs an option to be built finds it in NEEDS or fails its
tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stubs import drawn_tree, top_tree

from specdecode import costs
from specdecode.costs import Curve
from specdecode.drafters import DRAFTERS, Drafter, make_drafter
from specdecode.verify import RULES, make_rule

Law = Callable[[tuple[int, ...], int], Any]

NEEDS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "lm": lambda small: {"lm": small},
    "merged": lambda small: {"sources": (make_drafter("ngram"), make_drafter("lm", lm=small))},
    "auto": lambda small: _of_known_cost(small),
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


TREES: dict[str, Callable[[Law], Drafter]] = {
    "tree of drawn siblings": lambda law: drawn_tree(law, (2, 2)),
    "tree of drawn siblings with replacement": lambda law: drawn_tree(law, (3, 1), replacement=True),
    "tree of chosen siblings": lambda law: top_tree(law, (2, 1, 2)),
}
"""Tree-shaped drafts from a given law, until the table holds drafters that make them."""

METHODS = [*DRAFTERS, *TREES]
LOSSLESS = [name for name, rule in RULES.items() if rule.lossless]
SAMPLED = [name for name in LOSSLESS if name != "greedy"]
ONE_TEXT = [name for name in LOSSLESS if name == "greedy" or make_rule(name).keyed]
"""Rules that promise the text of plain decoding for each seed, and not its law alone."""


def build(method: str, small: Any, law: Law, **options: Any) -> Drafter:
    """The drafter of a method: from the table with `small` as its model where it needs one, or a tree drawn from
    `law`."""
    if method in TREES:
        return TREES[method](law)
    return make_drafter(method, **{**NEEDS.get(method, lambda _: {})(small), **options})
