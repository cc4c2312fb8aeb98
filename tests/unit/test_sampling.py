"""sampling.py: which options are refused, and that each source of chance draws the law it is given, by its seed."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import random
import threading
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from specdecode.errors import BadOption
from specdecode.sampling import Argmax, Keyed, Noise, Sampling, Stream, _gumbel, fresh_seed, sample_seed

SIGMA_4_5 = 6.8e-6  # the two-sided probability of 4.5 standard deviations
LAW = torch.tensor([0.5, 0.3, 0.15, 0.05])
INF = math.inf


def fits(tokens: Tensor | list[int], law: Tensor) -> bool:
    """Whether the tokens may well have been drawn from `law`: a chi-square test at 4.5 sigma."""
    counts = torch.bincount(torch.as_tensor(tokens), minlength=len(law)).numpy()
    return bool(chisquare(counts, law.double().numpy() / law.double().sum().item() * counts.sum()).pvalue > SIGMA_4_5)


class Locked:
    """A processor with a part that cannot be copied."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores


REFUSED = [
    {"temperature": -0.1},
    {"temperature": INF},
    {"temperature": math.nan},
    {"temperature": True},
    {"temperature": "hot"},
    {"top_k": 0},
    {"top_k": 2.0},
    {"top_k": True},
    {"top_p": 0},
    {"top_p": 1.01},
    {"top_p": math.nan},
    {"min_p": 0.0},
    {"min_p": 2},
    {"typical_p": -1},
    {"repetition_penalty": 0},
    {"repetition_penalty": None},
    {"presence_penalty": INF},
    {"frequency_penalty": math.nan},
    {"no_repeat_ngram_size": -1},
    {"no_repeat_ngram_size": 1.5},
    {"suppress": (1, -1)},
    {"suppress": (True,)},
    {"suppress": 3},
    {"suppress": "17"},
    {"bad_words": ((1, 2), ())},
    {"bad_words": (3,)},
    {"bad_words": ((1, 2.0),)},
    {"logit_bias": {-1: 1.0}},
    {"logit_bias": {1: INF}},
    {"logit_bias": {1: math.nan}},
    {"logit_bias": {True: 1.0}},
    {"logit_bias": {1: "high"}},
    {"logit_bias": ((1, 2.0),)},
    {"seed": -1},
    {"seed": 2**63},
    {"seed": 1.0},
    {"processors": (3,)},
    {"processors": lambda ids, scores: scores},
    {"processors": (Locked(),)},
]


@pytest.mark.parametrize("options", REFUSED, ids=lambda options: str(options).partition(" at 0x")[0])
def test_a_value_out_of_range_is_refused_in_one_line_that_names_it(options: dict) -> None:
    (name,) = options
    with pytest.raises(BadOption) as caught:
        Sampling(**options)
    message = str(caught.value)
    assert name in message
    assert "\n" not in message


def test_the_message_tells_the_range_and_what_was_found() -> None:
    with pytest.raises(BadOption, match=r"top_p=1\.5 will not do; give a number > 0 and <= 1"):
        Sampling(top_p=1.5)
    with pytest.raises(BadOption, match=r"seed=-4 is not a whole number of at least 0; give one"):
        Sampling(seed=-4)
    with pytest.raises(BadOption, match=r"seed=9223372036854775808 is too large; give one below 9223372036854775808"):
        Sampling(seed=2**63)
    with pytest.raises(BadOption, match=r"Locked cannot be copied \(cannot pickle '_thread.lock' object\)"):
        Sampling(processors=(Locked(),))
    with pytest.raises(BadOption) as caught:
        Sampling(suppress=(*range(10_000), -1))
    assert len(str(caught.value)) < 200


def test_the_ends_of_the_ranges_are_allowed() -> None:
    Sampling(temperature=0, top_k=1, top_p=1, min_p=1, typical_p=1, seed=0, no_repeat_ngram_size=0)
    Sampling(temperature=1e-45, top_p=1e-9, seed=2**63 - 1, logit_bias={0: -INF}, presence_penalty=-2)
    assert Sampling(top_k=np.int64(3), temperature=np.float32(0.5)) == Sampling(top_k=3, temperature=0.5)


def test_only_temperature_zero_is_greedy() -> None:
    """Fault 81 (the option's half): giving a truncation without a temperature asks for sampling at temperature 1."""
    assert Sampling().greedy
    assert Sampling(temperature=0, top_k=3).greedy
    assert not Sampling(temperature=1e-6).greedy
    for options in ({"top_k": 3}, {"top_p": 0.9}, {"min_p": 0.1}, {"typical_p": 0.9}):
        assert not Sampling(**options).greedy
        assert Sampling(**options).effective_temperature == 1


