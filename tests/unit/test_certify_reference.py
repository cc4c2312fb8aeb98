"""The laws that texts are judged by: with the noise of a seed they give its text again, across passes and filters."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from certify_helpers import PROMPTS, model
from stubs import BranchLM
from texts import VOCAB

import specdecode as sd
from specdecode.certify.reference import CHUNK, TOLERANCE, Reference, near_tie, reread, spread, tolerance
from specdecode.sampling import Keyed
from specdecode.text.request import Request

TARGET = BranchLM(VOCAB, seed=1, scale=3.0)
LONG = 2 * CHUNK + 9


class Tired:
    """Bans what it has seen chosen three times: it keeps count of the newest token at each call."""

    def __init__(self) -> None:
        self.seen: Counter[int] = Counter()

    def __call__(self, ids: Any, scores: Any) -> Any:
        self.seen[int(ids[0, -1])] += 1
        tired = [token for token, times in self.seen.items() if times >= 3]
        return scores.index_fill(1, torch.tensor(tired, dtype=torch.long), -torch.inf)


FILTERS: list[dict[str, Any]] = [
    {},
    {"top_p": 0.9, "repetition_penalty": 1.3, "presence_penalty": 0.2, "frequency_penalty": 0.3},
    {"no_repeat_ngram_size": 2, "top_k": 20},
    {"processors": (Tired(),)},
]


@pytest.mark.parametrize("filters", FILTERS)
def test_the_laws_of_a_text_give_it_again(filters: dict[str, Any]) -> None:
    subject, sampling = model(TARGET), sd.Sampling(temperature=0.9, seed=5, **filters)
    limits = sd.Limits(LONG, min_new_tokens=30)
    text = subject.generate(PROMPTS[0], drafter=None, sampling=sampling, limits=limits).tokens
    assert len(text) == LONG
    noise, laws = Keyed(5, VOCAB), Reference(subject).laws(PROMPTS[0], text, Request(None, None, sampling, limits))
    assert [noise.draw(law, len(PROMPTS[0]) + i) for i, law in enumerate(laws)] == list(text)
    assert all(not processor.seen for processor in sampling.processors), "the user's own objects stay as they are"


def test_what_is_read_again_are_the_models_own_scores() -> None:
    text = list(range(LONG))
    parts = list(reread(TARGET, PROMPTS[1], text))
    assert [len(part) for part in parts] == [CHUNK, CHUNK, 9]
    for i in (0, CHUNK - 1, CHUNK, LONG - 1):
        assert torch.equal(torch.cat(parts)[i], TARGET.law((*PROMPTS[1], *text[:i]), i))


@pytest.mark.parametrize(
    ("signature", "kind"),
    [
        ("", "float32"),
        ("dense llama 4-bit+float16 30x576 V49152", "float32"),
        ("dense llama bfloat16 30x576 V49152", "float32"),
        ("dense llama bfloat16 30x576 V49152 on cuda:0", "bfloat16"),
        ("transformers llama float16 30x576 V49152 on cpu", "float16"),
        ("transformers gpt2 float32 2x32 V97 on cpu", "float32"),
    ],
)
def test_rounding_is_that_of_the_arithmetic(signature: str, kind: str) -> None:
    lm: Any = SimpleNamespace(signature=signature)
    assert tolerance(lm) == TOLERANCE[kind]
    law = torch.tensor([1.0, 3.0, -torch.inf])
    assert spread(law) == 1
    assert near_tie(lm, 2 * law) == pytest.approx(TOLERANCE[kind])
