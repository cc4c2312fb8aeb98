"""Folders, pairs and hub ids: what loads, and what is refused before any pass."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from loading_helpers import refused
from stubs import tiny
from tokenizers import Tokenizer, models, pre_tokenizers

from specdecode.errors import BadOption, Incompatible
from specdecode.models.loading import check_same_tokenizer, load_pretrained

VOCAB = [f"w{i}" for i in range(97)]


def tokenizer(words: Sequence[str] = VOCAB, *, name: str = "some", **special: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=words[0]))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend, name_or_path=f"far/{name}", **special)


def save(folder: Path, *, config: dict[str, Any] | None = None, **special: str) -> Path:
    tiny(eos_token_id=3, **(config or {})).save_pretrained(folder)
    tokenizer(**special).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("models") / "pristine", eos_token="w2")


@pytest.fixture
def folder(pristine: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(pristine, tmp_path / "little"))


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_folder_loads_in_float32_and_eval_mode(folder: Path) -> None:
    loaded = load_pretrained(str(folder))
    assert (loaded.name, loaded.eos_ids) == ("little", (3,))
    assert (loaded.hf_model.dtype, loaded.hf_model.training) == (torch.float32, False)
    for name, weight in tiny(eos_token_id=3).state_dict().items():
        assert torch.equal(weight, loaded.hf_model.state_dict()[name]), name
    assert loaded.tokenizer("w5 w6").input_ids == [5, 6]


def test_decoded_spaces_are_left_alone_whatever_the_files_say(folder: Path) -> None:
    edit(folder / "tokenizer_config.json", clean_up_tokenization_spaces=True)
    assert load_pretrained(folder).tokenizer.clean_up_tokenization_spaces is False


def test_a_half_precision_checkpoint_is_widened_unless_asked_otherwise(folder: Path) -> None:
    tiny().bfloat16().save_pretrained(folder)
    assert load_pretrained(folder).hf_model.dtype == torch.float32
    assert load_pretrained(folder, dtype=torch.bfloat16).hf_model.dtype == torch.bfloat16


def test_shards_and_tied_weights_load(tmp_path: Path) -> None:
    model = tiny(tie_word_embeddings=True)
    model.save_pretrained(tmp_path, max_shard_size="20KB")
    tokenizer().save_pretrained(tmp_path)
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 1
    assert torch.equal(load_pretrained(tmp_path).hf_model.lm_head.weight, model.model.embed_tokens.weight)


@pytest.mark.parametrize(
    ("generation", "config", "special", "expected"),
    [
        ([5, 3, 5], 7, "w2", (3, 5)),
        (4, 7, "w2", (4,)),
        (None, 7, "w2", (7,)),
        (None, [8, 6], "w2", (6, 8)),
        (None, None, "w2", (2,)),
        (None, None, None, ()),
    ],
)
def test_eos_ids_come_from_the_first_that_names_any(
    pristine: Path, generation: Any, config: Any, special: str | None, expected: tuple[int, ...]
) -> None:
    model = tiny(eos_token_id=config)
    model.generation_config.eos_token_id = generation
    assert load_pretrained((model, tokenizer(eos_token=special))).eos_ids == expected


def test_a_loaded_pair_is_taken_as_it_is() -> None:
    model, words = tiny().bfloat16().train(), tokenizer()
    loaded = load_pretrained((model, words))
    assert loaded.hf_model is model
    assert loaded.tokenizer is words
    assert (model.dtype, model.training) == (torch.bfloat16, False)
    assert loaded.name == "LlamaForCausalLM"


def test_a_loaded_pair_keeps_its_dtype_and_device() -> None:
    with pytest.raises(BadOption, match="a loaded model keeps its own"):
        load_pretrained((tiny(), tokenizer()), dtype=torch.float32)
    with pytest.raises(BadOption, match="a loaded model keeps its own"):
        load_pretrained((tiny(), tokenizer()), device="cpu")


def test_a_device_that_is_not_there_is_refused_before_loading(folder: Path) -> None:
    for device in ("warp", "meta:x", "cuda:63"):
        with pytest.raises(BadOption, match=device):
            load_pretrained(folder, device=device)


@pytest.mark.parametrize("source", [7, b"folder", (), (1, 2), (torch.nn.Linear(1, 1), None)])
def test_other_kinds_of_source_are_named(source: Any) -> None:
    parts = source if isinstance(source, tuple) else (source,)
    refused(source, *(type(part).__name__ for part in parts), "load(model, tokenizer=...)")


def test_a_pair_of_more_than_two_is_refused() -> None:
    refused((tiny(), tokenizer(), tokenizer()), "LlamaForCausalLM", "load(model, tokenizer=...)")


def test_nothing_is_said_and_their_settings_stay(
    folder: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    from transformers.utils import logging

    theirs = logging.get_logger("transformers")
    theirs.addHandler(caplog.handler)
    logging.set_verbosity_warning()
    logging.enable_progress_bar()
    try:
        load_pretrained(folder)
        edit(folder / "config.json", num_hidden_layers=3)  # transformers has much to say about this
        refused(folder, "missing")
        assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (logging.WARNING, True)
        assert caplog.records == []
        assert tuple(capfd.readouterr()) == ("", "")
    finally:
        theirs.removeHandler(caplog.handler)


def remove(name: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Callable[[Path], Any]:
    return lambda folder: (folder / name).write_text(text)


def configure(**changes: Any) -> Callable[[Path], None]:
    return lambda folder: edit(folder / "config.json", **changes)


def halve(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def shard(*names: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        index = {"metadata": {}, "weight_map": {f"weight{i}": name for i, name in enumerate(names)}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))

    return damage


def drop_weight(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


DAMAGES: dict[str, tuple[Callable[[Path], Any], tuple[str, ...]]] = {
    "no folder": (shutil.rmtree, ("little", "does not exist")),
    "no config": (remove("config.json"), ("config.json", "which holds", "model.safetensors")),
    "config not JSON": (write("config.json", '{"model_type": "ll'), ("config.json", "not valid JSON")),
    "config a list": (write("config.json", "[]"), ("config.json", "list")),
    "config empty": (write("config.json", "{}"), ("little", "model_type")),
    "config of an unknown model": (configure(model_type="zeppelin"), ("little", "zeppelin")),
    "config of no language model": (configure(model_type="t5"), ("load the model", "T5Config")),
    "config of a wrong kind": (configure(hidden_size="x"), ("load the model", "hidden_size", "expected int")),
    "generation config not JSON": (write("generation_config.json", "{"), ("generation_config.json", "not valid JSON")),
    "no weights": (remove("model.safetensors"), ("model.safetensors",)),
    "weights truncated": (halve, ("model.safetensors", "truncated or corrupt")),
    "weights corrupt": (write("model.safetensors", "x" * 400), ("model.safetensors", "truncated or corrupt")),
    "weights empty": (write("model.safetensors", ""), ("model.safetensors", "truncated or corrupt")),
    "a shard missing": (shard("model-1.safetensors"), ("model-1.safetensors",)),
    "an index of nothing": (shard(), ("model.safetensors.index.json", "no weights")),
    "a weight missing": (drop_weight, ("model.norm.weight is missing (1 in all)",)),
    "a layer missing": (configure(num_hidden_layers=3), ("model.layers.2.", "is missing")),
    "a layer left over": (configure(num_hidden_layers=1), ("model.layers.1.", "has no place")),
    "a weight of another shape": (configure(intermediate_size=65), ("down_proj.weight", "[32, 64]", "[32, 65]")),
    "no tokenizer": (remove("tokenizer.json"), ("no tokenizer", "tokenizer.json")),
    "tokenizer not JSON": (write("tokenizer.json", '{"version'), ("little", "tokenizer")),
    "tokenizer of no kind": (write("tokenizer.json", "{}"), ("little", "tokenizer")),
    "tokenizer config not JSON": (write("tokenizer_config.json", "{"), ("tokenizer_config.json", "not valid JSON")),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_folder_is_refused_and_the_damage_named(folder: Path, damage: str) -> None:
    apply, words = DAMAGES[damage]
    apply(folder)
    refused(folder, *words)


def test_paths_that_hold_no_model_are_refused(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(b"x")
    refused(tmp_path / "weights.bin", "weights.bin", "neither a folder nor .gguf")
    refused(f"{tmp_path}/nowhere", "nowhere", "does not exist")
    refused("./nowhere", "nowhere", "does not exist")
    refused(Path("some/model"), "some/model", "does not exist")
    refused(tmp_path / "nowhere.gguf", "nowhere.gguf", "No such file")


def test_a_hub_id_out_of_reach_is_refused() -> None:
    refused("nobody/no-such-model", "nobody/no-such-model", "give its folder")


class TestSameTokenizer:
    def test_equal_ones_fit(self) -> None:
        ours = tokenizer()
        check_same_tokenizer(ours, ours)
        check_same_tokenizer(ours, tokenizer())

    @pytest.mark.parametrize("extra", [1, 7])
    def test_one_may_go_on_where_the_other_ends(self, extra: int) -> None:
        """Fault 54: model sizes of one family pad and extend the same vocabulary differently."""
        longer = tokenizer([*VOCAB, *(f"<added{i}>" for i in range(extra))])
        check_same_tokenizer(tokenizer(), longer)
        check_same_tokenizer(longer, tokenizer())

    def test_tokens_added_later_count(self) -> None:
        ours, theirs = tokenizer(), tokenizer()
        ours.add_tokens(["<a>"])
        check_same_tokenizer(ours, theirs)
        theirs.add_tokens(["<b>"])
        with pytest.raises(Incompatible, match=r"id 97 is '<a>' .* but '<b>'"):
            check_same_tokenizer(ours, theirs)

    @pytest.mark.parametrize("i", [0, 41, 96])
    def test_one_ordinary_id_that_differs_is_named(self, i: int) -> None:
        """Fault 55: mismatched vocabularies of equal size must not be accepted in silence."""
        other = tokenizer([*VOCAB[:i], "other", *VOCAB[i + 1 :]], name="theirs")
        with pytest.raises(Incompatible, match=rf"id {i} is 'w{i}' in ours \(97 tokens\) but 'other' in theirs"):
            check_same_tokenizer(tokenizer(name="ours"), other)

    def test_an_eos_token_that_differs_is_named(self) -> None:
        """Fault 55: the same at the id that ends a sequence."""
        ours = tokenizer([*VOCAB[:2], "<end>", *VOCAB[3:]], eos_token="<end>")
        theirs = tokenizer([*VOCAB[:2], "<stop>", *VOCAB[3:]], eos_token="<stop>")
        with pytest.raises(Incompatible, match=r"id 2 is '<end>' .* but '<stop>'"):
            check_same_tokenizer(ours, theirs)

    def test_the_choice_of_eos_does_not_matter(self) -> None:
        """A base model may draft for its chat version: the target alone says where a text ends."""
        check_same_tokenizer(tokenizer(eos_token="w2"), tokenizer(eos_token="w3"))

    def test_swapped_ids_are_found_at_the_first(self) -> None:
        swapped = [*VOCAB[:5], VOCAB[9], *VOCAB[6:9], VOCAB[5], *VOCAB[10:]]
        with pytest.raises(Incompatible, match=r"id 5 is 'w5' .* but 'w9'"):
            check_same_tokenizer(tokenizer(), tokenizer(swapped))
