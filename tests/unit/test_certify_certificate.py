"""The whole certificate: what it holds, what it tells, and when it fails."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from certify_helpers import FEW, WARM, BrokenLM, all_nodes, model, second_best, soft, wrong_q
from enroll import build
from stubs import BranchLM
from texts import VOCAB

import specdecode as sd
from specdecode.bench.questions import read_questions
from specdecode.certify import THOROUGH, Certificate, Counts, Finding, check
from specdecode.certify.certificate import judge_cost, varied
from specdecode.certify.findings import FAIL, NOT_APPLICABLE, NOT_PROMISED, PASS
from specdecode.errors import BadOption, OutOfContext

TARGET = BranchLM(VOCAB, seed=1, scale=3.0)
TESTS = ["greedy parity", "logit gap", "coupled parity", "frequencies", "score", "ranks", "KV integrity"]
SOUND = {"sampling": WARM, "max_new_tokens": 16, "counts": FEW}


def outcomes(certificate: Certificate) -> dict[str, str]:
    return {finding.test: finding.outcome for finding in certificate.findings}


def test_a_sound_engine_is_certified() -> None:
    told: list[str] = []
    certificate = check(model(TARGET), build("lm", soft(TARGET)), tick=told.append, **SOUND)
    assert outcomes(certificate) == dict.fromkeys(TESTS, PASS)
    assert certificate.passed
    assert len(told) == FEW.units
    document = json.loads(json.dumps(certificate.to_dict()))
    assert [test["test"] for test in document["tests"]] == TESTS
    assert (document["drafter"], document["rule"], document["seed"], document["lossless"]) == (
        "lm",
        "rejection",
        1,
        True,
    )
    assert document["counts"]["draws"] == 96
    assert {"torch", "processor", "specdecode"} <= document["machine"].keys()


def test_a_seed_gives_its_certificate_again_and_none_a_seed_that_is_told() -> None:
    first, again = (check(model(TARGET), "ngram", **SOUND) for _ in range(2))
    assert first == again
    assert check(model(TARGET), "ngram", max_new_tokens=4, counts=FEW).about["seed"] is not None


def test_a_drafter_that_lies_is_not_certified() -> None:
    certificate = check(model(TARGET), wrong_q(soft(TARGET)), **{**SOUND, "max_new_tokens": 48})
    found = outcomes(certificate)
    assert not certificate.passed
    assert {test for test, outcome in found.items() if outcome == FAIL} == {"frequencies", "score", "ranks"}


def test_a_broken_cache_is_not_certified() -> None:
    found = outcomes(check(model(BrokenLM(TARGET, all_nodes)), build("lm", second_best(TARGET)), **SOUND))
    assert found["KV integrity"] == found["greedy parity"] == found["coupled parity"] == FAIL


def test_at_temperature_0_only_greedy_texts_are_tested() -> None:
    certificate = check(model(TARGET), "ngram", **{**SOUND, "sampling": sd.Sampling(temperature=0)})
    assert outcomes(certificate) == {
        test: PASS if test in ("greedy parity", "logit gap", "KV integrity") else NOT_APPLICABLE for test in TESTS
    }
    assert certificate.passed


def test_a_relaxed_rule_is_measured_and_promises_nothing() -> None:
    rule = sd.make_rule("lenient", lenience=0.2)
    certificate = check(model(TARGET), build("lm", soft(TARGET)), rule=rule, **SOUND)
    found = outcomes(certificate)
    assert certificate.passed
    assert found["coupled parity"] == found["KV integrity"] == found["cost"] == PASS
    assert {found[test] for test in TESTS if test not in ("coupled parity", "KV integrity")} == {NOT_PROMISED}
    cost = next(finding for finding in certificate.findings if finding.test == "cost")
    assert sum(cost.figures["nats"]) > 1


def test_a_budget_is_kept() -> None:
    rule = sd.make_rule("lenient", lenience=0.2, budget=0.5)
    certificate = check(model(TARGET), build("lm", soft(TARGET)), rule=rule, **SOUND)
    cost = next(finding for finding in certificate.findings if finding.test == "cost")
    assert (cost.outcome, cost.limit) == (PASS, "0.5 nats an answer")
    assert 0 < max(cost.figures["nats"]) <= 0.5


def test_a_budget_that_is_not_kept_fails() -> None:
    done = [model(TARGET).generate([1, 2], rule="greedy", max_new_tokens=4)]
    assert judge_cost(done, 0.0).outcome == PASS
    assert judge_cost(done, -1.0).outcome == FAIL
    assert judge_cost(done, None).limit == "no budget"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"drafter": "magic"}, "'magic' does not exist"),
        ({"rule": "magic"}, "'magic' does not exist"),
        ({"rule": "topbeta"}, "cannot draw"),
        ({"temperature": 1}, "Sampling"),
        ({"logprobs": 1}, "no use"),
        ({"sampling": [sd.Sampling()]}, "single"),
    ],
)
def test_what_cannot_be_honoured_is_refused_before_any_pass(options: dict[str, Any], said: str) -> None:
    TARGET.forget()
    with pytest.raises(BadOption, match=said):
        check(model(TARGET), **options)
    assert TARGET.passes == TARGET.reads == []


def test_prompts_that_leave_no_room_are_left_out() -> None:
    roomy = BranchLM(VOCAB, seed=1, scale=3.0, context=200)
    certificate = check(model(roomy), "ngram", max_new_tokens=8, counts=replace(FEW, prompts=32))
    assert certificate.passed
    assert len(roomy.opened) > 1
    assert max(length for lengths in roomy.opened for length in lengths) <= 192
    with pytest.raises(OutOfContext, match="no prompt and 300 new tokens fit"):
        check(model(roomy), "ngram", max_new_tokens=300)


def test_a_grammar_is_part_of_the_law() -> None:
    grammar = sd.Grammar.regex("[a-e ]{40,80}")
    certificate = check(model(TARGET), "ngram", grammar=grammar, **SOUND)
    assert outcomes(certificate) == dict.fromkeys(TESTS, PASS)
    assert "40,80" in json.dumps(certificate.about["grammar"])


def test_counts_are_at_least_one() -> None:
    with pytest.raises(BadOption, match="draws=0"):
        Counts(draws=0)
    assert THOROUGH.units > 3 * Counts().units


def test_any_number_of_questions_has_all_kinds() -> None:
    questions = read_questions()
    some = varied(questions)
    assert sorted(q.id for q in some) == sorted(q.id for q in questions)
    assert len({q.task for q in some[:8]}) == 8


def test_a_certificate_without_a_test_is_none() -> None:
    assert not Certificate((Finding.not_applicable("test", "none"),), {}).passed
