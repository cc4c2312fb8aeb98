"""Tiny random transformers models, and dense stacks of odd shapes."""

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
    "qwen3": {**_STACK, "head_dim": 16},
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


_MIXED_WINDOWS = {"num_hidden_layers": 4, "layer_types": _MIXED, "use_sliding_window": True, "sliding_window": 8}
_ROPE = {"rope_theta": 100.0, "original_max_position_embeddings": 64, "factor": 4.0}
DENSE: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": (
        "llama",
        {
            "num_key_value_heads": 2,
            "head_dim": 24,
            "hidden_size": 40,
            "intermediate_size": 72,
            "rope_parameters": {
                **_ROPE, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            },
        },
    ),
    "llama, tied": (
        "llama",
        {
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "head_dim": 80,
            "hidden_size": 48,
            "intermediate_size": 40,
            "tie_word_embeddings": True,
            "rope_parameters": {**_ROPE, "rope_type": "yarn"},
        },
    ),
    "llama, biases": (
        "llama",
        {
            "attention_bias": True,
            "mlp_bias": True,
            "vocab_size": 131,
            "rope_parameters": {"rope_theta": 100.0, "rope_type": "linear", "factor": 4.0},
        },
    ),
    "mistral": ("mistral", {"head_dim": 32, "hidden_size": 56, "intermediate_size": 50}),
    "qwen2": ("qwen2", {"hidden_size": 40, "intermediate_size": 33}),
    "qwen2, mixed": ("qwen2", _MIXED_WINDOWS),
    "qwen3": (
        "qwen3",
        {
            "num_attention_heads": 6,
            "head_dim": 24,
            "hidden_size": 42,
            "tie_word_embeddings": True,
            "initializer_range": 0.2,
        },
    ),
    "qwen3, mixed": ("qwen3", {**_MIXED_WINDOWS, "head_dim": 32, "attention_bias": True, "initializer_range": 0.2}),
}  # fmt: skip
"""Stacks that the fast runtime fits -> transformers type and changes to it. Most sizes are no multiples of a panel,
heads are 8, 10, 24, 32 and 80 wide, and between them stands all that such a stack may have: grouped heads, tied and
untied heads, scaled rotary positions, windows in all layers or in some, biases, norms of queries and keys."""


def dense(name: str, seed: int = 0, **changes: Any) -> Any:
    """A model of DENSE. Its norms and biases are random too: fresh models have ones and zeros, which hide mistakes."""
    kind, shape = DENSE[name]
    model = tiny(kind, seed, **{**shape, **changes})
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=rng)
    return model


def quantised(model: Any, kind: str) -> Any:
    """`model` with its matrices rounded as GGUF files store them, in groups of 32 inputs: "q8_0", "q4_0" or "q4_1"."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                blocks = parameter.view(len(parameter), -1, 32)
                least, most = blocks.amin(2, keepdim=True), blocks.amax(2, keepdim=True)
                farthest = torch.where(-least > most, least, most)
                lowest, highest, factor, offset = {
                    "q8_0": (-127, 127, blocks.abs().amax(2, keepdim=True) / 127, torch.zeros_like(least)),
                    "q4_0": (0, 15, farthest / -8, farthest),
                    "q4_1": (0, 15, (most - least) / 15, least),
                }[kind]
                factor, offset = factor.half().float(), offset.half().float()
                whole = ((blocks - offset) / factor).round().clamp(lowest, highest)
                parameter.copy_((whole * factor + offset).view_as(parameter))
    return model
