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
    draws: bool  # whether it serves sessions that draw their tokens; if not, it is for greedy decoding alone

    def verify(self, draft: Draft, rows: Rows | Tensor, noise: Noise, position: int, spent: float = 0.0) -> Verdict:
        """Pure: the inputs are unchanged, and `noise` is the only source of chance.

        position: the absolute index, in the session's token list, of the token that row 0 decides.
        spent: nats that the session's earlier steps cost (Verdict.nats). A lossless rule costs none."""
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
        Method(
            "block",
            "accept the tokens of a chain together: more survive than one by one; of a tree, each node's first child",
            lossless=True,
            needs_training=False,
            source="Sun et al. 2025 (2403.10444) Alg. 2",
            factory="block:Block",
        ),
        Method(
            "traversal",
            "block verification of trees, from the leaves to the root",
            lossless=True,
            needs_training=False,
            source="Weng et al. 2025 (2505.12398)",
            factory="traversal:Traversal",
        ),
        Method(
            "kseq",
            "try siblings that were drawn independently with equal chances; otherwise as rejection",
            lossless=True,
            needs_training=False,
            source="SpecTr, Sun et al. 2023 (2310.15141)",
            factory="kseq:KSeq",
        ),
        Method(
            "lenient",
            "no token more than 1 / lenience times as likely; greedy: none that much less likely than the argmax",
            lossless=False,
            needs_training=False,
            source="Leviathan et al. 2023 (2211.17192) A.5",
            factory="lenient:Lenient",
        ),
        Method(
            "distillspec",
            "accept by the ratio of f(target) and draft law, for three functions f",
            lossless=False,
            needs_training=False,
            source="DistillSpec, Zhou et al. 2024 (2310.08461)",
            factory="distillspec:DistillSpec",
        ),
        Method(
            "typical",
            "keep the longest path of tokens likely enough for the target's entropy",
            lossless=False,
            needs_training=False,
            source="Medusa, Cai et al. 2024 (2401.10774) 2.3.1",
            factory="typical:Typical",
        ),
        Method(
            "topbeta",
            "greedy: keep a token among the beta likeliest and at most tau nats below the argmax",
            lossless=False,
            needs_training=False,
            source="SpecDec, Xia et al. 2023 (2203.16487)",
            factory="topbeta:TopBeta",
        ),
        Method(
            "blockwise",
            "greedy: keep a token among the likeliest or near the argmax, or a minimum block",
            lossless=False,
            needs_training=False,
            source="Stern et al. 2018 (1811.03115) 5",
            factory="blockwise:Blockwise",
        ),
        Method(
            "bild",
            "greedy: keep a token that its drafter is sure of and the target does not find too unlikely",
            lossless=False,
            needs_training=False,
            source="BiLD, Kim et al. 2023 (2302.07863)",
            factory="bild:Bild",
        ),
    ),
)


def make_rule(name: str, **options: object) -> Verifier:
    """The rule called `name`. Raises BadOption for a name or an option that does not exist."""
    rule: Verifier = RULES.make(name, options)
    return rule
