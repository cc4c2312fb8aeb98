"""Several drafters at once: their drafts as one tree, in which what they agree on stands once.

`merge` and `view` serve every drafter that is made of others. They know trees and laws, and no drafter's ways.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from ..errors import BadOption, shown
from ..models.lm import LM, Cache, check_trees
from ..session import Session
from ..types import EMPTY, Budget, Draft, Scores, Verdict
from . import Drafter, Drafting


@dataclass(frozen=True)
class Merged:
    """sources: the drafters to unite. Those before have the first claim on the budget's nodes.

    Whatever they propose is drafted; what is worth its time is a question for `auto`. Raises BadOption for sources that
    are no drafters, or none at all."""

    sources: tuple[Drafter, ...]

    name = "merged"

    def __post_init__(self) -> None:
        check_sources(self.name, self.sources)

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> Uniting:
        return Uniting(begin_all(self.name, self.sources, sessions, target, cache))


class Uniting:
    """The drafters at work, and what each of them proposed in the step that is not yet observed."""

    def __init__(self, sources: Sequence[Drafting]) -> None:
        self.taps = taps_of(sources)
        self._sources = list(sources)
        self._open: dict[int, Union] = {}

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        left = [budget.nodes for budget in budgets]
        proposed: list[list[Draft]] = [[] for _ in rows]
        for source in self._sources:
            asked = [Budget(budget.depth, nodes) for budget, nodes in zip(budgets, left, strict=True)]
            for i, draft in enumerate(source.draft(rows, asked)):
                proposed[i].append(draft)
                left[i] -= len(draft)
        self._open |= {row: merge(drafts) for row, drafts in zip(rows, proposed, strict=True)}
        return [self._open[row].draft for row in rows]

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        union = scored(self._open.pop(row), draft)
        for source, own, places in zip(self._sources, union.drafts, union.places, strict=True):
            source.observe(row, *view(own, places, draft, verdict, scores))

    def release(self, row: int) -> None:
        for source in self._sources:
            source.release(row)


def check_sources(name: str, sources: object) -> None:
    """Raises BadOption unless `sources`, an option of the drafter `name`, are drafters, one at least."""
    if not isinstance(sources, tuple) or not sources:
        raise BadOption(f"drafter {name!r}: sources={shown(sources)} is no tuple of drafters; give one")
    for source in sources:
        if isinstance(source, type) or not isinstance(source, Drafter):
            raise BadOption(f"drafter {name!r}: the source {shown(source)} is no drafter; make one with make_drafter")


def begin_all(
    name: str, sources: Sequence[Drafter], sessions: Sequence[Session], target: LM, cache: Cache
) -> list[Drafting]:
    """Each source at work. Raises Incompatible, beside what they refuse, where several cannot stand in one draft."""
    if len(sources) > 1:
        check_trees(target, name, "give it a single source")
    return [source.begin(sessions, target, cache) for source in sources]


def taps_of(sources: Sequence[Drafting]) -> tuple[int, ...]:
    """The layers that any of them wants to see."""
    return tuple(sorted({layer for source in sources for layer in source.taps}))


@dataclass(frozen=True, eq=False)
class Union:
    """draft: one tree of all `drafts`; places: for each of them, where its nodes stand in it, -1 if they do not."""

    draft: Draft
    drafts: Sequence[Draft]
    places: Sequence[Sequence[int]]


def merge(drafts: Sequence[Draft]) -> Union:
    """One tree in which no path is twice, but for drawn ones.

    Exact under every rule because what becomes of a drawn node never depends on which token it is: it is kept, though
    it equal another. Drafts that were drawn come first, and a chosen node that equals one before it among its siblings
    is that one. Under rejection (verify/rejection.py) each child is tried with what its elder siblings left of the
    law, so it may depend on them, and they may not on it. Siblings drawn with replacement and without do not mix: of
    such drafts the first decides, and the others are left out.

    States stay with a draft that is the only one and the last source's: only those are sure to stand in the cache."""
    if len(drafts) == 1:
        return Union(drafts[0], drafts, (range(len(drafts[0])),))
    some = [draft for draft in drafts if draft.tokens]
    if len(some) <= 1:
        alone = some[0] if some else EMPTY
        if alone.entry and alone is not drafts[-1]:  # who drafts later may have run the target's layers over its states
            alone = replace(alone, hidden=None, entry=0)
        return Union(alone, drafts, [range(len(draft)) for draft in drafts])
    places: list[list[int]] = [[-1] * len(draft) for draft in drafts]
    tree = _Tree()
    for i in sorted(range(len(drafts)), key=lambda i: drafts[i].is_chosen):
        if tree.takes(drafts[i]):
            tree.add(drafts[i], places[i])
    return Union(tree.draft(), drafts, places)


