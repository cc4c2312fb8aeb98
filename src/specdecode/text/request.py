"""What a user asks for beside the prompt, and its way into a Session: limits, rule, noise and filters of one row.

Knows ids and the tokenizer's Decoder; no model weights and no loop.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field, fields, replace
from types import NoneType
from typing import Any, TypedDict

from ..constraints import Filters
from ..drafters import DEFAULT, DRAFTERS, Drafter, make_drafter
from ..errors import BadOption, check_count, check_flag, shown
from ..grammar import Grammar
from ..models.lm import LM
from ..sampling import Argmax, Keyed, Noise, Sampling, Stream, fresh_seed
from ..session import Session
from ..stopping import Stopping
from ..types import Prompt
from ..verify import Verifier, make_rule
from ..verify.coupled import Coupled
from ..verify.greedy import Greedy
from .detokenize import Decoder
from .stops import StopStrings


@dataclass(frozen=True)
class Limits:
    """Where an answer ends.

    max_new_tokens: the most new tokens; fewer where the model's context is full before.
    min_new_tokens: the model's end tokens are forbidden until then, and stop_ids do not end it. Stop strings do.
    stop:           strings that end the answer; a single one may be given as it is.
    stop_ids:       token ids that end it, beside the model's own end tokens.
    include_stop:   whether the text keeps the stop string. The ids always keep the token that completed it.
    ignore_eos:     go on past the model's own end tokens.
    Raises BadOption for a value of the wrong kind, an empty stop string and ids that are none."""

    max_new_tokens: int = 128
    min_new_tokens: int = 0
    stop: Sequence[str] = ()
    stop_ids: Sequence[int] = ()
    include_stop: bool = False
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        for name in ("stop", "stop_ids"):
            value = getattr(self, name)
            if not isinstance(value, Sequence | Set):
                raise BadOption(f"{name}={shown(value)} is no sequence; give one, such as ()")
            object.__setattr__(self, name, tuple(value))
        for name in ("include_stop", "ignore_eos"):
            check_flag(name, getattr(self, name))
        for stop in self.stop:
            if not isinstance(stop, str) or not stop:
                raise BadOption(f"stop={shown(stop)} is not a non-empty string; give one, or none at all")
        for token in self.stop_ids:
            check_count("stop id", token, 0)
        Stopping(self.max_new_tokens, self.min_new_tokens)  # refuses counts that are none


class Options(TypedDict, total=False):
    """Keyword arguments of Model.generate, stream and chat; see Request, and `max_new_tokens` for the limits' own."""

    drafter: str | Drafter | None
    rule: str | Verifier | None
    sampling: Sampling | Sequence[Sampling]
    limits: Limits
    max_new_tokens: int
    grammar: Grammar | None
    logprobs: int | None


@dataclass(frozen=True)
class Request:
    """How to continue prompts.

    drafter:  where drafts come from: a name of DRAFTERS, a Drafter, or None for plain decoding.
    rule:     how drafts are verified: a name of RULES, a Verifier, or None for "coupled" (one text a seed, with
              speculation or without). Greedy rows are always decoded by "greedy", unless the rule is a relaxed one.
    sampling: the law to draw from; a sequence gives each prompt of a list its own.
    limits:   where the answer ends.
    grammar:  what it must look like; it ends once nothing may follow. Every drafter but "null" then also drafts what
              the grammar leaves no choice about.
    logprobs: how many alternatives to report for each token; 0 reports the token's own log-probability alone.
    Raises BadOption for a value of the wrong kind."""

    drafter: str | Drafter | None = DEFAULT
    rule: str | Verifier | None = None
    sampling: Sampling | Sequence[Sampling] = field(default_factory=Sampling)
    limits: Limits = field(default_factory=Limits)
    grammar: Grammar | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        if hasattr(self.drafter, "generate"):
            raise BadOption("drafter: a Model is none by itself; make one of it: drafter=draft_model(model, target)")
        if isinstance(self.drafter, str) and self.drafter in DRAFTERS and DRAFTERS[self.drafter].needs:
            made = "draft_model(model, target)" if DRAFTERS[self.drafter].needs == "lm" else "make_drafter(...)"
            raise BadOption(f"drafter {self.drafter!r} is made of more than its name: drafter={made}")
        _check_kind("drafter", self.drafter, "a name, what make_drafter returned, or None", str, Drafter, NoneType)
        _check_kind("rule", self.rule, "a name, what make_rule returned, or None", str, Verifier, NoneType)
        _check_kind("limits", self.limits, "Limits(...)", Limits)
        _check_kind("grammar", self.grammar, "Grammar.json_schema(...), .regex(...) or .lark(...)", Grammar, NoneType)
        for law in self.sampling if isinstance(self.sampling, Sequence) else [self.sampling]:
            _check_kind("sampling", law, "Sampling(...), or one a prompt", Sampling)
        if self.logprobs is not None:
            check_count("logprobs", self.logprobs, 0)

    @classmethod
    def of(cls, *, max_new_tokens: int | None = None, **options: Any) -> Request:
        """The request of a call's keyword arguments. Raises BadOption for one that does not exist."""
        known = [f.name for f in fields(cls)]
        for name in options:
            if name not in known:
                hint = {f.name: f"sampling=Sampling({f.name}=...)" for f in fields(Sampling)}
                hint |= {f.name: f"limits=Limits({f.name}=...)" for f in fields(Limits)}
                raise BadOption(f"there is no option {name!r}; use {hint.get(name) or ', '.join(known)}")
        request = cls(**options)
        if max_new_tokens is None:
            return request
        return replace(request, limits=replace(request.limits, max_new_tokens=max_new_tokens))

    def make_drafter(self) -> Drafter:
        name = "null" if self.drafter is None else self.drafter
        return make_drafter(name) if isinstance(name, str) else name

    def make_rule(self, sampling: Sampling) -> Verifier:
        """The rule that serves one row. Raises BadOption for a greedy rule where tokens are to be drawn."""
        if self.rule is None:
            return Greedy() if sampling.greedy else Coupled()
        rule = make_rule(self.rule) if isinstance(self.rule, str) else self.rule
        if not rule.draws and not sampling.greedy:
            raise BadOption(
                f"rule {rule.name!r} cannot draw at temperature {sampling.effective_temperature:g}; use 'coupled' or "
                "'rejection', or temperature 0"
            )
        return Greedy() if sampling.greedy and rule.lossless else rule


