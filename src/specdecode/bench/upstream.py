"""Peers: transformers' own generate, plain, with prompt lookup, and with an assistant model.

The models are loaded as transformers loads them: our attention and runtime are not in them. Knows no drafter and no
file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from ..errors import BadOption, check_count
from ..models.loading import Loaded, as_dtype
from ..models.pretrained import quiet
from .arms import Models, Source
from .records import Timing


@dataclass(frozen=True)
class Upstream:
    """Plain greedy decoding."""

    dtype: str = "float32"

    def __post_init__(self) -> None:
        _check_dtype(self.dtype)

    def check(self, source: Source) -> None:
        pass

    def open(self, models: Models) -> Generate:
        return Generate(models.upstream(as_dtype(self.dtype)), {})


@dataclass(frozen=True)
class Lookup:
    """Prompt lookup. The defaults are Spec-Bench's."""

    dtype: str = "float32"
    num_tokens: int = 10
    max_ngram: int = 3

    def __post_init__(self) -> None:
        _check_dtype(self.dtype)
        check_count("arm upstream-lookup: num_tokens", self.num_tokens, 1)
        check_count("arm upstream-lookup: max_ngram", self.max_ngram, 1)

    def check(self, source: Source) -> None:
        pass

    def open(self, models: Models) -> Generate:
        options = {"prompt_lookup_num_tokens": self.num_tokens, "max_matching_ngram_size": self.max_ngram}
        return Generate(models.upstream(as_dtype(self.dtype)), options)


@dataclass(frozen=True)
class Assistant:
    """The draft model assists, with transformers' own defaults but for `num_tokens`, the tokens of a draft."""

    dtype: str = "float32"
    num_tokens: int | None = None

    def __post_init__(self) -> None:
        _check_dtype(self.dtype)
        if self.num_tokens is not None:
            check_count("arm upstream-assistant: num_tokens", self.num_tokens, 1)

    def check(self, source: Source) -> None:
        if source.draft_model is None:
            raise BadOption("arm upstream-assistant needs an assistant; name the draft model")

    def open(self, models: Models) -> Generate:
        dtype = as_dtype(self.dtype)
        assistant = models.upstream(dtype, draft=True).hf_model
        if self.num_tokens is not None:
            assistant.generation_config.num_assistant_tokens = self.num_tokens
        return Generate(models.upstream(dtype), {}, assistant)


def _check_dtype(dtype: str) -> None:
    """Raises BadOption for one that transformers does not store weights in."""
    if as_dtype(dtype) == torch.int8:
        raise BadOption("transformers has no weights of dtype int8; use float32, bfloat16, float16 or float64")


class Generate:
    """The arm at work. options: those of the generation config that make the method."""

    def __init__(self, loaded: Loaded, options: dict[str, Any], assistant: Any = None) -> None:
        from transformers import GenerationConfig

        self._model, self._eos_ids, self._assistant = loaded.hf_model, loaded.eos_ids, assistant
        self.about = f"transformers {self._model.dtype} {self._model.config._attn_implementation}".replace("torch.", "")
        self._model.generation_config = GenerationConfig()  # a checkpoint's may sample, or penalise repetition
        ends = {"eos_token_id": list(self._eos_ids), "pad_token_id": self._eos_ids[0]} if self._eos_ids else {}
        self._options = {"do_sample": False, **ends, **options}

    def run(self, ids: Sequence[int], max_new_tokens: int) -> Timing:
        from transformers import GenerationConfig

        config = GenerationConfig(max_new_tokens=max_new_tokens, **self._options)
        inputs = torch.tensor([list(ids)], device=self._model.device)
        clock = _Clock()
        with quiet():
            started = perf_counter()
            out = self._model.generate(
                inputs,
                attention_mask=torch.ones_like(inputs),
                generation_config=config,
                assistant_model=self._assistant,
                streamer=clock,
            )
            tokens = tuple(out[0, len(ids) :].tolist())
            ended = perf_counter()
        return Timing(tokens, tuple(clock.sizes), clock.times[0] - started, ended - started)


class _Clock:
    """A streamer that keeps the time: generate hands it the prompt, and then the tokens of each step."""

    def __init__(self) -> None:
        self._prompt_seen = False
        self.times: list[float] = []
        self.sizes: list[int] = []

    def put(self, tokens: torch.Tensor) -> None:
        if self._prompt_seen:
            self.times.append(perf_counter())
            self.sizes.append(tokens.numel())
        self._prompt_seen = True

    def end(self) -> None:
        pass
