"""The pool of n-grams: least recently seen goes first, for each key by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specdecode.drafters.pool import NgramPool


def test_the_least_recently_seen_tail_of_a_key_goes_first() -> None:
    pool = NgramPool(2)
    for ngram in ((1, 10, 11), (1, 20, 21), (1, 10, 11), (1, 30, 31)):
        pool.add(ngram)
    assert pool.tails(1) == [(30, 31), (10, 11)], "the second was seen before the first was seen again"


def test_keys_do_not_crowd_each_other_out() -> None:
    pool = NgramPool(2)
    pool.add((1, 10))
    for tail in range(20):
        pool.add((2, tail))
    assert pool.tails(1) == [(10,)]
    assert pool.tails(2) == [(19,), (18,)]
    assert pool.tails(3) == []


def test_the_caller_may_reuse_what_it_added() -> None:
    pool, ngram = NgramPool(2), [1, 2, 3]
    pool.add(ngram)
    ngram[:] = [1, 4, 5]
    pool.add(ngram)
    assert pool.tails(1) == [(4, 5), (2, 3)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 1)), max_size=60), st.integers(1, 4))
def test_a_pool_is_the_last_distinct_tails(ngrams: list[tuple[int, ...]], most: int) -> None:
    pool = NgramPool(most)
    for ngram in ngrams:
        pool.add(ngram)
    for key in range(3):
        distinct = dict.fromkeys(tuple(tail) for first, *tail in reversed(ngrams) if first == key)
        assert pool.tails(key) == list(distinct)[:most]
