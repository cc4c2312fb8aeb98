"""The slot cache alone, with keys that carry their own slot number."""

import pytest
import torch

from specdecode.models.cache import GROWTH, SlotCache


def write(cache: SlotCache, marks: dict[int, list[float]], layer: int = 0) -> torch.Tensor:
    """One pass of a chain a row behind what is committed; returns the keys that attention would see."""
    width = max(len(m) for m in marks.values())
    keys = torch.full((len(cache.rows), 1, width, 1), -1.0)
    bases = []
    for place, row in enumerate(cache.rows):
        keys[place, 0, : len(marks.get(row, [])), 0] = torch.tensor(marks.get(row, []))
        bases.append(cache.lengths[row] + len(cache.uncommitted(row)))
    seen, _ = cache.write(layer, keys, keys, bases, max(bases) + width)
    for row, m in marks.items():
        cache.wrote(row, cache.uncommitted(row) + tuple(range(len(cache.uncommitted(row)) - 1, -1 + len(m))))
    return seen[:, 0, :, 0]


def test_keep_commits_a_path_in_order_and_drops_the_rest() -> None:
    cache = SlotCache(1)
    write(cache, {0: [10, 11, 12, 13]})
    cache.keep(0, [0, 2, 3])
    assert cache.lengths == (3,)
    assert write(cache, {0: [20]})[0].tolist() == [10, 12, 13, 20]


def test_rows_keep_different_amounts() -> None:
    cache = SlotCache(2)
    write(cache, {0: [10, 11, 12], 1: [50, 51]})
    cache.keep(0, [0, 1, 2])
    cache.keep(1, [0])
    seen = write(cache, {0: [13], 1: [60]})
    assert seen[0].tolist() == [10, 11, 12, 13]
    assert seen[1, :2].tolist() == [50, 60]


def test_released_rows_give_their_memory_back_and_others_keep_their_index() -> None:
    cache = SlotCache(3)
    write(cache, {0: [10], 1: [20], 2: [30]})
    for row in range(3):
        cache.keep(row, [0])
    before = cache.nbytes
    cache.release(1)
    cache.compact()
    assert cache.rows == [0, 2]
    assert cache.nbytes * 3 == before * 2
    assert write(cache, {0: [11], 2: [31]}).tolist() == [[10, 11], [30, 31]]


def test_growth_keeps_contents_and_is_rare() -> None:
    cache = SlotCache(1)
    sizes = set()
    for i in range(4 * GROWTH):
        seen = write(cache, {0: [i]})
        cache.keep(0, [0])
        sizes.add(cache.nbytes)
    assert seen[0].tolist() == list(range(4 * GROWTH))
    assert len(sizes) <= 4


@pytest.mark.parametrize("path", [[1, 0], [0, 3], [-1]])
def test_a_path_that_is_none_is_our_own_bug(path: list[int]) -> None:
    cache = SlotCache(1)
    write(cache, {0: [10, 11, 12]})
    with pytest.raises(AssertionError):
        cache.keep(0, path)
