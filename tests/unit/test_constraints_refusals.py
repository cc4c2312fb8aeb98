"""What filters refuse: options that cannot hold, and laws without a token."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from constraints_helpers import INF, MARKOV, V, filters_of
from torch import Tensor

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


class Answers:
    """A processor that puts `value` in the place of every score."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return torch.full_like(scores, self.value)


@pytest.mark.parametrize(
    ("options", "found", "position"),
    [
        ({"processors": (Answers(math.nan),)}, "nan", 2),
        ({"processors": (Answers(INF),)}, "inf", 2),
        ({"logit_bias": {5: 1e39}}, "inf", 2),
        ({"logit_bias": {5: 3e38}, "temperature": 0.5}, "inf", 2),
        ({"logit_bias": {5: 1e30}, "temperature": 1e-30}, "inf", 2),
        ({"presence_penalty": -1e300}, "nan", 2),
        ({"repetition_penalty": 1e-300}, "nan", 2),
        ({"temperature": 1e-30}, "inf", 3),
    ],
)
def test_scores_that_are_no_numbers_are_an_error_where_a_token_is_emitted(
    options: dict[str, Any], found: str, position: int
) -> None:
    logits = torch.zeros(2, V)
    logits[1, 1] = 1e9  # the second row alone is so large that the temperature takes it too far
    filters = filters_of(options, prompt_length=2)
    rows = filters.rows(logits, [1, 1], Draft.chain([1]))
    with pytest.raises(BadOption, match=f"position {position} are {found}: .*temperature"):
        filters.commit(rows, (0,))


@pytest.mark.parametrize("answer", [torch.ones(1, V, dtype=torch.int64), torch.ones(1, V, dtype=torch.bool)])
def test_a_processor_that_returns_whole_numbers_is_refused(answer: Tensor) -> None:
    """A rule would take their softmax, which does not exist."""
    rows = filters_of({"processors": (lambda ids, scores: answer,)}).rows(MARKOV[:1], [1, 2], EMPTY)
    with pytest.raises(BadOption, match=f"floating-point scores of shape .*{answer.dtype}"):
        rows[0]


def test_a_processor_is_named_in_one_line() -> None:
    wide = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    wide.forward = lambda ids, scores: None  # type: ignore[method-assign]
    rows = filters_of({"processors": (wide,)}).rows(MARKOV[:1], [1, 2], EMPTY)
    with pytest.raises(BadOption, match=r"^processor Sequential[^\n]* returned NoneType$"):
        rows[0]


@pytest.mark.parametrize("mass", [1e-300, 1e-45, 1e-9])
def test_a_tiny_nucleus_keeps_the_likeliest_token(mass: float) -> None:
    law = filters_of({"top_p": mass}).apply(MARKOV[3], [3])
    assert (law > -INF).nonzero().flatten().tolist() == [int(MARKOV[3].argmax())]
