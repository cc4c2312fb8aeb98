"""An attention function for masked passes, offered to transformers under the name "tree_sdpa".

Upstream's "sdpa" copies grouped keys and values out to every query head as soon as a pass carries a mask; on a long
context that copy costs more than the attention. Here the query heads of a group are laid side by side instead.
Registered through transformers' own extension interface; knows tensors only.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from ..errors import Incompatible

NAME = "tree_sdpa"


def grouped_attention(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, None]:
    """query [B, G * H, T, D], key and value [B, H, S, D], mask [B, 1, T, S] bool -> [B, T, G * H, D].

    Raises Incompatible for attention that is more than that."""
    unknown = [name for name in ("softcap", "position_bias", "s_aux") if others.get(name) is not None]
    if unknown:
        raise Incompatible(
            f"{type(module).__name__} needs {', '.join(unknown)} in its attention: "
            "load it with attn_implementation='eager'"
        )
    b, heads, t, d = query.shape
    groups = heads // key.shape[1]
    if attention_mask is None:  # how upstream's own mask code says "plain causal"
        out = sdpa(query, key, value, is_causal=t > 1, dropout_p=dropout, scale=scaling, enable_gqa=groups > 1)
    else:
        query = query.reshape(b, key.shape[1], groups * t, d)
        out = sdpa(query, key, value, attention_mask.repeat(1, 1, groups, 1), dropout_p=dropout, scale=scaling)
    return out.reshape(b, heads, t, -1).transpose(1, 2).contiguous(), None


@cache
def register() -> str:
    """Make the function known to transformers (once) and return its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME
