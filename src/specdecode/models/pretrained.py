"""The one place that calls transformers' `from_pretrained`: silent, local and strict.

Silent: no bar, log line or warning of theirs reaches the user. Strict: weights that do not fit the config are refused,
where transformers warns and goes on with random ones. Knows folders and GGUF files; nothing of hubs or decoding.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from ..errors import LoadError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# What a wrong or damaged file makes transformers, gguf and safetensors raise.
FAILURES = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    RuntimeError,
    ImportError,
    ArithmeticError,
    struct.error,
    SafetensorError,
    StrictDataclassError,
)


@contextmanager
def quiet() -> Iterator[None]:
    """Holds back transformers' bars, log lines and warnings, and leaves its settings as they were."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def read_model(
    folder: Path, *, gguf_file: str | None = None, dtype: torch.dtype | Literal["auto"] = "auto"
) -> PreTrainedModel:
    """The causal language model in `folder` (or in its `gguf_file`), in eval mode, on the CPU.

    Raises LoadError when it cannot be read, or when weights are missing, left over or of another shape."""
    from transformers import AutoModelForCausalLM

    what = folder / gguf_file if gguf_file else folder
    with quiet():
        try:
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                gguf_file=gguf_file,
                dtype=dtype,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported below with their names, not as a multi-line exception
                trust_remote_code=False,
                local_files_only=True,
            )
        except FAILURES as error:
            raise LoadError(f"cannot load the model in {what}: {reason(error)}") from error
    misfit = _misfit(report)
    if misfit:
        raise LoadError(
            f"the weights in {what} do not match its config: {misfit}; "
            "repair the files, or load the model yourself and give it to load(model, tokenizer=...)"
        )
    return model


def read_tokenizer(folder: Path, *, gguf_file: str | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer in `folder` (or in its `gguf_file`), without clean-up of decoded spaces. Raises LoadError."""
    from transformers import AutoTokenizer

    with quiet():
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                folder,
                gguf_file=gguf_file,
                clean_up_tokenization_spaces=False,
                trust_remote_code=False,
                local_files_only=True,
            )
        except Exception as error:  # the tokenizers library raises nothing narrower for a damaged file
            what = folder / gguf_file if gguf_file else folder
            raise LoadError(f"cannot load the tokenizer in {what}: {reason(error)}") from error
    return tokenizer


def reason(error: BaseException) -> str:
    """What an exception says, in one line short enough for an error of ours."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    text = " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
    return text[:200].rstrip(".:")


def _misfit(report: Mapping[str, Any]) -> str | None:
    """The first weight that is missing, of another shape or left over, in words. Tied weights count as present."""
    missing, mismatched, unexpected = (
        sorted(report[kind]) for kind in ("missing_keys", "mismatched_keys", "unexpected_keys")
    )
    if missing:
        return f"{missing[0]} is missing ({len(missing)} in all)"
    if mismatched:
        name, found, wanted = mismatched[0]
        return f"{name} has shape {list(found)}, not {list(wanted)} ({len(mismatched)} in all)"
    if unexpected:
        return f"{unexpected[0]} has no place in the model ({len(unexpected)} in all)"
    return None
