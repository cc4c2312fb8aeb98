"""Where a benchmark ran, in words: processor, threads and versions. Knows nothing of what was measured."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from .. import costs

PACKAGES = ("specdecode", "torch", "transformers", "llama-cpp-python")


def machine() -> dict[str, Any]:
    """The machine, and the versions of what runs on it, ready for JSON."""
    return {
        "processor": costs.machine(),
        "threads": torch.get_num_threads(),
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),  # of our threads and of llama.cpp's
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        **{package: _version(package) for package in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
