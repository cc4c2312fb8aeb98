"""What a transformers architecture can be trusted with: refusals by name, layer kinds, and a proof for unknown ones.

Reads configurations and signatures, and compares logits; knows no draft and no session.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import CannotRollBack, Incompatible
from ..tree import path_to
from .attention import NAME as TREE_SDPA

ATTENTION_KINDS = {"full_attention", "sliding_attention", "chunked_attention"}
MASKED_BACKENDS = {"sdpa", "eager", TREE_SDPA}  # those that honour a 4-D mask; flash and flex kernels do not
TESTED = {"llama", "qwen2", "mistral", "gpt2", "gemma2", "gemma3_text"}  # our own test suite runs these

PREFIXES = ((1, 2), (3, 4, 5, 6, 7, 8, 9))  # two rows of a probe, of different lengths
TREE = ((2, 3, 4, 5), (-1, 0, 0, 2))  # tokens and parents: a root with two children, one of which has a child

# What a model may raise that cannot take rows, trees or positions as they are given here.
REFUSALS = (RuntimeError, ValueError, TypeError, AttributeError, LookupError, NotImplementedError)

Probe = Callable[[Sequence[tuple[int, ...]], tuple[int, ...], tuple[int, ...]], list[Tensor]]


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
    if "longrope" in _rope_types(config):
        raise Incompatible(
            f"{name} uses 'longrope', whose position embedding changes with the longest row of a pass: "
            "load another architecture"
        )
    if "local" in getattr(config, "attention_layers", ()):
        raise Incompatible(f"{name} has local layers with a mask of their own: load another architecture")
    if "position_ids" not in inspect.signature(model.forward).parameters:
        raise Incompatible(f"{name} takes no position_ids, which draft trees need: load another architecture")


def _rope_types(config: Any) -> set[str]:
    """The kinds of rotary embedding of the stack; models with several kinds of layers name one for each."""
    parameters = getattr(config, "rope_parameters", None) or {}
    each = [parameters, *(value for value in parameters.values() if isinstance(value, dict))]
    return {entry["rope_type"] for entry in each if "rope_type" in entry}


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


def holds(claim: Callable[[], bool]) -> bool:
    """Whether a claim about a model holds; where the model cannot even run what it says, it does not."""
    try:
        return claim()
    except REFUSALS:
        return False


def prove_trees(model: Any, probe: Probe) -> None:
    """Compare the logits of one tree behind two prefixes, in one ragged pass, with plain passes over single paths.

    probe: (prefixes, tokens, parents) -> [n, V] logits for each prefix.
    Raises Incompatible when they differ: the architecture then ignores the mask or the positions it is given."""
    name, (tokens, parents) = type(model).__name__, TREE
    try:
        found = probe(PREFIXES, tokens, parents)
    except REFUSALS as error:
        first = str(error).strip().partition("\n")[0]
        raise Incompatible(f"{name} cannot run draft trees ({first}): load another architecture") from error
    for prefix, logits in zip(PREFIXES, found, strict=True):
        for node in range(len(tokens)):
            plain = _plain(model, [*prefix, *(tokens[i] for i in path_to(parents, node))])[: logits.shape[-1]]
            if not alike(plain, logits[node], model.dtype):
                raise Incompatible(
                    f"{name} gives other logits for a draft tree than for its paths one by one: it does not honour a "
                    "4-D attention mask with explicit positions; load another architecture"
                )


def alike(expected: Tensor, found: Tensor, dtype: torch.dtype) -> bool:
    """Whether logits are the same but for rounding in `dtype`; NaN is like nothing."""
    tolerance = (1e-3 if dtype == torch.float32 else 5e-2) * float(expected.abs().max())
    return bool((expected - found).abs().max() <= tolerance)


@torch.no_grad()
def _plain(model: Any, ids: list[int]) -> Tensor:
    """[V] the model's own logits after `ids`."""
    logits: Tensor = model(torch.tensor([ids], device=model.device), use_cache=False).logits[0, -1].float()
    return logits
