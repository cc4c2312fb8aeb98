"""A node's logits depend on the tokens of its own path alone, bit for bit, in every precision.

What it is compared with is plain decoding: its path committed one token at a time, alone, on one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import pytest
import torch
from dense_helpers import STORED, logits, made, one_by_one, opened, threads, tokens
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specdecode.errors import BadInput, OutOfContext
from specdecode.models.dense import model as runtime
from specdecode.models.dense.cache import GROWTH
from specdecode.models.dense.kernels import PANEL, TILE
from specdecode.models.dense.model import DenseModel
from specdecode.tree import path_to
from specdecode.types import Prompt, Row

NAMES = ["llama, biases", "qwen3, mixed"]  # between them: biases, norms of heads, windows of 8, grouped heads
BUSHY = (-1, 0, 1, 2, 1, 0, 5, 5, 7, 0, -1, 10)  # two roots, late branches, a deep one that forks
PAIRS = [
    ("llama, biases", "float32"),
    ("qwen3, mixed", "float16"),
    ("llama, biases", "bfloat16"),
    ("llama, biases", "int8"),
    ("qwen3, mixed", "int8"),
    ("llama, biases", "q4_0"),
    ("qwen3, mixed", "q4_1"),
]
EVERY = pytest.mark.parametrize("stored", STORED)
PAIRED = pytest.mark.parametrize(("name", "stored"), PAIRS)


@cache
def lm_of(name: str, stored: str) -> DenseModel:
    return made(name, stored, max_position_embeddings=1024)


@cache
def plainly(lm: DenseModel, prefix: tuple[int, ...], path: tuple[int, ...]) -> Tensor:
    """[V] what plain decoding says after `path` behind `prefix`."""
    return one_by_one(lm, prefix, path)[-1]


def check(lm: DenseModel, prefix: Sequence[int], row: Row, said: Tensor) -> None:
    for node in range(len(row.tokens)):
        path = tuple(row.tokens[i] for i in path_to(row.parents, node))
        assert torch.equal(said[node], plainly(lm, tuple(prefix), path)), f"node {node}"


def bushy(index: int = 0) -> Row:
    return Row(index, tokens(len(BUSHY), 3), BUSHY)


@EVERY
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_any_trees_in_any_batch_are_plain_decoding(name: str, stored: str, data: st.DataObject) -> None:
    lm, rows = lm_of(name, stored), []
    lengths = data.draw(st.lists(st.integers(0, 2 * PANEL + 2), min_size=1, max_size=3))
    for index in range(len(lengths)):
        parents = [-1]
        for i in range(1, data.draw(st.integers(1, 3 * TILE))):
            parents.append(data.draw(st.just(i - 1) | st.integers(-1, i - 1)))
        drafted = data.draw(st.lists(st.integers(0, 96), min_size=len(parents), max_size=len(parents)))
        rows.append(Row(index, tuple(drafted), tuple(parents)))
    prefixes = [tokens(length, length) for length in lengths]
    with threads(data.draw(st.sampled_from([1, 2]))):
        said = lm.score(opened(lm, *prefixes), rows)
    for row, prefix, scores in zip(rows, prefixes, said, strict=True):
        check(lm, prefix, row, scores.logits)


@PAIRED
def test_a_chain_is_its_tokens_one_by_one(name: str, stored: str) -> None:
    """For every number of rows that the micro-kernels and the tiles of attention tell apart."""
    lm, prefix, drafted = lm_of(name, stored), tokens(20), tokens(2 * TILE + 3, 1)
    expected = one_by_one(lm, prefix, drafted)
    for count in range(1, len(drafted) + 1):
        said = logits(lm, opened(lm, prefix), Row.chain(0, drafted[:count]))
        assert torch.equal(said, expected[:count]), f"{count} rows"


@PAIRED
def test_the_order_of_branches_does_not_matter(name: str, stored: str) -> None:
    lm, prefix = lm_of(name, stored), tokens(11)
    cache = opened(lm, prefix)
    first = logits(lm, cache, Row(0, (1, 2, 3, 4, 5, 6), (-1, 0, 1, 0, 3, 4)))
    later = logits(lm, cache, Row(0, (1, 4, 5, 6, 2, 3), (-1, 0, 1, 2, 0, 4)))
    assert torch.equal(first, later[[0, 4, 5, 1, 2, 3]])


@PAIRED
def test_a_late_branch_longer_than_the_window(name: str, stored: str) -> None:
    lm, prefix, row = lm_of(name, stored), tokens(5), Row(0, tokens(30, 5), (-1, 0, 0, *range(2, 29)))
    check(lm, prefix, row, logits(lm, opened(lm, prefix), row))


@PAIRED
@pytest.mark.parametrize("length", [PANEL - 2, PANEL - 1, PANEL, PANEL + 1, 2 * PANEL - 1, GROWTH - 3, GROWTH])
def test_trees_across_a_block_of_slots_or_the_end_of_the_memory(name: str, stored: str, length: int) -> None:
    lm, prefix = lm_of(name, stored), tokens(length)
    cache = opened(lm, prefix)
    check(lm, prefix, bushy(), logits(lm, cache, bushy()))


@PAIRED
def test_a_kept_path_leaves_what_plain_decoding_leaves(name: str, stored: str) -> None:
    """Whatever the path: the whole chain of first nodes, one with gaps, one root of two, the newest token alone."""
    lm, prefix = lm_of(name, stored), tokens(PANEL - 4)
    for path in [(0,), (0, 1, 2, 3), (0, 1, 4), (0, 5, 7, 8), (10, 11)]:
        cache = opened(lm, prefix)
        logits(lm, cache, bushy())
        cache.keep(0, path)
        kept = (*prefix, *(bushy().tokens[i] for i in path))
        assert cache.lengths == (len(kept),)
        check(lm, kept, bushy(), logits(lm, cache, bushy()))


@PAIRED
def test_a_session_is_the_same_alone_and_among_others_that_come_and_go(name: str, stored: str) -> None:
    lm, prefixes = lm_of(name, stored), {0: tokens(5, 5), 1: tokens(50, 50), 2: tokens(33, 33)}
    cache = opened(lm, *prefixes.values())

    def together(*rows: Row) -> None:
        for row, scores in zip(rows, lm.score(cache, rows), strict=True):
            check(lm, prefixes[row.index], row, scores.logits)

    together(bushy(2), bushy(0), Row.chain(1, (4, 5)))
    cache.release(1)
    cache.keep(0, (0, 5))
    prefixes[0] += bushy().tokens[0], bushy().tokens[5]
    together(bushy(0), bushy(2))


@PAIRED
def test_nodes_may_be_hung_on_earlier_ones_pass_by_pass(name: str, stored: str) -> None:
    lm, prefix, whole = lm_of(name, stored), tokens(30), bushy()
    cache, said = opened(lm, prefix), []
    for begin, end in ((0, 1), (1, 4), (4, 9), (9, 12)):
        said.append(logits(lm, cache, Row(0, whole.tokens[begin:end], whole.parents[begin:end], start=begin)))
    check(lm, prefix, whole, torch.cat(said))


@PAIRED
def test_a_stack_left_and_entered_again_is_the_whole_stack(name: str, stored: str) -> None:
    lm, prefix, row = lm_of(name, stored), tokens(30), bushy()
    cache, half = opened(lm, prefix), lm.n_layers // 2
    (lower,) = lm.score(cache, [row], layers=range(half), taps=(half - 1,), logits=False)
    resumed = Row(0, row.tokens, row.parents, hidden=lower.taps[half - 1])
    (upper,) = lm.score(cache, [resumed], layers=range(half, lm.n_layers))
    check(lm, prefix, row, upper.logits)


@EVERY
def test_two_threads_give_the_bits_of_one(stored: str) -> None:
    for name in NAMES:
        lm, prefixes = lm_of(name, stored), [tokens(40), tokens(3)]
        said = []
        for count in (1, 2, 1):
            with threads(count):
                cache = opened(lm, *prefixes)
                said.append(torch.cat([s.logits for s in lm.score(cache, [bushy(1), Row.chain(0, tokens(9))])]))
        assert torch.equal(said[0], said[1])
        assert torch.equal(said[0], said[2])


def test_a_pass_too_large_for_one_is_split_and_no_row_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, prefixes = lm_of("llama, biases", "float16"), [tokens(n, n) for n in (5, 50, 33, 1)]
    rows = [bushy(i) for i in range(len(prefixes))]
    whole = lm.score(opened(lm, *prefixes), rows)
    for most in (1, len(BUSHY), 2 * len(BUSHY) + 1):
        monkeypatch.setattr(runtime, "ROWS", most)
        for ours, expected in zip(lm.score(opened(lm, *prefixes), rows), whole, strict=True):
            assert torch.equal(ours.logits, expected.logits)


@EVERY
def test_what_rejected_drafts_left_behind_is_never_seen(stored: str) -> None:
    """Slots behind the prefix hold whatever was drafted there, even what is no number."""
    for name in NAMES:
        lm, prefix = lm_of(name, stored), tokens(37)
        cache = opened(lm, prefix)
        logits(lm, cache, Row.chain(0, tokens(30, 9)))
        slots = cache._slots[0]
        slots.values[:, len(prefix) :] = float("nan")
        slots.keys[:, len(prefix) // PANEL + 1 :] = float("nan")
        slots.keys[:, len(prefix) // PANEL, :, len(prefix) % PANEL :] = float("nan")
        check(lm, prefix, bushy(), logits(lm, cache, bushy()))


@PAIRED
def test_an_ancestor_matters_and_a_stranger_does_not(name: str, stored: str) -> None:
    """Negative control: these logits would show a node that saw too little, or too much."""
    lm, prefix, row = lm_of(name, stored), tokens(30), bushy()
    said = logits(lm, opened(lm, prefix), row)
    for changed in range(len(BUSHY)):
        drafted = (*row.tokens[:changed], (row.tokens[changed] + 1) % 97, *row.tokens[changed + 1 :])
        other = logits(lm, opened(lm, prefix), Row(0, drafted, BUSHY))
        for node in range(len(BUSHY)):
            same = changed not in path_to(BUSHY, node)
            assert torch.equal(said[node], other[node]) == same, f"node {node} when {changed} changes"


def test_a_prompt_is_refused_like_anywhere() -> None:
    lm = lm_of("llama, biases", "float16")
    for ids, error in [((), BadInput), ((131,), BadInput), ((-1, 3), BadInput), ((1,) * 1024, OutOfContext)]:
        with pytest.raises(error):
            lm.open([Prompt((1, 2)), Prompt(ids)])
