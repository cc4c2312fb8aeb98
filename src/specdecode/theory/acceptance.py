"""What a rule accepts, from target law and draft law alone: of one drafted token, of several at a node, of a chain."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

from ..errors import check_count
from .arguments import Law, Real, check_law, check_laws, check_lenience

HALVINGS = 24  # of the interval in which rho is looked for

# ---- one drafted token


def acceptance(p: Law, q: Law, lenience: Real = 1) -> Real:
    """Chance that a token drawn from q is accepted: sum of min(p / l, q), at l = 1 one minus the total variation
    distance ([Leviathan] theorem 3.5, lenience A.5). `lenience` in (0, 1]."""
    check_laws(p, q)
    check_lenience(lenience)
    return sum(min(x / lenience, y) for x, y in zip(p, q, strict=True))


def leniently_accepted(p: Law, token: int, lenience: Real) -> bool:
    """Whether greedy decoding with lenience accepts `token`: p(token) >= l * max p ([Leviathan] A.5, whose printed
    inequality is reversed: l = 1 has to be exact)."""
    check_law("target law", p)
    check_lenience(lenience)
    return p[token] >= lenience * max(p)


# ---- any of k drafted tokens at one node


def naive_acceptance(p: Law, q: Law, k: int) -> Real:
    """A token drawn from p is among k drawn from q with replacement: sum of p (1 - (1 - q)^k). The baseline of
    [SpecInfer] theorem 4.3."""
    check_laws(p, q)
    check_count("candidates", k, 1)
    return sum(x * (1 - (1 - y) ** k) for x, y in zip(p, q, strict=True))


def top_k_acceptance(p: Law, q: Law, k: int) -> Real:
    """A token drawn from p is among the k likeliest of q (ties to the lowest ids): the mass p gives them. Testing
    those k one by one as point masses accepts as often."""
    check_laws(p, q)
    check_count("candidates", k, 1)
    likeliest = sorted(range(len(q)), key=q.__getitem__, reverse=True)[:k]
    return sum(p[token] for token in likeliest)


def mss_acceptance(p: Law, q: Law, k: int) -> Real:
    """k tokens drawn from q with replacement, each tested against what the refused ones left of p ([SpecInfer]
    algorithm 2)."""
    check_laws(p, q)
    check_count("candidates", k, 1)
    residual: Law = p
    all_refused: Real = 1
    for _ in range(k):
        all_refused *= 1 - sum(map(min, residual, q))
        residual = _residual(residual, q)
    return 1 - all_refused


def without_replacement_acceptance(p: Law, q: Law, k: int) -> Real:
    """k tokens drawn from q without replacement, each tested against what the refused ones left of p; when the support
    of q is used up the draws go on uniformly ([Sequoia] algorithm 2). Walks every order of refusals, up to
    V! / (V - k)!: meant for small vocabularies."""
    check_laws(p, q)
    check_count("candidates", k, 1)
    return _any_accepted(p, q, k, frozenset())


def _any_accepted(residual: Law, draft: Law, draws: int, refused: frozenset[int]) -> Real:
    total: Real = 0
    for token, chance in enumerate(draft):
        if chance == 0:
            continue
        accepted = min(1, residual[token] / chance)
        later: Real = 0
        if accepted < 1 and draws > 1:
            gone = refused | {token}
            later = _any_accepted(_residual(residual, draft), _without(draft, gone), draws - 1, gone)
        total += chance * (accepted + (1 - accepted) * later)
    return total


def kseq_acceptance(p: Law, q: Law, k: int) -> float:
    """k tokens drawn from q with replacement, each accepted with probability min(1, p / (rho q)): 1 - (1 - beta)^k with
    beta = sum of min(q, p / rho) ([SpecTr] K-SEQ; in closed form [Sequoia] F.3)."""
    rho = kseq_rho(p, q, k)
    return float(1 - (1 - sum(min(y, x / rho) for x, y in zip(p, q, strict=True))) ** k)


def kseq_rho(p: Law, q: Law, k: int) -> float:
    """The factor by which K-SEQ lowers each token's chance, so that k tries do not exceed the target law."""
    check_laws(p, q)
    check_count("candidates", k, 1)
    return smallest_rho(lambda rho: float(sum(min(y, x / rho) for x, y in zip(p, q, strict=True))), k)


def smallest_rho(beta: Callable[[float], float], k: int) -> float:
    """The smallest rho in [1, k] with 1 - (1 - beta(rho))^k <= rho beta(rho), by bisection: of the last two one that
    meets it, so that rounding costs acceptance and never the law. beta: falling, with rho beta(rho) rising."""

    def exceeds(rho: float) -> bool:
        accepted = beta(rho)
        return 1 - (1 - accepted) ** k > rho * accepted

    low, high = 1.0, float(k)
    if k == 1 or not exceeds(low):
        return low
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if exceeds(middle) else (low, middle)
    return high


def _residual(p: Law, q: Law) -> Law:
    """norm(max(p - q, 0)), or p where nothing is left of it."""
    left = [max(x - y, 0) for x, y in zip(p, q, strict=True)]
    mass = sum(left)
    return [x / mass for x in left] if mass else p


def _without(q: Law, refused: frozenset[int]) -> Law:
    """q without the refused tokens; uniform over the others where it gave them nothing."""
    left = [0 if token in refused else x for token, x in enumerate(q)]
    mass = sum(left)
    if mass:
        return [x / mass for x in left]
    others = len(q) - len(refused)
    return [0 if token in refused else Fraction(1, others) for token in range(len(q))]


# ---- a chain verified as a whole


def block_expected_tokens(p: Law, q: Law, g: int) -> Real:
    """Tokens emitted per step by block verification ([Block] algorithm 2) of g tokens drawn from q, where neither law
    depends on what came before: 1 + sum over l = 1..g and all x_1..x_l of the least, over i = 0..l, of
    q(x_1) .. q(x_i) p(x_i+1) .. p(x_l). The token rule emits expected_tokens(acceptance(p, q), g), which is no more.
    Walks all V^g chains: meant for small vocabularies."""
    check_laws(p, q)
    check_count("draft length", g, 0)
    return 1 + sum(
        _reached(p, q, chain) for length in range(1, g + 1) for chain in product(range(len(p)), repeat=length)
    )


def _reached(p: Law, q: Law, chain: tuple[int, ...]) -> Real:
    """The probability that this chain is drawn and accepted."""
    drawn, told = [q[token] for token in chain], [p[token] for token in chain]
    return min(math.prod(drawn[:i]) * math.prod(told[i:]) for i in range(len(chain) + 1))
