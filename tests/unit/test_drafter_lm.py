"""The draft model: it reads what the session holds, draws from its filtered law, and never spoils its cache."""

from __future__ import annotations

import math

import pytest
import torch
from stubs import BranchLM, DistLM, ScriptLM, Spy, StubCache, Watched, decode, make_session, measured, plain, tiny, torn

from specdecode.drafters.lm import DraftLM
from specdecode.drafters.null import Null
from specdecode.engine import Generation
from specdecode.metrics import Metrics
from specdecode.models.hf import HFModel
from specdecode.models.lm import CHUNK
from specdecode.sampling import Keyed, Sampling
from specdecode.types import Budget
from specdecode.verify import make_rule

WIDE = Budget(depth=64)


# --- perfect drafters -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["llama", "mistral", "gpt2", "gemma3_text"])
def test_a_model_that_drafts_for_itself_is_always_right(kind: str) -> None:
    """Fault 3, 61: every draft is accepted and every step but the last emits k + 1 tokens."""
    target = Spy(HFModel(tiny(kind)))
    watched = Watched(DraftLM(HFModel(tiny(kind)), k=4))
    (session,) = decode(target, watched, [10, 3, 5], n=41)
    assert session.new_tokens == plain(HFModel(tiny(kind)), [10, 3, 5], 41)
    assert measured(session).acceptance_rate == 1.0
    assert [len(turn.verdict.tokens) for turn in watched.seen] == [5] * 8 + [1]
    assert len(target.passes) == 9


@pytest.mark.parametrize("k", [1, 2, 4, 16])
def test_generation_goes_on_when_everything_is_accepted(k: int) -> None:
    """Fault 4: exactly as many tokens as asked for, also when one step could give them all."""
    lm = HFModel(tiny())
    (session,) = decode(lm, Watched(DraftLM(lm, k=k)), [10], n=4)
    assert session.new_tokens == plain(lm, [10], 4)
    assert measured(session).acceptance_rate == 1.0


@pytest.mark.parametrize("rule", ["rejection", "coupled"])
def test_the_same_law_is_accepted_when_sampling(rule: str) -> None:
    """Fault 21: with q = p no rule has a reason to reject."""
    lm = BranchLM(vocab=11)
    (session,) = decode(
        lm, Watched(DraftLM(lm, k=3)), [1, 2], n=41, rule=rule, sampling=Sampling(temperature=1, seed=5)
    )
    assert measured(session).acceptance_rate == 1.0
    assert measured(session).steps == 11


# --- its cache --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_every_draft_law_is_that_of_the_committed_text(kind: str) -> None:
    """Fault 61, 62: whatever was accepted before, each draft law equals the draft model's on the same ids without a
    cache. Sampled, because a wrong cache need not show in the text."""
    near, other = tiny(kind), tiny(kind, seed=2)
    with torch.no_grad():
        for ours, theirs in zip(near.parameters(), other.parameters(), strict=True):
            ours += 0.1 * theirs
    watched = Watched(DraftLM(HFModel(near), k=4))
    decode(HFModel(tiny(kind)), watched, [10, 3, 5], n=100, rule="coupled", sampling=Sampling(temperature=1, seed=1))
    for turn in watched.seen:
        ids = torch.tensor([[*turn.prefix, *turn.draft.tokens]])
        with torch.no_grad():
            laws = near(ids).logits[0, len(turn.prefix) - 1 :]
        for node in range(len(turn.draft)):
            assert (turn.draft.law(node) - laws[node]).abs().max() < 1e-4
    assert {turn.verdict.accepted for turn in watched.seen} == {0, 1, 2, 3, 4}, "every case was met"


