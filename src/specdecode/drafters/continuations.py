"""From what followed a text's end before to a draft: a tree that grows where the next token is likeliest.

A source tells of a place in its text what followed there, and what followed its shorter suffixes; from these counts
each token gets a probability, and the tree takes the likeliest nodes first. Knows counts; not how they were found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, TypeVar

from ..errors import check_count, check_probability
from ..types import EMPTY, Budget, Draft

P = TypeVar("P")

# (length, total, followers) of a context: how many tokens match, how often it occurred with something behind it, and
# (token, count, the place behind it) of what that was.
Level = tuple[int, float, list[tuple[int, float, P]]]
Levels = Callable[[P], list[Level[P]]]  # of a place, longest context first
Places = dict[Levels[Any], Any]  # of each source, the place to go on from

FAINT = 0.02  # what shorter contexts have to say is left out where they count for less


@dataclass(frozen=True)
class Criteria:
    """By what nodes are chosen.

    recurrence: [L] how often the token that followed a match of 1, 2, ... L tokens came again.
    vocab: tokens beyond end the text they stand in.
    floor: the least probability, from the root, of a node.
    width: the most children of a node."""

    recurrence: Sequence[float]
    vocab: int
    floor: float
    width: int


def grow(start: Places, budget: Budget, by: Criteria, ends: Collection[int] = ()) -> Draft:
    """The likeliest nodes within the budget, likeliest first, each with its probability behind its parent as confidence
    (SuffixDecoding, 2411.04975, grows its trees in this order). ends: tokens that nothing follows."""
    if not budget.longest:
        return EMPTY
    tokens: list[int] = []
    parents: list[int] = []
    confidence: list[float] = []
    heap: list[tuple[float, int, int, int, int, float, Places]] = []
    parent, depth, worth, behind, serial = -1, 0, -1.0, start, 0
    while True:
        for token, (share, places) in _children(behind, by) if depth < budget.depth else ():
            if -worth * share < by.floor:
                break
            serial += 1
            heappush(heap, (worth * share, serial, parent, depth, token, share, places))
        if not heap or len(tokens) == budget.nodes:
            break
        worth, _, above, depth, token, share, behind = heappop(heap)
        parent, depth = len(tokens), depth + 1 if token not in ends else budget.depth
        tokens.append(token)
        parents.append(above)
        confidence.append(share)
    return Draft(tuple(tokens), tuple(parents), confidence=tuple(confidence)) if tokens else EMPTY


def _children(places: Places, by: Criteria) -> list[tuple[int, tuple[float, Places]]]:
    """The likeliest tokens to follow, likeliest first: (token, (probability, the places behind it)).

    A context that occurred n times, and a token behind it c times, give it c / (n + new), as if something new had come
    `new` further times; what that leaves is for the next shorter context to say. With n = 1 it is the recurrence."""
    known = [(*level, levels) for levels, place in places.items() for level in levels(place)]
    if len(places) > 1:
        known.sort(key=lambda level: -level[0])
    found: dict[int, tuple[float, Places]] = {}
    left, longest = 1.0, len(by.recurrence)
    for length, total, followers, levels in known:
        new = 1 / by.recurrence[min(length, longest) - 1] - 1
        for token, count, place in followers:
            if token < by.vocab:
                share, behind = found.get(token) or (0.0, {})
                behind.setdefault(levels, place)
                found[token] = (share + left * count / (total + new), behind)
        left *= new / (total + new)
        if left < FAINT:
            break
    return sorted(found.items(), key=lambda child: -child[1][0])[: by.width]


def capped(budget: Budget, k: int) -> Budget:
    """The budget, of at most k nodes."""
    return Budget(min(budget.depth, k), min(budget.nodes, k))


def check_options(name: str, k: int, floor: float, width: int) -> None:
    """Raises BadOption for options of the drafter `name` that are none."""
    check_count(f"drafter {name!r}: k", k, 1)
    check_count(f"drafter {name!r}: width", width, 1)
    check_probability(f"drafter {name!r}: floor", floor)
