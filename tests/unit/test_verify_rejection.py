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
    Drafting,
    Law,
    chosen,
    constant,
    logits,
    measure,
    random_law,
    sampled,
    siblings,
)

from specdecode.sampling import Noise, Stream
from specdecode.types import EMPTY, Draft, Verdict
from specdecode.verify import Rows
from specdecode.verify.rejection import Rejection

RULE = Rejection()
P = constant(0.5, 0.3, 0.2)
Q = constant(0.2, 0.3, 0.5)


def mixed(noise: Noise) -> Draft:
    """Siblings of every kind under the newest token, and a child below each: law a, chosen, law b, law a again."""
    a, b = logits((0.2, 0.3, 0.5)), logits((0.6, 0.3, 0.1))
    (first, second), (other,) = siblings(a, 2, False, noise, POSITION), siblings(b, 1, False, noise, POSITION)
    return Draft((first, 1, other, second, 0, 1, 2, 0), (-1, -1, -1, -1, 0, 1, 2, 3), q=(a, None, b, a, *[None] * 4))


def with_probes(noise: Noise) -> Draft:
    """A drawn chain with probes beside its nodes, and a candidate that hangs on a probe."""
    draft = sampled(random_law(2), 1, 1)(noise)
    assert draft.q is not None
    return Draft(
        (0, draft.tokens[0], 1, draft.tokens[1], 2),
        (-1, -1, 1, 1, 0),
        candidate=(False, True, False, True, True),
        q=(None, draft.q[0], None, draft.q[1], None),
    )


def viewed(drafting: Drafting) -> Drafting:
    """The same drafts with a view of its own of the shared law for each node."""

    def draft(noise: Noise) -> Draft:
        tree = drafting(noise)
        assert tree.q is not None
        return replace(tree, q=tuple(None if law is None else law[:] for law in tree.q))

    return draft


LAWFUL: dict[str, tuple[Law, Drafting]] = {
    "no draft": (random_law(1), lambda noise: EMPTY),
    "chain of 1": (random_law(1), sampled(random_law(2), 1)),
    "chain of 3": (random_law(1), sampled(random_law(2), 1, 1, 1)),
    "chosen chain": (random_law(1), chosen(1, 0, 2, parents=(-1, 0, 1))),
    "2 siblings drawn with replacement": (random_law(1), sampled(random_law(2), 2, 1, replacement=True)),
    "2 siblings drawn without": (random_law(1), sampled(random_law(2), 2, 2)),
    "3 siblings drawn without": (random_law(1), sampled(random_law(2), 3, 1)),
    "chosen tree": (random_law(1), chosen(2, 0, 1, 0, 1, 2, parents=(-1, -1, 0, 0, 1, 1))),
    "chosen twice": (random_law(1), chosen(2, 2, 0, 0)),
    "every token chosen": (random_law(1), chosen(2, 1, 0)),
    "siblings of every kind": (random_law(1), mixed),
    "probes among candidates": (random_law(1), with_probes),
    "target with impossible tokens": (random_law(3, zeros=1), sampled(random_law(2), 2, 2)),
    "law with impossible tokens": (random_law(1), sampled(random_law(4, zeros=1), 2, 1, replacement=True)),
    "siblings whose laws are views of one tensor": (P, viewed(sampled(constant(0.8, 0.1, 0.1), 2, 2))),
    "law exhausted": (random_law(1), sampled(random_law(4, zeros=1), 3, 1)),
    "laws without common token": (constant(0.3, 0.7, 0, 0), sampled(constant(0, 0, 0.4, 0.6), 2, 1)),
    "one-hot target": (constant(0, 1, 0), sampled(random_law(2), 2, 2)),
}


@pytest.mark.parametrize("case", LAWFUL)
def test_emitted_tokens_have_the_law_of_the_target(case: str) -> None:
    target, drafting = LAWFUL[case]
    measured = measure(RULE, drafting, target, length=3 if len(target(())) == 3 else 2)
    assert measured.joint.sum() == pytest.approx(1, abs=EXACT)
    assert measured.error < EXACT


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


def relabelled(drafting: Drafting, change: Callable[[Draft], Draft]) -> Drafting:
    return lambda noise: change(drafting(noise))


P4, Q4 = random_law(1, vocab=4), random_law(2, vocab=4)


def test_control_drawn_without_replacement_but_verified_with_fails() -> None:
    wrong = relabelled(sampled(Q4, 3), lambda draft: replace(draft, replacement=True))
    assert measure(RULE, sampled(Q4, 3), P4).error < EXACT
    assert measure(RULE, wrong, P4).error > 0.01


def test_repeats_among_draws_said_to_be_without_replacement_cost_only_acceptance() -> None:
    """No control but a mercy: a token drawn again counts as chosen, and has no share left."""
    drafting = sampled(Q4, 3, replacement=True)
    mislabelled = measure(RULE, relabelled(drafting, lambda draft: replace(draft, replacement=False)), P4)
    assert mislabelled.error < EXACT
    assert mislabelled.acceptance < measure(RULE, drafting, P4).acceptance


def test_control_siblings_of_one_law_that_do_not_share_its_memory_fail() -> None:
    copies = tuple(logits(Q4(())) for _ in range(3))
    wrong = relabelled(sampled(Q4, 3), lambda draft: replace(draft, q=copies))
    assert measure(RULE, wrong, P4).error > 0.01
