"""GGUF files become plain folders: rightly, once, and whole or not at all."""

from __future__ import annotations

import json
import logging
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from stubs import tiny

from specdecode.errors import LoadError
from specdecode.models import gguf
from specdecode.models.loading import load_pretrained

SHAPE = {"vocab_size": 260, "intermediate_size": 64, "num_key_value_heads": 2}
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.o_proj": "attn_output",
    "self_attn.": "attn_",
    "mlp.": "ffn_",
    "_proj": "",
    "model.layers.": "blk.",
}


def source_model() -> Any:
    return tiny(**SHAPE, tie_word_embeddings=True)


def write_gguf(path: Path, pre: str) -> Path:
    """A tiny tied Llama with a byte-level vocabulary: special tokens, 256 bytes and one merge, of two line breaks."""
    from gguf import GGUFWriter, TokenType
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    model = source_model()
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_context_length(256)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(model.config.rms_norm_eps)
    writer.add_rope_freq_base(model.config.rope_parameters["rope_theta"])
    writer.add_vocab_size(260)
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([*special, *bytes_to_unicode().values(), "ĊĊ"])
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.NORMAL] * 257)
    writer.add_token_merges(["Ċ Ċ"])
    writer.add_eos_token_id(2)
    for name, weight in model.state_dict().items():
        if name != "lm_head.weight":
            writer.add_tensor(gguf_name(name), gguf_layout(name, weight.numpy()))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def gguf_name(name: str) -> str:
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return name


def gguf_layout(name: str, weight: np.ndarray) -> np.ndarray:
    """The format interleaves the two halves that rotary embeddings turn."""
    heads = {"q_proj": 4, "k_proj": 2}.get(name.split(".")[-2])
    if heads is None:
        return weight
    return weight.reshape(heads, 2, -1, 32).swapaxes(1, 2).reshape(weight.shape)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(tmp_path_factory.mktemp("gguf") / "little.Q8.gguf", "smollm")


