"""What an answer must look like, as a JSON schema, a regular expression or a grammar in Lark's form, and one session's
place in it. llguidance does the parsing; here it becomes a filter, an end and a source of drafts.

Knows tokenizers; no model, session or draft. A matcher is a function of the new tokens alone: it goes back and forth
between prefixes, so a rejected draft leaves no trace in it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from .errors import BadOption, Incompatible, shown

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer
    from llguidance._lib import JsonCompileOptions

WORDS = {"json_schema": "a JSON schema", "regex": "a regular expression", "lark": "a grammar in Lark's form"}
LONGEST = 300  # characters of a message: some of them list all special tokens
LAYOUT: JsonCompileOptions = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as Python's json.dumps writes it. Less is left to chance than with free white space, so more is forced."""
# [256, 8] what a byte of a mask, one bit a token and the lowest first, adds to scores.
_ADDED = torch.tensor([[0.0 if byte >> bit & 1 else -math.inf for bit in range(8)] for byte in range(256)])


@dataclass(frozen=True)
class Grammar:
    """What the whole answer must look like: made by `json_schema`, `regex` or `lark`.

    kind: which of the three; text: what was given to it.
    Raises BadOption where it cannot be read, or asks for what llguidance does not support."""

    kind: str
    text: str

    def __post_init__(self) -> None:
        if self.kind not in WORDS:
            raise BadOption(f"grammar: there is no kind {shown(self.kind)}; choose one of: {', '.join(WORDS)}")
        if not isinstance(self.text, str):
            raise BadOption(f"grammar: {shown(self.text)} is not {WORDS[self.kind]}; give it as a string")
        try:
            wrong, said = _matchers().validate_grammar_with_warnings(self._source())
        except (ValueError, RecursionError) as error:  # no JSON, no Unicode text, or nested without end
            wrong, said = True, [str(error)]
        if wrong:
            raise BadOption(f"grammar: {shown(self.text)} will not do as {WORDS[self.kind]}: {_in_one_line(said[0])}")

    @classmethod
    def json_schema(cls, schema: Mapping[str, Any] | str) -> Grammar:
        """JSON that fits a schema (an object, or its text), laid out as json.dumps does: one space after commas and
        colons, none elsewhere. The schema's own "x-guidance" entry may change that."""
        if isinstance(schema, str):
            return cls("json_schema", schema)
        try:
            text = json.dumps(dict(schema))
        except (TypeError, ValueError, RecursionError) as error:
            raise BadOption(f"grammar: {shown(schema)} will not do as a JSON schema: {error}") from error
        return cls("json_schema", text)

    @classmethod
    def regex(cls, pattern: str) -> Grammar:
        """Text that the regular expression (that of Rust's regex crate, without look-around) matches as a whole."""
        return cls("regex", pattern)

    @classmethod
    def lark(cls, text: str) -> Grammar:
        """Text of a context-free grammar in llguidance's variant of Lark's form, whose first rule is `start`."""
        return cls("lark", text)

    def matcher(
        self, tokenizer: Any, vocab: int, eos_ids: Sequence[int], prompt_length: int, ends: Collection[int]
    ) -> Matcher:
        """A place at the beginning of an answer, behind a prompt of `prompt_length` tokens.

        vocab: ids of the model; eos_ids: its end tokens; ends: the tokens that end this session.
        Raises Incompatible for a tokenizer that llguidance cannot read, and BadOption for a grammar that names a token
        which the tokenizer has not, or that no answer fits."""
        known = _VOCABULARIES.setdefault(tokenizer, {})
        key = (vocab, tuple(eos_ids))
        if key not in known:
            known[key] = _Vocabulary(tokenizer, vocab, eos_ids)
        banned = [token for token in known[key].ends if token not in ends]
        return Matcher(known[key].compiled(self).deep_copy(), prompt_length, banned)

    def _source(self) -> str:
        """The grammar as llguidance writes grammars."""
        if self.kind == "json_schema":
            if not isinstance(json.loads(self.text), dict | bool):
                raise ValueError("a schema is a JSON object")
            return _matchers().grammar_from_json_schema(self.text, defaults=LAYOUT)
        make = _matchers().grammar_from_regex if self.kind == "regex" else _matchers().grammar_from_lark
        return make(self.text)


