"""Kind 14: nothing to propose, and nothing left over from earlier requests. Lookup's own rows (84, 85) are tested in
tests/unit/test_drafter_ngram.py."""

from __future__ import annotations

import pytest
from enroll import LOSSLESS, METHODS
from stubs import Watched, oracle, plain
from whole import PROMPT, habit, make, passes, run, say, transformers

from specdecode.sampling import Sampling
from specdecode.types import Verdict


def test_empty_and_full_drafts_on_a_transformer() -> None:
    """Fault 84: [] and three right tokens in turns, 200 new tokens; an empty draft feeds one token and emits one."""
    target = transformers().target
    truth = plain(target, [10, 3, 5], 200)
    drafter = oracle(truth, lengths=(0, 3))
    with passes(target) as seen:
        assert say(target, drafter, [10, 3, 5], n=200) == truth
    assert [positions.shape[1] for positions in seen[1:]] == [1 + len(turn.draft) for turn in drafter.seen]
    assert [len(turn.verdict.tokens) for turn in drafter.seen] == [1, 4] * 40


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize("method", METHODS)
def test_one_drafter_for_many_requests(method: str, rule: str) -> None:
    """Faults 86 and 135: after other requests each request drafts, and is accepted, as if it were the first; so the
    same prompt is measured alike five times."""
    law = Sampling(temperature=0 if rule == "greedy" else 1, seed=6)

    def measure(drafter: Watched, prompt: tuple[int, ...]) -> list[tuple[tuple[int, ...], Verdict]]:
        run(habit().target, drafter, prompt, n=30, rule=rule, sampling=law)
        turns = [(turn.draft.tokens, turn.verdict) for turn in drafter.seen]
        del drafter.seen[:]
        return turns

    used = make(method, habit())
    for prompt in (PROMPT * 3, (5, 9), PROMPT[:5], *[PROMPT] * 5):
        assert measure(used, prompt) == measure(make(method, habit()), prompt)
