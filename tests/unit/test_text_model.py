"""Model: prompts to answers and streams. Batches, logprobs, limits, drafters."""

from __future__ import annotations

import json
from typing import Any

import pytest
import texts
import torch
from enroll import METHODS, build
from stubs import ScriptLM, mix, oracle, plain, stub
from texts import PROMPT, TOKENIZER, VOCAB, WARM

import specdecode as sd
from specdecode.drafters.ngram import Ngram
from specdecode.models.lm import LM
from specdecode.types import EMPTY


@pytest.fixture(scope="module")
def small() -> LM:
    return texts.tiny_lm(1)


def scripted(script: list[int], **options: Any) -> sd.Model:
    return sd.Model(ScriptLM(script, VOCAB), TOKENIZER, **options)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("sampling", [sd.Sampling(), WARM], ids=["greedy", "coupled"])
def test_stream_answer_and_plain_decoding_are_one(
    model: sd.Model, small: LM, method: str, sampling: sd.Sampling
) -> None:
    """Fault 89: streamed ids = returned ids = plain ids, each once, in order; one end."""
    options = {"sampling": sampling, "max_new_tokens": 12, "drafter": build(method, small)}
    pieces = list(model.stream(PROMPT, **options))
    done = model.generate(PROMPT, **options)
    base = model.generate(PROMPT, **{**options, "drafter": None})
    assert [token for piece in pieces for token in piece.tokens] == list(done.tokens) == list(base.tokens)
    assert "".join(piece.text for piece in pieces) == done.text == texts.full(TOKENIZER, done.tokens)
    assert [piece.finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + ["length"]
    assert pieces[-1].completion is not None
    assert pieces[-1].completion.tokens == done.tokens


def test_plain_decoding_is_greedy_decoding_of_the_raw_logits(model: sd.Model, target: LM) -> None:
    assert list(model.generate(PROMPT, drafter=None, max_new_tokens=20).tokens) == plain(target, PROMPT, 20)


def test_pieces_tell_drafted_tokens_from_the_targets_own() -> None:
    script = list(range(100, 120))
    pieces = list(scripted(script).stream([1], drafter=mix(script, [2, 0], vocab=VOCAB), max_new_tokens=8))
    assert [(p.tokens, p.drafted) for p in pieces[:4]] == [
        ((100, 101), True),
        ((102,), False),
        ((103,), False),
        ((104, 105), True),
    ]


def test_nothing_follows_an_end_token_inside_a_draft() -> None:
    """Fault 38: streamed text and ids end with it; with ignore_eos the answer has full length."""
    script = [65, 66, 67, 200, 68, 69, 70]
    model, drafter = scripted(script, eos_ids=[200]), oracle(script, 8)
    pieces = list(model.stream([1], drafter=drafter, max_new_tokens=7))
    assert [token for piece in pieces for token in piece.tokens] == script[:4]
    assert pieces[-1].finish_reason == "eos"
    free = model.generate([1], drafter=drafter, limits=sd.Limits(7, ignore_eos=True))
    assert (list(free.tokens), free.finish_reason) == (script, "length")
    user = model.generate([1], drafter=drafter, limits=sd.Limits(7, ignore_eos=True, stop_ids=[script[5]]))
    assert (list(user.tokens), user.finish_reason) == (script[:6], "eos")


@pytest.mark.parametrize("pattern", [[2, 0, 4], [4], [0]])
def test_logprobs_are_those_of_a_teacher_forced_pass(target: LM, pattern: list[int]) -> None:
    """Fault 92: raw log-probabilities, for accepted, corrected and bonus tokens, with a temperature on."""
    model, sampling = sd.Model(target, TOKENIZER), sd.Sampling(temperature=0.5, top_k=20, seed=3)
    base = model.generate(PROMPT, drafter=None, sampling=sampling, max_new_tokens=20)
    drafter = mix(base.tokens, pattern, vocab=VOCAB)
    done = model.generate(PROMPT, drafter=drafter, sampling=sampling, max_new_tokens=20, logprobs=3)
    assert done.tokens == base.tokens
    assert base.logprobs is None
    assert done.logprobs is not None
    with torch.no_grad():
        logits = target.model(torch.tensor([[*PROMPT, *done.tokens]])).logits[0, len(PROMPT) - 1 : -1]
    wanted = logits.float().log_softmax(-1)
    for entry, row, token in zip(done.logprobs, wanted, done.tokens, strict=True):
        assert entry.token == token
        assert entry.logprob == pytest.approx(float(row[token]), abs=1e-4)
        assert list(entry.top.values()) == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)
        assert list(entry.top) == row.topk(3).indices.tolist()


