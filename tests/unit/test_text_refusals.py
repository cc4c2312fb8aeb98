"""What a model is asked in vain is refused before any pass, in one line; and the chat template."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import texts
from stubs import Spy
from texts import PROMPT, TOKENIZER, VOCAB, WARM

import specdecode as sd
from specdecode.drafters.ngram import Ngram
from specdecode.errors import BadInput, BadOption, OutOfContext
from specdecode.models.lm import LM
from specdecode.verify.greedy import Greedy


def test_a_prompt_beyond_the_context_or_without_tokens_is_refused_before_any_pass(target: LM) -> None:
    spy = Spy(target)
    model = sd.Model(spy, TOKENIZER)
    with pytest.raises(OutOfContext, match="300"):
        model.generate([1] * 300)
    for nothing in ("", [], ()):
        with pytest.raises(BadInput, match="empty"):
            model.generate(nothing)
    with pytest.raises(BadInput, match="empty"):
        model.generate([[1], []])
    assert spy.passes == []


@pytest.mark.parametrize(
    "prompt",
    [None, 5, [1, "a"], [[1.5]], {"a": 1}, [1, True], b"ab", bytearray(b"ab"), memoryview(b"ab"), [b"ab"]],
)
def test_a_prompt_of_the_wrong_kind_is_refused(model: sd.Model, prompt: Any) -> None:
    with pytest.raises(BadInput, match="a prompt is a string or a sequence of token ids"):
        model.generate(prompt)


def test_text_that_is_no_unicode_is_refused(model: sd.Model) -> None:
    """Bytes of a file that are no UTF-8 arrive as surrogates."""
    for ask in (model.generate, model.stream, model.chat):
        with pytest.raises(BadInput, match=r"^the text holds '\\udcff' at character 2, .*UTF-8"):
            ask("ab\udcff")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 1.0}, r"sampling=Sampling\(temperature"),
        ({"stop": "x"}, r"limits=Limits\(stop"),
        ({"nonsense": 1}, "drafter, rule, sampling"),
        ({"drafter": "nonsense"}, "does not exist"),
        ({"drafter": "lm"}, r"draft_model\("),
        ({"drafter": sd.Model(texts.tiny_lm(0), TOKENIZER)}, r"drafter: a Model .*draft_model\("),
        ({"drafter": 3}, "drafter: int"),
        ({"drafter": ""}, "drafter '' does not exist"),
        ({"drafter": Ngram}, "drafter: the class Ngram"),
        ({"rule": 3}, "rule: int"),
        ({"rule": Ngram()}, "rule: Ngram"),
        ({"rule": Greedy}, "rule: the class Greedy"),
        ({"limits": {}}, "limits: dict"),
        ({"limits": sd.Limits}, "limits: the class Limits"),
        ({"sampling": None}, "sampling: NoneType"),
        ({"sampling": {}}, "sampling: dict"),
        ({"sampling": [1]}, "sampling: int"),
        ({"sampling": "greedy"}, "sampling: str"),
        ({"limits": {}, "max_new_tokens": 3}, "limits: dict"),
        ({"rule": "nonsense"}, "does not exist"),
        ({"rule": "greedy", "sampling": WARM}, "temperature 0"),
        ({"max_new_tokens": 0}, "max_new_tokens=0"),
        ({"max_new_tokens": 2, "limits": sd.Limits(min_new_tokens=3)}, "min_new_tokens=3"),
        ({"limits": sd.Limits(stop_ids=[VOCAB])}, "stop id"),
        ({"logprobs": -1}, "logprobs=-1"),
        ({"logprobs": True}, "logprobs=True"),
        ({"logprobs": VOCAB + 1}, "logprobs="),
        ({"n": 0}, "n=0"),
        ({"n": True}, "n=True"),
        ({"sampling": [WARM, WARM]}, "2 samplings for 1 prompts"),
        ({"sampling": sd.Sampling(suppress=[VOCAB])}, str(VOCAB)),
    ],
)
def test_an_option_that_cannot_be_honoured_is_refused_before_any_pass(
    target: LM, options: dict[str, Any], message: str
) -> None:
    """Fault 94 (library side): refused by name; the next request is served."""
    spy = Spy(target)
    model = sd.Model(spy, TOKENIZER)
    with pytest.raises(BadOption, match=message):
        model.generate(PROMPT, **options)
    assert spy.passes == []
    assert len(model.generate(PROMPT, max_new_tokens=3).tokens) == 3


def test_a_stop_id_that_is_none_is_refused() -> None:
    for strange in (-1, 1.5, True, "a"):
        with pytest.raises(BadOption, match="stop id"):
            sd.Limits(stop_ids=[strange])  # type: ignore[list-item]


@pytest.mark.parametrize("name", ["stop", "stop_ids"])
@pytest.mark.parametrize("value", [None, 5, {"a": 1}])
def test_stops_that_are_no_sequence_are_refused(name: str, value: Any) -> None:
    with pytest.raises(BadOption, match=f"{name}={value!r} is no sequence"):
        sd.Limits(**{name: value})


@pytest.mark.parametrize("name", ["include_stop", "ignore_eos"])
@pytest.mark.parametrize("value", ["no", 0, None])
def test_a_switch_is_true_or_false(name: str, value: Any) -> None:
    with pytest.raises(BadOption, match=f"{name}={value!r} is neither true nor false"):
        sd.Limits(**{name: value})


def test_numpys_whole_numbers_are_served(model: sd.Model) -> None:
    ids = [np.int64(i) for i in PROMPT]
    assert model.generate(ids, max_new_tokens=3).tokens == model.generate(PROMPT, max_new_tokens=3).tokens
    assert {type(i) for i in model.encode(ids)} == {int}
    three = np.int64(3)
    limits = sd.Limits(max_new_tokens=three, stop_ids=[np.int64(5)])  # type: ignore[arg-type, list-item]
    done = model.generate(PROMPT, limits=limits, logprobs=three)  # type: ignore[arg-type]
    wanted = model.generate(PROMPT, limits=sd.Limits(3, stop_ids=[5]), logprobs=3)
    assert (done.tokens, done.logprobs) == (wanted.tokens, wanted.logprobs)


def test_samples_of_a_list_of_prompts_are_refused(model: sd.Model) -> None:
    with pytest.raises(BadOption, match="2 prompts"):
        model.generate([[1], [2]], n=2)


def test_a_stream_and_a_chat_give_one_answer(model: sd.Model) -> None:
    for ask in (model.stream, model.chat):
        with pytest.raises(BadOption, match="no option 'n'"):
            ask("the END", n=2)


def test_a_stream_refuses_bad_input_when_it_is_asked_for(model: sd.Model) -> None:
    with pytest.raises(BadInput):
        model.stream("")


def test_chat_is_generate_over_the_template(model: sd.Model) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "the END"}]
    ids = model.chat_prompt(messages)
    shown = TOKENIZER.decode(list(ids))
    assert (
        shown == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nthe END<|im_end|>\n<|im_start|>assistant\n"
    )
    assert model.chat(messages, max_new_tokens=9).tokens == model.generate(ids, max_new_tokens=9).tokens
    assert model.chat_prompt("the END") == model.chat_prompt(messages[1:])


@pytest.mark.parametrize(
    "messages",
    [
        *([], None, 5, ["hi"], {"role": "user", "content": "x"}, [{"role": "user"}], [{"content": "x"}]),
        *([{"role": 5, "content": "x"}], [{"role": "user", "content": 5}], [{"role": "user", "content": ["x"]}]),
    ],
)
def test_messages_that_are_none_are_refused(model: sd.Model, messages: Any) -> None:
    with pytest.raises(BadInput, match="message"):
        model.chat_prompt(messages)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ 1/0 }}", "division by zero"),
        ("{{ 1 + 'a' }}", "unsupported operand"),
        ("{{ [1].index(2) }}", "not in list"),
        ("{{ '{1}'.format('a') }}", "out of range"),
        ("{{ messages.tags.here }}", "has no attribute 'tags'"),
        ("{% for", "unexpected|expected"),
        ({"first": "a", "second": "b"}, "multiple chat templates"),
    ],
)
def test_a_template_that_fails_is_told_in_one_line(target: LM, template: Any, words: str) -> None:
    tokenizer = texts.byte_level.__wrapped__()
    tokenizer.chat_template = template
    with pytest.raises(BadInput, match=f"^the model's chat template refuses these messages: .*({words})[^\n]*$"):
        sd.Model(target, tokenizer).chat("hi")


def test_a_template_that_refuses_and_a_missing_one_are_told_in_one_line(target: LM) -> None:
    strict = sd.Model(target, texts.byte_level("{{ raise_exception('no system\\nrole') }}"))
    with pytest.raises(BadInput, match="no system"):
        strict.chat("hi")
    bare = sd.Model(target, texts.byte_level(None))
    assert not bare.has_chat_template
    with pytest.raises(BadInput, match="no chat template"):
        bare.chat("hi")


def test_a_long_prompt_is_encoded_without_a_warning(target: LM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its refusal is one line; transformers would print another one first."""
    monkeypatch.setattr("transformers.tokenization_utils_base.logger.warning", pytest.fail)
    tokenizer = texts.byte_level.__wrapped__()
    tokenizer.model_max_length = 5
    model = sd.Model(target, tokenizer)
    assert len(model.encode("x" * 50)) == 50
    tokenizer.deprecation_warnings = {}  # transformers warns once
    assert len(model.chat_prompt("x" * 50)) > 50
