"""Whole generations for tests: through the engine, and without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specdecode.constraints import Filters
from specdecode.drafters import Drafter
from specdecode.engine import Generation
from specdecode.metrics import Metrics
from specdecode.models.lm import LM, read
from specdecode.sampling import Argmax, Keyed, Sampling, Stream, fresh_seed
from specdecode.session import Session
from specdecode.stopping import Stopping
from specdecode.types import Prompt, Row
from specdecode.verify import make_rule


def make_session(
    lm: LM, prompt: Sequence[int], sampling: Sampling | None = None, rule: str = "greedy", **stopping: Any
) -> Session:
    """A session as the library makes one: the rule decides its noise, `stopping` are options of Stopping."""
    sampling, stop = sampling or Sampling(), Stopping(**stopping)
    seed = fresh_seed() if sampling.seed is None else sampling.seed
    keyed = make_rule(rule).keyed
    noise = Argmax() if rule == "greedy" else Keyed(seed, lm.vocab) if keyed else Stream(seed)
    filters = Filters(
        sampling,
        prompt_length=len(prompt),
        vocab=lm.vocab,
        min_new_tokens=stop.min_new_tokens,
        eos_ids=tuple(sorted(stop.stop_ids)),
    )
    return Session(Prompt(tuple(prompt)), filters, noise, stop)


def decode(
    lm: LM,
    drafter: Drafter,
    *prompts: Sequence[int],
    n: int = 40,
    rule: str = "greedy",
    sampling: Sampling | None = None,
    **stopping: Any,
) -> list[Session]:
    """The finished sessions of one batch, `n` new tokens each."""
    sessions = [make_session(lm, prompt, sampling, rule, max_new_tokens=n, **stopping) for prompt in prompts]
    for _ in Generation(lm, drafter, sessions, [make_rule(rule)] * len(sessions)):
        pass
    return sessions


def primed(lm: LM, *prompts: Sequence[int]) -> Any:
    """A cache that has read every prompt but its newest token."""
    cache = lm.open([Prompt(tuple(prompt)) for prompt in prompts])
    read(lm, cache, {row: prompt[:-1] for row, prompt in enumerate(prompts)})
    return cache


def plain(lm: LM, prompt: Sequence[int], n: int = 40) -> list[int]:
    """BASE: the greedy continuation of raw logits, by the LM protocol alone, one token a pass."""
    cache, newest = primed(lm, prompt), prompt[-1]
    out: list[int] = []
    while len(out) < n:
        (scores,) = lm.score(cache, [Row(0, (newest,), (-1,))])
        cache.keep(0, [0])
        newest = int(scores.logits[0].max(-1).indices)
        out.append(newest)
    return out


def measured(*sessions: Session) -> Metrics:
    """The metrics of sessions together."""
    return Metrics.from_records([record for session in sessions for record in session.records])