def test_a_sampling_is_a_value() -> None:
    bias = {3: 1.5}
    sampling = Sampling(logit_bias=bias, bad_words=[[1, 2], [3]], suppress=[4], processors=[Argmax])
    bias[3] = 9.0
    assert sampling.logit_bias == {3: 1.5}
    assert sampling.bad_words == ((1, 2), (3,))
    assert sampling.suppress == (4,)
    twin = Sampling(logit_bias={3: 1.5}, bad_words=((1, 2), (3,)), suppress=(4,), processors=(Argmax,))
    assert sampling == twin
    assert hash(sampling) == hash(twin)
    assert sampling != dataclasses.replace(twin, logit_bias={3: 1.0})
    assert pickle.loads(pickle.dumps(sampling)) == copy.deepcopy(sampling) == sampling
    assert dict(dataclasses.asdict(sampling)["logit_bias"]) == {3: 1.5}
    with pytest.raises(TypeError):
        sampling.logit_bias[3] = 2.0


def test_ids_outside_the_vocabulary_are_refused() -> None:
    Sampling(suppress=(96,), logit_bias={96: 1.0}, bad_words=((96, 0),)).check_vocabulary(97)
    for options in ({"suppress": (97,)}, {"logit_bias": {97: 1.0}}, {"bad_words": ((1, 97), (2,))}):
        with pytest.raises(BadOption, match=f"{next(iter(options))} names token 97, .* ids 0 to 96"):
            Sampling(**options).check_vocabulary(97)


def test_seeds() -> None:
    seeds = {fresh_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**63 for seed in seeds)
    samples = [sample_seed(seed, index) for seed in (7, 8, 2**63 - 1) for index in range(50)]
    assert len(set(samples)) == len(samples)
    assert all(Sampling(seed=seed) for seed in samples)
    assert sample_seed(7, 0) == 7
    assert sample_seed(7, 3) == sample_seed(7, 3)


def test_argmax_takes_the_lowest_of_equals() -> None:
    assert Argmax().draw(torch.tensor([0.0, 2.0, 1.0, 2.0]), 5) == 1
    assert Argmax().draw(torch.tensor([-INF, -INF, 0.0, 0.0]), 5) == 2
    assert Argmax().draw(torch.zeros(50_000), 5) == 0


def test_greedy_and_keyed_noise_have_no_coins() -> None:
    for noise in (Argmax(), Keyed(1, 4)):
        with pytest.raises(AssertionError):
            noise.uniform()


def test_a_stream_repeats_itself_from_its_seed() -> None:
    def run(seed: int) -> list[float]:
        stream = Stream(seed)
        return [x for _ in range(20) for x in (stream.uniform(), stream.draw(torch.zeros(1000), 0))]

    assert run(3) == run(3)
    assert run(3) != run(4)
    assert run(3) != run(3 + 2**32), "the upper bits of the seed are lost"
    assert all(0 <= x < 1 for x in run(3)[::2])


def test_keyed_noise_knows_nothing_but_seed_and_position() -> None:
    logits = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    want = {t: Keyed(5, 1000).draw(logits, t) for t in range(60)}
    assert len(set(want.values())) > 30
    noise = Keyed(5, 1000)
    for t in [*range(59, -1, -1), *range(60), 3, 3]:  # more positions than are remembered
        assert noise.draw(logits, t) == want[t]
        noise.draw(-logits, t + 1)
    assert want != {t: Keyed(6, 1000).draw(logits, t) for t in range(60)}
    assert want != {t: Keyed(5 + 2**32, 1000).draw(logits, t) for t in range(60)}, "the upper bits are lost"
    assert [want[t + 1] for t in range(59)] != [Keyed(6, 1000).draw(logits, t) for t in range(59)]


@given(
    width=st.integers(1, 300), cut=st.integers(1, 300), seed=st.integers(0, 2**63 - 1), position=st.integers(0, 10**6)
)
@settings(max_examples=50, deadline=None)
def test_fewer_logits_see_the_beginning_of_the_same_noise(width: int, cut: int, seed: int, position: int) -> None:
    cut = min(cut, width)
    full = torch.full((width,), -INF)
    full[:cut] = 0
    assert Keyed(seed, width).draw(full, position) == Keyed(seed, width).draw(torch.zeros(cut), position)


