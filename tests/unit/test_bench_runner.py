"""The benchmark at work: the order of arms, what is gone on with, what is compared, and what is left out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import texts
from stubs import ScriptLM

import specdecode as sd
from specdecode.bench import Plan, Question, Source, run
from specdecode.bench.arms import Models, parse
from specdecode.bench.records import RECORDS, About, Answer, Divergence, Journal, LeftOut, Place, Timing
from specdecode.bench.runner import encode, measure, rotated
from specdecode.errors import BadInput, SpecError

SCRIPT = [ord(c) for c in "abcdefghij"]
QUESTIONS = (Question("a", "qa", ("one",)), Question("b", "rag", ("two", "three")), Question("c", "qa", ("four",)))
NAMES = ("plain", "echo", "liar")


@dataclass
class Fake:
    """An arm that says SCRIPT, or what it is told to, and keeps what it was asked. It is its own recipe."""

    says: Sequence[int] = tuple(SCRIPT)
    about: str = "a fake"
    asked: list[tuple[int, ...]] = field(default_factory=list)
    fails_after: int | None = None

    def check(self, source: Source) -> None: ...

    def open(self, models: Models) -> Fake:
        return self

    def run(self, ids: Sequence[int], max_new_tokens: int) -> Timing:
        if len(self.asked) == self.fails_after:
            raise KeyboardInterrupt
        self.asked.append(tuple(ids))
        tokens = tuple(self.says[:max_new_tokens])
        return Timing(tokens, (1,) * len(tokens), 0.5, 1.5)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> dict[str, Fake]:
    """Arms by name, and a model whose logits say SCRIPT, with a context of 2048."""
    model = sd.Model(ScriptLM(SCRIPT, texts.VOCAB), texts.TOKENIZER)
    monkeypatch.setattr(model.lm, "context", 2048)
    monkeypatch.setattr(Models, "target", lambda self, **changes: model)
    arms = {name: Fake() for name in NAMES}
    monkeypatch.setattr("specdecode.bench.runner.parse", lambda name: arms[name])
    return arms


def plan(**changes: Any) -> Plan:
    return replace(Plan(NAMES, QUESTIONS, max_new_tokens=8, warmups=0), **changes)


def kept(folder: Path, kind: str = "answer") -> list[dict[str, Any]]:
    entries = map(json.loads, (folder / RECORDS).read_text().splitlines())
    return [entry for entry in entries if entry["kind"] == kind]


def order(folder: Path) -> list[tuple[str, int, str]]:
    return [(entry["place"]["question"], entry["place"]["turn"], entry["arm"]) for entry in kept(folder)]


@pytest.mark.usefixtures("fakes")
def test_every_prompt_goes_to_every_arm_in_a_rotating_order(tmp_path: Path) -> None:
    measure(plan(), tmp_path)
    assert order(tmp_path) == [
        *[("a", 0, name) for name in ("plain", "echo", "liar")],
        *[("b", 0, name) for name in ("echo", "liar", "plain")],
        *[("b", 1, name) for name in ("liar", "plain", "echo")],
        *[("c", 0, name) for name in ("plain", "echo", "liar")],
    ]
    assert rotated(NAMES, 4) == ("echo", "liar", "plain")


def test_rounds_ask_everything_again(fakes: dict[str, Fake], tmp_path: Path) -> None:
    measure(plan(repeats=2), tmp_path)
    assert [entry["place"]["repeat"] for entry in kept(tmp_path)] == [0] * 12 + [1] * 12
    assert len(fakes["echo"].asked) == 8
    assert fakes["echo"].asked[:4] == fakes["echo"].asked[4:]


def test_all_arms_read_the_same_prompt_whatever_they_said_before(fakes: dict[str, Fake], tmp_path: Path) -> None:
    """The history of a second turn is the plain arm's."""
    fakes["liar"].says = SCRIPT[::-1]
    measure(plan(), tmp_path)
    assert fakes["plain"].asked == fakes["echo"].asked == fakes["liar"].asked
    model = sd.Model(ScriptLM(SCRIPT, texts.VOCAB), texts.TOKENIZER)
    told = texts.full(texts.TOKENIZER, SCRIPT[:8])
    messages = [("user", "two"), ("assistant", told), ("user", "three")]
    wanted = model.chat_prompt([{"role": role, "content": content} for role, content in messages])
    assert fakes["plain"].asked[2] == wanted == encode(model, ("two", "three"), [told])


