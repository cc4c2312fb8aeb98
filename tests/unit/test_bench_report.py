"""The report: one HTML page that needs nothing else, with every arm, task, divergence and setting in it."""

from __future__ import annotations

import errno
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from specdecode.bench import Plan, Question, charts
from specdecode.bench import benchmark as whole
from specdecode.bench.questions import OVERALL
from specdecode.bench.records import About, Answer, Divergence, Journal, LeftOut, Place, Timing
from specdecode.bench.report import overview, page
from specdecode.bench.summary import results
from specdecode.errors import SpecError

ARMS = ("plain", "upstream", "ngram:k=10", "llamacpp:q4_0")
QUESTIONS = (Question("a", "qa", ("one",)), Question("b", "rag", ("two",)))
VOID = {"meta", "br", "line", "rect", "circle", "polyline"}


class Checker(HTMLParser):
    """Collects text and tags, and asserts that every element is closed where it should be."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self.meta: list[dict[str, str | None]] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not {"src", "href", "onload"} & dict(attrs).keys(), "nothing is fetched, nothing runs"
        if tag == "meta":
            self.meta.append(dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def timing(pace: float, steps: tuple[int, ...]) -> Timing:
    n = sum(steps)
    return Timing(tuple(range(n)), steps, 0.25, 0.25 + (n - steps[0]) / pace)


def fill(journal: Journal, arms: tuple[str, ...] = ARMS) -> None:
    """plain decodes at 10 and 20 tokens/s, the others 2, 3, ... times as fast."""
    for factor, arm in enumerate(arms, 1):
        journal.append(About(arm, f"model of {arm}"))
        for pace, question in zip((10.0, 20.0), QUESTIONS, strict=True):
            steps = (1, 3, 1) if arm.startswith("ngram") else (1,) * 5
            journal.append(Answer(arm, Place(question.id, 0, 0), 7, timing(factor * pace, steps)))


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Any]:
    with Journal(tmp_path, {}) as journal:
        fill(journal)
        journal.append(Divergence("llamacpp:q4_0", Place("b", 0, 0), 2, 77, 78, 0.1251))
        journal.append(LeftOut("long", 0, 9000))
    return results(Plan(arms=("plain",)).settings() | {"arms": list(ARMS)}, QUESTIONS, journal)


def test_every_pair_is_compared_by_task_and_overall(found: dict[str, Any]) -> None:
    assert list(found["arms"]) == list(ARMS)
    assert list(found["arms"]["plain"]) == [OVERALL, "qa", "rag"]
    assert found["speed_up"]["plain"]["upstream"]["qa"]["decoding"] == pytest.approx(2)
    assert found["speed_up"]["upstream"]["ngram:k=10"][OVERALL]["decoding"] == pytest.approx(1.5)
    assert found["speed_up"]["upstream"]["plain"]["rag"]["decoding"] == pytest.approx(0.5)
    assert found["arms"]["plain"][OVERALL]["tokens_per_second"] == pytest.approx(15)
    assert found["arms"]["ngram:k=10"]["qa"]["tokens_per_step"] == pytest.approx(5 / 3)


def test_the_page_is_whole_and_fits_a_phone(found: dict[str, Any]) -> None:
    text = page(found)
    told = Checker(text)
    assert text.startswith("<!DOCTYPE html>")
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in told.meta
    assert "script" not in told.tags
    assert told.tags.count("svg") == 4
    assert not re.search(r"https?:|url\(", text)


def test_the_page_tells_everything(found: dict[str, Any]) -> None:
    text = Checker(page(found)).text
    for words in (*ARMS, "qa", "rag", "overall", "0.1251", "77", "78", "1 of 2", "model of upstream", "torch", "2.00"):
        assert f"{words}\n" in text, words
    for title in ("Speed-up per task", "Acceptance by depth", "Tokens per step", "All ratios", "differ from plain"):
        assert title in text
    assert "long" in text
    assert "9000" in text


def test_time_is_drawn_for_the_arms_that_tell(found: dict[str, Any]) -> None:
    assert "Where the time" not in page(found)
    split = {"draft": 0.25, "target": 0.5, "rest": 0.25}
    found["arms"]["plain"][OVERALL]["time_split"] = split
    text = page(found)
    assert "Where the time" in text
    assert text.count("25 %") == 2


def test_names_are_escaped(tmp_path: Path) -> None:
    with Journal(tmp_path, {}) as journal:
        fill(journal, ("plain", "<b>&"))
    settings = {**Plan(arms=("plain",)).settings(), "arms": ["plain", "<b>&"]}
    told = Checker(page(results(settings, QUESTIONS, journal)))
    assert "b" not in told.tags
    assert "<b>&\n" in told.text


def test_many_divergences_are_counted_and_some_shown(found: dict[str, Any]) -> None:
    found["divergences"] *= 150
    text = Checker(page(found)).text
    assert "150 in all; the first 100 are shown." in text
    assert text.count("0.1251") == 101


def test_a_run_without_figures_is_a_page_all_the_same(tmp_path: Path) -> None:
    """Every question was left out, or answered with one token."""
    settings = {**Plan(arms=("plain",)).settings(), "arms": ["plain", "upstream"]}
    with Journal(tmp_path, {}) as journal:
        assert "n/a" in Checker(page(results(settings, QUESTIONS, journal))).text
        journal.append(Answer("plain", Place("a", 0, 0), 7, timing(10, (1,))))
        Checker(page(results(settings, QUESTIONS, journal)))


def test_the_first_table_has_an_arm_a_row(found: dict[str, Any]) -> None:
    head, rows = overview(found)
    assert [row[0] for row in rows] == list(ARMS)
    assert {len(row) for row in rows} == {len(head)}
    assert [row[head.index("over plain")] for row in rows] == ["1.00", "2.00", "3.00", "4.00"]
    assert [row[head.index("differ")] for row in rows] == ["", "0 of 2", "0 of 2", "1 of 2"]
    assert [row[head.index("gap")] for row in rows] == ["", "", "", "0.1251"]


def test_bars_are_as_long_as_their_values() -> None:
    drawn = charts.bars({"task": {"one": 1.0, "two": 2.0, "none": None}}, mark=1.0)
    widths = [float(w) for w in re.findall(r'<rect [^>]*width="([\d.]+)"', drawn)]
    assert widths == [pytest.approx(charts.SPAN / 2), pytest.approx(charts.SPAN)]
    assert "n/a" in drawn
    assert f'x1="{charts.LEFT + charts.SPAN / 2:.1f}"' in drawn


def test_an_arm_keeps_its_colour() -> None:
    drawn = charts.curves({"plain": [], "ngram": [0.5, 0.25]})
    assert drawn.count(charts.COLOURS[1]) == 4
    assert charts.COLOURS[0] not in drawn
    assert ">plain<" not in drawn


def test_a_full_disk_at_the_report_keeps_the_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(Plan(("plain",)), questions=QUESTIONS)
    with Journal(tmp_path, plan.settings()) as journal:
        fill(journal, ("plain",))
    records = (tmp_path / "records.jsonl").read_bytes()

    def full(self: Path, text: str, **_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(
            SpecError, match=r"report cannot be written .*\(No space left on device\).*make room"
        ) as info:
            whole.run(plan, tmp_path)
    assert "\n" not in str(info.value)
    assert (tmp_path / "records.jsonl").read_bytes() == records
    assert not (tmp_path / whole.REPORT).exists()
    whole.run(plan, tmp_path)
    assert (tmp_path / whole.REPORT).exists()
