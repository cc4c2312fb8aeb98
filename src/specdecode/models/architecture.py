"""What a transformers architecture can be trusted with: refusals by name, layer kinds, and a proof for unknown ones.

Reads configurations and signatures, and compares logits; knows no draft and no session.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from ..errors import CannotRollBack, Incompatible
from ..tree import path_to
from .attention import NAME as TREE_SDPA

ATTENTION_KINDS = {"full_attention", "sliding_attention", "chunked_attention"}
MASKED_BACKENDS = {"sdpa", "eager", TREE_SDPA}  # those that honour a 4-D mask; flash and flex kernels do not
TESTED = {"llama", "qwen2", "mistral", "gpt2", "gemma2", "gemma3_text"}  # our own test suite runs these

PROBE_PREFIX = (1, 2, 3)
PROBE_TREE = ((4, 5, 6, 7), (-1, 0, 0, 2))  # tokens and parents: a root with two children, one of which has a child


def refuse_unservable(model: Any, config: Any) -> None:
    name = type(model).__name__
    if config.is_encoder_decoder:
        raise Incompatible(
            f"{name} is an encoder-decoder model; only decoder-only models are served: load such a model"
        )
    if model.get_output_embeddings() is None:
        raise Incompatible(f"{name} has no language-model head: load it with AutoModelForCausalLM")
    foreign = sorted(set(getattr(config, "layer_types", None) or ()) - ATTENTION_KINDS)
    if foreign or getattr(model, "_is_stateful", False):
        raise CannotRollBack(
            f"{name} keeps a recurrent state ({', '.join(foreign) or 'stateful model'} layers) that cannot forget "
            "rejected drafts: load a model whose layers are all attention"
        )
    backend = config._attn_implementation
    if backend not in MASKED_BACKENDS:
        raise Incompatible(
            f"{name} runs the attention backend '{backend}', which ignores the tree mask: "
            "load it with attn_implementation='sdpa' or 'eager'"
        )
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise Incompatible(f"{name} takes no position_ids, which draft trees need: load another architecture")


def cache_argument(model: Any) -> str:
    """transformers 5.24 renamed past_key_values to cache."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def layer_kinds(config: Any) -> dict[str, int | None]:
    """The kinds of attention layers of the stack, each with its window or chunk size."""
    window = getattr(config, "sliding_window", None)
    sizes = {
        "full_attention": None,
        "sliding_attention": window,
        "chunked_attention": getattr(config, "attention_chunk_size", None),
    }
    kinds = getattr(config, "layer_types", None) or ["full_attention" if window is None else "sliding_attention"]
    return {kind: sizes[kind] for kind in dict.fromkeys(kinds)}


def prove_tree(model: Any, logits: Tensor) -> None:
    """Compare `logits` [4, V] of the probe tree behind the probe prefix with plain passes over its root paths.

    Raises Incompatible when they differ: the architecture then ignores the mask or the positions it is given."""
    tokens, parents = PROBE_TREE
    for node in range(len(tokens)):
        ids = torch.tensor([[*PROBE_PREFIX, *(tokens[i] for i in path_to(parents, node))]], device=logits.device)
        with torch.no_grad():
            plain = model(ids, use_cache=False).logits[0, -1].float()[: logits.shape[-1]]
        tolerance = (1e-3 if model.dtype == torch.float32 else 5e-2) * float(plain.abs().max())
        if not (plain - logits[node]).abs().max() <= tolerance:
            raise Incompatible(
                f"{type(model).__name__} gives other logits for a draft tree than for its paths one by one: it does "
                "not honour a 4-D attention mask with explicit positions; load another architecture"
            )
