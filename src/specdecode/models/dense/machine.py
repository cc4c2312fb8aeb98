"""What compiled code needs of the machine beside products: exp, addresses as arrays, and a barrier for threads.

Knows no model, matrix or cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_byte, _int, _long = (ir.IntType(bits) for bits in (8, 32, 64))

Builder = Any  # llvmlite's builders and values carry no types
Value = Any


@intrinsic
def pointer(typing, address):  # type: ignore[no-untyped-def]
    """An address as the pointer that numba.carray takes."""

    def generate(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        return b.inttoptr(args[0], _byte.as_pointer())

    return types.voidptr(types.int64), generate


@intrinsic
def _as_float(typing, bits):  # type: ignore[no-untyped-def]
    def generate(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        return b.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), generate


REORDER = {"reassoc", "contract", "nsz", "arcp"}  # what vectorised sums need; NaN and infinity stay what they are

_f = np.float32


@njit(fastmath=REORDER, inline="always")  # type: ignore[untyped-decorator]
def exp(x: Any) -> Any:
    """e ** x in float32 to a few units in the last place; beyond -87 and 87 it is that of the bound.

    2 ** n * polynomial(r), x = n ln 2 + r, coefficients of the Cephes library: unlike numpy's, it vectorises."""
    x = _f(-87.0) if x < _f(-87.0) else x  # not by min and max, which make a number of NaN
    x = _f(87.0) if x > _f(87.0) else x
    n = np.floor(x * _f(1.44269504) + _f(0.5))
    r = x - n * _f(0.693359375)
    r = r + n * _f(2.12194440e-4)
    p = _f(1.9875691500e-4)
    p = p * r + _f(1.3981999507e-3)
    p = p * r + _f(8.3334519073e-3)
    p = p * r + _f(4.1665795894e-2)
    p = p * r + _f(1.6666665459e-1)
    p = p * r + _f(5.0000001201e-1)
    p = p * r * r + r + _f(1.0)
    return p * _as_float((np.int32(n) + np.int32(127)) << np.int32(23))


def _atomic(emit: Callable[[Builder, Value], Value]) -> Any:
    def typed(typing, address):  # type: ignore[no-untyped-def]
        def generate(context: Any, b: Builder, signature: Any, args: Any) -> Any:
            return emit(b, b.inttoptr(args[0], _long.as_pointer()))

        return types.int64(types.int64), generate

    return intrinsic(typed)


_arrive = _atomic(lambda b, place: b.atomic_rmw("add", place, _long(1), "acq_rel"))
_arrived = _atomic(lambda b, place: b.load_atomic(place, "acquire", align=8))


@intrinsic
def _give_way(typing):  # type: ignore[no-untyped-def]
    """Let another thread have the processor."""

    def generate(context: Any, b: Builder, signature: Any, args: Any) -> Any:
        function = cgutils.get_or_insert_function(b.module, ir.FunctionType(_int, []), "sched_yield")
        return b.call(function, [])

    return types.int32(), generate


PATIENCE = 4000  # looks at the counter before a waiting thread gives way: some ten microseconds


@njit(nogil=True)  # type: ignore[untyped-decorator]
def barrier(counter: Any, threads: Any, turn: Any) -> Any:
    """Wait until all threads are here. counter: the address of an int64 that only grows during a pass; turn: its value
    when the previous barrier opened. Returns the value that opens this one."""
    if threads == 1:
        return turn
    turn += threads
    _arrive(counter)
    looks = 0
    while _arrived(counter) < turn:
        looks += 1
        if looks > PATIENCE:
            _give_way()
    return turn
