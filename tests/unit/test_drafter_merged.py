"""Several drafts as one tree: what is united, what is kept apart, and what each source is told of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from stubs import ScriptLM, Watched, decode, drawn_tree, fix, oracle

from specdecode.drafters import make_drafter
from specdecode.drafters.lm import DraftLM
from specdecode.drafters.merged import Merged, merge, take, view
from specdecode.drafters.ngram import Ngram
from specdecode.errors import BadOption, Incompatible
from specdecode.models.lm import Capabilities
from specdecode.sampling import Sampling
from specdecode.types import EMPTY, Budget, Draft, Scores, Verdict

Q = torch.zeros(9)
OTHER = torch.ones(9)
SCRIPT = [5, 6, 7, 5, 6, 7, 5, 6, 8, 1, 2, 3, 1, 2, 3, 1]


def drawn(*tokens: int, q: torch.Tensor = Q, replacement: bool = False) -> Draft:
    """Siblings drawn from one law."""
    return Draft(tokens, (-1,) * len(tokens), q=(q,) * len(tokens), replacement=replacement)


class TestMerge:
    def test_a_single_draft_stays_as_it_is(self) -> None:
        one = Draft.chain([1, 2], confidence=(0.5, 0.6))
        union = merge([EMPTY, one])
        assert union.draft is one
        assert [list(places) for places in union.places] == [[], [0, 1]]
        assert merge([EMPTY, EMPTY]).draft is EMPTY

    def test_only_the_last_sources_states_are_sure_to_stand(self) -> None:
        """Another that was asked later may have run the target's layers over them, even if it drafts nothing."""
        resumable = Draft((1, 2), (-1, 0), hidden=torch.zeros(3, 4), entry=2)
        assert merge([EMPTY, resumable]).draft is resumable
        union = merge([resumable, EMPTY])
        assert (union.draft.tokens, union.draft.hidden, union.draft.entry) == ((1, 2), None, 0)

    def test_what_two_agree_on_stands_once(self) -> None:
        union = merge([Draft.chain([1, 2, 3]), Draft.chain([1, 2, 4]), Draft((1, 5), (-1, -1))])
        assert union.draft.tokens == (1, 2, 3, 4, 5)
        assert union.draft.parents == (-1, 0, 1, 1, -1)
        assert union.draft.q is None
        assert union.draft.candidate is None
        assert [list(places) for places in union.places] == [[0, 1, 2], [0, 1, 3], [0, 4]]

    def test_the_same_token_elsewhere_is_another_node(self) -> None:
        union = merge([Draft.chain([1, 1]), Draft.chain([2, 1])])
        assert (union.draft.tokens, union.draft.parents) == ((1, 1, 2, 1), (-1, 0, -1, 2))

    def test_drawn_nodes_come_first_and_take_in_chosen_ones(self) -> None:
        """The chosen 1 is the drawn 1, and what hung on it hangs there."""
        union = merge([Draft.chain([1, 7]), drawn(2, 1)])
        assert (union.draft.tokens, union.draft.parents) == ((2, 1, 7), (-1, -1, 1))
        assert union.draft.q is not None
        assert union.draft.q[0] is union.draft.q[1] is Q
        assert union.draft.q[2] is None
        assert [list(places) for places in union.places] == [[1, 2], [0, 1]]

    def test_no_drawn_node_is_dropped_whatever_its_token(self) -> None:
        union = merge([drawn(1, 2), drawn(2, 1, q=OTHER), Draft((1, 2), (-1, -1), q=(None, None))])
        assert union.draft.tokens == (1, 2, 2, 1)
        assert [list(places) for places in union.places] == [[0, 1], [2, 3], [0, 1]]

    def test_a_repeated_draw_with_replacement_stays_two(self) -> None:
        union = merge([drawn(1, 1, replacement=True), Draft.chain([1])])
        assert union.draft.tokens == (1, 1)
        assert union.draft.replacement
        assert list(union.places[1]) == [0]

    def test_draws_with_and_without_replacement_do_not_mix(self) -> None:
        union = merge([drawn(1, 2), drawn(3, 3, q=OTHER, replacement=True), Draft.chain([4])])
        assert union.draft.tokens == (1, 2, 4)
        assert not union.draft.replacement
        assert list(union.places[1]) == [-1, -1]

    def test_probes_are_their_drafters_own(self) -> None:
        """A probe is neither taken for a candidate nor one for it, and keeps its embedding."""
        embedding = torch.ones(3)
        probing = Draft((4, 1), (-1, -1), candidate=(True, False), embeds={1: embedding})
        union = merge([Draft.chain([1]), probing, probing])
        assert union.draft.tokens == (4, 1, 1, 1)
        assert union.draft.candidate == (True, False, False, True)
        assert set(union.draft.embeds) == {1, 2}
        assert [list(places) for places in union.places] == [[3], [0, 1], [0, 2]]


