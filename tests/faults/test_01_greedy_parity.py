"""Kind 01: with drafts or without, greedy text is the target's own."""

from __future__ import annotations

import pytest
import torch
from enroll import LOSSLESS, METHODS, SAMPLED
from stubs import ScriptLM, StubLM, fix, mix, plain, point_mass, stub
from whole import begin, make, metrics, passes, run, say, transformers, upstream

from specdecode.sampling import Sampling
from specdecode.session import Session
from specdecode.types import Budget, Draft

SCRIPT = [10 + i * 7 % 80 for i in range(60)]


@pytest.mark.parametrize("method", METHODS)
def test_the_very_first_round(method: str) -> None:
    """Fault 1: prompts of 1, 2, k and k + 1 tokens; the first multi-token pass already counted positions wrongly."""
    pair, prompts = transformers(), [[10, 3, 10, 3, 10, 3][:length] for length in (1, 2, 5, 6)]
    assert say(pair.target, make(method, pair, k=5), prompts[0]) == upstream(pair.target, prompts[0], 40)
    for prompt, session in zip(prompts, run(pair.target, make(method, pair, k=5), *prompts, n=20), strict=True):
        assert session.new_tokens == upstream(pair.target, prompt, 20)


@pytest.mark.parametrize("method", METHODS)
def test_an_empty_prompt_is_refused(method: str) -> None:
    """Fault 1 (extension): a clear ValueError before any pass, of target or drafter."""
    pair = transformers()
    with passes(pair.target) as ours, passes(pair.small) as theirs, pytest.raises(ValueError, match="prompt is empty"):
        begin(pair.target, make(method, pair), [10, 3], [])
    assert ours == theirs == []


@pytest.mark.parametrize("k", [1, 2, 5, 8])
def test_positions_follow_the_committed_length(k: int) -> None:
    """Fault 2: a pass of L committed tokens runs at positions L - 1 to L - 1 + len(draft), as the model itself sees
    them, also after partial acceptance."""
    target = transformers().target
    prompt = torch.randint(0, 97, (150,), generator=torch.Generator().manual_seed(2)).tolist()
    truth = plain(target, prompt, 60)
    drafter = mix(truth, (2, 0, 4, 1), k=k)
    with passes(target) as seen:
        assert say(target, drafter, prompt, n=60) == truth
    assert seen[0].tolist() == [list(range(149))], "prefill leaves the newest token to the first step"
    for positions, turn in zip(seen[1:], drafter.seen, strict=True):
        length = len(turn.prefix)
        assert positions.tolist() == [list(range(length - 1, length + len(turn.draft)))]


def one_hot(script: list[int]) -> StubLM:
    """The script is the only text that has any probability."""
    return StubLM(lambda _, i: point_mass(script[i], 97), 97)


@pytest.mark.parametrize("rule", SAMPLED)
@pytest.mark.parametrize("drawn", [True, False])
@pytest.mark.parametrize(("k", "wrong"), [(k, j) for k in (1, 3) for j in range(k)])
def test_the_correction_comes_from_the_rejected_row(rule: str, drawn: bool, k: int, wrong: int) -> None:
    """Fault 5: sampling from a one-hot law; the draft is wrong at one position, the last one included."""

    def propose(row: int, turn: int, session: Session, budget: Budget) -> Draft:
        done = len(session.new_tokens)
        tokens = [9 if i == wrong else token for i, token in enumerate(SCRIPT[done : done + min(k, budget.depth)])]
        return Draft.chain(tokens, [point_mass(token, 97) for token in tokens] if drawn else None)

    generation = begin(one_hot(SCRIPT), stub(propose), [1, 2], n=30, rule=rule, sampling=Sampling(temperature=1))
    (session,) = generation.sessions
    for _ in generation:
        assert generation._cache.lengths == (len(session.tokens) - 1,), "the newest token is not processed yet"
    assert session.new_tokens == SCRIPT[:30]
    assert {record.accepted for record in session.records[:-1]} == {wrong}


@pytest.mark.parametrize("rule", LOSSLESS)
def test_the_first_drafted_token_is_verified(rule: str) -> None:
    """Fault 7: one token that is never right is never accepted; right at index 0 only, exactly one is."""
    target = ScriptLM(SCRIPT)
    (session,) = run(target, fix([9]), [1, 2], rule=rule)
    assert session.new_tokens == SCRIPT[:40]
    assert (metrics(session).drafted, metrics(session).accepted) == (39, 0)
    (session,) = run(target, mix(SCRIPT, (1,), k=3), [1, 2], rule=rule)
    assert session.new_tokens == SCRIPT[:40]
    assert [record.accepted for record in session.records] == [1] * 20
