"""K-SEQ: siblings drawn independently from one law are tried with equal chances. Knows laws and draws; no model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor

from ..sampling import Noise
from ..theory import smallest_rho
from ..types import Draft, Verdict
from . import Rows
from .laws import Laws, log
from .rejection import descend


@dataclass(frozen=True)
class KSeq:
    """The emitted tokens have the target's law.

    SpecTr, Sun et al. 2023 (2310.15141): each of k siblings drawn from D with replacement is accepted with probability
    min(1, R(x) / (rho D(x))), for the smallest rho that keeps what they emit together, min(D, R / rho) enlarged by
    (1 - (1 - beta)^k) / beta with beta = sum of min(D, R / rho), within R; what it lacks of R is emitted when all are
    refused. Acceptance 1 - (1 - beta)^k (Sequoia, 2402.12374, F.3; theory.kseq_acceptance).

    Siblings that follow one another and share a law make such a group. One alone is tried as rejection does, and so is
    each that was chosen, or drawn without replacement (its law is as its elder siblings have left it)."""

    name, lossless, keyed, draws = "kseq", True, False, True

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        """rows: [n + 1, V] the target's laws, logits up to a constant; -inf is probability 0. `noise` must be
        independent of the draws that made the draft."""

        def accept(siblings: list[int], logits: Tensor) -> tuple[int | None, Tensor]:
            return _accept_one(draft, siblings, logits, noise)

        return descend(draft, rows, noise, position, accept)


def _accept_one(draft: Draft, siblings: list[int], logits: Tensor, noise: Noise) -> tuple[int | None, Tensor]:
    residual = logits.softmax(-1)
    laws = Laws(draft, residual)
    for group in _groups(draft, siblings, laws):
        law = laws.of(group[0])
        drawn = _point_mass(draft.tokens[group[0]], residual) if law is None else law
        lowered = residual / _rho(residual, drawn, len(group))
        for node in group:
            token = draft.tokens[node]
            if noise.uniform() < float(lowered[token]) / float(drawn[token]):
                return node, residual
        residual = _left(residual, torch.minimum(drawn, lowered), len(group))
        laws.refuse(group[-1])
    return None, log(residual)


def _groups(draft: Draft, siblings: list[int], laws: Laws) -> Iterator[list[int]]:
    """Neighbours drawn with replacement from one law; all others alone."""

    def origin(node: int) -> tuple[int, ...]:
        stated = draft.law(node) if draft.replacement and laws.of(node) is not None else None
        return (-1, node) if stated is None else (stated.data_ptr(),)

    return (list(group) for _, group in groupby(siblings, origin))


def _point_mass(token: int, like: Tensor) -> Tensor:
    return torch.zeros_like(like).index_fill_(0, torch.tensor([token], device=like.device), 1.0)


def _rho(target: Tensor, law: Tensor, k: int) -> float:
    return smallest_rho(lambda rho: float(torch.minimum(law, target / rho).sum()), k)


def _left(target: Tensor, overlap: Tensor, k: int) -> Tensor:
    """[V] what k refused siblings leave of the target, normalised. Rounding alone leaves nothing: the target stands."""
    beta = float(overlap.sum())
    accepted = 1 - (1 - beta) ** k
    left = (target - overlap * (accepted / beta if beta else 0.0)).clamp_(min=0)
    mass = left.sum()
    return left.div_(mass) if mass > 0 else target
