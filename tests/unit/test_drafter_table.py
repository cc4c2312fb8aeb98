"""The table of drafters, and what every drafter's options owe the user."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from stubs import ScriptLM, Watched, decode

from specdecode.datastore import Store
from specdecode.drafters import DRAFTERS, Drafter, make_drafter
from specdecode.drafters.lm import DraftLM
from specdecode.drafters.ngram import Ngram
from specdecode.errors import BadOption

SCRIPT = [5, 6, 7, 5, 6, 7, 5, 6, 8, 1, 2, 3, 1, 2, 3, 1]


def needs(name: str) -> dict[str, Any]:
    """The options that a drafter cannot do without."""
    return {
        "lm": {"lm": ScriptLM(SCRIPT)},
        "merged": {"sources": (Ngram(), Ngram(min_match=1))},
        "rest": {"store": Store.of([SCRIPT])},
    }.get(name, {})


def make(name: str, **options: Any) -> Drafter:
    return make_drafter(name, **{**needs(name), **options})


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_is_made_with_its_defaults_and_decodes(name: str) -> None:
    drafter = make(name)
    assert drafter.name == name == DRAFTERS[name].name
    target = ScriptLM(SCRIPT)
    (session,) = decode(target, Watched(drafter), [1, 5, 6], n=12)
    assert session.new_tokens == SCRIPT[:12]


@pytest.mark.parametrize("name", DRAFTERS)
def test_options_are_frozen(name: str) -> None:
    drafter = make(name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        drafter.k = 3


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(BadOption, match=r"drafter 'suffx' does not exist; choose one of: null, ngram, .*auto"):
        make_drafter("suffx")


def test_unknown_options_are_refused_with_the_known_ones() -> None:
    with pytest.raises(BadOption, match=r"'ngram' has no option 'length'; its options are: k, min_match, max_match"):
        make_drafter("ngram", length=3)
    with pytest.raises(BadOption, match=r"'null' has no option 'k'; its options are: none"):
        make_drafter("null", k=3)


def test_a_missing_option_is_named() -> None:
    with pytest.raises(BadOption, match=r"'lm' needs the option 'lm'; its options are: lm, k, tree, schedule"):
        make_drafter("lm", k=3)


def test_the_table_tells_which_drafters_need_an_object() -> None:
    """Row by row as the factories have it: the option without a default, and lossless under every lossless rule."""
    for name, row in DRAFTERS.items():
        assert row.needs == next(iter(needs(name)), None)
        assert row.lossless


def test_numpys_whole_numbers_are_counts() -> None:
    assert make("ngram", k=np.int64(3), min_match=np.int32(1)) == Ngram(k=3, min_match=1)


@pytest.mark.parametrize("bad", [0, -1, 2.0, True, "4"])
@pytest.mark.parametrize(
    ("name", "option"), [("ngram", "k"), ("ngram", "min_match"), ("ngram", "max_match"), ("lm", "k")]
)
def test_counts_that_are_no_counts_are_refused(name: str, option: str, bad: object) -> None:
    """Fault 141: k=0, a negative k or a float is a ValueError that names the option."""
    with pytest.raises(BadOption, match=rf"'{name}': {option}={bad!r} ") as caught:
        make(name, **{option: bad})
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


def test_default_draft_lengths() -> None:
    """Fault 141: k omitted means the documented default."""
    assert Ngram().k == 6
    assert DraftLM(ScriptLM(SCRIPT)).k == 5


def test_contradictions_are_refused() -> None:
    with pytest.raises(BadOption, match="min_match=5 exceeds max_match=4"):
        make("ngram", min_match=5, max_match=4)
    with pytest.raises(BadOption, match="schedule='linear' is unknown; use fixed or assisted"):
        make("lm", schedule="linear")
    for confidence in (-0.1, 1.5, "0.5", True):
        with pytest.raises(BadOption, match=r"confidence=.* will not do; give a probability"):
            make("lm", confidence=confidence)


@pytest.mark.parametrize("name", ["ngram", "lm"])
@pytest.mark.parametrize("k", [1, 3])
def test_k_reaches_the_drafter(name: str, k: int) -> None:
    """Fault 139: k=3 gives no draft longer than 3 and at least one of 3; the next call without it is at the default."""
    watched, default = Watched(make(name, k=k)), Watched(make(name))
    for drafter in (watched, default):
        decode(ScriptLM([7, 8, 9] * 20), drafter, [7, 8, 9, 7, 8, 9], n=40)
    assert max(len(turn.draft) for turn in watched.seen) == k
    assert max(len(turn.draft) for turn in default.seen) == make(name).k
