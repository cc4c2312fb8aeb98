"""Arms: the ways to decode that are compared, each from one short text. `plain`, any drafter, and the peers.

    plain                       our loop without drafts: what every other arm is compared with
    NAME                        a drafter of DRAFTERS
    NAME:option=value,...       with options of its own, and `rule`, `dtype` and `runtime`, which every drafter takes
    NAME:rule=lenient,rule.lenience=0.3     with options of its rule
    auto:sources=ngram+lm       with drafters as an option; lm is made of the draft model
    upstream:dtype=bfloat16     a peer of PEERS with an option of its own; `upstream:bfloat16` says the same

An arm is parsed, and refused, before anything is loaded. Knows no questions and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from ..drafters import DEFAULT, DRAFTERS
from ..errors import BadOption
from ..models.loading import Loaded, load_pretrained
from ..registry import Method, Table, option_value
from ..text.load import load
from ..text.model import Model
from .records import Timing

T = TypeVar("T")

PLAIN = "plain"
DEFAULT_ARMS = ("upstream", PLAIN, DEFAULT)

PEERS = Table(
    "arm",
    __name__.rpartition(".")[0],
    (
        Method(
            "upstream",
            "transformers' generate, in float32 unless told otherwise",
            lossless=True,
            needs_training=False,
            source="",
            factory="upstream:Upstream",
        ),
        Method(
            "upstream-lookup",
            "transformers' generate with prompt lookup",
            lossless=True,
            needs_training=False,
            source="Saxena, Prompt Lookup Decoding (2023)",
            factory="upstream:Lookup",
        ),
        Method(
            "upstream-assistant",
            "transformers' generate with the draft model as its assistant",
            lossless=True,
            needs_training=False,
            source="Gante 2023, Assisted Generation",
            factory="upstream:Assistant",
        ),
        Method(
            "llamacpp",
            "llama.cpp, from a GGUF file as it is or quantised anew (q4_0, q8_0, ...)",
            lossless=False,
            needs_training=False,
            source="",
            factory="llamacpp:LlamaCpp",
        ),
    ),
)
BARE = {"upstream": "dtype", "llamacpp": "quantisation"}  # the option that a value without a name is for


@dataclass(frozen=True)
class Source:
    """The model that all arms run: `model` and `draft_model` are folders, hub ids or GGUF files, None the default model
    and none; the others are `load`'s own."""

    model: str | None = None
    draft_model: str | None = None
    dtype: str | None = None
    runtime: str | None = None
    device: str | None = None


class Models:
    """What the arms run on, each loaded when it is first asked for and shared. A context manager: what arms have opened
    beside is closed at its end.

    at_exit: takes a function to be called then."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._loaded: dict[Hashable, Any] = {}
        self._exits = ExitStack()
        self.at_exit = self._exits.callback

    def __enter__(self) -> Models:
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def target(self, **changes: Any) -> Model:
        """Our model. changes: fields of Source that an arm has its own way."""
        return self._ours(replace(self.source, **changes))

    def draft(self, **changes: Any) -> Model:
        """Our draft model, which the source must name."""
        return self._ours(replace(self.source, model=self.source.draft_model, **changes))

    def upstream(self, dtype: Any, *, draft: bool = False) -> Loaded:
        """A model as transformers loads it, untouched by us: the target or the draft model."""
        name, device = self.source.draft_model if draft else self.source.model, self.source.device
        return self._once(("upstream", name, dtype), lambda: load_pretrained(name, dtype=dtype, device=device))

    def _ours(self, source: Source) -> Model:
        options = {"dtype": source.dtype, "runtime": source.runtime, "device": source.device}
        return self._once(("ours", source), lambda: load(source.model, **options))

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._loaded:
            self._loaded[key] = make()
        loaded: T = self._loaded[key]
        return loaded


class Arm(Protocol):
    """A way to decode, ready to be timed. about: what it runs, in words."""

    about: str

    def run(self, ids: Sequence[int], max_new_tokens: int) -> Timing:
        """Continue a prompt greedily until an end token, or for `max_new_tokens`."""
        ...


class Recipe(Protocol):
    """The options of an arm. Making one raises BadOption for those that do not exist."""

    def check(self, source: Source) -> None:
        """Refuse what cannot be had for this source, before anything is loaded. Raises a SpecError."""
        ...

    def open(self, models: Models) -> Arm: ...


def parse(text: str) -> Recipe:
    """The arm that `text` asks for. Raises BadOption for a name or an option that does not exist."""
    from .ours import Ours

    name, _, rest = text.partition(":")
    options = _options(text, name, rest)
    if name == PLAIN or name in DRAFTERS:
        return Ours.of("null" if name == PLAIN else name, options)
    if name in PEERS:
        recipe: Recipe = PEERS.make(name, options)
        return recipe
    raise BadOption(f"arm {name!r} does not exist; choose of: {', '.join((PLAIN, *DRAFTERS, *PEERS))}")


def _options(text: str, name: str, rest: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for part in rest.split(",") if rest else []:
        option, equals, value = part.strip().partition("=")
        if not equals and name in BARE:
            option, value = BARE[name], option
        if not (option and value):
            raise BadOption(f"arm {text}: give it as NAME:option=value,option=value")
        if option in options:
            raise BadOption(f"arm {text}: {option} is given twice; give it once")
        options[option] = option_value(value)
    return options
