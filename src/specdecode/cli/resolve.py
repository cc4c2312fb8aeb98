"""Settings to the objects that read them. Whatever can be refused is refused here, before any model is loaded."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from ..drafters import DEFAULT, DRAFTERS, Drafter, make_drafter
from ..errors import BadOption
from ..models.embedded import NAME
from ..models.loading import as_dtype
from ..sampling import Sampling
from ..text.load import draft_model, load
from ..text.model import Model
from ..text.request import Limits, Request
from .settings import Settings


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
        if settings.threads is not None and settings.threads < 1:
            raise BadOption(f"--threads {settings.threads}: give at least 1")
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


def _sampling(s: Settings) -> Sampling:
    biases = dict(_pair("--logit-bias", text) for text in s.logit_bias)
    return Sampling(
        temperature=s.temperature,
        top_k=s.top_k,
        top_p=s.top_p,
        min_p=s.min_p,
        typical_p=s.typical_p,
        repetition_penalty=s.repetition_penalty,
        presence_penalty=s.presence_penalty,
        frequency_penalty=s.frequency_penalty,
        logit_bias={_value(token): _value(bias) for token, bias in biases.items()},
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
    given = {name: _value(value) for name, value in (_pair("--option", text) for text in s.option)}
    if needs in given:
        raise BadOption(f"--option {needs}=...: the drafter's model is named with --draft-model")
    if s.k is not None:
        given["k"] = s.k
    drafter: Any = make_drafter(name, **given, **({needs: None} if needs else {}))  # its model is still to be loaded
    return {f.name: getattr(drafter, f.name) for f in fields(drafter) if f.name != needs}


def _pair(flag: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise BadOption(f"{flag} {text}: give it as NAME=VALUE")
    return name, value


def _value(text: str) -> Any:
    """A number, true, false or null as JSON writes them; any other text is itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text
