"""Which parts of the stack a draft leaves out: written as text, or found by tuning and kept by name.

Knows files and layer numbers; no model and no session. Sets are kept in the cache folder, by name and by the signature
of the model they were found for.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..errors import BadOption, LoadError, shown
from ..files import cache_dir, write_whole
from ..types import Sublayers

TUNED = "tuned"  # the name that tuning saves under, unless told another
_NAME = re.compile(r"[\w.-]{1,64}")
_PART = re.compile(r"([am])(\d{1,4})(?:-(\d{1,4}))?")


@dataclass(frozen=True)
class SkipSet:
    """Layers whose attention, and whose feed-forward part, are skipped."""

    attention: tuple[int, ...]
    feed_forward: tuple[int, ...]

    def rest(self, n_layers: int) -> Sublayers:
        """What is run of `n_layers` layers. Raises BadOption for a layer that there is not, and if all is skipped."""
        beyond = [layer for layer in (*self.attention, *self.feed_forward) if layer >= n_layers]
        if beyond:
            raise BadOption(f"skip={self.text!r} names layer {max(beyond)}, and this model has 0 to {n_layers - 1}")
        rest = Sublayers(
            tuple(i for i in range(n_layers) if i not in self.attention),
            tuple(i for i in range(n_layers) if i not in self.feed_forward),
        )
        if not rest.layers:
            raise BadOption(f"skip={self.text!r} skips all of this model's {n_layers} layers; leave some")
        return rest

    @property
    def text(self) -> str:
        """As `parse` reads it."""
        spans = [
            f"{kind}{span}"
            for kind, layers in (("a", self.attention), ("m", self.feed_forward))
            for span in _spans(layers)
        ]
        return "+".join(spans) or "none"

    @classmethod
    def parse(cls, text: str) -> SkipSet | None:
        """The set that a text such as a3-9+a12+m4 spells (a: attention, m: feed-forward), None for any other text."""
        if text == "none":
            return cls((), ())
        layers: dict[str, set[int]] = {"a": set(), "m": set()}
        for part in text.split("+"):
            match = _PART.fullmatch(part)
            if match is None:
                return None
            first, last = int(match[2]), int(match[3] or match[2])
            if last < first:
                return None
            layers[match[1]].update(range(first, last + 1))
        return cls(tuple(sorted(layers["a"])), tuple(sorted(layers["m"])))

    @classmethod
    def every_other(cls, n_layers: int) -> SkipSet:
        """Attention of every other layer of the middle half: what is tried where nothing was tuned."""
        return cls(tuple(range(n_layers // 4, n_layers - n_layers // 4, 2)), ())


def check_name(name: object) -> None:
    """Raises BadOption for what cannot be a name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or SkipSet.parse(name):
        raise BadOption(f"{shown(name)} is no name for a skip set; give letters, digits, '-', '_' and '.'")


def save(name: str, signature: str, skip: SkipSet, found: dict[str, float]) -> Path:
    """Keep a set, with what was `found` of it; whole or not at all. Raises OSError where it cannot be written."""
    path = path_of(name, signature)
    write_whole(path, json.dumps({"model": signature, **asdict(skip), "found": found}, indent=1))
    return path


def load(name: str, signature: str) -> SkipSet | None:
    """The set that was kept for a model under a name, None where there is none. Raises LoadError for a damaged file."""
    path = path_of(name, signature)
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        return SkipSet(tuple(map(int, entry["attention"])), tuple(map(int, entry["feed_forward"])))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise LoadError(f"{path} holds no skip set ({type(error).__name__}): tune again, or remove it") from error


def path_of(name: str, signature: str) -> Path:
    """The file of a name, for a model. Raises BadOption for what is no name."""
    if not _NAME.fullmatch(name):
        raise BadOption(f"skip={name!r} is no set such as a3-9+m4, and no name of letters, digits, '-', '_' and '.'")
    return cache_dir() / "layer_skip" / f"{name}-{hashlib.sha256(signature.encode()).hexdigest()[:16]}.json"


def _spans(layers: Sequence[int]) -> list[str]:
    """Consecutive numbers as 3-9."""
    spans: list[list[int]] = []
    for layer in layers:
        if spans and spans[-1][1] == layer - 1:
            spans[-1][1] = layer
        else:
            spans.append([layer, layer])
    return [str(a) if a == b else f"{a}-{b}" for a, b in spans]
