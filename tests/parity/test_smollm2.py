"""Parity on a real model, SmolLM2-135M-Instruct: in float32 against upstream `generate` on both runtimes; with the
default weights, speculative text against plain text, where no difference is excused.

In float32 the runtimes, and on transformers the rows of one pass and single passes, may round differently. A difference
counts as rounding only where the two leading scores lie within 1e-4 of each other; each such place is printed, and
comparison of that text ends there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest
import torch
from stubs import primed

import specdecode as sd
from specdecode.drafters import DRAFTERS, Drafter, make_drafter
from specdecode.drafters.lm import DraftLM
from specdecode.drafters.ngram import Ngram
from specdecode.drafters.null import Null
from specdecode.models.loading import Loaded
from specdecode.sampling import Keyed, Sampling
from specdecode.types import Prompt, Row

pytestmark = pytest.mark.slow

CLOSE = 1e-4
NEW = 64
BATCH = 10
TOPICS = ["the sea", "bread", "winter", "a bicycle", "volcanoes", "sleep", "the moon", "chess", "rivers", "glass"]
ASKS = [
    "Write a short poem about {0}.",
    "List five facts about {0}.",
    "Repeat this twice: I like {0}, and {0} likes me.",
    "Explain {0} to a child of six.",
    "Translate into French: I have never seen {0} at night, but I have often heard about it.",
    "Write a Python function that returns three words about {0}, with a docstring and one test.",
    "What would a historian say about {0}? Answer in two sentences.",
    "Copy this note and correct its spelling: We wil talk abuot {0} on Monday at ten. Bring a pen, some paper and your "
    "own list of questions about {0}. Afterwards we wil have luch together, and then we talk abuot it agian.",
    "I sold 12 books about {0} on Monday and twice as many on Tuesday. How many did I sell? Think step by step.",
    "Give me a table of two columns: words that rhyme with {0}, and what they mean.",
]
SAMPLING = {"temperature": 0.8, "top_p": 0.9}


@pytest.fixture(scope="module", params=["dense", "transformers"])
def model(request: pytest.FixtureRequest) -> sd.Model:
    return sd.load(dtype="float32", runtime=request.param)


@pytest.fixture(scope="module")
def default() -> sd.Model:
    return sd.load()


@cache
def prompts(model: Any) -> list[tuple[int, ...]]:
    return [model.chat_prompt(ask.format(topic)) for ask in ASKS for topic in TOPICS]


def compare(
    model: Any, ids: Sequence[int], ours: Sequence[int], theirs: Sequence[int], noise: Keyed | None = None
) -> None:
    """Fails where two texts differ at scores further apart than rounding. noise: the draws of a sampled text."""
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), min(len(ours), len(theirs)))
    if at == len(ours) == len(theirs):
        return
    assert at < min(len(ours), len(theirs)), f"one text ends at {at}, the other goes on"
    prefix = (*ids, *ours[:at])
    scores = model.lm.score(primed(model.lm, prefix), [Row(0, prefix[-1:], (-1,))])[0].logits[0]
    if noise is not None:
        scores = scores / SAMPLING["temperature"] + noise._noise(len(prefix), scores.device)
    gap = float((scores[ours[at]] - scores[theirs[at]]).abs())
    print(f"token {at}: {ours[at]} against {theirs[at]}, scores {gap:.2e} apart")
    assert gap < CLOSE, f"the texts differ at token {at}, where the scores are {gap:.2e} apart"


def arms(model: Any) -> dict[str, tuple[Drafter, int]]:
    """Every drafter of the table and a size of batch, each with two draft lengths and alone as well as in batches of
    eight. The draft model is the target's own lower half."""
    small = LowerHalf(model.lm)
    return {
        "null, batch 8": (Null(), 8),
        "ngram k=3": (Ngram(k=3), 1),
        "ngram k=12, batch 8": (Ngram(k=12, min_match=1), 8),
        "lm k=2": (DraftLM(small, k=2), 1),
        "lm assisted, batch 8": (DraftLM(small, k=4, schedule="assisted", confidence=0.3), 8),
    }


