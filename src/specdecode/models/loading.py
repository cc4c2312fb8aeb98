"""From what a user names to a model, its tokenizer and its end-of-sequence ids, checked before any pass.

A source is a folder, a hub id, a GGUF file, a loaded (model, tokenizer) pair, or None for the default model. Knows
files and tokenizers; nothing of key/value caches, drafts or decoding.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from ..errors import BadOption, Incompatible, LoadError, is_count, shown
from . import attention, embedded, gguf
from .pretrained import read_model, read_tokenizer, reason

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8)
HUB_FILES = ("*.json", "*.jinja", "*.txt", "*.model", "model*.safetensors")
JSON_FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "model.safetensors.index.json")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "tekken.json")


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model ready to be wrapped. eos_ids: ascending, empty when the model ends by length alone."""

    hf_model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    eos_ids: tuple[int, ...]
    name: str


def load_pretrained(
    source: str | Path | tuple[PreTrainedModel, PreTrainedTokenizerBase] | None = None,
    *,
    dtype: torch.dtype | Literal["auto"] | None = None,
    device: str | torch.device | None = None,
) -> Loaded:
    """Load `source` in eval mode.

    dtype:  "auto" is the checkpoint's own; None is float32 on a CPU, and the checkpoint's own elsewhere.
    device: None is the CPU. A loaded pair keeps both and is only put into eval mode.
    Raises LoadError when something is missing, incomplete, corrupt or does not match, and BadOption for a device that
    is not there."""
    if isinstance(source, tuple):
        if dtype is not None or device is not None:
            raise BadOption("dtype and device belong to models loaded by name: a loaded model keeps its own")
        return _from_pair(source)
    place = as_device(device)
    folder, name = _locate(source)
    _check(folder)
    model = read_model(folder, dtype=dtype or (torch.float32 if place.type == "cpu" else "auto")).to(place)
    tokenizer = read_tokenizer(folder)
    return Loaded(model, tokenizer, eos_ids(model, tokenizer), name)


def load_tokenizer(source: str | Path | None = None) -> PreTrainedTokenizerBase:
    """The tokenizer of `source`, a folder, hub id, GGUF file or None for the default model, without its weights.

    Raises LoadError."""
    folder, _ = _locate(source)
    if not folder.is_dir():
        _check(folder)
    return read_tokenizer(folder)


def as_dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """The type called `dtype`. Raises BadOption for one that no runtime stores weights in."""
    found = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(found, torch.dtype) and found in DTYPES):
        raise BadOption(f"dtype {shown(dtype)} is no type of weights; use float32, bfloat16, float16, float64 or int8")
    return found


def speed_up(hf_model: Any) -> None:
    """Let a model of our own loading attend to draft trees without copying its keys out to every query head."""
    config = hf_model.config.get_text_config(decoder=True)
    soft_capped = getattr(config, "attn_logit_softcapping", None) is not None
    if config._attn_implementation == "sdpa" and not soft_capped:
        hf_model.set_attn_implementation(attention.register())


def check_same_tokenizer(target: PreTrainedTokenizerBase, drafter: PreTrainedTokenizerBase) -> None:
    """Every id that both tokenizers define must stand for the same token. One of them may go on where the other ends
    (padding, tokens added later): its further ids are never drafted. How text is split does not matter, nor which token
    ends a sequence. Raises Incompatible, naming the first id that differs."""
    ours, theirs = _tokens(target), _tokens(drafter)
    for i in range(min(max(ours), max(theirs)) + 1):
        if ours.get(i) != theirs.get(i):
            raise Incompatible(
                f"the drafter's tokenizer is not the target's: id {i} is {ours.get(i)!r} in {_label(target)} but "
                f"{theirs.get(i)!r} in {_label(drafter)}; choose a drafter of the target's family"
            )


def eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """The ids that end a sequence, from the first of generation config, config and tokenizer that names any.

    Raises LoadError for one that is no id of the model's."""
    config = model.config.get_text_config(decoder=True)
    for holder in (getattr(model, "generation_config", None), config, tokenizer):
        named = getattr(holder, "eos_token_id", None)
        if named is not None:
            named = named.tolist() if isinstance(named, torch.Tensor) else named
            ids = named if isinstance(named, list | tuple | set) else [named]
            for i in ids:
                if not is_count(i) or i >= config.vocab_size:
                    raise LoadError(
                        f"{type(holder).__name__} names eos_token_id {shown(i)}, but the model's ids are whole numbers "
                        f"from 0 to {config.vocab_size - 1}; correct it, or give the tokenizer made for this model"
                    )
            return tuple(sorted({int(i) for i in ids}))
    return ()


