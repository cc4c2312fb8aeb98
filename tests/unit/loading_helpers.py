"""What the tests of loading share."""

from __future__ import annotations

from typing import Any

import pytest

from specdecode.errors import LoadError
from specdecode.models.loading import load_pretrained


def refused(source: Any, *words: str) -> None:
    """`source` is refused in one line that holds all `words`."""
    with pytest.raises(LoadError) as caught:
        load_pretrained(source)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 500
    for word in words:
        assert word in message
