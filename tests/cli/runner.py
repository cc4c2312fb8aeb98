"""What a command line printed, and how it ended."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line of a refusal: of what could not be done (1), or of a wrong command line (2)."""
        assert self.code in (1, 2), self
        assert self.out == ""
        prefix, line = "specdecode: error: ", self.err.rstrip("\n")
        assert line.startswith(prefix), line
        assert "\n" not in line, line
        return line.removeprefix(prefix)


Cli = Callable[..., Result]
