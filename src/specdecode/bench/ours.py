"""Our own arms: the engine with a drafter of the table. Knows the engine and the drafters; no peer, no file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from .. import costs
from ..drafters import DRAFTERS, Drafter, make_drafter
from ..drafters.auto import Auto
from ..engine import Generation
from ..errors import BadOption
from ..metrics import Metrics
from ..models.lm import LM, read
from ..models.loading import as_dtype
from ..models.runtime import check_runtime
from ..sampling import Sampling
from ..text.detokenize import Decoder
from ..text.load import draft_model
from ..text.model import Model
from ..text.request import Limits, Request, open_session
from ..types import Prompt, Row
from ..verify import Verifier, make_rule
from .arms import Models, Source
from .records import Timing

SMALL = "lm"  # the drafter that is made of the draft model
OF_THE_MODEL = ("dtype", "runtime")
BY_TEXT = (None, "store")  # what drafters need that a text can give


@dataclass(frozen=True)
class Ours:
    """options: the drafter's, but for those that are objects. sources: the names of the drafters that it is made of, if
    it is. changes: what this arm's model has its own way."""

    drafter: str
    options: Mapping[str, Any]
    sources: tuple[str, ...]
    rule: Verifier | None
    changes: Mapping[str, Any]

    @classmethod
    def of(cls, drafter: str, options: Mapping[str, Any]) -> Ours:
        """Raises BadOption for an option that does not exist."""
        own = dict(options)
        changes = {name: own.pop(name) for name in OF_THE_MODEL if name in own}
        check_runtime(changes.get("runtime"), as_dtype(changes.get("dtype")))
        rule = _rule({name: own.pop(name) for name in options if name.partition(".")[0] == "rule"})
        sources = tuple(str(own.pop("sources")).split("+")) if "sources" in own else ()
        if sources and drafter == SMALL:
            raise BadOption(f"arm {drafter} has no sources; leave them out, or ask for auto:sources=NAME+NAME")
        needs = DRAFTERS[drafter].needs
        if needs not in BY_TEXT and (needs in own or needs != DRAFTERS[SMALL].needs):
            raise BadOption(f"arm {drafter}: {needs} cannot be given by name; auto:sources=NAME+NAME unites drafters")
        recipe = cls(drafter, own, sources, rule, changes)
        try:
            recipe.make(lambda **own: make_drafter(SMALL, lm=None, **own))  # refuses what does not exist
        except BadOption as error:
            if rule is None:
                raise
            raise BadOption(f"{error} (and those of rule {rule.name!r} are given as rule.NAME=value)") from error
        return recipe

    def check(self, source: Source) -> None:
        if SMALL in (self.drafter, *self.sources) and source.draft_model is None:
            raise BadOption(f"arm {self.drafter} drafts with a smaller model; name the draft model")

    def open(self, models: Models) -> Engine:
        target = models.target(**self.changes)
        drafter = self.make(lambda **own: draft_model(models.draft(**self.changes), target, **own))
        for lm in drafter.models(target.lm) if isinstance(drafter, Auto) else ():
            costs.of(lm)  # measured now, if ever, and not in the first answer that is timed
        return Engine(target, drafter, self.rule)

    def make(self, small: Callable[..., Drafter]) -> Drafter:
        """The drafter. small: makes SMALL, given its options."""
        if self.drafter == SMALL:
            return small(**self.options)
        sources = tuple(small() if name == SMALL else name for name in self.sources)
        return make_drafter(self.drafter, **self.options, **({"sources": sources} if sources else {}))


class Engine:
    """The arm at work: the engine's own steps, without turning ids into text, which the peers do not do either."""

    def __init__(self, model: Model, drafter: Drafter, rule: Verifier | None) -> None:
        self._model, self._drafter, self._rule = model, drafter, rule
        self._decoder = Decoder(model.tokenizer)
        model.check_drafter(drafter)
        self.about = model.lm.signature or model.name

    def run(self, ids: Sequence[int], max_new_tokens: int) -> Timing:
        request = Request(self._drafter, self._rule, limits=Limits(max_new_tokens))
        lm, prompt = self._model.lm, tuple(ids)
        started = perf_counter()
        session, rule = open_session(lm, self._decoder, prompt, self._model.eos_ids, Sampling(), request)
        generation = Generation(lm, self._drafter, [session], [rule])
        times = [perf_counter() for _ in generation]
        metrics = Metrics.from_records(session.records)
        return Timing(
            tokens=tuple(session.new_tokens),
            steps=tuple(record.emitted for record in session.records),
            first_s=times[0] - started,
            total_s=times[-1] - started,
            draft_s=metrics.draft_s,
            target_s=metrics.target_s,
            steps_s=metrics.total_s,
            drafted=metrics.drafted,
            accepted=metrics.accepted,
        )


def _rule(options: dict[str, Any]) -> Verifier | None:
    """The rule of `rule=NAME,rule.option=value`; None where none is named."""
    name = options.pop("rule", None)
    own = {option.removeprefix("rule."): value for option, value in options.items()}
    if name is None and own:
        raise BadOption(f"rule.{next(iter(own))} is an option of a rule, and none is named; give rule=NAME too")
    return None if name is None else make_rule(name, **own)


def gap(lm: LM, ids: Sequence[int], plain: int, token: int) -> float:
    """How much higher the model rates `plain` than `token` as the next one after `ids`, in logits."""
    cache = lm.open([Prompt(tuple(ids))])
    read(lm, cache, {0: ids[:-1]})
    (scores,) = lm.score(cache, [Row(0, (ids[-1],), (-1,))])
    return float(scores.logits[0, plain] - scores.logits[0, token])
