"""The greedy rule: the argmax walk, ties, probes and duplicates."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from verify_helpers import POSITION, Context, check, decode, logits, rows, script

from specdecode.sampling import Argmax
from specdecode.types import EMPTY, Draft, Verdict
from specdecode.verify.greedy import Greedy

RULE = Greedy()
WANTED = [1, 4, 2, 0, 3, 3, 1, 0] * 8


def verify(draft: Draft, target: Tensor) -> Verdict:
    verdict = RULE.verify(draft, target, Argmax(), POSITION)
    check(verdict, draft)
    return verdict


def wanted(*tokens: int, vocab: int = 6) -> Tensor:
    """[len(tokens), V] one row for each wanted token."""
    return 10 * torch.nn.functional.one_hot(torch.tensor(tokens), vocab).float()


def test_an_empty_draft_emits_the_argmax() -> None:
    assert verify(EMPTY, wanted(3)) == Verdict((3,), (), 0)


def test_the_walk_takes_the_branch_of_the_argmax() -> None:
    #        newest: 2      5(0)       2(1) -> 4   1(2)      4(3) -> 0  3(4)      0(5) -> 5
    draft = Draft((5, 2, 1, 4, 3, 0), (-1, -1, 0, 1, 1, 3))
    assert verify(draft, wanted(2, 0, 4, 0, 0, 1, 5)) == Verdict((2, 4, 0, 5), (1, 3, 5), 3)


def test_a_probe_is_never_walked_through() -> None:
    draft = Draft((2, 2, 4), (-1, -1, 0), candidate=(False, True, True))
    assert verify(draft, wanted(2, 4, 4, 0)) == Verdict((2, 4), (1,), 1)
    assert verify(Draft((2, 4), (-1, 0), candidate=(False, True)), wanted(2, 4, 0)) == Verdict((2,), (), 0)


def test_of_equal_siblings_the_first_is_taken() -> None:
    assert verify(Draft((2, 2, 4), (-1, -1, 1)), wanted(2, 3, 4, 0)) == Verdict((2, 3), (0,), 1)


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_the_correction_comes_from_the_row_of_the_rejected_token(k: int, wrong: int) -> None:
    """Fault 5: drafter wrong at one position of each draft."""

    def drafting(context: Context) -> Draft:
        tokens = WANTED[len(context) : len(context) + k]
        tokens[min(wrong, k - 1)] = 5
        return Draft.chain(tokens)

    tokens, verdicts = decode(RULE, script(WANTED, 6), drafting, Argmax(), 30)
    assert tokens[:30] == WANTED[:30]
    assert {v.accepted for v in verdicts} == {min(wrong, k - 1)}


def test_the_first_drafted_token_is_checked() -> None:
    """Fault 7: a draft of one token that is never right; then one that is right at its first token only."""
    tokens, verdicts = decode(RULE, script(WANTED, 6), lambda c: Draft.chain([5]), Argmax(), 40)
    assert tokens == WANTED[:40]
    assert {v.accepted for v in verdicts} == {0}
    tokens, verdicts = decode(RULE, script(WANTED, 6), lambda c: Draft.chain([WANTED[len(c)], 5]), Argmax(), 40)
    assert tokens == WANTED[: len(tokens)]
    assert {v.accepted for v in verdicts} == {1}


@pytest.mark.parametrize("k", [1, 2, 5])
def test_greedy_is_no_ratio_test(k: int) -> None:
    """Fault 20: p(0) = .35 exceeds q(0) = .25, but token 1 is the likeliest."""
    target, q = logits((0.35, 0.45, 0.15, 0.05)), logits((0.25, 0.25, 0.25, 0.25))
    draft = Draft.chain([0] * k, [q] * k)
    assert verify(draft, target.expand(k + 1, -1)) == Verdict((1,), (), 0)


@pytest.mark.parametrize("drafted", [(3, 3), (7, 7), (7, 3), ()])
@pytest.mark.parametrize("vocab", [9, 1000, 49_152])
def test_ties_go_to_the_lowest_id(drafted: tuple[int, ...], vocab: int) -> None:
    """Fault 72: ids 3 and 7 exactly tied at every step."""
    target = torch.zeros(len(drafted) + 1, vocab)
    target[:, [3, 7]] = 10
    emitted = verify(Draft.chain(drafted), target).tokens
    assert set(emitted) == {3}
    assert len(emitted) == (3 if drafted == (3, 3) else 1)


@pytest.mark.parametrize(
    "draft",
    [
        Draft.chain([1]),
        Draft.chain([1, 4, 2, 0]),
        Draft((0, 1, 2, 3), (-1,) * 4),
        Draft((0, 1, 2, 3, 4, 5, 0, 1), (-1,) * 8),
        Draft((0, 1), (-1, -1), candidate=(False, False)),
    ],
    ids=["1x1", "4x1", "1x4", "width over vocabulary", "probes only"],
)
def test_degenerate_trees(draft: Draft) -> None:
    """Fault 114: whatever the shape, the output is the target's."""
    tokens, _ = decode(RULE, script(WANTED, 6), lambda context: draft, Argmax(), 30)
    assert tokens == WANTED[: len(tokens)]


def test_inputs_are_not_mutated() -> None:
    """Fault 13: rows are bit-equal before and after."""
    draft = Draft((5, 2, 1, 4, 3, 0), (-1, -1, 0, 1, 1, 3))
    target = rows(script(WANTED, 6), draft)
    before = target.clone()
    verify(draft, target)
    assert torch.equal(target, before)
