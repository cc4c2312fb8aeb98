"""Counting steps: what was drafted, accepted, emitted, and how long it took."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdecode.metrics import DEFINITIONS, Metrics, StepRecord, accepted_prefix, first_difference


def record(
    drafted: int, accepted: int, emitted: int | None = None, *, nodes: int | None = None, probes: int = 0
) -> StepRecord:
    """A chain step that took 6 time units: 1 drafting, 4 in the target."""
    return StepRecord(
        drafted=drafted,
        nodes=drafted if nodes is None else nodes,
        probes=probes,
        accepted=accepted,
        emitted=accepted + 1 if emitted is None else emitted,
        draft_s=1.0,
        target_s=4.0,
        total_s=6.0,
    )


def rounds(*accepted: int, k: int) -> Metrics:
    return Metrics.from_records(record(k, n) for n in accepted)


@st.composite
def records(draw: st.DrawFn) -> StepRecord:
    drafted = draw(st.integers(0, 6))
    accepted = draw(st.integers(0, drafted))
    emitted = max(1, accepted + draw(st.integers(0, 1)))
    return record(drafted, accepted, emitted, nodes=drafted + draw(st.integers(0, 9)))


def test_accepted_stops_at_first_mismatch():
    """Fault 130: matches after the first mismatch were counted as accepted."""
    assert accepted_prefix([1, 1, 0, 1, 1]) == 2
    assert accepted_prefix([]) == 0
    assert accepted_prefix([True, True]) == 2


def test_rounds_of_four():
    """Fault 130: one definition of each figure, fixed by hand-counted rounds."""
    metrics = rounds(4, 0, 2, k=4)
    assert (metrics.steps, metrics.drafted, metrics.accepted, metrics.emitted) == (3, 12, 6, 9)
    assert metrics.acceptance_rate == 0.5
    assert metrics.tokens_per_step == 3.0
    assert metrics.per_position == pytest.approx([2 / 3, 2 / 3, 1 / 3, 1 / 3])
    assert metrics.histogram == (1, 0, 1, 0, 1)


def test_tokens_past_the_end_are_not_counted():
    """Fault 129: four drafts match but the second is EOS; the clipped step emitted 2, both of them drafted."""
    metrics = Metrics.from_records([record(4, 2, emitted=2)])
    assert (metrics.accepted, metrics.emitted, metrics.tokens_per_step) == (2, 2, 2.0)
    assert metrics.per_position == [1, 1, 0, 0]


def test_no_steps():
    """Fault 132: statistics read before any request divided by zero."""
    metrics = Metrics.from_records([])
    assert metrics.acceptance_rate is None
    assert metrics.tokens_per_step is None
    assert metrics.per_position == []
    assert metrics.histogram == (0,)
    assert (metrics.steps, metrics.drafted, metrics.emitted, metrics.total_s, metrics.rest_s) == (0, 0, 0, 0.0, 0.0)


@pytest.mark.parametrize("steps", [1, 15])
def test_nothing_drafted(steps):
    """Fault 132: a run of empty drafts, or of a single token, has no acceptance rate; it is not 0."""
    metrics = rounds(*[0] * steps, k=0)
    assert metrics.acceptance_rate is None
    assert metrics.tokens_per_step == 1.0
    assert metrics.per_position == []
    assert metrics.histogram == (steps,)


@pytest.mark.parametrize(
    ("drafted", "accepted", "emitted", "nodes"), [(4, -1, 0, 4), (4, 5, 6, 4), (4, 3, 2, 4), (4, 2, 3, 3)]
)
def test_impossible_counts_are_our_own_bug(drafted, accepted, emitted, nodes):
    """Fault 132: negative accepted counts reached the counters."""
    with pytest.raises(AssertionError, match=r"impossible counts|longer than its tree"):
        record(drafted, accepted, emitted, nodes=nodes)


@given(st.lists(records(), max_size=12), records())
def test_counters_only_grow(steps, one_more):
    """Fault 132: counters must be monotone."""
    before, after = Metrics.from_records(steps), Metrics.from_records([*steps, one_more])
    for name in ("steps", "drafted", "nodes", "probes", "accepted", "emitted", "draft_s", "target_s", "total_s"):
        assert getattr(after, name) >= getattr(before, name), name
    assert all(now >= then for then, now in zip(before.histogram, after.histogram, strict=False))


@pytest.mark.parametrize(("k", "rate"), [(2, 1.0), (4, 0.5), (8, 0.25)])
def test_rate_falls_with_draft_length_but_tokens_per_step_does_not(k, rate):
    """Fault 133: a drafter that is right for exactly two tokens; both figures are given, each with its definition."""
    metrics = rounds(2, 2, 2, k=k)
    assert metrics.acceptance_rate == rate
    assert metrics.tokens_per_step == 3.0
    assert {"acceptance_rate", "tokens_per_step"} <= metrics.to_dict().keys() & metrics.to_dict()["definitions"].keys()


def test_drafted_tokens_are_counted_not_estimated():
    """Fault 136: rounds drafting 4, 1, 0 and 3 tokens have drafted 8, not 16."""
    metrics = Metrics.from_records(record(k, 0) for k in (4, 1, 0, 3))
    assert metrics.drafted == 8
    assert metrics.acceptance_rate == 0.0


def test_baseline_has_no_acceptance_rate():
    """Fault 136: plain decoding shows n/a (null), not 0 %."""
    assert json.loads(json.dumps(rounds(0, 0, k=0).to_dict()))["acceptance_rate"] is None


def test_trees_count_depth_nodes_and_probes_apart():
    metrics = Metrics.from_records([record(3, 2, nodes=25, probes=7), record(2, 0, nodes=4)])
    assert (metrics.drafted, metrics.nodes, metrics.probes) == (5, 29, 7)
    assert metrics.acceptance_rate == 2 / 5


def test_time_is_split_into_three():
    metrics = rounds(1, 1, 1, k=2)
    assert (metrics.draft_s, metrics.target_s, metrics.rest_s, metrics.total_s) == (3.0, 12.0, 3.0, 18.0)


@given(st.lists(records(), max_size=12))
def test_rates_agree_with_each_other(steps):
    metrics = Metrics.from_records(steps)
    assert sum(metrics.histogram) == metrics.steps
    assert sum(i * count for i, count in enumerate(metrics.histogram)) == metrics.accepted
    assert len(metrics.histogram) == len(metrics.per_position) + 1
    assert metrics.per_position == sorted(metrics.per_position, reverse=True)
    assert sum(metrics.per_position) * metrics.steps == pytest.approx(metrics.accepted)


def test_sessions_merge_by_concatenating_their_records():
    one, two = [record(4, 4), record(4, 0)], [record(2, 1)]
    merged = Metrics.from_records(one + two)
    assert (merged.steps, merged.drafted, merged.accepted, merged.emitted) == (3, 10, 5, 8)
    assert merged.per_position == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1 / 3])


def test_dictionary_is_json_and_complete():
    metrics = rounds(4, 0, 2, k=4)
    as_dict = metrics.to_dict()
    assert json.loads(json.dumps(as_dict)) == as_dict
    assert as_dict["histogram"] == [1, 0, 1, 0, 1]
    assert as_dict["per_position"] == metrics.per_position
    assert as_dict["rest_s"] == metrics.rest_s
    assert as_dict.keys() >= DEFINITIONS.keys()


@pytest.mark.parametrize(
    ("plain", "other", "position"),
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1, 2], [1], 1), ([1], [1, 2], 1), ([], [], None), ([1], [2, 1], 0)],
)
def test_the_first_difference(plain: list[int], other: list[int], position: int | None) -> None:
    assert first_difference(plain, other) == position