def test_a_third_turn_follows_both_answers(
    fakes: dict[str, Fake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nth(self: Fake, ids: Sequence[int], n: int) -> Timing:
        self.asked.append(tuple(ids))
        return Timing((SCRIPT[len(self.asked)], 1), (1, 1), 0.5, 1.5)

    monkeypatch.setattr(Fake, "run", nth)
    measure(plan(questions=(Question("q", "qa", ("one", "two", "three")),)), tmp_path)
    model = Models(Source()).target()
    answers = [texts.full(texts.TOKENIZER, [SCRIPT[i], 1]) for i in (1, 2)]
    assert fakes["plain"].asked[2] == encode(model, ("one", "two", "three"), answers)


def test_without_a_chat_template_turns_are_plain_text() -> None:
    model = sd.Model(ScriptLM(SCRIPT, texts.VOCAB), texts.byte_level(None))
    assert encode(model, ("two", "three"), ["END"]) == model.encode("two\n\nEND\n\nthree")


def test_arms_are_warmed_up_on_the_first_question(fakes: dict[str, Fake], tmp_path: Path) -> None:
    measure(plan(warmups=2), tmp_path)
    assert len(kept(tmp_path)) == 12
    assert all(len(arm.asked) == 6 and len(set(arm.asked[:3])) == 1 for arm in fakes.values())


@pytest.mark.usefixtures("fakes")
@pytest.mark.parametrize(
    "foreign",
    [
        About("ghost", "x"),
        Answer("ghost", Place("a", 0, 0), 5, Timing((1,), (1,), 0.5, 1.5)),
        Answer("plain", Place("ghost", 0, 0), 5, Timing((1,), (1,), 0.5, 1.5)),
        Divergence("echo", Place("a", 0, 7), 0, 1, 2, None),
        LeftOut("ghost", 0, 9),
    ],
)
def test_records_of_another_run_are_refused(tmp_path: Path, foreign: Any) -> None:
    measure(plan(), tmp_path)
    with Journal(tmp_path, plan().settings()) as journal:
        journal.append(foreign)
    with pytest.raises(BadInput, match="holds what was never asked"):
        measure(plan(), tmp_path)


def test_an_interrupted_run_is_gone_on_with(fakes: dict[str, Fake], tmp_path: Path) -> None:
    fakes["liar"].fails_after = 1
    with pytest.raises(KeyboardInterrupt):
        measure(plan(), tmp_path)
    assert order(tmp_path) == [*[("a", 0, name) for name in NAMES], ("b", 0, "echo")]
    fakes["liar"].fails_after = None
    told: list[tuple[int, int, str]] = []
    measure(plan(), tmp_path, lambda *what: told.append(what))
    assert {(done, total) for done, total, _ in told} == {(done, 12) for done in range(4, 12)}
    assert [name for name, *_ in order(tmp_path)] == ["a"] * 3 + ["b"] * 6 + ["c"] * 3
    assert [len(arm.asked) for arm in fakes.values()] == [4, 4, 4]
    assert len(kept(tmp_path, "about")) == 3


def test_nothing_is_loaded_for_a_finished_run(
    fakes: dict[str, Fake], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fakes["liar"].says = SCRIPT[::-1]
    first = run(plan(), tmp_path)
    (tmp_path / "report.html").unlink()
    monkeypatch.setattr(Models, "target", lambda *_, **__: pytest.fail("a model was loaded"))
    assert run(plan(), tmp_path) == first
    assert (tmp_path / "report.html").exists()


def test_answers_that_differ_are_kept_with_place_tokens_and_gap(fakes: dict[str, Fake], tmp_path: Path) -> None:
    fakes["liar"].says = [200, *SCRIPT[1:]]
    fakes["echo"].says = SCRIPT[:5]
    journal = measure(plan(questions=QUESTIONS[:1]), tmp_path)
    place = Place("a", 0, 0)
    assert journal.divergences["echo", place] == Divergence("echo", place, 5, SCRIPT[5], None, None)
    found = journal.divergences["liar", place]
    assert (found.position, found.plain, found.token) == (0, SCRIPT[0], 200)
    assert found.gap is not None
    assert found.gap > 1
    assert ("plain", place) not in journal.divergences


def test_a_comparison_lost_to_an_interrupt_is_made_later(fakes: dict[str, Fake], tmp_path: Path) -> None:
    fakes["liar"].says = SCRIPT[::-1]
    measure(plan(), tmp_path)
    lines = (tmp_path / RECORDS).read_text().splitlines(keepends=True)
    assert json.loads(lines[-1])["kind"] == "divergence"
    (tmp_path / RECORDS).write_text("".join(lines[:-1]))
    measure(plan(), tmp_path)
    assert (tmp_path / RECORDS).read_text().splitlines(keepends=True) == lines


def test_a_strange_id_has_no_gap(fakes: dict[str, Fake], tmp_path: Path) -> None:
    fakes["liar"].says = [texts.VOCAB + 5]
    journal = measure(plan(questions=QUESTIONS[:1]), tmp_path)
    assert journal.divergences["liar", Place("a", 0, 0)].gap is None


def test_a_prompt_beyond_the_context_is_left_out_by_all_arms_and_said_so(
    fakes: dict[str, Fake], tmp_path: Path
) -> None:
    long = Question("long", "qa", ("x" * 5000, "and now?"))
    journal = measure(plan(questions=(long, *QUESTIONS[:1]), warmups=1), tmp_path)
    assert [(entry.question, entry.turn) for entry in journal.left_out.values()] == [("long", 0), ("long", 1)]
    assert all(isinstance(entry, LeftOut) and entry.prompt_tokens > 5000 for entry in journal.left_out.values())
    assert [len(arm.asked) for arm in fakes.values()] == [2, 2, 2]  # once to warm up
    measure(plan(questions=(long, *QUESTIONS[:1]), warmups=1), tmp_path)
    assert len(kept(tmp_path, "left_out")) == 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_new_tokens": 1}, "max_new_tokens=1"),
        ({"repeats": 0}, "repeats=0"),
        ({"warmups": -1}, "warmups=-1"),
        ({"questions": ()}, "there are no questions"),
        ({"arms": ("plain", "ngram", "ngram")}, "arm ngram is given twice"),
        ({"arms": ("nonsense",)}, "'nonsense' does not exist"),
        ({"arms": ("lm",)}, "name the draft model"),
    ],
)
def test_a_plan_that_cannot_be_carried_out_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        replace(Plan(("plain",), QUESTIONS), **changes)


def test_the_plain_arm_is_always_there() -> None:
    assert Plan(("ngram",), QUESTIONS).arms == ("plain", "ngram")
    assert Plan(("ngram", "plain"), QUESTIONS).arms == ("ngram", "plain")
    assert parse("plain") == Plan((), QUESTIONS).recipes()["plain"]


@pytest.mark.parametrize(
    "changes",
    [
        {"arms": ("plain",)},
        {"questions": QUESTIONS[:2]},
        {"max_new_tokens": 9},
        {"repeats": 2},
        {"warmups": 1},
        {"source": Source(dtype="float64")},
        {"source": Source(model="elsewhere")},
    ],
)
def test_settings_tell_runs_apart(changes: dict[str, Any]) -> None:
    one = Plan(("plain", "ngram"), QUESTIONS, max_new_tokens=8, warmups=0)
    assert one.settings() == replace(one).settings() != replace(one, **changes).settings()
    assert {"threads", "torch", "processor"} <= one.settings()["machine"].keys()


def test_a_whole_benchmark_on_a_tiny_model(tmp_path: Path) -> None:
    """From Python, with real arms: the same text from all of them."""
    folder = texts.save(tmp_path / "model")
    source = Source(str(folder), runtime="transformers")
    told = run(Plan(("upstream", "plain", "ngram:k=4"), QUESTIONS[:2], source, max_new_tokens=8), tmp_path / "run")
    assert list(told["arms"]) == ["upstream", "plain", "ngram:k=4"]
    assert told["divergences"] == told["left_out"] == []
    assert told["speed_up"]["upstream"]["plain"]["overall"]["decoding"] > 0
    assert told["arms"]["plain"]["overall"]["tokens_per_step"] == 1
    assert json.loads((tmp_path / "run" / "results.json").read_text()) == json.loads(json.dumps(told))
