"""The coupled rule: one text a seed whatever is drafted, its law enumerated exactly, and how often it accepts."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from verify_helpers import (
    EXACT,
    POSITION,
    Context,
    Drafting,
    Law,
    chosen,
    constant,
    decode,
    logits,
    measure,
    random_law,
    rows,
    sampled,
    script,
)

from specdecode.sampling import Keyed, Noise, Stream
from specdecode.types import EMPTY, Draft
from specdecode.verify.coupled import Coupled

RULE = Coupled()
P = constant(0.5, 0.3, 0.2)
Q = constant(0.2, 0.3, 0.5)


@pytest.mark.parametrize(
    "drafting",
    [
        lambda noise: EMPTY,
        sampled(random_law(2), 1, 1),
        sampled(random_law(2), 2, 2),
        sampled(random_law(2), 2, 1, replacement=True),
        chosen(2, 0, 1, 0, parents=(-1, -1, 0, 1)),
        chosen(0, 0, 1, 2),
    ],
    ids=["no draft", "chain", "without replacement", "with replacement", "chosen tree", "chosen twice"],
)
def test_emitted_tokens_have_the_law_of_the_target(drafting: Drafting) -> None:
    assert measure(RULE, drafting, random_law(1), length=3).error < EXACT


@pytest.mark.parametrize(("k", "expected"), [(1, 0.29), (2, 0.483), (3, 0.6161)])
def test_acceptance_of_independent_drafts_is_coincidence(k: int, expected: float) -> None:
    """Facts 2.5, the naive column: sum p (1 - (1 - q)^k)."""
    assert measure(RULE, sampled(Q, k, replacement=True), P).acceptance == pytest.approx(expected, abs=EXACT)


def test_acceptance_of_chosen_children_is_their_share_of_the_target() -> None:
    """Facts 2.5, top-2 of q."""
    assert measure(RULE, chosen(2, 1), P).acceptance == pytest.approx(0.5, abs=EXACT)


def test_coincidence_wastes_drafts_and_shared_noise_does_not() -> None:
    """Fault 21: p = q = [.5, .3, .2]: drafts drawn apart meet the target's draw at .38, with shared noise at 1."""
    assert measure(RULE, sampled(P, 1), P).acceptance == pytest.approx(0.38, abs=EXACT)
    for seed in range(200):
        noise = Keyed(seed, 3)
        draft = sampled(P, 1, 1, 1)(noise)
        assert RULE.verify(draft, rows(P, draft), noise, POSITION).accepted == 3


def shared_draws(p: Law, q: Law, n: int) -> tuple[np.ndarray, float]:
    """The frequencies of emitted tokens and the acceptance when drafter and target share the noise of n positions."""
    noise = Keyed(5, len(p(())))
    law, target = logits(q(())), logits(p(())).expand(2, -1)
    counts, accepted = np.zeros(len(p(()))), 0
    for position in range(n):
        draft = Draft.chain([noise.draw(law, position)], [law])
        verdict = RULE.verify(draft, target, noise, position)
        counts[verdict.tokens[0]] += 1
        accepted += verdict.accepted
    return counts / n, accepted / n


