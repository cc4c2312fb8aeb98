"""Settings to the objects that read them. Whatever can be refused is refused here, before any model is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch

from ..drafters import DEFAULT, DRAFTERS, Drafter, make_drafter
from ..drafters.auto import Auto
from ..drafters.choosing import Decision
from ..errors import BadInput, BadOption, shown
from ..grammar import Grammar
from ..models.embedded import NAME
from ..models.loading import as_device, as_dtype
from ..models.pretrained import reason
from ..models.runtime import check_runtime
from ..registry import option_value
from ..sampling import Sampling
from ..text.load import draft_model, load
from ..text.model import Model
from ..text.request import Limits, Request
from ..verify import Verifier, make_rule
from .settings import Settings

A_MODEL = "lm"  # the option that --draft-model fills
THREADS_A_CORE = 4  # beyond, threads only wait for each other; far beyond, OpenMP aborts the process


@dataclass(frozen=True)
class Resolved:
    """What a command is going to do. options: all those of the drafter but for its model, defaults included; rule: the
    one that will decide; told: what the drafter has decided so far, where that is to be explained."""

    settings: Settings
    sampling: Sampling
    limits: Limits
    grammar: Grammar | None
    drafter: str
    options: dict[str, Any]
    rule: Verifier
    dtype: torch.dtype | None
    told: list[Decision] = field(default_factory=list)

    @classmethod
    def of(cls, settings: Settings) -> Resolved:
        """Raises BadOption for every setting that cannot be honoured, whatever the model."""
        _check(settings)
        sampling, drafter = _sampling(settings), _drafter(settings)
        rule = _rule(settings, sampling)
        options = _drafter_options(settings, drafter)
        dtype = as_dtype(settings.dtype)
        check_runtime(settings.runtime, dtype)
        return cls(settings, sampling, _limits(settings), _grammar(settings), drafter, options, rule, dtype)

    def request(self) -> dict[str, Any]:
        """The options of Model.generate, but for the drafter."""
        return {"rule": self.rule, "sampling": self.sampling, "limits": self.limits, "grammar": self.grammar}

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
                "runtime": s.runtime,
                "threads": s.threads,
            },
            "drafter": {"name": self.drafter, "model": s.draft_model, "explained": s.explain, **self.options},
            "rule": {"name": self.rule.name, **_options_of(self.rule)},
            "sampling": sampling,
            "grammar": None if self.grammar is None else asdict(self.grammar),
            "limits": asdict(self.limits),
        }

    def load(self) -> tuple[Model, Drafter]:
        """The model and its drafter, ready."""
        s = self.settings
        if s.threads is not None:
            torch.set_num_threads(s.threads)
        model = load(s.model, dtype=self.dtype, device=s.device, runtime=s.runtime)
        if self.drafter == "auto":
            return model, self._make_auto(model)
        if s.draft_model is None:
            return model, make_drafter(self.drafter, **self.options)
        return model, self._make_draft_model(model, self.options)

    def _make_auto(self, target: Model) -> Auto:
        drafter = Auto(**self.options)
        if self.settings.draft_model is not None:
            drafter = replace(drafter, sources=(*drafter.sources, self._make_draft_model(target, {})))
        return replace(drafter, tell=self.told.append) if self.settings.explain else drafter

    def _make_draft_model(self, target: Model, options: dict[str, Any]) -> Drafter:
        s = self.settings
        return draft_model(s.draft_model, target, dtype=self.dtype, device=s.device, runtime=s.runtime, **options)


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
        logit_bias=_pairs("--logit-bias", s.logit_bias, option_value),
        no_repeat_ngram_size=s.no_repeat_ngram,
        suppress=tuple(s.suppress),
        seed=s.seed,
    )


def _limits(s: Settings) -> Limits:
    return Limits(s.max_new_tokens, s.min_new_tokens, tuple(s.stop), tuple(s.stop_id), s.include_stop, s.ignore_eos)


def _grammar(s: Settings) -> Grammar | None:
    """The grammar that was asked for, read from its file where it is one."""
    given = {"--json-schema": s.json_schema, "--regex": s.regex, "--grammar": s.grammar}
    flags = [flag for flag, value in given.items() if value is not None]
    if len(flags) > 1:
        raise BadOption(f"{' and '.join(flags)} cannot both say what the answer looks like; give one of them")
    if s.json_schema is not None:
        inline = s.json_schema.lstrip().startswith("{")
        return Grammar.json_schema(s.json_schema if inline else _read("--json-schema", s.json_schema))
    if s.regex is not None:
        return Grammar.regex(s.regex)
    return None if s.grammar is None else Grammar.lark(_read("--grammar", s.grammar))


def _read(flag: str, path: str) -> str:
    """The text of a file. Raises BadInput where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or no file name
        why = getattr(error, "strerror", None) or reason(error)
        raise BadInput(f"{flag} {shown(path)}: {why}; give a text file") from error


