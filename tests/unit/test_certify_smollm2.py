"""The certificate on a real model, the default one: a sound engine is certified, and a drafter that lies is not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

import specdecode as sd
from specdecode.bench.questions import read_questions
from specdecode.bench.upstream import Generate
from specdecode.certify import Certificate, Counts, Line, check, judge
from specdecode.certify.findings import FAIL
from specdecode.drafters import Drafting
from specdecode.drafters.lm import DraftLM
from specdecode.models.loading import load_pretrained
from specdecode.types import Budget, Draft

pytestmark = pytest.mark.slow

COUNTS = Counts(prompts=2, seeds=2, answers=6, places=2, draws=64, rows=2)


@pytest.fixture(scope="module")
def default() -> sd.Model:
    return sd.load()


@dataclass(frozen=True)
class Lying:
    """The likeliest token of each of an honest drafter's laws, said to be drawn from it."""

    drafter: DraftLM

    name = "lying"

    def begin(self, *given: Any) -> Drafting:
        drafting = self.drafter.begin(*given)
        honest = drafting.draft

        def draft(rows: Any, budgets: list[Budget]) -> list[Draft]:
            return [_likeliest(each) for each in honest(rows, budgets)]

        drafting.draft = draft  # type: ignore[method-assign]
        return drafting


def _likeliest(draft: Draft) -> Draft:
    law = draft.law(0) if len(draft) else None
    return draft if law is None else Draft.chain([int(law.argmax())], [law])


def certify(model: sd.Model, drafter: Any) -> Certificate:
    law = sd.Sampling(temperature=1.0, seed=1)
    return check(model, drafter, sampling=law, max_new_tokens=48, counts=COUNTS)


def test_a_sound_engine_is_certified(default: sd.Model) -> None:
    certificate = certify(default, "ngram")
    assert certificate.passed, certificate.findings
    differences = next(f.figures["differences"] for f in certificate.findings if f.test == "KV integrity")
    assert set(differences.values()) == {0.0}, "the dense runtime rounds alike whatever was drafted"


def test_upstreams_own_greedy_texts_are_certified() -> None:
    """In float32, as they are judged: our own default reads long prompts through bfloat16 products where it can."""
    ours = sd.load(dtype="float32")
    upstream = Generate(load_pretrained(dtype=torch.float32), {})
    lines = []
    for question in sorted(read_questions(), key=lambda question: len(question.turns[0]))[-3:]:
        prompt = ours.chat_prompt(question.turns[0])
        lines.append(Line(question.id, prompt, sd.Sampling(), upstream.run(prompt, 64).tokens))
    assert max(len(line.prompt_ids) for line in lines) > 65
    assert judge(ours, lines).passed
    parted = [replace(line, output_ids=(*line.output_ids[:-1], 1)) for line in lines]
    assert not judge(ours, parted).passed


def test_a_drafter_that_lies_is_not(default: sd.Model) -> None:
    found = {f.test: f.outcome for f in certify(default, Lying(DraftLM(default.lm, k=1))).findings}
    assert {test for test, outcome in found.items() if outcome == FAIL} >= {"frequencies", "score"}
    assert found["greedy parity"] != FAIL
