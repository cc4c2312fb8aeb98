"""What all tests share: no network, one thread, and the default model loaded at most once."""

from __future__ import annotations

import os
from collections.abc import Iterator

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported, so before anything else
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

from specdecode.costs import store
from specdecode.models.loading import Loaded, load_pretrained

torch.set_num_threads(1)  # tiny models run faster so, and sums come in one order


@pytest.fixture(scope="session", autouse=True)
def costs_of_test_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Measured costs go to a folder of their own, not to the user's."""
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "cache_dir", lambda: folder)
        yield


@pytest.fixture(scope="session")
def smol() -> Loaded:
    """The default model, converted into $SPECDECODE_CACHE (or the user's cache) the first time. Do not change it."""
    return load_pretrained()
