"""GGUF files: de-quantised once into a plain float32 folder, which then loads in a moment.

Guards the folders that it makes: whole or absent, checked whenever they are used. Knows nothing of hubs,
drafts or decoding.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import mmap
import os
import shutil
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from filelock import FileLock
from safetensors import SafetensorError

from ..errors import LoadError
from ..files import cache_dir
from .pretrained import read_model, read_tokenizer, reason

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

VERSION = 2  # of the converted folder: raise it when `convert` writes something else
MANIFEST = "manifest.json"  # {file: [bytes, sha256 of its first HEAD bytes]}, written last
HEAD = 1 << 22

# Vocabularies (`tokenizer.ggml.pre`) whose merges were learned with every digit apart.
DIGITS_APART = {"smollm", "starcoder", "refact"}

logger = logging.getLogger("specdecode")


def converted(source: Path) -> Path:
    """The folder that `source`, a GGUF file, was converted into; converted now if it is absent or damaged.

    Raises LoadError when `source` cannot be read or the cache not be written."""
    try:
        key = _sha256(source)[:16]
    except OSError as error:
        raise LoadError(f"cannot read {source}: {reason(error)}") from error
    folder = cache_dir() / f"{source.stem}-{key}-v{VERSION}"
    damage = fault(folder)
    if damage:
        if folder.exists():
            logger.warning("converting %s again: in %s, %s", source.name, folder, damage)
        convert(source, folder)
    return folder


def convert(source: Path, folder: Path) -> None:
    """Write `source`, a GGUF file, as a transformers `folder` in float32, unless a sound one is there.

    Atomic: `folder` appears whole or not at all, and of several processes one converts while the others wait.
    Raises LoadError."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):
            if fault(folder) is not None:
                _build(source, folder)
    except LoadError:
        raise
    except (OSError, SafetensorError) as error:
        raise LoadError(
            f"cannot keep a converted model in {folder.parent}: {reason(error)}; set SPECDECODE_CACHE to another folder"
        ) from error


def fault(folder: Path) -> str | None:
    """What is wrong with a converted folder, naming the file, or None.

    Compares every file's size and first bytes, which costs a few milliseconds."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
        entries = [(folder / name, size, head) for name, (size, head) in manifest.items()]
        for path, size, head in entries:
            found = path.stat().st_size
            if found != size:
                return f"{path.name} has {found} bytes, not {size}"
            if _sha256(path, HEAD) != head:
                return f"{path.name} has changed since it was written"
    except FileNotFoundError:
        return f"{path.name} is missing"
    except OSError as error:
        return f"{path.name} cannot be read: {reason(error)}"
    except (ValueError, TypeError, AttributeError):
        return f"{path.name} is corrupt"
    return None


def _build(source: Path, folder: Path) -> None:
    """Put a converted `source` in the place of `folder`, which is absent or damaged. The caller holds the lock."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a process that was killed
    partial.mkdir()
    try:
        with _status(f"Preparing {source.stem} (once)"):
            _dequantise(source, partial)
        _write_manifest(partial)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _dequantise(source: Path, folder: Path) -> None:
    """The files of the converted model, without the manifest."""
    from safetensors.torch import save_file

    pre = _pre_tokenizer(source)
    with redirect_stderr(io.StringIO()):  # their GGUF loader draws bars that no setting turns off
        model = read_model(source.parent, gguf_file=source.name, dtype=torch.float32)
        tokenizer = read_tokenizer(source.parent, gguf_file=source.name)
    if pre in DIGITS_APART:
        _split_digits(tokenizer)
    tied = model.all_tied_weights_keys
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items() if name not in tied}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    # The model's own save_pretrained refuses because it was quantised once; its parts do not.
    del model.config.quantization_config
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _pre_tokenizer(source: Path) -> str | None:
    """`tokenizer.ggml.pre`, how the vocabulary splits text, if `source` states it. Raises LoadError for no GGUF file.

    Read straight from the header: a full parse of the metadata spends seconds on the vocabulary."""
    name = b"tokenizer.ggml.pre"
    key = struct.pack("<Q", len(name)) + name + struct.pack("<I", 8)  # a length-prefixed name, and type 8: a string
    with source.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise LoadError(f"{source} is not a GGUF file, whatever its name says; download it again")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            start = data.find(key) + len(key)
            if start < len(key):
                return None
            end = start + 8 + int.from_bytes(data[start : start + 8], "little")
            return data[start + 8 : end].decode("utf-8", errors="replace")


def _split_digits(tokenizer: PreTrainedTokenizerBase) -> None:
    """Cut off every digit before byte-level BPE, as the vocabulary's author did: transformers knows no such split and
    would tokenize the text around numbers ("\\n\\n3") in a way the model never saw."""
    from tokenizers import pre_tokenizers as pre

    tokenizer.backend_tokenizer.pre_tokenizer = pre.Sequence(
        [pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]
    )


def _write_manifest(folder: Path) -> None:
    entries = {path.name: (path.stat().st_size, _sha256(path, HEAD)) for path in folder.iterdir()}
    (folder / MANIFEST).write_text(json.dumps(entries, indent=1), encoding="utf-8")


def _sha256(path: Path, limit: int | None = None) -> str:
    """The hash of a file, or of its first `limit` bytes."""
    left = path.stat().st_size if limit is None else limit
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while left > 0 and (block := file.read(min(left, 1 << 20))):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


@contextmanager
def _status(text: str) -> Iterator[None]:
    """One line on the terminal's stderr while the body runs; nothing where there is no terminal."""
    from rich.console import Console

    with Console(file=sys.stderr).status(text):  # the stream of now: it is redirected while transformers loads
        yield
