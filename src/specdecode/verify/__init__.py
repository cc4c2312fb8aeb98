"""Verification rules: which drafted tokens are kept, and which token comes next. Rules know no model and no cache."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from ..registry import Method, Table
from ..sampling import Noise
from ..types import Draft, Verdict


class Rows(Protocol):
    """The target's laws at the nodes of a draft: rows[i] is [V] logits after the session's filters, up to a constant.
    Row 0 is the law after the newest committed token, row i + 1 the law after draft node i. Computed when first read,
    so a rule reads only the rows it needs. A plain [n + 1, V] tensor will do."""

    def __getitem__(self, row: int) -> Tensor: ...


@runtime_checkable
class Verifier(Protocol):
    """A rule, with its options. Immutable: one rule serves any number of generations at once."""

    name: str
    lossless: bool  # whether what it emits follows the target's law
    keyed: bool  # whether it wants noise that depends on seed and position alone (sampling.Keyed)

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int) -> Verdict:
        """Pure: the inputs are unchanged, and `noise` is the only source of chance.

        position: the absolute index, in the session's token list, of the token that row 0 decides."""
        ...


RULES = Table(
    "verification rule",
    __name__,
    (
        Method(
            "greedy",
            "keep a drafted token iff it is the target's argmax",
            lossless=True,
            needs_training=False,
            source="Stern et al. 2018 (1811.03115); Xia et al. 2023 (2203.16487)",
            factory="greedy:Greedy",
        ),
        Method(
            "rejection",
            "accept by the ratio of target and draft law, else draw from the residual; chains and trees",
            lossless=True,
            needs_training=False,
            source="Leviathan et al. 2023 (2211.17192) Alg. 1; Chen et al. 2023 (2302.01318); "
            "SpecInfer (2305.09781) Alg. 2; Sequoia (2402.12374) Alg. 2",
            factory="rejection:Rejection",
        ),
        Method(
            "coupled",
            "the target's own draw with noise keyed by seed and position: one text a seed, whatever the drafter",
            lossless=True,
            needs_training=False,
            source="Daliri, Musco and Suresh 2024 (2408.07978)",
            factory="coupled:Coupled",
        ),
    ),
)


def make_rule(name: str, **options: object) -> Verifier:
    """The rule called `name`. Raises BadOption for a name or an option that does not exist."""
    rule: Verifier = RULES.make(name, options)
    return rule
