"""Never slower, and nearly as fast as the best fixed length: the drafter auto by a clock that only its stubs move.

A plain pass takes one second. No real time is measured, so the figures are the same on every machine.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from stubs import Clock, ScriptLM, Slow, TimedLM, chancy, decode, mix

from specdecode.drafters import Drafter
from specdecode.drafters.auto import Auto
from specdecode.drafters.choosing import Decision
from specdecode.drafters.null import Null

N, LONG = 128, 256
_rng = random.Random(1)
SCRIPT = [_rng.randrange(97) for _ in range(LONG)]
PROMPT = [1, 2, 3]
K = (1, 2, 3, 4, 6, 8, 12, 16)

Curve = Callable[[int, float], float]


def rising(flat: float, steep: float) -> Curve:
    """Each row beyond the first costs `flat` of a plain pass, and `steep` from the ninth on."""
    return lambda rows, context: 1 + flat * (min(rows, 8) - 1) + steep * max(0, rows - 8)


def stepped(rows: int, context: float) -> float:
    """A second row alone costs a whole pass more."""
    return 1.0 if rows == 1 else 2 + 0.2 * (rows - 2)


CURVES: dict[str, Curve] = {
    "flat": rising(0.02, 0.1),
    "usual": rising(0.05, 0.12),
    "dear": rising(0.2, 0.2),
    "stepped": stepped,
}
ALL = pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)


def disturbed(index: int) -> float:
    """A tenth up or down, and one pass in forty takes four times as long."""
    rng = random.Random(index)
    return 4.0 if index % 40 == 17 else rng.lognormvariate(0, 0.1)


def rate(make: Callable[[Clock], Drafter], curve: Curve, prompts: int = 1, n: int = N, **options: Any) -> float:
    """Tokens per second of answers of n tokens, every session together."""
    clock = Clock()
    lm = TimedLM(ScriptLM(SCRIPT), clock, curve, **options)
    for session in decode(lm, make(clock), *[PROMPT] * prompts, n=n):
        assert session.new_tokens == SCRIPT[:n]
    return n * prompts / clock.now


def auto_rate(*sources: Any, curve: Curve, believed: Curve | None = None, **options: Any) -> float:
    made = tuple(getattr(source, "drafter", source) for source in sources)
    return rate(lambda clock: Auto(made, curve=believed or curve, clock=clock), curve, **options)


def best_rate(source: Callable[[int], Any], curve: Curve, n: int = N) -> float:
    """Of all fixed draft lengths."""
    return max(rate(lambda clock, k=k: source(k), curve, n=n) for k in K)


def right(share: float, confidence: float | None = None, k: int = 16) -> Any:
    return chancy(SCRIPT, lambda i: share, k=k, confidence=confidence)


@ALL
@pytest.mark.parametrize("confidence", [None, 0.2, 0.6, 0.95])
def test_a_drafter_that_is_always_wrong_costs_three_percent_at_most(curve: Curve, confidence: float | None) -> None:
    assert auto_rate(right(0, confidence), curve=curve) >= 0.97


@ALL
def test_so_do_several_and_one_whose_confidence_tells_nothing(curve: Curve) -> None:
    """Ten sources that are each sure of something else: what is lost is bounded for all of them together."""
    sources = [chancy(SCRIPT, lambda i: 0, k=4, confidence=0.5 + 0.05 * i, vocab=90 + i) for i in range(10)]
    assert auto_rate(*sources, curve=curve) >= 0.97


def test_so_does_one_on_a_disturbed_machine() -> None:
    plain = rate(lambda clock: Null(), CURVES["usual"], disturb=disturbed)
    for confidence in (None, 0.6, 0.95):
        assert auto_rate(right(0, confidence), curve=CURVES["usual"], disturb=disturbed) >= 0.97 * plain


@ALL
@pytest.mark.parametrize("confidence", [None, 0.95])
def test_a_perfect_drafter_comes_near_the_best_fixed_length(curve: Curve, confidence: float | None) -> None:
    """Nine tenths of it in 256 tokens. In 128 the best length takes nine steps, of which the plain first one, and what
    has to be learned of a drafter that says nothing of itself, are more than a tenth."""
    for n, share in ((LONG, 0.9), (N, 0.8)):
        best = best_rate(lambda k: right(1, k=k), curve, n)
        assert auto_rate(right(1, confidence), curve=curve, n=n) >= share * best


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.8])
@pytest.mark.parametrize("name", ["flat", "usual"])
def test_drafts_that_are_right_by_chance_come_near_the_best_fixed_length(name: str, share: float) -> None:
    curve = CURVES[name]
    assert auto_rate(right(share, share), curve=curve) >= 0.93 * best_rate(lambda k: right(share, k=k), curve)


@ALL
def test_chat_is_not_slowed_down(curve: Curve) -> None:
    """One draft in twenty is right, and the source believes that each second is."""
    assert auto_rate(right(0.05, 0.5), curve=curve) >= 0.97


@ALL
@pytest.mark.parametrize("halves", [(1, 0), (0, 1)], ids=["right, then wrong", "wrong, then right"])
def test_acceptance_that_changes_is_followed(curve: Curve, halves: tuple[int, int]) -> None:
    """Half of the text at full speed would take at least a twelfth of its plain time."""
    source = chancy(SCRIPT, lambda i: halves[int(i >= N / 2)])
    found = auto_rate(source, curve=curve)
    ideal = 2 / (1 + 1 / best_rate(lambda k: right(1, k=k), curve))
    assert found >= 1 + 0.5 * (ideal - 1) if curve is not stepped else found >= 0.95


@pytest.mark.parametrize("name", ["flat", "usual", "dear"])
def test_text_that_is_copied_in_parts_is_decoded_faster(name: str) -> None:
    """Copied by 40 tokens, with 40 of its own between: lookups are right and sure, or wrong and unsure."""
    copied = [(i // 40) % 2 == 1 for i in range(LONG)]
    source = mix(SCRIPT, [16 if c else 0 for c in copied], k=16)
    sure = chancy(SCRIPT, lambda i: copied[i], confidence=0.9)
    assert auto_rate(sure, curve=CURVES[name]) >= 1.05
    assert auto_rate(source, curve=CURVES[name]) >= 0.97


@ALL
@pytest.mark.parametrize("error", [0.5, 2.0])
@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 1.0])
def test_a_curve_that_is_wrong_by_two_does_no_harm(curve: Curve, error: float, share: float) -> None:
    """What drafts cost is believed to be half or twice what it is."""

    def believed(rows: int, context: float) -> float:
        return curve(1, context) if rows == 1 else max(1.0, error * curve(rows, context))

    assert auto_rate(right(share), curve=curve, believed=believed) >= 0.97


@ALL
def test_a_machine_of_another_speed_changes_nothing(curve: Curve) -> None:
    """A curve that is wrong alike for all numbers of rows."""
    for factor in (0.3, 3.0):
        found = auto_rate(right(0.8, 0.8), curve=curve, believed=lambda rows, ctx, f=factor: f * curve(rows, ctx))
        assert found >= 0.85 * auto_rate(right(0.8, 0.8), curve=curve)


@ALL
@pytest.mark.parametrize("step_s", [0.02, 0.1, 0.3, 1.0, 2.0])
def test_a_slow_drafter_that_is_always_wrong_costs_three_percent_at_most(curve: Curve, step_s: float) -> None:
    found = rate(lambda clock: Auto((Slow(right(0).drafter, clock, step_s),), curve=curve, clock=clock), curve)
    assert found >= 0.97


@pytest.mark.parametrize(("step_s", "share"), [(0.02, 0.8), (0.1, 0.8), (0.1, 1.0), (0.3, 0.8)])
@pytest.mark.parametrize("name", ["flat", "usual"])
def test_a_slow_drafter_is_used_where_it_pays(name: str, step_s: float, share: float) -> None:
    curve = CURVES[name]
    found = rate(lambda clock: Auto((Slow(right(share).drafter, clock, step_s),), curve=curve, clock=clock), curve)
    best = max(rate(lambda clock, k=k: Slow(right(share, k=k).drafter, clock, step_s), curve) for k in K)
    assert found >= 0.8 * best


def test_a_source_that_was_disturbed_once_is_asked_again() -> None:
    """A laptop's lid was closed while it drafted."""

    class Nap(Clock):
        """Is asked four times a step, and jumps once, between the two askings that time a draft."""

        def __call__(self) -> float:
            self.asked = getattr(self, "asked", 0) + 1
            self.now += 1e4 if self.asked == self.when else 0.0
            return self.now

    def told(when: int) -> list[int]:
        clock, steps = Nap(), list[Decision]()
        clock.when = when  # type: ignore[attr-defined]
        source = Slow(right(0.95, k=4).drafter, clock, 0.05)
        lm = TimedLM(ScriptLM(SCRIPT), clock, CURVES["flat"])
        decode(lm, Auto((source,), curve=CURVES["flat"], clock=clock, tell=steps.append), PROMPT, n=N)
        return [step.drafted for step in steps if step.draft_s]

    assert len(told(0)) > 20
    assert all(len(told(when)) > 15 for when in range(30, 34))


