"""The machine itself: its name, how fast it reads memory and how fast it multiplies. Knows no model."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import perf_counter

import torch

ROUNDS = 9


@cache
def machine() -> str:
    """The processor, how many cores of it, and the accelerator if there is one, in words."""
    processor = platform.processor() or platform.machine()
    with suppress(OSError):  # Linux alone says more there
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        processor = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), processor)
    device = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return f"{processor}, {os.cpu_count()} cores{device}"


def read_bandwidth() -> float:
    """Bytes a second that the CPU reads from memory, with the threads that torch uses."""
    data = torch.ones(1 << 26)
    return data.nbytes / _fastest(data.sum)


def multiplication_speed() -> float:
    """Floating-point operations a second of a float32 matrix product on the CPU, with the threads that torch uses."""
    n = 1024
    matrix = torch.ones(n, n)
    return 2 * n**3 / _fastest(lambda: matrix @ matrix)


def _fastest(work: Callable[[], object]) -> float:
    """Seconds of the best of some rounds: the question is what the machine can do."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = perf_counter()
        work()
        best = min(best, perf_counter() - started)
    return best
