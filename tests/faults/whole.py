"""Whole generations for the fault cases: every enrolled method on two pairs of a target and a smaller model.

Sessions are opened as the library opens them, so a rule serves greedy requests too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from enroll import build
from stubs import BranchLM, StubLM, Watched, primed, tiny
from torch import Tensor

from specdecode.drafters import Drafter
from specdecode.drafters.null import Null
from specdecode.engine import Generation
from specdecode.metrics import Metrics
from specdecode.models.hf import HFModel
from specdecode.models.lm import LM
from specdecode.sampling import Sampling
from specdecode.session import Session
from specdecode.text.request import Limits, Request, open_session, seeded
from specdecode.types import Row

GREEDY = Sampling()
V = 23
PROMPT = (1, 2, 3, 4, 1, 2, 3, 4, 1, 2)
"""For the habit pair. Lookup finds its own beginning."""

_HABIT, _WHIM, _ERROR = (BranchLM(V, seed, scale=scale) for seed, scale in ((1, 3.0), (2, 0.7), (3, 1.5)))


@dataclass(frozen=True, eq=False)
class Pair:
    """small: a model of the target's vocabulary that often agrees with it. law: its law, for stub trees."""

    target: Any
    small: Any
    law: Callable[[tuple[int, ...], int], Tensor]


def habit(context: int = 1 << 20) -> Pair:
    """Stubs that mostly say what they said after the same token, so that every method is right now and then; the
    whole prefix counts too, so that a wrong one shows."""

    def target(prefix: tuple[int, ...], i: int) -> Tensor:
        return _HABIT.law(prefix[-1:], i) + _WHIM.law(prefix, i)

    def small(prefix: tuple[int, ...], i: int) -> Tensor:
        return target(prefix, i) + _ERROR.law(prefix, i)

    return Pair(StubLM(target, V, context), StubLM(small, V, context), small)


@cache
def near(kind: str = "llama", share: float = 0.1, **options: Any) -> Any:
    """A tiny model close to that of seed 0: its weights and a share of another's."""
    model, other = tiny(kind, 0, **options), tiny(kind, 2, **options)
    with torch.no_grad():
        for ours, theirs in zip(model.parameters(), other.parameters(), strict=True):
            ours += share * theirs
    return model


@cache
def transformers(kind: str = "llama", **options: Any) -> Pair:
    """T and a model near it."""
    small = HFModel(near(kind, **options))
    return Pair(HFModel(tiny(kind, 0, **options)), small, law_of(small))


def law_of(lm: LM) -> Callable[[tuple[int, ...], int], Tensor]:
    """The law of a model, one fresh pass for each prefix."""
    known: dict[tuple[int, ...], Tensor] = {}

    def law(prefix: tuple[int, ...], _: int) -> Tensor:
        if prefix not in known:
            known[prefix] = lm.score(primed(lm, prefix), [Row(0, prefix[-1:], (-1,))])[0].logits[0]
        return known[prefix]

    return law


def make(method: str, pair: Pair, k: int | None = None) -> Watched:
    """The drafter of an enrolled method, with drafts of k tokens where it has that option."""
    drafter = build(method, pair.small)
    if k is not None and hasattr(drafter, "k") and getattr(drafter, "tree", None) is None:
        drafter = replace(drafter, k=k)
    return drafter if isinstance(drafter, Watched) else Watched(drafter)


def begin(
    lm: LM,
    drafter: Drafter,
    *prompts: Sequence[int],
    n: int = 40,
    rule: str | None = None,
    sampling: Sampling | Sequence[Sampling] = GREEDY,
    eos: Sequence[int] = (),
    logprobs: int | None = None,
    **limits: Any,
) -> Generation:
    """A batch of n new tokens each; `sampling` may be one a prompt, `limits` are options of Limits."""
    request = Request(rule=rule, limits=Limits(n, **limits), logprobs=logprobs)
    laws = [sampling] * len(prompts) if isinstance(sampling, Sampling) else sampling
    opened = [
        open_session(lm, None, tuple(ids), eos, seeded(law), request) for ids, law in zip(prompts, laws, strict=True)
    ]
    return Generation(lm, drafter, [session for session, _ in opened], [verifier for _, verifier in opened])


def run(lm: LM, drafter: Drafter, *prompts: Sequence[int], **options: Any) -> list[Session]:
    """The finished sessions of a batch; options as in `begin`."""
    generation = begin(lm, drafter, *prompts, **options)
    for _ in generation:
        pass
    return generation.sessions


def say(lm: LM, drafter: Drafter, prompt: Sequence[int], **options: Any) -> list[int]:
    """The new tokens of a single session."""
    return run(lm, drafter, prompt, **options)[0].new_tokens


def base(lm: LM, prompt: Sequence[int], **options: Any) -> list[int]:
    """BASE: the new tokens without a drafter."""
    return say(lm, Null(), prompt, **options)


def upstream(lm: HFModel, prompt: Sequence[int], n: int, **options: Any) -> list[int]:
    """What transformers' own generate says greedily."""
    ids = torch.tensor([list(prompt)])
    asked = {"max_new_tokens": n, "do_sample": False, "pad_token_id": 0, **options}
    made = lm.model.generate(ids, attention_mask=torch.ones_like(ids), **asked)
    return made[0, len(prompt) :].tolist()


def metrics(session: Session) -> Metrics:
    return Metrics.from_records(session.records)


@contextmanager
def passes(lm: HFModel) -> Iterator[list[Tensor]]:
    """The position ids [B, T] of every pass that a transformers model really makes."""
    seen: list[Tensor] = []

    def note(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        seen.append(kwargs["position_ids"])

    model = lm.model
    hook = model.get_submodule(model.base_model_prefix).register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield seen
    finally:
        hook.remove()
