"""Trees that grow out of a model's laws: which tokens they take, from which law, and what is learned of their ranks."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations

import pytest
import torch
from stubs import BranchLM, ScriptLM, Spy, Watched, decode, make_session, measured, plain, tiny

from specdecode.drafters.growing import FIRST, WIDEST, Growth, Ranks
from specdecode.drafters.lm import DraftLM
from specdecode.drafters.shapes import Cartesian, Chain, Dynamic, Optimal, Shape, make_shape
from specdecode.errors import BadOption, Incompatible
from specdecode.models.hf import HFModel
from specdecode.models.lm import Capabilities
from specdecode.sampling import Sampling
from specdecode.session import Session
from specdecode.tree import depths, path_to
from specdecode.types import EMPTY, Draft, Verdict

V = 7
SMALL = BranchLM(V, seed=4)


def grow(session: Session, shape: Shape, depth: int = 9, nodes: int = 64, **options: object) -> Draft:
    """A draft from SMALL's laws."""
    growth = Growth(session, shape.plan(depth, nodes, None), **options)  # type: ignore[arg-type]
    while growth.frontier:
        prefixes = [[growth.tokens[i] for i in path_to(growth.parents, node)] for node in growth.frontier]
        growth.extend(torch.stack([SMALL.law((*session.tokens, *prefix), 0) for prefix in prefixes]))
    return growth.draft()


def laws_of(draft: Draft, tokens: list[int]) -> list[torch.Tensor]:
    """The law of each node's parent, from scratch."""
    paths = [path_to(draft.parents, parent) for parent in draft.parents]
    return [SMALL.law((*tokens, *(draft.tokens[i] for i in path)), 0) for path in paths]


class TestChoice:
    def test_greedy_children_are_the_likeliest(self) -> None:
        draft = grow(make_session(SMALL, [1, 2]), Cartesian((3, 2)))
        assert draft.q is None
        for siblings in ([0, 1, 2], [3, 4], [5, 6], [7, 8]):
            law = laws_of(draft, [1, 2])[siblings[0]]
            assert [draft.tokens[i] for i in siblings] == law.topk(len(siblings)).indices.tolist()

    def test_keyed_children_begin_with_the_draw_itself(self) -> None:
        """Each first child is what the coupled rule would draw from the draft law; the others are the runners-up."""
        session = make_session(SMALL, [1, 2], Sampling(temperature=1.0, seed=5), "coupled")
        draft = grow(session, Cartesian((3, 2)))
        for siblings in ([0, 1, 2], [3, 4], [5, 6], [7, 8]):
            law, position = laws_of(draft, [1, 2])[siblings[0]], 2 + depths(draft.parents)[siblings[0]]
            keys = session.noise.keys(law, position)
            assert draft.tokens[siblings[0]] == session.noise.draw(law, position)
            assert [draft.tokens[i] for i in siblings] == keys.topk(len(siblings)).indices.tolist()

    @pytest.mark.parametrize("replacement", [False, True])
    def test_drawn_siblings_have_the_law_that_they_state(self, replacement: bool) -> None:
        """Of ordered pairs: without replacement p(a) p(b) / (1 - p(a)), with it p(a) p(b)."""
        n, counts = 6000, Counter[tuple[int, ...]]()
        p = SMALL.law((1,), 0).softmax(-1)
        for seed in range(n):
            session = make_session(SMALL, [1], Sampling(temperature=1.0, seed=seed), "rejection")
            draft = grow(session, Cartesian((2,)), replacement=replacement)
            assert draft.replacement == replacement
            assert draft.law(0) is draft.law(1)
            counts[draft.tokens] += 1
        for a, b in [*permutations(range(V), 2), *((a, a) for a in range(V))]:
            expected = float(p[a] * p[b] / (1 if replacement else 1 - p[a])) if a != b or replacement else 0.0
            assert abs(counts[a, b] / n - expected) <= 4.5 * math.sqrt(expected * (1 - expected) / n) + (
                8 / n if expected else 0
            )
        a, b = p.topk(2).indices.tolist()
        wrong = float(p[a] * p[b] / (1 - p[a] if replacement else 1))
        assert abs(counts[a, b] / n - wrong) > 4.5 * math.sqrt(wrong * (1 - wrong) / n), "the other kind fails"

    def test_a_law_of_few_tokens_gives_few_children(self) -> None:
        session = make_session(SMALL, [1], Sampling(temperature=1.0, top_k=2, seed=0), "rejection")
        draft = grow(session, Cartesian((4, 1)))
        assert draft.parents == (-1, -1, 0, 1)

    def test_confidence_ends_paths_by_their_law(self) -> None:
        session = make_session(SMALL, [1, 2])
        draft = grow(session, Chain(30), confidence=0.5)
        assert all(law.softmax(-1).max() >= 0.5 for law in laws_of(draft, [1, 2]))
        end = SMALL.law((1, 2, *draft.tokens), 0).softmax(-1).max()
        assert end < 0.5

    def test_nothing_hangs_on_a_stop_token(self) -> None:
        draft = grow(make_session(SMALL, [1, 2], stop_ids=frozenset({3})), Cartesian((3, 3, 3)))
        assert 3 in draft.tokens
        assert all(draft.tokens[parent] != 3 for parent in draft.parents if parent >= 0)