def test_streamed_logprobs_are_the_answers() -> None:
    script = list(range(100, 120))
    pieces = list(scripted(script).stream([1], drafter=oracle(script, 3), max_new_tokens=20, logprobs=1))
    done = pieces[-1].completion
    assert done is not None
    assert [entry for piece in pieces for entry in piece.logprobs or ()] == list(done.logprobs or ())


def test_each_row_of_a_ragged_batch_is_its_single_answer(model: sd.Model) -> None:
    prompts = ["the END", "ab", "é漢字 the the the"]
    batch = model.generate(prompts, max_new_tokens=25)
    assert [done.tokens for done in batch] == [model.generate(p, max_new_tokens=25).tokens for p in prompts]
    assert [done.prompt_tokens for done in batch] == [len(model.encode(p)) for p in prompts]


def test_the_context_ends_an_answer_before_its_length_does() -> None:
    lm = ScriptLM([5] * 50, VOCAB, context=10)
    model = sd.Model(lm, TOKENIZER)
    done = model.generate([1, 2, 3], limits=sd.Limits(50, min_new_tokens=40))
    assert (len(done.tokens), done.finish_reason) == (7, "context")
    assert model.generate([1, 2, 3], max_new_tokens=7).finish_reason == "length"


def test_an_answer_names_its_drafter(model: sd.Model) -> None:
    drafters = [None, "ngram", "null", Ngram(k=2), stub(lambda *_: EMPTY)]
    names = [model.generate(PROMPT, drafter=d, max_new_tokens=1).drafter for d in drafters]
    assert names == ["null", "ngram", "null", "ngram", "stub"]


def test_draft_length_reaches_the_drafter_and_ends_with_the_call(small: LM) -> None:
    """Fault 139: k=3 drafts 3 tokens and never more; the next call is back to its own."""
    script = [7, 8, 9] * 20
    model = scripted(script)

    def longest(drafter: Any) -> int:
        return len(model.generate([7, 8, 9], drafter=drafter, max_new_tokens=40).metrics.histogram) - 1

    assert longest(Ngram(k=3)) == 3
    assert longest("ngram") == Ngram().k
    assert longest(sd.make_drafter("ngram", k=5)) == 5
    assert longest("ngram") == Ngram().k


def test_a_stream_left_early_or_broken_by_its_consumer_leaves_the_model_sound(model: sd.Model) -> None:
    wanted = model.generate(PROMPT, max_new_tokens=20).tokens
    left = model.stream(PROMPT, max_new_tokens=20)
    next(left)
    left.close()
    broken = model.stream(PROMPT, max_new_tokens=20)
    with pytest.raises(ZeroDivisionError):
        [1 // 0 for piece in broken]
    first, second = model.stream(PROMPT, max_new_tokens=20), model.stream([1, 2], max_new_tokens=20)
    mixed = [piece for pair in zip(first, second, strict=False) for piece in pair]
    assert mixed
    assert model.generate(PROMPT, max_new_tokens=20).tokens == wanted


def test_a_completion_is_ready_for_json(model: sd.Model) -> None:
    done = model.generate(PROMPT, max_new_tokens=5, logprobs=1)
    told = json.loads(json.dumps(done.to_dict()))
    assert told["tokens"] == list(done.tokens)
    assert told["logprobs"][0]["token"] == done.tokens[0]
    assert told["metrics"]["emitted"] == 5
    assert told["tokens_per_second"] == pytest.approx(done.tokens_per_second)
    assert done.decode_s >= done.metrics.target_s
