"""Lookahead decoding: what candidates of known acceptance gain, by exact enumeration against the formula."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction as Frac
from itertools import combinations_with_replacement, product

import pytest
from stubs import ScriptLM, make_session

from specdecode import theory
from specdecode.drafters.lookahead import Lookahead
from specdecode.engine import Generation
from specdecode.verify import make_rule

V = 40


def after_candidates(tails: Sequence[Sequence[int]], guesses: int = 15) -> int:
    """Tokens of the first step of a session whose prompt had these tails behind its newest token, in this order, when
    the target says 1, 2, 3, 4, 5."""
    prompt = [0, *(token for tail in tails for token in (*tail, 0))]
    target = ScriptLM([1, 2, 3, 4, 5], V)
    session = make_session(target, prompt, max_new_tokens=9)
    drafter = Lookahead(window=1, level=5, guesses=guesses)
    return len(Generation(target, drafter, [session], [make_rule("greedy")]).step()[0].tokens)


def tail_of(right: int, branch: int) -> tuple[int, ...]:
    """A tail of which the first `right` tokens are what the target says, and the next is not."""
    return (*range(1, right + 1), 10 + branch, 1, 2, 3)[:4]


def agreeing(a: Frac) -> list[Frac]:
    """[5] the chance that 0, 1, ... of a candidate's four tokens agree before the first that does not."""
    return [*(a**right * (1 - a) for right in range(4)), a**4]


def expected(a: Frac, branches: int) -> Frac:
    """The mean of a step with independent candidates, each of whose tokens agrees with the target with chance a: over
    every multiset of how many of them agree before the first that does not."""
    law, total = agreeing(a), Frac(0)
    for pattern in combinations_with_replacement(range(5), branches):
        ways = math.factorial(branches)
        for times in Counter(pattern).values():
            ways //= math.factorial(times)
        tails = [tail_of(right, branch) for branch, right in enumerate(pattern)]
        total += ways * math.prod(law[right] for right in pattern) * after_candidates(tails)
    return total


@pytest.mark.parametrize(("branches", "printed"), [(1, 1.9375), (2, 2.543), (7, 3.8295)])
def test_expected_tokens_of_a_step(branches: int, printed: float) -> None:
    """(g + 1) - sum over i = 1..g of (1 - a^i)^b, exactly: b candidates of g = 4 tokens through pool, tree and rule."""
    found = expected(Frac(1, 2), branches)
    assert found == theory.expected_tokens(Frac(1, 2), 4, branches)
    assert float(found) == pytest.approx(printed, abs=5e-5)


def test_expected_tokens_of_a_step_at_another_acceptance() -> None:
    assert expected(Frac(4, 5), 3) == theory.expected_tokens(Frac(4, 5), 4, 3)


@pytest.mark.slow
def test_expected_tokens_of_a_step_with_15_candidates() -> None:
    found = expected(Frac(1, 2), 15)
    assert found == theory.expected_tokens(Frac(1, 2), 4, 15)
    assert float(found) == pytest.approx(4.4719, abs=5e-5)


def test_a_smaller_pool_gains_less() -> None:
    """Negative control: of two candidates a pool of one has the last seen alone, and the mean shows it."""
    law = agreeing(Frac(1, 2))
    found = sum(
        law[i] * law[j] * after_candidates([tail_of(i, 0), tail_of(j, 1)], guesses=1)
        for i, j in product(range(5), repeat=2)
    )
    assert found == theory.expected_tokens(Frac(1, 2), 4, 1) < theory.expected_tokens(Frac(1, 2), 4, 2)


@pytest.mark.parametrize("level", [2, 3, 5, 9])
def test_an_n_gram_that_matches_as_a_whole_is_accepted_as_a_whole(level: int) -> None:
    """Its tail of N - 1 tokens, where the matching loop of the published code stops at N - 2."""
    script = list(range(20, 40))
    prompt = [*script[: level - 1], 7]
    target = ScriptLM(script, V)
    session = make_session(target, [7, *prompt], max_new_tokens=19)
    generation = Generation(target, Lookahead(window=1, level=level), [session], [make_rule("greedy")])
    (emission,) = generation.step()
    assert (emission.accepted, len(emission.tokens)) == (level - 1, level)
