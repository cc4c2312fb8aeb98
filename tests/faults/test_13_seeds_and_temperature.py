"""Kind 13: a request's seed and temperature are its own, whatever shares its batch."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch
from enroll import METHODS, SAMPLED
from stubs import DistLM
from whole import PROMPT, Pair, base, habit, make, run, say, transformers

from specdecode.sampling import Sampling
from specdecode.session import Session

FLOOR = -20.0  # a token of the law itself falls below with probability under 97 e^-20 a step


@pytest.mark.parametrize("rule", SAMPLED)
@pytest.mark.parametrize("method", METHODS)
def test_the_seed_is_the_requests_own(method: str, rule: str) -> None:
    """Fault 77: seed 42 twice gives one text, seed 43 another, and the global random states stay where they are."""

    def text(seed: int) -> list[int]:
        pair = habit()
        return say(
            pair.target, make(method, pair), PROMPT, n=60, rule=rule, sampling=Sampling(temperature=1, seed=seed)
        )

    torch.manual_seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    first = text(42)
    random.random(), np.random.random(), torch.rand(1)
    moved = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert text(42) == first
    assert text(43) != first
    after = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert torch.equal(after[0], moved[0])
    assert after[1:] == moved[1:]
    assert not torch.equal(before[0], moved[0])


@pytest.mark.parametrize("rule", SAMPLED)
@pytest.mark.parametrize(("method", "kind"), [*((method, habit) for method in METHODS), ("lm", transformers)])
def test_seeded_and_unseeded_rows_share_a_batch(method: str, kind: Callable[[], Pair], rule: str) -> None:
    """Fault 78: rows with seeds 1, None, 2, None, in two orders: seeded rows are as alone, and no row talks junk."""
    pair, prompts = kind(), [(10, 3, 5), (7,) * 6, (1, 2), (20, 21, 20, 21)]
    laws = [Sampling(temperature=1, seed=seed) for seed in (1, None, 2, None)]

    def speak(*rows: int) -> dict[int, Session]:
        asked = {"n": 20, "rule": rule, "logprobs": 0, "sampling": [laws[row] for row in rows]}
        sessions = run(pair.target, make(method, pair), *[prompts[row] for row in rows], **asked)
        return dict(zip(rows, sessions, strict=True))

    alone = {row: speak(row)[row].new_tokens for row in (0, 2)}
    for order in ((0, 1, 2, 3), (3, 2, 0, 1)):
        batch = speak(*order)
        assert {row: batch[row].new_tokens for row in alone} == alone
        assert min(entry.logprob for session in batch.values() for entry in session.logprobs) > FLOOR


@pytest.mark.parametrize("rule", SAMPLED)
@pytest.mark.parametrize("method", METHODS)
def test_greedy_and_sampled_rows_share_a_batch(method: str, rule: str) -> None:
    """Fault 80: temperatures 0, 1, 0, .7: rows 0 and 2 are greedy decoding, no number is broken or negative."""
    pair = habit()
    laws = [Sampling(temperature=t, seed=3) for t in (0, 1, 0, 0.7)]
    sessions = run(pair.target, make(method, pair), *[PROMPT] * 4, rule=rule, sampling=laws, logprobs=0)
    greedy = base(pair.target, PROMPT)
    assert sessions[0].new_tokens == sessions[2].new_tokens == greedy
    assert greedy not in (sessions[1].new_tokens, sessions[3].new_tokens)
    for session in sessions:
        assert len(session.new_tokens) == sum(record.emitted for record in session.records) == 40
        assert all(-100 < entry.logprob <= 0 for entry in session.logprobs)


@pytest.mark.parametrize("rule", SAMPLED)
@pytest.mark.parametrize("method", METHODS)
def test_another_seed_is_another_text(method: str, rule: str) -> None:
    """Fault 82: at T=1 40 tokens of two seeds differ, and no text is the greedy one."""
    pair, laws = habit(), [Sampling(temperature=1, seed=seed) for seed in range(4)]
    sessions = run(pair.target, make(method, pair), *[PROMPT] * 4, rule=rule, sampling=laws)
    texts = {tuple(session.new_tokens) for session in sessions}
    assert len(texts | {tuple(base(pair.target, PROMPT))}) == 5


def shares(p: list[float], method: str, rule: str, sampling: Sampling, n: int) -> list[float]:
    """The frequency of each token of DIST p over n draws by sessions of 100."""
    pair = Pair(DistLM(p), DistLM([1 / len(p)] * len(p)), DistLM([1 / len(p)] * len(p)).law)
    counts: Counter[int] = Counter()
    for start in range(0, n // 100, 25):
        laws = [Sampling(temperature=sampling.temperature, top_k=sampling.top_k, seed=start + i) for i in range(25)]
        sessions = run(pair.target, make(method, pair), *[[0]] * 25, n=100, rule=rule, sampling=laws)
        counts.update(token for session in sessions for token in session.new_tokens)
    return [counts[token] / counts.total() for token in range(len(p))]


Case = tuple[list[float], Sampling, list[float]]
CASES: dict[str, Case] = {
    "temperature 1": ([0.6, 0.4], Sampling(temperature=1), [0.6, 0.4]),
    "only top_k": ([0.5, 0.3, 0.15, 0.05], Sampling(top_k=3), [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0.0]),
}


def check_law(case: Case, method: str, rule: str, n: int) -> None:
    """Within 4.5 sigma of the law."""
    p, sampling, law = case
    for found, expected in zip(shares(p, method, rule, sampling, n), law, strict=True):
        assert found == pytest.approx(expected, abs=4.5 * (expected * (1 - expected) / n) ** 0.5)


@pytest.mark.parametrize("rule", SAMPLED)
@pytest.mark.parametrize("case", CASES)
def test_sampling_is_not_silently_greedy_quick(case: str, rule: str) -> None:
    """Faults 81 and 82, in small."""
    check_law(CASES[case], "lm", rule, 2_500)


def test_greedy_decoding_fails_the_same_check() -> None:
    """Negative control of the above."""
    p, _, law = CASES["only top_k"]
    with pytest.raises(AssertionError):
        check_law((p, Sampling(temperature=0, top_k=3), law), "null", "rejection", 2_500)


@pytest.mark.slow
@pytest.mark.parametrize("rule", SAMPLED)
@pytest.mark.parametrize(("case", "method"), [*(("temperature 1", m) for m in METHODS), ("only top_k", "lm")])
def test_sampling_is_not_silently_greedy(case: str, method: str, rule: str) -> None:
    """Faults 81 and 82: the frequencies of 50,000 draws; a truncation alone does not make a request greedy."""
    check_law(CASES[case], method, rule, 50_000)
