"""The rejection rule: its law enumerated exactly, the published acceptance rates, and controls that must fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor
from verify_helpers import (
    EXACT,
    POSITION,
    Law,
    chosen,
    constant,
    logits,
    measure,
    random_law,
    sampled,
)

from specdecode.sampling import Noise, Stream
from specdecode.types import Draft, Verdict
from specdecode.verify import Rows
from specdecode.verify.rejection import Rejection

RULE = Rejection()
P = constant(0.5, 0.3, 0.2)
Q = constant(0.2, 0.3, 0.5)


@pytest.mark.parametrize(
    ("target", "q", "k", "replacement", "expected"),
    [
        (P, Q, 1, True, 0.7),
        (P, Q, 2, True, 0.76),
        (P, Q, 3, True, 0.808),
        (P, Q, 1, False, 0.7),
        (P, Q, 2, False, 0.82),
        (P, Q, 3, False, 1.0),
        (constant(1, 0), constant(0.5, 0.5), 2, True, 0.75),
        (constant(1, 0), constant(0.5, 0.5), 2, False, 1.0),
        (constant(0.6, 0.4), constant(0.6, 0.4), 1, True, 1.0),
    ],
)
def test_published_acceptance_of_siblings(target: Law, q: Law, k: int, replacement: bool, expected: float) -> None:
    """SpecInfer's and Sequoia's rules at one node, facts 2.5 (the first rows are printed in Sequoia, appendix F.3)."""
    measured = measure(RULE, sampled(q, k, replacement=replacement), target)
    assert measured.acceptance == pytest.approx(expected, abs=EXACT)
    assert measured.error < EXACT


@pytest.mark.parametrize(("k", "expected"), [(1, 0.7), (2, 1.19), (3, 1.533), (4, 1.7731)])
def test_published_mean_of_accepted_tokens_on_a_chain(k: int, expected: float) -> None:
    """Facts 2.4, the token rule; also alpha + alpha^2 + ... with alpha = 1 - TV = .7."""
    assert measure(RULE, sampled(Q, *[1] * k), P).mean == pytest.approx(expected, abs=EXACT)


def test_chosen_children_are_accepted_with_their_share_of_the_target() -> None:
    assert measure(RULE, chosen(2, 1), P).acceptance == pytest.approx(0.5, abs=EXACT)


@pytest.mark.parametrize(
    ("n", "replacement", "expected"),
    [
        (20_000, False, 0.82),
        pytest.param(200_000, False, 0.82, marks=pytest.mark.slow),
        pytest.param(200_000, True, 0.76, marks=pytest.mark.slow),
    ],
)
def test_the_real_noise_gives_the_same_law_and_acceptance(n: int, replacement: bool, expected: float) -> None:
    p, q, noise, law = P(()), torch.tensor(Q(())), Stream(11), logits(Q(()))
    pairs = torch.multinomial(q.expand(n, -1), 2, replacement, generator=torch.Generator().manual_seed(12)).tolist()
    target = logits(p).expand(3, -1)
    counts, accepted = np.zeros(3), 0
    for pair in pairs:
        draft = Draft(tuple(pair), (-1, -1), q=(law, law), replacement=replacement)
        verdict = RULE.verify(draft, target, noise, POSITION)
        counts[verdict.tokens[0]] += 1
        accepted += verdict.accepted
    assert (abs(counts / n - p) < 4.5 * np.sqrt(p * (1 - p) / n)).all()
    assert abs(accepted / n - expected) < 4.5 * math.sqrt(expected * (1 - expected) / n)


# --- negative controls: the test of the law must tell these from the rule -------------------------------------------


@dataclass(frozen=True)
class Textbook:
    """The chain rule with its residual to be filled in."""

    residual: Callable[[Tensor, Tensor], Tensor]
    name, lossless, keyed = "textbook", True, False

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int) -> Verdict:
        assert draft.q is not None
        for i, (token, law) in enumerate(zip(draft.tokens, draft.q, strict=True)):
            p, q = rows[i].softmax(-1), law.softmax(-1)  # type: ignore[union-attr]
            if not noise.uniform() < float(p[token] / q[token]):
                return Verdict.of(draft, range(i), noise.draw(self.residual(p, q).log(), position + i))
        n = len(draft)
        return Verdict.of(draft, range(n), noise.draw(rows[n], position + n))


def test_control_the_right_residual_passes() -> None:
    assert measure(Textbook(lambda p, q: (p - q).clamp(min=0)), sampled(Q, 1, 1), P, length=2).error < EXACT


@pytest.mark.parametrize("wrong", [lambda p, q: (q - p).clamp(min=0), lambda p, q: p, lambda p, q: (p - q).abs()])
def test_control_a_wrong_residual_fails(wrong: Callable[[Tensor, Tensor], Tensor]) -> None:
    assert measure(Textbook(wrong), sampled(Q, 1, 1), P, length=2).error > 0.01


def test_repeats_among_draws_said_to_be_without_replacement_cost_only_acceptance() -> None:
    """No control but a mercy: a token drawn again counts as chosen, and has no share left."""
    p, q = random_law(1, vocab=4), random_law(2, vocab=4)
    drafting = sampled(q, 3, replacement=True)
    mislabelled = measure(RULE, lambda noise: replace(drafting(noise), replacement=False), p)
    assert mislabelled.error < EXACT
    assert mislabelled.acceptance < measure(RULE, drafting, p).acceptance
