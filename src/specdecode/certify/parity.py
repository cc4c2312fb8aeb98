"""Parity: texts with and without speculation, token by token, and how near a choice was where two of them part.

Greedy texts are decoded one by one. Sampled ones have a seed each and the coupled rule; there all speculative texts are
one ragged batch, against plain decoding of each alone. Knows completions and reference laws; no drafter, no cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ..metrics import first_difference
from ..sampling import Sampling
from ..text.completion import Completion
from ..text.request import make_noise
from ..verify.coupled import Coupled
from .findings import Finding, Tick
from .reference import near_tie
from .subject import Subject

Ids = tuple[int, ...]

GREEDY, GAP, COUPLED = "greedy parity", "logit gap", "coupled parity"


@dataclass(frozen=True)
class Parted:
    """Where text `text` leaves the plain one, or the argmax: after `position` equal tokens. plain, token: the two ids,
    None where that text has ended. gap: how much higher the plain scores, with the noise of the place if there is any,
    rate their own token; None where a text ended.
    excused: whether rounding alone may have decided."""

    text: int
    position: int
    plain: int | None
    token: int | None
    gap: float | None
    excused: bool


def judge_parity(test: str, lengths: Sequence[int], parted: Sequence[Parted]) -> Finding:
    """Passes where every text is the plain one, up to a choice that rounding may have decided. lengths: tokens of each
    text that was compared."""
    equal, guilty = len(lengths) - len({p.text for p in parted}), [p for p in parted if not p.excused]
    found = f"{equal} of {len(lengths)} texts equal ({sum(lengths)} tokens)"
    if parted:
        first = (guilty or parted)[0]
        found += f"; text {first.text + 1} parts after {first.position} tokens{'' if guilty else ', at a near-tie'}"
    return Finding.of(test, not guilty, found, "equal or near-tie", parted=list(map(asdict, parted)))


def judge_gap(parted: Sequence[Parted], most: float) -> Finding:
    """most: the largest gap that rounding explains, in logits."""
    gaps = [p.gap for p in parted if p.gap is not None]
    largest = max(gaps, default=0.0)
    passed = all(p.excused for p in parted)
    found = f"largest {largest:.3g}" if gaps else "no greedy text parted" if passed else "a text ended early"
    return Finding.of(GAP, passed, found, f"<= {most:.2g}", largest=largest, excused=most)


def greedy(subject: Subject, prompts: Sequence[Ids], tick: Tick) -> tuple[list[Finding], list[Completion]]:
    """Parity and the largest gap, and the speculative answers. The rule is greedy, or a relaxed one that was asked."""
    sampling, most = subject.greedy, 0.0
    answers, lengths, parted = [], [], []
    for i, ids in enumerate(prompts):
        plain = subject.plainly(ids, sampling, "greedy").tokens
        (fast,) = subject.speculate([ids], [sampling])
        answers.append(fast)
        lengths.append(len(plain))
        most = most or near_tie(subject.model.lm, next(subject.laws(ids, plain[:1], sampling)))
        parted += _compare(subject, i, ids, sampling, (plain, fast.tokens))
        tick(GREEDY)
    return [judge_parity(GREEDY, lengths, parted), judge_gap(parted, most)], answers


def coupled(subject: Subject, prompts: Sequence[Ids], tick: Tick) -> Finding:
    """One text a seed, with speculation on or off."""
    samplings = subject.seeded(0, len(prompts))
    fast = subject.speculate(prompts, samplings, rule="coupled")
    lengths, parted = [], []
    for i, (ids, sampling) in enumerate(zip(prompts, samplings, strict=True)):
        plain = subject.plainly(ids, sampling, "coupled").tokens
        lengths.append(len(plain))
        parted += _compare(subject, i, ids, sampling, (plain, fast[i].tokens))
        tick(COUPLED)
    return judge_parity(COUPLED, lengths, parted)


def _compare(subject: Subject, text: int, ids: Ids, sampling: Sampling, both: tuple[Ids, Ids]) -> list[Parted]:
    """Where two texts part, if they do, and how near the choice was: what decided it under the reference law, with the
    noise of the place."""
    at = first_difference(*both)
    if at is None:
        return []
    ours, theirs = (tokens[at] if at < len(tokens) else None for tokens in both)
    if ours is None or theirs is None:
        return [Parted(text, at, ours, theirs, None, False)]
    *_, law = subject.laws(ids, both[0][: at + 1], sampling)
    lm = subject.model.lm
    keys = make_noise(Coupled(), sampling, lm.vocab).keys(law, len(ids) + at)
    gap = float(keys[ours] - keys[theirs])
    return [Parted(text, at, ours, theirs, gap, gap <= near_tie(lm, law))]
