"""Which transformers models the fast runtime can run, and their parts under common names.

Reads a loaded model's configuration and weights once, and keeps none of its code. Knows no cache, pass or precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...errors import Incompatible

FAMILY = {"llama", "mistral", "qwen2", "qwen3"}  # decoder stacks of the same plan; the tests compare each with upstream
STATIC_ROPES = {"default", "linear", "llama3", "yarn"}  # rotary embeddings whose frequencies never change


@dataclass(frozen=True, eq=False)
class Layer:
    """One decoder layer. Matrices are [out, in]; a bias, and the norms of query and key heads, may be absent."""

    attention_norm: Tensor
    query: Tensor
    key: Tensor
    value: Tensor
    out: Tensor
    biases: tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]  # of query, key, value, out
    head_norms: tuple[Tensor, Tensor] | None
    window: int  # slots that attention reaches back, 0 for all
    feed_norm: Tensor
    gate: Tensor
    up: Tensor
    down: Tensor
    feed_biases: tuple[Tensor | None, Tensor | None, Tensor | None]  # of gate, up, down


@dataclass(frozen=True, eq=False)
class Stack:
    """A dense decoder: RMSNorm, rotary positions, grouped-query attention and a gated feed-forward part a layer.

    frequencies: [d / 2] angle of each pair of coordinates at position 1; attention_scale multiplies cosine and sine."""

    name: str
    embedding: Tensor  # [V, D]
    layers: tuple[Layer, ...]
    last_norm: Tensor
    head: Tensor  # [V, D], the embedding itself where they are tied
    heads: int
    groups: int  # key and value heads
    head_width: int
    eps: float
    frequencies: Tensor
    attention_scale: float
    context: int

    @property
    def width(self) -> int:
        return self.embedding.shape[1]


def misfit(model: Any) -> str | None:
    """Why the fast runtime cannot run a loaded transformers model, in words; None where it can."""
    config = model.config
    if getattr(model, "lm_head", None) is None:
        return "it has no language-model head"
    if config.model_type not in FAMILY:
        return f"its architecture is {config.model_type}, and the dense runtime knows {', '.join(sorted(FAMILY))}"
    if config.hidden_act not in ("silu", "swish"):
        return f"its activation is {config.hidden_act}, not silu"
    rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
    if rope not in STATIC_ROPES:
        return f"its rotary embedding is of type '{rope}'"
    foreign = set(getattr(config, "layer_types", None) or ()) - {"full_attention", "sliding_attention"}
    if foreign:
        return f"it has {', '.join(sorted(foreign))} layers"
    if len({parameter.device for parameter in model.parameters()}) > 1:
        return "its weights are spread over several devices"
    if model.lm_head.bias is not None or not all(map(_is_original, model.modules())):
        return "its layers were wrapped or replaced (an adapter, a hook, or quantised weights)"
    return None


def _is_original(module: torch.nn.Module) -> bool:
    """Whether a part is one that transformers made, and computes what its class says."""
    plain = type(module) in (torch.nn.Linear, torch.nn.Embedding, torch.nn.ModuleList, torch.nn.SiLU)
    changed = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    return (plain or type(module).__module__.startswith("transformers.")) and not changed


def read(model: Any) -> Stack:
    """The parts of a loaded model, sharing its memory. Raises Incompatible where `misfit` has a reason."""
    reason = misfit(model)
    if reason is not None:
        raise Incompatible(f"{type(model).__name__} does not fit the dense runtime: {reason}; use 'transformers'")
    config, inner = model.config, model.model
    heads = config.num_attention_heads
    rope = inner.rotary_emb
    return Stack(
        name=config.model_type,
        embedding=inner.embed_tokens.weight.detach(),
        layers=tuple(_layer(config, index, layer) for index, layer in enumerate(inner.layers)),
        last_norm=inner.norm.weight.detach(),
        head=model.lm_head.weight.detach(),
        heads=heads,
        groups=config.num_key_value_heads,
        head_width=getattr(config, "head_dim", None) or config.hidden_size // heads,
        eps=config.rms_norm_eps,
        frequencies=rope.inv_freq.detach().float(),
        attention_scale=float(rope.attention_scaling),
        context=config.max_position_embeddings,
    )


def _layer(config: Any, index: int, layer: Any) -> Layer:
    attention, feed = layer.self_attn, layer.mlp
    projections = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
    gated = (feed.gate_proj, feed.up_proj, feed.down_proj)
    norms = (
        (attention.q_norm.weight.detach(), attention.k_norm.weight.detach()) if hasattr(attention, "q_norm") else None
    )
    query, key, value, out = (p.weight.detach() for p in projections)
    gate, up, down = (p.weight.detach() for p in gated)
    return Layer(
        attention_norm=layer.input_layernorm.weight.detach(),
        query=query,
        key=key,
        value=value,
        out=out,
        biases=tuple(_bias(p) for p in projections),  # type: ignore[arg-type]
        head_norms=norms,
        window=_window(config, index),
        feed_norm=layer.post_attention_layernorm.weight.detach(),
        gate=gate,
        up=up,
        down=down,
        feed_biases=tuple(_bias(p) for p in gated),  # type: ignore[arg-type]
    )


def _bias(linear: Any) -> Tensor | None:
    return None if linear.bias is None else linear.bias.detach()


def _window(config: Any, index: int) -> int:
    """As upstream reads it: layer types decide where they are named, else a window is every layer's; Llama has none."""
    window = getattr(config, "sliding_window", None) if config.model_type != "llama" else None
    kinds = getattr(config, "layer_types", None)
    slides = kinds[index] == "sliding_attention" if kinds else window is not None
    return int(window) if slides and window else 0
