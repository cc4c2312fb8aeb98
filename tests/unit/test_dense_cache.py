"""The memory of one session on the fast runtime, with keys and values that carry their own number."""

from __future__ import annotations

import numpy as np
import pytest

from specdecode.models.dense.cache import GROWTH, DenseCache, Slots
from specdecode.models.dense.kernels import PANEL

LINES, WIDTH = 3, 5


def mark(slots: Slots, slot: int, number: float) -> None:
    slots.keys[:, slot // PANEL, :, slot % PANEL] = number
    slots.values[:, slot, :WIDTH] = number


def numbers(slots: Slots, count: int) -> list[float]:
    """What the first slots hold, which is the same in keys and values, and in every line."""
    out = []
    for slot in range(count):
        held = [slots.keys[:, slot // PANEL, :, slot % PANEL].ravel(), slots.values[:, slot, :WIDTH].ravel()]
        (number,) = set(np.concatenate(held).tolist())
        out.append(number)
    return out


def pass_of(cache: DenseCache, row: int, marks: list[float], parents: tuple[int, ...] | None = None) -> Slots:
    """One pass that leaves nodes behind the prefix of `row`."""
    length = cache.lengths[row]
    slots = cache.write(row, tuple(range(-1, len(marks) - 1)) if parents is None else parents)
    for node, number in enumerate(marks):
        mark(slots, length + node, number)
    return slots


def test_room_comes_in_blocks_rarely_and_keeps_what_is_held() -> None:
    cache, rooms = DenseCache(1, LINES, WIDTH), []
    for i in range(4 * GROWTH):
        slots = pass_of(cache, 0, [i])
        cache.keep(0, [0])
        rooms.append(slots.room)
    assert numbers(slots, 4 * GROWTH) == list(range(4 * GROWTH))
    assert len(set(rooms)) <= 4
    assert all(room % GROWTH == 0 for room in rooms)
    assert all(i < room < 1.5 * i + 2 * GROWTH for i, room in enumerate(rooms))
    slots.reserve(slots.room)
    assert slots.room == rooms[-1]


def test_memory_follows_what_is_held_and_not_the_batch() -> None:
    cache = DenseCache(3, LINES, WIDTH)
    assert cache.nbytes == 0
    pass_of(cache, 1, [1.0])
    one = cache.nbytes
    assert one == 4 * GROWTH * LINES * (WIDTH + PANEL)
    pass_of(cache, 2, [1.0] * (GROWTH + 1))
    assert cache.nbytes == 3 * one
    cache.release(1)
    assert cache.nbytes == 2 * one


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ([], []),
        ([0], [10]),
        ([0, 1, 2], [10, 11, 12]),
        ([0, 2, 3], [10, 12, 13]),
        ([0, 1, 3], [10, 11, 13]),
        ([1], [11]),
        ([2, 3], [12, 13]),
    ],
)
@pytest.mark.parametrize("length", [0, PANEL - 2, GROWTH - 1])
def test_keep_commits_a_path_in_order_and_drops_the_rest(length: int, path: list[int], kept: list[float]) -> None:
    cache = DenseCache(2, LINES, WIDTH)
    pass_of(cache, 0, [7.0] * length)
    cache.keep(0, range(length))
    pass_of(cache, 0, [10, 11, 12, 13], (-1, 0, 0, 2))
    assert cache.uncommitted(0) == (-1, 0, 0, 2)
    cache.keep(0, path)
    assert cache.lengths == (length + len(kept), 0)
    assert cache.uncommitted(0) == ()
    assert numbers(pass_of(cache, 0, [20]), length + len(kept) + 1) == [7.0] * length + kept + [20]


def test_paths_longer_than_their_gap_move_without_loss() -> None:
    """Source and target overlap."""
    cache = DenseCache(1, LINES, WIDTH)
    slots = pass_of(cache, 0, [float(node) for node in range(100)], (-1, 0, 0, 0, *range(3, 99)))
    cache.keep(0, [0, *range(3, 100)])
    assert numbers(slots, 98) == [0, *range(3, 100)]


def test_later_nodes_stand_behind_earlier_ones() -> None:
    cache = DenseCache(1, LINES, WIDTH)
    pass_of(cache, 0, [1, 2])
    cache.write(0, (-1, 0, 0))
    assert cache.uncommitted(0) == (-1, 0, 0)
    cache.write(0, (-1, 5))
    assert cache.uncommitted(0) == (-1, 5)


def test_a_released_row_is_never_written_again() -> None:
    cache = DenseCache(2, LINES, WIDTH)
    cache.release(0)
    with pytest.raises(AssertionError, match="row 0 was released"):
        cache.write(0, (-1,))
    pass_of(cache, 1, [5])
    cache.keep(1, [0])
    assert cache.lengths == (0, 1)


@pytest.mark.parametrize("path", [[1, 0], [0, 3], [-1], [0, 0]])
def test_a_path_that_is_none_is_our_own_bug(path: list[int]) -> None:
    cache = DenseCache(1, LINES, WIDTH)
    pass_of(cache, 0, [10, 11, 12])
    with pytest.raises(AssertionError):
        cache.keep(0, path)