class TestDynamic:
    def test_the_best_nodes_by_path_probability_are_drafted(self) -> None:
        """Against all paths of the whole tree: a beam that is wide enough loses none."""
        session, whole = make_session(SMALL, [1, 2]), {}
        for path in [(a,) for a in range(V)] + [(a, b) for a in range(V) for b in range(V)]:
            value = 0.0
            for i, token in enumerate(path):
                value += float(SMALL.law((1, 2, *path[:i]), 0).log_softmax(-1)[token])
            whole[path] = value
        draft = grow(session, Dynamic(nodes=9, depth=2, top=V))
        found = {tuple(draft.tokens[i] for i in path_to(draft.parents, node)) for node in range(len(draft))}
        assert found == set(sorted(whole, key=whole.__getitem__, reverse=True)[:9])
        assert draft.q is None

    @pytest.mark.parametrize("rule", ["rejection", "coupled"])
    def test_its_nodes_are_chosen_also_when_sampling(self, rule: str) -> None:
        """What is kept depends on the tokens, so these may not be drawn."""
        session = make_session(SMALL, [1, 2], Sampling(temperature=1.0, seed=1), rule)
        draft = grow(session, Dynamic(nodes=9, depth=3, top=3))
        assert draft.is_chosen
        assert len(draft) == 9

    def test_a_beam_bounds_the_passes(self) -> None:
        spy = Spy(BranchLM(V, seed=4))
        decode(BranchLM(V), DraftLM(spy, tree=Dynamic(nodes=12, depth=3, top=2)), [1, 2], n=30)
        assert max(p.nodes for p in spy.passes) <= 4, "two of the last level at most, and what is new in the text"


