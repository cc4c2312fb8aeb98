"""Earlier answers: what of them is drafted and when, how many are kept, and the file that keeps them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import product
from math import prod
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from stubs import BranchLM, ScriptLM, Watched, decode, make_session
from texts import TOKENIZER, byte_fallback, tiny_lm

from specdecode.datastore import SEPARATOR, Store
from specdecode.drafters.memory import Memory
from specdecode.drafters.merged import Merged
from specdecode.drafters.ngram import RECURRENCE
from specdecode.drafters.suffix import Recalling, Suffix
from specdecode.engine import Generation
from specdecode.errors import BadOption, Incompatible, LoadError
from specdecode.sampling import Sampling
from specdecode.text.model import Model
from specdecode.types import Budget
from specdecode.verify import make_rule

ANSWER = random.Random(5).sample(range(10, 90), 40)


def turns(memory: Memory, *prompts: list[int], script: list[int] = ANSWER, **options: Any) -> Watched:
    """Every step of a batch that answers each prompt with `script`."""
    watched = Watched(Suffix(memory=memory))
    for session in decode(ScriptLM(script), watched, *prompts, n=40, **options):
        assert session.new_tokens == script
    return watched


def test_an_answer_is_drafted_the_next_time() -> None:
    memory = Memory()
    assert len(turns(memory, [1, 2, 3]).seen) == 40, "an answer without repeats gives nothing to draft"
    again = turns(memory, [1, 2, 3])
    assert len(again.seen) < 8
    assert len(again.seen[0].draft) > 2, "from the first token on: it follows the same prompt"
    assert len(turns(memory, [7, 8, 9]).seen) < 9, "another prompt needs some tokens of the answer to find it"


def test_rows_of_a_batch_do_not_see_each_other() -> None:
    memory = Memory()
    watched = turns(memory, [1, 2, 3], [1, 2, 3], [4])
    assert len(watched.seen) == 3 * 40
    assert {len(turn.draft) for turn in watched.seen} == {0}
    assert len(turns(memory, [4]).seen) < 8


def test_the_longer_match_comes_first_wherever_it_is() -> None:
    memory = Memory()
    memory.add([[1, 2, 3, 60]])
    for text, expected in (([3, 70, 1, 2, 3], (60, 70)), ([9, 2, 3, 70, 8, 9, 2, 3], (70, 60))):
        session = make_session(ScriptLM([]), text)
        (draft,) = Recalling(Suffix(memory=memory, floor=0.0), [session], 100).draft([0], [Budget(1)])
        assert draft.tokens == expected
        assert draft.confidence is not None
        assert draft.confidence[0] == pytest.approx(RECURRENCE[2])
        assert draft.confidence[1] < 0.5 * RECURRENCE[1]


def test_answers_of_a_batch_are_remembered_together() -> None:
    """When its last row has ended, each of them once."""
    memory, target = Memory(), ScriptLM(ANSWER)
    sessions = [make_session(target, [1, 2, 3], max_new_tokens=n) for n in (3, 6)]
    generation = Generation(target, Suffix(memory=memory), sessions, [make_rule("greedy")] * 2)
    while len(generation.active) > 1:
        generation.step()
    assert memory.snapshot() is None
    for _ in generation:
        pass
    assert list(memory._answers) == [(1, 2, 3, *ANSWER[:3]), (1, 2, 3, *ANSWER[:6])]


def test_only_generations_that_were_complete_count() -> None:
    """What began before another ended does not see its answer, and one that was left leaves nothing."""
    memory = Memory()
    target, drafter, rule = ScriptLM(ANSWER), Suffix(memory=memory), make_rule("greedy")
    early = Generation(target, drafter, [make_session(target, [1, 2, 3], max_new_tokens=40)], [rule])
    left = Generation(target, drafter, [make_session(target, [1, 2, 3], max_new_tokens=40)], [rule])
    for _ in range(30):
        left.step()
    del left
    assert memory.snapshot() is None
    turns(memory, [1, 2, 3])
    assert memory.snapshot() is not None
    for _ in early:
        pass
    assert [record.drafted for record in early.sessions[0].records] == [0] * 40


def test_the_text_of_a_seed_does_not_depend_on_the_other_rows() -> None:
    """Under rejection drafts decide which text a seed gives: with the same memory a row says what it says alone."""
    prompts = [[1, 2, 1, 2], [1, 2, 1, 2], [3], [1, 2, 3]]
    laws = [Sampling(temperature=1.0, seed=seed) for seed in (5, 6, 7, 8)]
    lm = BranchLM(vocab=4, scale=2)

    def told(rows: list[int]) -> list[list[int]]:
        memory = Memory()
        decode(lm, Suffix(memory=memory), [1, 2, 3, 1], n=20)
        sessions = [make_session(lm, prompts[r], laws[r], "rejection", max_new_tokens=24 - 5 * r) for r in rows]
        for _ in Generation(lm, Suffix(memory=memory), sessions, [make_rule("rejection")] * len(rows)):
            pass
        assert sum(record.drafted for session in sessions for record in session.records) > 5
        return [session.new_tokens for session in sessions]

    together = told([0, 1, 2, 3])
    assert [told([row])[0] for row in range(4)] == together


def joint_law(lm: BranchLM, prompt: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """What each three tokens have for a chance."""
    law = {}
    for tokens in product(range(lm.vocab), repeat=3):
        laws = [lm.law((*prompt, *tokens[:i]), i).softmax(-1) for i in range(3)]
        law[tokens] = prod(float(p[token]) for p, token in zip(laws, tokens, strict=True))
    return law


def test_the_law_holds_while_it_remembers() -> None:
    """1,500 texts of three tokens under rejection, each batch with the answers of those before to draft from. Of 27
    cells the expected total variation is about .05; the bound is beyond 4.5 sigma, and another law is beyond that."""
    lm, prompt, memory = BranchLM(3, seed=1), (1, 2, 0, 1, 2), Memory(tokens=400)
    texts: Counter[tuple[int, ...]] = Counter()
    accepted = 0
    for start in range(0, 1500, 50):
        laws = [Sampling(temperature=1.0, seed=start + i) for i in range(50)]
        sessions = [make_session(lm, prompt, law, "rejection", max_new_tokens=3) for law in laws]
        for _ in Generation(lm, Suffix(floor=0.0, memory=memory), sessions, [make_rule("rejection")] * 50):
            pass
        texts.update(tuple(session.new_tokens) for session in sessions)
        accepted += sum(record.accepted for session in sessions for record in session.records)
        lm.forget()

    def distance(law: dict[tuple[int, ...], float]) -> float:
        return sum(abs(texts[tokens] / 1500 - p) for tokens, p in law.items()) / 2

    assert accepted > 500
    assert distance(joint_law(lm, prompt)) < 0.085 < distance(joint_law(BranchLM(3, seed=2), prompt))


def test_the_oldest_answers_go() -> None:
    memory = Memory(tokens=10)
    memory.add([[1, 2, 3, 4], [5, 6, 7, 8], []])
    memory.add([[9, 10]])
    assert list(memory._answers) == [(1, 2, 3, 4), (5, 6, 7, 8), (9, 10)]
    memory.add([[11]])
    assert list(memory._answers) == [(5, 6, 7, 8), (9, 10), (11,)]
    memory.add([range(100)])
    assert list(memory._answers) == [tuple(range(90, 100))]


def test_thousands_of_short_answers_are_forgotten_at_once() -> None:
    """In linear time: it took minutes when each one that went summed up those that were left."""
    memory = Memory(tokens=1000)
    for tokens in ([1, 2], [3, 4]):
        memory.add([tokens] * 40_000)
    snapshot = memory.snapshot()
    assert snapshot is not None
    assert snapshot.tokens.tolist() == [3, 4, SEPARATOR] * 500


def test_a_snapshot_stays_what_it_was() -> None:
    memory = Memory()
    memory.add([[1, 2, 3]])
    before = memory.snapshot()
    memory.add([[1, 2, 4]])
    after = memory.snapshot()
    assert before is not None
    assert after is not None
    assert memory.snapshot() is after, "sorted once"
    assert [len(array.matches([1, 2], 1, 9)[0][1]) for array in (before, after)] == [1, 2]


@pytest.mark.parametrize(
    "use",
    [lambda memory: memory.add([[1]]), lambda memory: memory.snapshot(), lambda memory: memory.check_tokenizer("one")],
)
def test_threads_may_share_it(use: Callable[[Memory], object]) -> None:
    """Whatever is done with it waits until others are done."""
    memory, done = Memory(), Event()

    def work() -> None:
        use(memory)
        done.set()

    thread = Thread(target=work)
    with memory._lock:
        thread.start()
        assert not done.wait(0.05)
    thread.join()
    assert done.is_set()


class TestTheFile:
    def test_it_carries_answers_to_the_next_process(self, tmp_path: Path) -> None:
        path = str(tmp_path / "new" / "answers")
        turns(Memory(path), [1, 2, 3])
        assert [file.name for file in (tmp_path / "new").iterdir()] == ["answers"], "nothing half-written is left"
        assert Memory(path)._answers == Memory(path)._answers
        watched = Watched(Suffix(memory=path))
        decode(ScriptLM(ANSWER), watched, [1, 2, 3], n=40)
        assert len(watched.seen) < 8

    def test_several_answers_come_back_in_order(self, tmp_path: Path) -> None:
        memory = Memory(tmp_path / "answers")
        memory.add([[1, 2], [3], [4, 5, 6]])
        assert list(Memory(tmp_path / "answers")._answers) == [(1, 2), (3,), (4, 5, 6)]
        assert list(Memory(tmp_path / "answers", tokens=4)._answers) == [(3,), (4, 5, 6)]

    def test_a_damaged_one_is_refused_by_name(self, tmp_path: Path) -> None:
        (tmp_path / "answers").write_text("no datastore")
        with pytest.raises(LoadError, match="answers is no datastore"):
            Suffix(memory=tmp_path / "answers")

    def test_a_datastore_of_texts_is_not_overwritten(self, tmp_path: Path) -> None:
        Store.of([[1, 2, 3]]).write(tmp_path / "texts")
        with pytest.raises(BadOption, match="texts holds texts, which would be lost"):
            Memory(tmp_path / "texts")

    def test_an_answer_is_not_lost_where_it_cannot_be_kept(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").write_text("")
        memory = Memory(tmp_path / "file" / "answers")
        turns(memory, [1, 2, 3])
        assert "answers are remembered in this process alone" in caplog.text
        assert len(turns(memory, [1, 2, 3]).seen) < 8


class TestTokenizers:
    def test_answers_of_another_tokenizer_are_refused(self, tmp_path: Path) -> None:
        """However deep the drafter lies, and whether it is a file or shared in this process."""
        path = tmp_path / "answers"
        memory = Memory(path)
        ours, theirs = Model(tiny_lm(), TOKENIZER), Model(tiny_lm(), byte_fallback())
        ours.generate([10, 20, 30], drafter=Suffix(memory=memory), max_new_tokens=8)
        for drafter in (Suffix(memory=memory), Suffix(memory=path), Merged((Suffix(memory=memory),))):
            with pytest.raises(Incompatible, match="holds answers of a model with another tokenizer"):
                theirs.generate([10, 20, 30], drafter=drafter, max_new_tokens=8)
            ours.generate([10, 20, 30], drafter=drafter, max_new_tokens=8)

    @pytest.mark.parametrize(("path", "tokens"), [("", 1), (3, 1), (None, 0), (None, 1.5)])
    def test_other_values_are_refused(self, path: Any, tokens: Any) -> None:
        with pytest.raises(BadOption, match="memory: "):
            Memory(path, tokens)
