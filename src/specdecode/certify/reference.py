"""What texts are judged by: the model's own scores from a fresh cache that read the prompt and then the text as it is.

No draft, no tree, no rollback comes near it. Knows models and filters, no drafter and no rule.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from ..models.lm import LM, read
from ..sampling import Sampling
from ..text.detokenize import Decoder
from ..text.model import Model
from ..text.request import Request, open_session, seeded
from ..types import Draft, Prompt, Row

CHUNK = 64  # tokens of a text in one pass: bounds the memory of its logits
TOLERANCE = {"float32": 1e-4, "float16": 0.05, "bfloat16": 0.4}
"""By how much rounding may move logits where one pass has more rows than the other, by what the pass computes in: their
root mean square difference, in standard deviations of all logits. Twice what was seen in bfloat16 behind random tokens,
which amplify it; a cache with one wrong token moves them by 1 to 3."""


def tolerance(lm: LM) -> float:
    """Its entry of TOLERANCE. A runtime that names its device computes in the type of its weights; the dense one on a
    CPU, which names none, in float32 whatever it stores."""
    words = lm.signature.split()
    kind = next((word for word in words if word in TOLERANCE), "float32") if "on" in words else "float32"
    return TOLERANCE[kind]


def spread(logits: Tensor) -> float:
    """The standard deviation of the finite ones of [V] logits; 1 where they do not differ."""
    finite = logits[torch.isfinite(logits)].double()
    return float(finite.std(correction=0)) or 1.0


def near_tie(lm: LM, law: Tensor) -> float:
    """How far apart, in logits, rounding may have brought two tokens of a law [V], behind a text that makes sense."""
    return tolerance(lm) * spread(law) / 2


def reread(lm: LM, prompt: Sequence[int], text: Sequence[int]) -> Iterator[Tensor]:
    """[m, V] raw logits, CHUNK tokens a time: line i is what the model says before token i of `text`.

    The prompt is read as `engine` does it, so that a runtime which rounds prompts more coarsely does it here too."""
    cache = lm.open([Prompt(tuple(prompt))])
    read(lm, cache, {0: prompt[:-1]})
    tokens = [prompt[-1], *text[:-1]]
    for start in range(0, len(text), CHUNK):
        part = tokens[start : start + CHUNK]
        (scores,) = lm.score(cache, [Row.chain(0, part)])
        yield scores.logits
        cache.keep(0, range(len(part)))


class Reference:
    """A model, asked for the laws of texts that are there."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._decoder = Decoder(model.tokenizer)

    def laws(self, prompt: Sequence[int], text: Sequence[int], request: Request) -> Iterator[Tensor]:
        """[V] filtered logits for each token of `text`: the law it was to be drawn from, after the tokens before it.

        request: its filters count, and nothing else of it. Its sampling is one."""
        assert isinstance(request.sampling, Sampling)
        sampling = replace(request.sampling, processors=copy.deepcopy(request.sampling.processors))
        lm, ids = self._model.lm, tuple(prompt)
        session, _ = open_session(lm, self._decoder, ids, self._model.eos_ids, seeded(sampling), request)
        filters, done = session.filters, 0
        for logits in reread(lm, ids, text):
            part = Draft.chain(text[done : done + len(logits) - 1])
            rows = filters.rows(logits, [*ids, *text[:done]], part)
            yield from (rows[i] for i in range(len(logits)))
            filters.commit(rows, range(len(part)))
            done += len(logits)
