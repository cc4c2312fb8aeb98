"""What the nodes of a draft are worth, by what is known of their kinds, and what a verdict teaches of them.

Knows drafts and `policy.Acceptance`; no cost and no clock. A session is its row, or policy.ANY where it is alone. Like
`choosing`, this runs at every step with cold caches: loops end where nothing more is to be had.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..policy import ANY, FAINT, Acceptance
from ..theory import child_ranks
from ..tree import depths
from ..types import Draft, Verdict
from .merged import Union

LEVELS = 20  # of confidence, within which nodes are alike


def values(known: Acceptance, session: int, union: Union) -> list[float]:
    """[n] the chance of each node that it is reached and accepted. Siblings share what there is: one of them at most is
    accepted."""
    parents = union.draft.parents
    means = [0.0] * len(parents)
    for source, (own, places) in enumerate(zip(union.drafts, union.places, strict=True)):
        if own.tokens:
            for node, mean in zip(places, _means(known, session, source, own), strict=True):
                if node >= 0 and mean > means[node]:
                    means[node] = mean
    out: list[float] = []
    left = [1.0] * (len(parents) + 1)  # by parent; -1 is the last
    for mean, parent in zip(means, parents, strict=True):
        share = mean if mean < left[parent] else left[parent]
        left[parent] -= share
        out.append(share * out[parent] if parent >= 0 else share)
    return out


def _means(known: Acceptance, session: int, source: int, draft: Draft) -> list[float]:
    """[n] the chance of each node that it is accepted once its parent is, by what is known of its kind; 0 where it is
    hardly ever reached."""
    if draft.confidence is None or not draft.is_chosen:
        return _means_by_depth(known, session, source, draft)
    means: list[float] = []
    reach: list[float] = []
    for sure, parent in zip(draft.confidence, draft.parents, strict=True):
        above = reach[parent] if parent >= 0 else 1.0
        mean = known.mean((source, round(sure * LEVELS), 0), sure, session) if above > FAINT else 0.0
        means.append(mean)
        reach.append(above * mean)
    return means


def _means_by_depth(known: Acceptance, session: int, source: int, draft: Draft) -> list[float]:
    depth, rank = depths(draft.parents), child_ranks(draft.parents)
    first = known.by_depth(source, max(depth) + 1, 0, session)
    means = []
    for d, r in zip(depth, rank, strict=True):
        half = (1 - first[d]) / 2**r  # of what elder siblings leave
        means.append(known.mean((source, -1 - d, r), half, session) if r else first[d])
    return means


def learn(known: Acceptance, session: int, source: int, draft: Draft, places: Sequence[int], verdict: Verdict) -> None:
    """Which nodes were right, followed from the root as far as is known: a chosen one that was not drafted is right
    where the target says the same; a drawn one has to be accepted."""
    chosen, node = draft.is_chosen, -1
    confidence = draft.confidence if chosen else None
    for depth, token in enumerate(verdict.tokens):
        right: int | None = None
        said, rank = chosen or depth < verdict.accepted, 0
        for i, parent in enumerate(draft.parents):
            if parent == node and draft.is_candidate(i) and (chosen or places[i] >= 0):
                accepted = said and right is None and draft.tokens[i] == token
                if accepted:
                    right = i
                level = -1 - depth if confidence is None else round(confidence[i] * LEVELS)
                known.see((source, level, rank if confidence is None else 0), accepted, session)
                rank += 1
        if rank and confidence is None:
            known.see((source, -1 - depth, ANY), right is not None, session)
        if right is None:
            return
        node = right