@pytest.mark.parametrize("n", [20_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_shared_noise_accepts_as_the_theory_says_and_keeps_the_law(n: int) -> None:
    """Daliri, Musco and Suresh 2024: sum_x 1 / sum_y max(p_y / p_x, q_y / q_x), at least (1 - TV) / (1 + TV)."""
    p, q = P(()), Q(())
    expected = sum(1 / np.maximum(p / p[x], q / q[x]).sum() for x in range(3))
    assert expected > 0.7 / 1.3
    frequencies, acceptance = shared_draws(P, Q, n)
    assert abs(acceptance - expected) < 4.5 * math.sqrt(expected * (1 - expected) / n)
    assert (abs(frequencies - p) < 4.5 * np.sqrt(p * (1 - p) / n)).all()


def random_trees(seed: int, vocab: int) -> Callable[[Context], Draft]:
    """Another tree for each length of the context: up to 12 tokens, some of them probes."""

    def draft(context: Context) -> Draft:
        rng = np.random.default_rng((seed, len(context)))
        n = int(rng.integers(0, 13))
        tokens, parents = rng.integers(0, vocab, n).tolist(), [int(rng.integers(-1, i)) for i in range(n)]
        return Draft(tuple(tokens), tuple(parents), candidate=tuple((rng.random(n) < 0.8).tolist()))

    return draft


def test_a_seed_gives_one_text_whatever_is_drafted() -> None:
    target = random_law(1, vocab=4)
    plain, _ = decode(RULE, target, lambda context: EMPTY, Keyed(3, 4), 60)
    accepted = 0
    for case in range(5):
        tokens, verdicts = decode(RULE, target, random_trees(case, 4), Keyed(3, 4), 60)
        assert tokens[:60] == plain
        accepted += sum(v.accepted for v in verdicts)
    assert accepted > 20
    other, _ = decode(RULE, target, lambda context: EMPTY, Keyed(4, 4), 60)
    assert other != plain


def test_control_a_stream_gives_another_text_with_other_drafts() -> None:
    """What keyed noise is for: the same law, but the text depends on what was drafted."""
    target = random_law(1, vocab=4)

    def drafting(noise: Noise) -> list[int]:
        return decode(RULE, target, lambda c: sampled(target, 1)(noise), noise, 60)[0]

    assert drafting(Keyed(3, 4))[:60] == decode(RULE, target, lambda c: EMPTY, Keyed(3, 4), 60)[0]
    assert drafting(Stream(3))[:60] != decode(RULE, target, lambda c: EMPTY, Stream(3), 60)[0]


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_the_correction_comes_from_the_row_of_the_rejected_token(k: int, wrong: int) -> None:
    """Fault 5: target one-hot at every position, drafter wrong at one position of each draft."""
    wanted = [1, 4, 2, 0, 3, 3, 1, 0] * 8

    def drafting(context: Context) -> Draft:
        tokens = wanted[len(context) : len(context) + k]
        tokens[min(wrong, k - 1)] = 5
        return Draft.chain(tokens)

    tokens, verdicts = decode(RULE, script(wanted, 6), drafting, Keyed(0, 6), 30)
    assert tokens[:30] == wanted[:30]
    assert {v.accepted for v in verdicts} == {min(wrong, k - 1)}


def test_impossible_tokens_never_come_out() -> None:
    """Fault 11: tokens that the target's filters cut off are not emitted, whoever drafts them."""
    target = constant(0.625, 0.375, 0, 0)
    assert measure(RULE, sampled(constant(0.1, 0.2, 0.3, 0.4), 3), target).error < EXACT
    tokens, _ = decode(RULE, target, random_trees(0, 4), Keyed(0, 4), 500)
    assert set(tokens) == {0, 1}


def test_inputs_are_not_mutated() -> None:
    """Fault 13: rows and laws are bit-equal before and after."""
    law = logits(Q(()))
    draft = Draft((1, 2, 0), (-1, -1, -1), q=(law,) * 3)
    target = rows(P, draft)
    before, law_before = target.clone(), law.clone()
    for position in range(50):
        RULE.verify(draft, target, Keyed(0, 3), position)
    assert torch.equal(target, before)
    assert torch.equal(law, law_before)


@pytest.mark.parametrize(
    "drafting",
    [
        sampled(random_law(2, vocab=5), 1),
        sampled(random_law(2, vocab=5), 4),
        sampled(random_law(2, vocab=5, zeros=3), 1, 1, 1, 1),
        sampled(random_law(2, vocab=5), 8),
        chosen(0, 1, 2, 3, 4, 0, 1, 2),
    ],
    ids=["1x1", "1x4", "4x1", "width over vocabulary", "all chosen"],
)
def test_degenerate_trees(drafting: Drafting) -> None:
    """Fault 114: depth or width 1, more siblings than tokens."""
    assert measure(RULE, drafting, random_law(1, vocab=5)).error < EXACT