def _from_pair(pair: tuple[Any, ...]) -> Loaded:
    if len(pair) != 2 or not hasattr(pair[0], "config") or not hasattr(pair[1], "get_vocab"):
        found = ", ".join(type(part).__name__ for part in pair)
        raise LoadError(
            f"cannot load ({found}): give a model of transformers, and the tokenizer too: load(model, tokenizer=...)"
        )
    model, tokenizer = pair
    name = Path(getattr(model.config, "_name_or_path", "") or type(model).__name__).name
    return Loaded(model.eval(), tokenizer, eos_ids(model, tokenizer), name)


def _locate(source: str | Path | None) -> tuple[Path, str]:
    """The folder that holds `source` in transformers' format, fetched or converted if need be, and a name for it."""
    if source is None:
        return gguf.converted(embedded.find()), embedded.NAME
    if not isinstance(source, str | Path):
        found = type(source).__name__
        raise LoadError(f"cannot load a {found}: give a folder, a hub id, a GGUF file, or load(model, tokenizer=...)")
    try:
        path = Path(source).expanduser()
        exists, name = path.exists(), path.resolve().name
    except (OSError, ValueError, RuntimeError) as error:  # too long a name, a null byte, the home of nobody
        raise LoadError(f"cannot load {shown(source)}, which is no path: {reason(error)}; give the model's") from error
    if path.suffix == ".gguf":
        return gguf.converted(path), path.stem
    if exists or isinstance(source, Path) or not HUB_ID.fullmatch(source):
        return path, name
    return _download(source), source


def _download(hub_id: str) -> Path:
    """The folder of the hub's model, from its cache when there is no network."""
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(hub_id, allow_patterns=list(HUB_FILES)))
    except (OSError, ValueError) as error:
        raise LoadError(
            f"no folder {hub_id} is here, and the model hub did not give a model of that name ({reason(error)}); "
            "check the name, or download the model elsewhere and give its folder"
        ) from error


def _check(folder: Path) -> None:
    """Refuse a folder that is incomplete or damaged, naming the file, before transformers sees it."""
    if not folder.is_dir():
        found = "is a file, neither a folder nor .gguf" if folder.exists() else "does not exist"
        raise LoadError(f"cannot load a model from {folder}: it {found}; give the folder of a model, or its hub id")
    names = sorted(path.name for path in folder.iterdir())
    listing = ", ".join(names[:8]) or "nothing"
    if "config.json" not in names:
        raise LoadError(f"no config.json in {folder}, which holds {listing}; give the folder of a transformers model")
    if not any(name in names for name in TOKENIZER_FILES):
        raise LoadError(f"no tokenizer in {folder}, which holds {listing}; copy the model's tokenizer.json there")
    parsed = {name: _read_json(folder / name) for name in JSON_FILES if name in names}
    for path in _weight_files(folder, parsed.get("model.safetensors.index.json")):
        _check_weights(path)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        parsed = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadError(f"{path} is not valid JSON ({reason(error)}); download it again") from error
    if not isinstance(parsed, dict):
        raise LoadError(f"{path} holds a JSON {type(parsed).__name__} where an object is expected; download it again")
    return parsed


def _weight_files(folder: Path, index: dict[str, Any] | None) -> list[Path]:
    """The safetensors files of the model: one, or the shards of its index."""
    single = folder / "model.safetensors"
    if single.exists() or index is None:
        return [single]
    shards = index.get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise LoadError(f"{folder / 'model.safetensors.index.json'} lists no weights; download it again")
    for name in shards.values():
        if not isinstance(name, str) or Path(name).name != name:
            index_file = folder / "model.safetensors.index.json"
            raise LoadError(f"{index_file} names {shown(name)}, which is no file beside it; download it again")
    return [folder / name for name in sorted(set(shards.values()))]


def _check_weights(path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt"):  # reads the header and compares it with the file's size
            return
    except FileNotFoundError as error:
        raise LoadError(f"no {path.name} in {path.parent}: weights are read from safetensors only; add it") from error
    except (OSError, SafetensorError) as error:
        raise LoadError(f"{path} is truncated or corrupt ({reason(error)}); download it again") from error


def as_device(device: str | torch.device | None) -> torch.device:
    try:
        place = torch.device("cpu" if device is None else device)
        torch.zeros((), device=place).item()  # "meta" holds no numbers
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:  # torch asserts that it was built for it
        found = f"device {shown(str(device))} cannot be used ({reason(error)})"
        raise BadOption(f"{found}; choose another, such as cpu") from error
    return place


def _tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    return {i: token for token, i in tokenizer.get_vocab().items()}


def _label(tokenizer: PreTrainedTokenizerBase) -> str:
    name = Path(getattr(tokenizer, "name_or_path", "") or type(tokenizer).__name__).name
    return f"{name} ({len(tokenizer)} tokens)"