def test_take_keeps_the_order_it_is_given() -> None:
    draft = Draft((1, 2, 3), (-1, -1, 1), q=(Q, None, None), embeds={2: Q}, replacement=True)
    assert take(draft, [0, 1, 2]) is draft
    part = take(draft, [1, 2])
    assert (part.tokens, part.parents, part.q) == ((2, 3), (-1, 0), (None, None))
    assert set(part.embeds) == {1}


class TestView:
    """Nodes 0 and 1 are the source's, 2 and 3 another's; the row's scores are told apart by their first number."""

    DRAFT = Draft((1, 2, 5, 6), (-1, 0, -1, 2))
    SCORES = Scores(torch.arange(5.0)[:, None].repeat(1, 3), {7: torch.arange(5.0)[:, None]})

    def seen(self, places: list[int], path: tuple[int, ...], tokens: tuple[int, ...]) -> Any:
        own = Draft.chain([1, 2])
        draft, verdict, scores = view(own, places, self.DRAFT, Verdict(tokens, path, len(path)), self.SCORES)
        assert scores.logits[:, 0].tolist() == scores.taps[7][:, 0].tolist()
        assert len(scores.logits) == len(draft) + 1
        return draft.tokens, draft.parents, verdict, scores.logits[:, 0].tolist()

    def test_its_own_nodes_and_nothing_else_where_they_were_accepted(self) -> None:
        assert self.seen([0, 1], (0,), (1, 9)) == ((1, 2), (-1, 0), Verdict((1, 9), (0,), 1), [0, 1, 2])

    def test_what_others_had_right_stands_behind(self) -> None:
        tokens, parents, verdict, rows = self.seen([0, 1], (2, 3), (5, 6, 9))
        assert (tokens, parents) == ((1, 2, 5, 6), (-1, 0, -1, 2))
        assert verdict == Verdict((5, 6, 9), (2, 3), 2)
        assert rows == [0, 1, 2, 3, 4]

    def test_nodes_that_were_cut_off_are_not_there(self) -> None:
        assert self.seen([0, -1], (2,), (5, 9)) == ((1, 5), (-1, -1), Verdict((5, 9), (1,), 1), [0, 1, 3])
        assert self.seen([-1, -1], (), (9,)) == ((), (), Verdict((9,), (), 0), [0])

    def test_a_draft_that_was_scored_whole_is_shown_itself(self) -> None:
        own = Draft.chain([1, 2])
        scores = Scores(torch.zeros(3, 3))
        draft, _, seen = view(own, [0, 1], own, Verdict((1, 9), (0,), 1), scores)
        assert draft is own
        assert seen is scores


def test_merged_drafts_decode_to_the_same_text_in_fewer_passes() -> None:
    """The lookup and the oracle are both taken up; all of it is one pass a step."""
    lm = ScriptLM(SCRIPT)
    watched = Watched(Merged((Ngram(), oracle(SCRIPT, k=2).drafter)))
    (session,) = decode(lm, watched, [1, 5, 6], n=12)
    assert session.new_tokens == SCRIPT[:12]
    assert len(lm.passes) == len(watched.seen) <= 4


def test_the_budget_holds_for_all_together_and_the_first_come_first() -> None:
    drafting = Merged((fix([1, 2, 3]).drafter, fix([4, 5, 6]).drafter)).begin(
        [decode(ScriptLM([1]), fix([]), [1], n=1)[0]], ScriptLM([1]), ScriptLM([1]).open([])
    )
    (draft,) = drafting.draft([0], [Budget(2, nodes=3)])
    assert draft.tokens == (1, 2, 4)
    assert drafting.draft([0], [Budget(0)])[0].tokens == ()


