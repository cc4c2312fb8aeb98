"""The protocol every model meets, whatever runs it. Knows no draft source, rule, sampling or text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from ..types import Prompt, Row, Scores


@dataclass(frozen=True)
class Capabilities:
    """What a model can do beyond scoring rows. Asked before a method relies on it; never guessed."""

    trees: bool = True  # rows with branches (a mask of ancestors)
    embeds: bool = True  # nodes with their own input embeddings
    taps: bool = True  # hidden states after chosen layers
    layers: bool = True  # a subset of the stack on the same cache, and resuming from hidden states


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

    def rewind(self, row: int, length: int) -> None:
        """Make the first `length` tokens of `row` the committed prefix again (length <= lengths[row])."""
        ...

    def release(self, row: int) -> None:
        """The session of `row` has ended; its memory may be reused and it is never scored again."""
        ...


class LM(Protocol):
    """A model that scores rows against a cache.

    vocab:   V, the number of ids that may be drafted or emitted (padding of the embedding is cut off).
    context: the most tokens a session may hold.
    """

    vocab: int
    context: int
    n_layers: int
    capabilities: Capabilities

    def open(self, prompts: Sequence[Prompt]) -> Cache:
        """A cache of len(prompts) rows (none is allowed) that holds every prompt but its newest token.

        Raises BadInput for an empty prompt and OutOfContext for one that does not fit, before any pass."""
        ...

    def score(
        self,
        cache: Cache,
        rows: Sequence[Row],
        *,
        taps: Sequence[int] = (),
        layers: Sequence[int] | None = None,
        logits: bool = True,
    ) -> list[Scores]:
        """One pass over `rows` (distinct row indices, any shapes; rows of the cache that are left out are untouched).

        taps:   layers (0-based) whose output hidden states are wanted.
        layers: the layers to run, ascending; None runs all. Others are skipped (their input is their output). Nodes of
                rows with `hidden` enter the first of them directly.
        The nodes stay uncommitted behind each row's prefix until `cache.keep`."""
        ...

    def embeddings(self) -> Tensor:
        """[V, D] the input embedding matrix (read only)."""
        ...
