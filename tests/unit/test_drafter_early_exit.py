"""The target's own layers as drafters: what they run, what they leave behind, and when they are always right."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from stubs import BranchLM, StubLM, Watched, decode, dense, make_session, measured, plain, primed, tiny

from specdecode import costs
from specdecode.costs import Curve
from specdecode.drafters.auto import Auto
from specdecode.drafters.early_exit import PPD, EarlyExit
from specdecode.drafters.layer_skip import LayerSkip, Threshold
from specdecode.drafters.merged import Merged, take
from specdecode.drafters.shapes import Chain
from specdecode.drafters.skip_sets import SkipSet, load, save
from specdecode.engine import Generation
from specdecode.errors import BadOption, Incompatible, LoadError, SpecError
from specdecode.models.dense.model import DenseModel
from specdecode.models.hf import HFModel
from specdecode.models.lm import LM, Capabilities
from specdecode.sampling import Sampling
from specdecode.types import Budget, Draft, Row, Sublayers, Verdict
from specdecode.verify import make_rule

PROMPT = [10, 3, 5]
TARGETS: dict[str, Any] = {
    "transformers": lambda: HFModel(tiny("llama", num_hidden_layers=4)),
    "sliding windows": lambda: HFModel(tiny("gemma3_text")),
    "dense": lambda: DenseModel(dense("qwen3, mixed"), dtype=torch.float32),
}


class Counting:
    """A model that counts the layers that are run for each node of a step."""

    def __init__(self, lm: LM) -> None:
        self.lm, self.ran = lm, list[tuple[int, Sublayers]]()
        self.vocab, self.context, self.signature, self.n_layers = lm.vocab, lm.context, lm.signature, lm.n_layers
        self.capabilities, self.open = lm.capabilities, lm.open

    def score(self, cache: Any, rows: Any, *, layers: Any = None, **options: Any) -> Any:
        some = Sublayers.of(range(self.n_layers) if layers is None else layers)
        self.ran.append((sum(len(row.tokens) for row in rows), some))
        return self.lm.score(cache, rows, layers=layers, **options)

    @property
    def work(self) -> int:
        """Nodes times layers."""
        return sum(nodes * len(some.attention) for nodes, some in self.ran)


class TestEarlyExit:
    @pytest.mark.parametrize("options", [{}, {"k": 3}, {"tree": "2x2x1"}, {"tree": "dynamic:nodes=6:depth=3:top=2"}])
    @pytest.mark.parametrize("exit", [1, 2, 4])
    @pytest.mark.parametrize("name", TARGETS)
    def test_the_text_is_plain(self, name: str, exit: int, options: dict[str, Any]) -> None:
        """Fault 110: position embeddings, masks and caches of partial passes are right. After the last layer every
        draft is right."""
        lm = TARGETS[name]()
        watched = Watched(EarlyExit(exit, **options))
        sessions = decode(lm, watched, PROMPT, [1, 2, 3, 4, 5, 6, 7, 8, 9], n=30)
        for session in sessions:
            assert session.new_tokens == plain(lm, list(session.prompt.ids), 30)
            if exit == lm.n_layers and not options.get("tree"):
                assert measured(session).acceptance_rate == 1.0

    @pytest.mark.parametrize("name", TARGETS)
    def test_the_targets_cache_is_left_alone(self, name: str) -> None:
        """Logits after draft passes against fresh ones."""
        lm = TARGETS[name]()
        cache, fresh = primed(lm, PROMPT), primed(lm, PROMPT)
        session = make_session(lm, PROMPT, max_new_tokens=20)
        for drafter in (EarlyExit(2, tree="3x2"), LayerSkip("a1+m2", tree="3x2")):
            assert drafter.begin([session], lm, cache).draft([0], [Budget(9)])[0].tokens
            row = Row(0, (PROMPT[-1], 7, 8), (-1, 0, 0))
            assert torch.equal(lm.score(cache, [row])[0].logits, lm.score(fresh, [row])[0].logits)

    @pytest.mark.parametrize("tree", [None, "2x2"])
    def test_no_layer_is_run_twice(self, tree: str | None) -> None:
        """Each node, the newest token included, passes the lower half when drafted and the upper half when scored."""
        lm = Counting(HFModel(tiny("llama", num_hidden_layers=4)))
        watched = Watched(EarlyExit(2, k=None if tree else 3, tree=tree))
        decode(lm, watched, PROMPT, n=24)  # type: ignore[arg-type]
        nodes = sum(1 + len(turn.draft) for turn in watched.seen)
        assert lm.work == 4 * (len(PROMPT) - 1 + nodes)
        assert all(turn.draft.entry == 2 for turn in watched.seen if turn.draft.tokens)

    def test_a_cut_tree_is_scored_from_the_first_layer(self) -> None:
        lm = BranchLM()
        watched = Watched(EarlyExit(2, tree="dynamic:nodes=3:depth=3:top=2"))
        decode(lm, watched, [1, 2], n=20)
        assert not any(turn.draft.entry for turn in watched.seen)

    def test_rows_that_resume_and_rows_that_do_not_share_a_step(self) -> None:
        """One session has one token left, and so no draft."""
        lm = BranchLM()
        watched = Watched(EarlyExit(2, k=3))
        prompts = [[1], [2, 3]]
        sessions = [make_session(lm, p, max_new_tokens=n) for p, n in zip(prompts, (1, 12), strict=True)]
        for _ in Generation(lm, watched, sessions, [make_rule("greedy")] * 2):
            pass
        for session, n in zip(sessions, (1, 12), strict=True):
            assert session.new_tokens == plain(BranchLM(), list(session.prompt.ids), n)

    def test_two_that_run_the_target_do_not_spoil_each_other(self) -> None:
        """The second runs over what the first left in the cache, and then drafts nothing. The stub sees it."""
        lm = BranchLM(97)
        both = Merged((EarlyExit(1, k=3, confidence=0.05), EarlyExit(2, k=4, confidence=0.3)))
        for session in decode(lm, both, PROMPT, [1, 2, 3, 4] * 6, [9] * 9, n=24):
            assert session.new_tokens == plain(BranchLM(97), list(session.prompt.ids), 24)

    def test_a_draft_without_nodes_resumes_too(self) -> None:
        """The newest token has been through the lower half when its law turns out to be too flat."""
        lm = Counting(HFModel(tiny("llama", num_hidden_layers=4)))
        watched = Watched(EarlyExit(2, confidence=1.0))
        (session,) = decode(lm, watched, PROMPT, n=8)  # type: ignore[arg-type]
        assert not any(turn.draft.tokens for turn in watched.seen)
        assert lm.work == 4 * (len(PROMPT) - 1 + 8)
        assert session.new_tokens == plain(lm, PROMPT, 8)  # type: ignore[arg-type]

    def test_what_cannot_be_is_refused_before_any_pass(self) -> None:
        for options, says in (({"exit": 5}, "has 4 layers"), ({"exit": 0}, "exit=0"), ({"k": 0}, "k=0")):
            lm = BranchLM()
            with pytest.raises(BadOption, match=says):
                decode(lm, EarlyExit(**options), [1])
            assert not lm.passes
        with pytest.raises(BadOption, match="leave it out"):
            EarlyExit(k=2, tree="2x2")
        whole = BranchLM()
        whole.capabilities = Capabilities(layers=False, sublayers=False)
        for drafter in (EarlyExit(), PPD(), LayerSkip()):
            with pytest.raises(Incompatible, match="layers"):
                decode(whole, drafter, [1])

    def test_ppd_guesses_the_next_token_only(self) -> None:
        watched = Watched(PPD(exit=2, k=3))
        decode(BranchLM(), watched, [1, 2], n=20)
        assert {turn.draft.parents for turn in watched.seen[:-1]} == {(-1, -1, -1)}


class TestLayerSkip:
    @pytest.mark.parametrize("skip", [None, "none", "a1-2", "m0+a3", "a0-3+m0"])
    @pytest.mark.parametrize("name", TARGETS)
    def test_the_text_is_plain(self, name: str, skip: str | None) -> None:
        lm = TARGETS[name]()
        (session,) = decode(lm, Watched(LayerSkip(skip)), PROMPT, n=40)
        assert session.new_tokens == plain(lm, PROMPT, 40)

    def test_nothing_skipped_is_always_right(self) -> None:
        lm = TARGETS["transformers"]()
        (session,) = decode(lm, LayerSkip("none", confidence=0.0, adaptive=False, k=4), PROMPT, n=41)
        assert measured(session).acceptance_rate == 1.0
        assert measured(session).tokens_per_step > 4

    def test_sampled_seeds_give_their_text_again(self) -> None:
        lm = BranchLM()
        texts = [
            decode(lm, drafter, [1, 2], n=30, rule="coupled", sampling=Sampling(temperature=1, seed=4))[0].new_tokens
            for drafter in (LayerSkip("a1"), LayerSkip("a1", tree="2x2"), EarlyExit(1), PPD())
        ]
        assert texts == [texts[0]] * 4

    def test_a_doubtful_token_is_the_last_of_its_path(self) -> None:
        """It is drafted all the same: its pass is paid for."""
        lm = StubLM(lambda prefix, i: torch.tensor([3.0, 0.0, 0.0] if i % 3 else [0.1, 0.0, 0.0]), 3)
        (draft,) = (
            LayerSkip(adaptive=False)
            .begin([make_session(lm, [0], max_new_tokens=50)], lm, primed(lm, [0]))
            .draft([0], [Budget(20)])
        )
        assert len(draft) == 1
        (draft,) = (
            LayerSkip(adaptive=False, confidence=0.1)
            .begin([make_session(lm, [0], max_new_tokens=50)], lm, primed(lm, [0]))
            .draft([0], [Budget(20)])
        )
        assert len(draft) == 8

    @pytest.mark.parametrize(
        ("skip", "says"),
        [
            ("a9", "names layer 9, and this model has 0 to 3"),
            ("a0-3+m0-3", "skips all of this model's 4 layers"),
            ("other", "no skip set called 'other' was found"),
            ("a1+", "is no set such as a3-9"),
            ("../x", "is no set such as"),
            ("a3-1", "no skip set called 'a3-1' was found"),
            ("a0-99999999999", "no skip set called 'a0-99999999999' was found"),
        ],
    )
    def test_what_is_no_set_is_refused(self, skip: str, says: str) -> None:
        lm = BranchLM()
        with pytest.raises(BadOption, match=re.escape(says)):
            decode(lm, LayerSkip(skip), [1])
        assert not lm.passes

    def test_without_a_confidence_chains_are_whole(self) -> None:
        lm = StubLM(lambda prefix, i: torch.zeros(3), 3)
        assert LayerSkip(confidence=None).adaptive is False
        watched = Watched(LayerSkip(confidence=None, k=4))
        (session,) = decode(lm, watched, [0], n=20)
        assert session.new_tokens == plain(lm, [0], 20)
        assert len(watched.seen[0].draft) == 4
        with pytest.raises(BadOption, match="adaptive moves the confidence"):
            LayerSkip(confidence=None, adaptive=True)


@pytest.mark.parametrize(("drafter", "share"), [(LayerSkip("a1-2"), 0.75), (EarlyExit(1), 0.25), (PPD(2), 0.5)])
def test_they_say_what_part_of_a_pass_a_level_takes(drafter: Any, share: float) -> None:
    assert drafter.share(BranchLM()) == share


def test_to_auto_they_are_not_free_where_no_clock_tells() -> None:
    """Under rejection. Of nothing skipped every draft is right, and takes a pass."""
    auto = Auto((LayerSkip("none", confidence=None),), curve=lambda rows, context: 1.0)
    watched, sampling = Watched(auto), Sampling(temperature=1, seed=3)
    decode(BranchLM(), watched, [1, 2], n=40, rule="rejection", sampling=sampling)
    assert not any(turn.draft.tokens for turn in watched.seen)


@pytest.mark.parametrize("make", [partial(LayerSkip, "a1-3+m1-3"), partial(EarlyExit, 1)])
def test_an_optimal_tree_without_a_size_is_as_large_as_pays(make: Any) -> None:
    """Rows that are free take all there is, rows as dear as passes none."""

    def largest(row_s: float) -> int:
        lm = BranchLM()
        costs.remember(lm, Curve((1, 65), (0,), ((1.0, 1 + 64 * row_s),)))
        watched = Watched(make(tree="optimal:acceptance=.8/.1"))
        decode(lm, watched, [1, 2], n=20)
        return max(len(turn.draft) for turn in watched.seen)

    assert largest(0.0) > 4
    assert largest(2.0) == 0


class TestThreshold:
    def test_the_published_update_step_by_step(self) -> None:
        """Draft & Verify's rule on a scripted sequence of (drafted, accepted), by its definition."""
        pace = Threshold(Chain(8), 0.8)
        found = []
        for drafted, accepted in [(8, 8), (8, 8), (8, 8), (8, 8), (3, 3), (5, 1), (2, 2), (8, 0)]:
            draft = Draft.chain(range(drafted))
            pace.see(draft, Verdict((*range(accepted), 9), tuple(range(accepted)), accepted))
            found.append(pace.confidence)
        # rates: .5, .75, .875, .9375, .96875, .584375, .7921875, .39609375
        expected = [0.801, 0.802, 0.803, 0.803, 0.802, 0.803, 0.804, 0.805]
        assert found == pytest.approx(expected, abs=1e-12)

    def test_a_draft_ended_by_the_stop_counts_what_was_drafted(self) -> None:
        pace = Threshold(Chain(8), 0.8)
        pace.see(Draft.chain([1, 2]), Verdict((1, 2), (0,), 2))  # the cut fell on a drafted token
        assert pace._rate == 0.5