class LowerHalf:
    """The first layers of an LM as a draft model of their own: cheap, poor and of the same vocabulary."""

    signature = ""

    def __init__(self, lm: Any) -> None:
        self.lm, self.layers = lm, range(lm.n_layers // 2)
        self.vocab, self.context, self.n_layers, self.capabilities = lm.vocab, lm.context, lm.n_layers, lm.capabilities

    def open(self, asked: Sequence[Prompt]) -> Any:
        return self.lm.open(asked)

    def score(self, cache: Any, rows: Sequence[Row], *, logits: bool = True, taps: Sequence[int] = ()) -> Any:
        return self.lm.score(cache, rows, logits=logits, layers=self.layers)


@cache
def upstream(hf_model: Any, asked: tuple[tuple[int, ...], ...]) -> list[list[int]]:
    out = []
    for ids in asked:
        inputs = torch.tensor([ids])
        made = hf_model.generate(
            inputs, attention_mask=torch.ones_like(inputs), do_sample=False, max_new_tokens=NEW, pad_token_id=0
        )
        out.append(made[0, len(ids) :].tolist())
    return out


def test_logits_are_upstreams(smol: Loaded, model: sd.Model) -> None:
    """float32: within 1e-3, for every token of prompts and of a text of 600 tokens."""
    texts = [*prompts(model)[::25], tuple(token for ids in prompts(model)[:12] for token in ids)[:600]]
    for ids in texts:
        with torch.no_grad():
            expected = smol.hf_model(torch.tensor([ids]), use_cache=False).logits[0]
        said = model.lm.score(model.lm.open([Prompt(ids)]), [Row.chain(0, ids)])[0].logits
        assert (said - expected[:, : model.lm.vocab]).abs().max() < 1e-3


def test_greedy_ids_equal_upstream_generate(smol: Loaded, model: sd.Model) -> None:
    """30 prompts x 64 tokens, every drafter."""
    asked = tuple(prompts(model)[:30])
    expected = upstream(smol.hf_model, asked)
    for name, (drafter, size) in {"null": (Null(), 1), **arms(model)}.items():
        print(name)
        for start in range(0, len(asked), size):
            batch = asked[start : start + size]
            done = model.generate([list(ids) for ids in batch], drafter=drafter, max_new_tokens=NEW)
            for ids, completion, theirs in zip(batch, done, expected[start:], strict=False):
                compare(model, ids, completion.tokens, theirs)


def seeded(model: sd.Model, drafter: Drafter, seeds: Sequence[int], size: int, new: int) -> list[sd.Completion]:
    """The answers to one prompt under several seeds, in batches of `size`."""
    ids, out = list(prompts(model)[10]), list[sd.Completion]()
    for start in range(0, len(seeds), size):
        laws = [Sampling(**SAMPLING, seed=seed) for seed in seeds[start : start + size]]
        out += model.generate([ids] * len(laws), sampling=laws, drafter=drafter, max_new_tokens=new)
    return out


def test_one_seed_one_text(model: sd.Model) -> None:
    """Coupled rule: 50 seeds x 64 tokens at T=.8, top-p .9 are the same text with every drafter, draft length and
    batch."""
    seeds, ids = range(50), prompts(model)[10]
    expected = seeded(model, Null(), seeds, 1, NEW)
    assert len({done.tokens for done in expected}) == len(expected), "different seeds must give different texts"
    for name, (drafter, size) in arms(model).items():
        print(name)
        for seed, ours, theirs in zip(seeds, seeded(model, drafter, seeds, size, NEW), expected, strict=True):
            compare(model, ids, ours.tokens, theirs.tokens, Keyed(seed, model.lm.vocab))


def check_default(answers: Callable[[Drafter, int, int], list[sd.Completion]]) -> None:
    """answers: of a drafter, how many, in batches of which size. Every drafter of the table that needs no model says
    what plain decoding says: a hundred in batches, the first ten alone."""
    expected = [done.tokens for done in answers(Null(), 100, BATCH)]
    assert len(set(expected)) > 90, "texts of which many are alike prove little"
    for name in [name for name, method in DRAFTERS.items() if not method.needs]:
        alone = answers(make_drafter(name), 10, 1)
        assert [done.tokens for done in alone] == expected[:10], f"{name}, alone"
        if name != "null":
            together = answers(make_drafter(name), 100, BATCH)
            assert [done.tokens for done in together] == expected, f"{name}, batches"
            assert sum(done.metrics.accepted for done in together) > 0, "drafts that are never right prove little"


def test_default_weights_greedy_text_is_plain_text(default: sd.Model) -> None:
    """100 prompts x 96 tokens."""

    def answers(drafter: Drafter, count: int, size: int) -> list[sd.Completion]:
        out: list[sd.Completion] = []
        for start in range(0, count, size):
            asked = [list(ids) for ids in prompts(default)[start : start + size]]
            out += default.generate(asked, drafter=drafter, max_new_tokens=96)
        return out

    check_default(answers)


def test_default_weights_one_seed_one_text(default: sd.Model) -> None:
    """100 seeds x 96 tokens, coupled, at T=.8, top-p .9."""
    check_default(lambda drafter, count, size: seeded(default, drafter, range(count), size, 96))
