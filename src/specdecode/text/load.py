"""From a source to a Model, and from a second source to a drafter for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..drafters import Drafter, make_drafter
from ..errors import BadOption
from ..models.loading import as_device, as_dtype, check_same_tokenizer, load_pretrained
from ..models.runtime import check_runtime, may_be_dense, run
from .model import Model

if TYPE_CHECKING:
    import torch


def load(
    source: Any = None,
    *,
    tokenizer: Any = None,
    dtype: torch.dtype | str | None = None,
    device: str | torch.device | None = None,
    runtime: str | None = None,
) -> Model:
    """A Model ready to be asked.

    source:    None for the default model, a folder, hub id or .gguf file, or a loaded transformers model, which is used
               as it is (put into eval mode).
    tokenizer: that of a loaded model.
    dtype:     of the weights. The dense runtime takes float32, float16, bfloat16 or int8; None keeps weights that were
               quantised (GGUF's Q4_0, Q4_1, Q8_0) exactly as they are and stores others in float16; it computes in
               float32. With transformers, None is float32 on a CPU and the checkpoint's own elsewhere.
    device:    None is the CPU.
    runtime:   "dense", the fast one, or "transformers". None takes the fast one for a model loaded by name where it
               fits; a loaded model runs as it is, unless "dense" is asked for, which copies its weights. On a GPU the
               fast one is taken when it is asked for only, and computes in the weights' own dtype.
    Raises LoadError, BadOption, or Incompatible for a model that cannot be served."""
    named = source is None or isinstance(source, str | Path)
    if named and tokenizer is not None:
        raise BadOption("tokenizer belongs to a loaded model; a model loaded by name brings its own")
    kind = as_dtype(dtype)
    place = as_device(device)
    check_runtime(runtime, kind, place)
    stored: Any = "auto" if named and may_be_dense(runtime, kind, place) else kind
    loaded = load_pretrained(source if named else (source, tokenizer), dtype=stored, device=device)
    vocab = 1 + max(loaded.tokenizer.get_vocab().values())
    lm = run(loaded.hf_model, vocab, runtime, kind, ours=named)
    return Model(lm, loaded.tokenizer, loaded.eos_ids, loaded.name)


def draft_model(
    source: Any,
    target: Model,
    *,
    tokenizer: Any = None,
    dtype: torch.dtype | str | None = None,
    device: str | torch.device | None = None,
    runtime: str | None = None,
    **options: Any,
) -> Drafter:
    """The drafter "lm": a smaller model that drafts for `target`. source: a Model, or anything that `load` takes.
    options: the drafter's own, such as k.

    Raises BadOption for an option that does not exist or that a Model cannot be given any more, and Incompatible for a
    model with another tokenizer."""
    if isinstance(source, Model) and (tokenizer, dtype, device, runtime) != (None, None, None, None):
        raise BadOption(
            "tokenizer, dtype, device and runtime belong to a model still to be loaded; this one keeps its own"
        )
    if not isinstance(target, Model):
        raise BadOption(f"target: {type(target).__name__} will not do; give the Model that is to be drafted for")
    if "lm" in options:
        raise BadOption("lm is no option of draft_model: the model that drafts is its source")
    make_drafter("lm", lm=None, **options)  # options are refused before anything is loaded
    model = (
        source
        if isinstance(source, Model)
        else load(source, tokenizer=tokenizer, dtype=dtype, device=device, runtime=runtime)
    )
    check_same_tokenizer(target.tokenizer, model.tokenizer)
    return make_drafter("lm", lm=model.lm, **options)
