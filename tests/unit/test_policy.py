"""The arithmetic of choosing: what is learned of acceptance and of time, what may be lost, and what is then decided."""

from __future__ import annotations

import math
import random

import pytest

from specdecode.policy import ANY, CREDIT, ODDS, START, STEP, UNKNOWN, Acceptance, PassCost, Policy

KIND = (0, 9, 0)


def flat(rows: int, context: float) -> float:
    return 1 + 0.1 * (rows - 1)


class TestAcceptance:
    def test_nothing_known_is_the_prior(self) -> None:
        assert Acceptance().mean(KIND, 0.8) == pytest.approx(0.8)
        assert Acceptance().by_depth(0, 3, 0) == pytest.approx([UNKNOWN] * 3)
        assert Acceptance().by_depth(0, 0, 0) == []

    @pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
    def test_trials_outweigh_it(self, share: float) -> None:
        known = Acceptance()
        for i in range(200):
            known.step += 1
            known.see(KIND, random.Random(i).random() < share)
        assert known.mean(KIND, 0.6) == pytest.approx(share, abs=0.12)
        assert known.mean((0, 8, 0), 0.6) == pytest.approx(0.6), "another kind is not meant"
        assert known.mean((1, 9, 0), 0.6) == pytest.approx(0.6), "nor another source"

    def test_new_trials_outweigh_old_ones(self) -> None:
        known = Acceptance()
        for accepted in (True, False):
            for _ in range(60):
                known.see(KIND, accepted)
        assert known.mean(KIND, 0.5) < 0.35

    def test_what_was_not_tried_for_long_is_forgotten(self) -> None:
        known = Acceptance()
        for _ in range(30):
            known.see(KIND, False)
        at_once = known.mean(KIND, 0.8)
        known.step += 2000
        assert at_once < 0.15
        assert known.mean(KIND, 0.8) > 0.75

    def test_a_depth_is_expected_to_be_like_the_one_before(self) -> None:
        known = Acceptance()
        for _ in range(50):
            known.see((0, -1, 0), True)
        first, second, third = known.by_depth(0, 3, 0)
        assert first > 0.9
        assert second == third == pytest.approx(first)

    def test_a_session_starts_from_what_all_have_shown_and_then_speaks_for_itself(self) -> None:
        known = Acceptance()
        for _ in range(40):
            known.see(KIND, True, session=0)
            known.see(KIND, False, session=1)
        assert known.mean(KIND, 0.5, session=0) > 0.85
        assert known.mean(KIND, 0.5, session=1) < 0.15
        assert known.mean(KIND, 0.9, session=2) == pytest.approx(known.mean(KIND, 0.9)) == pytest.approx(0.5, abs=0.1)


