"""One request's whole state while it is decoded: its tokens, and the objects that shape and stop it.

A session knows no model and no text. Drafters read it; only the engine appends to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .constraints import Filters
from .grammar import Matcher
from .metrics import StepRecord
from .sampling import Noise
from .stopping import Stopping
from .types import Prompt, TokenLogprob


@dataclass(eq=False)
class Session:
    """tokens: prompt and output, the newest last; `filters`, `noise` and `stopping` belong to this session alone.

    grammar: the session's place in a grammar, which its filters and its stopping read too; None where it has none.
    top_logprobs: how many alternatives to report for each emitted token; None reports no log-probabilities at all.
    spent: nats that a relaxed rule let this answer cost so far (verify/relaxed.py)."""

    prompt: Prompt
    filters: Filters
    noise: Noise
    stopping: Stopping
    top_logprobs: int | None = None
    grammar: Matcher | None = None
    tokens: list[int] = field(init=False)
    records: list[StepRecord] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    spent: float = 0.0

    def __post_init__(self) -> None:
        self.tokens = list(self.prompt.ids)

    @property
    def prompt_length(self) -> int:
        return len(self.prompt.ids)

    @property
    def newest(self) -> int:
        return self.tokens[-1]

    @property
    def position(self) -> int:
        """The absolute index of the token that is decided next."""
        return len(self.tokens)

    @property
    def new_tokens(self) -> list[int]:
        return self.tokens[self.prompt_length :]

    @property
    def remaining(self) -> int:
        """How many tokens may still be emitted."""
        return self.stopping.max_new_tokens - (len(self.tokens) - self.prompt_length)
