"""What speculation is expected to bring: the closed formulas of the literature, as plain functions of numbers.

Symbols throughout: a, the acceptance (chance that a drafted token is accepted, independent from token to token); g,
the draft length; c, the time of one draft step in target passes; p, the target law; q, the draft law; l, the lenience.
A law is a sequence of V probabilities. Floats in, floats out; Fractions in, exact Fractions out, but for K-SEQ, whose
rho is a root. Arguments outside their range raise BadOption. It knows no model and measures nothing.

Sources: [Leviathan] 2211.17192, [SpecInfer] 2305.09781, [Sequoia] 2402.12374, [Medusa] 2401.10774, [Lookahead]
2402.02057, [SpecTr] 2310.15141, [Block] 2403.10444, [PPD] 2307.05908.
"""

from __future__ import annotations

from .acceptance import (
    acceptance,
    block_expected_tokens,
    kseq_acceptance,
    kseq_rho,
    leniently_accepted,
    mss_acceptance,
    naive_acceptance,
    smallest_rho,
    top_k_acceptance,
    without_replacement_acceptance,
)
from .arguments import Law, Real
from .chains import best_length, can_improve, emitted_law, expected_tokens, operations_factor, pipelined, speedup
from .trees import BestTree, best_tree, child_ranks, likeliest_nodes, tree_value

__all__ = [
    "BestTree",
    "Law",
    "Real",
    "acceptance",
    "best_length",
    "best_tree",
    "block_expected_tokens",
    "can_improve",
    "child_ranks",
    "emitted_law",
    "expected_tokens",
    "kseq_acceptance",
    "kseq_rho",
    "leniently_accepted",
    "likeliest_nodes",
    "mss_acceptance",
    "naive_acceptance",
    "operations_factor",
    "pipelined",
    "smallest_rho",
    "speedup",
    "top_k_acceptance",
    "tree_value",
    "without_replacement_acceptance",
]
