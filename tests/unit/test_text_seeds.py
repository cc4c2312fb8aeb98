"""Chance in answers: seeds, temperatures, samples, rules, and processors that keep state."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from stubs import DistLM
from texts import PROMPT, TOKENIZER, WARM

import specdecode as sd
from specdecode.drafters.ngram import Ngram
from specdecode.models.lm import LM
from specdecode.sampling import sample_seed
from specdecode.verify.coupled import Coupled
from specdecode.verify.greedy import Greedy


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_a_seed_makes_the_text_and_touches_no_global_state(model: sd.Model, rule: str) -> None:
    """Fault 77: the same seed gives the same ids, another one others; global random states stay as they were."""
    torch.manual_seed(0)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    options = {"rule": rule, "max_new_tokens": 60}
    first = model.generate(PROMPT, sampling=WARM, **options)
    assert model.generate(PROMPT, sampling=WARM, **options).tokens == first.tokens
    assert model.generate(PROMPT, sampling=replace(WARM, seed=43), **options).tokens != first.tokens
    assert states == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())


def test_an_answer_names_the_seed_that_was_drawn_for_it(model: sd.Model) -> None:
    first = model.generate(PROMPT, sampling=sd.Sampling(temperature=1.0), max_new_tokens=30)
    assert first.seed is not None
    again = model.generate(PROMPT, sampling=replace(WARM, seed=first.seed), drafter=None, max_new_tokens=30)
    assert again.tokens == first.tokens
    assert model.generate(PROMPT, sampling=sd.Sampling(temperature=1.0), max_new_tokens=30).seed != first.seed
    assert model.generate(PROMPT, max_new_tokens=1).seed is None


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
def test_seeded_and_unseeded_rows_of_a_batch(model: sd.Model, target: LM, rule: str) -> None:
    """Fault 78: seeded rows equal their single runs, in any order; the others are no junk."""
    prompts = [[10, 20, 30], [40, 50], [60], [70, 80, 90, 95]]
    laws = [replace(WARM, seed=seed, top_p=0.9) for seed in (1, None, 2, None)]
    options = {"rule": rule, "max_new_tokens": 20, "logprobs": 0}
    batch = model.generate(prompts, sampling=laws, **options)
    mirrored = model.generate(prompts[::-1], sampling=laws[::-1], **options)[::-1]
    for i in (0, 2):
        single = model.generate(prompts[i], sampling=laws[i], **options)
        assert single.tokens == batch[i].tokens == mirrored[i].tokens
    assert all(math.isfinite(entry.logprob) and entry.logprob > -12 for done in batch for entry in done.logprobs or ())


def test_greedy_and_sampled_rows_in_one_batch(model: sd.Model) -> None:
    """Fault 80: temperatures 0, 1, 0, 0.7: greedy rows are greedy, counters sound."""
    prompts = [[10, 20, 10, 20, 10], [40, 50], [60, 61, 60, 61], [70, 80]]
    laws = [sd.Sampling(temperature=t, seed=5) for t in (0, 1.0, 0, 0.7)]
    batch = model.generate(prompts, sampling=laws, max_new_tokens=20)
    assert [done.rule for done in batch] == ["greedy", "coupled"] * 2
    for prompt, sampling, done in zip(prompts, laws, batch, strict=True):
        assert done.tokens == model.generate(prompt, sampling=sampling, drafter=None, max_new_tokens=20).tokens
        counts = done.metrics
        assert 0 <= counts.accepted <= counts.drafted
        assert counts.emitted == len(done.tokens)


@pytest.mark.parametrize("rule", ["coupled", "rejection"])
@pytest.mark.parametrize("drafter", [None, Ngram(k=3, min_match=1)])
def test_temperature_reaches_the_speculative_path(rule: str, drafter: Any) -> None:
    """Fault 82: p = [.6, .4] is sampled with any drafter; 2,000 tokens, 4.5 sigma. Always-argmax would give 1.0."""
    model = sd.Model(DistLM([0.6, 0.4]), TOKENIZER)
    batch = model.generate([[0, 1]] * 4, rule=rule, drafter=drafter, sampling=sd.Sampling(1.0), max_new_tokens=500)
    share = sum(done.tokens.count(0) for done in batch) / 2000
    assert abs(share - 0.6) < 4.5 * math.sqrt(0.24 / 2000)
    assert len({done.tokens[:40] for done in batch}) == 4


def test_samples_are_seeded_apart_and_the_first_is_the_single_answer(model: sd.Model) -> None:
    samples = model.generate(PROMPT, n=np.int64(3), sampling=WARM, max_new_tokens=20)
    assert [done.seed for done in samples] == [sample_seed(42, i) for i in range(3)]
    assert len({done.tokens for done in samples}) == 3
    for done in samples:
        alone = model.generate(PROMPT, sampling=replace(WARM, seed=done.seed), max_new_tokens=20)
        assert alone.tokens == done.tokens
    greedy = model.generate(PROMPT, n=2, max_new_tokens=5)
    assert greedy[0].tokens == greedy[1].tokens


def test_rules_follow_the_temperature(model: sd.Model) -> None:
    def rule_of(rule: Any, temperature: float) -> str:
        return model.generate(PROMPT, rule=rule, sampling=sd.Sampling(temperature), max_new_tokens=1).rule

    assert rule_of(None, 0) == rule_of("rejection", 0) == rule_of(Coupled(), 0) == rule_of(Greedy(), 0) == "greedy"
    assert rule_of(None, 1) == rule_of(Coupled(), 1) == "coupled"
    assert rule_of("rejection", 1) == "rejection"


class Counter:
    """A stateful processor: its n-th call allows token n alone."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.full_like(scores, -math.inf).index_fill(1, torch.tensor([self.calls]), 0.0)


def test_every_answer_starts_from_a_copy_of_the_processors(model: sd.Model) -> None:
    law = sd.Sampling(processors=(Counter(),))
    for sampling in (law, [law, law]):
        batch = model.generate([[1, 2], [3, 4, 5]], sampling=sampling, max_new_tokens=4)
        assert [done.tokens for done in batch] == [(1, 2, 3, 4)] * 2
    for done in (model.generate([1], sampling=law, max_new_tokens=4), *model.generate([1], n=2, sampling=law)):
        assert done.tokens[:4] == (1, 2, 3, 4)
    assert law.processors[0].calls == 0