class TestPassCost:
    def test_without_passes_it_is_the_curve(self) -> None:
        cost = PassCost(flat)
        assert cost.plain(1, 100) == 1
        assert cost.drafted(1, 4, 100) == pytest.approx([1, 1.1, 1.2, 1.3, 1.4])
        assert cost.drafted(3, 2, 100) == pytest.approx([1.2, 1.3, 1.4])

    def test_contexts_are_told_apart(self) -> None:
        cost = PassCost(lambda rows, context: rows + context / 1000)
        assert cost.plain(1, 0) < cost.plain(1, 1000) < cost.plain(1, 5000)
        assert cost.plain(1, 0) == PassCost(lambda rows, context: rows + context / 1000).plain(1, 0)

    @pytest.mark.parametrize("factor", [0.4, 1.0, 2.5])
    def test_the_speed_of_the_machine_is_followed(self, factor: float) -> None:
        cost = PassCost(flat)
        for _ in range(12):
            cost.see(1, 0, 0, factor)
        assert cost.plain(1, 0) == pytest.approx(factor, rel=0.05)
        assert cost.drafted(1, 7, 0)[7] == pytest.approx(1.7 * factor, rel=0.05), "drafts are slowed down alike"

    @pytest.mark.parametrize("factor", [0.5, 2.0])
    def test_a_wrong_shape_is_corrected_within_a_few_passes(self, factor: float) -> None:
        cost = PassCost(flat)
        for _ in range(6):
            cost.see(1, 0, 0, 1.0)
            cost.see(1, 3, 0, 1.3 * factor)
        assert cost.plain(1, 0) == pytest.approx(1, rel=0.1)
        assert cost.drafted(1, 3, 0)[3] == pytest.approx(1.3 * factor, rel=0.15)
        assert cost.drafted(1, 12, 0)[12] == pytest.approx(2.2 * factor, rel=0.25), "its neighbours are no better"

    def test_one_disturbed_pass_changes_little(self) -> None:
        cost = PassCost(flat)
        for _ in range(20):
            cost.see(1, 0, 0, 1.0)
            cost.see(1, 3, 0, 1.3)
        believed = cost.see(1, 3, 0, 50.0)
        assert believed < 3
        assert cost.plain(1, 0) == pytest.approx(1, rel=0.1)
        assert cost.drafted(1, 3, 0)[3] == pytest.approx(1.3, rel=0.2)

    def test_noise_averages_out(self) -> None:
        cost, rng = PassCost(flat), random.Random(0)
        for _ in range(200):
            cost.see(1, 0, 0, rng.lognormvariate(0, 0.15))
            cost.see(1, 7, 0, 1.7 * rng.lognormvariate(0, 0.15))
        assert cost.plain(1, 0) == pytest.approx(1, rel=0.15)
        assert cost.drafted(1, 7, 0)[7] / cost.plain(1, 0) == pytest.approx(1.7, rel=0.15)

    def test_doubt_about_plain_passes_grows_until_one_is_seen(self) -> None:
        cost = PassCost(flat)
        fresh = cost.doubt
        cost.see(1, 0, 0, 1.0)
        seen = cost.doubt
        for _ in range(60):
            cost.see(1, 3, 0, 1.3)
        unseen = cost.doubt
        cost.see(1, 0, 0, 1.0)
        assert max(seen, cost.doubt) < unseen <= fresh < 0.3


def ready(curve: object = flat, rows: int = 1) -> Policy:
    """A policy that has seen plain steps enough to know what they cost."""
    policy = Policy(curve)  # type: ignore[arg-type]
    for _ in range(30):
        policy.begin(rows, 0)
        policy.choose([])
        policy.timed(flat(rows, 0))
        for _ in range(rows):
            policy.emitted(1)
    policy.begin(rows, 0)
    return policy


class TestChoose:
    def test_the_first_step_is_plain(self) -> None:
        policy = Policy(flat)
        policy.begin(1, 0)
        assert policy.depth(0, 5, [], 0.0) == 0
        choice = policy.choose([0.9, 0.8])
        assert (choice.nodes, choice.expected, choice.reason) == (0, 0.0, "the first step is plain")

    def test_nothing_offered(self) -> None:
        choice = ready().choose([])
        assert (choice.nodes, choice.reason) == (0, "nothing was offered")
        assert choice.seconds == choice.plain == pytest.approx(1)

    def test_nodes_are_drafted_as_long_as_each_is_worth_its_row(self) -> None:
        """A row costs a tenth of a plain pass, so a chance of more than a tenth is worth it."""
        choice = ready().choose([0.9, 0.7, 0.3, 0.15, 0.08, 0.05])
        assert choice.nodes == 4
        assert choice.expected == pytest.approx(2.05)
        assert choice.seconds == pytest.approx(1.4, rel=0.02)
        assert choice.reason == "more is not worth its time"
        assert ready().choose([0.9, 0.7]).reason == "more was not offered"

    def test_small_chances_are_not_worth_a_row(self) -> None:
        assert ready().choose([0.09, 0.05]).nodes == 0

    def test_a_costly_second_row_is_taken_for_the_sake_of_the_others(self) -> None:
        """The maximum is looked for, and not the first node that does not pay."""

        def steps(rows: int, context: float) -> float:
            return 1.0 if rows == 1 else 1.6

        assert ready(steps).choose([0.3] * 1).nodes == 0
        assert ready(steps).choose([0.5] * 5).nodes == 5

    def test_the_better_the_rate_of_late_the_dearer_is_time(self) -> None:
        fast = ready()
        for _ in range(30):
            fast.begin(1, 0)
            fast.choose([0.9] * 4)
            fast.timed(1.4)
            fast.emitted(5)
        fast.begin(1, 0)
        assert fast.rate == pytest.approx(5 / 1.4, rel=0.3)
        assert ready().choose([0.9, 0.2]).nodes == 2
        assert fast.choose([0.9, 0.2]).nodes == 1

    def test_more_sessions_make_rows_comparatively_cheaper(self) -> None:
        """Rate and price follow all sessions together: 4 tokens in 1.3 s, so a row of .1 s costs .3 tokens."""
        policy = ready(rows=4)
        assert policy.choose([0.5, 0.5, 0.4, 0.2]).nodes == 3

    def test_what_was_decided_on_counts_as_there(self) -> None:
        choice = ready().choose([0.5], decided=[0.6, 0.5], draft_s=0.1)
        assert choice.nodes == 1
        assert choice.expected == pytest.approx(1.6)
        assert choice.seconds == pytest.approx(1.3, rel=0.02)

    def test_losses_end(self) -> None:
        """Drafts that are thought good and are always wrong are drafted until what may be lost is gone; then only what
        gains its price several times over is, and no more than a step may lose."""
        policy, lost = ready(), 0.0
        for _ in range(40):
            policy.begin(1, 0)
            choice = policy.choose([0.2] * 10)
            lost += choice.seconds - choice.plain
            policy.timed(choice.seconds)
            policy.emitted(1)
        assert 0.5 < lost < START + STEP + 0.7
        policy.begin(1, 0)
        assert policy.choose([0.2] * 10).reason == "more must not be risked"
        assert ODDS * 0.6 > 1.15
        assert policy.choose([0.95] * 12).nodes > 0

    def test_gains_are_risked_again(self) -> None:
        policy = ready()
        assert policy.room == pytest.approx(START + 0.3, rel=0.05), "what may be lost at first, and a hundredth of 30 s"
        for _ in range(10):
            policy.begin(1, 0)
            policy.choose([0.9] * 5)
            policy.timed(1.5)
            policy.emitted(6)
        policy.begin(1, 0)
        assert policy.room < CREDIT + START + 1, "not all that was gained may be lost again"
        assert policy.choose([0.6] * 30).nodes == 30


