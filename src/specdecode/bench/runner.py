"""The benchmark at work: every prompt goes to every arm before the next prompt comes, and each answer is kept at once.

Knows arms by their protocol, questions, and the journal; no figures and no report.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from ..errors import BadInput, BadOption, check_count
from ..metrics import first_difference
from ..models.embedded import NAME
from ..text.detokenize import Decoder
from ..text.model import Model
from .arms import DEFAULT_ARMS, PLAIN, Arm, Models, Recipe, Source, parse
from .machine import machine
from .ours import gap
from .questions import Question, read_questions, select
from .records import RECORDS, About, Answer, Divergence, Journal, LeftOut, Place

Watch = Callable[[int, int, str], None]  # (answers done, answers in all, what is being done)


@dataclass(frozen=True)
class Plan:
    """What to measure. arms: texts as `arms` explains them; the plain arm is added where it is not named.

    warmups: answers to the first question that each arm gives before it is timed.
    Raises a SpecError for whatever cannot be honoured, before anything is loaded."""

    arms: tuple[str, ...] = DEFAULT_ARMS
    questions: tuple[Question, ...] = field(default_factory=lambda: select(read_questions()))
    source: Source = field(default_factory=Source)
    max_new_tokens: int = 128
    repeats: int = 1
    warmups: int = 1

    def __post_init__(self) -> None:
        for name, least in (("max_new_tokens", 2), ("repeats", 1), ("warmups", 0)):
            check_count(name, getattr(self, name), least)
        if not self.questions:
            raise BadOption("there are no questions; give at least one")
        names = list(self.arms) if PLAIN in self.arms else [PLAIN, *self.arms]
        for name in names:
            if names.count(name) > 1:
                raise BadOption(f"arm {name} is given twice; give it once")
        object.__setattr__(self, "arms", tuple(names))
        for recipe in self.recipes().values():
            recipe.check(self.source)

    def recipes(self) -> dict[str, Recipe]:
        return {name: parse(name) for name in self.arms}

    def settings(self) -> dict[str, Any]:
        """What the figures depend on, ready for JSON: a run can be gone on with where all of it is the same."""
        asked = json.dumps([asdict(question) for question in self.questions])
        return {
            "format": 1,
            **asdict(self.source),
            "model": self.source.model or NAME,
            "arms": list(self.arms),
            "tasks": list(dict.fromkeys(question.task for question in self.questions)),
            "questions": len(self.questions),
            "questions_sha256": hashlib.sha256(asked.encode()).hexdigest(),
            "max_new_tokens": self.max_new_tokens,
            "repeats": self.repeats,
            "warmups": self.warmups,
            "machine": machine(),
        }

    def prompts(self) -> Iterator[tuple[Question, Place]]:
        """Every prompt in the order in which it is asked: rounds, questions, turns."""
        for repeat in range(self.repeats):
            for question in self.questions:
                for turn in range(len(question.turns)):
                    yield question, Place(question.id, turn, repeat)

    def is_finished(self, journal: Journal) -> bool:
        """Whether every prompt was answered by every arm, and compared, or left out."""
        return all(
            (place.question, place.turn) in journal.left_out
            or (all((arm, place) in journal.answers for arm in self.arms) and not differing(self.arms, journal, place))
            for _, place in self.prompts()
        )


def measure(plan: Plan, folder: Path, watch: Watch = lambda done, total, what: None) -> Journal:
    """Answer every prompt with every arm that has not answered it yet, and return the closed journal of all answers.

    Nothing is loaded where nothing is left to do. Raises BadOption for a folder of another run, and BadInput for one
    that holds records of others as well."""
    with Journal(folder, plan.settings()) as journal:
        _check_ours(plan, journal)
        if not plan.is_finished(journal):
            with Models(plan.source) as models:
                _Run(plan, journal, watch, models).go()
    return journal


def _check_ours(plan: Plan, journal: Journal) -> None:
    """Whether all that is kept was asked by this plan."""
    places = {place for _, place in plan.prompts()}
    turns = {(place.question, place.turn) for place in places}
    told = (*journal.answers, *journal.divergences)
    foreign = [f"arm {arm}" for arm in (*journal.about, *(arm for arm, _ in told)) if arm not in plan.arms]
    foreign += [f"question {place.question}" for _, place in told if place not in places]
    foreign += [f"question {question}" for question, turn in journal.left_out if (question, turn) not in turns]
    if foreign:
        raise BadInput(f"{journal.folder / RECORDS} holds what was never asked ({foreign[0]}); choose another folder")


class _Run:
    """One sitting: loaded arms that work through what is left."""

    def __init__(self, plan: Plan, journal: Journal, watch: Watch, models: Models) -> None:
        self._plan, self._journal, self._watch = plan, journal, watch
        self._total = len(plan.arms) * sum(1 for _ in plan.prompts())
        self._tell("loading the model")
        self._model = models.target()
        self._decoder = Decoder(self._model.tokenizer)
        self._arms: dict[str, Arm] = {}
        for name, recipe in plan.recipes().items():
            self._tell(f"loading {name}")
            arm = self._arms[name] = recipe.open(models)
            if name not in journal.about:
                journal.append(About(name, arm.about))

    def go(self) -> None:
        self._warm_up()
        for index, (question, place) in enumerate(self._plan.prompts()):
            ids = self._ids(question, place.turn)
            if ids is not None:
                self._ask(ids, place, rotated(self._plan.arms, index))
                self._compare(ids, place)

    def _warm_up(self) -> None:
        """On the first question that fits."""
        prompts = (encode(self._model, question.turns[:1], []) for question in self._plan.questions)
        for ids in islice(filter(self._fits, prompts), 1):
            for name, arm in self._arms.items():
                self._tell(f"warming up {name}")
                for _ in range(self._plan.warmups):
                    arm.run(ids, self._plan.max_new_tokens)

    def _ids(self, question: Question, turn: int) -> tuple[int, ...] | None:
        """The prompt of a turn, after the plain arm's first-round answers to the turns before; None where it is left
        out. Every arm is given the same ids, whatever it answered before itself."""
        if any((question.id, earlier) in self._journal.left_out for earlier in range(turn + 1)):
            return None
        earlier = [self._journal.answers[PLAIN, Place(question.id, t, 0)].timing.tokens for t in range(turn)]
        ids = encode(self._model, question.turns[: turn + 1], [self._decoder.decode(tokens) for tokens in earlier])
        if self._fits(ids):
            return ids
        for later in range(turn, len(question.turns)):
            self._journal.append(LeftOut(question.id, later, len(ids)))
        return None

    def _fits(self, ids: Sequence[int]) -> bool:
        return len(ids) + self._plan.max_new_tokens <= self._model.lm.context

    def _ask(self, ids: tuple[int, ...], place: Place, names: Sequence[str]) -> None:
        for name in names:
            if (name, place) not in self._journal.answers:
                self._tell(f"{place.question}: {name}")
                timing = self._arms[name].run(ids, self._plan.max_new_tokens)
                self._journal.append(Answer(name, place, len(ids), timing))

    def _compare(self, ids: tuple[int, ...], place: Place) -> None:
        """Keep where each answer leaves the plain arm's, if it does."""
        plain = self._journal.answers[PLAIN, place].timing.tokens
        for name, position in differing(self._plan.arms, self._journal, place).items():
            tokens = self._journal.answers[name, place].timing.tokens
            ours, other = (answer[position] if position < len(answer) else None for answer in (plain, tokens))
            higher = None
            if ours is not None and other is not None and other < self._model.lm.vocab:
                higher = gap(self._model.lm, (*ids, *plain[:position]), ours, other)
            self._journal.append(Divergence(name, place, position, ours, other, higher))

    def _tell(self, what: str) -> None:
        self._watch(len(self._journal.answers), self._total, what)


