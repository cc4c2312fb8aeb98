"""Tiny tokenizers for tests, of the kinds that models come with, and tiny models that speak one of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from stubs import tiny
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

from specdecode.models.hf import HFModel
from specdecode.sampling import Sampling

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
WORDS = ["the", "The", "END", "stop", "é", "漢字", "ab", "aby", " ok", "\n\n"]
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _wrap(tokenizer: Tokenizer, template: str | None = None) -> Any:
    from transformers import PreTrainedTokenizerFast

    tokenizer.add_special_tokens(SPECIAL)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    fast.chat_template = template
    return fast


def _merges(pieces: Sequence[str], vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Merges that build each piece from its left, with every part in the vocabulary."""
    merges = []
    for piece in pieces:
        for end in range(2, len(piece) + 1):
            vocab.setdefault(piece[:end], len(vocab))
            merges.append((piece[: end - 1], piece[end - 1]))
    return list(dict.fromkeys(merges))


@cache
def byte_level(template: str | None = TEMPLATE) -> Any:
    """Like GPT-2, Llama 3, Qwen, SmolLM: tokens are runs of bytes, and a character may span several."""
    shown = pre_tokenizers.ByteLevel(add_prefix_space=False)
    vocab = {char: i for i, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    pieces = ["".join(part for part, _ in shown.pre_tokenize_str(word)) for word in WORDS]
    tokenizer = Tokenizer(models.BPE(vocab, _merges(pieces, vocab)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return _wrap(tokenizer, template)


@cache
def byte_fallback() -> Any:
    """Like Llama 2, Mistral, Gemma: pieces with a mark for the space, which is stripped at the very start, and single
    bytes for whatever is no piece."""
    vocab = {"<unk>": 0}
    for piece in [f"<0x{b:02X}>" for b in range(256)] + ["▁", *"abcdefghijklmnopqrstuvwxyzENDT.,é"]:
        vocab.setdefault(piece, len(vocab))
    merges = _merges(["▁the", "▁END", "▁ok", "the", "ab"], vocab)
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    strip = decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip])
    return _wrap(tokenizer)


@cache
def word_piece() -> Any:
    """Like BERT: words are joined by spaces, and some spaces are taken away again."""
    pieces = ["[UNK]", *"abcdefgé漢", *(f"##{c}" for c in "abcdefgé漢"), "the", "##ing", ".", ",", "'", "##s", "n't"]
    tokenizer = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return _wrap(tokenizer)


@cache
def tiny_lm(seed: int = 0) -> HFModel:
    """T (seed 0) and D (seed 1), over the vocabulary of `byte_level`."""
    return HFModel(tiny("llama", seed, vocab_size=len(byte_level())))


def save(folder: Path, seed: int = 0, tokenizer: Any = None) -> Path:
    """A folder as users have them: a tiny model and its tokenizer, with room for long prompts."""
    tokenizer = tokenizer or byte_level()
    size = len(tokenizer)
    model = tiny("llama", seed, vocab_size=size, max_position_embeddings=2048, eos_token_id=size - 1)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


TOKENIZER = byte_level()
VOCAB = len(TOKENIZER)
PROMPT = [10, 20, 30, 10, 20]
WARM = Sampling(temperature=1.0, seed=42)
KINDS = {"byte_level": byte_level, "byte_fallback": byte_fallback, "word_piece": word_piece}


def full(tokenizer: Any, ids: Sequence[int]) -> str:
    """What the tokenizer's own decode gives for all ids at once."""
    return tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def encode(tokenizer: Any, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]