def test_the_cache_holds_the_committed_text_and_nothing_else() -> None:
    """Fault 62: for each accepted count the rewind is exact: the cache is always a prefix of the text, short of it by
    the two newest tokens when all was accepted and by the newest else."""
    target = BranchLM(vocab=7)
    drafter = torn(target)
    watched = Watched(DraftLM(drafter, k=4))
    session = make_session(target, [1, 2, 3], max_new_tokens=200)
    for _ in Generation(target, watched, [session], [make_rule("greedy")]):
        (row,) = drafter.caches[0].rows
        assert row.tokens == session.tokens[: len(row.tokens)]
    assert session.new_tokens == plain(BranchLM(vocab=7), [1, 2, 3], 200)
    passes = iter(drafter.passes)
    whole = False
    for turn in (turn for turn in watched.seen if len(turn.draft)):
        fed = [next(passes).nodes for _ in range(len(turn.draft))]
        assert fed == [2 if whole else 1] + [1] * (len(turn.draft) - 1)
        whole = turn.verdict.accepted == len(turn.draft)
    assert {turn.verdict.accepted for turn in watched.seen} == {0, 1, 2, 3, 4}, "every case was met"


def test_acceptance_does_not_decay() -> None:
    """Fault 62: a drafter that loses tokens gets worse with time; ours is as good at the end as at the beginning."""
    target = BranchLM(vocab=7)
    watched = Watched(DraftLM(torn(target), k=4))
    (session,) = decode(target, watched, [1, 2, 3], n=2000)
    half = len(session.records) // 2
    early, late = (Metrics.from_records(r).acceptance_rate for r in (session.records[:half], session.records[half:]))
    assert abs(early - late) < 0.1


def test_tokens_from_elsewhere_are_read_before_the_next_draft() -> None:
    """A chooser may draft with something else for hundreds of tokens. They are read in passes of bounded size, of which
    only the last is asked for logits."""
    target, drafter = BranchLM(vocab=7), BranchLM(vocab=7)
    session = make_session(target, [1, 2, 3], max_new_tokens=1000)
    chains = DraftLM(drafter, k=3).begin([session], target, StubCache([]))
    chains.draft([0], [WIDE])
    del drafter.passes[:]
    text = plain(BranchLM(vocab=7), [1, 2, 3], 2 * CHUNK + 53)
    session.tokens += text[: 2 * CHUNK + 50]
    (draft,) = chains.draft([0], [WIDE])
    assert list(draft.tokens) == text[2 * CHUNK + 50 :]
    # Of these and the prompt's newest token, 3 had been drafted and run before; the newest asks for logits.
    assert [p.nodes for p in drafter.reads] == [2, CHUNK, CHUNK, 47]
    assert [p.nodes for p in drafter.passes] == [1, 1, 1]


def test_drafting_twice_from_one_text_gives_one_draft() -> None:
    """A draft that was not used leaves no trace."""
    session = make_session(BranchLM(), [1, 2, 3])
    chains = DraftLM(BranchLM()).begin([session], BranchLM(), StubCache([]))
    (first,), (second,) = chains.draft([0], [WIDE]), chains.draft([0], [WIDE])
    assert first.tokens == second.tokens


# --- its law ----------------------------------------------------------------------------------------------------------


def test_a_greedy_draft_is_a_point_mass() -> None:
    """Fault 9: a token taken as the argmax was not drawn from the soft law, so it must not come with it."""
    watched = Watched(DraftLM(BranchLM(seed=1)))
    decode(BranchLM(), watched, [1, 2], n=20)
    assert all(turn.draft.q is None for turn in watched.seen)


@pytest.mark.parametrize("rule", ["rejection", "coupled"])
def test_a_drawn_draft_comes_with_the_law_it_was_drawn_from(rule: str) -> None:
    """Fault 10, 11: q is the filtered law, each node's with its own prefix; keyed draws can be repeated from it."""
    sampling = Sampling(temperature=0.7, top_k=3, repetition_penalty=1.3, seed=9)
    target, drafter = BranchLM(vocab=11), BranchLM(vocab=11, seed=1)
    watched = Watched(DraftLM(drafter, k=3))
    (session,) = decode(target, watched, [1, 2], n=40, rule=rule, sampling=sampling)
    for turn in watched.seen:
        for node, token in enumerate(turn.draft.tokens):
            prefix = (*turn.prefix, *turn.draft.tokens[:node])
            law = turn.draft.law(node)
            assert torch.equal(law, session.filters.apply(drafter.law(prefix, 0), prefix))
            assert law.isfinite().sum() == 3
            assert law[token] > -math.inf
            if rule == "coupled":
                assert Keyed(9, 11).draw(law, len(prefix)) == token


