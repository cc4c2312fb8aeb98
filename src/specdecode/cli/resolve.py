"""Settings to the objects that read them. Whatever can be refused is refused here, before any model is loaded."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from ..drafters import Drafter, make_drafter
from ..errors import BadOption
from ..models.embedded import NAME
from ..sampling import Sampling
from ..text.load import as_dtype, draft_model, load
from ..text.model import Model
from ..text.request import Limits, Request, rule_name
from .settings import Settings


@dataclass(frozen=True)
class Plan:
    """What a command is going to do. drafter: its name; options: those that were given for it."""

    settings: Settings
    sampling: Sampling
    limits: Limits
    drafter: str
    options: dict[str, Any]

    @classmethod
    def of(cls, settings: Settings) -> Plan:
        """Raises BadOption for every setting that cannot be honoured, whatever the model."""
        name = settings.drafter or ("lm" if settings.draft_model else "ngram")
        if name == "lm" and not settings.draft_model:
            raise BadOption("drafter 'lm' drafts with a smaller model; name it with --draft-model")
        if name != "lm" and settings.draft_model:
            raise BadOption(f"--draft-model serves the drafter 'lm', not {name!r}; leave one of them out")
        if settings.threads is not None and settings.threads < 1:
            raise BadOption(f"--threads {settings.threads}: give at least 1")
        plan = cls(settings, _sampling(settings), _limits(settings), name, _drafter_options(settings))
        plan.describe()
        return plan

    def request(self) -> dict[str, Any]:
        """The options of Model.generate, but for the drafter."""
        return {"rule": self.settings.rule, "sampling": self.sampling, "limits": self.limits}

    def describe(self) -> dict[str, Any]:
        """The resolved settings, ready for JSON."""
        s = self.settings
        lm = {"lm": None} if self.drafter == "lm" else {}
        drafter = make_drafter(self.drafter, **lm, **self.options)
        own = {f.name: getattr(drafter, f.name) for f in fields(drafter) if f.name != "lm"}  # type: ignore[arg-type]
        sampling = {**asdict(self.sampling), "temperature": self.sampling.effective_temperature}
        sampling["logit_bias"] = dict(self.sampling.logit_bias)
        dtype = as_dtype(s.dtype)
        return {
            "model": {
                "source": s.model or NAME,
                "dtype": None if dtype is None else str(dtype).removeprefix("torch."),
                "device": s.device,
                "threads": s.threads,
            },
            "drafter": {"name": self.drafter, "model": s.draft_model, **own},
            "rule": rule_name(Request(rule=s.rule).make_rule(self.sampling)),
            "sampling": sampling,
            "limits": asdict(self.limits),
        }

    def load(self) -> tuple[Model, Drafter]:
        """The model and its drafter, ready."""
        s = self.settings
        if s.threads is not None:
            torch.set_num_threads(s.threads)
        model = load(s.model, dtype=s.dtype, device=s.device)
        if s.draft_model is None:
            return model, make_drafter(self.drafter, **self.options)
        return model, draft_model(s.draft_model, model, dtype=s.dtype, device=s.device, **self.options)


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


def _drafter_options(s: Settings) -> dict[str, Any]:
    given = {name: _value(value) for name, value in (_pair("--option", text) for text in s.option)}
    if "lm" in given:
        raise BadOption("--option lm=...: the drafter's model is named with --draft-model")
    return given if s.k is None else {**given, "k": s.k}


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
