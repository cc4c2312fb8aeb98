"""Nats: what a relaxed rule costs bounds how far its law is from the target's, and the budget bounds what it costs."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from stubs import BranchLM, DistLM, decode, drawn_tree, fix, make_session, measured, top_tree
from texts import TOKENIZER
from verify_helpers import EXACT, POSITION, Drafting, chosen, continuation, logits, outcomes, random_law, rows, sampled

import specdecode as sd
from specdecode.engine import Generation
from specdecode.sampling import Argmax, Sampling, Stream
from specdecode.types import Draft, Verdict
from specdecode.verify import RULES, Verifier, make_rule

RELAXED = [name for name, row in RULES.items() if not row.lossless]
DRAWING = [name for name in RELAXED if make_rule(name).draws]
P = random_law(1)

# --- what the numbers mean ------------------------------------------------------------------------------------------


def weighed(rule: Verifier, drafting: Drafting, length: int = 2) -> tuple[np.ndarray, float, float]:
    """[V] * length the law of a step's first tokens, completed by the target; the mean and the largest cost."""
    joint, mean, most = np.zeros((3,) * length), 0.0, 0.0
    rest = cache(lambda head: continuation(P, head, length))

    def step(noise: Any) -> Verdict:
        draft = drafting(noise)
        return rule.verify(draft, rows(P, draft), noise, POSITION)

    for probability, verdict in outcomes(step):
        joint[verdict.tokens[:length]] += probability * rest(verdict.tokens[:length])
        mean += probability * sum(verdict.nats)
        most = max(most, sum(verdict.nats))
    return joint, mean, most


RULES_AT_WORK = {
    "lenient": make_rule("lenient", lenience=0.3),
    "distillspec, square": make_rule("distillspec", shape="square", epsilon=0.5),
    "distillspec, power": make_rule("distillspec", shape="power", epsilon=0.3),
    "typical": make_rule("typical"),
}
DRAFTINGS: dict[str, Drafting] = {
    "drawn chain": sampled(random_law(2), 1, 1),
    "drawn tree": sampled(random_law(2), 2, 1),
    "drawn with replacement": sampled(random_law(2), 2, 1, replacement=True),
    "chosen tree": chosen(0, 1, 2, 1, parents=(-1, -1, 0, 1)),
}


@pytest.mark.parametrize("budget", [None, 1.5, 0.4, 0.1, 0.0])
@pytest.mark.parametrize("case", DRAFTINGS)
@pytest.mark.parametrize("name", RULES_AT_WORK)
def test_the_cost_bounds_how_far_the_law_is_from_the_targets(name: str, case: str, budget: float | None) -> None:
    """The mean cost bounds the Kullback-Leibler divergence, the largest each text's factor, the budget the cost."""
    joint, mean, most = weighed(replace(RULES_AT_WORK[name], budget=budget), DRAFTINGS[case])  # type: ignore[type-var]
    target = continuation(P, (), 2)
    said = joint > 0
    divergence = float((joint[said] * np.log(joint[said] / target[said])).sum())
    assert joint.sum() == pytest.approx(1, abs=EXACT)
    assert divergence <= mean + EXACT
    assert (joint <= math.exp(most) * target + EXACT).all()
    if budget is not None:
        assert most <= budget + EXACT
    if budget == 0:
        assert joint == pytest.approx(target, abs=EXACT)


@pytest.mark.parametrize("name", RULES_AT_WORK)
def test_control_without_a_budget_the_law_is_another(name: str) -> None:
    joint, mean, _ = weighed(RULES_AT_WORK[name], DRAFTINGS["drawn chain"])
    assert abs(joint - continuation(P, (), 2)).max() > 0.01
    assert mean > 0.01


@pytest.mark.parametrize("name", RELAXED)
def test_when_greedy_the_cost_is_the_log_probability_lost(name: str) -> None:
    target = torch.stack([logits((0.5, 0.3, 0.2)), logits((0.2, 0.5, 0.3)), logits((0.4, 0.35, 0.25))])
    verdict = make_rule(name).verify(Draft.chain([1, 1]), target, Argmax(), POSITION)
    lost = [float(row.max() - row[token]) for row, token in zip(target, verdict.tokens, strict=False)]
    assert sum(verdict.nats) == pytest.approx(sum(lost))
    assert verdict.accepted == (0 if name in ("distillspec", "typical") else 2)


# --- the budget -----------------------------------------------------------------------------------------------------


def test_what_is_left_pays_for_the_cheaper_path() -> None:
    """Of two paths the longer is dearer; a budget between takes what it can pay for, and a cut verdict costs less."""
    target = logits((0.5, 0.3, 0.2)).expand(5, -1)
    draft = Draft((1, 1, 2, 1), (-1, 0, -1, 2))
    one, two = math.log(5 / 3), math.log(5 / 2)
    for budget, tokens in ((None, (1, 1, 0)), (2 * one + EXACT, (1, 1, 0)), (2 * one - EXACT, (1, 0)), (0.1, (0,))):
        verdict = make_rule("lenient", lenience=0.1, budget=budget).verify(draft, target, Argmax(), POSITION)
        assert verdict.tokens == tokens
    whole = make_rule("lenient", lenience=0.1).verify(draft, target, Argmax(), POSITION)
    assert whole.nats == pytest.approx((one, one, 0))
    assert whole.clip(1).nats == pytest.approx((one,))
    later = make_rule("lenient", lenience=0.1, budget=two).verify(
        draft, target, Argmax(), POSITION, spent=two - one - EXACT
    )
    assert later.tokens == (1, 0), "what earlier steps spent counts"


