"""The arithmetic of the sampled tests: exact values, calibration on right laws, and wrong laws that must be seen."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from specdecode.certify.statistics import (
    LEAST_P,
    MOST_Z,
    Told,
    kolmogorov,
    pearson,
    score,
    tail,
    transform,
)

LAW = torch.tensor([0.5, 0.25, 0.125, 0.125]).log() + 3.0


def draws(law: torch.Tensor, n: int, seed: int = 0) -> list[int]:
    share = law.double().softmax(-1).numpy()
    return np.random.default_rng(seed).choice(len(share), size=n, p=share / share.sum()).tolist()


def test_what_a_law_says_of_a_token() -> None:
    told = [Told.of(LAW, token) for token in range(4)]
    assert [t.surprise / math.log(2) for t in told] == pytest.approx([1, 2, 3, 3])
    assert [t.below for t in told] == pytest.approx([0, 0.5, 0.75, 0.875])
    assert [t.mass for t in told] == pytest.approx([0.5, 0.25, 0.125, 0.125])
    assert {round(t.entropy / math.log(2), 6) for t in told} == {1.75}
    assert told[0].variance == pytest.approx((0.5 * 0.75**2 + 0.25 * 0.25**2 + 0.25 * 1.25**2) * math.log(2) ** 2)
    assert not any(t.excluded for t in told)


def test_an_excluded_token_counts_as_the_least_likely_one() -> None:
    told = Told.of(torch.tensor([0.0, math.log(3), -math.inf]), 2)
    assert told.excluded
    assert (told.surprise, told.below, told.mass) == pytest.approx((math.log(4), 0.75, 0.25))


def test_the_transform_covers_the_unit_interval() -> None:
    told = [Told.of(LAW, token) for token in range(4)]
    assert transform(told, [0.0] * 4) == pytest.approx([0, 0.5, 0.75, 0.875])
    assert transform(told, [1.0] * 4) == pytest.approx([0.5, 0.75, 0.875, 1.0])


def test_a_law_without_chance_leaves_no_room() -> None:
    sure = torch.tensor([0.0, -math.inf])
    assert score([Told.of(sure, 0)] * 5) == 0
    nearly = torch.tensor([0.0, -40.0])
    assert score([Told.of(nearly, 1)]) == math.inf


def test_score_is_standard_normal_under_the_law_and_far_off_under_another() -> None:
    laws = [LAW, 2 * LAW, torch.linspace(0, 5, 50)]
    told = [[Told.of(law, token) for token in range(len(law))] for law in laws]

    def z(seed: int, factor: float = 1.0) -> float:
        picks = [[told[i][t] for t in draws(factor * law, 200, 3 * seed + i)] for i, law in enumerate(laws)]
        return score([t for some in picks for t in some])

    found = [z(seed) for seed in range(400)]
    assert abs(np.mean(found)) < 4.5 / math.sqrt(400)
    assert 0.85 < np.std(found) < 1.15  # 4.5 sigma of a standard deviation from 400 numbers is .16
    assert z(0, 1.4) < -MOST_Z
    assert z(0, 0.7) > MOST_Z


def test_ranks_see_what_the_score_does_not() -> None:
    """Half of all tokens the likeliest and half the rarest can have the right mean surprise, and no right law."""
    law = torch.linspace(0, 5, 50)
    told = [Told.of(law, token) for token in range(50)]
    below = max(told, key=lambda t: t.surprise if t.surprise < t.entropy else -1)
    above = min(told, key=lambda t: t.surprise if t.surprise > t.entropy else 99)
    share = (above.surprise - below.entropy) / (above.surprise - below.surprise)
    wrong = [below] * round(400 * share) + [above] * (400 - round(400 * share))
    coins = np.random.default_rng(0).random(400).tolist()
    assert abs(score(wrong)) < 1
    assert kolmogorov(transform(wrong, coins))[1] < LEAST_P
    right = [told[token] for token in draws(law, 400)]
    assert kolmogorov(transform(right, coins))[1] > 0.001


def test_kolmogorovs_distance_is_scipys_and_its_bound_holds() -> None:
    numbers = np.random.default_rng(3).random(50).tolist()
    distance, p = kolmogorov(numbers)
    exact = stats.kstest(numbers, "uniform")
    assert distance == pytest.approx(exact.statistic)
    assert exact.pvalue <= p <= 1


def test_pearsons_statistic_is_scipys_and_so_is_its_tail() -> None:
    counts = Counter(draws(LAW, 100))
    statistic, freedom = pearson(counts, LAW)
    exact = stats.chisquare([counts[t] for t in range(4)], [50, 25, 12.5, 12.5])
    assert (statistic, freedom) == (pytest.approx(exact.statistic), 3)
    assert tail(statistic, freedom) == pytest.approx(exact.pvalue)
    assert tail(0.0, 0) == 1


def test_rare_tokens_share_a_cell() -> None:
    assert pearson(Counter({0: 12, 1: 5, 2: 3, 3: 2}), LAW)[1] == 2  # expected 11, 5.5, and 5.5 together
    assert pearson(Counter({0: 7, 1: 4, 2: 2, 3: 1}), LAW)[1] == 1  # 7, and 7 together
    assert pearson(Counter({0: 3, 1: 1}), LAW) == (0.0, 0)  # too few to say anything


def test_pearson_is_calibrated_and_sees_another_law() -> None:
    found = [tail(*pearson(Counter(draws(LAW, 60, seed)), LAW)) for seed in range(500)]
    assert abs(np.mean(np.array(found) < 0.1) - 0.1) < 4.5 * math.sqrt(0.09 / 500)
    assert tail(*pearson(Counter(draws(2 * LAW, 300)), LAW)) < LEAST_P
