"""The law of a row is the one that transformers' `generate` would draw from."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from constraints_helpers import EOS, INF, MARKOV, OPTIONS, OURS_ALONE, V, filters_of
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.generation.logits_process import TopPLogitsWarper

from specdecode.constraints import Filters
from specdecode.sampling import Keyed, Sampling
from specdecode.stages import NUCLEUS
from specdecode.types import EMPTY, Draft
from specdecode.verify.greedy import Greedy


def upstream(options: dict, prompt_length: int, do_sample: bool, min_new_tokens: int | None) -> Callable[..., Tensor]:
    """The processors that transformers' `generate` would run."""
    config = GenerationConfig(
        **{"top_k": 0, **options}, do_sample=do_sample, eos_token_id=EOS, pad_token_id=0, min_new_tokens=min_new_tokens
    )
    config._eos_token_tensor = torch.tensor([EOS])
    return TINY._get_logits_processor(config, input_ids_seq_length=prompt_length, device="cpu")


def tiny() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=V,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
        initializer_range=0.5,
    )
    return LlamaForCausalLM(config).eval()


TINY = tiny()


@pytest.mark.parametrize(
    ("raw", "options", "want"),
    [
        ([0.5, 0.3, 0.15, 0.05], {"top_p": 0.7}, [0.625, 0.375, 0, 0]),
        ([0.5, 0.3, 0.15, 0.05], {"top_k": 3}, [0.5263, 0.3158, 0.1579, 0]),
        ([0.5, 0.3, 0.15, 0.05], {"top_p": 0.7, "temperature": 0.5}, [0.7353, 0.2647, 0, 0]),
        ([0.5, 0.3, 0.15, 0.05], {"top_p": 0.7, "temperature": 2}, [0.4306, 0.3335, 0.2358, 0]),
        ([0.5, 0.3, 0.15, 0.05], {"top_p": 0.7, "top_k": 3, "temperature": 2}, [0.5635, 0.4365, 0, 0]),
        ([0.3, 0.4, 0.2, 0.1], {"top_k": 2}, [0.4286, 0.5714, 0, 0]),
        ([0.4, 0.3, 0.2, 0.1], {"top_k": 2}, [0.5714, 0.4286, 0, 0]),
        ([0.5, 0.3, 0.15, 0.05], {"min_p": 0.2}, [0.5263, 0.3158, 0.1579, 0]),
        ([0.5, 0.25, 0.125, 0.125], {"top_p": 0.75}, [0.6667, 0.3333, 0, 0]),
        ([0.5, 0.3, 0.15, 0.05], {"temperature": 1, "suppress": (0,)}, [0, 0.6, 0.3, 0.1]),
        ([0.5, 0.3, 0.15, 0.05], {"temperature": 1, "logit_bias": {3: math.log(10)}}, [0.3448, 0.2069, 0.1034, 0.3448]),
        ([0.5, 0.3, 0.15, 0.05], {"temperature": 1}, [0.5, 0.3, 0.15, 0.05]),
    ],
)
def test_laws_worked_out_by_hand(raw: list[float], options: dict, want: list[float]) -> None:
    """Faults 10, 11 and 81: p and q alike are filtered, in full, before any rule or draw sees them."""
    logits = torch.tensor(raw).log()
    filters = Filters(Sampling(**options), prompt_length=1, vocab=4)
    for law in (filters.apply(logits, [0]), filters.rows(logits[None], [0], EMPTY)[0]):
        torch.testing.assert_close(law.softmax(-1), torch.tensor(want), atol=1e-4, rtol=0)


def test_presence_and_frequency_count_generated_tokens_only() -> None:
    filters = filters_of({**OURS_ALONE, "temperature": 1}, prompt_length=3)
    law = filters.apply(torch.zeros(V), [5, 5, 6, 6, 7, 7, 7])
    want = torch.zeros(V)
    want[6], want[7] = -0.7 - 0.4, -0.7 - 3 * 0.4
    torch.testing.assert_close(law, want)


@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", OPTIONS)
def test_rows_equal_those_of_transformers(name: str, greedy: bool) -> None:
    """Fault 26 (the filters' share of it): each option and several together, bit for bit, for target and drafter."""
    ours, theirs = OPTIONS[name]
    sampling = {**ours, "temperature": 0 if greedy else ours.get("temperature", 1.0)}
    rng = random.Random(3)
    for minimum in (0, 6):
        filters = filters_of(sampling, min_new_tokens=minimum, eos_ids=(EOS,))
        processors = upstream(theirs, 4, not greedy, minimum)
        for length in (4, 5, 9, 10, 40):
            prefix = [rng.choice((3, 4, 5, 8, rng.randrange(V))) for _ in range(length)]
            logits = torch.randn(V, generator=torch.Generator().manual_seed(length)) * 3
            want = processors(torch.tensor([prefix]), logits[None].clone())[0]
            assert torch.equal(filters.apply(logits, prefix), want)
            assert torch.equal(filters.rows(logits[None], prefix, EMPTY)[0], want)
            draft = Draft.chain(prefix[-2:])
            assert torch.equal(filters.rows(logits.expand(3, V), prefix[:-2], draft)[2], want)


