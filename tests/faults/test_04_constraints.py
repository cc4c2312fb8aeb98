"""Kind 04: grammars across a window. What tests/unit/test_constraints_processors.py has for stub constraints, with real
grammars on whole generations."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from enroll import METHODS, build
from stubs import BranchLM, ScriptLM, StubLM, fix, oracle
from texts import TOKENIZER, VOCAB, encode
from torch import Tensor

import specdecode as sd
from specdecode.drafters import Drafter
from specdecode.drafters.merged import Merged
from specdecode.text.detokenize import Decoder
from specdecode.text.request import Request, open_session
from specdecode.types import Draft

EOS = TOKENIZER.eos_token_id
PROMPT = encode(TOKENIZER, "the stop the")
_LIKES, _ERROR = BranchLM(VOCAB, 1), BranchLM(VOCAB, 2, scale=0.7)
RULES = {"greedy": sd.Sampling(), "coupled": sd.Sampling(temperature=1.0, seed=6)}


def small(prefix: tuple[int, ...], i: int) -> Tensor:
    return _LIKES.law(prefix, i) + _ERROR.law(prefix, i)


def say(lm: Any, drafter: Drafter | None, grammar: sd.Grammar, **options: Any) -> sd.Completion:
    return sd.Model(lm, TOKENIZER, (EOS,)).generate(PROMPT, drafter=drafter, grammar=grammar, **options)


@pytest.mark.parametrize("beyond", [(3, 4, 5), (EOS, 3, 4), ()])
@pytest.mark.parametrize("text", ["abcstop", "abdstop"])
def test_a_window_that_runs_past_the_end(text: str, beyond: tuple[int, ...]) -> None:
    """Fault 31: the oracle drafts three tokens past the end of the grammar: no exception, valid, the right last
    token."""
    grammar = sd.Grammar.regex("(ab|the)(c|d)(stop|x+y)")
    script = [*encode(TOKENIZER, text), *beyond]
    for k in range(1, 8):
        answer = say(ScriptLM(script, VOCAB), oracle(script, k=k).drafter, grammar)
        assert (answer.text, answer.finish_reason) == (text, "grammar")
        assert answer.tokens == tuple(encode(TOKENIZER, text))
        assert answer.metrics.steps == (2 if k == 1 else 1)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("method", METHODS)
def test_no_method_trips_over_the_end(method: str, rule: str) -> None:
    """Fault 31: every drafter, over grammars that end soon and in many ways."""
    for pattern in ("(ab|the)(c|d)?", "(ab)+(END)?", "[abc]{1,3}"):
        grammar = sd.Grammar.regex(pattern)
        want = say(_LIKES, None, grammar, sampling=RULES[rule])
        done = say(_LIKES, build(method, StubLM(small, VOCAB)), grammar, sampling=RULES[rule])
        assert (done.tokens, done.finish_reason) == (want.tokens, want.finish_reason)
        assert re.fullmatch(pattern, done.text)


def test_a_constraint_that_begins_within_a_window() -> None:
    """Fault 32: free up to a marker, then digits. Of the draft [marker, bad, bad] the marker is accepted, and an
    allowed token stands where the first bad one was."""
    grammar = sd.Grammar.lark('start: FREE "END" /[0-9]{4}/\nFREE: /[a-z ]*/')
    (marker,), (bad,), free = (encode(TOKENIZER, text) for text in ("END", "stop", "the ab"))
    script = [*free, marker, bad, bad, bad, bad]
    want = say(ScriptLM(script, VOCAB), None, grammar)
    assert re.fullmatch("the abEND[0-9]{4}", want.text)
    for k in range(1, 9):
        assert say(ScriptLM(script, VOCAB), oracle(script, k=k).drafter, grammar).tokens == want.tokens
    lm, request = ScriptLM(script, VOCAB), Request(grammar=grammar)
    session, rule = open_session(lm, Decoder(TOKENIZER), tuple(PROMPT), (EOS,), sd.Sampling(), request)
    tokens, draft = [*PROMPT, *free], Draft.chain([marker, bad, bad])
    raw = 10 * torch.eye(VOCAB)[[marker, bad, bad, bad]]
    verdict = rule.verify(draft, session.filters.rows(raw, tokens, draft), session.noise, len(tokens))
    assert verdict.tokens == want.tokens[len(free) : len(free) + 2]


@pytest.mark.parametrize("rule", RULES)
def test_drafts_that_the_grammar_forbids_are_refused_in_silence(rule: str, caplog: pytest.LogCaptureFixture) -> None:
    """Fault 34: a drafter that always proposes a forbidden token: no log record, the loop ends, the text is that of
    plain decoding, so the matcher knows the committed tokens only."""
    grammar = sd.Grammar.regex("(ab|the|END|[0-9]){20}")
    want = say(_LIKES, None, grammar, sampling=RULES[rule]).tokens
    for words in ("stop", "\n\n", "abstop", "the\n\nab"):
        drafter = fix([*encode(TOKENIZER, words), EOS]).drafter
        assert say(_LIKES, drafter, grammar, sampling=RULES[rule]).tokens == want
        beside = Merged((fix(encode(TOKENIZER, "the")).drafter, drafter))
        assert say(_LIKES, beside, grammar, sampling=RULES[rule]).tokens == want
    assert not caplog.records