class TestDepth:
    def test_a_free_source_goes_as_deep_as_its_rows_pay(self) -> None:
        assert ready().depth(0, 8, [], 0.0) == 3, "of chances 1/2, 1/4, 1/8, 1/16 three are more than a tenth"
        assert ready().depth(0, 2, [], 0.0) == 2
        assert ready().depth(0, 0, [], 0.0) == 0

    def test_time_to_draft_counts(self) -> None:
        assert ready().depth(0, 8, [], 0.1) == 2
        assert ready().depth(0, 8, [], 0.6) == 0

    def test_an_unknown_time_is_tried_on_one_token(self) -> None:
        assert ready().depth(0, 8, [], None) == 1

    def test_what_is_there_already_is_no_gain(self) -> None:
        assert ready().depth(0, 8, [0.9, 0.8, 0.7], 0.0) == 0
        assert ready().depth(0, 8, [0.1], 0.0) >= 2

    def test_what_was_learned_counts(self) -> None:
        policy = ready()
        for _ in range(50):
            for depth in range(4):
                policy.acceptance.see((0, -1 - depth, ANY), True)
        assert policy.depth(0, 4, [], 0.1) == 4
        for _ in range(200):
            policy.acceptance.see((0, -1, ANY), False)
        assert policy.depth(0, 4, [], 0.1) == 0

    def test_siblings_cost_their_rows(self) -> None:
        assert ready().depth(0, 8, [], 0.0, width=4) == 1
        assert ready().depth(0, 8, [], 0.0, width=6) == 0

    def test_it_is_for_each_of_the_sessions(self) -> None:
        """Rows for all of them are paid for."""
        dear = ready(lambda rows, context: 1 + 0.4 * (rows - 1), rows=4)
        assert dear.depth(0, 4, [], 0.0) == 0


def test_time_that_a_source_takes_is_a_loss() -> None:
    policy = ready()
    before = policy.room
    policy.choose([], decided=[0.5], draft_s=0.3)
    policy.timed(1.1)
    policy.emitted(1)
    assert policy.room == pytest.approx(before - 0.4, abs=0.02)


def test_plain_steps_are_no_loss_however_long_they_take() -> None:
    policy = ready()
    before = policy.room
    for _ in range(5):
        policy.begin(1, 0)
        policy.choose([])
        policy.timed(3.0)
        policy.emitted(1)
    assert policy.room >= before
    assert math.isfinite(policy.rate)
