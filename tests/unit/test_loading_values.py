"""Values that files, users and environment state wrongly: each is refused in one line, before any pass."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import texts
import torch
from loading_helpers import refused
from stubs import tiny

from specdecode.errors import BadOption
from specdecode.models.loading import as_dtype, load_pretrained


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return texts.save(tmp_path / "little")


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("eos", ["x", [[1]], 1.5, -1, 999_999, [2, True], {"a": 1}, ""])
def test_an_end_token_that_is_none_is_refused(folder: Path, eos: Any) -> None:
    edit(folder / "generation_config.json", eos_token_id=eos)
    refused(folder, "GenerationConfig", "eos_token_id", "0 to 279")


@pytest.mark.parametrize("eos", [torch.tensor([7, 5]), torch.tensor(5), (5, 7), {5}])
def test_end_tokens_come_in_several_containers(eos: Any) -> None:
    model = tiny(vocab_size=texts.VOCAB)
    model.generation_config.eos_token_id = eos
    found = load_pretrained((model, texts.TOKENIZER)).eos_ids
    assert found in ((5,), (5, 7))
    assert {type(i) for i in found} == {int}


def test_a_config_without_heads_is_refused(folder: Path) -> None:
    edit(folder / "config.json", num_attention_heads=0)
    refused(folder, "little")


@pytest.mark.parametrize(
    "shards",
    [{"a": 5}, {"a": 5, "b": "x"}, {"a": None}, {"a": ["x"]}, {"a": "../x"}, {"a": "../../../etc/passwd"}, {"a": "/x"}],
)
def test_an_index_names_files_of_its_folder_only(folder: Path, shards: dict[str, Any]) -> None:
    (folder / "model.safetensors").rename(folder.parent / "x")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    refused(folder, "model.safetensors.index.json", repr(shards["a"]))


@pytest.mark.parametrize("device", ["meta", "privateuseone", "", 5.0, [], 0])
def test_a_device_that_computes_nothing_is_refused(folder: Path, device: Any) -> None:
    if device == 0 and torch.cuda.is_available():
        pytest.skip("0 is the first GPU here")
    with pytest.raises(BadOption, match=r"device .* cannot be used") as caught:
        load_pretrained(folder, device=device)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", torch.float8_e5m2, "complex64", "float8_e8m0fnu"])
def test_a_dtype_that_no_model_computes_in_is_refused(dtype: Any) -> None:
    with pytest.raises(BadOption, match="use float32, bfloat16, float16, float64 or int8"):
        as_dtype(dtype)


def test_dtypes_have_names() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8):
        assert as_dtype(dtype) is as_dtype(str(dtype).removeprefix("torch.")) is dtype
    assert as_dtype(None) is None


@pytest.mark.parametrize("suffix", ["", ".gguf"])
@pytest.mark.parametrize("source", ["a\0b", "a" * 5000, "~nosuchuser/x", "\ud800"])
def test_a_source_that_is_no_path_is_refused(source: str, suffix: str) -> None:
    refused(source + suffix, "cannot load", repr(source)[1])
