"""Parity of greedy and of coupled texts: sound decoding passes, a broken cache fails, near-ties are excused."""

from __future__ import annotations

import pytest
from certify_helpers import PROMPTS, BrokenLM, first_nodes, quiet, second_best, subject
from enroll import METHODS, build
from stubs import BranchLM, StubLM
from texts import VOCAB

import specdecode as sd
from specdecode.certify.findings import FAIL, PASS
from specdecode.certify.parity import Parted, coupled, greedy, judge_gap, judge_parity

TARGET, SMALL = BranchLM(VOCAB, seed=1, scale=3.0), BranchLM(VOCAB, seed=2, scale=3.0)
LOOKING_BACK = StubLM(lambda prefix, _: TARGET.law(prefix[-2:], 0), VOCAB)  # repeats itself, so that lookups are right


@pytest.mark.parametrize("method", METHODS)
def test_sound_decoding_passes(method: str) -> None:
    asked = subject(LOOKING_BACK, drafter=build(method, SMALL))
    (parity, gap), answers = greedy(asked, PROMPTS, quiet)
    assert (parity.outcome, parity.found) == (PASS, "2 of 2 texts equal (48 tokens)")
    assert (gap.outcome, gap.figures["largest"]) == (PASS, 0.0)
    assert [len(answer.tokens) for answer in answers] == [24, 24]
    assert coupled(asked, PROMPTS, quiet).outcome == PASS


def test_penalties_bans_and_limits_are_those_of_the_request() -> None:
    sampling = sd.Sampling(temperature=0.7, top_p=0.9, repetition_penalty=1.3, suppress=(5,), seed=3)
    asked = subject(LOOKING_BACK, sampling=sampling, limits=sd.Limits(20, stop_ids=(40, 41, 42)), max_new_tokens=20)
    assert greedy(asked, PROMPTS, quiet)[0][0].outcome == PASS
    assert coupled(asked, PROMPTS, quiet).outcome == PASS


def test_a_cache_that_keeps_the_wrong_branch_fails() -> None:
    """Seen at temperature 0 and by coupled draws. Plain decoding on the same cache is sound."""
    broken = BrokenLM(TARGET, first_nodes)
    asked = subject(broken, drafter=build("lm: tree of drawn siblings", second_best(TARGET)))
    (parity, gap), _ = greedy(asked, PROMPTS, quiet)
    assert (parity.outcome, gap.outcome) == (FAIL, FAIL)
    assert "parts after" in parity.found
    assert gap.figures["largest"] > 0.01
    first = parity.figures["parted"][0]
    plain = asked.plainly(PROMPTS[0], sd.Sampling(), "greedy").tokens
    law = TARGET.law((*PROMPTS[0], *plain[: first["position"]]), 0)
    assert int(law.argmax()) == first["plain"]
    assert first["gap"] == pytest.approx(float(law.max() - law[first["token"]]), abs=1e-5)
    assert coupled(asked, PROMPTS, quiet).outcome == FAIL


def test_a_near_tie_is_excused_and_a_text_that_ends_early_is_not() -> None:
    near = Parted(0, 5, plain=1, token=2, gap=1e-5, excused=True)
    assert judge_parity("test", [9, 9], [near]).outcome == PASS
    assert judge_parity("test", [9, 9], [near]).found.endswith("text 1 parts after 5 tokens, at a near-tie")
    assert judge_gap([near], 1e-4).outcome == PASS
    ended = Parted(1, 5, plain=1, token=None, gap=None, excused=False)
    assert judge_parity("test", [9, 9], [near, ended]).outcome == FAIL
    assert judge_gap([near, ended], 1e-4).outcome == FAIL