@given(logits=st.lists(st.integers(-8, 8), min_size=2, max_size=40), seed=st.integers(0, 999), data=st.data())
@settings(max_examples=100, deadline=None)
def test_the_winner_stays_when_it_gains_or_others_vanish(logits: list[int], seed: int, data: st.DataObject) -> None:
    row, noise = torch.tensor(logits, dtype=torch.float32), Keyed(seed, 64)
    winner = noise.draw(row, 3)
    raised, fewer = row.clone(), row.clone()
    raised[winner] += data.draw(st.floats(0, 9, width=32))
    for token in data.draw(st.sets(st.integers(0, len(row) - 1))) - {winner}:
        fewer[token] = -INF
    assert noise.draw(raised, 3) == winner
    assert noise.draw(fewer, 3) == winner


def test_the_race_draws_the_law() -> None:
    race = _gumbel(np.random.default_rng(1), 4 * 200_000).view(-1, 4)
    drawn = (LAW.log() + race).argmax(1)
    assert fits(drawn, LAW)
    assert not fits(drawn, torch.tensor([0.49, 0.31, 0.15, 0.05])), "a law off by .01 must be told apart"
    assert not fits((LAW.log() - race).argmax(1), LAW), "the sign of the noise matters"


@pytest.mark.parametrize("kind", ["across positions", "across seeds", "stream"])
def test_draws_have_the_law(kind: str) -> None:
    keyed, stream, logits = Keyed(11, 4), Stream(11), LAW.log()
    draw = {
        "across positions": lambda i: keyed.draw(logits, i),
        "across seeds": lambda i: Keyed(i, 4).draw(logits, 7),
        "stream": lambda i: stream.draw(logits, 7),
    }[kind]
    drawn = [draw(i) for i in range(6_000)]
    assert fits(drawn, LAW)
    assert not fits(drawn, torch.tensor([0.45, 0.35, 0.15, 0.05]))


def test_neighbouring_keys_are_independent() -> None:
    """Draws at (s, t), (s, t + 1) and (s + 1, t) pair up as independent draws do, whatever the order of the pairs."""
    drawn = torch.tensor([[Keyed(s, 4).draw(LAW.log(), t) for t in range(80)] for s in range(80)])
    joint = torch.outer(LAW, LAW).flatten()
    diagonal = 4 * drawn[1:, :-1] + drawn[:-1, 1:]
    assert fits((4 * drawn[:, 1:] + drawn[:, :-1]).flatten(), joint)
    assert fits((4 * drawn[1:] + drawn[:-1]).flatten(), joint)
    assert fits(diagonal.flatten(), joint), "(s, t + 1) and (s + 1, t) share their noise"
    assert not fits((5 * drawn).flatten(), joint), "draws that are equal must be told from independent ones"


def test_the_noise_reaches_far_into_the_tail() -> None:
    """Uniform numbers of 24 bits would end the noise at 16.6, and tokens of probability 1e-7 would never be drawn."""
    rng = np.random.default_rng(2)
    largest = torch.stack([_gumbel(rng, 2**20).max() for _ in range(40)]).max()  # its median is 17.9
    assert 16.7 < largest < 40


@pytest.mark.parametrize("noise", [Argmax(), Stream(3), Keyed(3, 1000)], ids=lambda n: type(n).__name__)
def test_an_impossible_token_is_never_drawn(noise: Noise) -> None:
    logits = torch.full((1000,), -INF)
    logits[[17, 400]] = torch.tensor([-80.0, -81.0])
    assert {noise.draw(logits, t) for t in range(200)} <= {17, 400}


@pytest.mark.parametrize("noise", [Argmax(), Stream(3), Keyed(3, 50)], ids=lambda n: type(n).__name__)
def test_a_draw_leaves_logits_and_global_chance_alone(noise: Noise) -> None:
    logits = torch.linspace(-1, 1, 50)
    before = logits.clone(), torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    for t in range(40):
        noise.draw(logits, t)
    fresh_seed(), sample_seed(3, 4)
    assert torch.equal(logits, before[0])
    assert torch.equal(torch.get_rng_state(), before[1])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before[2:]


def test_global_seeds_do_not_reach_the_noise() -> None:
    def run() -> list[int]:
        stream = Stream(9)
        return [n.draw(torch.zeros(1000), t) for t in range(20) for n in (stream, Keyed(9, 1000))]

    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    first = run()
    torch.manual_seed(2), random.seed(2), np.random.seed(2)
    assert run() == first


def test_keyed_noise_remembers_a_bounded_number_of_positions() -> None:
    noise = Keyed(1, 10)
    for t in range(1000):
        noise.draw(torch.zeros(10), t)
    assert noise._noise.cache_info().currsize == 16


def test_keyed_noise_is_freed_with_its_session() -> None:
    """Fault 104: no reference cycle keeps the remembered vectors alive until the garbage collector comes by."""
    noise = Keyed(1, 10)
    noise.draw(torch.zeros(10), 0)
    gone = weakref.ref(noise._noise(0, torch.device("cpu")))
    del noise
    assert gone() is None
