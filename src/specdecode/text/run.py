"""A batch of requests while it is decoded: the engine's emissions become pieces of text.

All of its state is its own, so it may be abandoned at any point. Knows no templates and no files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from ..drafters.forced import with_forced
from ..engine import Emission, Generation
from ..metrics import Metrics
from ..models.lm import LM
from ..sampling import Sampling
from ..session import Session
from ..verify import Verifier
from .completion import Completion, Piece
from .detokenize import Decoder
from .request import Request, open_session
from .stops import Writer


@dataclass(eq=False)
class _Row:
    """What one session has shown so far."""

    session: Session
    rule: Verifier
    sampling: Sampling
    writer: Writer
    cut: bool  # whether the context ends before the asked length does
    text: list[str] = field(default_factory=list)


class Run:
    """rows: the prompts' ids, each with its own sampling (a seed included where one is needed).

    Reads the prompts at once: bad input is refused here, before any pass."""

    def __init__(
        self,
        lm: LM,
        decoder: Decoder,
        rows: Sequence[tuple[tuple[int, ...], Sampling]],
        eos_ids: Sequence[int],
        request: Request,
    ) -> None:
        limits, drafter = request.limits, request.make_drafter()
        self._drafter_name = drafter.name
        if request.grammar is not None and lm.capabilities.trees:
            drafter = with_forced(drafter)
        self._rows = []
        for ids, sampling in rows:
            session, rule = open_session(lm, decoder, ids, eos_ids, sampling, request)
            writer = Writer(decoder, limits.stop, limits.include_stop)
            cut = session.stopping.max_new_tokens < limits.max_new_tokens
            self._rows.append(_Row(session, rule, sampling, writer, cut))
        self._generation = Generation(lm, drafter, [r.session for r in self._rows], [r.rule for r in self._rows])
        self._decode_s = 0.0

    def __iter__(self) -> Iterator[tuple[int, Piece]]:
        """(row, piece) pairs until every row has ended. Decode time is that of the engine's steps alone."""
        while self._generation.active:
            started = perf_counter()
            emissions = self._generation.step()
            self._decode_s += perf_counter() - started
            for emission in emissions:
                for piece in self._pieces(self._rows[emission.row], emission):
                    yield emission.row, piece

    def _pieces(self, row: _Row, emission: Emission) -> Iterator[Piece]:
        """The accepted tokens, then the target's own; the last one of the session carries the completion."""
        tokens, accepted = emission.tokens, emission.accepted
        logprobs = None if row.session.top_logprobs is None else tuple(row.session.logprobs[-len(tokens) :])
        spans = [(begin, end) for begin, end in ((0, accepted), (accepted, len(tokens))) if begin < end]
        for begin, end in spans:
            last = emission.finish_reason is not None and end == len(tokens)
            row.text.append(row.writer.push(tokens[begin:end]) + (row.writer.finish() if last else ""))
            yield Piece(
                row.text[-1],
                tokens[begin:end],
                drafted=end <= accepted,
                logprobs=logprobs and logprobs[begin:end],
                completion=self._completion(row) if last else None,
            )

    def _completion(self, row: _Row) -> Completion:
        session, reason = row.session, row.session.finish_reason
        assert reason is not None
        return Completion(
            text="".join(row.text),
            tokens=tuple(session.new_tokens),
            prompt_tokens=session.prompt_length,
            finish_reason="context" if reason == "length" and row.cut else reason,
            logprobs=None if session.top_logprobs is None else tuple(session.logprobs),
            seed=row.sampling.seed,
            drafter=self._drafter_name,
            rule=row.rule.name,
            metrics=Metrics.from_records(session.records),
            prefill_s=self._generation.prefill_s,
            decode_s=self._decode_s,
        )
