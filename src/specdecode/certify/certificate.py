"""All tests in a row, and the certificate that they make: of a model with a drafter and a rule, or of texts from
elsewhere. Knows what each test is asked, not how it finds out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import cycle, islice
from typing import Any, TypeVar

from ..bench.machine import machine
from ..bench.questions import Question, read_questions
from ..drafters import DEFAULT, Drafter
from ..errors import OutOfContext, check_count
from ..sampling import Sampling
from ..text.completion import Completion
from ..text.model import Model
from ..text.request import Request
from .findings import NOT_APPLICABLE, Certificate, Finding, Tick
from .kv import KINDS, integrity
from .outputs import Line, check_lines, judge_lines
from .parity import COUPLED, coupled, greedy
from .sampled import BATCH, FREQUENCIES, RANKS, SCORE, answers, frequencies
from .subject import Subject

T = TypeVar("T")

RULE = "rejection"  # of sampled texts, unless another is asked for: the one with a law to get wrong
COST = "cost"
PASSAGE, AGAIN = 12, 3  # tokens of a text, and the fewest of its beginning that are said again


@dataclass(frozen=True)
class Counts:
    """How much is tested.

    prompts: greedy texts. seeds: sampled ones with and without speculation. answers: long ones for score and ranks.
    places, draws: prefixes at which frequencies are counted, and short answers from each. rows: of the batch whose
    cache is examined. Raises BadOption for a number below 1."""

    prompts: int = 8
    seeds: int = 8
    answers: int = 16
    places: int = 3
    draws: int = 192
    rows: int = 3

    def __post_init__(self) -> None:
        for f in fields(self):
            check_count(f.name, getattr(self, f.name), 1)

    @property
    def units(self) -> int:
        """How often `tick` is called at most."""
        return self.prompts + self.seeds + self.answers + self.places * -(-self.draws // BATCH) + len(KINDS) + 1


DEFAULT_COUNTS = Counts()
THOROUGH = Counts(prompts=32, seeds=32, answers=64, places=8, draws=768, rows=6)


def check(
    model: Model,
    drafter: str | Drafter | None = DEFAULT,
    *,
    questions: Sequence[Question] = (),
    counts: Counts = DEFAULT_COUNTS,
    tick: Tick = lambda what: None,
    **options: Any,
) -> Certificate:
    """The certificate of `drafter` and `rule` on `model`, here.

    options:   as Model.generate takes them. The sampling is that of sampled texts, at temperature 1 if absent; at
               temperature 0 only what is greedy is tested. The rule is theirs too, RULE if absent: greedy texts are
               decoded by "greedy" or a relaxed rule, where one is asked for, and sampled parity is the coupled rule's.
    questions: whose first turns are the prompts, if they and an answer fit into the context; the benchmark's own if
               there are none. Greedy texts take each once, sampled ones begin anew.
    tick:      told what was done, counts.units times at most.
    Raises a SpecError for what cannot be honoured."""
    given = {"rule": RULE, "sampling": Sampling(temperature=1.0), **options}
    subject = Subject.of(model, Request.of(drafter=drafter, **given))
    texts = [question.turns[0] for question in varied(questions or read_questions())]
    prompts = _fitting(model, texts, subject.limits.max_new_tokens)
    findings, drawn = greedy(subject, prompts[: counts.prompts], tick)
    if subject.sampling.greedy:
        reason = "temperature 0 draws nothing"
        findings += [Finding.not_applicable(test, reason) for test in (COUPLED, FREQUENCIES, SCORE, RANKS)]
    else:
        places = [_passage_again(model.encode(text), i) for i, text in enumerate(_first(texts, counts.places))]
        sampled, long = answers(subject, _first(prompts, counts.answers), tick)
        findings.append(coupled(subject, _first(prompts, counts.seeds), tick))
        findings += [frequencies(subject, places, counts.draws, tick), *sampled]
        drawn += long
    if not subject.rule.lossless:
        kept = (COUPLED, *(f.test for f in findings if f.outcome == NOT_APPLICABLE))
        findings = [f if f.test in kept else f.without_promise(subject.rule.name) for f in findings]
        findings.append(judge_cost(drawn, getattr(subject.rule, "budget", None)))
    findings.append(integrity(model.lm, prompts[: counts.rows], tick))
    return Certificate(tuple(findings), {**_about(model), **_tested(subject), "counts": asdict(counts)})


def judge(
    model: Model, lines: Sequence[Line], *, gap: float | None = None, tick: Tick = lambda what: None
) -> Certificate:
    """The certificate of texts that were decoded elsewhere, said to be of `model`, which is to be in float32: what it
    rounds more coarsely is held against the texts.

    gap:  the largest one in logits at which a greedy choice is excused; what rounding explains here if absent.
    tick: told of each line. Raises BadInput for lines that are not of this model, before any pass."""
    check_lines(lines, model.lm)
    findings = judge_lines(model, lines, gap, tick)
    return Certificate(tuple(findings), {**_about(model), "outputs": len(lines), "gap": gap})


def judge_cost(drawn: Sequence[Completion], budget: float | None) -> Finding:
    """What a relaxed rule let the answers cost, in nats. Within a budget, it must keep to it."""
    nats, tokens = [answer.metrics.nats for answer in drawn], sum(len(answer.tokens) for answer in drawn)
    found = f"at most {max(nats):.2f} nats an answer, {sum(nats) / tokens:.3f} a token"
    limit = "no budget" if budget is None else f"{budget:g} nats an answer"
    return Finding.of(COST, budget is None or max(nats) <= budget + 1e-6, found, limit, nats=nats, budget=budget)


def varied(questions: Sequence[Question]) -> list[Question]:
    """One of each task, then another of each, so that any number of them has all kinds."""
    seen = Counter[str]()
    turns = []
    for question in questions:
        turns.append(seen[question.task])
        seen[question.task] += 1
    return [question for _, question in sorted(zip(turns, questions, strict=True), key=lambda pair: pair[0])]


def _fitting(model: Model, texts: Sequence[str], room: int) -> list[tuple[int, ...]]:
    """The prompts of those texts that leave room for an answer."""
    prompts = [model.prompt(text) for text in texts]
    fitting = [ids for ids in prompts if len(ids) + room <= model.lm.context]
    if not fitting:
        raise OutOfContext(
            f"no prompt and {room} new tokens fit into the model's context of {model.lm.context}: ask for fewer, or "
            "give shorter prompts"
        )
    return fitting


def _first(things: Sequence[T], count: int) -> list[T]:
    return list(islice(cycle(things), count))


def _passage_again(ids: Sequence[int], index: int) -> tuple[int, ...]:
    """The beginning of a text, and the beginning of that again: short, for each answer reads it anew, and something
    that lookups can draft after."""
    return (*ids[:PASSAGE], *ids[1 : 1 + AGAIN + index % 3])


def _about(model: Model) -> dict[str, Any]:
    return {"model": model.name, "signature": model.lm.signature, "machine": machine()}


def _tested(subject: Subject) -> dict[str, Any]:
    law, grammar = subject.sampling, subject.request.grammar
    sampling = {**asdict(replace(law, processors=())), "processors": [type(p).__name__ for p in law.processors]}
    return {
        "drafter": subject.drafter.name,
        "rule": subject.rule.name,
        "lossless": subject.rule.lossless,
        "sampling": {**sampling, "logit_bias": dict(law.logit_bias), "temperature": law.effective_temperature},
        "seed": law.seed,
        "grammar": None if grammar is None else asdict(grammar),
        "limits": asdict(subject.limits),
    }