@pytest.fixture(scope="module")
def ready(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("converted") / "little"
    gguf.convert(file, folder)
    return folder


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SPECDECODE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def folder(file: Path, ready: Path, cache: Path) -> Path:
    """The converted folder of `file`, where the cache expects it."""
    name = f"little.Q8-{gguf._sha256(file)[:16]}-v{gguf.VERSION}"
    return Path(shutil.copytree(ready, cache / name))


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every conversion that is run, by its source."""
    run: list[Path] = []
    original = gguf._dequantise
    monkeypatch.setattr(gguf, "_dequantise", lambda source, folder: (run.append(source), original(source, folder)))
    return run


def test_the_converted_model_is_the_model(file: Path) -> None:
    loaded, model = load_pretrained(file), source_model()
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        torch.testing.assert_close(loaded.hf_model(ids).logits, model(ids).logits)
    assert (loaded.name, loaded.eos_ids) == ("little.Q8", (2,))
    assert loaded.hf_model.lm_head.weight is loaded.hf_model.model.embed_tokens.weight


def test_nothing_is_printed_where_there_is_no_terminal(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    gguf.converted(file)
    assert tuple(capfd.readouterr()) == ("", "")


@pytest.mark.parametrize(("pre", "length"), [("smollm", 2), ("gpt-2", 3)])
def test_digits_are_cut_off_where_the_vocabulary_was_made_so(tmp_path: Path, pre: str, length: int) -> None:
    tokenizer = load_pretrained(write_gguf(tmp_path / "file.gguf", pre)).tokenizer
    ids = tokenizer("\n\n3").input_ids
    assert len(ids) == length, "cut off first, the digit leaves the two line breaks to merge"
    assert tokenizer.decode(ids) == "\n\n3"


def test_a_sound_folder_is_used_again(file: Path, folder: Path, cache: Path, conversions: list[Path]) -> None:
    assert gguf.converted(file) == folder
    assert conversions == []
    assert list(cache.iterdir()) == [folder], "reading takes no lock: the cache may be read-only"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 255
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("name", "damage", "words"),
    [
        ("model.safetensors", cut, "bytes, not"),
        ("model.safetensors", lambda path: flip(path, 20), "has changed"),
        ("model.safetensors", os.remove, "is missing"),
        ("tokenizer.json", lambda path: flip(path, -20), "has changed"),
        ("config.json", os.remove, "is missing"),
        ("manifest.json", cut, "is corrupt"),
        ("manifest.json", lambda path: path.write_text("[1]"), "is corrupt"),
        ("manifest.json", lambda path: path.write_text('{"model.safetensors": 5}'), "is corrupt"),
        ("manifest.json", os.remove, "is missing"),
    ],
)
def test_a_damaged_folder_is_named_and_made_anew(
    file: Path,
    folder: Path,
    conversions: list[Path],
    caplog: pytest.LogCaptureFixture,
    name: str,
    damage: Any,
    words: str,
) -> None:
    damage(folder / name)
    with caplog.at_level(logging.WARNING):
        assert gguf.converted(file) == folder
    assert name in caplog.text
    assert words in caplog.text
    assert conversions == [file]
    assert gguf.fault(folder) is None


def test_several_at_once_convert_once(file: Path, conversions: list[Path]) -> None:
    with ThreadPoolExecutor(3) as pool:
        folders = set(pool.map(gguf.converted, [file] * 3))
    assert conversions == [file]
    assert [gguf.fault(folder) for folder in folders] == [None]


@pytest.mark.parametrize(
    ("writer", "error"),
    [
        ("specdecode.models.gguf._write_manifest", OSError(28, "No space left on device")),
        ("safetensors.torch.save_file", SafetensorError("I/O error: No space left on device")),
    ],
)
def test_a_conversion_that_fails_leaves_nothing(
    file: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, writer: str, error: Exception
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(writer, full)
    with pytest.raises(LoadError, match="No space left on device; set SPECDECODE_CACHE"):
        gguf.converted(file)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_what_a_killed_conversion_left_is_cleared(file: Path, folder: Path) -> None:
    partial = folder.with_name(f".{folder.name}.partial")
    folder.rename(partial)
    (partial / "stray.json").touch()
    assert gguf.converted(file) == folder
    assert not (folder / "stray.json").exists()
    assert not partial.exists()


def test_nothing_random_is_ever_converted(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that lacks a weight is refused: transformers would fill it with noise."""
    monkeypatch.setitem(NAMES, "model.norm.weight", "some_norm.weight")
    with pytest.raises(LoadError, match=r"model\.norm\.weight is missing"):
        gguf.converted(write_gguf(tmp_path / "lacking.gguf", "smollm"))
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "not a GGUF file"), (b"PK\3\4" + bytes(99), "not a GGUF file"), (b"GGUF" + bytes(99), "cannot load")],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(content)
    with pytest.raises(LoadError, match=f"odd.gguf.*{words}|{words}.*odd.gguf"):
        load_pretrained(path)


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_truncated_file_is_refused(file: Path, tmp_path: Path, share: float) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
    with pytest.raises(LoadError, match=r"short\.gguf"):
        load_pretrained(path)


def test_a_cache_that_cannot_be_written_is_named(file: Path, cache: Path) -> None:
    cache.write_text("a file")
    with pytest.raises(LoadError, match=r"cache.*set SPECDECODE_CACHE"):
        gguf.converted(file)


def test_a_cache_in_the_home_of_nobody_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDECODE_CACHE", "~nosuchuser/x")
    with pytest.raises(LoadError, match=r"home directory.*set SPECDECODE_CACHE"):
        gguf.converted(file)


def test_the_manifest_lists_every_file(ready: Path) -> None:
    listed = set(json.loads((ready / gguf.MANIFEST).read_text()))
    assert listed == {path.name for path in ready.iterdir()} - {gguf.MANIFEST}
    assert "quantization_config" not in json.loads((ready / "config.json").read_text())
