"""Tiny random transformers models."""

from __future__ import annotations

from typing import Any

import torch

_SHAPE = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,  # far from uniform laws, so that the text depends on its prefix
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
_STACK = {**_SHAPE, "num_key_value_heads": 2, "intermediate_size": 64, "tie_word_embeddings": False}
_GEMMA = {**_STACK, "num_hidden_layers": 4, "head_dim": 8, "sliding_window": 8}
_MIXED = ["sliding_attention", "full_attention"] * 2
TINY: dict[str, dict[str, Any]] = {
    "llama": {**_STACK, "num_key_value_heads": 4},
    "qwen2": _STACK,
    "mistral": {**_STACK, "sliding_window": 8},
    "gpt2": {**_SHAPE, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0},
    "gemma2": {**_GEMMA, "query_pre_attn_scalar": 8, "layer_types": _MIXED},
    "gemma3_text": {**_GEMMA, "query_pre_attn_scalar": 8, "layer_types": _MIXED},
    "mamba": {k: v for k, v in _SHAPE.items() if "attention" not in k and "position" not in k},
    "lfm2": {**_STACK, "layer_types": ["conv", "full_attention"]},
}
"""Model type -> configuration. gemma2 and gemma3_text mix layers of a sliding window of 8 with full ones; mamba is
recurrent, lfm2 in part."""


def tiny(kind: str = "llama", seed: int = 0, *, attention: str | None = None, **changes: Any) -> Any:
    """A tiny random model of a transformers type, fp32, in eval mode. attention: "sdpa" or "eager"; None is the type's
    own default. The global random state is left alone."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(kind, **{**TINY[kind], **changes})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return model.float().eval()
