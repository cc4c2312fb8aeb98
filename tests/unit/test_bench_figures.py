"""The arithmetic of a benchmark, against the published tables of Spec-Bench and by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdecode.bench.figures import acceptance_by_depth, compare, describe, rate, ratio_of_means, time_split
from specdecode.bench.records import Answer, Place, Timing

# Xia et al. 2401.07851: tokens/s and the speed-ups printed beside them, with plain decoding first.
TABLE_5 = {  # one RTX 3090, Vicuna-7B
    "T=0": (
        36.74,
        [(40.64, "1.11"), (51.12, "1.39"), (59.42, "1.62"), (64.85, "1.77"), (54.30, "1.48"), (76.30, "2.08")],
    ),
    "T=1": (36.24, [(49.04, "1.35"), (53.94, "1.49"), (62.88, "1.74")]),
}
TABLE_6 = {  # an A100
    "7B": (
        40.24,
        [(71.20, "1.77"), (63.81, "1.59"), (66.61, "1.66"), (64.07, "1.59"), (97.27, "2.42"), (96.23, "2.39")],
    ),
    "13B": (
        31.38,
        [(46.42, "1.48"), (48.89, "1.56"), (48.42, "1.54"), (50.48, "1.61"), (67.64, "2.16"), (79.35, "2.53")],
    ),
    "33B": (
        16.34,
        [(22.58, "1.38"), (25.98, "1.59"), (23.07, "1.41"), (26.89, "1.65"), (32.92, "2.01"), (40.91, "2.50")],
    ),
}
PRINTED = [
    (method, baseline, ratio) for table in (TABLE_5, TABLE_6) for baseline, of in table.values() for method, ratio in of
]


def answer(question: str, steps: list[int], first_s: float, rest_s: float, *, turn: int = 0, repeat: int = 0) -> Answer:
    timing = Timing(tuple(range(sum(steps))), tuple(steps), first_s, first_s + rest_s)
    return Answer("arm", Place(question, turn, repeat), 9, timing)


def paced(*tokens_per_second: float) -> list[Answer]:
    """One answer a question, of 1 + 100 tokens, decoded at these rates."""
    return [answer(str(i), [1] * 101, 0.5, 100 / pace) for i, pace in enumerate(tokens_per_second)]


@pytest.mark.parametrize(("method", "baseline", "printed"), PRINTED)
def test_published_speed_ups_follow_from_their_tokens_per_second(method: float, baseline: float, printed: str) -> None:
    """All 27: each mean is spread over questions of different speed, so that a mean of ratios would not do."""
    fast, slow = paced(0.25 * method, 1.75 * method), paced(1.2 * baseline, 0.8 * baseline)
    found = compare(fast, slow)["decoding"]
    assert found is not None
    assert f"{found:.2f}" == printed
    assert f"{(0.25 / 1.2 + 1.75 / 0.8) / 2 * method / baseline:.2f}" != printed


def test_there_are_27_published_speed_ups() -> None:
    assert len(PRINTED) == 27


def test_the_overall_speed_up_is_no_mean_of_the_tasks() -> None:
    fast, slow = paced(10, 10, 10, 100), paced(10, 10, 10, 10)
    assert compare(fast, slow)["decoding"] == pytest.approx(3.25)
    tasks = [compare(fast[:3], slow[:3])["decoding"], compare(fast[3:], slow[3:])["decoding"]]
    assert tasks == pytest.approx([1.0, 10.0])


def test_decoding_leaves_the_first_step_out_and_prefill_counts_it() -> None:
    """A first step that emits four tokens gains nothing in decoding: 6 tokens in 2 seconds, 10 in 3."""
    one = answer("1", [4, 3, 3], 1.0, 2.0)
    assert rate([one]) == pytest.approx(3.0)
    assert rate([one], prefill=True) == pytest.approx(10 / 3)


def test_turns_and_rounds_of_a_question_are_one_rate() -> None:
    """Sum of tokens over sum of seconds, as in Spec-Bench."""
    turns = [answer("1", [1] * 11, 1.0, 1.0), answer("1", [1] * 31, 1.0, 3.0, turn=1), answer("2", [1] * 11, 1.0, 5.0)]
    assert describe(turns)["tokens_per_second"] == pytest.approx((40 / 4 + 10 / 5) / 2)


def test_answers_of_one_step_have_no_decoding_rate() -> None:
    short = answer("1", [1], 1.0, 0.0)
    assert rate([short]) is None
    assert rate([short], prefill=True) == pytest.approx(1.0)
    assert rate([]) is None
    assert compare([short], [short])["decoding"] is None
    assert compare([short, *paced(5, 5)[1:]], [short, *paced(2, 2)[1:]])["decoding"] == pytest.approx(2.5)


def test_only_what_both_arms_answered_is_compared() -> None:
    assert ratio_of_means({"1": 4.0, "2": 100.0}, {"1": 2.0, "3": 9.0}) == pytest.approx(2.0)
    assert ratio_of_means({"1": 4.0}, {"2": 2.0}) is None


def test_the_spread_is_that_of_single_questions_and_rounds() -> None:
    fast, slow = paced(10, 20, 30, 40, 50), paced(10, 10, 10, 10, 10)
    found = compare(fast, slow)
    assert (found["q1"], found["median"], found["q3"]) == pytest.approx((2.0, 3.0, 4.0))
    again = [replace(a, place=replace(a.place, repeat=1)) for a in paced(90)]
    found = compare(
        [*fast[:1], *again], [*slow[:1], *(replace(a, place=replace(a.place, repeat=1)) for a in paced(10))]
    )
    assert found["median"] == pytest.approx(5.0)
    assert compare(fast[:1], slow[:1])["q1"] == pytest.approx(1.0)


def test_an_arm_is_described_by_what_it_emitted() -> None:
    told = describe([answer("1", [1, 4, 1, 2], 2.0, 1.0), answer("2", [1, 1], 4.0, 1.0)])
    assert told["tokens_per_step"] == pytest.approx(10 / 6)
    assert told["acceptance_by_depth"] == pytest.approx([2 / 6, 1 / 6, 1 / 6])
    assert (told["first_s"], told["new_tokens"], told["answers"], told["questions"]) == (3.0, 10, 2, 2)
    assert (told["drafted"], told["accepted"], told["time_split"]) == (None, None, None)


def test_nothing_is_described_as_nothing() -> None:
    told = describe([])
    assert (told["tokens_per_second"], told["first_s"], told["tokens_per_step"]) == (None, None, None)
    assert acceptance_by_depth([]) == acceptance_by_depth([1, 1]) == []


def test_time_is_split_over_the_steps_of_the_arms_that_tell() -> None:
    timing = Timing((1, 2), (1, 1), 1.0, 9.0, draft_s=1.0, target_s=6.0, steps_s=8.0, drafted=4, accepted=3)
    told = Answer("arm", Place("1", 0, 0), 9, timing)
    silent = answer("2", [1, 1], 1.0, 1.0)
    assert time_split([told, silent]) == pytest.approx({"draft": 1 / 8, "target": 6 / 8, "rest": 1 / 8})
    assert (describe([told, silent])["drafted"], describe([told, silent])["accepted"]) == (4, 3)
