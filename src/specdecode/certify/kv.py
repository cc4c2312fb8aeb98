"""KV integrity: what a cache says after every kind of acceptance, against a fresh one that reads the same tokens.

Nothing of a draft kept, part of a branch, all of it, and branches that are not the first: a cache that mixes up its
nodes gives other logits from then on. The rows of a batch are of different lengths, and each accepts something else in
the same pass, step after step on the same cache. Knows models and trees; no drafter and no rule, for none can repair a
cache.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..models.lm import LM, read
from ..tree import is_chain
from ..types import Draft, Prompt, Row
from .findings import Finding, Tick
from .reference import reread, spread, tolerance

KV = "KV integrity"
CHAIN = (-1, 0, 1)
TREE = (-1, 0, 1, -1, 3, 4, 3)  # a branch of three, another one beside it, and a twig of the latter


@dataclass(frozen=True)
class Acceptance:
    """A draft's parents, and the nodes of it that are kept."""

    kind: str
    parents: tuple[int, ...]
    path: tuple[int, ...]


KINDS = (
    Acceptance("nothing", CHAIN, ()),
    Acceptance("part of a chain", CHAIN, (0, 1)),
    Acceptance("a whole chain", CHAIN, (0, 1, 2)),
    Acceptance("an empty draft", (), ()),
    Acceptance("nothing of a tree", TREE, ()),
    Acceptance("the second branch", TREE, (3, 4, 5)),
    Acceptance("a twig", TREE, (3, 6)),
    Acceptance("the first branch", TREE, (0, 1, 2)),
)
MOST = max(len(kind.path) + 1 for kind in KINDS)  # tokens that one acceptance may add


def judge_kv(differences: Mapping[str, float], most: float) -> Finding:
    """differences: by kind of acceptance, how far logits were from a fresh cache's after it (`difference`)."""
    worst = max(differences, key=lambda kind: differences[kind])
    found = f"largest difference {differences[worst]:.2g}" + (f", after {worst}" if differences[worst] else "")
    figures = {"differences": dict(differences), "tolerance": most}
    return Finding.of(KV, differences[worst] <= most, f"{found} ({len(differences)} kinds)", f"<= {most:g}", **figures)


def integrity(lm: LM, prompts: Sequence[tuple[int, ...]], tick: Tick, asked: Sequence[Acceptance] = KINDS) -> Finding:
    """Every kind of acceptance in every row, beginning with another one in each."""
    kinds = [kind for kind in asked if lm.capabilities.trees or is_chain(kind.parents)]
    fitting = [ids for ids in prompts if len(ids) + MOST * (len(kinds) + 2) + len(TREE) < lm.context]
    if not fitting:
        return Finding.not_applicable(KV, f"no prompt leaves room for it in the context of {lm.context}")
    found: dict[str, float] = {}
    compared = _Rows(lm, fitting)
    for step in range(len(kinds) + 1):  # the last step looks at what the one before it left
        chosen = [kinds[(row + step) % len(kinds)] for row in range(len(fitting))]
        for row, difference in enumerate(compared.step(chosen)):
            if step:
                before = kinds[(row + step - 1) % len(kinds)].kind
                found[before] = max(found.get(before, 0.0), difference)
        tick(KV)
    return judge_kv(found, tolerance(lm))


class _Rows:
    """A batch on one cache, and what each of its rows has kept so far: the newest token stands behind the cache."""

    def __init__(self, lm: LM, prompts: Sequence[tuple[int, ...]]) -> None:
        self._lm, self._prompts = lm, prompts
        self._kept: list[list[int]] = [[] for _ in prompts]  # after the prompt
        self._token: Callable[[], int] = lambda: int(rng.integers(lm.vocab))
        rng = np.random.default_rng(0)
        self._cache = lm.open([Prompt(ids) for ids in prompts])
        read(lm, self._cache, {row: ids[:-1] for row, ids in enumerate(prompts)})

    def step(self, chosen: Sequence[Acceptance]) -> list[float]:
        """One pass, in which row b accepts chosen[b]; how far its logits on that path are from a fresh cache's."""
        drafts = [Draft(tuple(self._token() for _ in kind.parents), kind.parents) for kind in chosen]
        newest = [(*ids, *kept)[-1] for ids, kept in zip(self._prompts, self._kept, strict=True)]
        rows = [Row.of(b, token, draft) for b, (token, draft) in enumerate(zip(newest, drafts, strict=True))]
        scores = self._lm.score(self._cache, rows)
        out = []
        for b, (kind, draft) in enumerate(zip(chosen, drafts, strict=True)):
            nodes = (0, *(node + 1 for node in kind.path))
            self._cache.keep(b, nodes)
            self._kept[b] += [*(draft.tokens[node] for node in kind.path), self._token()]
            fresh = torch.cat(list(reread(self._lm, self._prompts[b], self._kept[b])))
            out.append(difference(scores[b].logits[list(nodes)], fresh[-len(nodes) :]))
        return out


def difference(logits: Tensor, fresh: Tensor) -> float:
    """The root mean square difference between [m, V] and [m, V], of the worst row, in standard deviations of a fresh
    one. The largest difference of one logit says less: of a vocabulary's worth of roundings, one is always large."""
    apart = torch.where(logits == fresh, 0.0, (logits - fresh).double().square()).nan_to_num(nan=torch.inf)
    return max(math.sqrt(float(row.mean())) / spread(line) for row, line in zip(apart, fresh, strict=True))