def _drafter(s: Settings) -> str:
    """The drafter's name. A draft model is given to those that need one or may choose it, and to no other."""
    needy = [method.name for method in DRAFTERS.values() if method.needs == A_MODEL]
    name = s.drafter or (needy[0] if s.draft_model else DEFAULT)
    if name in needy and not s.draft_model:
        raise BadOption(f"drafter {name!r} drafts with a smaller model; name it with --draft-model")
    serves = [*needy, "auto"]
    if s.draft_model and name not in serves:
        raise BadOption(f"--draft-model serves {' or '.join(map(repr, serves))}, not {name!r}; leave one of them out")
    if name == "forced" and (s.json_schema, s.regex, s.grammar) == (None, None, None):
        raise BadOption(f"--drafter {name}: nothing is forced without --json-schema, --regex or --grammar; give one")
    if s.explain and name != "auto":
        raise BadOption(f"--explain tells what the drafter 'auto' decides, and {name!r} decides nothing; leave it out")
    return name


def _drafter_options(s: Settings, name: str) -> dict[str, Any]:
    needs = A_MODEL if name in DRAFTERS and DRAFTERS[name].needs == A_MODEL else None
    given = _pairs("--option", s.option, str)
    if needs in given:
        raise BadOption(f"--option {needs}=...: the drafter's model is named with --draft-model")
    if s.k is not None:
        if "k" in given:
            raise BadOption(f"--k {s.k} and --option k={given['k']} are one option; give one of them")
        given["k"] = s.k
    drafter: Any = make_drafter(name, **given, **({needs: None} if needs else {}))  # its model is still to be loaded
    return {name: value for name, value in _options_of(drafter).items() if name != needs}


def _rule(s: Settings, sampling: Sampling) -> Verifier:
    """The rule asked for, or else the library's own choice, with its options."""
    given = _pairs("--rule-option", s.rule_option, str)
    if s.budget is not None:
        if "budget" in given:
            raise BadOption(
                f"--budget {s.budget:g} and --rule-option budget={given['budget']} are one option; give one"
            )
        given["budget"] = s.budget
    name = Request().make_rule(sampling).name if s.rule is None else s.rule
    return Request(rule=make_rule(name, **given)).make_rule(sampling)


def _options_of(method: Any) -> dict[str, Any]:
    """The options of a drafter or a rule, as it has them."""
    return {f.name: getattr(method, f.name) for f in fields(method) if f.repr}


def _pairs(flag: str, texts: Sequence[str], key: Callable[[str], Any]) -> dict[Any, Any]:
    """The values of NAME=VALUE by the `key` of their names."""
    pairs: dict[Any, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise BadOption(f"{flag} {text}: give it as NAME=VALUE")
        if key(name) in pairs:
            raise BadOption(f"{flag} {text}: {name.strip()} is given twice; give it once")
        pairs[key(name)] = option_value(value)
    return pairs
