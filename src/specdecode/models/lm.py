"""The protocol every model meets, and what all of them do alike: check prompts, read tokens into a cache.

Knows no runtime, draft source, rule, sampling or text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..errors import BadInput, Incompatible, OutOfContext
from ..types import Prompt, Row, Scores, Sublayers

CHUNK = 1024  # tokens of a row in one pass of `read`: bounds the memory of its mask and activations


@dataclass(frozen=True)
class Capabilities:
    """What a model can do beyond scoring rows. Asked before a method relies on it; never guessed."""

    trees: bool = True  # rows with branches (a mask of ancestors)
    embeds: bool = True  # nodes with their own input embeddings
    taps: bool = True  # hidden states after chosen layers
    layers: bool = True  # a subset of the stack on the same cache, and resuming from hidden states
    sublayers: bool = True  # parts of layers, too


class Cache(Protocol):
    """Keys and values of a batch of sessions, and how far each is committed."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """[B] committed tokens of each row."""
        ...

    def keep(self, row: int, path: Sequence[int]) -> None:
        """Commit the uncommitted nodes `path` of `row` (indices as in Row.parents, root to leaf; the usual path starts
        with 0, the newest token). Everything else behind the committed prefix is dropped. The only verb that
        commits."""
        ...

    def release(self, row: int) -> None:
        """The session of `row` has ended; its memory may be reused and it is never scored again."""
        ...


class LM(Protocol):
    """A model that scores rows against a cache.

    vocab:   V, the number of ids that may be drafted or emitted (padding of the embedding is cut off).
    context: the most tokens a session may hold.
    signature: what a pass costs depends on beside the machine, in words: runtime, precision, sizes. Equal signatures
           share measured costs; an empty one keeps them out of the store.
    """

    vocab: int
    context: int
    signature: str
    n_layers: int
    capabilities: Capabilities

    def open(self, prompts: Sequence[Prompt]) -> Cache:
        """An empty cache with a row for each prompt (none is allowed), to be filled by `read`.

        Raises BadInput for an empty prompt and OutOfContext for one that does not fit (`check_prompt`)."""
        ...

    def score(
        self,
        cache: Cache,
        rows: Sequence[Row],
        *,
        taps: Sequence[int] = (),
        layers: Sequence[int] | Sublayers | None = None,
        logits: bool = True,
    ) -> list[Scores]:
        """One pass over `rows` (distinct row indices, any shapes; rows of the cache that are left out are untouched).

        taps:   layers (0-based) whose output hidden states are wanted.
        layers: the layers to run, ascending, or their parts; None runs all. Others are skipped (their input is their
                output). Nodes of rows with `hidden` enter the first of them directly, or the head where none is run.
        The nodes stay uncommitted behind each row's prefix until `cache.keep`."""
        ...


def check_trees(lm: LM, drafter: str, advice: str, *, role: str = "target") -> None:
    """Raises Incompatible, with the advice, where a drafter drafts trees and the model cannot score them."""
    if not lm.capabilities.trees:
        raise Incompatible(f"drafter {drafter!r} drafts trees, which this {role} cannot score; {advice}")


def check_prompt(prompt: Prompt, vocab: int, context: int) -> None:
    """Raises BadInput for a prompt that is empty or holds ids outside the vocabulary, OutOfContext for one too long."""
    if not prompt.ids:
        raise BadInput("the prompt is empty: give at least one token (a chat template or a BOS token makes one)")
    if len(prompt.ids) >= context:
        raise OutOfContext(
            f"the prompt has {len(prompt.ids)} tokens but the model's context holds {context}, one for the answer: "
            "shorten the prompt"
        )
    strange = next((token for token in prompt.ids if not 0 <= token < vocab), None)
    if strange is not None:
        raise BadInput(f"the prompt holds token id {strange}, but ids run from 0 to {vocab - 1}: wrong tokenizer?")


def read(lm: LM, cache: Cache, tokens: Mapping[int, Sequence[int]]) -> None:
    """Commit {row: tokens} behind the rows' prefixes, together, in as few passes as CHUNK allows and without logits."""
    done = 0
    while rows := [Row.chain(index, ids[done : done + CHUNK]) for index, ids in tokens.items() if len(ids) > done]:
        lm.score(cache, rows, logits=False)
        for row in rows:
            cache.keep(row.index, range(len(row.tokens)))
        done += CHUNK