def test_coupled_text_is_the_same_with_and_without_drafts() -> None:
    """The draws share their noise, so that drafts of any quality change nothing."""
    texts, rates = [], []
    for drafter in (Null(), DraftLM(BranchLM(vocab=7, seed=1)), DraftLM(torn(BranchLM(vocab=7)), k=3)):
        (session,) = decode(
            BranchLM(vocab=7), drafter, [1], n=60, rule="coupled", sampling=Sampling(temperature=1, seed=3)
        )
        texts.append(session.new_tokens)
        rates.append(measured(session).acceptance_rate)
    assert texts[0] == texts[1] == texts[2]
    assert 0 < rates[1] < rates[2] < 1


@pytest.mark.parametrize(("ours", "theirs"), [(100, 97), (97, 104), (90, 97)])
def test_vocabularies_of_different_width(ours: int, theirs: int) -> None:
    """Fault 54: q covers the target's ids exactly, and no id is drafted that the target has not."""
    script = [*range(80, 90), 5, 6, 7] * 3
    drafter = ScriptLM([*range(90 if ours < 97 else 97, ours), *script], vocab=ours)
    for rule in ("greedy", "rejection", "coupled"):
        watched = Watched(DraftLM(drafter, k=4))
        sampling = Sampling() if rule == "greedy" else Sampling(temperature=1.5, seed=4)
        (session,) = decode(ScriptLM(script, vocab=theirs), watched, [1, 2], n=39, rule=rule, sampling=sampling)
        if rule == "greedy":
            assert session.new_tokens == script
        for turn in watched.seen:
            for node in range(len(turn.draft)):
                assert rule == "greedy" or turn.draft.law(node).shape == (theirs,)
        assert any(len(turn.draft) for turn in watched.seen)


def test_padded_embeddings_of_real_models() -> None:
    """Fault 54: 97 ids, logits 104 and 100 wide, and the reverse."""
    wide, narrow = tiny(vocab_size=104), tiny(seed=1, vocab_size=100)
    for target, drafter in ((wide, narrow), (narrow, wide)):
        lm = HFModel(target, vocab=97)
        watched = Watched(DraftLM(HFModel(drafter, vocab=97)))
        (session,) = decode(lm, watched, [10, 3], n=40)
        assert session.new_tokens == plain(lm, [10, 3], 40)
        assert any(len(turn.draft) for turn in watched.seen)


def test_a_token_the_draft_model_cannot_read_ends_its_drafts(caplog: pytest.LogCaptureFixture) -> None:
    """Fault 54: an emitted id beyond its vocabulary is no crash and no stand-in id: that session's drafts end."""
    script = [1, 2, 3, 90, *range(4, 20)]
    watched = Watched(DraftLM(ScriptLM([1, 2, 3, 0], vocab=90), k=2))
    sessions = decode(ScriptLM(script), watched, [1, 90], [1], n=20)
    assert [session.new_tokens for session in sessions] == [script, script]
    assert not any(turn.draft.tokens for turn in watched.seen if 90 in turn.prefix)
    (record,) = caplog.records
    assert "cannot follow session 0: token id 90 is outside its vocabulary of 90" in record.getMessage()


def test_no_token_left_to_draft_is_no_error() -> None:
    """The target may have ids left where every id of a smaller draft model is forbidden."""
    sampling = Sampling(suppress=tuple(range(5)))
    watched = Watched(DraftLM(BranchLM(vocab=5)))
    (session,) = decode(DistLM([0.1] * 5 + [0.2, 0.3]), watched, [1], n=5, sampling=sampling)
    assert session.new_tokens == [6] * 5
    assert not any(turn.draft.tokens for turn in watched.seen)
