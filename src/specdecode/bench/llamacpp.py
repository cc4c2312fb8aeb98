"""Peer: llama.cpp, plain greedy decoding from a GGUF file, through llama-cpp-python (the extra `peers`).

It runs in a process of its own (`llamacpp_worker`): its threads and ours do not meet, and a fault of its native code is
a one-line error here. Knows files and that process.
"""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from ..errors import BadOption, Incompatible, SpecError, shown
from ..files import cache_dir, whole
from ..models import embedded
from .arms import Models, Source
from .records import Timing

PACKAGE = "llama_cpp"
QUANTISATIONS = ("f16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k_m", "q5_k_m", "q6_k")
WORKER = f"{__name__}_worker"


class PeerFailed(SpecError, RuntimeError):
    """The peer's process could not do what it was asked, or has ended."""


@dataclass(frozen=True)
class LlamaCpp:
    """quantisation: one of QUANTISATIONS, made by llama.cpp itself; None takes the model's file as it is."""

    quantisation: str | None = None

    def __post_init__(self) -> None:
        if self.quantisation is not None and self.quantisation not in QUANTISATIONS:
            known = ", ".join(QUANTISATIONS)
            raise BadOption(f"arm llamacpp: {shown(self.quantisation)} is no quantisation; choose one of: {known}")

    def check(self, source: Source) -> None:
        if find_spec(PACKAGE) is None:
            raise Incompatible("arm llamacpp needs llama-cpp-python: run `pip install 'specdecode[peers]'`")
        gguf_file(source)

    def open(self, models: Models) -> LlamaArm:
        path = gguf_file(models.source)
        process = Process(WORKER)
        models.at_exit(process.close)
        if self.quantisation is not None:
            path = quantised(path, self.quantisation, process)
        process.ask(do="load", path=str(path), threads=torch.get_num_threads())
        return LlamaArm(process, path.name, models.target().eos_ids)


class LlamaArm:
    """The arm at work. The times are the process's own: what is said to it costs nothing."""

    def __init__(self, process: Process, file: str, eos_ids: Sequence[int]) -> None:
        self._process, self._eos_ids = process, list(eos_ids)
        self.about = f"llama.cpp {file}"

    def run(self, ids: Sequence[int], max_new_tokens: int) -> Timing:
        told = self._process.ask(do="run", ids=list(ids), max_new_tokens=max_new_tokens, eos_ids=self._eos_ids)
        tokens = tuple(told["tokens"])
        return Timing(tokens, (1,) * len(tokens), told["first_s"], told["total_s"])


class Process:
    """A Python module that answers JSON lines with JSON lines, run apart from this process."""

    def __init__(self, module: str) -> None:
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - see close
        command = [sys.executable, "-m", module]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, encoding="utf-8"
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Its answer. Raises PeerFailed when it reports a problem, or ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise PeerFailed(f"the process of llama.cpp has ended ({self._end()}); leave its arms out")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerFailed(f"llama.cpp: {answer['error']}; leave this arm out, or give another model file")
        return answer

    def close(self) -> None:
        self._process.communicate()  # the end of its input ends it
        self._errors.close()

    def _end(self) -> str:
        """Why it ended: the last line it left, or the signal that stopped it."""
        code = self._process.wait()
        if code < 0:
            return signal.Signals(-code).name
        self._errors.seek(0)
        return (self._errors.read().splitlines() or [f"exit code {code}"])[-1]


def gguf_file(source: Source) -> Path:
    """The model's GGUF file. Raises Incompatible where it has none."""
    if source.model is None:
        return embedded.find()
    path = Path(source.model).expanduser()
    if path.suffix != ".gguf":
        raise Incompatible(f"arm llamacpp reads GGUF files, not {source.model}; give a .gguf model, or leave it out")
    return path


def quantised(path: Path, quantisation: str, process: Process) -> Path:
    """`path` in another quantisation, from the cache folder or made now."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    target = cache_dir() / f"{path.stem}-{digest.hexdigest()[:16]}.{quantisation}.gguf"
    if not target.exists():
        with whole(target) as partial:
            process.ask(do="quantise", path=str(path), target=str(partial), quantisation=quantisation)
    return target
