"""From raw logits to the law the user asked for: penalties, bans, minimum length, a grammar, the user's own
processors, temperature and truncations, each node of a draft with its own prefix, in the order and with the results of
transformers' `generate`.

Knows no model and no rule. What looks at nothing but a row and its prefix serves target and drafter alike. The user's
own processors may keep state, so only the target's rows see them, on forks that vanish with their drafts.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from .errors import BadOption
from .sampling import LogitsProcessor, Sampling
from .stages import Stage, penalties, warpers
from .tree import path_to
from .types import Draft


class Filters:
    """One session's filters. Where no option is active, a row is handed on as it is, without a copy.

    vocab:   V, the length of the rows.
    eos_ids: ids that end the session (none where they are ignored). They are banned before `min_new_tokens`, and the
             user's processors are not asked what follows them.
    grammar: what an answer must look like, as a stage; none where anything may follow anything.
    Raises BadOption for an option that names an id outside the vocabulary."""

    def __init__(
        self,
        sampling: Sampling,
        *,
        prompt_length: int,
        vocab: int,
        min_new_tokens: int = 0,
        eos_ids: tuple[int, ...] = (),
        grammar: Stage | None = None,
    ) -> None:
        sampling.check_vocabulary(vocab)
        self.vocab = vocab
        self._processors = sampling.processors
        self._eos_ids = tuple(i for i in eos_ids if i < vocab)
        self._penalties = penalties(sampling, prompt_length, min_new_tokens, self._eos_ids)
        self._penalties += [] if grammar is None else [grammar]
        self._warpers = [] if sampling.greedy else warpers(sampling)
        self._history = _History() if grammar is not None or _reads_history(sampling) else None

    def apply(self, logits: Tensor, prefix: Sequence[int]) -> Tensor:
        """[V] raw logits of the token after `prefix` -> [V] filtered, without the user's own processors."""
        if not self._penalties and not self._warpers:
            return logits
        ids = _blank(len(prefix)) if self._history is None else self._history.ids(prefix)
        return self._law(logits, ids, ())

    def rows(self, logits: Tensor, tokens: Sequence[int], draft: Draft) -> FilteredRows:
        """[n + 1, V] raw logits of a step -> its laws, computed when first read.

        tokens: all committed ones. They must begin every prefix until the next call."""
        if self._history is not None:
            self._history.commit(tokens)
        return FilteredRows(self, logits, len(tokens), draft)

    def commit(self, rows: FilteredRows, path: Sequence[int]) -> None:
        """Take note of a clipped verdict's path, once a step: the user's own processors have then been called once for
        each emitted token, as in plain decoding. Raises BadOption where the filters had left no law to draw from."""
        if not self._penalties and not self._processors and not self._warpers:
            return
        for row in (0, *(node + 1 for node in path)):
            largest = float(rows[row].amax())
            if not math.isfinite(largest):
                raise BadOption(_no_law(largest, rows.prefix(row).shape[1]))
            if row and self._processors:  # reading row 0 has asked the user's own objects, the others only forks
                self._consult(rows.logits[row], rows.prefix(row), self._processors)

    def _law(self, logits: Tensor, ids: Tensor, processors: Sequence[LogitsProcessor]) -> Tensor:
        """[V] raw -> [V] filtered; ids [1, T] is the row's prefix. `processors` advance by one call."""
        scores = self._consult(logits, ids, processors)
        for stage in self._warpers:
            scores = stage(ids, scores)
        return scores[0]

    def _consult(self, logits: Tensor, ids: Tensor, processors: Sequence[LogitsProcessor]) -> Tensor:
        """[V] -> [1, V], as far as the temperature."""
        scores = logits[None]
        ids = ids.to(logits.device)
        for stage in self._penalties:
            scores = stage(ids, scores)
        for processor in processors:
            scores = _ask(processor, ids, scores)
        return scores


