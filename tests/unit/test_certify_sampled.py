"""The sampled law: every drafter and rule passes, a drafter that lies about its law and a wrong filter fail."""

from __future__ import annotations

from dataclasses import replace

import pytest
from certify_helpers import PROMPTS, WARM, quiet, soft, subject, wrong_q
from enroll import SAMPLED, build
from stubs import BranchLM, StubLM
from texts import VOCAB

import specdecode as sd
from specdecode.certify.findings import FAIL, NOT_APPLICABLE, PASS
from specdecode.certify.sampled import answers, frequencies, judge_frequencies, judge_score, tally
from specdecode.certify.statistics import Told
from specdecode.certify.subject import Subject

TARGET = BranchLM(VOCAB, seed=1, scale=3.0)
LOOKING_BACK = StubLM(lambda prefix, _: TARGET.law(prefix[-2:], 0), VOCAB)
CUT = sd.Sampling(temperature=0.8, top_k=12, repetition_penalty=1.2, seed=4)
LONG = [*PROMPTS] * 8


@pytest.mark.parametrize(("rule", "sampling"), [*((rule, WARM) for rule in SAMPLED), ("rejection", CUT)])
def test_the_rules_have_the_law(rule: str, sampling: sd.Sampling) -> None:
    asked = subject(TARGET, drafter=build("lm: tree of drawn siblings", soft(TARGET)), rule=rule, sampling=sampling)
    counted = frequencies(asked, PROMPTS, 96, quiet)
    assert counted.outcome == PASS
    assert counted.figures["accepted"] > 50
    found, _ = answers(asked, LONG, quiet)
    assert [finding.outcome for finding in found] == [PASS, PASS]


@pytest.mark.parametrize("method", ["ngram", "auto", "lm: dynamic tree"])
def test_the_drafters_have_the_law(method: str) -> None:
    asked = subject(LOOKING_BACK, drafter=build(method, soft(LOOKING_BACK)))
    assert frequencies(asked, PROMPTS, 64, quiet).outcome == PASS
    assert [finding.outcome for finding in answers(asked, LONG, quiet)[0]] == [PASS, PASS]


def test_a_drafter_that_lies_about_its_law_fails_all_three() -> None:
    """Fault 9."""
    asked = subject(TARGET, drafter=wrong_q(soft(TARGET)))
    assert frequencies(asked, PROMPTS, 128, quiet).outcome == FAIL
    score, ranks = answers(asked, LONG, quiet)[0]
    assert (score.outcome, ranks.outcome) == (FAIL, FAIL)
    assert score.figures["z"] < -8


def test_a_filter_that_is_forgotten_fails_all_three(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 11: the texts are drawn without the temperature that was asked for."""

    class Forgetful(Subject):
        def speculate(self, prompts, samplings, **changes):  # type: ignore[no-untyped-def]
            return super().speculate(prompts, [replace(s, temperature=1.0) for s in samplings], **changes)

    asked = subject(TARGET, sampling=sd.Sampling(temperature=0.7, seed=1))
    forgetful = Forgetful(**vars(asked))
    assert frequencies(forgetful, PROMPTS, 128, quiet).outcome == FAIL
    assert [finding.outcome for finding in answers(forgetful, LONG, quiet)[0]] == [FAIL, FAIL]


def test_it_is_told_that_nothing_was_drafted() -> None:
    finding = frequencies(subject(TARGET, drafter=None), PROMPTS, 64, quiet)
    assert (finding.outcome, finding.figures["drafted"]) == (PASS, 0)
    assert "nothing was drafted" in finding.reason


def test_an_excluded_token_fails_where_no_cut_explains_it() -> None:
    free, cut = ([Told(1.0, 1.0, 1.0, 0.0, 0.4, cut=c)] * 50 for c in (False, True))
    banned, across = (Told(1.0, 1.0, 1.0, 0.9, 0.1, excluded=True, cut=c) for c in (False, True))
    assert judge_score(free).outcome == PASS
    assert judge_score([*free, banned]).outcome == FAIL
    assert judge_score([*cut, across]).outcome == PASS
    assert "1 tokens that the law excludes" in judge_score([*cut, across]).found
    assert judge_score([*cut, banned]).outcome == FAIL, "a cut elsewhere explains nothing"


def test_rounding_takes_tokens_across_a_cut_but_seldom() -> None:
    across = Told(0.0, 0.0, 0.0, 0.0, 1.0, excluded=True, cut=True)
    assert judge_score([across] * 3).outcome == FAIL, "as where greedy texts are said of what was sampled"
    assert judge_score([*[Told(1.0, 1.0, 1.0, 0.0, 0.4, cut=True)] * 2000, *[across] * 8]).outcome == PASS


def test_answers_form_a_tree() -> None:
    assert tally([(1, 2), (1, 3), (4,)]) == {(): {1: 2, 4: 1}, (1,): {2: 1, 3: 1}}


def test_too_few_draws_say_nothing() -> None:
    assert judge_frequencies([(0.0, 0)]).outcome == NOT_APPLICABLE
    assert judge_frequencies([(3.0, 2), (0.0, 0), (1.0, 1)]).outcome == PASS
    assert judge_frequencies([(50.0, 2), (1.0, 1)]).outcome == FAIL
