"""Token ids to text, piece by piece: the pieces joined are what the tokenizer's full decode gives.

Knows a tokenizer; no model, session or stop string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

REPLACEMENT = "\ufffd"  # what decoders show for bytes that are no character (yet)
CONTEXT = 8  # visible tokens kept before a cut: no character spans as many, and decoders look at no more than one
WINDOW = 24  # tokens decoded again at the most


class Decoder:
    """A tokenizer, seen as a function from ids to text. Special tokens have no text."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        vocab = tokenizer.get_vocab()
        self._bytes = frozenset(vocab[name] for b in range(256) if (name := f"<0x{b:02X}>") in vocab)
        special = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
        self._silent = frozenset(i for i in special if not self.decode([i]))

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def is_byte(self, token: int) -> bool:
        """Whether the token is a byte of a byte-fallback vocabulary. A run of them is decoded as a whole: one byte too
        many, and characters that were complete turn into replacement marks."""
        return token in self._bytes

    def is_silent(self, token: int) -> bool:
        """Whether the token is special and has no text."""
        return token in self._silent


class Detokenizer:
    """Turns a growing list of tokens into text that later tokens cannot change.

    It decodes a short window again for each token, so the cost of a token does not grow with the text."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._window: list[int] = []
        self._shown = 0  # characters of the window's text that were handed out
        self._unsettled = False  # whether the window's text may still change

    def copy(self) -> Detokenizer:
        twin = Detokenizer(self._decoder)
        twin._window, twin._shown, twin._unsettled = self._window.copy(), self._shown, self._unsettled
        return twin

    def push(self, token: int) -> str:
        """The text that has become certain with this token; "" in the middle of a character."""
        if self._decoder.is_silent(token):
            return ""
        self._window.append(token)
        self._unsettled = self._decoder.is_byte(token)
        if self._unsettled:
            return ""
        text = self._decoder.decode(self._window)
        self._unsettled = text.endswith(REPLACEMENT)  # only the last one can still become a character
        settled = len(text) - self._unsettled
        piece, self._shown = text[self._shown : settled], max(self._shown, settled)
        if len(self._window) > WINDOW:
            del self._window[:-CONTEXT]
            self._shown = len(self._decoder.decode(self._window)) - self._unsettled
        return piece

    def extend(self, tokens: Iterable[int]) -> str:
        return "".join(map(self.push, tokens))

    def rest(self) -> str:
        """The text that is still missing if no token follows."""
        return self._decoder.decode(self._window)[self._shown :] if self._unsettled else ""
