"""LMs without a network, whose laws are written down, and a log of what any LM is asked."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from specdecode.models.lm import LM, Cache, Capabilities
from specdecode.tree import depths
from specdecode.types import Prompt, Row, Scores, Sublayers

Law = Callable[[tuple[int, ...], int], Tensor]


@dataclass(frozen=True)
class Pass:
    """One score call: the cache rows it ran, the tokens of each, and the absolute position of each token."""

    rows: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]
    positions: tuple[tuple[int, ...], ...]

    @property
    def nodes(self) -> int:
        return sum(map(len, self.tokens))


@dataclass(eq=False)
class _StubRow:
    tokens: list[int]
    prompt_length: int
    nodes: list[int] = field(default_factory=list)  # uncommitted tokens, and the parent of each
    parents: list[int] = field(default_factory=list)
    released: bool = False

    def prefix(self, node: int) -> tuple[int, ...]:
        """All tokens up to and including an uncommitted node."""
        path = []
        while node >= 0:
            path.append(self.nodes[node])
            node = self.parents[node]
        return (*self.tokens, *reversed(path))


class StubCache:
    """models.lm.Cache over plain token lists: what a row holds can be read from `rows[b].tokens`."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        self.rows = [_StubRow([], len(prompt.ids)) for prompt in prompts]

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(len(row.tokens) for row in self.rows)

    def keep(self, row: int, path: Sequence[int]) -> None:
        state, path = self._live(row), list(path)
        links = [-1, *path]
        assert all(state.parents[node] == parent for parent, node in zip(links, path, strict=False)), (
            f"{path} is no path from the root of row {row}: {state.parents}"
        )
        state.tokens += [state.nodes[node] for node in path]
        state.nodes, state.parents = [], []

    def release(self, row: int) -> None:
        self._live(row).released = True

    def _live(self, row: int) -> _StubRow:
        assert not self.rows[row].released, f"row {row} was released"
        return self.rows[row]


class StubLM:
    """models.lm.LM whose law is a function of the whole prefix. It asserts what every caller of a model owes it and
    logs what it was asked: `passes` (of `score`), `opened` (a list of prompt lengths for each `open`), `caches`.

    law: (prefix with the newest token, index of the new token to decide, 0 for the first) -> [V] raw logits.

    Of its layers it knows that all are needed: with any part left out, it wants what it wants least in one context of
    three. A hidden state is the checksum of its node's prefix and the layer it left; who resumes must bring the right
    ones, and the nodes as they were run before."""

    n_layers = 4
    signature = ""
    capabilities = Capabilities(embeds=False)

    def __init__(self, law: Law, vocab: int, context: int = 1 << 20) -> None:
        self.law, self.vocab, self.context = law, vocab, context
        self.passes: list[Pass] = []
        self.reads: list[Pass] = []
        self.opened: list[list[int]] = []
        self.caches: list[StubCache] = []

    def open(self, prompts: Sequence[Prompt]) -> StubCache:
        for prompt in prompts:
            assert 0 < len(prompt.ids) < self.context, f"a prompt of {len(prompt.ids)} tokens, context {self.context}"
            assert all(0 <= i < self.vocab for i in prompt.ids), f"{prompt.ids} leaves the vocabulary of {self.vocab}"
        self.opened.append([len(prompt.ids) for prompt in prompts])
        self.caches.append(StubCache(prompts))
        return self.caches[-1]

    def score(
        self,
        cache: StubCache,
        rows: Sequence[Row],
        *,
        taps: Sequence[int] = (),
        layers: Sequence[int] | Sublayers | None = None,
        logits: bool = True,
    ) -> list[Scores]:
        assert rows, "a pass over no rows"
        assert len({row.index for row in rows}) == len(rows), "a pass takes each row once"
        whole = Sublayers.of(range(self.n_layers))
        run = whole if layers is None else Sublayers.of(layers)
        assert set(taps) <= set(run.layers), f"layers {taps} are to be tapped, but {run} run"
        positions = tuple(self._write(cache, row, run) for row in rows)
        indices, tokens = tuple(row.index for row in rows), tuple(row.tokens for row in rows)
        (self.passes if logits else self.reads).append(Pass(indices, tokens, positions))
        law = self.law if run == whole or rows[0].hidden is not None else self._shallow
        return [self._scores(cache.rows[row.index], row, law if logits else None, taps) for row in rows]

    def forget(self) -> None:
        """Drop the log."""
        for log in (self.passes, self.reads, self.opened, self.caches):
            log.clear()

    def _shallow(self, prefix: tuple[int, ...], index: int) -> Tensor:
        logits = self.law(prefix, index)
        return -logits if sum(prefix) % 3 == 0 else logits

    def _write(self, cache: StubCache, row: Row, run: Sublayers) -> tuple[int, ...]:
        """Put the nodes behind the prefix; returns their positions."""
        state = cache._live(row.index)
        assert len(row.tokens) == len(row.parents) > 0, f"a row needs nodes, with a parent each: {row}"
        assert not row.embeds, "this stub reads tokens only"
        assert row.start <= len(state.nodes), f"only {len(state.nodes)} nodes stand behind row {row.index}"
        assert all(-1 <= p < row.start + i for i, p in enumerate(row.parents)), f"a parent comes first: {row}"
        assert all(0 <= t < self.vocab for t in row.tokens), f"{row.tokens} leaves the vocabulary of {self.vocab}"
        if row.hidden is not None:
            entry, now = self.n_layers - len(run.layers), (row.start, row.start + len(row.tokens))
            assert run == Sublayers.of(range(entry, self.n_layers)), f"{run} is not the rest of the layers"
            ran = tuple(state.nodes[slice(*now)]), tuple(state.parents[slice(*now)])
            assert ran == (row.tokens, row.parents), f"the layers below were run for {ran}, and now come {row}"
            assert torch.equal(row.hidden, self._states(state, row, entry - 1)), (
                f"these states did not leave {entry - 1}"
            )
        state.nodes[row.start :], state.parents[row.start :] = row.tokens, row.parents
        positions = tuple(len(state.tokens) + d for d in depths(state.parents)[row.start :])
        assert max(positions) < self.context, f"position {max(positions)} leaves the context of {self.context}"
        return positions

    def _scores(self, state: _StubRow, row: Row, law: Law | None, taps: Sequence[int]) -> Scores:
        logits = torch.empty(0, self.vocab)
        if law is not None:
            prefixes = [state.prefix(row.start + i) for i in range(len(row.tokens))]
            logits = torch.stack([law(prefix, len(prefix) - state.prompt_length) for prefix in prefixes])
        return Scores(logits, {layer: self._states(state, row, layer) for layer in taps})

    def _states(self, state: _StubRow, row: Row, layer: int) -> Tensor:
        """[m, 2]"""
        prefixes = [state.prefix(row.start + i) for i in range(len(row.tokens))]
        return torch.tensor([[zlib.crc32(repr(prefix).encode()) % 65536, layer] for prefix in prefixes]).float()


