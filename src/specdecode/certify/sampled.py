"""Whether sampled texts have the model's own law: three tests, because none of them sees everything.

- *Frequencies*: from a few prefixes many answers of some tokens are drawn, each by whole draft-verify steps. They form
  a tree of prefixes; at every node that enough of them reached, the next tokens are counted against the exact law there
  (Pearson). Drafts begin at the first step or later, and the tree has both. It sees any wrong law, but at few places.
- *Score*: on long answers to different prompts, the total surprise against the total entropy. It sees laws that are too
  sharp or too flat, and drafts accepted too often, by as little as a few hundredths of a nat a token.
- *Ranks*: on the same answers, the probability integral transform of every token, likeliest first. It sees errors that
  leave the mean surprise as it is, at every place of a text.

Knows completions and reference laws; no drafter's law, so a drafter that lies about its own is found out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from torch import Tensor

from ..sampling import Sampling
from ..text.completion import Completion
from .findings import Finding, Tick
from .statistics import LEAST_EXPECTED, LEAST_P, MOST_Z, Told, kolmogorov, pearson, score, tail, transform
from .subject import Subject

FREQUENCIES, SCORE, RANKS = "frequencies", "score", "ranks"
BATCH = 32  # answers decoded together where one prefix has many
ACROSS = 0.001  # of the tokens under a cut law: so many may stand beyond it, if rounding moves the cut
FEW = 4  # tokens of such an answer: some steps, so that drafters which begin late have drafted

Path = tuple[int, ...]


def judge_frequencies(nodes: Sequence[tuple[float, int]]) -> Finding:
    """nodes: Pearson's statistic and its degrees of freedom at each place. Given how many answers reached a place, what
    they drew there is independent of all other places, so the statistics add up."""
    statistic, freedom = math.fsum(x for x, _ in nodes), sum(f for _, f in nodes)
    if freedom == 0:
        return Finding.not_applicable(FREQUENCIES, "no place was reached often enough; draw more")
    p = tail(statistic, freedom)
    places = sum(f > 0 for _, f in nodes)
    found = f"p = {p:.2g} (chi-square {statistic:.1f} of {freedom} at {places} places)"
    figures = {"p": p, "statistic": statistic, "freedom": freedom, "places": places}
    return Finding.of(FREQUENCIES, p >= LEAST_P, found, f"p >= {LEAST_P:g}", **figures)


def judge_score(told: Sequence[Told]) -> Finding:
    """Where a law was cut, rounding can bring in a token that it excludes, but seldom; elsewhere one alone fails."""
    z, excluded = score(told), sum(t.excluded for t in told)
    banned, expected = sum(t.excluded and not t.cut for t in told), ACROSS * sum(t.cut for t in told)
    allowed = int(1 + expected + MOST_Z * math.sqrt(expected)) if expected else 0
    excess = math.fsum(t.surprise - t.entropy for t in told) / len(told)
    found = f"z = {z:.2f} ({excess:+.3f} nats a token over {len(told)} tokens)"
    if excluded:
        found += f"; {excluded} tokens that the law excludes"
    passed = abs(z) <= MOST_Z and not banned and excluded <= allowed
    figures = {"z": z, "excess": excess, "tokens": len(told), "excluded": excluded}
    limit = f"|z| <= {MOST_Z}" + (f"; {allowed} such tokens" if excluded else "")
    return Finding.of(SCORE, passed, found, limit, **figures)


def judge_ranks(numbers: Sequence[float]) -> Finding:
    """numbers: transformed, uniform if the law is right."""
    distance, p = kolmogorov(numbers)
    found = f"p = {p:.2g} (distance {distance:.3f} over {len(numbers)} tokens)"
    figures = {"p": p, "distance": distance, "tokens": len(numbers)}
    return Finding.of(RANKS, p >= LEAST_P, found, f"p >= {LEAST_P:g}", **figures)


def frequencies(subject: Subject, prefixes: Sequence[Path], draws: int, tick: Tick) -> Finding:
    """`draws` answers from each prefix."""
    limits = replace(subject.limits, max_new_tokens=FEW, min_new_tokens=min(FEW, subject.limits.min_new_tokens))
    nodes: list[tuple[float, int]] = []
    drawn: list[Completion] = []
    for i, prefix in enumerate(prefixes):
        answers: list[Completion] = []
        while len(answers) < draws:
            count = min(BATCH, draws - len(answers))
            samplings = subject.seeded(i * draws + len(answers), count)
            answers += subject.speculate([prefix] * count, samplings, limits=limits)
            tick(FREQUENCIES)
        counts = tally([answer.tokens for answer in answers])
        exact = laws_at(subject, prefix, counts)
        nodes += [pearson(counts[path], law) for path, law in exact.items()]
        drawn += answers
    return with_drafts(judge_frequencies(nodes), drawn)


def answers(subject: Subject, prompts: Sequence[Path], tick: Tick) -> tuple[list[Finding], list[Completion]]:
    """Score and ranks of one long answer to each prompt, and the answers."""
    drawn, told, cut = [], [], is_truncated(subject.sampling)
    for i, ids in enumerate(prompts):
        (sampling,) = subject.seeded(i, 1)
        (answer,) = subject.speculate([ids], [sampling])
        exact = subject.laws(ids, answer.tokens, sampling)
        told += [Told.of(law, token, cut) for law, token in zip(exact, answer.tokens, strict=True)]
        drawn.append(answer)
        tick(SCORE)
    seed = subject.sampling.seed
    assert seed is not None
    return [with_drafts(finding, drawn) for finding in judge_told(told, seed)], drawn


def judge_told(told: Sequence[Told], seed: int) -> list[Finding]:
    """seed: of the coins, which have nothing to do with the draws."""
    coins = np.random.default_rng((seed, len(told))).random(len(told))
    return [judge_score(told), judge_ranks(transform(told, coins.tolist()))]


def is_truncated(sampling: Sampling) -> bool:
    """Whether the law is cut by rank or mass."""
    return any(cut is not None for cut in (sampling.top_k, sampling.top_p, sampling.min_p, sampling.typical_p))


def tally(answers: Sequence[Path]) -> dict[Path, Counter[int]]:
    """What was drawn behind each prefix of the answers."""
    counts: dict[Path, Counter[int]] = {}
    for answer in answers:
        for i, token in enumerate(answer):
            counts.setdefault(answer[:i], Counter())[token] += 1
    return counts


def laws_at(subject: Subject, prefix: Path, counts: Mapping[Path, Counter[int]]) -> dict[Path, Tensor]:
    """[V] the exact law behind every path that was reached often enough for two cells."""
    often = [path for path, drawn in counts.items() if drawn.total() >= 2 * LEAST_EXPECTED]
    found: dict[Path, Tensor] = {}
    for path in sorted(often, key=len, reverse=True):  # a long one brings those on its way
        if path not in found:
            text = (*path, next(iter(counts[path])))
            for i, law in enumerate(subject.laws(prefix, text, subject.sampling)):
                found[path[:i]] = law
    return found


def with_drafts(finding: Finding, drawn: Sequence[Completion]) -> Finding:
    """How much was drafted: without drafts a test says nothing of the rule."""
    drafted, accepted = (sum(getattr(a.metrics, name) for a in drawn) for name in ("nodes", "accepted"))
    figures = {**finding.figures, "drafted": drafted, "accepted": accepted}
    reason = f"{accepted} of {drafted} drafts accepted" if drafted else "nothing was drafted: plain decoding alone"
    return replace(finding, reason=finding.reason or reason, figures=figures)
