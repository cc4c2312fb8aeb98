"""llama.cpp as an arm, with a stand-in for llama-cpp-python that its own process imports."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specdecode.bench.arms import Source, parse
from specdecode.bench.llamacpp import WORKER, LlamaArm, PeerFailed, Process, gguf_file, quantised
from specdecode.errors import SpecError

FAKE = '''
"""Says the sum of all ids it has read, modulo 50; a file named "broken" cannot be loaded."""
import ctypes, os

LLAMA_FTYPE_MOSTLY_Q4_0, LLAMA_FTYPE_MOSTLY_Q8_0 = 2, 7
llama_token = ctypes.c_int32

class Options:
    pass

class Context:
    def __init__(self, options):
        assert options.n_threads == options.n_threads_batch == 3
        self.room, self.read = options.n_ctx, []

def llama_backend_init(): print("llama.cpp has much to say", file=__import__("sys").stderr)
def llama_model_quantize_default_params(): return ctypes.c_int32()
def llama_model_quantize(path, target, options):
    if b"broken" in path:
        return 1
    with open(path) as f, open(target, "w") as g:
        g.write(f.read() + " quantised")
    return 0
def llama_model_default_params(): return Options()
def llama_model_load_from_file(path, options): return None if b"broken" in path else path
def llama_context_default_params(): return Options()
def llama_init_from_model(model, options): return Context(options)
def llama_sampler_init_greedy(): return "greedy"
def llama_batch_get_one(tokens, n): return list(tokens)[:n]
def llama_decode(context, batch):
    if 13 in batch:
        os.abort()
    context.read += batch
    return 1 if len(context.read) > context.room else 0
def llama_sampler_sample(sampler, context, index): return sum(context.read) % 50
def llama_sampler_free(sampler): pass
def llama_free(context): pass
'''


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    (tmp_path / "llama_cpp.py").write_text(FAKE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = Process(WORKER)
    yield process
    process.close()


def test_it_decodes_greedily_from_ids(process: Process) -> None:
    process.ask(do="load", path="model.gguf", threads=3)
    timing = LlamaArm(process, "model.gguf", [0]).run([1, 2, 3], 4)
    assert timing.tokens == (6, 12, 24, 48)
    assert timing.steps == (1, 1, 1, 1)
    assert 0 < timing.first_s <= timing.total_s


def test_an_end_token_ends_it(process: Process) -> None:
    process.ask(do="load", path="model.gguf", threads=3)
    assert LlamaArm(process, "model.gguf", [24]).run([1, 2, 3], 9).tokens == (6, 12, 24)


def test_a_long_prompt_is_read_in_parts(process: Process) -> None:
    process.ask(do="load", path="model.gguf", threads=3)
    assert LlamaArm(process, "model.gguf", []).run([1] * 1201, 2).tokens == (1, 2)


def test_a_quantised_file_is_made_once_and_kept(
    process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDECODE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "model.gguf"
    file.write_text("weights")
    made = quantised(file, "q4_0", process)
    assert made.read_text() == "weights quantised"
    assert list(made.parent.iterdir()) == [made]
    made.write_text("kept")
    assert quantised(file, "q4_0", process) == made
    assert made.read_text() == "kept"
    assert quantised(file, "q8_0", process) != made
    file.write_text("others")
    assert quantised(file, "q4_0", process) != made


def test_what_it_refuses_is_one_line(process: Process, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDECODE_CACHE", str(tmp_path / "cache"))
    (broken := tmp_path / "broken.gguf").touch()
    with pytest.raises(PeerFailed, match="could not be loaded; leave this arm out"):
        process.ask(do="load", path=str(broken), threads=3)
    with pytest.raises(PeerFailed, match="could not be quantised to q4_0"):
        quantised(broken, "q4_0", process)
    assert list((tmp_path / "cache").iterdir()) == []
    process.ask(do="load", path="model.gguf", threads=3)
    assert LlamaArm(process, "model.gguf", []).run([1], 1).tokens == (1,)


def test_a_fault_of_its_native_code_is_one_line_too(process: Process) -> None:
    process.ask(do="load", path="model.gguf", threads=3)
    for _ in range(2):
        with pytest.raises(PeerFailed, match=r"has ended \(SIGABRT\)") as info:
            LlamaArm(process, "model.gguf", []).run([13], 2)
        assert "\n" not in str(info.value)


def test_a_package_that_cannot_be_imported_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama_cpp.py").write_text("raise OSError('libllama is missing')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = Process(WORKER)
    with pytest.raises(PeerFailed, match="libllama is missing"):
        process.ask(do="load", path="model.gguf", threads=1)
    process.close()


def test_an_absent_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdecode.bench.llamacpp.find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"pip install 'specdecode\[peers\]'"):
        parse("llamacpp:q4_0").check(Source())


def test_a_model_without_a_gguf_file_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "llama_cpp.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with pytest.raises(SpecError, match=r"reads GGUF files, not some/folder"):
        parse("llamacpp").check(Source("some/folder"))
    parse("llamacpp").check(Source("some/file.gguf"))
    assert gguf_file(Source("some/file.gguf")) == Path("some/file.gguf")


def test_the_process_starts_without_our_own_libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's threads would be in its way."""
    (tmp_path / "llama_cpp.py").write_text(
        "import sys\nheavy = {'torch', 'transformers', 'numpy'} & set(sys.modules)\nraise OSError(f'found {heavy}')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process: Any = Process(WORKER)
    with pytest.raises(PeerFailed, match=r"found set\(\)"):
        process.ask(do="load", path="model.gguf", threads=1)
    process.close()
