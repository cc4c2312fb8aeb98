"""Settings to the objects that read them. Whatever can be refused is refused here, before any model is loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from ..drafters import DEFAULT, DRAFTERS, Drafter, make_drafter
from ..errors import BadOption
from ..models.embedded import NAME
from ..models.loading import as_device, as_dtype
from ..sampling import Sampling
from ..text.load import draft_model, load
from ..text.model import Model
from ..text.request import Limits, Request
from .settings import Settings

THREADS_A_CORE = 4  # beyond, threads only wait for each other; far beyond, OpenMP aborts the process


@dataclass(frozen=True)
class Resolved:
    """What a command is going to do. options: all those of the drafter but for its model, defaults included."""

    settings: Settings
    sampling: Sampling
    limits: Limits
    drafter: str
    options: dict[str, Any]
    rule: str
    dtype: torch.dtype | None

    @classmethod
    def of(cls, settings: Settings) -> Resolved:
        """Raises BadOption for every setting that cannot be honoured, whatever the model."""
        _check(settings)
        sampling, drafter = _sampling(settings), _drafter(settings)
        rule = Request(rule=settings.rule).make_rule(sampling).name
        options = _drafter_options(settings, drafter)
        return cls(settings, sampling, _limits(settings), drafter, options, rule, as_dtype(settings.dtype))

    def request(self) -> dict[str, Any]:
        """The options of Model.generate, but for the drafter."""
        return {"rule": self.settings.rule, "sampling": self.sampling, "limits": self.limits}

    def describe(self) -> dict[str, Any]:
        """The resolved settings, ready for JSON."""
        s = self.settings
        sampling = {**asdict(self.sampling), "temperature": self.sampling.effective_temperature}
        sampling["logit_bias"] = dict(self.sampling.logit_bias)
        return {
            "model": {
                "source": s.model or NAME,
                "dtype": None if self.dtype is None else str(self.dtype).removeprefix("torch."),
                "device": s.device,
                "threads": s.threads,
            },
            "drafter": {"name": self.drafter, "model": s.draft_model, **self.options},
            "rule": self.rule,
            "sampling": sampling,
            "limits": asdict(self.limits),
        }

    def load(self) -> tuple[Model, Drafter]:
        """The model and its drafter, ready."""
        s = self.settings
        if s.threads is not None:
            torch.set_num_threads(s.threads)
        model = load(s.model, dtype=self.dtype, device=s.device)
        if s.draft_model is None:
            return model, make_drafter(self.drafter, **self.options)
        return model, draft_model(s.draft_model, model, dtype=self.dtype, device=s.device, **self.options)


def _check(s: Settings) -> None:
    """Refuse what none of the objects below would see, or would see too late."""
    named = {"--model": s.model, "--draft-model": s.draft_model, "--drafter": s.drafter, "--device": s.device}
    for flag, value in named.items():
        if value == "":
            raise BadOption(f"{flag} is empty; give a value, or leave it out")
    most = THREADS_A_CORE * (os.cpu_count() or 1)
    if s.threads is not None and not 1 <= s.threads <= most:
        raise BadOption(f"--threads {s.threads}: give 1 to {most}")
    as_device(s.device)


def _sampling(s: Settings) -> Sampling:
    return Sampling(
        temperature=s.temperature,
        top_k=s.top_k,
        top_p=s.top_p,
        min_p=s.min_p,
        typical_p=s.typical_p,
        repetition_penalty=s.repetition_penalty,
        presence_penalty=s.presence_penalty,
        frequency_penalty=s.frequency_penalty,
        logit_bias=_pairs("--logit-bias", s.logit_bias, _value),
        no_repeat_ngram_size=s.no_repeat_ngram,
        suppress=tuple(s.suppress),
        seed=s.seed,
    )


def _limits(s: Settings) -> Limits:
    return Limits(s.max_new_tokens, s.min_new_tokens, tuple(s.stop), tuple(s.stop_id), s.include_stop, s.ignore_eos)


def _drafter(s: Settings) -> str:
    """The drafter's name. A draft model is given to those that need one, and to no other."""
    needy = [method.name for method in DRAFTERS.values() if method.needs]
    name = s.drafter or (needy[0] if s.draft_model else DEFAULT)
    if name in needy and not s.draft_model:
        raise BadOption(f"drafter {name!r} drafts with a smaller model; name it with --draft-model")
    if s.draft_model and name not in needy:
        raise BadOption(f"--draft-model serves {' or '.join(map(repr, needy))}, not {name!r}; leave one of them out")
    return name


def _drafter_options(s: Settings, name: str) -> dict[str, Any]:
    needs = DRAFTERS[name].needs if name in DRAFTERS else None
    given = _pairs("--option", s.option, str)
    if needs in given:
        raise BadOption(f"--option {needs}=...: the drafter's model is named with --draft-model")
    if s.k is not None:
        if "k" in given:
            raise BadOption(f"--k {s.k} and --option k={given['k']} are one option; give one of them")
        given["k"] = s.k
    drafter: Any = make_drafter(name, **given, **({needs: None} if needs else {}))  # its model is still to be loaded
    return {f.name: getattr(drafter, f.name) for f in fields(drafter) if f.name != needs}


def _pairs(flag: str, texts: Sequence[str], key: Callable[[str], Any]) -> dict[Any, Any]:
    """The values of NAME=VALUE by the `key` of their names."""
    pairs: dict[Any, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise BadOption(f"{flag} {text}: give it as NAME=VALUE")
        if key(name) in pairs:
            raise BadOption(f"{flag} {text}: {name.strip()} is given twice; give it once")
        pairs[key(name)] = _value(value)
    return pairs


def _value(text: str) -> Any:
    """A number, a string, true, false or null as JSON writes them; any other text is itself."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return text if isinstance(value, (list, dict)) else value
