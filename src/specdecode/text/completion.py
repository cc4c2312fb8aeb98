"""What a user gets back: the finished Completion, and the Pieces of one that is being streamed. Plain frozen values."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ..metrics import Metrics
from ..types import TokenLogprob


@dataclass(frozen=True)
class Completion:
    """One finished answer.

    text:          the decoded new tokens, without special tokens, cut at the stop string if one ended it.
    tokens:        every new id; the last is the end token or the one that completed the stop string.
    prompt_tokens: how many ids the prompt had.
    finish_reason: "eos" (an end token or stop id), "stop" (a stop string), "grammar" (which is complete: nothing may
                   follow), "length" (max_new_tokens), or "context" (the model's context is full).
    logprobs:      the target's raw log-probabilities, before temperature and filters, one entry a token; None unless
                   they were asked for.
    seed:          what its noise was made from; with it, and the same rule, the text comes out again. None if greedy.
    drafter, rule: names of what decoded it.
    prefill_s:     seconds in which the prompt was read, those of a batch together; not part of decode_s.
    decode_s:      seconds from then to its last token, without turning ids into text and the time a consumer of the
                   stream took.
    """

    text: str
    tokens: tuple[int, ...]
    prompt_tokens: int
    finish_reason: str
    logprobs: tuple[TokenLogprob, ...] | None
    seed: int | None
    drafter: str
    rule: str
    metrics: Metrics
    prefill_s: float
    decode_s: float

    @property
    def tokens_per_second(self) -> float | None:
        """New tokens per second of decode_s; None where that is too short to be measured."""
        return len(self.tokens) / self.decode_s if self.decode_s else None

    def to_dict(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        return {
            **asdict(self),
            "tokens": list(self.tokens),
            "logprobs": None if self.logprobs is None else [asdict(entry) for entry in self.logprobs],
            "metrics": self.metrics.to_dict(),
            "tokens_per_second": self.tokens_per_second,
        }


@dataclass(frozen=True)
class Piece:
    """A run of streamed tokens of one origin; a step gives at most two.

    text:       what can be shown now. It may lag behind the tokens: an incomplete character and what may begin a stop
                string are held back. The texts joined are Completion.text.
    tokens:     the new ids, each streamed once.
    drafted:    True where a drafter proposed them, False where the target chose the token itself.
    logprobs:   one entry a token, if asked for.
    completion: the whole answer, on the last piece.
    """

    text: str
    tokens: tuple[int, ...]
    drafted: bool
    logprobs: tuple[TokenLogprob, ...] | None = None
    completion: Completion | None = None

    @property
    def finish_reason(self) -> str | None:
        """Why the answer ended; None on all pieces but the last."""
        return None if self.completion is None else self.completion.finish_reason
