"""A grammar, and one session's place in it: what may follow, what must, and where it is complete."""

from __future__ import annotations

import gc
import json
import random
import re
from collections.abc import Sequence
from functools import reduce
from typing import Any

import pytest
import texts
import torch

from specdecode import grammar as unit
from specdecode.errors import BadOption, Incompatible
from specdecode.grammar import Grammar, Matcher

TOKENIZER = texts.byte_level()
V, EOS, OTHER_EOS = len(TOKENIZER), 277, 279
PROMPT = [10, 20, 30]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "tags": {"type": "array", "items": {"enum": ["abyss", "aby"]}, "maxItems": 2},
    },
    "required": ["name", "tags"],
    "additionalProperties": False,
}
GRAMMARS = {
    "json": Grammar.json_schema(SCHEMA),
    "regex": Grammar.regex("(abc|abyx)*(the|The) ok[0-9]{2}END(stop|the)"),
    "lark": Grammar.lark('start: e\ne: t ("+" t)*\nt: /[0-9]{1,3}/ | "(" e ")" | "the" "stop"'),
}


def begin(
    grammar: Grammar, ends: Sequence[int] = (EOS, OTHER_EOS), eos: Sequence[int] = (EOS, OTHER_EOS), vocab: int = V
) -> Matcher:
    return grammar.matcher(TOKENIZER, vocab, eos, len(PROMPT), ends)


def ids(text: str) -> list[int]:
    return texts.encode(TOKENIZER, text)


def allowed(matcher: Matcher, new: Sequence[int], vocab: int = V) -> list[int]:
    """The ids that may follow these new tokens."""
    scores = matcher(torch.tensor([[*PROMPT, *new]]), torch.linspace(-1, 1, vocab)[None])
    assert scores.shape == (1, vocab)
    kept = scores[0] > -torch.inf
    assert scores[0, kept].equal(torch.linspace(-1, 1, vocab)[kept]), "what may follow keeps its score"
    return kept.nonzero().flatten().tolist()


def written(tokens: Sequence[int]) -> list[str]:
    return [TOKENIZER.decode([token]) for token in tokens]


# --- what may follow --------------------------------------------------------------------------------------------------


def test_what_may_follow_is_what_the_expression_allows() -> None:
    matcher = begin(Grammar.regex("(ab|the) ?(c|d)"))
    assert written(allowed(matcher, [])) == ["a", "t", "th", "the", "ab"]
    assert written(allowed(matcher, ids("ab"))) == ["c", "d", " "]
    assert written(allowed(matcher, [*ids("th")])) == ["e"]


def test_scores_are_left_as_they_came() -> None:
    scores = torch.zeros(1, V)
    begin(GRAMMARS["regex"])(torch.tensor([PROMPT]), scores)
    assert scores.equal(torch.zeros(1, V))


def test_ids_beyond_the_tokenizer_never_may() -> None:
    assert max(allowed(begin(Grammar.regex("(.|\n)*"), vocab=V + 40), [], V + 40)) < V


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_matcher_is_a_function_of_the_new_tokens(name: str) -> None:
    """Whatever it was asked before, forth, back and beside: it answers as a fresh one that reads the tokens."""
    matcher = begin(GRAMMARS[name])
    for seed in range(25):
        rng, path = random.Random(seed), list[int]()
        for _ in range(25):
            may = allowed(begin(GRAMMARS[name]), path)
            for question in rng.sample(("may", "must", "end"), 3):
                if question == "may":
                    assert allowed(matcher, path) == may
                elif question == "must":
                    assert matcher.forced(path) == begin(GRAMMARS[name]).forced(path)
                else:
                    assert matcher.scan(path) == begin(GRAMMARS[name]).scan(path)
            matcher.scan([*path, *(rng.randrange(V) for _ in range(3))])
            on = [token for token in may if token not in (EOS, OTHER_EOS)]
            complete = matcher.scan(path) is not None
            path = path[: -rng.randint(1, len(path))] if complete or not on else [*path, rng.choice(on)]


def fits(name: str, text: str) -> bool:
    """Whether a text is one of the grammar, by other means."""
    if name == "json":
        return set(json.loads(text)) == {"name", "tags"}
    if name == "regex":
        return re.fullmatch(GRAMMARS["regex"].text, text) is not None
    text = text.replace("thestop", "1")
    while (less := re.sub(r"\([0-9]{1,3}(\+[0-9]{1,3})*\)", "1", text)) != text:
        text = less
    return re.fullmatch(r"[0-9]{1,3}(\+[0-9]{1,3})*", text) is not None


