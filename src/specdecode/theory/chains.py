"""Drafts as chains: tokens, time and work. Knows the acceptance a as a number, whatever rule and laws it comes from."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..errors import BadOption, check_count
from .arguments import Real, check_cost, check_unit


def expected_tokens(a: Real, g: int, branches: int = 1) -> Real:
    """Tokens emitted per step by drafts of g tokens: (1 - a^(g+1)) / (1 - a), summed term by term so that a = 1 is no
    special case ([Leviathan] eq. 1). With `branches` independent chains of which the best is kept:
    (g + 1) - sum over i = 1..g of (1 - a^i)^branches ([Lookahead])."""
    check_unit("acceptance", a)
    check_count("draft length", g, 0)
    check_count("branches", branches, 1)
    return g + 1 - sum((1 - a**i) ** branches for i in range(1, g + 1))


def emitted_law(a: Real, g: int) -> list[Real]:
    """[g + 1] probability that a step emits 1, 2, ..., g + 1 tokens. The chance of more than k is a^k, k <= g."""
    check_unit("acceptance", a)
    check_count("draft length", g, 0)
    return [*(a**k * (1 - a) for k in range(g)), a**g]


def speedup(a: Real, g: int, c: Real, verify_cost: Real = 1) -> Real:
    """Plain decoding's time per token over speculation's ([Leviathan] theorem 3.8).

    verify_cost: time of the pass that verifies g drafted tokens, in passes of a single token: measured t(g+1) / t(1).
    The paper takes it to be 1."""
    check_cost("draft cost", c)
    if not 0 < verify_cost < math.inf:
        raise BadOption(f"verify cost is {verify_cost!r}; give a positive, finite number of single-token passes")
    return expected_tokens(a, g) / (g * c + verify_cost)


def can_improve(a: Real, c: Real) -> bool:
    """Whether some draft length beats plain decoding while verifying costs one pass: a > c ([Leviathan] corollary 3.9).
    The gain is then at least speedup(a, 1, c) = (1 + a) / (1 + c)."""
    check_unit("acceptance", a)
    check_cost("draft cost", c)
    return a > c


def best_length(
    a: Real, c: Real, longest: int = 64, verify_cost: Callable[[int], Real] = lambda g: 1
) -> tuple[int, Real]:
    """The draft length up to `longest` with the highest speed-up, and that speed-up; the shortest of equals, and (0, 1)
    where none is faster than plain decoding. verify_cost: of each draft length g >= 1, as in `speedup`."""
    check_count("longest draft", longest, 0)
    check_unit("acceptance", a)
    check_cost("draft cost", c)
    gains: list[Real] = [1, *(speedup(a, g, c, verify_cost(g)) for g in range(1, longest + 1))]
    g = max(range(len(gains)), key=gains.__getitem__)
    return g, gains[g]


def operations_factor(a: Real, g: int, c_ops: Real = 0) -> Real:
    """Arithmetic per emitted token over plain decoding's ([Leviathan] theorem 3.11). c_ops: operations of a draft step
    in those of the target for one token."""
    check_cost("draft operations", c_ops)
    return (g * c_ops + g + 1) / expected_tokens(a, g)


def pipelined(match: Real, exit: Real, k: int) -> tuple[Real, Real]:
    """(latency, compute) per token over plain decoding's, where the k guesses of an intermediate layer start the next
    position early, each on hardware of its own ([PPD], the trade of its section 4).

    match: chance that the next token is among the guesses; exit: the share of the layers below them, from 1/2 to 1, so
    that at most two positions overlap. A position that was guessed is 1 - exit of the stack ahead when its turn comes,
    and for that time k guesses were run, of which a right one is work not to be done again."""
    check_unit("match rate", match)
    if not 0.5 <= exit <= 1:
        raise BadOption(f"exit is {exit!r} of the layers; give a share from 0.5 to 1")
    check_count("guesses", k, 1)
    ahead = 1 - exit
    return 1 - match * ahead, 1 + (k - match) * ahead
