"""What all tests share: no network, one thread, and the default model loaded at most once."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported, so before anything else
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

from specdecode.models.loading import Loaded, load_pretrained

torch.set_num_threads(1)  # tiny models run faster so, and sums come in one order


@pytest.fixture(scope="session")
def smol() -> Loaded:
    """The default model, converted into $SPECDECODE_CACHE (or the user's cache) the first time. Do not change it."""
    return load_pretrained()
