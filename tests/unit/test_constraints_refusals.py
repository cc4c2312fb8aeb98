"""What filters refuse: options that cannot hold, and laws without a token."""

from __future__ import annotations

import math

import pytest
import torch
from constraints_helpers import INF, MARKOV, V, filters_of
from torch import Tensor

from specdecode.constraints import FilteredRows, Filters
from specdecode.errors import BadOption
from specdecode.types import EMPTY, Draft


def test_an_id_outside_the_vocabulary_is_refused_at_once() -> None:
    with pytest.raises(BadOption, match="suppress names token 97"):
        filters_of({"suppress": (97,)})


def test_no_token_left_is_an_error_where_it_is_emitted_and_only_there() -> None:
    """Everything is banned behind token 3 only. A rule may read that row; emitting from it is refused."""

    def dead_end(input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores.fill_(-INF) if int(input_ids[0, -1]) == 3 else scores

    filters = filters_of({"processors": (dead_end,)})
    rows = filters.rows(torch.zeros(3, V), [1, 2], Draft((3, 4), (-1, -1)))
    assert not (rows[1] > -INF).any()
    filters.commit(rows, (1,))
    rows = filters.rows(torch.zeros(2, V), [1, 2, 5], Draft.chain([3]))
    with pytest.raises(BadOption, match="no token may stand at position 4"):
        filters.commit(rows, (0,))
    everything = filters_of({"suppress": tuple(range(V))})
    with pytest.raises(BadOption, match="no token may stand at position 2"):
        everything.commit(everything.rows(MARKOV[:1], [1, 2], EMPTY), ())


def test_nan_from_a_processor_is_an_error() -> None:
    filters: Filters = filters_of({"processors": (lambda ids, scores: scores * math.nan,)})
    rows: FilteredRows = filters.rows(MARKOV[:1], [1, 2], EMPTY)
    with pytest.raises(BadOption, match="no token may stand"):
        filters.commit(rows, ())
