"""Each row of a draft has the law of its own prefix, whatever else was drafted, and no input is changed."""

from __future__ import annotations

import random
import sys
from collections import Counter
from itertools import pairwise

import pytest
import torch
from constraints_helpers import (
    EOS,
    INF,
    MARKOV,
    OPTIONS,
    OURS_ALONE,
    PROMPT,
    V,
    chains,
    drafter,
    filters_of,
    plain,
    speculative,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specdecode.constraints import Filters
from specdecode.types import EMPTY, Draft


def test_without_options_rows_are_handed_on() -> None:
    logits = torch.randn(3, V)
    filters, row = filters_of({}, min_new_tokens=2, eos_ids=()), logits[0]
    assert filters.apply(row, [1, 2]) is row
    rows = filters.rows(logits, [1, 2], Draft.chain([3, 4]))
    assert [rows[i].data_ptr() for i in range(3)] == [logits[i].data_ptr() for i in range(3)]
    ended = filters_of({}, prompt_length=1, min_new_tokens=2, eos_ids=(EOS,))
    assert ended.apply(logits[0], [1, 2, 3]).data_ptr() == logits.data_ptr()


def test_transformers_is_imported_only_for_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.generation", None)  # importing it fails
    filters = filters_of({"suppress": (1,), "temperature": 0.5}, min_new_tokens=2, eos_ids=(EOS,))
    assert filters.apply(torch.zeros(V), [0])[1] == -INF
    with pytest.raises(ImportError):
        filters_of({"top_k": 3})


@pytest.mark.parametrize("options", [*(ours for ours, _ in OPTIONS.values()), OURS_ALONE], ids=str)
def test_inputs_are_never_changed(options: dict) -> None:
    """Fault 13 (the filters' share of it)."""
    for temperature in (0, 1.0):
        filters = filters_of({"temperature": temperature, **options}, min_new_tokens=5, eos_ids=(EOS,))
        check_inputs_stay(filters)


def test_a_processor_may_write_into_its_arguments() -> None:
    def vandal(input_ids: Tensor, scores: Tensor) -> Tensor:
        input_ids.zero_()
        return scores.zero_()

    def witness(input_ids: Tensor, scores: Tensor) -> Tensor:
        assert input_ids[0, :5].tolist() == [5, 4, 3, 5, 4]
        return scores + 1

    check_inputs_stay(filters_of({"processors": (vandal, witness, vandal)}))


def check_inputs_stay(filters: Filters) -> None:
    logits, tokens, draft = MARKOV[:4].clone(), [5, 4, 3, 5, 4], Draft.chain([5, 4, 3])
    rows = filters.rows(logits, tokens, draft)
    laws = [rows[i].clone() for i in range(4)]
    filters.apply(logits[0], [*tokens, 5])
    filters.commit(rows, (0, 1))
    assert torch.equal(logits, MARKOV[:4])
    assert tokens == [5, 4, 3, 5, 4]
    assert all(torch.equal(rows[i], laws[i]) for i in range(4))


@given(seed=st.integers(0, 10**6), order=st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_a_row_depends_on_its_own_path_alone(seed: int, order: random.Random) -> None:
    """In whatever order rows are read, each is what `apply` makes of its prefix (without processors)."""
    options = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "bad_words": ((4, 9), (3, 4, 5)), **OURS_ALONE}
    tokens = [random.Random(seed).randrange(6) for _ in range(12)]
    draft = drafter([*tokens, 1, 2, 3, 4, 5], seed)(tokens)
    logits = MARKOV[[tokens[-1], *draft.tokens]]
    rows = filters_of(options).rows(logits, tokens, draft)
    for row in order.sample(range(len(draft) + 1), len(draft) + 1):
        path, node = [], row - 1
        while node >= 0:
            path.insert(0, draft.tokens[node])
            node = draft.parents[node]
        assert torch.equal(rows[row], filters_of(options).apply(logits[row], (*tokens, *path)))


def test_prefixes_need_not_share_a_beginning() -> None:
    """Filters remember the committed tokens; a prefix that does not begin with them is still honoured."""
    filters, logits = filters_of({"repetition_penalty": 2.0}, prompt_length=1), torch.ones(V)
    for tokens in ([1, 2, 3], [1, 2, 3, 4], [7], [7, 8, 9, 10, 11, 12], [1, 2], list(range(90))):
        rows = filters.rows(logits.expand(2, V), tokens, Draft.chain([93]))
        for prefix in ([5], [*tokens, 6], tuple(tokens), [6, *tokens]):
            assert (filters.apply(logits, prefix) < 1).nonzero().flatten().tolist() == sorted(set(prefix))
        assert (rows[0] < 1).nonzero().flatten().tolist() == sorted(tokens)
        assert (rows[1] < 1).nonzero().flatten().tolist() == sorted([*tokens, 93])


def test_rows_of_an_earlier_step_are_not_read() -> None:
    filters = filters_of({"repetition_penalty": 2.0})
    old = filters.rows(MARKOV[:2], [1, 2], Draft.chain([3]))
    filters.rows(MARKOV[:1], [1, 2, 3], EMPTY)
    with pytest.raises(AssertionError, match="earlier step"):
        old[1]
    with pytest.raises(AssertionError, match="row 2"):
        old[2]


def test_minimum_length_counts_within_a_window() -> None:
    """Fault 47: rows of one window are barred from ending below the minimum, and not from there on."""
    filters = filters_of({}, prompt_length=3, min_new_tokens=6, eos_ids=(EOS, 95, 200))
    rows = filters.rows(torch.zeros(5, V), list(range(3 + 4)), Draft.chain([1, 2, 3, 4]))
    assert [rows[i][EOS].item() for i in range(5)] == [-INF, -INF, 0, 0, 0]
    assert [rows[i][95].item() for i in range(5)] == [-INF, -INF, 0, 0, 0]
    assert torch.isfinite(torch.stack([rows[i][:95] for i in range(5)])).all()


PARITY = {
    "repetition_penalty": {"repetition_penalty": 1.6},
    "presence and frequency": {"presence_penalty": 1.5, "frequency_penalty": 1.0},
    "logit_bias": {"logit_bias": dict.fromkeys(range(1, 90, 2), -100.0)},
    "bigrams and words": {"no_repeat_ngram_size": 2, "bad_words": ((25, 77), (10,))},
    "words": {"bad_words": ((25, 77), (47, 73, 79))},
    "suppress": {"suppress": tuple(range(40))},
}


@pytest.mark.parametrize("name", PARITY)
def test_drafts_change_nothing(name: str) -> None:
    """Faults 22, 27 and 29: greedy text under penalties and bans is that of plain decoding, also where a banned
    sequence would lie across the edge of two windows; and the option did act."""

    def make(options: dict) -> Filters:
        return filters_of(options, len(PROMPT), min_new_tokens=60, eos_ids=(EOS,))

    want = plain(make(PARITY[name]), PROMPT, 60)
    assert want != plain(make({}), PROMPT, 60)
    truth = [*PROMPT, *want]
    for draw in (chains(truth, (6,)), chains(truth, (0, 3, 1, 4)), *(drafter(truth, seed) for seed in range(4))):
        assert speculative(make(PARITY[name]), PROMPT, 60, draw) == want
    bigrams = Counter(pairwise(truth))
    if "words" in name:
        assert 25 in want
        assert (25, 77) not in bigrams
    if "bigrams" in name:
        assert max(bigrams.values()) == 2 == bigrams[5, 4]  # the prompt repeats it
    if name == "logit_bias":
        assert all(t % 2 == 0 or t >= 90 for t in want)
