"""Kind 08: contexts end, of target and drafter, and internal sizes are nobody's limit. A draft model of less context is
tested in tests/unit/test_drafter_lm*.py."""

from __future__ import annotations

import pytest
from enroll import METHODS
from stubs import oracle, plain
from whole import PROMPT, base, habit, make, run, say, transformers


@pytest.mark.parametrize("method", METHODS)
def test_the_targets_own_context(method: str) -> None:
    """Fault 50: every method goes right up to the end of the target's context and not past it (the stubs assert that);
    the text is the one of a longer context."""
    pair = habit(context=len(PROMPT) + 22)
    (session,) = run(pair.target, make(method, pair, k=8), PROMPT, n=60)
    assert session.new_tokens == base(habit().target, PROMPT, n=22)


@pytest.mark.parametrize("k", [1, 8, 64])
@pytest.mark.parametrize("method", METHODS)
def test_drafts_longer_than_the_prompt(method: str, k: int) -> None:
    """Fault 53: a prompt of 3 tokens, 70 new ones, drafts of up to 64."""
    pair = habit()
    assert say(pair.target, make(method, pair, k), (1, 2, 3), n=70) == base(pair.target, (1, 2, 3), n=70)


@pytest.mark.parametrize("k", [8, 64])
def test_wide_passes_of_a_transformer(k: int) -> None:
    """Fault 53: one pass may verify far more tokens than the prompt has."""
    target = transformers().target
    truth = plain(target, [1, 2, 3], 70)
    drafter = oracle(truth, k=k)
    assert say(target, drafter, [1, 2, 3], n=70) == truth
    assert max(len(turn.draft) for turn in drafter.seen) == k
