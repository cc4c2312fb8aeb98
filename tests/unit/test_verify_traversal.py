"""Traversal verification: the enumerated numbers, more than rejection on the same trees, and what it reads."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction as Frac

import numpy as np
import pytest
from torch import Tensor
from verify_helpers import (
    EXACT,
    POSITION,
    Context,
    Law,
    chosen,
    constant,
    logits,
    measure,
    outcomes,
    random_law,
    sampled,
)

from specdecode.sampling import Stream
from specdecode.types import Draft
from specdecode.verify import make_rule
from specdecode.verify.rejection import Rejection
from specdecode.verify.traversal import Traversal

RULE = Traversal()


def published() -> tuple[Law, Law]:
    """Target and draft law of facts 2.6: whole numbers from 1 to 6 after each context, from seed 1."""
    chance = random.Random(1)

    def laws() -> dict[Context, list[Frac]]:
        out = {}
        for context in (c for n in range(4) for c in itertools.product(range(3), repeat=n)):
            weights = [chance.randint(1, 6) for _ in range(3)]
            out[context] = [Frac(x, sum(weights)) for x in weights]
        return out

    target, draft = laws(), laws()
    return lambda c: np.array(list(map(float, target[c]))), lambda c: np.array(list(map(float, draft[c])))


@pytest.mark.parametrize(("replacement", "traversal", "rejection"), [(False, 1.8168, 1.7920), (True, 1.7261, 1.6849)])
def test_enumerated_mean_of_accepted_tokens(replacement: bool, traversal: float, rejection: float) -> None:
    """Facts 2.6: trees of depth 2, two children a node, vocabulary 3, both ways of drawing."""
    target, q = published()
    drafting = sampled(q, 2, 2, replacement=replacement)
    ours = measure(RULE, drafting, target, length=3)
    assert ours.mean == pytest.approx(traversal, abs=5e-5)
    assert ours.error < EXACT
    assert measure(Rejection(), drafting, target).mean == pytest.approx(rejection, abs=5e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("replacement", [True, False])
def test_no_fewer_tokens_than_rejection(replacement: bool, seed: int) -> None:
    drafting, target = sampled(random_law(seed + 20), 2, 1, replacement=replacement), random_law(seed)
    assert measure(RULE, drafting, target).mean >= measure(Rejection(), drafting, target).mean - EXACT


def test_siblings_without_children_are_the_token_rule() -> None:
    drafting, target = sampled(random_law(2), 3), random_law(1)
    ours, token = measure(RULE, drafting, target), measure(Rejection(), drafting, target)
    assert ours.accepted == pytest.approx(token.accepted, abs=EXACT)


def test_a_chosen_tree_is_the_token_rule() -> None:
    drafting, target = chosen(2, 0, 1, 0, 1, 2, parents=(-1, -1, 0, 0, 1, 1)), random_law(1)
    ours, token = measure(RULE, drafting, target), measure(Rejection(), drafting, target)
    assert ours.accepted == pytest.approx(token.accepted, abs=EXACT)


def test_one_child_a_node_is_block_verification() -> None:
    drafting, target = sampled(random_law(2), 1, 1, 1), random_law(1)
    ours, block = measure(RULE, drafting, target), measure(make_rule("block"), drafting, target)
    assert ours.accepted == pytest.approx(block.accepted, abs=EXACT)


def test_nothing_below_an_impossible_token_is_read() -> None:
    read: list[int] = []

    class Spy:
        def __getitem__(self, row: int) -> Tensor:
            read.append(row)
            return logits((0, 0.5, 0.5))

    law = logits((0.5, 0.3, 0.2))
    draft = Draft((0, 1, 2, 1), (-1, 0, 1, -1), q=(law, law, law, None))
    RULE.verify(draft, Spy(), Stream(0), POSITION)
    assert set(read) <= {0, 4}


def test_a_deep_chain_needs_no_deep_stack() -> None:
    n = 3000
    draft = Draft.chain([0] * n, [logits((1, 0, 0))] * n)
    assert RULE.verify(draft, logits((1, 0, 0)).expand(n + 1, -1), Stream(0), POSITION).accepted == n


def test_the_root_is_always_accepted() -> None:
    """All refused, the next token comes from what was left: probabilities add up to one, and no step is lost."""
    drafting, target = sampled(constant(0, 0, 1), 1, 1), constant(0.5, 0.5, 0)
    measured = measure(RULE, drafting, target, length=2)
    assert measured.accepted == {0: pytest.approx(1, abs=EXACT)}
    assert sum(p for p, _ in outcomes(drafting)) == pytest.approx(1)
    assert measured.error < EXACT