def point_mass(token: int, width: int) -> Tensor:
    """[V] logits of the law that always gives `token`."""
    return torch.full((width,), float("-inf")).index_fill(0, torch.tensor([token]), 0.0)


class ScriptLM(StubLM):
    """SCRIPT: wants script[i] as new token i, whatever came before: logit 10 for it, 0 for the rest. Past the script it
    wants `filler`."""

    def __init__(self, script: Sequence[int], vocab: int = 97, *, filler: int = 0, context: int = 1 << 20) -> None:
        self.script = tuple(script)
        wanted = 10 * torch.eye(vocab)
        super().__init__(lambda _, i: wanted[self.script[i] if i < len(self.script) else filler], vocab, context)


class DistLM(StubLM):
    """DIST: the law p at every position."""

    def __init__(self, p: Sequence[float], *, context: int = 1 << 20) -> None:
        logits = torch.tensor(p, dtype=torch.float64).log().float()
        super().__init__(lambda *_: logits, len(p), context)


class BranchLM(StubLM):
    """A random law that depends on the whole prefix, so that any mistake about prefix, path or position shows. Laws of
    two seeds differ; `scale` says how far from uniform they are."""

    def __init__(self, vocab: int = 5, seed: int = 0, *, scale: float = 1.5, context: int = 1 << 20) -> None:
        known: dict[tuple[int, ...], Tensor] = {}

        def law(prefix: tuple[int, ...], _: int) -> Tensor:
            if prefix not in known:
                key = torch.Generator().manual_seed(zlib.crc32(repr((seed, *prefix)).encode()))
                known[prefix] = scale * torch.randn(vocab, generator=key)
            return known[prefix]

        super().__init__(law, vocab, context)


def torn(lm: StubLM, share: int = 3) -> StubLM:
    """A model that agrees with `lm` in all contexts but one in `share`, where it wants what `lm` wants least."""

    def law(prefix: tuple[int, ...], index: int) -> Tensor:
        logits = lm.law(prefix, index)
        return -logits if sum(prefix) % share == 0 else logits

    return StubLM(law, lm.vocab, lm.context)


class Spy:
    """Any LM, with its passes logged as StubLM logs them."""

    def __init__(self, lm: LM) -> None:
        self.lm = lm
        self.vocab, self.context, self.n_layers, self.capabilities = lm.vocab, lm.context, lm.n_layers, lm.capabilities
        self.signature = lm.signature
        self.passes: list[Pass] = []
        self.reads: list[Pass] = []
        self.opened: list[list[int]] = []
        self._trees: dict[tuple[int, int], tuple[int, ...]] = {}

    def open(self, prompts: Sequence[Prompt]) -> Cache:
        self.opened.append([len(prompt.ids) for prompt in prompts])
        return self.lm.open(prompts)

    def score(self, cache: Cache, rows: Sequence[Row], *, logits: bool = True, **options: Any) -> list[Scores]:
        positions = []
        for row in rows:
            tree = (*self._trees.get((id(cache), row.index), ())[: row.start], *row.parents)
            self._trees[id(cache), row.index] = tree
            positions.append(tuple(cache.lengths[row.index] + d for d in depths(tree)[row.start :]))
        indices, tokens = tuple(row.index for row in rows), tuple(row.tokens for row in rows)
        (self.passes if logits else self.reads).append(Pass(indices, tokens, tuple(positions)))
        return self.lm.score(cache, rows, logits=logits, **options)
