"""Model: text in, text out. Prompts of any form become rows of a Run, and what it yields becomes answers.

Knows a tokenizer and an LM; how they were loaded is not its business.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeGuard, cast, overload

from ..datastore import fingerprint
from ..drafters import Drafter, parts
from ..errors import BadInput, BadOption, check_count, is_count, shown
from ..models.lm import LM
from ..sampling import Sampling, sample_seed
from .chat import Messages, apply_template, check_text, has_template
from .completion import Completion, Piece
from .detokenize import Decoder
from .request import Options, Request, seeded
from .run import Run

if TYPE_CHECKING:
    from typing_extensions import Unpack

Text = str | Sequence[int]  # one prompt: raw text, or ids
BYTES = (bytes, bytearray, memoryview)  # sequences of numbers that are no token ids


class Model:
    """A language model with its tokenizer, ready to be asked. It keeps no state between calls and may serve several.

    Every call takes the same options, each of them a keyword (Request has the details):
    drafter="auto", rule=None, sampling=Sampling(), limits=Limits(), grammar=None, logprobs=None, and max_new_tokens,
    which overrides that of `limits`. Plain decoding is drafter=None."""

    def __init__(self, lm: LM, tokenizer: Any, eos_ids: Sequence[int] = (), name: str = "model") -> None:
        self.lm = lm
        self.tokenizer = tokenizer
        self.eos_ids = tuple(eos_ids)
        self.name = name
        self._decoder = Decoder(tokenizer)

    @overload
    def generate(self, prompt: Text, **options: Unpack[Options]) -> Completion: ...
    @overload
    def generate(self, prompt: Text, *, n: int, **options: Unpack[Options]) -> list[Completion]: ...
    @overload
    def generate(self, prompt: list[str] | list[list[int]], **options: Unpack[Options]) -> list[Completion]: ...

    def generate(
        self, prompt: Text | Sequence[Text], *, n: int | None = None, **options: Unpack[Options]
    ) -> Completion | list[Completion]:
        """Continue `prompt` and return the Completion: raw text (no chat template is applied) or ids.

        A list of prompts is decoded as one batch and gives a list, in its order; each answer is what its prompt alone
        would have given. n samples of one prompt give a list too: sample i is seeded with sample_seed(seed, i), so the
        first is what a single call would have given.
        Raises a SpecError before any pass where the prompt or an option cannot be honoured."""
        request = Request.of(**options)
        if _is_many(prompt):
            if n is not None:
                raise BadOption(f"n={n!r} samples of {len(prompt)} prompts; ask for samples of a single one")
            return self._run([self.encode(p) for p in prompt], _laws(request.sampling, len(prompt)), request)
        ids, (law,) = self.encode(cast("Text", prompt)), _laws(request.sampling, 1)
        if n is None:
            return self._run([ids], [law], request)[0]
        check_count("n", n, 1)
        return self._run([ids] * n, _samples(law, n), request)

    def stream(self, prompt: Text, **options: Unpack[Options]) -> Iterator[Piece]:
        """Continue one prompt, a Piece at a time; the last one holds the Completion.

        The prompt is read by this call, so bad input is refused here. The stream may be left at any point."""
        request = Request.of(**options)
        run = self._start([self.encode(prompt)], _laws(request.sampling, 1), request)
        return (piece for _, piece in run)

    def chat(self, messages: Messages, **options: Unpack[Options]) -> Completion:
        """The assistant's next turn after `messages`: {"role", "content"} mappings, or one string of the user's."""
        request = Request.of(**options)
        return self._run([self.chat_prompt(messages)], _laws(request.sampling, 1), request)[0]

    @property
    def has_chat_template(self) -> bool:
        return has_template(self.tokenizer)

    def chat_prompt(self, messages: Messages) -> tuple[int, ...]:
        """The ids of a conversation under the tokenizer's chat template, to be given to `generate` or `stream`."""
        return apply_template(self.tokenizer, messages)

    def prompt(self, text: str) -> tuple[int, ...]:
        """The ids of what a user says: under the chat template where the tokenizer has one, else as raw text."""
        return self.chat_prompt(text) if self.has_chat_template else self.encode(text)

    def encode(self, prompt: Text) -> tuple[int, ...]:
        """The ids of raw text, with the special tokens that the tokenizer adds by itself; ids are handed on.

        Raises BadInput for anything else."""
        if isinstance(prompt, str):
            check_text(prompt)
            return tuple(self.tokenizer(prompt, verbose=False)["input_ids"])  # a long prompt is refused by us
        ids: Sequence[int] = prompt
        if isinstance(ids, BYTES) or not isinstance(ids, Sequence) or not all(map(is_count, ids)):
            raise BadInput(f"a prompt is a string or a sequence of token ids, found {shown(prompt)}")
        return tuple(map(int, ids))

    @cached_property
    def fingerprint(self) -> str:
        """What tells this tokenizer's ids from others'."""
        return fingerprint(self.tokenizer)

    def check_drafter(self, drafter: Drafter) -> None:
        """Raises Incompatible where it drafts from text of another tokenizer."""
        for part in parts(drafter):
            if hasattr(part, "check_tokenizer"):
                part.check_tokenizer(self.fingerprint)

    def _run(self, prompts: Sequence[tuple[int, ...]], laws: Sequence[Sampling], request: Request) -> list[Completion]:
        done: dict[int, Completion] = {}
        for row, piece in self._start(prompts, laws, request):
            if piece.completion is not None:
                done[row] = piece.completion
        return [done[row] for row in range(len(prompts))]

    def _start(self, prompts: Sequence[tuple[int, ...]], laws: Sequence[Sampling], request: Request) -> Run:
        if isinstance(request.drafter, Drafter):
            self.check_drafter(request.drafter)
        return Run(self.lm, self._decoder, list(zip(prompts, map(seeded, laws), strict=True)), self.eos_ids, request)


def _is_many(prompt: Text | Sequence[Text]) -> TypeGuard[Sequence[Text]]:
    """Whether it is a list of prompts; ids are one prompt, and so is an empty sequence."""
    if not isinstance(prompt, Sequence) or isinstance(prompt, (str, *BYTES)) or not prompt:
        return False
    return not isinstance(prompt[0], Integral)


def _laws(sampling: Sampling | Sequence[Sampling], rows: int) -> list[Sampling]:
    """One sampling a row, each with its own copies of the (stateful) processors: the user's stay as they are."""
    laws = [sampling] * rows if isinstance(sampling, Sampling) else list(sampling)
    if len(laws) != rows:
        raise BadOption(f"{len(laws)} samplings for {rows} prompts; give one, or one a prompt")
    return [replace(law, processors=copy.deepcopy(law.processors)) for law in laws]


def _samples(sampling: Sampling, n: int) -> list[Sampling]:
    first = seeded(sampling)
    if first.seed is None:
        return _laws(first, n)
    return [replace(law, seed=sample_seed(first.seed, i)) for i, law in enumerate(_laws(first, n))]