class Matcher:
    """One session's place in a grammar. It serves as a filter of its rows (constraints.Filters), finds its end
    (stopping.Scanner), and says what is forced (drafters/forced.py).

    The grammar is complete once nothing may follow; that ends the answer. Where it may end or go on, the model's end
    tokens are allowed beside what may follow, but for those `banned`, which do not end this session."""

    def __init__(self, matcher: LLMatcher, prompt_length: int, banned: Sequence[int]) -> None:
        self._matcher = matcher
        self._prompt_length = prompt_length
        self._banned = torch.tensor(banned, dtype=torch.int64)
        self._read: list[int] = []  # the new tokens behind which the matcher stands

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """[1, T] a prefix, [1, V] its scores -> [1, V] without the tokens that may not follow. Prefixes beyond the end
        or outside of the grammar, of which nothing is kept, are not filtered."""
        if not self._follow(input_ids[0, self._prompt_length :].tolist()) or self._matcher.is_stopped():
            return scores
        mask = torch.from_numpy(np.frombuffer(bytearray(self._matcher.compute_bitmask()), np.uint8))
        self._check()
        added = embedding(mask.int(), _ADDED).view(-1)[: scores.shape[1]]
        added[self._banned] = -math.inf
        return scores + added.to(scores)

    def scan(self, tokens: Sequence[int]) -> int | None:
        """How many of the new tokens to keep: the last one completes the grammar. None where it is not complete."""
        self._follow(tokens)
        return len(self._read) if self._matcher.is_stopped() else None

    def forced(self, tokens: Sequence[int]) -> list[int]:
        """The tokens that must follow these new ones, as far as there is no choice."""
        if not self._follow(tokens) or self._matcher.is_stopped():
            return []
        return self._matcher.compute_ff_tokens()

    def _follow(self, tokens: Sequence[int]) -> bool:
        """Go to the place behind these new tokens; False, and as far as possible, where they leave the grammar."""
        same = min(len(self._read), len(tokens))
        if self._read[:same] != list(tokens[:same]):
            same = next(i for i in range(same) if self._read[i] != tokens[i])
        if same < len(self._read):
            self._matcher.rollback(len(self._read) - same)
            del self._read[same:]
        if same < len(tokens):
            new = list(tokens[same:])
            self._read += new[: self._matcher.try_consume_tokens(new)]
        self._check()
        return len(self._read) == len(tokens)

    def _check(self) -> None:
        if self._matcher.is_error():
            raise BadOption(f"the grammar cannot be followed beyond {len(self._read)} tokens: {_error(self._matcher)}")


class _Vocabulary:
    """A tokenizer as llguidance has it, which takes some 0.2 s to make, and what was lately compiled for it."""

    def __init__(self, tokenizer: Any, vocab: int, eos_ids: Sequence[int]) -> None:
        from llguidance.hf import from_tokenizer

        try:  # a model that names no end token: any special one may stand for it, being banned as such
            self._tokens: LLTokenizer = from_tokenizer(tokenizer, vocab, list(eos_ids or tokenizer.all_special_ids))
        except ValueError as error:
            raise Incompatible(f"a grammar needs a tokenizer that llguidance can read; this one: {error}") from error
        self.ends = tuple(self._tokens.eos_tokens)
        self.compiled = lru_cache(maxsize=16)(self._compile)

    def _compile(self, grammar: Grammar) -> LLMatcher:
        matcher = _matchers()(self._tokens, grammar._source(), log_level=0)
        matcher.compute_bitmask()
        if matcher.is_error():
            raise BadOption(f"grammar: {shown(grammar.text)} cannot be used with this model: {_error(matcher)}")
        return matcher


_VOCABULARIES: WeakKeyDictionary[Any, dict[tuple[int, tuple[int, ...]], _Vocabulary]] = WeakKeyDictionary()


def _matchers() -> type[LLMatcher]:
    from llguidance import LLMatcher

    return LLMatcher


def _error(matcher: LLMatcher) -> str:
    """What is wrong, without the matcher's state."""
    message = _in_one_line(matcher.get_error().partition("<state>")[0])
    return "there it needs more and allows nothing" if message == "NoExtensionBias" else message


def _in_one_line(message: str) -> str:
    """llguidance's message without the picture of the place that it speaks of."""
    lines = [line for line in message.splitlines() if not re.match(r"\s*(\d+ \||[\^~ ]*$)", line)]
    return " ".join(" ".join(lines).split())[:LONGEST]
