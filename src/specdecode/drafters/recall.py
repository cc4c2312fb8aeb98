"""A search in a sorted text as a source of continuations: what followed the places that match, grouped by length.

Shared by `rest`, whose text is a datastore, and `suffix`, whose text is earlier answers. Knows no session.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..datastore import SuffixArray
from ..types import Budget
from .continuations import Level, Places

LEAST = 2  # tokens of a match
SAMPLE = 32  # places of a match that are looked at, evenly spread
REACH = 16  # tokens of a continuation

Continuation = tuple[tuple[int, ...], float]  # a continuation, and how often it occurred
# How many tokens of the continuations were taken, and by length of the match those that go on from there.
Place = tuple[int, list[tuple[int, list[Continuation]]]]


def recall(array: SuffixArray, context: Sequence[int], budget: Budget) -> Places:
    """Where to go on from after a context, or nowhere."""
    matches, reach = array.matches(context, LEAST, SAMPLE), min(budget.longest, REACH)
    if not matches or reach < 1:
        return {}
    groups = []
    for length, found in matches:
        sample = found[:: -(-len(found) // SAMPLE)]
        scale = len(found) / len(sample)
        rows = Counter(map(tuple, array.after(sample, reach)))
        groups.append((length, [(row, scale * number) for row, number in rows.items()]))
    return {levels: (0, groups)}


def levels(place: Place) -> list[Level[Place]]:
    """What followed, by length of the match. The places behind a token keep the shorter matches too."""
    done, groups = place
    if done == len(groups[0][1][0][0]):  # all continuations are equally long, and end here
        return []
    by_token = []
    for length, rows in groups:
        split: dict[int, list[Continuation]] = {}
        for row in rows:
            split.setdefault(row[0][done], []).append(row)
        by_token.append((length, split))
    out: list[Level[Place]] = []
    for i, (length, split) in enumerate(by_token):
        followers = []
        for token, rows in split.items():
            behind = [(n + 1, other[token]) for n, other in by_token[i:] if token in other]
            followers.append((token, sum(number for _, number in rows), (done + 1, behind)))
        out.append((length, sum(count for _, count, _ in followers), followers))
    return out
