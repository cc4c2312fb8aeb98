"""REST: what is retrieved from a datastore, and which stores serve which models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from stubs import ScriptLM, Watched, decode, make_session
from texts import TOKENIZER, byte_fallback, tiny_lm

from specdecode.bench.arms import parse
from specdecode.bench.ours import Engine, Ours
from specdecode.datastore import Store, fingerprint
from specdecode.drafters import make_drafter
from specdecode.drafters.auto import Auto
from specdecode.drafters.merged import Merged
from specdecode.drafters.ngram import Ngram
from specdecode.drafters.rest import RECURRENCE, Rest, Retrieving
from specdecode.errors import BadOption, Incompatible, LoadError
from specdecode.models.lm import Capabilities
from specdecode.text.model import Model
from specdecode.tree import path_to
from specdecode.types import Budget, Draft

WIDE = Budget(depth=64)


def drafted(
    documents: Sequence[Sequence[int]], tokens: Sequence[int], budget: Budget = WIDE, vocab: int = 100, **options: int
) -> Draft:
    """What a store of documents offers after `tokens`."""
    rest = replace(Rest(Store.of(documents), k=64, floor=0.0, width=64), **options)
    (draft,) = Retrieving(rest, [make_session(ScriptLM([]), tokens)], vocab).draft([0], [budget])
    assert draft.is_chosen
    return draft


def paths(draft: Draft) -> dict[tuple[int, ...], float]:
    """The confidence of each node, by the tokens on its path."""
    return {
        tuple(draft.tokens[i] for i in path_to(draft.parents, node)): sure
        for node, sure in enumerate(draft.confidence or ())
    }


def test_what_followed_once_is_as_sure_as_its_match_is_long() -> None:
    found = paths(drafted([[1, 2, 3, 4, 5]], [9, 1, 2, 3]))
    assert list(found) == [(4,), (4, 5)]
    assert found[(4,)] == pytest.approx(RECURRENCE[2])
    assert found[(4, 5)] == pytest.approx(RECURRENCE[3])


def test_continuations_are_merged_by_frequency() -> None:
    """Behind [1, 2]: 3 three times, twice with 4 behind it, and 5 once."""
    documents = [[1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 6], [1, 2, 5]]
    found = paths(drafted(documents, [1, 2]))
    new = 1 / RECURRENCE[1] - 1
    assert found[(3,)] == pytest.approx(3 / (4 + new))
    assert found[(5,)] == pytest.approx(1 / (4 + new))
    new = 1 / RECURRENCE[2] - 1
    assert found[(3, 4)] == pytest.approx(2 / (3 + new))
    assert set(found) == {(3,), (3, 4), (3, 6), (5,)}


def test_a_longer_match_says_more_than_a_shorter_one() -> None:
    """Its halves are asked where it is rare: [7, 8, 1, 2] once with 3 behind it, [1, 2] often with 4."""
    found = paths(drafted([[7, 8, 1, 2, 3], *[[1, 2, 4]] * 5], [7, 8, 1, 2]))
    assert found[(3,)] > found[(4,)] > 0
    assert drafted([[1, 2, 3]], [9, 2]).tokens == (), "one token is no match"


def test_shorter_matches_have_a_say_all_the_way() -> None:
    found = paths(drafted([[7, 8, 1, 2, 3, 4], *[[1, 2, 3, 5]] * 5], [7, 8, 1, 2]))
    assert found[(3, 4)] > found[(3, 5)] > 0


@pytest.mark.parametrize("text", [[1], [], [50, 51, 52], [1, 99]])
def test_no_match_is_nothing_to_draft(text: list[int]) -> None:
    assert drafted([[1, 2, 3, 4]], text).tokens == ()


def test_tokens_beyond_the_vocabulary_are_never_drafted() -> None:
    """Nor what stands behind them, nor the ends of documents."""
    documents = [[1, 2, 3, 50, 4], [1, 2, 60], [1, 2]]
    assert set(paths(drafted(documents, [1, 2], vocab=100))) == {(3,), (3, 50), (3, 50, 4), (60,)}
    assert set(paths(drafted(documents, [1, 2], vocab=50))) == {(3,)}


@pytest.mark.parametrize(("depth", "nodes"), [(0, 64), (-1, 64), (64, 0), (1, 64), (3, 5), (2, 1)])
def test_the_budget_is_kept(depth: int, nodes: int) -> None:
    documents = [[1, 2, a, b, a, b, a] for a in (3, 4, 5) for b in (6, 7)]
    draft = drafted(documents, [1, 2], Budget(depth, nodes))
    assert len(draft) <= max(0, nodes)
    assert max(map(len, paths(draft)), default=0) <= max(0, depth)
    assert (len(draft) > 0) == (depth > 0 and nodes > 0)
    whole = drafted(documents, [1, 2])
    assert len(whole) == 3 * (1 + 2 * 4)
    assert len(drafted(documents, [1, 2], k=4)) == 4


def test_a_large_store_is_sampled_evenly() -> None:
    """What is rare among many places is rare in the tree; the same context gives the same tree."""
    documents = [[1, 2, 3]] * 900 + [[1, 2, 4]] * 100
    found = paths(drafted(documents, [1, 2]))
    assert 0.8 < found[(3,)] < 0.95
    assert found[(3,)] + found[(4,)] == pytest.approx(1000 / (1000 + 1 / RECURRENCE[1] - 1)), "all places count"
    assert found == paths(drafted(documents, [1, 2]))


def test_it_decodes_from_a_file_alone_and_with_others(tmp_path: Path) -> None:
    script = [i * 7 % 90 for i in range(60)]
    Store.of([script, script[30:]]).write(tmp_path / "store")
    rest = make_drafter("rest", store=str(tmp_path / "store"))
    auto = Auto(("ngram", rest), curve=lambda rows, context: 1 + rows / 100, clock=lambda: 0.0)
    for drafter in (rest, auto, Merged((Ngram(), rest))):
        watched = Watched(drafter)
        for session in decode(ScriptLM(script), watched, [95, 96], [95], n=60):
            assert session.new_tokens == script
        assert len(watched.seen) < 2 * 15
        assert all(turn.draft.q is None for turn in watched.seen)


def test_the_store_must_be_one(tmp_path: Path) -> None:
    for bad in ("", 3, None):
        with pytest.raises(BadOption, match=r"'rest': store=.* is no file"):
            Rest(bad)  # type: ignore[arg-type]
    with pytest.raises(LoadError, match=r"cannot read datastore .*absent"):
        Rest(tmp_path / "absent")
    with pytest.raises(BadOption, match="'rest' needs the option 'store'"):
        make_drafter("rest")
    with pytest.raises(BadOption, match="'rest': k=0 "):
        Rest(Store.of([[1]]), k=0)


def test_a_store_of_another_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    """Before any pass, however deep the drafter lies."""
    Store.of([[1, 2, 3]], fingerprint(TOKENIZER)).write(tmp_path / "store")
    rest = Rest(tmp_path / "store")
    ours, theirs = Model(tiny_lm(), TOKENIZER), Model(tiny_lm(), byte_fallback())
    for drafter in (rest, Auto(("ngram", rest)), Merged((Merged((rest,)), Ngram()))):
        ours.check_drafter(drafter)
        with pytest.raises(Incompatible, match="store was built with another tokenizer") as caught:
            theirs.generate([10, 20], drafter=drafter, max_new_tokens=4)
        assert "\n" not in str(caught.value)
    with pytest.raises(Incompatible, match="store was built with another tokenizer"):
        Engine(theirs, rest, None)
    assert len(ours.generate([10, 20], drafter=rest, max_new_tokens=4).tokens) == 4
    theirs.check_drafter(Rest(Store.of([[1, 2]])))


def test_it_may_be_an_arm_of_the_benchmark(tmp_path: Path) -> None:
    Store.of([[1, 2, 3]]).write(tmp_path / "store")
    assert isinstance(parse(f"rest:store={tmp_path / 'store'},k=8"), Ours)
    with pytest.raises(LoadError, match="absent"):
        parse(f"rest:store={tmp_path / 'absent'}")


def test_a_model_that_scores_no_trees_is_asked_for_chains() -> None:
    lm, store = ScriptLM([1, 2, 3] * 9), Store.of([[1, 2, 3] * 5])
    lm.capabilities = Capabilities(trees=False)
    with pytest.raises(Incompatible, match=r"'rest' drafts trees, which this target cannot score; give it width=1"):
        decode(lm, Rest(store), [1, 2, 3])
    (session,) = decode(lm, Rest(store, width=1), [1, 2, 3], n=20)
    assert session.new_tokens == ([1, 2, 3] * 9)[:20]
