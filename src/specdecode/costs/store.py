"""Which curves are known: in this process, and in the cache folder by machine, threads and the model's signature."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict
from pathlib import Path
from weakref import WeakKeyDictionary

import torch

from ..errors import LoadError
from ..files import cache_dir, write_whole
from ..models.lm import LM
from .curve import Curve
from .hardware import machine
from .measuring import measure

VERSION = 1  # of the stored files: raise it when older ones should be measured again

log = logging.getLogger("specdecode")


def of(lm: LM) -> Curve:
    """The curve of `lm`: as it is known, or else measured now, which takes up to three seconds or a few passes."""
    curve = known(lm)
    if curve is None:
        log.info("measuring what a pass of this model costs on this machine (once)")
        curve = measure(lm)
        remember(lm, curve)
    return curve


def known(lm: LM) -> Curve | None:
    """The curve that this process or the cache folder holds for this model, machine and number of threads."""
    if not lm.signature:
        return _unnamed.get(lm)
    key = _key(lm)
    if key not in _named and (stored := _stored(key)) is not None:
        _named[key] = stored
    return _named.get(key)


def remember(lm: LM, curve: Curve) -> Path | None:
    """Keep a curve in this process and, where it can be written, in the cache folder: the file, or None."""
    if not lm.signature:
        _unnamed[lm] = curve
        return None
    key = _key(lm)
    _named[key] = curve
    try:
        return _store(key, curve)
    except (OSError, LoadError) as error:
        log.info("measured costs are not kept for later: %s", error)
        return None


_Key = tuple[str, int, str]  # machine, threads, signature
_named: dict[_Key, Curve] = {}
_unnamed: WeakKeyDictionary[LM, Curve] = WeakKeyDictionary()  # models that say nothing of themselves


def _key(lm: LM) -> _Key:
    return (machine(), torch.get_num_threads(), lm.signature)


def _path(key: _Key) -> Path:
    return cache_dir() / "costs" / f"{hashlib.sha256(repr((VERSION, *key)).encode()).hexdigest()[:16]}.json"


def _stored(key: _Key) -> Curve | None:
    """None also for a file that is damaged or speaks of something else: it will be written anew."""
    try:
        entry = json.loads(_path(key).read_text(encoding="utf-8"))
        return Curve.from_dict(entry["curve"]) if [*key] == entry["key"] else None
    except (OSError, LoadError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None


def _store(key: _Key, curve: Curve) -> Path:
    path = _path(key)
    write_whole(path, json.dumps({"key": key, "curve": asdict(curve)}, indent=1))
    return path
