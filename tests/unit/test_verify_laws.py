"""Every rule of drawn drafts emits the target's law: exactly, by enumeration of all draws and coins.

Two levels and three tokens in the main: siblings drawn with and without replacement, chosen, mixed, hollow, or none.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
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

from specdecode.sampling import Noise
from specdecode.types import EMPTY, Draft
from specdecode.verify import RULES, make_rule

LAWFUL_RULES = [name for name, row in RULES.items() if row.lossless and make_rule(name).draws]
LAWFUL_RULES.remove("coupled")  # does not look at draft laws: tests/unit/test_verify_coupled.py
P = constant(0.5, 0.3, 0.2)
R2, Q2 = random_law(1, vocab=2), random_law(2, vocab=2)


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


def mixed_with_replacement(noise: Noise) -> Draft:
    """Law a twice, chosen, law b; below the first and the third of them one drawn child and one chosen."""
    a, b = logits((0.2, 0.3, 0.5)), logits((0.6, 0.3, 0.1))
    tokens = [*siblings(a, 2, True, noise, POSITION), 1, *siblings(b, 1, True, noise, POSITION)]
    below = logits((0.1, 0.8, 0.1))
    tokens += [*siblings(below, 1, True, noise, POSITION + 1), 1, *siblings(below, 1, True, noise, POSITION + 1), 1]
    laws = (a, a, None, b, below, None, below, None)
    return Draft(tuple(tokens), (-1, -1, -1, -1, 0, 0, 2, 2), q=laws, replacement=True)


def until_0(noise: Noise) -> Draft:
    """A drawn chain that ends at token 0, as at an end token: how long it is depends on what was drawn."""
    tokens: list[int] = []
    laws = []
    while len(tokens) < 2 and 0 not in tokens:
        laws.append(logits(random_law(2)(tuple(tokens))))
        tokens.append(noise.draw(laws[-1], POSITION))
    return Draft.chain(tokens, laws)


def after_its_elders_child(noise: Noise) -> Draft:
    """A younger sibling that is there for some of the draws of its elder's child only."""
    tree = sampled(random_law(2), 1, 1)(noise)
    assert tree.q is not None
    if tree.tokens[1] == 2:
        return tree
    law = logits(random_law(5)(()))
    return Draft((*tree.tokens, noise.draw(law, POSITION)), (-1, 0, -1), q=(*tree.q, law))


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
    "2 siblings drawn with replacement, twice": (R2, sampled(Q2, 2, 2, replacement=True)),
    "siblings of every kind": (random_law(1), mixed),
    "siblings of every kind, drawn with replacement": (random_law(1), mixed_with_replacement),
    "a length that depends on what was drawn": (random_law(1), until_0),
    "a sibling that depends on what was drawn": (random_law(1), after_its_elders_child),
    "drawn from the target itself": (random_law(1), sampled(random_law(1), 2, 2)),
    "probes among candidates": (random_law(1), with_probes),
    "target with impossible tokens": (random_law(3, zeros=1), sampled(random_law(2), 2, 2)),
    "law with impossible tokens": (random_law(1), sampled(random_law(4, zeros=1), 2, 1, replacement=True)),
    "siblings whose laws are views of one tensor": (P, viewed(sampled(constant(0.8, 0.1, 0.1), 2, 2))),
    "law exhausted": (random_law(1), sampled(random_law(4, zeros=1), 3, 1)),
    "laws without common token": (constant(0.3, 0.7, 0, 0), sampled(constant(0, 0, 0.4, 0.6), 2, 1)),
    "one-hot target": (constant(0, 1, 0), sampled(random_law(2), 2, 2)),
}


@pytest.mark.parametrize("case", LAWFUL)
@pytest.mark.parametrize("name", LAWFUL_RULES)
def test_emitted_tokens_have_the_law_of_the_target(name: str, case: str) -> None:
    target, drafting = LAWFUL[case]
    measured = measure(make_rule(name), drafting, target, length=2 if len(target(())) == 4 else 3)
    assert measured.joint.sum() == pytest.approx(1, abs=EXACT)
    assert measured.error < EXACT


P4, Q4 = random_law(1, vocab=4), random_law(2, vocab=4)


@pytest.mark.parametrize("name", [name for name in LAWFUL_RULES if name != "block"])
def test_control_drawn_without_replacement_but_verified_with_fails(name: str) -> None:
    def mislabelled(noise: Noise) -> Draft:
        return replace(sampled(Q4, 3)(noise), replacement=True)

    assert measure(make_rule(name), sampled(Q4, 3), P4).error < EXACT
    assert measure(make_rule(name), mislabelled, P4).error > 0.01


@pytest.mark.parametrize("name", [name for name in LAWFUL_RULES if name != "block"])
def test_control_siblings_of_one_law_that_do_not_share_its_memory_fail(name: str) -> None:
    def apart(noise: Noise) -> Draft:
        return replace(sampled(Q4, 3)(noise), q=tuple(logits(Q4(())) for _ in range(3)))

    assert measure(make_rule(name), apart, P4).error > 0.01


@pytest.mark.parametrize("name", LAWFUL_RULES)
def test_control_a_law_that_was_not_drawn_from_fails(name: str) -> None:
    """Fault 10: the stated law is another than the one behind the draws."""

    def misstated(noise: Noise) -> Draft:
        return replace(sampled(Q4, 1, 1)(noise), q=(logits(P4(())),) * 2)

    assert measure(make_rule(name), misstated, P4, length=2).error > 0.01