def test_every_source_is_told_of_every_step() -> None:
    """A draft model beside another source reads on where the other was right, and drafts the rest."""
    lm, small = ScriptLM(SCRIPT), ScriptLM(SCRIPT)
    model = DraftLM(small, k=3, schedule="assisted")
    (session,) = decode(lm, Watched(Merged((model, oracle(SCRIPT, k=5).drafter))), [1, 2], n=16)
    assert session.new_tokens == SCRIPT
    assert small.caches[0].rows[0].tokens == [1, 2, *SCRIPT][: len(small.caches[0].rows[0].tokens)]
    assert all(record.accepted >= 3 for record in session.records[:-1])


def test_a_draft_model_that_was_outdone_drafts_less() -> None:
    """Under the assisted schedule: its draft was not accepted whole, though another's was. From 3 it goes down to 1."""
    wrong = ScriptLM([0] * 16)
    model = DraftLM(wrong, k=3, schedule="assisted")
    (session,) = decode(ScriptLM(SCRIPT), Merged((model, oracle(SCRIPT, k=2).drafter)), [1, 2], n=16)
    assert [record.accepted for record in session.records] == [2, 2, 2, 2, 2, 0]
    assert len(wrong.passes) == 3 + 2 + 1 + 1 + 1


def test_taps_are_those_of_all() -> None:
    class Tapped:
        name, taps = "tapped", (3, 1)

        def begin(self, *_: Any) -> Tapped:
            return self

    class Other(Tapped):
        taps = (2, 3)

    lm = ScriptLM([1])
    assert Merged((Tapped(), Other())).begin([], lm, lm.open([])).taps == (1, 2, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize("sources", [(), [], None, "ngram", ("ngram",), (Ngram,), (Ngram(), 3)])
def test_sources_that_are_none_are_refused(sources: Any) -> None:
    with pytest.raises(BadOption, match="drafter 'merged': "):
        make_drafter("merged", sources=sources)


def test_a_model_that_cannot_score_trees_takes_one_source_only() -> None:
    class Chains(ScriptLM):
        capabilities = Capabilities(trees=False)

    with pytest.raises(Incompatible, match="single source"):
        decode(Chains(SCRIPT), Merged((Ngram(), fix([1]).drafter)), [1], n=3)
    assert decode(Chains(SCRIPT), Merged((Ngram(),)), [1, 5, 6], n=9)[0].new_tokens == SCRIPT[:9]


@pytest.mark.parametrize("inner", ["merged", "auto"])
@pytest.mark.parametrize("rule", ["rejection", "kseq", "traversal"])
def test_a_united_draft_that_another_leaves_out_is_told_so(inner: str, rule: str) -> None:
    """Draws with replacement come first, so that those without, and what is united with them, are left out."""
    lm = ScriptLM(SCRIPT)
    first = drawn_tree(lm.law, (3,), replacement=True).drafter
    options: dict[str, Any] = {"curve": lambda rows, context: 1.0, "clock": lambda: 0.0} if inner == "auto" else {}
    second = make_drafter(inner, sources=(DraftLM(lm, k=4), fix([3, 4]).drafter), **options)
    watched = Watched(Merged((first, second)))
    (session,) = decode(lm, watched, [1, 2], n=12, rule=rule, sampling=Sampling(temperature=1.0, seed=1))
    assert len(session.new_tokens) == 12
    assert all(turn.draft.replacement for turn in watched.seen[:-1])


def test_laws_of_a_merged_tree_are_those_it_was_drawn_from() -> None:
    """Siblings drawn from one law still share its memory, which rejection tells laws apart by."""
    lm = ScriptLM(SCRIPT)
    seen: list[Draft] = []
    drafter = Merged((drawn_tree(lm.law, (2,)).drafter, fix([3, 4]).drafter))
    watched = Watched(drafter)
    decode(lm, watched, [1, 2], n=4, rule="rejection", sampling=Sampling(temperature=1.0, seed=1))
    seen = [turn.draft for turn in watched.seen if len(turn.draft) > 2]
    assert seen
    for draft in seen:
        assert draft.q is not None
        assert draft.q[0] is draft.q[1]
        assert draft.q[0] is not None