def test_a_good_source_is_not_spoilt_by_bad_ones() -> None:
    curve = CURVES["usual"]
    alone = auto_rate(right(0.8), curve=curve)

    def all_three(clock: Clock) -> Drafter:
        wrong = chancy(SCRIPT, lambda i: 0, vocab=90).drafter
        return Auto((wrong, right(0.8).drafter, Slow(right(0).drafter, clock, 0.5)), curve=curve, clock=clock)

    assert rate(all_three, curve) >= 0.9 * alone


def test_a_batch_drafts_where_it_pays() -> None:
    """Of four sessions two are drafted for rightly, and two wrongly, which last as long as they would alone."""
    curve = rising(0.02, 0.02)
    plain = rate(lambda clock: Null(), curve, prompts=4)
    clock = Clock()
    lm, source = TimedLM(ScriptLM(SCRIPT), clock, curve), mix(SCRIPT, (16,), (0,), k=16).drafter
    sessions = decode(lm, Auto((source,), curve=curve, clock=clock), *[PROMPT] * 4, n=N)
    assert [len(session.records) <= N / 8 for session in sessions] == [True, False] * 2
    assert 4 * N / clock.now >= 0.93 * plain
    assert auto_rate(right(0), curve=curve, prompts=4) >= 0.97 * plain


def test_the_same_figures_fail_a_fixed_length() -> None:
    """Negative control: without a choice, wrong drafts cost what they cost."""
    assert rate(lambda clock: right(0, k=4), CURVES["usual"]) < 0.9
    assert rate(lambda clock: right(1, k=1), CURVES["usual"]) < 0.5 * best_rate(
        lambda k: right(1, k=k), CURVES["usual"]
    )
