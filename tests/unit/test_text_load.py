"""load and draft_model, and the names that users import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import texts
import torch
from stubs import tiny

import specdecode as sd
from specdecode.drafters.lm import DraftLM
from specdecode.errors import BadOption, Incompatible, LoadError
from specdecode.models.attention import NAME as TREE_SDPA
from specdecode.models.attention import grouped_attention
from specdecode.models.loading import Loaded


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return texts.save(tmp_path_factory.mktemp("models") / "tiny")


def test_every_public_name_is_there_and_no_other() -> None:
    assert sorted(sd.__all__) == sorted(sd._HOMES)
    for name in sd.__all__:
        assert getattr(sd, name).__class__ is not None
    assert set(sd.__all__) <= set(dir(sd))
    with pytest.raises(AttributeError, match="nonsense"):
        _ = sd.nonsense


@pytest.mark.parametrize("runtime", [None, "dense", "transformers"])
def test_a_folder_becomes_a_model(folder: Path, runtime: str | None) -> None:
    model = sd.load(folder, runtime=runtime)
    assert (model.name, model.lm.vocab, model.eos_ids) == ("tiny", len(texts.byte_level()), (model.lm.vocab - 1,))
    assert model.generate("the END", max_new_tokens=5).text


def test_transformers_is_given_fast_attention(folder: Path) -> None:
    model = sd.load(folder, runtime="transformers")
    assert model.lm.model.config._attn_implementation == TREE_SDPA
    assert model.lm.model.dtype is torch.float32
    assert sd.load(folder, runtime="transformers", dtype="bfloat16").lm.model.dtype is torch.bfloat16


def test_fast_attention_says_what_upstreams_says(folder: Path) -> None:
    ours = sd.load(folder, runtime="transformers")
    theirs = sd.load(tiny_of(folder, "sdpa"), tokenizer=texts.byte_level())
    options: dict[str, Any] = {"max_new_tokens": 30, "drafter": sd.make_drafter("ngram", min_match=1)}
    assert ours.generate("the the", **options).tokens == theirs.generate("the the", **options).tokens


def tiny_of(folder: Path, attention: str) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_users_own_model_is_used_as_it_is(folder: Path, attention: str) -> None:
    own = tiny_of(folder, attention)
    model = sd.load(own, tokenizer=texts.byte_level())
    assert own.config._attn_implementation == attention
    assert model.generate("ab", max_new_tokens=3).tokens


def test_soft_capped_attention_keeps_its_own_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ "tree_sdpa" knows no soft-capping: such a model must not be given it, whatever backend it came with."""
    capped = tiny("llama", attention="sdpa", vocab_size=len(texts.byte_level()), attn_logit_softcapping=30.0)
    loaded = Loaded(capped, texts.byte_level(), (), "capped")
    monkeypatch.setattr("specdecode.text.load.load_pretrained", lambda *_, **__: loaded)
    sd.load(tmp_path, runtime="transformers")
    assert capped.config._attn_implementation == "sdpa"


def test_ids_beyond_the_tokenizer_are_never_emitted() -> None:
    wide = tiny("llama", vocab_size=len(texts.byte_level()) + 50)
    assert sd.load(wide, tokenizer=texts.byte_level()).lm.vocab == len(texts.byte_level())


def test_a_draft_model_is_taken_in_any_form(folder: Path, tmp_path: Path) -> None:
    target, small = sd.load(folder), texts.save(tmp_path / "small", 1)
    drafters = [
        sd.draft_model(small, target, k=3),
        sd.draft_model(sd.load(small), target, k=3),
        sd.draft_model(tiny_of(small, "sdpa"), target, tokenizer=texts.byte_level(), k=3),
    ]
    wanted = target.generate("the END", drafter=None, max_new_tokens=20)
    for drafter in drafters:
        assert isinstance(drafter, DraftLM)
        done = target.generate("the END", drafter=drafter, max_new_tokens=20)
        assert (done.tokens, done.drafter, len(done.metrics.histogram)) == (wanted.tokens, "lm", 4)


@pytest.mark.parametrize(
    "given", [{"tokenizer": texts.TOKENIZER}, {"dtype": "bfloat16"}, {"device": "cpu"}, {"runtime": "dense"}]
)
def test_a_model_that_is_to_draft_keeps_what_it_has(folder: Path, given: dict[str, Any]) -> None:
    model = sd.load(folder)
    with pytest.raises(BadOption, match=f"{next(iter(given))}.* still to be loaded"):
        sd.draft_model(model, model, **given)


def test_a_draft_model_with_another_tokenizer_is_refused(folder: Path) -> None:
    other = texts.byte_fallback()
    stranger = sd.load(tiny("llama", vocab_size=len(other)), tokenizer=other)
    with pytest.raises(Incompatible, match="tokenizer"):
        sd.draft_model(stranger, sd.load(folder))


@pytest.mark.parametrize("target", [None, "ngram", tiny("llama")])
def test_a_target_that_is_no_model_is_refused(target: Any) -> None:
    with pytest.raises(BadOption, match=r"^target: \w+ will not do; give the Model "):
        sd.draft_model("/no/such/folder", target)


def test_the_drafters_own_model_is_named_once(folder: Path) -> None:
    model = sd.load(folder)
    with pytest.raises(BadOption, match=r"lm.* source"):
        sd.draft_model(model, model, lm=model.lm)


def test_draft_options_are_refused_before_anything_is_loaded(folder: Path) -> None:
    with pytest.raises(BadOption, match="width"):
        sd.draft_model("/no/such/folder", sd.load(folder), width=3)


@pytest.mark.parametrize("dtype", ["float33", "int4", "Tensor", torch.int64, 32])
def test_a_dtype_that_is_none_is_refused(folder: Path, dtype: Any) -> None:
    with pytest.raises(BadOption, match="dtype"):
        sd.load(folder, dtype=dtype)


def test_a_tokenizer_belongs_to_a_loaded_model(folder: Path) -> None:
    with pytest.raises(BadOption, match="tokenizer"):
        sd.load(folder, tokenizer=texts.byte_level())
    for without in (tiny("llama"), (tiny("llama"), texts.byte_level())):
        with pytest.raises(LoadError, match=r"load\(model, tokenizer=\.\.\.\)"):
            sd.load(without)


def test_a_model_without_a_head_is_refused() -> None:
    with pytest.raises(Incompatible, match="LlamaModel has no language-model head: load it with AutoModelForCausalLM"):
        sd.load(tiny("llama", vocab_size=texts.VOCAB).model, tokenizer=texts.byte_level())


def test_attention_that_is_more_than_ours_is_refused() -> None:
    x = torch.zeros(1, 1, 1, 4)
    with pytest.raises(Incompatible, match=r"Linear needs softcap in its attention.*attn_implementation='eager'"):
        grouped_attention(torch.nn.Linear(1, 1), x, x, x, None, softcap=30.0)


def test_the_default_model_answers() -> None:
    """The embedded model, as it is loaded by default: chat template, end token, streaming, plain = speculative."""
    model = sd.load()
    pieces = list(model.stream(model.chat_prompt("Say hello."), max_new_tokens=12))
    plain = model.chat("Say hello.", max_new_tokens=12, drafter=None)
    assert "".join(piece.text for piece in pieces) == plain.text
    assert "ello" in plain.text
    assert "<|im_" not in plain.text
