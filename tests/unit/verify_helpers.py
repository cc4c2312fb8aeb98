"""Exact laws of verification rules: every outcome of every chance, with its probability, over tiny vocabularies.

`outcomes` runs a function of a Noise once for each branch that its coins and draws can take. A rule is then compared
with the target by equality up to rounding, not by statistics.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from specdecode.sampling import Noise
from specdecode.types import Draft, Verdict
from specdecode.verify import Verifier

T = TypeVar("T")
Context = tuple[int, ...]  # new tokens since the start
Law = Callable[[Context], np.ndarray]  # [V] the probabilities of the next token
Drafting = Callable[[Noise], Draft]
POSITION = 7  # of the first token a step decides; any will do
EXACT = 1e-6  # what fp32 leaves of equality


# --- every outcome --------------------------------------------------------------------------------------------------


class Coin(float):
    """A uniform number not looked at yet: `coin < a` branches, and is true with probability a."""

    noise: Branching

    def __lt__(self, threshold: object) -> bool:
        heads = min(1.0, max(0.0, float(threshold)))  # type: ignore[arg-type]
        return self.noise.choose((heads, 1 - heads)) == 0


@dataclass
class Branching:
    """A Noise that repeats the choices of `script`, then takes the first possible one and notes down the others."""

    script: tuple[int, ...]
    probability: float = 1.0
    taken: tuple[int, ...] = ()
    others: list[tuple[int, ...]] = field(default_factory=list)

    def choose(self, probabilities: Sequence[float]) -> int:
        assert not any(map(math.isnan, probabilities)), probabilities
        if len(self.taken) < len(self.script):
            choice = self.script[len(self.taken)]
        else:
            choice, *rest = [i for i, p in enumerate(probabilities) if p > 1e-15]
            self.others += [(*self.taken, other) for other in rest]
        self.taken = (*self.taken, choice)
        self.probability *= probabilities[choice]
        return choice

    def draw(self, logits: Tensor, position: int) -> int:
        return self.choose(logits.double().softmax(-1).tolist())

    def uniform(self) -> float:
        coin = Coin(0.5)
        coin.noise = self
        return coin


def outcomes(run: Callable[[Noise], T]) -> Iterator[tuple[float, T]]:
    """(probability, run(noise)) for every outcome of `run`, whose only chance must be its noise."""
    pending: list[tuple[int, ...]] = [()]
    while pending:
        noise = Branching(pending.pop())
        result = run(noise)
        pending += noise.others
        yield noise.probability, result


# --- laws -----------------------------------------------------------------------------------------------------------


def constant(*law: float) -> Law:
    return lambda context: np.array(law)


def random_law(seed: int, vocab: int = 3, zeros: int = 0) -> Law:
    """Another law after each context, `zeros` tokens of it impossible."""

    @cache
    def law(context: Context) -> np.ndarray:
        rng = np.random.default_rng((seed, *(t + 1 for t in context)))
        p: np.ndarray = rng.dirichlet(np.ones(vocab))
        p[rng.permutation(vocab)[:zeros]] = 0
        p /= p.sum()
        return p

    return law


def script(tokens: Sequence[int], vocab: int) -> Law:
    """The law that gives `tokens` whatever came before; only the length of the context counts."""
    return lambda context: np.eye(vocab)[tokens[len(context)]]


def logits(law: Sequence[float] | np.ndarray) -> Tensor:
    """[V] fp32 logits of a law, up to a constant that must not matter."""
    return torch.tensor(np.asarray(law), dtype=torch.float64).log().add(1.5).float()


def rows(target: Law, draft: Draft, context: Context = ()) -> Tensor:
    """[n + 1, V] the target's logits at the nodes of `draft`."""
    contexts = [context]
    for token, parent in zip(draft.tokens, draft.parents, strict=True):
        contexts.append((*contexts[parent + 1], token))
    return torch.stack([logits(target(c)) for c in contexts])


def continuation(target: Law, context: Context, length: int) -> np.ndarray:
    """[V] * (length - len(context)) the law of the tokens that follow `context`."""
    vocab = len(target(()))
    out = np.ones((vocab,) * (length - len(context)))
    for tokens in itertools.product(range(vocab), repeat=out.ndim):
        whole = context + tokens
        out[tokens] = math.prod(target(whole[:i])[whole[i]] for i in range(len(context), length))
    return out