class FilteredRows:
    """The target's laws of one step (verify.Rows). Row 0 asks the user's own processors; every other row asks a fork of
    its parent's, which has then seen the calls that plain decoding would have made along the path."""

    def __init__(self, filters: Filters, logits: Tensor, length: int, draft: Draft) -> None:
        self.logits = logits
        self._filters = filters
        self._length = length
        self._draft = draft
        self._laws: dict[int, Tensor] = {}
        self._forks: dict[int, tuple[LogitsProcessor, ...]] = {}

    def __getitem__(self, row: int) -> Tensor:
        if row not in self._laws:
            assert 0 <= row <= len(self._draft), f"row {row} of a draft of {len(self._draft)}"
            self._forks[row] = self._fork(row)
            self._laws[row] = self._filters._law(self.logits[row], self.prefix(row), self._forks[row])
        return self._laws[row]

    def prefix(self, row: int) -> Tensor:
        """[1, T] the tokens before the one that `row` decides; only its shape counts where no filter reads them."""
        path = [self._draft.tokens[node] for node in path_to(self._draft.parents, row - 1)]
        history = self._filters._history
        return _blank(self._length + len(path)) if history is None else history.extend(path, self._length)

    def _fork(self, row: int) -> tuple[LogitsProcessor, ...]:
        """The processors to ask at `row`: none behind a token that ends the session or that cannot be emitted, because
        a grammar need not know what follows there."""
        processors = self._filters._processors
        if row == 0 or not processors:
            return processors
        token = self._draft.tokens[row - 1]
        parent = self._draft.parents[row - 1] + 1
        if token in self._filters._eos_ids or self[parent][token] == -math.inf:
            return ()
        return copy.deepcopy(self._forks[parent])


class _History:
    """The committed tokens as a growing tensor. Paths are written behind them, so that a prefix costs as much as its
    path and not as the whole context."""

    def __init__(self) -> None:
        self._tokens: list[int] = []
        self._buffer = torch.empty(0, dtype=torch.int64)

    def commit(self, tokens: Sequence[int]) -> None:
        if not self._begins(tokens):
            self._tokens = []
        new = tokens[len(self._tokens) :]
        self._write(new)
        self._tokens.extend(new)

    def ids(self, prefix: Sequence[int]) -> Tensor:
        """[1, T] any prefix; cheap when it begins with the committed tokens."""
        if not self._begins(prefix):
            return torch.tensor([list(prefix)], dtype=torch.int64)
        return self.extend(prefix[len(self._tokens) :], len(self._tokens))

    def extend(self, path: Sequence[int], length: int) -> Tensor:
        """[1, T] the `length` committed tokens and `path`; a view that the next call may overwrite."""
        assert length == len(self._tokens), "these rows belong to an earlier step"
        self._write(path)
        return self._buffer[None, : length + len(path)]

    def _begins(self, tokens: Sequence[int]) -> bool:
        head = tokens[: len(self._tokens)]
        return (head if isinstance(head, list) else list(head)) == self._tokens

    def _write(self, tail: Sequence[int]) -> None:
        start, end = len(self._tokens), len(self._tokens) + len(tail)
        if end > len(self._buffer):
            grown = torch.empty(2 * end, dtype=torch.int64)
            grown[:start] = self._buffer[:start]
            self._buffer = grown
        self._buffer[start:end] = torch.tensor(list(tail), dtype=torch.int64)


def _blank(length: int) -> Tensor:
    """[1, length] ids that nobody reads."""
    return torch.zeros(1, 1, dtype=torch.int64).expand(1, length)


def _reads_history(sampling: Sampling) -> bool:
    return bool(
        sampling.repetition_penalty != 1
        or sampling.presence_penalty
        or sampling.frequency_penalty
        or sampling.no_repeat_ngram_size
        or sampling.processors
        or any(len(word) > 1 for word in sampling.bad_words)
    )


def _no_law(largest: float, position: int) -> str:
    """What is wrong with a row whose largest score is no number."""
    if largest == -math.inf:
        return f"no token may stand at position {position}: bans, bias, grammar or processors exclude all; relax them"
    return (
        f"the filtered scores at position {position} are {largest}: a processor, bias, penalty or temperature takes "
        "them beyond float32; choose a milder one"
    )


def _ask(processor: LogitsProcessor, ids: Tensor, scores: Tensor) -> Tensor:
    """Clones, because a processor may write into its arguments or keep them."""
    answer = processor(ids.clone(), scores.clone())
    if not isinstance(answer, Tensor) or answer.shape != scores.shape or not answer.is_floating_point():
        name = getattr(processor, "__name__", type(processor).__name__)
        tensor = isinstance(answer, Tensor)
        found = f"{answer.dtype} of shape {tuple(answer.shape)}" if tensor else type(answer).__name__
        raise BadOption(
            f"processor {name} must return floating-point scores of shape {tuple(scores.shape)}, returned {found}"
        )
    return answer
