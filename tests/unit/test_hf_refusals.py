"""Models and prompts that cannot be served, refused by name before any pass, and the proof that unknown ones give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from stubs import tiny

from specdecode.errors import BadInput, CannotRollBack, Incompatible, OutOfContext
from specdecode.models.hf import HFModel
from specdecode.types import Prompt


def test_a_recurrent_model_is_refused_by_name() -> None:
    """Fault 65: a state that cannot forget rejected drafts is refused before any pass."""
    with pytest.raises(CannotRollBack, match=r"MambaForCausalLM.*recurrent"):
        HFModel(tiny("mamba"))


def test_a_hybrid_model_is_refused_naming_its_layers() -> None:
    """Fault 65: the same for a model that mixes attention with recurrent layers."""
    model = tiny("qwen2")
    model.config.layer_types = ["full_attention", "linear_attention"]
    with pytest.raises(CannotRollBack, match="linear_attention"):
        HFModel(model)


def test_a_backend_without_masks_is_refused() -> None:
    """Fault 111: a back-end that cannot take a mask is refused at set-up."""
    model = tiny("llama")
    model.config._attn_implementation = "flash_attention_2"
    with pytest.raises(Incompatible, match="flash_attention_2"):
        HFModel(model)


def test_an_encoder_decoder_is_refused() -> None:
    """Fault 105, until encoder-decoder targets are served: a clear refusal."""
    from transformers import T5Config, T5ForConditionalGeneration

    model = T5ForConditionalGeneration(T5Config(vocab_size=20, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
    with pytest.raises(Incompatible, match="encoder-decoder"):
        HFModel(model)


def test_an_unknown_architecture_must_prove_its_tree_mask() -> None:
    """GPT-NeoX is not in the tested list and passes; GPT-Neo, whose local layers keep their own mask, or ALiBi
    models, whose distances come from the mask, must be right or be refused."""
    from transformers import BloomConfig, BloomForCausalLM, GPTNeoXConfig, GPTNeoXForCausalLM

    neox = GPTNeoXConfig(
        vocab_size=97,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
    )
    HFModel(GPTNeoXForCausalLM(neox).eval())
    bloom = BloomConfig(vocab_size=97, hidden_size=32, n_layer=2, n_head=4, bos_token_id=None, eos_token_id=None)
    with pytest.raises(Incompatible):
        HFModel(BloomForCausalLM(bloom).eval())


def test_a_model_that_ignores_the_mask_fails_the_proof() -> None:
    """Negative control of the proof: causal attention that never looks at the mask it is given."""
    from transformers import AttentionInterface

    def blind(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **_: Any) -> Any:
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=query.shape[2] > 1)
        return out.transpose(1, 2).contiguous(), None

    AttentionInterface.register("sdpa_blind", blind)
    model = tiny("llama")
    model.config.model_type = "never_seen"
    HFModel(model)
    model.config._attn_implementation = "sdpa"
    for layer in model.model.layers:
        layer.self_attn.config = type(model.config).from_dict(
            {**model.config.to_dict(), "attn_implementation": "sdpa_blind"}
        )
        layer.self_attn.config._attn_implementation = "sdpa_blind"
    with pytest.raises(Incompatible, match="4-D attention mask"):
        HFModel(model)


@pytest.mark.parametrize(
    ("ids", "error"), [((), BadInput), ((97,), BadInput), ((-1, 3), BadInput), ((1,) * 256, OutOfContext)]
)
def test_prompts_that_cannot_be_decoded_are_refused_before_any_pass(
    ids: tuple[int, ...], error: type[Exception]
) -> None:
    """Fault 1 (extension): an empty prompt is a clear ValueError."""
    lm = HFModel(tiny("llama"))
    with pytest.raises(error) as caught:
        lm.open([Prompt((1, 2)), Prompt(ids)])
    assert isinstance(caught.value, ValueError)
    assert "\n" not in str(caught.value)


def test_longrope_is_refused_by_name() -> None:
    """Its factors are chosen from the longest row of a pass, so that rows and drafts would influence each other."""
    model = tiny("llama")
    model.config.rope_parameters = {"rope_type": "longrope", "rope_theta": 1e4, "factor": 4.0}
    with pytest.raises(Incompatible, match="longrope"):
        HFModel(model)


def test_layers_with_a_mask_of_their_own_are_refused() -> None:
    """GPT-Neo's local layers index their window by slot, which is not the position in a ragged batch."""
    from transformers import GPTNeoConfig, GPTNeoForCausalLM

    config = GPTNeoConfig(
        vocab_size=97, hidden_size=32, num_layers=2, attention_types=[[["global", "local"], 1]], num_heads=4,
        max_position_embeddings=64, window_size=8, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    with pytest.raises(Incompatible, match="local"):
        HFModel(GPTNeoForCausalLM(config).eval())


def test_a_model_in_training_mode_is_refused_when_it_is_asked() -> None:
    """Dropout would make its text random without a word."""
    model = tiny("gpt2")
    lm = HFModel(model)
    model.train()
    with pytest.raises(Incompatible, match=r"model\.eval\(\)"):
        lm.open([Prompt((1, 2))])


def test_a_model_that_cannot_run_the_probe_is_refused_in_one_line() -> None:
    """Whatever an unknown architecture raises on a tree is told as what it is."""
    model = tiny("llama")
    model.config.model_type = "never_seen"
    model.model.layers[0].self_attn.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(ValueError("no\ntrees")))
    with pytest.raises(Incompatible, match=r"cannot run draft trees \(no\)") as caught:
        HFModel(model)
    assert "\n" not in str(caught.value)