TARGET, SMALL = BranchLM(5, seed=1), BranchLM(5, seed=2)


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("name", RELAXED)
def test_an_answer_never_costs_more_than_its_budget(name: str, temperature: float) -> None:
    """Whole generations: what steps record adds up, stays within the budget, and is used where it can be."""
    budget = 12.0 if name == "typical" else 2.0  # a step of which may cost 3 at its first token
    rule = make_rule(name, budget=budget)
    if temperature and not rule.draws:
        return
    used = []
    for seed in range(4):
        for drafter in (drawn_tree(SMALL.law, (2, 1, 1)), top_tree(SMALL.law, (2, 1, 1))):
            session = make_session(
                TARGET, (1, 2, seed), Sampling(temperature=temperature, seed=seed), name, max_new_tokens=60
            )
            session.noise = Stream(seed) if temperature else Argmax()
            for _ in Generation(TARGET, drafter, [session], [rule]):
                pass
            assert session.spent == pytest.approx(measured(session).nats)
            assert session.spent <= budget + 1e-9
            used.append(session.spent)
    exact = not temperature and name in ("typical", "distillspec")
    assert max(used) == 0 if exact else max(used) > 0.5


@pytest.mark.parametrize("name", ["lenient", "topbeta", "blockwise", "bild"])
def test_used_up_the_rule_is_lossless_for_the_rest(name: str) -> None:
    """Token 1 costs ln(5/3) each time, and is drafted always: it comes three times, and then never again."""
    rule = make_rule(name, budget=3.5 * math.log(5 / 3))
    session = make_session(DistLM([0.5, 0.3, 0.2]), (0,), max_new_tokens=40)
    for _ in Generation(DistLM([0.5, 0.3, 0.2]), fix([1]), [session], [rule]):
        pass
    assert session.new_tokens == [1, 0] * 3 + [0] * 34
    assert session.spent == pytest.approx(3 * math.log(5 / 3), abs=EXACT)


@pytest.mark.parametrize("name", RELAXED)
def test_used_up_ties_go_to_the_lowest_id_again(name: str) -> None:
    """Fault 72: a tied token costs nothing, and yet it is not what plain decoding says."""
    verdict = make_rule(name, budget=1).verify(Draft.chain([2]), torch.zeros(2, 3), Argmax(), POSITION, spent=1.0)
    assert verdict.tokens == (0,)


def test_typical_leaves_a_step_that_it_could_not_pay_for_to_rejection() -> None:
    poor = make_rule("typical", budget=0.5)
    for seed in range(20):
        draft = sampled(random_law(2), 2, 1)(Stream(seed))
        verdicts = [
            rule.verify(draft, rows(P, draft), Stream(seed), POSITION) for rule in (poor, make_rule("rejection"))
        ]
        assert verdicts[0] == verdicts[1]


@pytest.mark.parametrize("name", DRAWING)
def test_used_up_the_rule_draws_as_rejection_does(name: str) -> None:
    spent, rule = make_rule(name, budget=2.0), make_rule("rejection")
    for _, draft in outcomes(DRAFTINGS["drawn tree"]):
        for seed in range(3):
            ours = spent.verify(draft, rows(P, draft), Stream(seed), POSITION, spent=2.0)
            assert ours == rule.verify(draft, rows(P, draft), Stream(seed), POSITION)


def test_two_rows_of_one_rule_have_a_budget_each() -> None:
    """A rule holds no state: its budget is one answer's, whatever else it decides."""
    drafter, rule = top_tree(SMALL.law, (1, 1)), make_rule("blockwise", top=5, budget=1.0)

    def spent(*prompts: tuple[int, ...]) -> list[float]:
        sessions = [make_session(TARGET, prompt, max_new_tokens=40) for prompt in prompts]
        for _ in Generation(TARGET, drafter, sessions, [rule] * len(sessions)):
            pass
        return [session.spent for session in sessions]

    assert spent((1, 2, 3), (3, 2, 1)) == spent((1, 2, 3)) + spent((3, 2, 1))


def test_lossless_rules_cost_nothing() -> None:
    for name, row in RULES.items():
        if row.lossless:
            sampling = Sampling(temperature=0 if name == "greedy" else 1, seed=1)
            (session,) = decode(TARGET, drawn_tree(SMALL.law, (2, 1)), (1, 2, 3), rule=name, sampling=sampling)
            assert (session.spent, measured(session).nats) == (0, 0)


def test_a_completion_tells_what_was_spent() -> None:
    model = sd.Model(TARGET, TOKENIZER)
    rule = sd.make_rule("blockwise", top=5, budget=1.0)
    done = model.generate([1, 2, 3], drafter=top_tree(SMALL.law, (1, 1)), rule=rule, max_new_tokens=40)
    assert done.rule == "blockwise"
    assert 0 < done.metrics.nats <= 1
    assert done.to_dict()["metrics"]["nats_per_token"] == pytest.approx(done.metrics.nats / 40)
