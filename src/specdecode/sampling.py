"""The law a user asks for (Sampling) and the sources of chance that draw from it (Noise).

Every source is private to its session and made from the session's seed alone: the global states of torch, numpy and
random are neither read nor moved. The numbers are numpy's, whose generators take the whole seed (torch's CPU generator
keeps 32 bits of it) and are cheap to key. Knows no model, rule or draft; the filters that turn raw logits into the law
asked for are in `constraints`.
"""

from __future__ import annotations

import copy
import math
import pickle
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from .errors import BadOption, as_float, check_count, check_number, is_count, shown

SEEDS = 2**63  # seeds are 0 <= seed < SEEDS


class LogitsProcessor(Protocol):
    """A rule of the user's own, in transformers' form. It may keep state, which must live in the object (not in a
    closure or a global): the object is forked with copy.deepcopy for every drafted token that is verified. One that
    holds something large and constant shares it between forks by its own __deepcopy__."""

    def __call__(self, input_ids: Tensor, scores: Tensor, /) -> Tensor:
        """input_ids [1, T] all tokens before the one to decide, scores [1, V] its logits -> [1, V]."""
        ...


class Bias(Mapping[int, float]):
    """An immutable, hashable {token: added logit}."""

    __slots__ = ("_added",)

    def __init__(self, added: Mapping[int, float]) -> None:
        self._added = dict(added)

    def __getitem__(self, token: int) -> float:
        return self._added[token]

    def __iter__(self) -> Iterator[int]:
        return iter(self._added)

    def __len__(self) -> int:
        return len(self._added)

    def __hash__(self) -> int:
        return hash(frozenset(self._added.items()))

    def __repr__(self) -> str:
        return repr(self._added)


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen from the model's logits. The defaults are greedy decoding.

    temperature:        0 is greedy; unset it is 1 when top_k, top_p, min_p or typical_p is given, and 0 otherwise.
    top_k, top_p, min_p, typical_p: truncations of the tempered law, in this order; without effect when greedy.
    repetition_penalty: divides positive and multiplies negative logits of every token of prompt and output (CTRL).
    presence_penalty, frequency_penalty: subtracted from the logits of generated tokens, once or for each occurrence;
                        the prompt does not count (OpenAI's definition).
    logit_bias:         {token: added logit}.
    bad_words:          token sequences that never appear. As in transformers, one that is just an end token is ignored:
                        ban that with `suppress`.
    no_repeat_ngram_size: no n-gram of this size appears twice, the prompt included; 0 is off.
    suppress:           tokens that are never chosen.
    seed:               0 <= seed < 2**63; None takes fresh entropy.
    processors:         callables in transformers' form, applied after penalties and bans, before the temperature.

    Raises BadOption for a value outside its range and for a processor that cannot be copied."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    bad_words: tuple[tuple[int, ...], ...] = ()
    no_repeat_ngram_size: int = 0
    suppress: tuple[int, ...] = ()
    seed: int | None = None
    processors: tuple[LogitsProcessor, ...] = field(default=(), hash=False)

    def __post_init__(self) -> None:
        self._check_number("temperature", lambda x: 0 <= x < math.inf, "a finite number >= 0")
        for name in ("top_p", "min_p", "typical_p"):
            self._check_number(name, lambda x: 0 < x <= 1, "a number > 0 and <= 1")
        self._check_number("repetition_penalty", lambda x: 0 < x < math.inf, "a finite number > 0", optional=False)
        for name in ("presence_penalty", "frequency_penalty"):
            self._check_number(name, math.isfinite, "a finite number", optional=False)
        self._check_count("top_k", 1)
        self._check_count("no_repeat_ngram_size", 0, optional=False)
        self._check_count("seed", 0)
        if self.seed is not None and self.seed >= SEEDS:
            raise BadOption(f"seed={self.seed} is too large; give one below {SEEDS}")
        self._freeze("suppress", _token_tuple, "token ids (integers >= 0)")
        self._freeze("bad_words", _word_tuple, "non-empty sequences of token ids (integers >= 0)")
        self._freeze("logit_bias", _bias, "a mapping of token ids (integers >= 0) to numbers below infinity")
        self._freeze("processors", _callables, "callables (input_ids, scores) -> scores")
        for processor in self.processors:
            _check_forkable(processor)

    @property
    def effective_temperature(self) -> float:
        """The temperature in force, with the rule for an unset one applied."""
        if self.temperature is not None:
            return self.temperature
        truncations = (self.top_k, self.top_p, self.min_p, self.typical_p)
        return 0.0 if all(t is None for t in truncations) else 1.0

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken. A tiny temperature is not greedy."""
        return self.effective_temperature == 0

    def check_vocabulary(self, vocab: int) -> None:
        """Raises BadOption when an option names an id that the vocabulary of ids 0 to vocab - 1 does not have."""
        named = {
            "logit_bias": tuple(self.logit_bias),
            "bad_words": tuple(token for word in self.bad_words for token in word),
            "suppress": self.suppress,
        }
        for option, tokens in named.items():
            if tokens and max(tokens) >= vocab:
                raise BadOption(f"{option} names token {max(tokens)}, but the vocabulary has ids 0 to {vocab - 1}")

    def _check_number(self, name: str, within: Callable[[float], bool], allowed: str, *, optional: bool = True) -> None:
        value = getattr(self, name)
        if value is None and optional:
            return
        check_number(name, value, within, allowed)
        object.__setattr__(self, name, float(value))

    def _check_count(self, name: str, least: int, *, optional: bool = True) -> None:
        value = getattr(self, name)
        if value is None and optional:
            return
        check_count(name, value, least)
        object.__setattr__(self, name, int(value))

    def _freeze(self, name: str, convert: Callable[[object], object], allowed: str) -> None:
        value = getattr(self, name)
        frozen = convert(value)
        if frozen is None:
            raise BadOption(f"{name} must be {allowed}, found {shown(value)}")
        object.__setattr__(self, name, frozen)


def _token_tuple(value: object) -> tuple[int, ...] | None:
    if not isinstance(value, Sequence) or not all(map(is_count, value)):
        return None
    return tuple(int(t) for t in value)


def _word_tuple(value: object) -> tuple[tuple[int, ...], ...] | None:
    if not isinstance(value, Sequence):
        return None
    words = [_token_tuple(word) for word in value]
    return tuple(w for w in words if w) if all(words) else None


def _bias(value: object) -> Bias | None:
    if not isinstance(value, Mapping) or _token_tuple(tuple(value)) is None:
        return None
    added = {int(token): as_float(b) for token, b in value.items()}
    return Bias(added) if all(b < math.inf for b in added.values()) else None


def _callables(value: object) -> tuple[LogitsProcessor, ...] | None:
    return tuple(value) if isinstance(value, Sequence) and all(callable(p) for p in value) else None


def _check_forkable(processor: LogitsProcessor) -> None:
    try:
        copy.deepcopy(processor)
    except (TypeError, ValueError, AttributeError, RuntimeError, copy.Error, pickle.PickleError) as error:
        reason = " ".join(str(error).split())
        raise BadOption(
            f"processors: {type(processor).__name__} cannot be copied ({reason}), and drafts are tried on copies: "
            "give it a __deepcopy__"
        ) from error


class Noise(Protocol):
    """A session's only source of chance."""

    def draw(self, logits: Tensor, position: int) -> int:
        """A token from softmax(logits [V]); position is the absolute index of the token being decided."""
        ...

    def keys(self, logits: Tensor, position: int) -> Tensor:
        """[V] what `draw` takes the largest of; the k largest (`best`) are k draws without replacement."""
        ...

    def uniform(self) -> float:
        """A number from U[0, 1)."""
        ...


class Argmax:
    """Greedy decoding: no chance at all."""

    def draw(self, logits: Tensor, position: int) -> int:
        """The likeliest token; of equals, the lowest id."""
        return _best(logits)

    def keys(self, logits: Tensor, position: int) -> Tensor:
        return logits

    def uniform(self) -> float:
        raise AssertionError("greedy decoding draws nothing")


class Stream:
    """One stream of random numbers, used up in the order of the calls: for rules that toss coins."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def draw(self, logits: Tensor, position: int) -> int:
        return _best(self.keys(logits, position))

    def keys(self, logits: Tensor, position: int) -> Tensor:
        return logits + _gumbel(self._generator, len(logits)).to(logits.device)

    def uniform(self) -> float:
        return float(self._generator.random())


class Keyed:
    """Noise that depends on (seed, position) alone, whatever was asked before: target and drafter, with and without
    speculation, draw a position's token with the same noise.

    width: V, the most logits that will be drawn from; shorter ones see the beginning of the same vector."""

    def __init__(self, seed: int, width: int) -> None:
        self._width = width
        self._noise = lru_cache(maxsize=16)(partial(_keyed_gumbel, seed, width))  # draft, row and redraw ask again

    def draw(self, logits: Tensor, position: int) -> int:
        return _best(self.keys(logits, position))

    def keys(self, logits: Tensor, position: int) -> Tensor:
        assert len(logits) <= self._width, f"{len(logits)} logits but noise for {self._width}"
        return logits + self._noise(position, logits.device)[: len(logits)]

    def uniform(self) -> float:
        raise AssertionError("keyed noise has no order, hence no stream of coins")


def best(keys: Tensor, k: int) -> list[int]:
    """The tokens of the k largest of keys [V], largest first; fewer where fewer are above -inf."""
    if k == 1:
        return [_best(keys)] if keys.max() > -math.inf else []
    top = keys.topk(min(k, len(keys)))
    return top.indices[top.values > -math.inf].tolist()


def fresh_seed() -> int:
    """A seed from the operating system's entropy."""
    return secrets.randbits(63)


def sample_seed(seed: int, index: int) -> int:
    """The seed of sample `index` of a request with `seed`; sample 0 keeps the request's own."""
    if index == 0:
        return seed
    return int(np.random.SeedSequence((seed, index)).generate_state(1, np.uint64)[0]) >> 1


def _gumbel(generator: np.random.Generator, width: int) -> Tensor:
    """[width] standard Gumbel numbers: minus the log of exponential ones, whose small values keep their precision (the
    winner of a race is decided there). argmax(logits + gumbel) is a draw from softmax(logits)."""
    race = torch.from_numpy(generator.standard_exponential(width)).to(torch.float32)
    return race.clamp_(min=torch.finfo(torch.float32).tiny).log_().neg_()


def _keyed_gumbel(seed: int, width: int, position: int, device: torch.device) -> Tensor:
    philox = np.random.Philox(key=(seed << 64) | position)  # each key is a stream of its own
    return _gumbel(np.random.Generator(philox), width).to(device)


def _best(keys: Tensor) -> int:
    return int(keys.max(0).indices)  # of equals the first, as argmax, at a third of its cost
