"""KV integrity: sound caches leave no difference, and a cache that commits anything else is found out."""

from __future__ import annotations

import pytest
import texts
from certify_helpers import PROMPTS, BrokenLM, Wrong, all_nodes, first_nodes, one_less, quiet
from stubs import BranchLM
from texts import VOCAB

from specdecode.certify.findings import FAIL, NOT_APPLICABLE, PASS
from specdecode.certify.kv import KINDS, integrity, judge_kv
from specdecode.models.lm import Capabilities


def test_a_sound_cache_leaves_no_difference() -> None:
    finding = integrity(BranchLM(VOCAB), PROMPTS, quiet)
    assert finding.outcome == PASS
    assert finding.figures["differences"] == {kind.kind: 0.0 for kind in KINDS}


def test_on_a_transformer_the_difference_is_rounding() -> None:
    finding = integrity(texts.tiny_lm(0), PROMPTS, quiet)
    assert finding.outcome == PASS
    assert max(finding.figures["differences"].values()) < 1e-4


@pytest.mark.parametrize(
    ("wrong", "after"),
    [
        (first_nodes, {"the second branch", "a twig"}),
        (all_nodes, {k.kind for k in KINDS if k.kind not in ("a whole chain", "an empty draft")}),
        (one_less, {"part of a chain", "a whole chain", "the second branch", "a twig", "the first branch"}),
    ],
)
def test_a_cache_that_commits_other_nodes_is_found_out(wrong: Wrong, after: set[str]) -> None:
    """One row, one kind at a time: what was broken once stays broken in that row."""
    for kind in KINDS:
        finding = integrity(BrokenLM(BranchLM(VOCAB), wrong), PROMPTS, quiet, [kind])
        assert (finding.outcome == FAIL) == (kind.kind in after), kind
        if finding.outcome == FAIL:
            assert f"after {kind.kind}" in finding.found
    assert integrity(BrokenLM(BranchLM(VOCAB), wrong), PROMPTS, quiet).outcome == FAIL


def test_a_model_without_trees_is_asked_for_none() -> None:
    lm = BranchLM(VOCAB)
    lm.capabilities = Capabilities(trees=False)
    finding = integrity(lm, PROMPTS, quiet)
    assert set(finding.figures["differences"]) == {k.kind for k in KINDS if "branch" not in k.kind} - {
        "a twig",
        "nothing of a tree",
    }


def test_a_full_context_is_no_failure() -> None:
    assert integrity(BranchLM(VOCAB, context=20), PROMPTS, quiet).outcome == NOT_APPLICABLE


def test_the_judge() -> None:
    assert judge_kv({"a": 0.0, "b": 1e-5}, 1e-4).outcome == PASS
    finding = judge_kv({"a": 0.0, "b": 1e-3}, 1e-4)
    assert (finding.outcome, finding.found) == (FAIL, "largest difference 0.001, after b (2 kinds)")