@pytest.mark.parametrize("name", GRAMMARS)
def test_what_a_random_walk_writes_fits_the_grammar(name: str) -> None:
    whole = 0
    for seed in range(40):
        rng, path = random.Random(seed), list[int]()
        matcher = begin(GRAMMARS[name])
        while matcher.scan(path) is None and len(path) < 60:
            may = allowed(matcher, path)
            if EOS in may and rng.random() < 0.5:
                break
            path.append(rng.choice([token for token in may if token not in (EOS, OTHER_EOS)]))
        if len(path) < 60:
            assert fits(name, TOKENIZER.decode(path)), path
            whole += 1
    assert whole > 10


# --- where it ends ----------------------------------------------------------------------------------------------------


def test_end_tokens_may_follow_where_the_answer_may_end() -> None:
    matcher = begin(Grammar.regex("ab(ab)*"))
    assert EOS not in allowed(matcher, [])
    assert allowed(matcher, ids("ab")) == [ids("a")[0], *ids("ab"), EOS, OTHER_EOS]
    assert matcher.scan(ids("ab")) is None


def test_end_tokens_that_do_not_end_the_session_never_may() -> None:
    assert allowed(begin(Grammar.regex("ab(ab)*"), ends=(OTHER_EOS,)), ids("ab"))[-2:] == [*ids("ab"), OTHER_EOS]
    assert allowed(begin(Grammar.regex("ab(ab)*"), ends=()), ids("ab"))[-1:] == ids("ab")


def test_it_is_complete_where_nothing_may_follow() -> None:
    matcher = begin(Grammar.regex("ab(c|dd)"))
    assert matcher.scan(ids("ab")) is None
    assert matcher.scan(ids("abc")) == 2
    assert matcher.scan(ids("abdd")) == 3
    assert matcher.scan([*ids("abc"), *ids("the"), EOS]) == 2, "the first place counts"
    assert matcher.scan(ids("abd")) is None, "and it can be taken back"


def test_nothing_is_filtered_or_forced_where_nothing_is_kept() -> None:
    """Fault 31: rows behind the end, behind an end token and outside of the grammar."""
    matcher = begin(Grammar.regex("ab(c|dd)*"))
    for new in ([*ids("abc"), EOS], [*ids("ab"), EOS, 3], [*ids("ab"), 3], [5], [EOS, *ids("ab")]):
        assert allowed(matcher, new) == list(range(V))
        assert matcher.forced(new) == []
    assert EOS in allowed(matcher, ids("ab"))
    complete = begin(Grammar.regex("ab(c|dd)"))
    assert allowed(complete, ids("abc")) == list(range(V))


def test_a_grammar_that_leads_nowhere_says_so() -> None:
    matcher = begin(Grammar.lark('start: "ab" x | "the"\nx: x "c"'))
    assert EOS not in allowed(matcher, [])
    assert matcher.scan(ids("ab")) is None
    with pytest.raises(BadOption, match="cannot be followed beyond 1 tokens: there it needs more and allows nothing"):
        allowed(matcher, ids("ab"))


# --- what must follow -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GRAMMARS)
def test_forced_tokens_are_the_only_ones_allowed(name: str) -> None:
    """Each of them, where those before it stand: their probability is 1."""
    seen = 0
    for seed in range(20):
        rng, path, matcher = random.Random(seed), list[int](), begin(GRAMMARS[name])
        while matcher.scan(path) is None and len(path) < 30:
            forced = matcher.forced(path)
            for i, token in enumerate(forced):
                assert allowed(matcher, [*path, *forced[:i]]) == [token]
            seen += len(forced)
            on = [token for token in allowed(matcher, path) if token not in (EOS, OTHER_EOS)]
            path.append(rng.choice(on))
    assert seen > 20


