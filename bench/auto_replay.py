"""How often lookups are right, by the length of their match, and what the drafter auto makes of that where passes cost
what some made-up machines say. Prints two tables, then one JSON line.

`python bench/auto_replay.py [--questions FILE] [--per-task N]`. The default model answers once, plainly; the answers
are then decoded again by the real engine and drafters from their record, by a clock that only recorded passes move. So
the second table is the same on every machine, however busy it is.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import specdecode as sd
from specdecode.bench.questions import OURS, read_questions, select
from specdecode.constraints import Filters
from specdecode.costs import Curve
from specdecode.drafters import Drafter
from specdecode.drafters.auto import Auto
from specdecode.drafters.automaton import SuffixAutomaton
from specdecode.drafters.ngram import RECURRENCE, Ngram
from specdecode.drafters.null import Null
from specdecode.engine import Generation
from specdecode.models.lm import Capabilities
from specdecode.sampling import Argmax, Sampling
from specdecode.session import Session
from specdecode.stopping import Stopping
from specdecode.types import Prompt, Row, Scores
from specdecode.verify.greedy import Greedy

TOKENS = 96
ROWS = (1, 2, 4, 8, 16, 32)
MACHINES = {  # ms of a pass over ROWS
    "flat": (12, 12.2, 12.8, 14, 22, 38),
    "int8": (13, 14, 15, 17, 24, 35),
    "fp16": (12, 13, 15, 20, 30, 50),
    "transformers": (57, 75, 81, 84, 92, 121),
    "llama.cpp": (8.3, 18, 20, 28, 42, 80),
}


@dataclass(frozen=True)
class Answer:
    task: str
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


def answers(path: str, per_task: int) -> list[Answer]:
    model = sd.load()
    out = []
    for question in select(read_questions(path), per_task=per_task):
        prompt = model.chat_prompt(question.turns[0])
        out.append(Answer(question.task, prompt, model.generate(prompt, drafter=None, max_new_tokens=TOKENS).tokens))
    return out


def recurrence(answer: Answer) -> list[tuple[int, bool]]:
    """For each token of an answer, how long a match the tokens before it had, and whether what followed it followed."""
    seen = list(answer.prompt)
    index, out = SuffixAutomaton(seen, len(RECURRENCE)), []
    for token in answer.tokens:
        length, end = index.longest()
        out.append((length, length > 0 and seen[end + 1] == token))
        seen.append(token)
    return out


class Recorded:
    """An LM that says what an answer says, and whose passes move a clock. Its ids are those of the answer, counted."""

    signature, n_layers, context, capabilities = "", 1, 1 << 20, Capabilities(taps=False, layers=False)

    def __init__(self, answer: Answer, curve: Curve, noise: float) -> None:
        number = {token: i for i, token in enumerate(dict.fromkeys((*answer.prompt, *answer.tokens)))}
        self.prompt = tuple(number[token] for token in answer.prompt)
        self.vocab, self.now = len(number), 0.0
        self._text = torch.tensor([*self.prompt, *(number[token] for token in answer.tokens), 0])
        self._curve, self._noise, self._rng = curve, noise, random.Random(len(answer.prompt))

    def open(self, prompts: Sequence[Prompt]) -> Recorded:
        self.lengths: tuple[int, ...] = (0,)
        return self

    def score(self, cache: Any, rows: Sequence[Row], *, logits: bool = True, **_: Any) -> list[Scores]:
        (row,), (length,) = rows, self.lengths
        depth: list[int] = []
        for parent in row.parents:
            depth.append(length if parent < 0 else depth[parent] + 1)
        said = self._text[torch.tensor(depth).clamp(max=len(self._text) - 2) + 1]
        if logits:
            self.now += self._curve(len(depth), length) * self._rng.lognormvariate(0, self._noise)
        return [Scores(torch.nn.functional.one_hot(said, self.vocab).float())]

    def keep(self, row: int, path: Sequence[int]) -> None:
        self.lengths = (self.lengths[0] + len(path),)

    def release(self, row: int) -> None:
        pass


def seconds(answer: Answer, make: Callable[[Recorded], Drafter], curve: Curve, noise: float = 0.0) -> float:
    lm = Recorded(answer, curve, noise)
    filters = Filters(Sampling(), prompt_length=len(lm.prompt), vocab=lm.vocab)
    session = Session(Prompt(lm.prompt), filters, Argmax(), Stopping(len(answer.tokens)))
    for _ in Generation(lm, make(lm), [session], [Greedy()]):
        pass
    return lm.now


def arms(curve: Curve) -> dict[str, tuple[Callable[[Recorded], Drafter], float]]:
    """By name, a drafter and the noise of the clock."""

    def auto(believed: Curve) -> Callable[[Recorded], Drafter]:
        return lambda lm: Auto(curve=believed, clock=lambda: lm.now)

    return {
        "plain": (lambda lm: Null(), 0.0),
        "ngram": (lambda lm: Ngram(), 0.0),
        "auto": (auto(curve), 0.0),
        "auto, times vary by 10 %": (auto(curve), 0.1),
        "auto, believing flat": (auto(curve_of("flat")), 0.0),
        "auto, believing llama.cpp": (auto(curve_of("llama.cpp")), 0.0),
    }


def curve_of(machine: str) -> Curve:
    return Curve.fit(ROWS, (0,), (MACHINES[machine],))


def replay(texts: Sequence[Answer], machine: str) -> dict[str, dict[str, float]]:
    """Tokens per second over plain decoding's, by arm and task; "worst" is that of the worst answer."""
    curve, out = curve_of(machine), {}
    plain = [seconds(answer, lambda lm: Null(), curve) for answer in texts]
    for name, (make, noise) in arms(curve).items():
        took = [seconds(answer, make, curve, noise) for answer in texts]
        by_task: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for answer, base, mine in zip(texts, plain, took, strict=True):
            for task in (answer.task, "all"):
                by_task[task] = [by_task[task][0] + base, by_task[task][1] + mine]
        out[name] = {task: base / mine for task, (base, mine) in by_task.items()}
        out[name]["worst"] = min(base / mine for base, mine in zip(plain, took, strict=True))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", default=str(OURS))
    parser.add_argument("--per-task", type=int, default=3)
    asked = parser.parse_args()
    texts = answers(asked.questions, asked.per_task)
    counts: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for length, right in (trial for answer in texts for trial in recurrence(answer)):
        counts[length] = [counts[length][0] + right, counts[length][1] + 1]
    print("match  tokens  right  assumed")
    for length, (right, n) in sorted(counts.items()):
        assumed = RECURRENCE[length - 1] if length else 0.0
        print(f"{length:5} {n:7} {right / n:6.2f} {assumed:8.2f}")
    found = {machine: replay(texts, machine) for machine in MACHINES}
    for machine, by_arm in found.items():
        print(f"\n{machine}: {MACHINES[machine]} ms")
        for name, ratios in by_arm.items():
            print(f"  {name:26}", *(f"{task} {ratio:.3f}" for task, ratio in ratios.items()))
    print(json.dumps({"recurrence": counts, "speed_up": found}))


if __name__ == "__main__":
    main()
