"""Which runtime a model gets: the fast one where it fits, transformers elsewhere, and a word where neither does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import texts
import torch
from dense_helpers import logits, opened, tokens, upstream
from stubs import dense, tiny

import specdecode as sd
from specdecode.errors import BadOption, Incompatible, NumericalError
from specdecode.models.dense.model import DenseModel
from specdecode.models.hf import HFModel
from specdecode.models.runtime import run
from specdecode.types import Row

FITTING = ["llama", "mistral", "qwen2", "qwen3"]
OTHERS = ["gpt2", "gemma2", "gemma3_text"]


def saved(folder: Path, model: Any) -> Path:
    """A folder as users have them."""
    model.save_pretrained(folder)
    texts.byte_level().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            model = tiny(kind, vocab_size=texts.VOCAB, max_position_embeddings=512)
            made[kind] = saved(tmp_path_factory.mktemp("models") / kind, model)
        return made[kind]

    return folder


def one_line(caught: pytest.ExceptionInfo[Exception]) -> str:
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("kind", FITTING)
def test_dense_stacks_loaded_by_name_get_the_fast_runtime(kind: str, folders: Callable[[str], Path]) -> None:
    model = sd.load(folders(kind))
    assert isinstance(model.lm, DenseModel)
    assert model.lm.signature == f"dense {kind} float16 2x32 V{texts.VOCAB}"
    assert model.generate("the END", max_new_tokens=5).tokens


@pytest.mark.parametrize("kind", OTHERS)
def test_other_architectures_get_transformers(kind: str, folders: Callable[[str], Path]) -> None:
    model = sd.load(folders(kind))
    assert isinstance(model.lm, HFModel)
    assert model.lm.model.dtype is torch.float32
    assert model.generate("the END", max_new_tokens=5).tokens


def test_both_runtimes_say_the_same_in_float32(folders: Callable[[str], Path]) -> None:
    for kind in FITTING:
        said = [
            sd.load(folders(kind), runtime=runtime, dtype="float32").generate("the the END", max_new_tokens=30).tokens
            for runtime in ("dense", "transformers")
        ]
        assert said[0] == said[1]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int8", torch.float16])
def test_the_fast_runtime_stores_what_it_is_told_to(dtype: Any, folders: Callable[[str], Path]) -> None:
    model = sd.load(folders("llama"), dtype=dtype)
    assert str(dtype).removeprefix("torch.") in model.lm.signature.split()
    assert model.generate("the END", max_new_tokens=5).tokens


def test_a_checkpoint_of_any_type_is_read_as_it_is(tmp_path: Path) -> None:
    """Half precision on disk loses nothing on its way to float16, nor to float32."""
    folder = saved(tmp_path, tiny("llama", vocab_size=texts.VOCAB).to(torch.float16))
    half, full = (sd.load(folder, dtype=dtype).lm for dtype in ("float16", "float32"))
    ids = torch.arange(texts.VOCAB)
    assert torch.equal(half._packed.head.rows(ids), full._packed.head.rows(ids))


def test_a_dtype_that_it_does_not_store_means_transformers(folders: Callable[[str], Path]) -> None:
    model = sd.load(folders("llama"), dtype="float64")
    assert isinstance(model.lm, HFModel)
    assert model.lm.model.dtype is torch.float64


def test_a_loaded_model_runs_as_it_is_unless_the_fast_runtime_is_asked_for() -> None:
    own = tiny("llama", vocab_size=texts.VOCAB)
    as_it_is = sd.load(own, tokenizer=texts.byte_level())
    assert isinstance(as_it_is.lm, HFModel)
    assert as_it_is.lm.model is own
    fast = sd.load(own, tokenizer=texts.byte_level(), runtime="dense")
    assert isinstance(fast.lm, DenseModel)
    assert fast.generate("the END", max_new_tokens=5).tokens
    assert own.config._attn_implementation == "sdpa"


def test_it_may_be_turned_off(folders: Callable[[str], Path]) -> None:
    assert isinstance(sd.load(folders("llama"), runtime="transformers").lm, HFModel)


def test_a_runtime_that_does_not_exist_is_refused_before_anything_is_loaded() -> None:
    with pytest.raises(BadOption, match="runtime 'fast' does not exist; choose one of: dense, transformers") as caught:
        sd.load("/no/such/folder", runtime="fast")
    one_line(caught)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"runtime": "dense", "dtype": "float64"}, "float64; use float32, float16, bfloat16 or int8"),
        ({"runtime": "transformers", "dtype": "int8"}, "int8 weights need the dense runtime"),
        ({"device": "meta", "dtype": "int8"}, "meta"),
    ],
)
def test_options_that_exclude_each_other_are_refused_before_anything_is_loaded(
    asked: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadOption, match=words) as caught:
        sd.load("/no/such/folder", **asked)
    one_line(caught)


@pytest.mark.parametrize("asked", [{"runtime": "dense"}, {"dtype": "int8"}])
@pytest.mark.parametrize("kind", OTHERS)
def test_what_only_the_fast_runtime_does_is_refused_elsewhere(
    kind: str, asked: dict[str, Any], folders: Callable[[str], Path]
) -> None:
    with pytest.raises(Incompatible, match=f"{kind}.*(use 'transformers'|give another dtype)$") as caught:
        sd.load(folders(kind), **asked)
    one_line(caught)


def test_the_draft_model_has_a_runtime_of_its_own(folders: Callable[[str], Path]) -> None:
    target = sd.load(folders("llama"), runtime="transformers")
    assert isinstance(sd.draft_model(folders("qwen2"), target).lm, DenseModel)
    assert isinstance(sd.draft_model(folders("qwen2"), target, runtime="transformers").lm, HFModel)
    with pytest.raises(BadOption, match="runtime"):
        sd.draft_model(target, target, runtime="dense")
    drafter = sd.draft_model(folders("qwen2"), target, k=3)
    options = {"max_new_tokens": 20}
    drafted = target.generate("the END", drafter=drafter, **options)
    assert drafted.tokens == target.generate("the END", drafter=None, **options).tokens


def wrap_a_projection(model: Any) -> None:
    class Adapter(torch.nn.Module):
        def __init__(self, base: torch.nn.Linear) -> None:
            super().__init__()
            self.base, self.in_features, self.weight, self.bias = base, base.in_features, base.weight, base.bias

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + 1

    attention = model.model.layers[1].self_attn
    attention.q_proj = Adapter(attention.q_proj)


def wrap_a_layer(model: Any) -> None:
    class Twice(torch.nn.Module):
        def __init__(self, layer: torch.nn.Module) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, *args: Any, **options: Any) -> Any:
            return self.layer(self.layer(*args, **options), *args[1:], **options)

    model.model.layers[0] = Twice(model.model.layers[0])


def replace_a_norm(model: Any) -> None:
    model.model.norm = torch.nn.LayerNorm(32)


def give_the_head_a_bias(model: Any) -> None:
    model.lm_head = torch.nn.Linear(32, texts.VOCAB, bias=True)


def hook_a_layer(model: Any) -> None:
    model.model.layers[0].register_forward_hook(lambda module, args, out: out)


def hook_the_model(model: Any) -> None:
    model.register_forward_pre_hook(lambda module, args: None)


def change_a_forward(model: Any) -> None:
    """As accelerate does, to bring weights to where they are needed."""
    layer = model.model.layers[0].mlp
    forward = layer.forward
    layer.forward = lambda x: forward(x) + 1


def quantise_the_embedding(model: Any) -> None:
    class Looked(torch.nn.Embedding):
        pass

    model.model.embed_tokens = Looked(texts.VOCAB, 32)


CHANGES = [
    wrap_a_projection,
    wrap_a_layer,
    replace_a_norm,
    give_the_head_a_bias,
    hook_a_layer,
    hook_the_model,
    change_a_forward,
    quantise_the_embedding,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_that_is_not_what_its_config_says_runs_as_it_is(change: Callable[[Any], None]) -> None:
    model = tiny("llama", vocab_size=texts.VOCAB)
    change(model)
    model.eval()
    assert isinstance(run(model, texts.VOCAB), HFModel)
    with pytest.raises(Incompatible, match=r"does not fit the dense runtime: .*; use 'transformers'$") as caught:
        sd.load(model, tokenizer=texts.byte_level(), runtime="dense")
    one_line(caught)


ODD: dict[str, dict[str, Any]] = {
    "dynamic": {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}},
    "gelu": {"hidden_act": "gelu"},
}


@pytest.mark.parametrize("odd", ODD)
def test_what_the_fast_runtime_does_not_compute_is_left_to_transformers(odd: str) -> None:
    model = tiny("llama", vocab_size=texts.VOCAB, **ODD[odd])
    assert isinstance(run(model, texts.VOCAB), HFModel)
    with pytest.raises(Incompatible, match=f"{odd}.*use 'transformers'$"):
        sd.load(model, tokenizer=texts.byte_level(), runtime="dense")


def test_layers_of_a_foreign_kind_are_left_to_transformers() -> None:
    model = tiny("qwen2", vocab_size=texts.VOCAB)
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(Incompatible, match="linear_attention"):
        run(model, texts.VOCAB, "dense")


def test_a_window_that_llama_does_not_read_is_not_ours_to_read() -> None:
    """Some checkpoints carry the entry all the same."""
    model = tiny("llama", sliding_window=4)
    lm, ids = DenseModel(model, dtype=torch.float32), tokens(30)
    assert (logits(lm, opened(lm, ()), Row.chain(0, ids)) - upstream(model, ids)).abs().max() < 1e-3


@pytest.mark.parametrize("runtime", ["dense", "transformers"])
def test_a_model_without_a_head_is_refused(runtime: str) -> None:
    with pytest.raises(Incompatible, match=r"LlamaModel .*has no language-model head") as caught:
        sd.load(tiny("llama", vocab_size=texts.VOCAB).model, tokenizer=texts.byte_level(), runtime=runtime)
    one_line(caught)


def test_without_its_compiler_everything_runs_on_transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdecode.models.runtime.find_spec", lambda _: None)
    model = tiny("llama")
    assert isinstance(run(model, 97), HFModel)
    with pytest.raises(Incompatible, match="numba, which is not installed here; use 'transformers'"):
        run(model, 97, "dense")


def test_a_type_that_it_does_not_store_is_refused_by_name() -> None:
    with pytest.raises(BadOption, match="float64"):
        DenseModel(tiny("llama"), dtype=torch.float64)


@pytest.mark.parametrize("dtype", [None, "float32", "bfloat16", "int8"])
def test_damaged_weights_end_in_one_line(tmp_path: Path, dtype: str | None) -> None:
    """Fault 74 on the fast runtime: NaN is named, never turned into text."""
    model = tiny("llama", vocab_size=texts.VOCAB)
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight[3, 3] = float("nan")
    loaded = sd.load(saved(tmp_path, model), dtype=dtype)
    for sampling in (sd.Sampling(), sd.Sampling(temperature=1.0, seed=1)):
        with pytest.raises(NumericalError, match="NaN or infinite") as caught:
            loaded.generate("the the END", sampling=sampling)
        one_line(caught)


def test_a_tied_head_may_be_told_apart_from_one_that_is_not() -> None:
    """The embedding is looked up where it stands; a separate one is stored beside the head."""
    for name, tied in (("llama, tied", True), ("llama", False)):
        lm = DenseModel(dense(name))
        assert (lm._packed._embedding is None) == tied
