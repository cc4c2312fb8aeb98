"""Models and drafters that certificates are made of, sound ones and broken ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stubs import BranchLM, StubCache, StubLM, stub
from texts import TOKENIZER, VOCAB
from torch import Tensor

import specdecode as sd
from specdecode.certify import Counts
from specdecode.certify.subject import Subject
from specdecode.drafters import Drafter
from specdecode.models.lm import LM
from specdecode.text.request import Request
from specdecode.types import Draft, Prompt

Wrong = Callable[[list[int], int], list[int]]

FEW = Counts(prompts=2, seeds=2, answers=8, places=2, draws=96, rows=2)
WARM = sd.Sampling(temperature=1.0, seed=1)
PROMPTS = [(10, 20, 30, 10, 20), (7, 8, 9, 10, 11, 7, 8)]


def quiet(what: str) -> None:
    """A tick that nobody hears."""


def model(lm: LM | None = None) -> sd.Model:
    """A random law, sharp enough for some tokens to be drawn often."""
    return sd.Model(lm or BranchLM(VOCAB, seed=1, scale=3.0), TOKENIZER)


def subject(lm: LM | None = None, **options: Any) -> Subject:
    given = {"drafter": "ngram", "rule": "rejection", "sampling": WARM, "max_new_tokens": 24, **options}
    return Subject.of(model(lm), Request.of(**given))


def soft(lm: StubLM) -> StubLM:
    """A small model that is often right: the same law, flatter."""
    return StubLM(lambda prefix, index: 0.5 * lm.law(prefix, index), lm.vocab)


def second_best(lm: StubLM) -> StubLM:
    """A small model that puts the right token second."""

    def law(prefix: tuple[int, ...], index: int) -> Tensor:
        logits = lm.law(prefix, index).clone()
        best = logits.topk(2).indices
        logits[best] = logits[best.flip(0)]
        return logits

    return StubLM(law, lm.vocab)


def wrong_q(small: StubLM) -> Drafter:
    """Drafts the likeliest token but reports the law it was not drawn from."""

    def propose(row: int, turn: int, session: Any, budget: Any) -> Draft:
        if budget.depth < 1:
            return Draft()
        q = small.law(tuple(session.tokens), 0)
        return Draft.chain([int(q.argmax())], [q])

    return stub(propose)


class BrokenCache(StubCache):
    """Commits other nodes than it is told. wrong: (path, number of nodes) -> those that it commits."""

    def __init__(self, prompts: Sequence[Prompt], wrong: Wrong) -> None:
        super().__init__(prompts)
        self._wrong = wrong

    def keep(self, row: int, path: Sequence[int]) -> None:
        state = self._live(row)
        kept = [state.nodes[node] for node in self._wrong(list(path), len(state.nodes))]
        super().keep(row, ())
        state.tokens += kept


class BrokenLM(StubLM):
    """`lm` with such a cache."""

    def __init__(self, lm: StubLM, wrong: Wrong) -> None:
        super().__init__(lm.law, lm.vocab, lm.context)
        self._wrong = wrong

    def open(self, prompts: Sequence[Prompt]) -> StubCache:
        super().open(prompts)
        return BrokenCache(prompts, self._wrong)


def first_nodes(path: list[int], nodes: int) -> list[int]:
    """As many as it should, but the first ones: wrong for every branch that is not the first."""
    return list(range(len(path)))


def all_nodes(path: list[int], nodes: int) -> list[int]:
    """Rejected ones too."""
    return list(range(nodes))


def one_less(path: list[int], nodes: int) -> list[int]:
    """The last accepted node is lost, where one was."""
    return path[:-1] if len(path) > 1 else path
