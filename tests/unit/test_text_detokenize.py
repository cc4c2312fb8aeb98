"""Streaming text: joined pieces are the full decode, and no piece shows half a character."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import texts
from hypothesis import given, settings
from hypothesis import strategies as st

from specdecode.text.detokenize import CONTEXT, WINDOW, Decoder, Detokenizer

HARD = "é漢字🙂🙂 ok"
FAMILY = "👩‍👩‍👧‍👦 🏳️‍🌈 नमस्ते 🇳🇱"
decoders = {name: Decoder(make()) for name, make in texts.KINDS.items()}


@pytest.fixture(params=texts.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def pieces(name: str, ids: list[int]) -> Iterator[str]:
    detokenizer = Detokenizer(decoders[name])
    for token in ids:
        yield detokenizer.push(token)
    yield detokenizer.rest()


def ids_of(name: str) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(0, len(texts.KINDS[name]()) - 1), max_size=3 * WINDOW)


def check(name: str, ids: list[int]) -> None:
    assert "".join(pieces(name, ids)) == texts.full(texts.KINDS[name](), ids)


@pytest.mark.parametrize("text", [HARD, FAMILY, " leading", "\n\nthe  END\n", ""])
@pytest.mark.parametrize("name", ["byte_level", "byte_fallback"])
def test_characters_that_span_tokens_come_out_whole(name: str, text: str) -> None:
    """Fault 90: no replacement mark in any piece, and the joined stream is the full decode."""
    ids = texts.encode(texts.KINDS[name](), text)
    shown = list(pieces(name, ids))
    assert "\ufffd" not in "".join(shown)
    assert "".join(shown) == text


def test_a_lone_lead_byte_is_flushed_as_the_full_decode_shows_it() -> None:
    """Fault 90: text that ends in the middle of a character."""
    for name in ("byte_level", "byte_fallback"):
        for cut in (1, 2, 3):
            ids = texts.encode(texts.KINDS[name](), "a🙂")[:-cut]
            *shown, rest = pieces(name, ids)
            assert "\ufffd" not in "".join(shown)
            assert "".join(shown) + rest == texts.full(texts.KINDS[name](), ids)
            assert "\ufffd" in rest


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_joined_stream_is_the_full_decode_of_any_ids(data: st.DataObject) -> None:
    """Fault 90: for every tokenization, junk bytes and special tokens included."""
    name = data.draw(st.sampled_from(sorted(texts.KINDS)))
    check(name, data.draw(ids_of(name)))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=60), st.sampled_from(["byte_level", "byte_fallback"]))
def test_joined_stream_is_the_text_that_was_encoded(text: str, name: str) -> None:
    """Fault 90: any Unicode, without a mark that was not in it."""
    tokenizer = texts.KINDS[name]()
    shown = "".join(pieces(name, texts.encode(tokenizer, text)))
    assert shown == texts.full(tokenizer, texts.encode(tokenizer, text))
    assert ("\ufffd" in shown) <= ("\ufffd" in text)


def test_bytes_that_never_become_characters_do_not_pile_up() -> None:
    """A token's cost stays bounded, whatever came before."""
    tokenizer = texts.byte_level()
    lead = (
        texts.encode(tokenizer, "é")[0] if len(texts.encode(tokenizer, "é")) > 1 else texts.encode(tokenizer, "漢")[0]
    )
    detokenizer = Detokenizer(decoders["byte_level"])
    for _ in range(10 * WINDOW):
        detokenizer.push(lead)
        assert len(detokenizer._window) <= WINDOW


def test_each_token_is_decoded_a_bounded_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cost is O(1) amortised a token: ids decoded per token do not grow with the text."""
    decoder, seen = Decoder(texts.byte_level()), []
    decode = decoder.decode
    monkeypatch.setattr(decoder, "decode", lambda ids: seen.append(len(ids)) or decode(ids))
    detokenizer = Detokenizer(decoder)
    ids = texts.encode(texts.byte_level(), "the END é漢字🙂 " * 200)
    detokenizer.extend(ids)
    assert max(seen) <= WINDOW + 1
    assert sum(seen) <= len(ids) * (WINDOW + CONTEXT)


def test_a_copy_goes_its_own_way(kind: str) -> None:
    ids = texts.encode(texts.KINDS[kind](), "a c é 漢")
    detokenizer = Detokenizer(decoders[kind])
    detokenizer.extend(ids[:3])
    twin = detokenizer.copy()
    ahead = twin.extend(ids[3:]) + twin.rest()
    assert detokenizer.extend(ids[3:]) + detokenizer.rest() == ahead


def test_special_tokens_have_no_text(kind: str) -> None:
    tokenizer: Any = texts.KINDS[kind]()
    special = tokenizer.convert_tokens_to_ids(texts.SPECIAL)
    assert "".join(pieces(kind, special)) == ""
    inside = [special[1], *texts.encode(tokenizer, "a")]
    assert "".join(pieces(kind, inside)) == texts.full(tokenizer, inside)
