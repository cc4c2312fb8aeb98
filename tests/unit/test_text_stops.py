"""Stop strings: the token that completes one, whatever steps it came in, and the text that is shown meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import texts
from hypothesis import given, settings
from hypothesis import strategies as st
from stubs import ScriptLM, oracle
from texts import TOKENIZER

from specdecode.errors import BadOption
from specdecode.text.detokenize import Decoder
from specdecode.text.model import Model
from specdecode.text.request import Limits
from specdecode.text.stops import StopStrings, Writer

DECODER = Decoder(TOKENIZER)
FALLBACK = Decoder(texts.byte_fallback())


def chars(text: str) -> list[int]:
    """One token a character (ASCII)."""
    return [texts.encode(TOKENIZER, char)[0] for char in text]


def scripted(text: str) -> Model:
    return Model(ScriptLM(chars(text), len(TOKENIZER)), TOKENIZER)


def first_complete(decoder: Decoder, tokens: Sequence[int], stops: Sequence[str]) -> int | None:
    """By the definition: the fewest tokens whose whole text holds a stop string."""
    counts = range(1, len(tokens) + 1)
    return next((n for n in counts if any(stop in decoder.decode(tokens[:n]) for stop in stops)), None)


STOPS = st.lists(st.sampled_from(["ab", "b", "aab", "END", "\n", " the", "é", "🙂", "D\n"]), min_size=1, max_size=3)
SOUP = st.text(st.sampled_from("abEND\n theé🙂"), max_size=40)


@settings(max_examples=150, deadline=None)
@given(SOUP, STOPS, st.lists(st.integers(1, 9), min_size=1), st.booleans())
def test_scanner_finds_the_completing_token_in_steps_of_any_size(
    text: str, stops: list[str], sizes: list[int], bytes_fall_back: bool
) -> None:
    """Faults 41, 44: early in a long run, and across the border of two steps."""
    decoder = FALLBACK if bytes_fall_back else DECODER
    tokens = texts.encode(decoder.tokenizer, text)
    wanted, scanner, seen, step = first_complete(decoder, tokens, stops), StopStrings(decoder, stops), 0, 0
    while seen < len(tokens):
        seen, step = seen + sizes[step % len(sizes)], step + 1
        found = scanner.scan(tokens[:seen])
        if found is not None:
            assert found == wanted
            return
        assert wanted is None or wanted > seen
    assert wanted is None


def test_scanner_forgets_tokens_that_were_taken_back() -> None:
    scanner = StopStrings(DECODER, ["END"])
    assert scanner.scan(chars("xxE")) is None
    assert scanner.scan(chars("xxEN")) is None
    assert scanner.scan(chars("xxDND")) is None
    assert scanner.scan(chars("xxEND!")) == 5
    assert scanner.scan(chars("xxEND!")) == 5


def test_scanner_decodes_each_token_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, decoded = Decoder(TOKENIZER), []
    decode = decoder.decode
    monkeypatch.setattr(decoder, "decode", lambda ids: decoded.append(len(ids)) or decode(ids))
    scanner, tokens = StopStrings(decoder, ["END"]), chars("abcd" * 100)
    for n in range(1, len(tokens) + 1):
        scanner.scan(tokens[:n])
    assert sum(decoded) < 40 * len(tokens)


@settings(max_examples=150, deadline=None)
@given(SOUP, STOPS, st.integers(1, 9), st.booleans())
def test_writer_shows_nothing_that_it_must_take_back(text: str, stops: list[str], size: int, include: bool) -> None:
    """Fault 44: what may be the beginning of a stop string is held back, and let go when it is none."""
    tokens = texts.encode(TOKENIZER, text)
    ends = first_complete(DECODER, tokens, stops)
    tokens = tokens[:ends]
    writer, shown = Writer(DECODER, stops, include), ""
    for begin in range(0, len(tokens), size):
        shown += writer.push(tokens[begin : begin + size])
        assert not any(stop in shown for stop in stops)
    shown += writer.finish()
    whole = DECODER.decode(tokens)
    spans = [(whole.find(stop) + len(stop), whole.find(stop)) for stop in stops if stop in whole]
    assert shown == (whole if not spans else whole[: min(spans)[0 if include else 1]])


def test_a_beginning_that_comes_to_nothing_is_shown_at_once() -> None:
    writer = Writer(DECODER, ["END"])
    assert [writer.push(chars(c)) for c in "xENoE"] == ["x", "", "", "ENo", ""]
    assert writer.finish() == "E"


@pytest.mark.parametrize(("include", "text"), [(False, "x"), (True, "xab")])
@pytest.mark.parametrize("k", [1, 2, 12])
def test_stop_string_early_in_a_long_accepted_run(k: int, include: bool, text: str) -> None:
    """Faults 41, 42: text, ids and logprobs end at the same token."""
    script = "xaby and much more text"
    limits = Limits(20, stop="ab", include_stop=include)
    done = scripted(script).generate([1], drafter=oracle(chars(script), k), limits=limits, logprobs=2)
    assert (done.finish_reason, done.text) == ("stop", text)
    assert list(done.tokens) == chars("xab")
    assert done.logprobs is not None
    assert [entry.token for entry in done.logprobs] == chars("xab")
    assert DECODER.decode(done.tokens).startswith(text)
    assert done.metrics.emitted == 3


@pytest.mark.parametrize("lengths", [(0, 3), (1, 2), (2, 0), (9,)])
def test_stop_string_across_steps(lengths: tuple[int, ...]) -> None:
    """Fault 44: E | N D and E N | D; "E" is not streamed early, and the ids are a prefix of the free run's."""
    script = "say END now"
    drafter = oracle(chars(script), lengths=lengths)
    pieces = list(scripted(script).stream([1], drafter=drafter, limits=Limits(11, stop=["END", "now"])))
    assert "E" not in "".join(piece.text for piece in pieces)
    done = pieces[-1].completion
    assert done is not None
    assert (done.text, done.finish_reason) == ("say ", "stop")
    free = scripted(script).generate([1], drafter=None, max_new_tokens=11)
    assert free.tokens[: len(done.tokens)] == done.tokens
    assert free.text == script


@pytest.mark.parametrize("stop", ["", ["ab", ""], [3]])
def test_a_stop_string_that_is_none_is_refused(stop: Sequence[str]) -> None:
    with pytest.raises(BadOption, match="non-empty string"):
        Limits(stop=stop)
