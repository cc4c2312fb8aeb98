"""Kind 16: reported log-probabilities are the target's, before filters, for whatever way a token came."""

from __future__ import annotations

import pytest
import torch
from enroll import LOSSLESS, METHODS
from stubs import Watched, mix, plain
from whole import make, run, transformers

from specdecode.sampling import Sampling

PROMPT = [10, 3, 5, 10, 3]
CLOSE = 1e-4


def check_logprobs(drafter: Watched, rule: str, sampling: Sampling) -> None:
    target = transformers().target
    (session,) = run(target, drafter, PROMPT, n=24, rule=rule, sampling=sampling, logprobs=3)
    with torch.no_grad():
        rows = target.model(torch.tensor([session.tokens])).logits[0, len(PROMPT) - 1 : -1].log_softmax(-1)
    assert [entry.token for entry in session.logprobs] == session.new_tokens
    for row, entry in zip(rows, session.logprobs, strict=True):
        assert entry.logprob == pytest.approx(float(row[entry.token]), abs=CLOSE)
        top = row.topk(3)
        assert list(entry.top) == top.indices.tolist()
        assert list(entry.top.values()) == pytest.approx(top.values.tolist(), abs=CLOSE)


def test_accepted_corrected_and_bonus_tokens() -> None:
    """Fault 92: MIX[2,0,4], k=4, against one teacher-forced pass without cache."""
    drafter = mix(plain(transformers().target, PROMPT, 24), (2, 0, 4))
    check_logprobs(drafter, "greedy", Sampling())
    assert {turn.verdict.accepted for turn in drafter.seen} >= {0, 2, 4}, "corrected twice, and a bonus"


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_reports_the_targets_own(method: str, rule: str) -> None:
    """Fault 92: raw values, whatever temperature, truncation and penalty the token was chosen under."""
    law = Sampling(temperature=0 if rule == "greedy" else 0.8, top_k=20, repetition_penalty=1.2, seed=7)
    check_logprobs(make(method, transformers()), rule, law)


@pytest.mark.parametrize("method", METHODS)
def test_alternatives_need_not_be_asked_for(method: str) -> None:
    """Fault 92: 0 alternatives report the token's own value, None reports nothing at all."""
    pair = transformers()
    (own,) = run(pair.target, make(method, pair), PROMPT, n=8, logprobs=0)
    assert [(entry.token, entry.top) for entry in own.logprobs] == [(token, {}) for token in own.new_tokens]
    (nothing,) = run(pair.target, make(method, pair), PROMPT, n=8)
    assert nothing.logprobs == []
    assert nothing.new_tokens == own.new_tokens