class TestSkipSets:
    @pytest.mark.parametrize("text", ["a3-9+a12+m4", "m0", "none", "a0+m1-2"])
    def test_texts_are_read_and_written(self, text: str) -> None:
        skip = SkipSet.parse(text)
        assert skip is not None
        assert skip.text == text
        assert SkipSet.parse(skip.text) == skip

    def test_names_belong_to_models(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
        monkeypatch.setenv("SPECDECODE_CACHE", str(tmp_path))
        path = save("fast", "model A", SkipSet((1, 2), (3,)), {"tokens_per_second": 5.0})
        assert load("fast", "model A") == SkipSet((1, 2), (3,))
        assert load("fast", "model B") is None
        assert not list(path.parent.glob("*.partial"))
        path.write_text("{")
        with pytest.raises(LoadError, match="holds no skip set"):
            load("fast", "model A")

    def test_an_unknown_name_is_no_path(self) -> None:
        with pytest.raises(SpecError, match="no name of letters"):
            load("../../x", "model")


def test_states_of_a_cut_beginning_are_kept() -> None:
    """`auto` may score less than was drafted."""
    draft = replace(Draft.chain([1, 2, 3]), hidden=torch.arange(4.0)[:, None], entry=2)
    assert take(draft, [0, 1]).entry == 2
    assert take(draft, [0, 1]).hidden is not None
    branched = replace(Draft((1, 2, 3), (-1, -1, 0)), hidden=torch.zeros(4, 1), entry=2)
    assert take(branched, [0, 2]).entry == 0
