"""llama.cpp in a process of its own: reads JSON requests, one a line, and answers each with a line.

Runs as a module, and imports nothing of the package's but its name. Knows no arm and no question.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import sys
from time import perf_counter
from typing import Any

N_BATCH = 512  # prompt tokens in one call, as llama.cpp's own default is


class Failed(Exception):
    """llama.cpp refused."""


class Llama:
    """llama.cpp's C interface, as llama-cpp-python hands it out, with at most one model loaded."""

    def __init__(self) -> None:
        import llama_cpp

        logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)
        self._c: Any = llama_cpp
        self._model: Any = None
        self._threads = 1
        self._c.llama_backend_init()

    def quantise(self, path: str, target: str, quantisation: str) -> dict[str, Any]:
        options = self._c.llama_model_quantize_default_params()
        options.ftype = getattr(self._c, f"LLAMA_FTYPE_MOSTLY_{quantisation.upper()}")
        options.allow_requantize = True  # the default model is quantised itself
        if self._c.llama_model_quantize(os.fsencode(path), os.fsencode(target), ctypes.byref(options)):
            raise Failed(f"{path} could not be quantised to {quantisation}")
        return {}

    def load(self, path: str, threads: int) -> dict[str, Any]:
        options = self._c.llama_model_default_params()
        options.n_gpu_layers = 0
        self._model = self._c.llama_model_load_from_file(os.fsencode(path), options)
        if not self._model:
            raise Failed(f"{path} could not be loaded")
        self._threads = threads
        return {}

    def run(self, ids: list[int], max_new_tokens: int, eos_ids: list[int]) -> dict[str, Any]:
        """Greedy decoding. The context is made beforehand and is not timed: one would serve many prompts."""
        options = self._c.llama_context_default_params()
        options.n_ctx = len(ids) + max_new_tokens
        options.n_batch = N_BATCH
        options.n_threads = options.n_threads_batch = self._threads
        context, sampler = self._c.llama_init_from_model(self._model, options), self._c.llama_sampler_init_greedy()
        if not context:
            raise Failed(f"no context for {options.n_ctx} tokens")
        started = perf_counter()
        for begin in range(0, len(ids), N_BATCH):
            self._read(context, ids[begin : begin + N_BATCH])
        tokens = [self._c.llama_sampler_sample(sampler, context, -1)]
        first_s = perf_counter() - started
        while len(tokens) < max_new_tokens and tokens[-1] not in eos_ids:
            self._read(context, tokens[-1:])
            tokens.append(self._c.llama_sampler_sample(sampler, context, -1))
        total_s = perf_counter() - started
        self._c.llama_sampler_free(sampler)
        self._c.llama_free(context)
        return {"tokens": tokens, "first_s": first_s, "total_s": total_s}

    def _read(self, context: Any, ids: list[int]) -> None:
        tokens = (self._c.llama_token * len(ids))(*ids)
        if self._c.llama_decode(context, self._c.llama_batch_get_one(tokens, len(ids))):
            raise Failed(f"{len(ids)} tokens could not be decoded")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the other process's; it closes our input
    llama = Llama()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(llama, request.pop("do"))(**request)
        except Failed as failure:
            answer = {"error": str(failure)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
