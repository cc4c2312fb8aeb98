"""Measured costs: curves between and beyond their points, measuring by a clock of the test's own, and the store."""

from __future__ import annotations

import json
import logging
import math
import os
from dataclasses import asdict
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stubs import Clock, ScriptLM, Spy, TimedLM, tiny

from specdecode import costs
from specdecode.costs import QUICK, Curve, Plan, machine, measure
from specdecode.costs import store as stored
from specdecode.models.hf import HFModel

CURVE = Curve((1, 2, 4), (0, 100), ((1.0, 1.5, 2.0), (2.0, 2.5, 4.0)))
SMALL = Plan(rows=(1, 2, 4), contexts=(10, 50), rounds=5, budget_s=100.0)


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own, and a process that knows nothing yet."""
    monkeypatch.setattr(stored, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(stored, "_named", {})
    return tmp_path / "costs"


class Named(ScriptLM):
    def __init__(self, signature: str = "stub 1x1") -> None:
        super().__init__([1, 2, 3])
        self.signature = signature


class TestCurve:
    @pytest.mark.parametrize(
        ("rows", "context", "seconds"),
        [
            (1, 0, 1.0),
            (2, 0, 1.5),
            (3, 0, 1.75),
            (4, 0, 2.0),
            (6, 0, 2.5),
            (1, 50, 1.5),
            (4, 50, 3.0),
            (3, 100, 3.25),
            (1, 200, 3.0),
            (8, 100, 7.0),
            (1, -5, 1.0),
        ],
    )
    def test_linear_between_its_points_and_beyond(self, rows: int, context: float, seconds: float) -> None:
        assert CURVE(rows, context) == pytest.approx(seconds)

    @given(
        st.lists(st.floats(0.01, 9), min_size=1, max_size=5),
        st.lists(st.floats(0.01, 9), min_size=5, max_size=5),
        st.floats(0, 5000),
    )
    def test_more_rows_never_cost_less(self, near: list[float], far: list[float], context: float) -> None:
        rows = tuple(2**i for i in range(len(near)))
        curve = Curve.fit(rows, (10, 90), (near, far[: len(near)]))
        line = [curve(n, context) for n in range(1, 40)]
        assert line[0] > 0
        assert all(a <= b + 1e-9 for a, b in pairwise(line))
        assert curve(1, context) <= curve(1, context + 100) + 1e-9, "nor does more context"

    def test_a_fit_pools_what_falls(self) -> None:
        assert Curve.fit((1, 2, 4, 8), (0,), ((3.0, 9.0, 7.0, 8.0),)).seconds == ((3.0, 8.0, 8.0, 8.0),)

    def test_it_survives_json(self) -> None:
        assert Curve.from_dict(json.loads(json.dumps(asdict(CURVE)))) == CURVE

    @pytest.mark.parametrize(
        "changes",
        [
            {"rows": (2, 3, 4)},
            {"rows": (1, 4, 2)},
            {"rows": (1, 2)},
            {"contexts": ()},
            {"contexts": (5, 5)},
            {"seconds": ((1.0, 2.0, 3.0),)},
            {"seconds": ((0.0, 1.0, 2.0), (1.0, 1.0, 1.0))},
            {"seconds": ((1.0, 3.0, 2.0), (1.0, 1.0, 1.0))},
            {"seconds": ((1.0, float("nan"), 2.0), (1.0, 1.0, 1.0))},
            {"seconds": ((1.0, 2.0, float("inf")), (1.0, 1.0, 1.0))},
        ],
    )
    def test_what_is_no_curve_is_refused(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="rows"):
            Curve(**{**asdict(CURVE), **changes})


def truth(rows: int, context: float) -> float:
    return 1 + 0.1 * (rows - 1) + context / 1000


class TestMeasure:
    def timed(self, disturb: Any = lambda index: 1.0, context: int = 1 << 20) -> tuple[TimedLM, Clock]:
        clock = Clock()
        return TimedLM(ScriptLM([1], context=context), clock, truth, disturb), clock

    def test_it_finds_what_passes_take(self) -> None:
        lm, clock = self.timed()
        curve = measure(lm, SMALL, clock=clock)
        assert (curve.rows, curve.contexts) == (SMALL.rows, SMALL.contexts)
        for rows in (1, 3, 4, 9):
            assert curve(rows, 30) == pytest.approx(truth(rows, 30))

    def test_a_disturbance_does_not_show(self) -> None:
        lm, clock = self.timed(lambda index: 20.0 if 6 <= index < 14 else 1.0)
        assert measure(lm, SMALL, clock=clock)(4, 50) == pytest.approx(truth(4, 50))

    @pytest.mark.parametrize("clock", [lambda: 0.0, lambda: math.nan, count(0, -1).__next__])
    def test_a_clock_that_tells_nothing_gives_a_curve_all_the_same(self, clock: Any) -> None:
        curve = measure(ScriptLM([1, 2, 3]), SMALL, clock=clock)
        assert 0 < curve(1, 0) <= curve(4, 50) < 1

    def test_nothing_is_kept_between_passes(self) -> None:
        lm, clock = self.timed()
        measure(lm, SMALL, clock=clock)
        assert [cache.lengths for cache in lm.caches] == [(10,), (50,)]
        assert {positions[0][0] for positions in (p.positions for p in lm.passes)} == {10, 50}
        assert [p.nodes for p in lm.passes] == [1, 2, 4, 1, 2, 4] * SMALL.rounds

    def test_it_stops_within_its_budget(self) -> None:
        """A round takes 6.7 s here, and the first is needed."""
        lm, clock = self.timed()
        measure(lm, Plan(SMALL.rows, SMALL.contexts, 5, budget_s=15.0), clock=clock)
        assert clock.now < 15
        lm, clock = self.timed()
        measure(lm, Plan(SMALL.rows, SMALL.contexts, 5, budget_s=0.1), clock=clock)
        assert len(lm.passes) == 6

    def test_progress_is_told(self) -> None:
        told: list[float] = []
        lm, clock = self.timed()
        measure(lm, SMALL, clock=clock, advance=told.append)
        assert told == pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])

    @pytest.mark.parametrize("context", [2, 3, 8, 20, 61, 500])
    def test_a_short_context_bounds_what_is_measured(self, context: int) -> None:
        """The stub asserts that no position leaves its context."""
        lm, clock = self.timed(context=context)
        curve = measure(lm, QUICK, clock=clock)
        assert curve.rows[0] == 1
        assert curve(1, 0) > 0

    def test_a_transformer_is_measured(self) -> None:
        lm = Spy(HFModel(tiny("llama")))
        curve = measure(lm, Plan((1, 4), (8,), 2, 5.0))
        assert [p.nodes for p in lm.passes] == [1, 4] * 2
        assert curve(4, 8) >= curve(1, 8) > 0


class TestTheStore:
    def test_a_model_is_measured_once(self, store: Path, caplog: pytest.LogCaptureFixture) -> None:
        lm = Named()
        assert costs.known(lm) is None
        with caplog.at_level(logging.INFO, "specdecode"):
            curve = costs.of(lm)
        assert [record.message for record in caplog.records] == [
            "measuring what a pass of this model costs on this machine (once)"
        ]
        passes = len(lm.passes)
        assert costs.of(lm) is curve
        assert costs.of(Named()) is curve, "it is what the signature says, not the object"
        assert len(lm.passes) == passes
        assert len(list(store.iterdir())) == 1

    def test_another_process_finds_it(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        costs.remember(Named(), CURVE)
        monkeypatch.setattr(stored, "_named", {})
        assert costs.known(Named()) == CURVE

    def test_signature_threads_and_machine_are_told_apart(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        costs.remember(Named(), CURVE)
        assert costs.known(Named("stub 2x2")) is None
        with monkeypatch.context() as patch:
            patch.setattr(torch, "get_num_threads", lambda: 77)
            assert costs.known(Named()) is None
        with monkeypatch.context() as patch:
            patch.setattr(stored, "machine", lambda: "another")
            assert costs.known(Named()) is None
        assert costs.known(Named()) == CURVE

    @pytest.mark.parametrize(
        "damage",
        [
            "",
            "{",
            "[]",
            "3",
            '{"key": ["x", 1, "y"], "curve": {}}',
            '{"curve": {"rows": [1], "contexts": [0], "seconds": [[1]]}}',
            "\0\0",
            "[" * 100_000,
        ],
    )
    def test_a_damaged_file_is_measured_again(self, store: Path, monkeypatch: pytest.MonkeyPatch, damage: str) -> None:
        path = costs.remember(Named(), CURVE)
        assert path is not None
        path.write_text(damage)
        monkeypatch.setattr(stored, "_named", {})
        assert costs.known(Named()) is None
        assert costs.of(Named()) != CURVE
        assert json.loads(path.read_text())["curve"]["rows"] == list(QUICK.rows)

    def test_a_curve_that_is_none_is_measured_again(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = costs.remember(Named(), CURVE)
        assert path is not None
        entry = json.loads(path.read_text())
        whole = entry["curve"]
        for broken in (
            {**whole, "seconds": [[3, 2, 1]]},
            {**whole, "seconds": [[10**400, 10**400, 10**400]] * 2},
            {**whole, "rows": "abc"},
            {**whole, "contexts": [0, math.inf]},
            None,
        ):
            path.write_text(json.dumps({**entry, "curve": broken}))
            monkeypatch.setattr(stored, "_named", {})
            assert costs.known(Named()) is None

    def test_a_file_of_something_else_is_not_taken(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two keys with one name: what the file says of itself counts."""
        path = costs.remember(Named(), CURVE)
        assert path is not None
        path.write_text(path.read_text().replace("stub 1x1", "stub 1x2"))
        monkeypatch.setattr(stored, "_named", {})
        assert costs.known(Named()) is None

    def test_without_a_place_to_write_it_is_kept_in_memory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        blocked = tmp_path / "file"
        blocked.write_text("")
        monkeypatch.setattr(stored, "cache_dir", lambda: blocked)
        lm = Named()
        assert costs.remember(lm, CURVE) is None
        assert costs.known(lm) == CURVE

    def test_a_disk_that_is_full_leaves_no_half_file(self, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "replace", full)
        assert costs.remember(Named(), CURVE) is None
        assert list(store.iterdir()) == []

    def test_a_model_without_a_signature_is_known_by_itself_and_not_stored(self, store: Path) -> None:
        lm = Named("")
        curve = costs.of(lm)
        assert costs.of(lm) is curve
        assert costs.known(Named("")) is None
        assert not store.exists()


def test_the_machine_has_a_name() -> None:
    assert "cores" in machine()
