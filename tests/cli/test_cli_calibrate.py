"""`specdecode calibrate`: what it measures, stores, draws and says; and that auto then decides by it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from runner import Cli

import specdecode as sd
from specdecode import costs
from specdecode.costs import Curve, store
from specdecode.costs.verdict import Floors, nearly_free, needed_acceptance

FLAT = Curve((1, 8, 16), (64,), ((1.0, 1.1, 2.0),))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(store, "cache_dir", lambda: tmp_path / "cache")
    monkeypatch.setattr(store, "_named", {})
    monkeypatch.setattr(costs, "LONG", costs.Plan((1, 2, 8), (16, 64), 2, 5.0))
    return tmp_path / "cache" / "costs"


def test_it_tells_stores_and_draws(cli: Cli, folder: Path, cache: Path) -> None:
    result = cli("calibrate", "--model", folder)
    assert result.code == 0
    for words in ("context 64", "times one row", "nearly free", "Acceptance at which", "A draft takes", "threads"):
        assert words in result.out
    (stored,), (picture,) = cache.glob("*.json"), cache.glob("*.png")
    assert [str(stored), str(picture)] == result.err.split()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert json.loads(stored.read_text())["curve"]["rows"] == [1, 2, 8]


def test_what_was_measured_is_what_auto_decides_by(cli: Cli, folder: Path) -> None:
    told = cli("calibrate", "--model", folder, "--json").json
    lm = sd.load(folder).lm
    assert costs.known(lm) == Curve.from_dict(told["curve"])
    assert told["signature"] == lm.signature
    assert set(told["drafter_step_s"]) == {"ngram", "suffix", "auto"}
    assert told["nearly_free_rows"] >= 1
    assert set(told["needed_acceptance"]) == {"lookup"}


def test_a_draft_model_is_measured_too(cli: Cli, folder: Path, small: Path, cache: Path) -> None:
    told = cli("calibrate", "--model", folder, "--draft-model", small, "--json").json
    assert set(told["drafter_step_s"]) == {"ngram", "suffix", "auto", "lm"}
    assert set(told["needed_acceptance"]) == {"lookup", "lm"}
    assert len(told["stored"]) == 2
    assert costs.known(sd.load(small).lm) is not None


def test_the_picture_goes_where_it_is_wanted(cli: Cli, folder: Path, cache: Path, tmp_path: Path) -> None:
    wanted = tmp_path / "new" / "curves.png"
    assert cli("calibrate", "--model", folder, "--plot", wanted, "--json").json["plot"] == str(wanted)
    assert wanted.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in wanted.parent.iterdir()] == ["curves.png"]
    assert not list(cache.glob("*.png"))


def test_a_place_that_cannot_be_written_loses_the_picture_alone(
    cli: Cli, folder: Path, cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    assert "--plot" in cli("calibrate", "--model", folder, "--plot", tmp_path / "file" / "x.png").error
    assert "--plot" in cli("calibrate", "--model", folder, "--plot", tmp_path).error
    assert not list(tmp_path.parent.glob(".*.partial"))
    assert list(cache.glob("*.json")), "what was measured is kept"


def test_without_a_cache_folder_nothing_is_stored(
    cli: Cli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(store, "cache_dir", lambda: tmp_path / "file")
    told = cli("calibrate", "--model", folder, "--json").json
    assert told["stored"] == []
    assert "plot" not in told


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--threads", "0"], "--threads"),
        (["--model", ""], "--model"),
        (["--device", "x"], "x"),
        (["--plot", ""], "--plot is empty"),
    ],
)
def test_what_cannot_be_honoured_is_refused(cli: Cli, args: list[str], said: str) -> None:
    assert said in cli("calibrate", *args).error
    assert said in cli("calibrate", *args, "--dry-run").error


def test_a_dry_run_measures_nothing(cli: Cli, cache: Path) -> None:
    told = cli("calibrate", "--dry-run", "--threads", "2", "--plot", "x.png").json
    assert told["model"]["threads"] == 2
    assert told["plot"] == "x.png"
    assert not cache.exists()


def test_generate_measures_on_first_use_and_explains(cli: Cli, folder: Path, cache: Path) -> None:
    args = ["generate", "the the the the", "--model", folder, "--max-new-tokens", "12"]
    first = cli(*args, "--explain")
    assert len(list(cache.glob("*.json"))) == 1
    assert "why no more" in first.err
    assert "the first step is plain (1)" in first.err
    assert "nodes by ngram" in first.err
    told = cli(*args, "--explain", "--json").json
    assert told["decisions"][0]["reason"] == "the first step is plain"
    assert sum(1 + step["gained"] for step in told["decisions"]) == 12
    assert cli(*args, "--json").json["decisions"] is None


def test_chat_explains_each_turn(cli: Cli, folder: Path) -> None:
    result = cli("chat", "--model", folder, "--max-new-tokens", "8", "--explain", stdin="ab\nab\n")
    assert result.err.count("why no more") == 2
    assert result.err.count("the first step is plain (1)") == 2


def test_auto_may_use_a_draft_model(cli: Cli, folder: Path, small: Path) -> None:
    args = ["generate", "hi", "--model", folder, "--draft-model", small, "--drafter", "auto", "--max-new-tokens", "12"]
    told = cli(*args, "--explain", "--json").json
    assert told["completions"][0]["drafter"] == "auto"
    assert set(told["decisions"][0]["offered"]) == {"ngram", "lm"}
    assert cli(*args, "--dry-run").json["drafter"]["model"] == str(small)


class TestTheVerdict:
    def test_rows_that_are_nearly_free(self) -> None:
        assert nearly_free(FLAT, 64) == 8
        assert nearly_free(Curve((1, 2), (0,), ((1.0, 2.0),)), 0) == 1
        assert nearly_free(Curve((1, 2), (0,), ((1.0, 1.0),)), 0) == 64

    def test_the_acceptance_that_a_draft_length_needs(self) -> None:
        """One token: 1 + a >= T(2) / T(1). Seven: a + ... + a^7 >= .1."""
        assert needed_acceptance(Curve((1, 2), (0,), ((1.0, 1.3),)), 0, 1) == pytest.approx(0.3)
        seven = needed_acceptance(FLAT, 64, 7)
        assert seven is not None
        assert sum(seven**i for i in range(1, 8)) == pytest.approx(0.1)

    def test_drafting_takes_its_time(self) -> None:
        assert needed_acceptance(Curve((1, 2), (0,), ((2.0, 2.0),)), 0, 1, step_s=1.0) == pytest.approx(0.5)

    def test_what_never_pays(self) -> None:
        assert needed_acceptance(Curve((1, 2), (0,), ((1.0, 2.1),)), 0, 1) is None

    def test_floors(self) -> None:
        floors = Floors(nbytes=200, weights=100, bandwidth=50.0, speed=1000.0)
        assert floors.memory_s == 4
        assert floors.arithmetic_s(3) == pytest.approx(0.6)
