"""The sampled law: the joint law of the first two tokens against exact enumeration, every method x lossless rule.

The target's law depends on the whole prefix, so that a draw from a wrong row, a stale prefix or an unfiltered law
shows.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from enroll import METHODS, SAMPLED, build
from stubs import BranchLM, make_session, primed, stub, tiny

from specdecode.drafters import Drafter
from specdecode.engine import Generation
from specdecode.models.hf import HFModel
from specdecode.models.lm import LM
from specdecode.sampling import Sampling
from specdecode.types import Draft, Row
from specdecode.verify import make_rule

V = 5
PROMPT = (1, 2, 3, 1, 2)  # lookup finds its own beginning
BATCH = 100
# Expected total variation is about .0044 for 25 cells at 200,000 draws, .025 for the 9 that filters leave at 2,000;
# bounds are beyond 4.5 sigma.
FAST, WHOLE = (2_000, 0.055), (200_000, 0.01)


def enumerate_law(lm: LM, sampling: Sampling) -> torch.Tensor:
    """[V, V] exact joint law of the first two new tokens under the session's filters."""
    filters = make_session(lm, PROMPT, sampling, "rejection").filters
    law = torch.empty(V, V)
    cache = primed(lm, PROMPT)
    rows = [Row(0, (PROMPT[-1], *range(V)), (-1, *(0 for _ in range(V))))]
    logits = lm.score(cache, rows)[0].logits
    first = filters.apply(logits[0], PROMPT).softmax(-1)
    for token in range(V):
        law[token] = first[token] * filters.apply(logits[1 + token], (*PROMPT, token)).softmax(-1)
    return law


def sample_law(lm: LM, drafter: Drafter, rule: str, sampling: Sampling, n: int) -> torch.Tensor:
    """[V, V] frequencies of the first two new tokens over n sessions of three tokens (so that drafts fit)."""
    counts: Counter[tuple[int, ...]] = Counter()
    for start in range(0, n, BATCH):
        sessions = [
            make_session(lm, PROMPT, Sampling(**{**vars_of(sampling), "seed": start + i}), rule, max_new_tokens=3)
            for i in range(BATCH)
        ]
        generation = Generation(lm, drafter, sessions, [make_rule(rule)] * BATCH)
        while any(len(sessions[row].new_tokens) < 2 for row in generation.active):
            generation.step()
        counts.update(tuple(session.new_tokens[:2]) for session in sessions)
        TARGET.forget()
        SMALL.forget()
    return torch.tensor([[counts[a, b] / n for b in range(V)] for a in range(V)])


def vars_of(sampling: Sampling) -> dict[str, Any]:
    return {name: getattr(sampling, name) for name in ("temperature", "top_k", "top_p")}


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().sum() / 2)


TARGET, SMALL = BranchLM(V, seed=1), BranchLM(V, seed=2)
PLAIN = Sampling(temperature=1.0)
CUT = Sampling(temperature=0.7, top_k=3)


def check(method: str, rule: str, sampling: Sampling, size: tuple[int, float]) -> None:
    n, bound = size
    drafter = build(method, SMALL)
    found = distance(sample_law(TARGET, drafter, rule, sampling, n), enumerate_law(TARGET, sampling))
    assert found < bound, f"{method} x {rule}: total variation {found:.4f} at {n} draws"


@pytest.mark.parametrize("rule", SAMPLED)
@pytest.mark.parametrize("method", METHODS)
def test_joint_law_quick(method: str, rule: str) -> None:
    """Fault 17, in small: a twin of the slow test, for every run of the suite, with filters, which leave fewer
    cells."""
    check(method, rule, CUT, FAST)


@pytest.mark.slow
@pytest.mark.parametrize("rule", SAMPLED)
@pytest.mark.parametrize("method", METHODS)
def test_joint_law(method: str, rule: str) -> None:
    """Fault 17: the sampled law of whole generations, 200,000 draws, total variation under .01."""
    check(method, rule, PLAIN, WHOLE)


@pytest.mark.slow
@pytest.mark.parametrize("rule", SAMPLED)
def test_joint_law_on_a_transformer(rule: str) -> None:
    """Fault 17 on a tiny random Llama of vocabulary 5 with a draft model of its kind."""
    lm, small = HFModel(tiny("llama", 0, vocab_size=V)), HFModel(tiny("llama", 1, vocab_size=V))
    n, bound = WHOLE
    found = distance(sample_law(lm, build("lm", small, k=3), rule, PLAIN, n), enumerate_law(lm, PLAIN))
    assert found < bound, f"total variation {found:.4f}"


def wrong_q(law: Any) -> Drafter:
    """Drafts the likeliest token but reports the soft law it was not drawn from (fault 9)."""

    def propose(row: int, turn: int, session: Any, budget: Any) -> Draft:
        if budget.depth < 1:
            return Draft()
        q = law(tuple(session.tokens), 0)
        return Draft.chain([int(q.argmax())], [q])

    return stub(propose)


def test_a_law_that_was_not_drawn_from_fails_the_same_check() -> None:
    """Negative control: the check sees an unadjusted q."""
    n, bound = FAST
    found = distance(sample_law(TARGET, wrong_q(SMALL.law), "rejection", PLAIN, n), enumerate_law(TARGET, PLAIN))
    assert found > 2 * bound, f"total variation {found:.4f} must show the fault"


def test_a_filter_on_one_side_fails_the_same_check() -> None:
    """Negative control: the check sees a law that was cut where the other was not (fault 11)."""
    n, bound = FAST
    drafter = build("null", SMALL)
    found = distance(sample_law(TARGET, drafter, "rejection", CUT, n), enumerate_law(TARGET, PLAIN))
    assert found > 2 * bound, f"total variation {found:.4f} must show the fault"


@pytest.mark.parametrize("method", METHODS)
def test_one_seed_one_text(method: str) -> None:
    """Coupled rule: with the noise keyed by seed and position, drafts and batches change nothing, token for token."""
    seeds = range(40)

    def texts(drafter: Drafter, size: int) -> list[list[int]]:
        out = []
        for start in range(0, len(seeds), size):
            sessions = [
                make_session(TARGET, PROMPT, Sampling(temperature=0.9, seed=s), "coupled", max_new_tokens=12)
                for s in seeds[start : start + size]
            ]
            for _ in Generation(TARGET, drafter, sessions, [make_rule("coupled")] * size):
                pass
            out += [session.new_tokens for session in sessions]
        return out

    expected = texts(build("null", SMALL), 1)
    assert texts(build(method, SMALL), 1) == expected
    assert texts(build(method, SMALL), 8) == expected
