"""Plain decoding is the loop with a drafter that has nothing to say."""

from __future__ import annotations

from stubs import BranchLM, Watched, decode, measured, plain

from specdecode.drafters.null import Null


def test_null_is_plain_decoding() -> None:
    """Fault 101: without drafts there is one pass a token, each of one token, after the prefill."""
    target = BranchLM(vocab=11)
    (session,) = decode(target, Watched(Null()), [3, 1, 4], n=20)
    assert [turn.nodes for turn in target.passes] == [1] * 20
    assert session.new_tokens == plain(BranchLM(vocab=11), [3, 1, 4], 20)


def test_null_drafts_nothing() -> None:
    """Fault 136: a run without a drafter shows no acceptance at all, not 0."""
    watched = Watched(Null())
    sessions = decode(BranchLM(), watched, [1], [2, 3], n=5)
    assert {len(turn.draft) for turn in watched.seen} == {0}
    metrics = measured(*sessions)
    assert (metrics.drafted, metrics.acceptance_rate, metrics.tokens_per_step) == (0, None, 1.0)
