"""Arguments that mean nothing are refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from theory_helpers import SURE, P, Q

from specdecode import theory
from specdecode.errors import BadOption


def test_whole_numbers_of_numpy_are_welcome():
    assert theory.expected_tokens(0.5, np.int64(2)) == 1.75


@pytest.mark.parametrize(
    "call",
    [
        lambda: theory.expected_tokens(1.01, 3),
        lambda: theory.expected_tokens(-0.1, 3),
        lambda: theory.expected_tokens(math.nan, 3),
        lambda: theory.expected_tokens(0.5, -1),
        lambda: theory.expected_tokens(0.5, 2.0),  # type: ignore[arg-type]
        lambda: theory.expected_tokens(0.5, True),
        lambda: theory.expected_tokens(0.5, 2, 0),
        lambda: theory.emitted_law(1.5, 2),
        lambda: theory.emitted_law(0.5, -2),
        lambda: theory.speedup(0.5, 2, -0.1),
        lambda: theory.speedup(0.5, 2, math.inf),
        lambda: theory.speedup(0.5, 2, 0.1, 0),
        lambda: theory.speedup(0.5, 2, 0.1, math.nan),
        lambda: theory.speedup(0.5, -10, 0.1),
        lambda: theory.speedup(2, 2, 0.1),
        lambda: theory.can_improve(0.5, -1),
        lambda: theory.can_improve(1.5, 1),
        lambda: theory.best_length(0.5, 0.1, longest=-1),
        lambda: theory.best_length(0.5, -0.1, longest=0),
        lambda: theory.best_length(1.5, 0.1, longest=0),
        lambda: theory.operations_factor(0.5, 2, -1),
        lambda: theory.operations_factor(0.5, -2),
        lambda: theory.acceptance([0.5, 0.4], [0.5, 0.5]),
        lambda: theory.acceptance([0.5, 0.5], [0.5, 0.6]),
        lambda: theory.acceptance([1.5, -0.5], [0.5, 0.5]),
        lambda: theory.acceptance([math.nan, 1.0], [0.5, 0.5]),
        lambda: theory.acceptance([], []),
        lambda: theory.acceptance([1.0], [0.5, 0.5]),
        lambda: theory.acceptance(P, Q, 0),
        lambda: theory.acceptance(P, Q, 1.1),
        lambda: theory.leniently_accepted([0.5, 0.6], 0, 0.5),
        lambda: theory.leniently_accepted(P, 0, -0.5),
        lambda: theory.mss_acceptance(P, Q, 0),
        lambda: theory.mss_acceptance(P, SURE, 2),
        lambda: theory.without_replacement_acceptance(P, Q, 0),
        lambda: theory.without_replacement_acceptance(P, SURE, 2),
        lambda: theory.naive_acceptance(P, Q, -1),
        lambda: theory.naive_acceptance(P, SURE, 2),
        lambda: theory.top_k_acceptance(P, Q, 1.5),  # type: ignore[arg-type]
        lambda: theory.top_k_acceptance(P, SURE, 2),
        lambda: theory.kseq_rho(P, Q, 0),
        lambda: theory.kseq_acceptance(P, SURE, 2),
        lambda: theory.block_expected_tokens(P, Q, -1),
        lambda: theory.block_expected_tokens(P, SURE, 2),
        lambda: theory.child_ranks((-1, 1)),
        lambda: theory.tree_value((-2,), [0.5]),
        lambda: theory.tree_value((-1, -1), [0.5]),
        lambda: theory.tree_value((-1,), [1.5]),
        lambda: theory.best_tree([0.7, 0.7], 3),
        lambda: theory.best_tree([-0.1], 3),
        lambda: theory.best_tree([0.5], 0),
        lambda: theory.best_tree([], 2),
    ],
)
def test_bad_arguments_are_refused_in_one_line(call):
    with pytest.raises(BadOption, match=r"^[^\n]+; give [^\n]+$|^[^\n]+so give [^\n]+$"):
        call()