class TestDraftModel:
    @pytest.mark.parametrize("tree", ["3x2x2", "dynamic:nodes=10:depth=4:top=3", "optimal:nodes=10:depth=4"])
    @pytest.mark.parametrize("kind", ["llama", "mistral", "gpt2"])
    def test_the_model_itself_as_a_tree_is_right_all_the_way(self, kind: str, tree: str) -> None:
        """Fault 3, on trees: the first path is the target's own text, so every step emits its depth and one more."""
        lm = HFModel(tiny(kind))
        watched = Watched(DraftLM(HFModel(tiny(kind)), tree=tree))
        (session,) = decode(lm, watched, [10, 3, 5], n=40)
        assert session.new_tokens == plain(lm, [10, 3, 5], 40)
        for turn in watched.seen[:-1]:
            if tree.startswith("3x"):
                assert turn.verdict.accepted == 3
            assert turn.verdict.accepted >= 1

    def test_its_laws_are_those_of_the_committed_text(self) -> None:
        """Faults 61, 62 on trees: whatever branch was accepted, the cache follows it."""
        target, small = BranchLM(V, seed=1), HFModel(tiny("llama", 1, vocab_size=V))
        watched = Watched(DraftLM(small, tree="3x2"))
        decode(target, watched, [1, 2, 3], n=60, rule="rejection", sampling=Sampling(temperature=1.0, seed=3))
        ranks = set()
        for turn in watched.seen:
            ranks |= {path[-1] for path in [turn.verdict.path] if path}
            for node in range(len(turn.draft)):
                path = path_to(turn.draft.parents, turn.draft.parents[node])
                ids = torch.tensor([[*turn.prefix, *(turn.draft.tokens[i] for i in path)]])
                with torch.no_grad():
                    law = tiny("llama", 1, vocab_size=V)(ids).logits[0, -1]
                stated = turn.draft.law(node)
                assert stated is not None
                assert (stated.log_softmax(-1) - law.log_softmax(-1)).abs().max() < 1e-4
        assert len(ranks) > 3, "several branches were taken"

    def test_options_that_exclude_each_other_are_refused(self) -> None:
        for options in ({"k": 3}, {"schedule": "assisted"}):
            with pytest.raises(BadOption, match="leave them out"):
                DraftLM(SMALL, tree="2x2", **options)  # type: ignore[arg-type]
        with pytest.raises(BadOption, match="is no tree"):
            DraftLM(SMALL, tree=7)  # type: ignore[arg-type]
        with pytest.raises(BadOption, match="neither true nor false"):
            DraftLM(SMALL, replacement=1)  # type: ignore[arg-type]

    def test_a_model_without_trees_is_refused_by_name(self) -> None:
        chains_only = BranchLM(V)
        chains_only.capabilities = Capabilities(trees=False)
        with pytest.raises(Incompatible, match="trees, which this target cannot score"):
            decode(chains_only, DraftLM(BranchLM(V), tree="2x2"), [1])
        with pytest.raises(Incompatible, match="trees, which this draft model cannot score"):
            decode(BranchLM(V), DraftLM(chains_only, tree="2x2"), [1])
        decode(chains_only, DraftLM(BranchLM(V)), [1])

    def test_an_optimal_tree_follows_what_is_measured(self) -> None:
        """A draft model that is always right: the tree becomes a chain."""
        watched = Watched(DraftLM(ScriptLM([5, 6] * 60), tree=Optimal(nodes=8, depth=8)))
        (session,) = decode(ScriptLM([5, 6] * 60), watched, [1], n=120)
        drafts = [turn.draft for turn in watched.seen if len(turn.draft) == 8]
        assert max(depths(drafts[0].parents)) < 7
        assert max(depths(drafts[-1].parents)) == 7
        assert measured(session).tokens_per_step > 6


class TestRanks:
    def test_nothing_seen_is_the_prior(self) -> None:
        acceptance = Ranks().acceptance
        assert acceptance[0] == pytest.approx(FIRST, abs=1 / 64)
        assert list(acceptance) == sorted(acceptance, reverse=True)
        assert sum(acceptance) <= 1
        assert len(acceptance) == WIDEST

    def test_shares_of_what_elder_siblings_leave(self) -> None:
        """First children right in half of all cases, second ones in half of the others."""
        ranks, draft = Ranks(), Draft((1, 2, 3), (-1, -1, -1))
        for path in [(0,), (0,), (1,), ()] * 200:
            ranks.see(draft, Verdict((*(draft.tokens[i] for i in path), 9), path, len(path)))
        first, second, third, *_ = ranks.acceptance
        assert first == pytest.approx(0.5, abs=0.02)
        assert second == pytest.approx(0.25, abs=0.02)
        assert third < 0.05

    def test_only_what_was_tested_counts(self) -> None:
        ranks, before = Ranks(), Ranks().acceptance
        ranks.see(EMPTY, Verdict((4,), (), 0))
        assert ranks.acceptance == before
        deep = Draft((1, 2, 3), (-1, 0, 1))
        ranks.see(deep, Verdict((9,), (), 0))
        assert ranks._tried[0] == 5, "one refusal, though three were drafted"
        ranks.see(deep, Verdict((1, 2, 3, 9), (0, 1, 2), 3))
        assert ranks._tried[0] == 8


def test_a_text_names_a_shape_for_the_draft_model_too() -> None:
    assert DraftLM(SMALL, tree="4x2").shape == make_shape("4x2")
    assert DraftLM(SMALL).shape == Chain(5)
    assert DraftLM(SMALL, k=2).shape == Chain(2)
