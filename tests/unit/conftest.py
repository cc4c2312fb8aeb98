"""The tiny models that the tests of the text layer ask."""

from __future__ import annotations

import pytest
import texts

import specdecode as sd
from specdecode.models.lm import LM


@pytest.fixture(scope="session")
def target() -> LM:
    return texts.tiny_lm(0)


@pytest.fixture(scope="session")
def model(target: LM) -> sd.Model:
    return sd.Model(target, texts.TOKENIZER)
