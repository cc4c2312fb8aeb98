"""The laws that siblings were drawn from, and what a refused child leaves of the target's law.

Probabilities, not logits, and copies: what is computed here may be changed at will. No coins, no walk.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..types import Draft

TINY = torch.finfo(torch.float32).tiny


class Laws:
    """The law D of each child of one node, as its elder siblings have left it:

    - drawn with replacement: its q (SpecInfer, Miao et al. 2024, 2305.09781, Algorithm 2);
    - drawn without: its q, less the tokens of earlier siblings drawn from the same law (Sequoia, Chen et al. 2024,
      2402.12374, Algorithm 2). Laws are told apart by the memory they stand in;
    - chosen, not drawn: all mass on its token. So is a token that its stated law could not have drawn.
    The kinds may be mixed."""

    def __init__(self, draft: Draft, like: Tensor) -> None:
        """like: any tensor of the type and on the device that the laws are to have."""
        self._draft, self._like = draft, like
        self._left: dict[int, Tensor] = {}  # by address

    def of(self, node: int) -> Tensor | None:
        """[V] the law D of `node`, None for all mass on its token."""
        stated = self._draft.law(node)
        if stated is None:
            return None
        address = stated.data_ptr()
        if address not in self._left:
            self._left[address] = stated.to(self._like).softmax(-1)
        law = self._left[address]
        return law if law[self._draft.tokens[node]] > 0 else None

    def refuse(self, node: int) -> None:
        """The younger siblings of `node` cannot be its token, where they were drawn without replacement."""
        law = self.of(node)
        if law is not None and not self._draft.replacement:
            law[self._draft.tokens[node]] = 0
            law /= law.sum().clamp_(min=TINY)  # a law with nothing left stays all zero


def share(law: Tensor | None, token: int) -> float:
    """The probability of `token` under a law as Laws has it."""
    return 1.0 if law is None else float(law[token])


def rest(target: Tensor, token: int, law: Tensor | None) -> Tensor:
    """[V] max(R - D, 0), not normalised, for a target R of any mass."""
    if law is not None:
        return (target - law).clamp_(min=0)
    left = target.clone()
    left[token] = 0
    return left


def log(law: Tensor) -> Tensor:
    """[V] logits of probabilities; 0, and what is not above e^-87 (fp32's smallest), gives -inf. torch.log alone takes
    fifteen times as long on a CPU when many of them are 0, as they are in a residual."""
    return torch.threshold(law.clamp(min=TINY).log_(), -87.0, -math.inf)
