"""The arithmetic of a benchmark: from answers to rates, ratios and shares. Pure, and the only place where it is done.

A rate is tokens per second of a question, all of its turns and rounds together. There are two: *decoding* counts what
came after the first step of each turn, tokens and seconds alike, so that drafts accepted in that step gain nothing;
*with prefill* counts every token, from the moment the prompt was given. A speed-up is a ratio of means over the
questions, as in Spec-Bench (Xia et al. 2401.07851, evaluation/speed.py), not a mean of ratios.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from statistics import mean, median, quantiles
from typing import Any, TypeVar

from .records import Answer

K = TypeVar("K", bound=Hashable)

DEFINITIONS = {
    "tokens_per_second": "mean over the questions of new tokens / seconds of decoding, without what the first step of "
    "each turn emitted and the time until then",
    "with_prefill": "the same with every new token, over the seconds from the prompt to the last one",
    "first_s": "median seconds until the first step's tokens were out",
    "tokens_per_step": "new tokens / steps, the next token included; plain decoding is 1.0 (mean accepted tokens)",
    "acceptance_by_depth": "share of all steps that emitted more than i tokens, i = 1, 2, ...: i drafts were accepted",
    "time_split": "share of the steps' time spent drafting, in the target's passes, and in neither",
    "speed_up": "ratio of means: mean over the questions of tokens_per_second / that of the arm compared with",
    "median": "of the ratios of single questions and rounds, measured one after the other; q1 and q3 are its quartiles",
    "divergences": "answers that differ from the plain arm's; gap: how much higher its model rates its own token there",
}
"""What the reported figures mean, in one phrase each."""


def rate(answers: Iterable[Answer], *, prefill: bool = False) -> float | None:
    """Tokens per second of answers together; None where there is nothing to be timed, such as answers of one step."""
    tokens, seconds = 0, 0.0
    for answer in answers:
        t = answer.timing
        tokens += len(t.tokens) - (0 if prefill else t.steps[0])
        seconds += t.total_s - (0.0 if prefill else t.first_s)
    return tokens / seconds if tokens and seconds > 0 else None


def rates(answers: Iterable[Answer], key: Callable[[Answer], K], *, prefill: bool = False) -> dict[K, float]:
    """The rate of each group of answers that have one."""
    groups: dict[K, list[Answer]] = defaultdict(list)
    for answer in answers:
        groups[key(answer)].append(answer)
    each = {name: rate(group, prefill=prefill) for name, group in groups.items()}
    return {name: value for name, value in each.items() if value is not None}


def by_question(answer: Answer) -> str:
    return answer.place.question


def by_round(answer: Answer) -> tuple[str, int]:
    """A question in one round: what two arms answered one after the other."""
    return answer.place.question, answer.place.repeat


def ratio_of_means(method: Mapping[K, float], baseline: Mapping[K, float]) -> float | None:
    """Mean rate over mean rate, of what both have; None where they share nothing."""
    common = method.keys() & baseline.keys()
    if not common:
        return None
    return mean(method[name] for name in common) / mean(baseline[name] for name in common)


def spread(method: Mapping[K, float], baseline: Mapping[K, float]) -> tuple[float, float, float] | None:
    """(first quartile, median, third quartile) of the single ratios; None where they share nothing."""
    ratios = [method[name] / baseline[name] for name in method.keys() & baseline.keys()]
    if len(ratios) < 2:
        return (ratios[0],) * 3 if ratios else None
    first, middle, third = quantiles(ratios, n=4, method="inclusive")
    return first, middle, third


def compare(method: Sequence[Answer], baseline: Sequence[Answer]) -> dict[str, float | None]:
    """The speed-up of one arm's answers over another's to the same prompts."""
    single = spread(rates(method, by_round), rates(baseline, by_round)) or (None, None, None)
    return {
        "decoding": ratio_of_means(rates(method, by_question), rates(baseline, by_question)),
        "with_prefill": ratio_of_means(
            rates(method, by_question, prefill=True), rates(baseline, by_question, prefill=True)
        ),
        **dict(zip(("q1", "median", "q3"), single, strict=True)),
    }


def describe(answers: Sequence[Answer]) -> dict[str, Any]:
    """The figures of one arm's answers."""
    timings = [answer.timing for answer in answers]
    steps = [size for t in timings for size in t.steps]
    drafted = [(t.drafted, t.accepted) for t in timings if t.drafted is not None]
    return {
        "questions": len({answer.place.question for answer in answers}),
        "answers": len(answers),
        "new_tokens": sum(steps),
        "tokens_per_second": _mean(rates(answers, by_question).values()),
        "with_prefill": _mean(rates(answers, by_question, prefill=True).values()),
        "first_s": median(t.first_s for t in timings) if timings else None,
        "tokens_per_step": sum(steps) / len(steps) if steps else None,
        "acceptance_by_depth": acceptance_by_depth(steps),
        "drafted": sum(d for d, _ in drafted) if drafted else None,
        "accepted": sum(a or 0 for _, a in drafted) if drafted else None,
        "time_split": time_split(answers),
    }


def acceptance_by_depth(steps: Sequence[int]) -> list[float]:
    """Shares of steps that emitted more than 1, 2, ... tokens; empty where none did."""
    return [sum(size > depth for size in steps) / len(steps) for depth in range(1, max(steps, default=1))]


def time_split(answers: Iterable[Answer]) -> dict[str, float] | None:
    """Shares of the steps' time; None for arms that do not tell."""
    draft, target, whole = 0.0, 0.0, 0.0
    for t in (answer.timing for answer in answers):
        if t.draft_s is not None and t.target_s is not None and t.steps_s is not None:
            draft, target, whole = draft + t.draft_s, target + t.target_s, whole + t.steps_s
    if whole <= 0:
        return None
    return {"draft": draft / whole, "target": target / whole, "rest": (whole - draft - target) / whole}


def _mean(values: Iterable[float]) -> float | None:
    there = list(values)
    return mean(there) if there else None
