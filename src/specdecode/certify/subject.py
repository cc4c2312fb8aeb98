"""What a certificate is about: a model with a drafter and a rule, and a way to ask it. Knows no test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from ..drafters import Drafter
from ..errors import BadOption
from ..sampling import Sampling, sample_seed
from ..text.completion import Completion
from ..text.model import Model
from ..text.request import Limits, Request, seeded
from ..verify import Verifier
from .reference import Reference


@dataclass(frozen=True, eq=False)
class Subject:
    """request: whatever Model.generate can be asked. Of it, drafter, rule and sampling as they will be used; the
    sampling is that of sampled texts, and has a seed unless it is greedy."""

    model: Model
    request: Request
    drafter: Drafter
    rule: Verifier
    sampling: Sampling
    reference: Reference

    @classmethod
    def of(cls, model: Model, request: Request) -> Subject:
        """Raises BadOption for what cannot be honoured."""
        sampling = request.sampling
        if not isinstance(sampling, Sampling):
            raise BadOption("sampling: a certificate is of one law; give a single Sampling")
        if request.logprobs is not None:
            raise BadOption("logprobs: a certificate has no use for them; leave them out")
        sampling = seeded(sampling)
        return cls(model, request, request.make_drafter(), request.make_rule(sampling), sampling, Reference(model))

    @property
    def limits(self) -> Limits:
        return self.request.limits

    @property
    def greedy(self) -> Sampling:
        """The same penalties and bans, at temperature 0."""
        return replace(self.sampling, temperature=0.0, seed=None)

    def seeded(self, first: int, count: int) -> list[Sampling]:
        """Samplings `first` to first + count - 1, each with a seed of its own."""
        assert self.sampling.seed is not None, "a greedy subject draws nothing"
        return [replace(self.sampling, seed=sample_seed(self.sampling.seed, first + i)) for i in range(count)]

    def speculate(
        self, prompts: Sequence[tuple[int, ...]], samplings: Sequence[Sampling], **changes: Any
    ) -> list[Completion]:
        """The answers of one batch. changes: of the request, such as another rule."""
        return self._ask(prompts, samplings, {"drafter": self.drafter, "rule": self.rule, **changes})

    def plainly(self, prompt: tuple[int, ...], sampling: Sampling, rule: str) -> Completion:
        """The answer that plain decoding gives, alone."""
        return self._ask([prompt], [sampling], {"drafter": None, "rule": rule})[0]

    def laws(self, prompt: Sequence[int], text: Sequence[int], sampling: Sampling) -> Iterator[Tensor]:
        """The laws that the tokens of a text were to be drawn from (Reference.laws)."""
        return self.reference.laws(prompt, text, replace(self.request, sampling=sampling))

    def _ask(
        self, prompts: Sequence[tuple[int, ...]], samplings: Sequence[Sampling], changes: dict[str, Any]
    ) -> list[Completion]:
        options = {f.name: getattr(self.request, f.name) for f in fields(Request)}
        return self.model.generate([list(ids) for ids in prompts], **{**options, "sampling": samplings, **changes})