def test_json_is_laid_out_as_pythons() -> None:
    """So that keys and what stands between them is forced."""
    matcher = begin(GRAMMARS["json"])
    assert TOKENIZER.decode(matcher.forced([])) == '{"name": "'
    assert TOKENIZER.decode(matcher.forced(ids('{"name": "abcd'))) == '", "tags": ['
    free = begin(Grammar.json_schema({**SCHEMA, "x-guidance": {"whitespace_flexible": True}}))
    assert {" ", "\n"} <= set(written(allowed(free, ids("{")))), "the schema's own wish comes first"


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Grammar.regex("(ab"), "unclosed group"),
        (lambda: Grammar.regex("(?=a)b"), "look-around"),
        (lambda: Grammar.regex("\ud800"), "surrogates"),
        (lambda: Grammar.regex(3), "3 is not a regular expression"),  # type: ignore[arg-type]
        (lambda: Grammar.lark("start: foo"), 'unknown name: "foo"'),
        (lambda: Grammar.lark(""), "Empty grammar"),
        (lambda: Grammar.json_schema("{oops"), "property name"),
        (lambda: Grammar.json_schema("[1]"), "a schema is a JSON object"),
        (lambda: Grammar.json_schema({"type": "foo"}), "Invalid type: foo"),
        (lambda: Grammar.json_schema({"type": "array", "uniqueItems": True}), "uniqueItems"),
        (lambda: Grammar.json_schema({"type": "string", "format": "verse"}), "Unknown format: verse"),
        (lambda: Grammar.json_schema({"enum": [set()]}), "not JSON serializable"),
        (lambda: Grammar.json_schema([1]), "[1]"),  # type: ignore[arg-type]
        (lambda: Grammar("gbnf", "x"), "choose one of: json_schema, regex, lark"),
    ],
)
def test_what_is_no_grammar_is_refused_in_one_line(make: Any, said: str) -> None:
    with pytest.raises(BadOption) as refused:
        make()
    assert said in str(refused.value)
    assert str(refused.value).startswith("grammar: ")
    assert "\n" not in str(refused.value)


def test_a_grammar_that_no_answer_fits_is_refused() -> None:
    with pytest.raises(BadOption, match="cannot be used with this model: there it needs more and allows nothing"):
        begin(Grammar.lark('start: start "b"'))


@pytest.mark.parametrize("schema", [{"type": "foo"}, reduce(lambda inner, _: {"items": inner}, range(5000), {})])
def test_a_schema_is_refused_once(schema: Any) -> None:
    with pytest.raises(BadOption) as refused:
        Grammar.json_schema(schema)
    assert str(refused.value).count("will not do") == 1


def test_a_text_that_is_nested_without_end_is_refused() -> None:
    with pytest.raises(BadOption, match="will not do as a JSON schema"):
        Grammar.json_schema('{"not":' * 100_000)


def test_a_grammar_of_the_empty_answer() -> None:
    assert allowed(begin(Grammar.regex("")), []) == [EOS, OTHER_EOS]


def test_a_grammar_that_names_a_token_which_there_is_not() -> None:
    assert written(allowed(begin(Grammar.lark('start: <|im_start|> "a"')), [])) == ["<|im_start|>"]
    with pytest.raises(BadOption, match=r"cannot be used with this model: .*unknown special token"):
        begin(Grammar.lark('start: <|other|> "a"'))


def test_a_tokenizer_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(Incompatible, match="a grammar needs a tokenizer that llguidance can read"):
        GRAMMARS["regex"].matcher(texts.word_piece(), 100, [1], 3, [1])
    with pytest.raises(Incompatible, match="vocab size too small"):
        begin(GRAMMARS["regex"], vocab=V - 1)


def test_a_model_without_end_tokens_is_served() -> None:
    matcher = begin(Grammar.regex("ab(ab)*"), eos=(), ends=())
    assert written(allowed(matcher, ids("ab"))) == ["a", "ab"]


def test_a_tokenizer_of_byte_fallback_is_served() -> None:
    tokenizer = texts.byte_fallback()
    matcher = Grammar.regex("the ok").matcher(tokenizer, len(tokenizer), [tokenizer.eos_token_id], 0, [])
    forced = matcher.forced([])
    assert matcher.scan(forced) == len(forced)
    assert tokenizer.decode(forced) == "the ok"


def test_what_was_compiled_goes_with_its_tokenizer() -> None:
    """A tokenizer is read once, and nothing of it is kept when it is gone."""
    import copy

    tokenizer = copy.deepcopy(TOKENIZER)
    before = len(unit._VOCABULARIES)
    for _ in range(2):
        GRAMMARS["regex"].matcher(tokenizer, V, [EOS], 3, [EOS])
    ((vocabulary,),) = [entry.values() for key, entry in unit._VOCABULARIES.items() if key is tokenizer]
    assert vocabulary.compiled.cache_info().hits == 1
    del vocabulary, tokenizer
    gc.collect()
    assert len(unit._VOCABULARIES) == before