def encode(model: Model, turns: Sequence[str], answers: Sequence[str]) -> tuple[int, ...]:
    """The prompt of the last of `turns`, the ones before it answered: by the chat template, or as plain text where the
    model has none."""
    if not model.has_chat_template:
        parts = [part for pair in zip(turns, answers, strict=False) for part in pair]
        return model.encode("\n\n".join([*parts, turns[-1]]))
    messages = []
    for turn, answer in zip(turns, answers, strict=False):
        messages += [{"role": "user", "content": turn}, {"role": "assistant", "content": answer}]
    return model.chat_prompt([*messages, {"role": "user", "content": turns[-1]}])


def rotated(names: Sequence[str], index: int) -> tuple[str, ...]:
    """The arms in another order for each prompt, so that none is always the first."""
    start = index % len(names)
    return (*names[start:], *names[:start])


def differing(arms: Sequence[str], journal: Journal, place: Place) -> dict[str, int]:
    """The arms whose answer leaves the plain one where nobody has noted it yet, and after how many tokens."""
    plain = journal.answers[PLAIN, place].timing.tokens
    positions = {name: first_difference(plain, journal.answers[name, place].timing.tokens) for name in arms}
    return {
        name: position
        for name, position in positions.items()
        if position is not None and (name, place) not in journal.divergences
    }
