"""Forced tokens as drafts, alone and beside those of other drafters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from stubs import BranchLM, StubLM, Watched, drawn_tree, fix, oracle
from texts import TOKENIZER, VOCAB, encode

import specdecode as sd
from specdecode.drafters import Drafter, Drafting
from specdecode.drafters.auto import Auto
from specdecode.drafters.forced import Forced, with_forced
from specdecode.drafters.merged import Merged
from specdecode.drafters.ngram import Ngram
from specdecode.drafters.null import Null
from specdecode.models.lm import LM, Cache, Capabilities
from specdecode.session import Session
from specdecode.types import Budget, Draft, Scores, Verdict

EOS = TOKENIZER.eos_token_id
PROMPT = encode(TOKENIZER, "the stop the")
FIXED = sd.Grammar.regex("the END [12] stop the END [34] stop")
TARGET = BranchLM(VOCAB, 1)


@dataclass(frozen=True)
class Told:
    """Any drafter, and what it is told of each step."""

    drafter: Drafter
    heard: list[tuple[Draft, Verdict, Scores]] = field(default_factory=list)

    name = "told"

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> _Told:
        return _Told(self.drafter.begin(sessions, target, cache), self.heard)


class _Told:
    def __init__(self, drafting: Drafting, heard: list[tuple[Draft, Verdict, Scores]]) -> None:
        self._drafting, self._heard, self.taps = drafting, heard, drafting.taps

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        return self._drafting.draft(rows, budgets)

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        self._heard.append((draft, verdict, scores))
        self._drafting.observe(row, draft, verdict, scores)

    def release(self, row: int) -> None:
        self._drafting.release(row)


def generate(drafter: Any, grammar: sd.Grammar | None = FIXED, lm: Any = TARGET, **options: Any) -> sd.Completion:
    return sd.Model(lm, TOKENIZER, (EOS,)).generate(PROMPT, drafter=drafter, grammar=grammar, **options)


def test_all_that_is_forced_costs_one_pass() -> None:
    plain, forced = generate(None), generate("forced")
    assert forced.tokens == plain.tokens
    assert plain.metrics.steps == len(plain.tokens) == 15
    assert forced.metrics.steps == 3, "one to each choice, and one to the end"
    assert forced.metrics.acceptance_rate == 1


def test_without_a_grammar_nothing_is_forced() -> None:
    answer = generate("forced", None, max_new_tokens=9)
    assert answer.metrics.nodes == 0
    assert answer.metrics.steps == 9


def test_plain_decoding_stays_plain() -> None:
    for drafter in (None, "null"):
        assert generate(drafter).metrics.nodes == 0


@pytest.mark.parametrize("limit", range(1, 8))
def test_the_budget_is_kept(limit: int) -> None:
    """Watched asserts it. The last token is never a draft."""
    watched = Watched(Forced())
    answer = generate(watched, max_new_tokens=limit)
    assert len(answer.tokens) == limit
    assert all(len(turn.draft) < limit for turn in watched.seen)


def test_every_drafter_drafts_it_too() -> None:
    assert with_forced(Null()) == Null()
    assert with_forced(Forced()) == Forced()
    assert with_forced(Ngram(k=3)) == Merged((Forced(), Ngram(k=3)))
    assert with_forced(Merged((Ngram(),))) == Merged((Forced(), Ngram()))
    auto = Auto(("ngram",), nodes=7)
    assert with_forced(auto) == replace(auto, sources=(Forced(), "ngram"))


@pytest.mark.parametrize("drafter", [Ngram(), Auto(curve=lambda rows, context: 1 + rows / 100, clock=lambda: 0.0)])
def test_the_answer_names_the_drafter_that_was_asked_for(drafter: Any) -> None:
    answer = generate(drafter)
    assert answer.drafter == drafter.name
    assert answer.metrics.steps <= 4
    assert answer.tokens == generate(None).tokens


def test_a_model_that_takes_no_trees_gets_no_second_source() -> None:
    class Chains(StubLM):
        capabilities = Capabilities(trees=False, embeds=False, taps=False, layers=False)

    lm = Chains(TARGET.law, VOCAB)
    assert generate("ngram", lm=lm).tokens == generate("auto", lm=lm).tokens == generate(None).tokens
    assert generate("forced", lm=lm).metrics.steps == 3


def test_a_drafter_sees_its_own_nodes() -> None:
    """What it proposed, as far as it was scored, in its own order; behind them, what else was accepted."""
    words = tuple(encode(TOKENIZER, "the ok"))
    base = Told(fix(words).drafter)
    answer = generate(base)
    assert answer.tokens == generate(None).tokens
    assert len(base.heard) == answer.metrics.steps
    for draft, verdict, scores in base.heard:
        assert draft.tokens[: len(words)] == words[: len(draft)]
        assert tuple(draft.tokens[node] for node in verdict.path) == verdict.tokens[:-1]
        assert len(scores.logits) == len(draft) + 1
    assert len(base.heard[0][0]) > len(words), "the forced tokens that were accepted stand behind"


def test_what_the_base_drafts_is_accepted_beyond() -> None:
    truth = generate(None).tokens
    assert generate(oracle(truth, k=30)).metrics.steps == 1


@pytest.mark.parametrize("rule", ["rejection", "block", "traversal", "kseq"])
def test_drawn_drafts_stand_beside_it(rule: str) -> None:
    """Under every rule that draws; the answer fits."""
    small = drawn_tree(BranchLM(VOCAB, 2).law, (2, 1), replacement=rule == "kseq").drafter
    for seed in range(10):
        answer = generate(small, rule=rule, sampling=sd.Sampling(temperature=1.0, seed=seed))
        assert re.fullmatch(FIXED.text, answer.text)
        assert answer.metrics.steps < 6


def test_drafted_laws_have_the_grammar_too() -> None:
    """A draft model is asked for tokens that the grammar allows, so its drafts are worth their rows."""
    grammar = sd.Grammar.regex("[abcdefgh]{12}")
    small = sd.draft_model(sd.Model(TARGET, TOKENIZER, (EOS,)), sd.Model(TARGET, TOKENIZER, (EOS,)), k=4)
    answer = generate(small, grammar)
    assert answer.tokens == generate(None, grammar).tokens
    assert answer.metrics.acceptance_rate == 1, "the same model, the same filters"
    assert answer.metrics.drafted > len(answer.tokens) / 2
