"""The search for a skip set: it finds what a clock favours, goes on where it was left, and keeps what it found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import texts
from stubs import ScriptLM

import specdecode as sd
from specdecode.drafters import skip_sets
from specdecode.drafters.layer_skip import LayerSkip
from specdecode.errors import BadOption, Incompatible, LoadError, SpecError
from specdecode.models.lm import Capabilities
from specdecode.tuning import layer_skip
from specdecode.tuning.layer_skip import Search, search

pytest.importorskip("optuna")


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECDECODE_CACHE", str(tmp_path))


@pytest.fixture
def model() -> sd.Model:
    lm = ScriptLM([5, 6, 7, 8] * 20, texts.VOCAB)
    lm.signature = "a stub"
    return sd.Model(lm, texts.TOKENIZER)


def favouring(monkeypatch: pytest.MonkeyPatch, best: set[str]) -> list[str]:
    """Sets are as good as they are near to `best`. Returns those that are tried."""
    tried: list[str] = []

    def judge(model: Any, prompts: Any, skip: Any, tokens: int) -> tuple[float, float]:
        tried.append(skip.text)
        parts = {f"a{i}" for i in skip.attention} | {f"m{i}" for i in skip.feed_forward}
        return 1.5 - 0.1 * len(parts ^ best), 2.0

    monkeypatch.setattr(layer_skip, "_try", judge)
    return tried


def test_the_best_set_is_found_and_kept(model: sd.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    favouring(monkeypatch, {"a1", "a2", "m3"})
    found = search(model, Search(trials=120))
    assert found.skip.text == "a1-2+m3"
    assert found.speed_up == pytest.approx(1.5)
    assert skip_sets.load("tuned", "a stub") == found.skip
    assert LayerSkip().runs(model.lm) == found.skip.rest(4)
    assert LayerSkip("tuned").runs(model.lm) == found.skip.rest(4)


def test_it_goes_on_where_it_was_left(model: sd.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = favouring(monkeypatch, {"a1"})

    def stop(trial: int, best: float) -> None:
        if trial == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(model, Search(trials=20), stop)
    assert len(tried) == 7
    assert skip_sets.load("tuned", "a stub") is None
    told: list[int] = []
    assert search(model, Search(trials=20), lambda trial, best: told.append(trial)).trials == 20
    assert len(tried) == 20
    assert told == list(range(8, 21))
    assert search(model, Search(trials=20)).trials == 20, "nothing is left to try"
    assert len(tried) == 20


def test_a_trial_decodes_with_the_set_and_plainly(model: sd.Model) -> None:
    """For real, on the stub: the whole stack drafts what it says itself."""
    found = search(model, Search(trials=2, tokens=8, prompts=("ab",)))
    assert found.speed_up > 0
    assert found.tokens_per_step > 1


def test_other_names_and_models_have_their_own_searches(model: sd.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    favouring(monkeypatch, {"a1"})
    assert search(model, Search(trials=3, name="one")).trials == 3
    assert search(model, Search(trials=2, name="two")).trials == 2
    assert skip_sets.load("tuned", "a stub") is None


def test_what_cannot_be_is_refused(model: sd.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({"trials": 0}, {"tokens": 1}, {"name": "a3"}, {"name": "../x"}, {"prompts": ()}):
        with pytest.raises(BadOption):
            Search(**options)  # type: ignore[arg-type]
    monkeypatch.setattr(type(model.lm), "capabilities", Capabilities(sublayers=False))
    with pytest.raises(Incompatible, match="no parts to skip"):
        search(model, Search())
    assert not model.lm.passes  # type: ignore[attr-defined]


def test_a_damaged_file_is_named(model: sd.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    favouring(monkeypatch, {"a1"})
    path = search(model, Search(trials=1)).path.with_suffix(".trials")
    whole = path.read_text()  # cut short, it would have the next line appended to half of one
    for damaged in ("{ this is no journal\n", "[1]\n", "null\n", "{}\n", '{"op_code": 99}\n', whole[:-9], whole[:300]):
        path.write_text(damaged)
        with pytest.raises(SpecError, match=path.name) as error:
            search(model, Search(trials=2))
        assert isinstance(error.value, LoadError)