def open_session(
    lm: LM, decoder: Decoder, ids: tuple[int, ...], eos_ids: Sequence[int], sampling: Sampling, request: Request
) -> tuple[Session, Verifier]:
    """One row of a batch, and its rule. A seed is drawn for a sampling that has none.

    Raises BadOption for what the model cannot honour; whether the prompt itself is sound is asked by `lm.open`."""
    limits = request.limits
    _check_ids(limits.stop_ids, request.logprobs, lm.vocab)
    rule = request.make_rule(sampling)
    room = max(1, lm.context - len(ids))
    eos = () if limits.ignore_eos else tuple(eos_ids)
    ends = frozenset((*eos, *limits.stop_ids))
    grammar = None
    if request.grammar is not None:
        grammar = request.grammar.matcher(decoder.tokenizer, lm.vocab, eos_ids, len(ids), ends)
    filters = Filters(
        sampling,
        prompt_length=len(ids),
        vocab=lm.vocab,
        min_new_tokens=limits.min_new_tokens,
        eos_ids=eos,
        grammar=grammar,
    )
    stopping = Stopping(
        max_new_tokens=min(limits.max_new_tokens, room),
        min_new_tokens=min(limits.min_new_tokens, room),
        stop_ids=ends,
        scanner=StopStrings(decoder, limits.stop) if limits.stop else None,
        grammar=grammar,
    )
    noise = make_noise(rule, sampling, lm.vocab)
    return Session(Prompt(ids), filters, noise, stopping, request.logprobs, grammar), rule


def seeded(sampling: Sampling) -> Sampling:
    """`sampling` with a seed of its own where it will need one and has none."""
    return sampling if sampling.greedy or sampling.seed is not None else replace(sampling, seed=fresh_seed())


def make_noise(rule: Verifier, sampling: Sampling, vocab: int) -> Noise:
    """The source of chance of one session. Raises nothing: a sampling that draws has a seed by now."""
    if sampling.greedy:
        return Argmax()
    assert sampling.seed is not None
    return Keyed(sampling.seed, vocab) if rule.keyed else Stream(sampling.seed)


def _check_kind(name: str, value: object, wanted: str, *kinds: type) -> None:
    if isinstance(value, type) or not isinstance(value, kinds):  # a class has the methods that a protocol asks for
        found = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise BadOption(f"{name}: {found} will not do; give {wanted}")


def _check_ids(stop_ids: Sequence[int], logprobs: int | None, vocab: int) -> None:
    for token in stop_ids:
        if token >= vocab:
            raise BadOption(f"stop id {token} is not one of the model's: ids run from 0 to {vocab - 1}")
    if logprobs is not None and logprobs > vocab:
        raise BadOption(f"logprobs={logprobs} asks for more alternatives than there are ids; give at most {vocab}")