class _Tree:
    """A draft while it grows."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._parents: list[int] = []
        self._candidate: list[bool] = []
        self._laws: list[Tensor | None] = []
        self._embeds: dict[int, Tensor] = {}
        self._replacement: bool | None = None
        self._nodes: dict[tuple[int, int], int] = {}  # (parent, token) -> the first candidate there

    def takes(self, draft: Draft) -> bool:
        return draft.is_chosen or self._replacement in (None, draft.replacement)

    def add(self, draft: Draft, places: list[int]) -> None:
        """Fills in the places of the draft's nodes."""
        if not draft.is_chosen:
            self._replacement = draft.replacement
        for node, (token, above) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
            parent = places[above] if above >= 0 else -1
            candidate, law = draft.is_candidate(node), draft.law(node)
            equal = self._nodes.get((parent, token)) if candidate and law is None else None
            places[node] = self._append(token, parent, candidate, law) if equal is None else equal
            if node in draft.embeds:
                self._embeds[places[node]] = draft.embeds[node]

    def _append(self, token: int, parent: int, candidate: bool, law: Tensor | None) -> int:
        node = len(self._tokens)
        self._tokens.append(token)
        self._parents.append(parent)
        self._candidate.append(candidate)
        self._laws.append(law)
        if candidate:
            self._nodes.setdefault((parent, token), node)
        return node

    def draft(self) -> Draft:
        return Draft(
            tuple(self._tokens),
            tuple(self._parents),
            candidate=None if all(self._candidate) else tuple(self._candidate),
            q=None if all(law is None for law in self._laws) else tuple(self._laws),
            embeds=self._embeds,
            replacement=bool(self._replacement),
        )


def take(draft: Draft, nodes: Sequence[int]) -> Draft:
    """The draft of `nodes` alone, in this order. The parent of each is among them, and before it. States are kept where
    these are its beginning: else the layers below have run them in another order."""
    if not nodes:
        return EMPTY
    if len(nodes) == len(draft) and list(nodes) == list(range(len(draft))):
        return draft
    place = {node: i for i, node in enumerate(nodes)}
    begins = draft.hidden is not None and all(node == i for i, node in enumerate(nodes))
    hidden = draft.hidden[: len(nodes) + 1] if begins and draft.hidden is not None else None
    return Draft(
        tuple([draft.tokens[node] for node in nodes]),
        tuple([place[draft.parents[node]] if draft.parents[node] >= 0 else -1 for node in nodes]),
        candidate=None if draft.candidate is None else tuple(draft.candidate[node] for node in nodes),
        q=None if draft.q is None else tuple(draft.q[node] for node in nodes),
        embeds={place[node]: vector for node, vector in draft.embeds.items() if node in place},
        replacement=draft.replacement,
        hidden=hidden,
        entry=0 if hidden is None else draft.entry,
    )


def cut(union: Union, nodes: Sequence[int]) -> Union:
    """The union of what `nodes`, in order, leave of each draft."""
    if len(nodes) == len(union.draft):
        return union
    place = {node: i for i, node in enumerate(nodes)}
    places = [[place.get(node, -1) for node in own] for own in union.places]
    return Union(take(union.draft, nodes), union.drafts, places)


def scored(union: Union, draft: Draft) -> Union:
    """What of a union that was proposed stands in the `draft` that was scored: all of it, at its beginning; or nothing,
    where a drafter that unites in turn has left it out."""
    mine, n = union.draft, len(union.draft)
    if draft.tokens[:n] == mine.tokens and draft.parents[:n] == mine.parents:
        return union
    return Union(draft, union.drafts, [[-1] * len(own) for own in union.drafts])


def view(
    own: Draft, places: Sequence[int], draft: Draft, verdict: Verdict, scores: Scores
) -> tuple[Draft, Verdict, Scores]:
    """A step as one of several sources is to see it: those of its own nodes that were scored, in its order, and behind
    them what else was accepted.

    own: what the source proposed, and `places` where it stands in the `draft` that was scored, -1 if it does not."""
    if not draft.tokens:
        return draft, verdict, scores
    order = list(dict.fromkeys(place for place in places if place >= 0))
    mine = set(order)
    order += [node for node in verdict.path if node not in mine]
    if len(order) == len(draft) and order == list(range(len(draft))):
        return (own if len(own) == len(draft) else draft), verdict, scores
    place = {node: i for i, node in enumerate(order)}
    rows = [0, *(node + 1 for node in order)]
    return (
        take(draft, order),
        replace(verdict, path=tuple(place[node] for node in verdict.path)),
        Scores(scores.logits[rows], {layer: hidden[rows] for layer, hidden in scores.taps.items()}),
    )
