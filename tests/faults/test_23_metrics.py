"""Kind 23: what whole generations count. The figures' definitions are tested in tests/unit/test_metrics.py."""

from __future__ import annotations

import pytest
from enroll import LOSSLESS, METHODS
from stubs import ScriptLM, mix, oracle
from whole import PROMPT, begin, habit, make, metrics, run

from specdecode.drafters.null import Null
from specdecode.metrics import DEFINITIONS
from specdecode.sampling import Sampling

SCRIPT = [10 + i * 7 % 80 for i in range(60)]


def test_nothing_after_the_end_is_counted() -> None:
    """Fault 129: four matching drafts of which the second ends the text: 2 emitted, 2 accepted, 2.0 a step."""
    script = [11, 96, 12, 13, 14]
    (session,) = run(ScriptLM(script), oracle(script, k=4), [1], n=20, eos=[96])
    found = metrics(session)
    assert session.new_tokens == [11, 96]
    assert (found.drafted, found.emitted, found.accepted, found.tokens_per_step) == (4, 2, 2, 2.0)


def test_one_definition_of_each_figure() -> None:
    """Fault 130: rounds that accept 4, 0 and 2 of 4; and matches after the first mismatch count for nothing."""
    (session,) = run(ScriptLM(SCRIPT), mix(SCRIPT, (4, 0, 2)), [1], n=45)
    whole = session.records[:3]
    found = type(metrics(session)).from_records(whole)
    assert (found.drafted, found.accepted, found.emitted) == (12, 6, 9)
    assert (found.acceptance_rate, found.tokens_per_step) == (0.5, 3.0)
    assert found.per_position == pytest.approx([2 / 3, 2 / 3, 1 / 3, 1 / 3])
    island = mix([*SCRIPT[:2], 9, *SCRIPT[3:]], (5,), k=5)
    (session,) = run(ScriptLM(SCRIPT), island, [1], n=40)
    assert session.records[0].accepted == 2


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize("method", METHODS)
def test_counters_only_grow(method: str, rule: str) -> None:
    """Fault 132: read before, during and after any generation, also of one token: defined values, never fewer."""
    law = Sampling(temperature=0 if rule == "greedy" else 1, seed=2)
    for n in (1, 40):
        generation = begin(habit().target, make(method, habit()), PROMPT, n=n, rule=rule, sampling=law)
        (session,) = generation.sessions
        before = metrics(session)
        assert (before.acceptance_rate, before.tokens_per_step, before.per_position) == (None, None, [])
        for _ in generation:
            now = metrics(session)
            for name in ("steps", "drafted", "nodes", "probes", "accepted", "emitted"):
                assert getattr(now, name) >= getattr(before, name) >= 0
            before = now
        assert before.emitted == n
        assert before.tokens_per_step >= 1
        assert (before.acceptance_rate is None) == (before.drafted == 0)
        assert n > 1 or before.acceptance_rate is None, "one token leaves nothing to draft"


@pytest.mark.parametrize("k", [2, 4, 8])
def test_the_rate_falls_where_the_speed_does_not(k: int) -> None:
    """Fault 133: right for exactly 2 tokens each round: rate 1.0, .5, .25 as k grows, 3.0 tokens a step throughout; the
    definitions say so."""
    (session,) = run(ScriptLM(SCRIPT), mix(SCRIPT, (2,), k=k), [1], n=54)
    rounds = [record for record in session.records if record.drafted == k]
    found = type(metrics(session)).from_records(rounds)
    assert found.acceptance_rate == 2 / k
    assert found.tokens_per_step == 3.0
    assert "never choose a draft length by it" in DEFINITIONS["acceptance_rate"]


def test_drafted_tokens_are_counted() -> None:
    """Fault 136: rounds that draft 4, 1, 0 and 3 have drafted 8, not 16; a run without a drafter has no rate."""
    generation = begin(ScriptLM(SCRIPT), oracle(SCRIPT, lengths=(4, 1, 0, 3)), [1], n=50)
    for _ in range(4):
        generation.step()
    assert metrics(generation.sessions[0]).drafted == 8
    (session,) = run(ScriptLM(SCRIPT), Null(), [1], n=50)
    assert (metrics(session).drafted, metrics(session).acceptance_rate) == (0, None)
