"""Texts that were decoded elsewhere, judged from outside: prompt ids, sampling settings and output ids, a JSON object a
line. Greedy texts are to be the model's argmax, token after token; sampled ones are to have its law.

Any engine that runs the same weights can be certified like this, by a model in float32. Knows nothing of how the texts
were made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..errors import BadInput, SpecError, is_count, shown
from ..files import json_lines
from ..models.lm import LM, check_prompt
from ..sampling import Sampling
from ..text.model import Model
from ..text.request import Request
from ..types import Prompt
from .findings import FAIL, Finding, Tick
from .parity import GAP, GREEDY, Parted, judge_gap, judge_parity
from .reference import Reference, near_tie
from .sampled import RANKS, SCORE, is_truncated, judge_told
from .statistics import Told

KEYS = ("prompt_ids", "sampling", "output_ids")
OPTIONS = tuple(f.name for f in fields(Sampling) if f.name != "processors")  # which are no JSON
COARSER = "an engine that computes in bfloat16 may part by some tenths: give it a gap"
SEED = 0  # of the coins that ranks are drawn with: a file is judged alike every time


@dataclass(frozen=True)
class Line:
    """where: the file and the line's number, for messages."""

    where: str
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    output_ids: tuple[int, ...]


def read_outputs(path: Path | str) -> tuple[Line, ...]:
    """The lines of a file of JSON objects with KEYS; `sampling` has the fields of Sampling.

    Raises BadInput for a file that cannot be read or that holds a line which will not do, naming the line."""
    lines = tuple(_parse(entry, where) for where, entry in json_lines(path, "outputs", "text"))
    if not lines:
        raise BadInput(f"{path} holds no outputs; give a file of JSON lines with {', '.join(KEYS)}")
    return lines


def check_lines(lines: Sequence[Line], lm: LM) -> None:
    """Raises BadInput for a line that this model cannot have decoded, before any pass."""
    for line in lines:
        try:
            check_prompt(Prompt(line.prompt_ids), lm.vocab, lm.context)
            line.sampling.check_vocabulary(lm.vocab)
        except SpecError as error:
            raise BadInput(f"{line.where}: {error}") from error
        strange = next((token for token in line.output_ids if token >= lm.vocab), None)
        if strange is not None:
            raise BadInput(
                f"{line.where}: output_ids holds {strange}, but ids run from 0 to {lm.vocab - 1}: wrong tokenizer?"
            )
        length = len(line.prompt_ids) + len(line.output_ids)
        if length > lm.context:
            raise BadInput(f"{line.where}: {length} ids exceed the model's context of {lm.context}; shorten the text")


def judge_lines(model: Model, lines: Sequence[Line], most: float | None, tick: Tick) -> list[Finding]:
    """most: the largest gap in logits at which a greedy choice is excused; None takes what rounding explains here."""
    reference, largest = Reference(model), most or 0.0
    greedy, parted, told = [], [], []
    for i, line in enumerate(lines):
        exact = reference.laws(line.prompt_ids, line.output_ids, Request(sampling=line.sampling))
        if not line.sampling.greedy:
            cut = is_truncated(line.sampling)
            told += [Told.of(law, token, cut) for law, token in zip(exact, line.output_ids, strict=True)]
            tick(line.where)
            continue
        greedy.append(len(line.output_ids))
        for at, (law, token) in enumerate(zip(exact, line.output_ids, strict=True)):
            excused = near_tie(model.lm, law) if most is None else most
            largest = max(largest, excused)
            if (best := int(law.max(-1).indices)) != token:
                gap = float(law[best] - law[token])
                parted.append(Parted(i, at, best, token, gap, gap <= excused))
                if gap > excused:
                    break
        tick(line.where)
    judged = _greedy(greedy, parted, largest)
    if most is None and judged[-1].outcome == FAIL and judged[-1].figures["largest"] < 1:
        judged[-1] = replace(judged[-1], reason=COARSER)
    return [*judged, *_sampled(told)]


def _greedy(lengths: Sequence[int], parted: Sequence[Parted], most: float) -> list[Finding]:
    if not lengths:
        return [Finding.not_applicable(test, "the file has no greedy texts") for test in (GREEDY, GAP)]
    return [judge_parity(GREEDY, lengths, parted), judge_gap(parted, most)]


def _sampled(told: Sequence[Told]) -> list[Finding]:
    if not told:
        return [Finding.not_applicable(test, "the file has no sampled texts") for test in (SCORE, RANKS)]
    return judge_told(told, SEED)


def _parse(entry: Any, where: str) -> Line:
    if not isinstance(entry, dict):
        raise BadInput(f"{where} is no object, found {shown(entry)}; give {', '.join(KEYS)}")
    for problem, wrong in (
        ("lacks", [key for key in KEYS if key not in entry]),
        ("has the unknown", [key for key in entry if key not in KEYS]),
    ):
        if wrong:
            raise BadInput(f"{where} {problem} {shown(wrong[0])}; give {', '.join(KEYS)}")
    prompt, output = (_ids(entry[key], key, where) for key in ("prompt_ids", "output_ids"))
    return Line(where, prompt, _sampling(entry["sampling"], where), output)


def _ids(value: Any, key: str, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or not all(map(is_count, value)):
        raise BadInput(f"{where}: {key} must be a list of token ids that is not empty, found {shown(value)}")
    return tuple(value)


def _id(key: str) -> int | str:
    """The token that a key of JSON names; the key itself where it names none (Python reads no digits by thousands)."""
    return int(key) if key.isdecimal() and len(key) < 20 else key


def _sampling(value: Any, where: str) -> Sampling:
    if not isinstance(value, dict):
        raise BadInput(f"{where}: sampling must be an object such as {{}}, found {shown(value)}")
    for option in value:
        if option not in OPTIONS:
            raise BadInput(f"{where}: sampling has no option {shown(option)}; its options are: {', '.join(OPTIONS)}")
    bias = value.get("logit_bias", {})
    if isinstance(bias, dict):  # JSON writes ids as strings
        value = {**value, "logit_bias": {_id(key): added for key, added in bias.items()}}
    try:
        return Sampling(**value)
    except SpecError as error:
        raise BadInput(f"{where}: {error}") from error
