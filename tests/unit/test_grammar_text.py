"""A grammar as an option of a request: what it does to answers, and to all that a user may ask for beside it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import texts
from stubs import BranchLM, ScriptLM, Spy, StubLM, oracle, stub
from texts import TOKENIZER, VOCAB, encode

import specdecode as sd
from specdecode.errors import BadOption, Incompatible
from specdecode.types import Draft

EOS = TOKENIZER.eos_token_id
PROMPT = encode(TOKENIZER, "the stop the")
LETTERS = sd.Grammar.regex("(ab|the|END)(c|d)(stop|ab|x{3})")
LOOP = sd.Grammar.regex("(ab)+")
RECORD = sd.Grammar.json_schema(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 4}, "tags": {"enum": ["abyss", "theend", 17]}},
        "required": ["name", "tags"],
        "additionalProperties": False,
    }
)
DRAFTERS = [None, "forced", "ngram", "auto"]


def model(lm: Any = None, eos: tuple[int, ...] = (EOS,)) -> sd.Model:
    return sd.Model(lm or BranchLM(VOCAB, 1), TOKENIZER, eos)


def says(text: str, *then: int) -> sd.Model:
    """A model that wants to say a text, whatever came before, and EOS after it."""
    return model(ScriptLM([*encode(TOKENIZER, text), *then], VOCAB, filler=EOS))


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("sampling", [sd.Sampling(), sd.Sampling(temperature=1.5, seed=4)], ids=["greedy", "sampled"])
def test_the_answer_fits(drafter: str | None, sampling: sd.Sampling) -> None:
    answer = model().generate(PROMPT, grammar=LETTERS, drafter=drafter, sampling=sampling)
    assert re.fullmatch(LETTERS.text, answer.text)
    record = model().generate(PROMPT, grammar=RECORD, drafter=drafter, sampling=sampling)
    assert list(json.loads(record.text)) == ["name", "tags"]
    assert answer.finish_reason == record.finish_reason == "grammar"


def test_chat_takes_a_grammar() -> None:
    assert re.fullmatch(LETTERS.text, model().chat("the stop", grammar=LETTERS).text)


def test_what_a_model_would_have_said_is_kept_where_it_may() -> None:
    assert says("abcstop").generate(PROMPT, grammar=LETTERS).text == "abcstop"
    assert says("the end").generate(PROMPT, grammar=LETTERS).text.startswith("the")


# --- how an answer ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_complete_grammar_ends_the_answer(drafter: str | None) -> None:
    """At once: no end token is asked for, and the tokens are those of the text alone."""
    answer = says("abcstop").generate(PROMPT, grammar=LETTERS, drafter=drafter)
    assert (answer.text, answer.finish_reason) == ("abcstop", "grammar")
    assert answer.tokens == tuple(encode(TOKENIZER, "abcstop"))


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_where_it_may_end_the_model_decides(drafter: str | None) -> None:
    answer = says("ababab").generate(PROMPT, grammar=LOOP, drafter=drafter)
    assert (answer.text, answer.finish_reason) == ("ababab", "eos")
    assert answer.tokens[-1] == EOS


@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize(
    ("grammar", "limits", "text", "reason"),
    [
        (LETTERS, {"ignore_eos": True}, "abcstop", "grammar"),
        (LETTERS, {"min_new_tokens": 30}, "abcstop", "grammar"),
        (LOOP, {"ignore_eos": True, "max_new_tokens": 5}, r"a?b?(ab)*a?b?", "length"),
        (LOOP, {"min_new_tokens": 8}, "(ab)+", "eos"),
        (LETTERS, {"max_new_tokens": 2}, "abc", "length"),
        (LETTERS, {"max_new_tokens": 3}, "abcstop", "grammar"),
        (LETTERS, {"stop": ["bc"]}, "a", "stop"),
        (LETTERS, {"stop": ["stop"], "include_stop": True}, "abcstop", "stop"),
        (LETTERS, {"stop_ids": [encode(TOKENIZER, "c")[0]]}, "abc", "eos"),
    ],
)
def test_limits_act_beside_it(
    drafter: str | None, grammar: sd.Grammar, limits: dict[str, Any], text: str, reason: str
) -> None:
    """A complete grammar ends an answer whatever the shortest length, as a stop string does; an answer that is cut off
    by its length says so."""
    wants = says("abcstop" if grammar is LETTERS else "ab")
    answer = wants.generate(PROMPT, grammar=grammar, drafter=drafter, limits=sd.Limits(**limits))
    assert re.fullmatch(text, answer.text)
    assert answer.finish_reason == reason
    assert EOS not in answer.tokens or not limits.get("ignore_eos")


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_model_without_end_tokens_ends(drafter: str | None) -> None:
    answer = model(eos=()).generate(PROMPT, grammar=LETTERS, drafter=drafter)
    assert re.fullmatch(LETTERS.text, answer.text)
    assert answer.finish_reason == "grammar"


def test_it_ends_within_an_accepted_run() -> None:
    """The draft goes on behind the end; nothing of that is kept, counted or shown."""
    script = [*encode(TOKENIZER, "abcstop"), 3, 4, 5, 6]
    drafter = oracle(script, k=8)
    pieces = list(model(ScriptLM(script, VOCAB)).stream(PROMPT, grammar=LETTERS, drafter=drafter))
    done = pieces[-1].completion
    assert done is not None
    assert (done.text, done.finish_reason, done.metrics.steps) == ("abcstop", "grammar", 1)
    assert "".join(piece.text for piece in pieces) == "abcstop"
    assert sum(len(piece.tokens) for piece in pieces) == len(done.tokens) == done.metrics.emitted


@pytest.mark.parametrize("rule", ["greedy", "coupled", "rejection", "block", "traversal", "kseq", "lenient", "typical"])
def test_every_rule_may_read_behind_the_end(rule: str) -> None:
    """Where no end token may stand, nothing may follow at all; no rule meets such a law."""
    drafter = stub(lambda row, turn, session, budget: Draft.chain(encode(TOKENIZER, "abcstop the ok")[: budget.depth]))
    answer = says("abcstop").generate(
        PROMPT,
        grammar=LETTERS,
        drafter=drafter.drafter,
        rule=rule,
        sampling=sd.Sampling(temperature=0 if rule == "greedy" else 0.3, seed=1),
        limits=sd.Limits(ignore_eos=True),
    )
    assert re.fullmatch(LETTERS.text, answer.text)
    assert answer.finish_reason == "grammar"


# --- beside everything else -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_batches_streams_and_logprobs_are_as_ever(drafter: str | None) -> None:
    prompts = [PROMPT, encode(TOKENIZER, "ab"), encode(TOKENIZER, "ok END the ok END")]
    options: Any = {
        "grammar": RECORD,
        "drafter": drafter,
        "logprobs": 1,
        "sampling": sd.Sampling(temperature=1, seed=2),
    }
    together = model().generate(prompts, **options)
    for prompt, answer in zip(prompts, together, strict=True):
        alone = model().generate(prompt, **options)
        *_, last = model().stream(prompt, **options)
        assert last.completion is not None
        assert answer.tokens == alone.tokens == last.completion.tokens
        assert answer.logprobs == alone.logprobs
        assert len(answer.logprobs or ()) == len(answer.tokens)
    assert len({answer.tokens for answer in together}) == 3


def test_samples_differ_and_all_fit() -> None:
    answers = model().generate(PROMPT, n=6, grammar=LETTERS, sampling=sd.Sampling(temperature=2, seed=1))
    assert len({answer.text for answer in answers}) > 2
    assert all(re.fullmatch(LETTERS.text, answer.text) for answer in answers)


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_bans_and_processors_act_beside_it(drafter: str | None) -> None:
    """They choose among what the grammar allows, and see its scores, as long as it is not complete."""
    seen: list[int] = []

    def count(ids: Any, scores: Any) -> Any:
        if ids.shape[1] < len(PROMPT) + 3:
            seen.append(int((scores > -float("inf")).sum()))
        return scores

    ab = encode(TOKENIZER, "ab")[0]
    law = sd.Sampling(suppress=(ab, encode(TOKENIZER, "a")[0]), processors=(count,))
    answer = says("abcstop").generate(PROMPT, grammar=LETTERS, drafter=drafter, sampling=law)
    assert re.fullmatch("(the|END)[cd](stop|xxx)", answer.text)
    assert 0 < max(seen) < 10


def test_what_excludes_all_that_is_allowed_is_an_error() -> None:
    c, d = encode(TOKENIZER, "cd")
    with pytest.raises(BadOption, match=r"no token may stand at position .*grammar.* exclude all"):
        model().generate(PROMPT, grammar=LETTERS, sampling=sd.Sampling(suppress=(c, d)))


def test_one_grammar_serves_many_models_and_calls() -> None:
    """What is compiled is kept by tokenizer, vocabulary and end tokens; answers do not depend on earlier ones."""
    first = model().generate(PROMPT, grammar=RECORD)
    other = model(eos=(EOS, 3)).generate(PROMPT, grammar=RECORD)
    wide = sd.Model(
        StubLM(lambda prefix, i: BranchLM(VOCAB, 1).law(prefix, i).new_zeros(VOCAB + 9), VOCAB + 9), TOKENIZER
    )
    assert json.loads(wide.generate(PROMPT, grammar=RECORD).text)
    assert first.tokens == other.tokens == model().generate(PROMPT, grammar=RECORD).tokens


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("grammar", "error", "said"),
    [
        ({"type": "object"}, BadOption, "grammar: dict will not do; give Grammar.json_schema"),
        (sd.Grammar, BadOption, "grammar: the class Grammar will not do"),
        (sd.Grammar.lark('start: <|nothing|> "a"'), BadOption, "unknown special token"),
        (sd.Grammar.lark('start: start "b"'), BadOption, "cannot be used with this model"),
    ],
)
def test_a_grammar_that_cannot_be_honoured_is_refused_before_any_pass(grammar: Any, error: Any, said: str) -> None:
    lm = Spy(texts.tiny_lm())
    with pytest.raises(error, match=said):
        model(lm).generate(PROMPT, grammar=grammar)
    assert not lm.passes + lm.reads


def test_a_tokenizer_that_cannot_be_read_is_refused_before_any_pass() -> None:
    tokenizer = texts.word_piece()
    lm = Spy(BranchLM(len(tokenizer)))
    with pytest.raises(Incompatible, match="a grammar needs a tokenizer that llguidance can read"):
        sd.Model(lm, tokenizer).generate([1, 2], grammar=LETTERS)
    assert not lm.passes + lm.reads
