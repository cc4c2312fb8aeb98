"""The arithmetic of the sampled tests: what a law says of the tokens that came, and how likely that is by chance.

Pure numbers; knows no model, session or text. All three statistics have a known law for any target, so that limits are
chosen once: a sound engine is refused less than once in ten thousand certificates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

LEAST_P = 1e-6  # a smaller p-value is no accident
MOST_Z = 4.9  # of a standard normal number, to either side: the same
LEAST_EXPECTED = 5.0  # of a cell of Pearson's test


@dataclass(frozen=True)
class Told:
    """What the exact law at one place says of the token that stands there. Nats and probabilities.

    surprise: -ln p(token). entropy, variance: mean and variance of -ln p(x) for x drawn from the law.
    below:    the probability of all likelier tokens (of equals, those of lower id); mass: p(token).
    excluded: whether the law has no such token. The other fields then are those of its least likely one: passes that
              round otherwise may cut a law elsewhere, and what does so often still shows.
    cut:      whether the law was cut by rank or mass."""

    surprise: float
    entropy: float
    variance: float
    below: float
    mass: float
    excluded: bool = False
    cut: bool = False

    @classmethod
    def of(cls, law: Tensor, token: int, cut: bool = False) -> Told:
        """law: [V] logits up to a constant, -inf for what cannot come."""
        logs = law.double().log_softmax(-1)
        shares = logs.exp()
        there = shares > 0
        excluded = not bool(there[token])
        least = shares.masked_fill(~there, math.inf)
        place = int(least.argmin()) if excluded else token
        costs = torch.where(there, -logs, 0.0)
        entropy = float(shares @ costs)
        mass = float(shares[place])
        before = (shares > shares[place]) | (
            (shares == shares[place]) & (torch.arange(len(law)).to(law.device) < place)
        )
        return cls(
            surprise=float(costs[place]),
            entropy=entropy,
            variance=float(shares @ (costs - entropy) ** 2),
            below=1 - mass if excluded else float(shares[before].sum()),
            mass=mass,
            excluded=excluded,
            cut=cut,
        )


def score(told: Sequence[Told]) -> float:
    """The z-score of the total surprise against the sum of the entropies.

    Given its own prefix, a token's surprise has the entropy of its law as mean, whatever came before; so the excess is
    a martingale and, over the root of the summed variances, standard normal (Hall and Heyde 1980, corollary 3.1).
    Infinite for an excess where the laws leave no room for one."""
    excess = math.fsum(t.surprise - t.entropy for t in told)
    variance = math.fsum(t.variance for t in told)
    if variance < 1e-9:
        return 0.0 if abs(excess) < 1e-6 else math.copysign(math.inf, excess)
    return excess / math.sqrt(variance)


def transform(told: Sequence[Told], coins: Sequence[float]) -> list[float]:
    """The randomised probability integral transform, likeliest tokens first (Brockwell 2007): below + coin * mass.
    Uniform on [0, 1] and independent if and only if every token had its law. coins: one uniform number each."""
    return [t.below + coin * t.mass for t, coin in zip(told, coins, strict=True)]


def kolmogorov(numbers: Sequence[float]) -> tuple[float, float]:
    """The Kolmogorov-Smirnov distance of numbers from the uniform law on [0, 1], and a bound for the chance of one so
    large, 2 exp(-2 n d^2) (Massart 1990), which holds for every n."""
    n, ordered = len(numbers), sorted(numbers)
    distance = max((max((i + 1) / n - u, u - i / n) for i, u in enumerate(ordered)), default=0.0)
    return distance, min(1.0, 2 * math.exp(-2 * n * distance**2))


def pearson(counts: Mapping[int, int], law: Tensor) -> tuple[float, int]:
    """Pearson's statistic of the tokens drawn from one law, and its degrees of freedom; 0 of them where draws are too
    few to say anything. law: [V] logits.

    Tokens expected LEAST_EXPECTED times have a cell each, all others share one, which joins the rarest cell where it is
    expected less often."""
    draws = sum(counts.values())
    expected = law.double().softmax(-1) * draws
    own = (expected >= LEAST_EXPECTED).nonzero().flatten().tolist()
    cells = sorted(((float(expected[token]), counts.get(token, 0)) for token in own), reverse=True)
    rest = (draws - math.fsum(e for e, _ in cells), draws - sum(seen for _, seen in cells))
    if rest[0] >= LEAST_EXPECTED or not cells:
        cells.append(rest)
    else:
        cells[-1] = (cells[-1][0] + rest[0], cells[-1][1] + rest[1])
    if len(cells) < 2:
        return 0.0, 0
    return math.fsum((seen - e) ** 2 / e for e, seen in cells), len(cells) - 1


def tail(statistic: float, freedom: int) -> float:
    """The chance that a chi-square number of so many degrees of freedom is as large."""
    if freedom == 0:
        return 1.0
    half = torch.tensor([freedom / 2, statistic / 2], dtype=torch.float64)
    return float(torch.special.gammaincc(half[0], half[1]))