@pytest.mark.parametrize("name", ["repetition_penalty", "no_repeat_ngram_size", "bad_words", "logit_bias", "suppress"])
def test_greedy_text_equals_that_of_transformers(name: str) -> None:
    """Fault 22: a penalty on the speculative path acts as in plain decoding, and it acts."""
    prompt = [5, 4, 3, 5, 4]
    more = {"do_sample": False, "max_new_tokens": 30, "min_new_tokens": 30, "eos_token_id": EOS, "pad_token_id": 0}
    ids, mask = torch.tensor([prompt]), torch.ones(1, 5, dtype=torch.long)

    def generate(**options: object) -> list[int]:
        return TINY.generate(ids, attention_mask=mask, **options, **more)[0, len(prompt) :].tolist()

    ours, theirs = OPTIONS[name]
    want = generate(**theirs)
    filters = filters_of(ours, len(prompt), min_new_tokens=30, eos_ids=(EOS,))
    tokens = list(prompt)
    with torch.no_grad():
        while len(tokens) < 35:
            draft = Draft.chain([*(want[len(tokens) - 5 :][:4]), 7])
            logits = TINY(torch.tensor([[*tokens, *draft.tokens]])).logits[0, len(tokens) - 1 :].float()
            rows = filters.rows(logits, tokens, draft)
            verdict = Greedy().verify(draft, rows, None, len(tokens)).clip(35 - len(tokens))
            filters.commit(rows, verdict.path)
            tokens += verdict.tokens
    assert tokens[5:] == want
    if name == "repetition_penalty":
        assert want != generate()


def test_a_greedy_session_is_penalised_but_not_truncated() -> None:
    logits = torch.tensor([3.0, 2.0, 1.0, 0.0])
    filters = Filters(Sampling(temperature=0, top_k=1, top_p=0.1, suppress=(0,)), prompt_length=1, vocab=4)
    assert filters.apply(logits, [0]).tolist() == [-INF, 2, 1, 0]


@pytest.mark.parametrize("temperature", [1e-6, 1e-7, 1e-20, 1e-30, 1e-40, 1e-46, 5e-324])
def test_a_tiny_temperature_neither_overflows_nor_breaks_ties(temperature: float) -> None:
    logits = torch.tensor([-30.0, 40.0, 39.99, 40.0, -INF])
    law = Filters(Sampling(temperature=temperature), prompt_length=1, vocab=5).apply(logits, [0])
    torch.testing.assert_close(law.softmax(-1), torch.tensor([0, 0.5, 0, 0.5, 0]))


@given(
    size=st.sampled_from([2, 20, NUCLEUS - 1, NUCLEUS, NUCLEUS + 1, 4 * NUCLEUS]),
    seed=st.integers(0, 10**6),
    mass=st.floats(0.01, 0.999),
    scale=st.sampled_from([0.0, 0.1, 1.0, 4.0]),
    step=st.sampled_from([2.0**-20, 0.5]),
)
@settings(max_examples=150, deadline=None)
def test_the_nucleus_is_that_of_transformers(size: int, seed: int, mass: float, scale: float, step: float) -> None:
    """As many tokens, with the same logits; which of several equals at its edge are in it is left open."""
    row = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * scale
    row = (row / step).round() * step  # a large step makes equals
    row[seed % size] = -INF
    ours = Filters(Sampling(top_p=mass), prompt_length=1, vocab=size).apply(row, [0])
    theirs = TopPLogitsWarper(mass)(None, row[None])[0]
    reached = row.softmax(-1).sort(descending=True).values.double().cumsum(0)
    if (reached - mass).abs().min() > 1e-5:  # else rounding decides
        assert torch.equal(ours.sort().values, theirs.sort().values)
    assert torch.equal(ours[ours > -INF], row[ours > -INF])


def test_min_p_holds_for_every_draw() -> None:
    """Fault 27: no drawn token has p < .2 max p."""
    filters, noise = filters_of({"min_p": 0.2}), Keyed(3, V)
    for t in range(500):
        row = MARKOV[t % V]
        p = row.softmax(-1)
        assert p[noise.draw(filters.apply(row, [1]), t)] >= 0.2 * p.max() * 0.9999
