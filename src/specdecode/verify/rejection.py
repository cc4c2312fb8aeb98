"""Rejection sampling (speculative sampling) on chains and trees. Knows laws and draws; no model, no filter.

At a node with target law p and children x_1, x_2, ... a residual law R starts at p. Child x, proposed by law D, is
accepted with probability min(1, R(x) / D(x)); after a rejection R becomes norm(max(R - D, 0)). A node that is left
without an accepted child emits a draw from R, so a leaf emits one from p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..sampling import Noise
from ..types import Draft, Verdict
from . import Rows
from .walk import candidate_children

TINY = torch.finfo(torch.float32).tiny


@dataclass(frozen=True)
class Rejection:
    """The emitted tokens have the target's law, whatever the draft laws are.

    Lossless: with x drawn from D the token is y by acceptance with probability min(R(y), D(y)), and by the residual
    with max(R(y) - D(y), 0); together R(y). Hence by induction over the children each node emits p.

    The law D of a child:
    - drawn with replacement: its q (SpecInfer, Miao et al. 2024, 2305.09781, Algorithm 2);
    - drawn without: its q, less the tokens of earlier siblings drawn from the same law (Sequoia, Chen et al. 2024,
      2402.12374, Algorithm 2). Laws are told apart by the memory they stand in;
    - chosen, not drawn (law None): all mass on its token, so it is accepted with probability R(x), else R(x) becomes 0.
      So is a token that its stated law could not have drawn.
    The kinds may be mixed among siblings. One drawn child a node is Leviathan et al. 2023 (2211.17192) Algorithm 1 and
    Chen et al. 2023 (2302.01318) Algorithm 2.

    `noise` must be independent of the draws that made the draft, as successive draws of sampling.Stream are."""

    name, lossless, keyed = "rejection", True, False

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int) -> Verdict:
        """rows: [n + 1, V] the target's laws, logits up to a constant; -inf is probability 0."""
        offspring = candidate_children(draft)
        path: list[int] = []
        row = 0
        while True:
            node, rest = _accept_one(draft, offspring[row], rows[row], noise)
            if node is None:
                return Verdict.of(draft, path, noise.draw(rest, position + len(path)))
            path.append(node)
            row = node + 1


def _accept_one(draft: Draft, siblings: list[int], logits: Tensor, noise: Noise) -> tuple[int | None, Tensor]:
    """The sibling that is accepted, or None and the [V] logits from which the next token is to be drawn."""
    if not siblings:
        return None, logits
    residual = logits.softmax(-1)
    laws: dict[int, Tensor] = {}
    for node in siblings:
        token = draft.tokens[node]
        law = _law_of(draft, node, laws, residual)
        if noise.uniform() < float(residual[token]) / (1.0 if law is None else float(law[token])):
            return node, residual
        residual = _residual(residual, token, law)
        if law is not None and not draft.replacement:
            law[token] = 0
            law /= law.sum().clamp_(min=TINY)  # a law with nothing left stays all zero
    return None, _log(residual)


def _law_of(draft: Draft, node: int, laws: dict[int, Tensor], like: Tensor) -> Tensor | None:
    """[V] the law D of `node`, None for all mass on its token. laws: what remains of each, by its address."""
    stated = draft.law(node)
    if stated is None:
        return None
    address = stated.data_ptr()
    if address not in laws:
        laws[address] = stated.to(like).softmax(-1)
    law = laws[address]
    return law if law[draft.tokens[node]] > 0 else None


def _residual(residual: Tensor, token: int, law: Tensor | None) -> Tensor:
    """[V] norm(max(R - D, 0)). Rounding alone leaves it no mass: R and D are then the same law, and R stands."""
    if law is None:
        rest = residual.clone()
        rest[token] = 0
    else:
        rest = (residual - law).clamp_(min=0)
    mass = rest.sum()
    return rest.div_(mass) if mass > 0 else residual


def _log(law: Tensor) -> Tensor:
    """[V] logits of probabilities; 0, and what is not above e^-87 (fp32's smallest), gives -inf. torch.log alone takes
    fifteen times as long on a CPU when many of them are 0, as they are in a residual."""
    return torch.threshold(law.clamp(min=TINY).log_(), -87.0, -math.inf)