# --- drafts ---------------------------------------------------------------------------------------------------------


def sampled(q: Law, *widths: int, replacement: bool = False) -> Drafting:
    """Trees whose nodes at depth d have widths[d] children drawn from q."""
    law_after = cache(lambda context: logits(q(context)))

    def draft(noise: Noise) -> Draft:
        tokens: list[int] = []
        parents: list[int] = []
        laws: list[Tensor | None] = []
        level: list[tuple[int, Context]] = [(-1, ())]
        for depth, width in enumerate(widths):
            below: list[tuple[int, Context]] = []
            for parent, context in level:
                law = law_after(context)
                for token in siblings(law, width, replacement, noise, POSITION + depth):
                    below.append((len(tokens), (*context, token)))
                    tokens.append(token)
                    parents.append(parent)
                    laws.append(law)
            level = below
        return Draft(tuple(tokens), tuple(parents), q=tuple(laws), replacement=replacement)

    return draft


def siblings(law: Tensor, width: int, replacement: bool, noise: Noise, position: int) -> list[int]:
    left = law.clone()
    tokens: list[int] = []
    while len(tokens) < width and left.max() > -math.inf:
        tokens.append(noise.draw(left, position))
        if not replacement:
            left[tokens[-1]] = -math.inf
    return tokens


def chosen(*tokens: int, parents: Sequence[int] | None = None) -> Drafting:
    """The same draft always, of point masses; siblings of the newest token unless `parents` says otherwise."""
    draft = Draft(tokens, tuple(parents) if parents is not None else (-1,) * len(tokens))
    return lambda noise: draft


# --- measuring ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """joint: [V] * length, the law of the first `length` tokens, completed by the target where the step emits fewer.
    accepted: {number of draft tokens: probability that the step accepts exactly so many}.
    error: the largest difference between `joint` and the target's own."""

    joint: np.ndarray
    accepted: dict[int, float]
    error: float

    @property
    def acceptance(self) -> float:
        """The probability that a child of the newest token is accepted."""
        return 1 - self.accepted.get(0, 0.0)

    @property
    def mean(self) -> float:
        return sum(n * p for n, p in self.accepted.items())


def measure(rule: Verifier, drafting: Drafting, target: Law, length: int = 1) -> Measured:
    """The exact law of one step, summed over the draft's own draws."""
    rest = cache(lambda head: continuation(target, head, length))
    rows_at = cache(lambda tokens, parents: rows(target, Draft(tokens, parents)))
    joint = np.zeros((len(target(())),) * length)
    accepted: dict[int, float] = {}

    def step(noise: Noise) -> Verdict:
        draft = drafting(noise)
        verdict = rule.verify(draft, rows_at(draft.tokens, draft.parents), noise, POSITION)
        check(verdict, draft)
        return verdict

    for probability, verdict in outcomes(step):
        head = verdict.tokens[:length]
        joint[head] += probability * rest(head)
        accepted[verdict.accepted] = accepted.get(verdict.accepted, 0.0) + probability
    return Measured(joint, accepted, float(abs(joint - rest(())).max()))


def check(verdict: Verdict, draft: Draft) -> None:
    """What is true of every verdict: an unbroken path of candidates from the top, their tokens, and one more."""
    assert [draft.parents[node] for node in verdict.path] == [-1, *verdict.path][: len(verdict.path)]
    assert all(draft.is_candidate(node) for node in verdict.path)
    assert verdict.tokens[:-1] == tuple(draft.tokens[node] for node in verdict.path)
    assert verdict.accepted == len(verdict.path)


def decode(
    rule: Verifier, target: Law, drafting: Callable[[Context], Draft], noise: Noise, length: int
) -> tuple[list[int], list[Verdict]]:
    """At least `length` new tokens and the verdicts that gave them; drafting(context) proposes."""
    tokens: list[int] = []
    verdicts: list[Verdict] = []
    while len(tokens) < length:
        draft = drafting(tuple(tokens))
        verdict = rule.verify(draft, rows(target, draft, tuple(tokens)), noise, len(tokens))
        check(verdict, draft)
        tokens += verdict.tokens
        verdicts.append(verdict)
    return tokens, verdicts
