"""The kernels as functions that compiled code can call: two by address, so that their code is made once, and `unpack`.

Knows the kernels' arguments, all of them int64: addresses, counts and strides in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from llvmlite import ir
from numba import cfunc, types
from numba.core import codegen
from numba.extending import intrinsic

from .kernels import KINDS, TILE, WHOLE, accumulate_kernel, dot_kernel, unpack_kernel

T = TypeVar("T")
_long = ir.IntType(64)
ACCUMULATE, DOT, UNPACK = 10, 11, 6  # how many arguments they take


def has_dot() -> bool:
    """Whether this processor has the instruction that `dot` is made of (AVX-512 VNNI)."""
    return "+avx512vnni" in codegen.get_host_cpu_features().split(",")


def kept(decorate: Callable[[bool], T]) -> T:
    """What `decorate` makes with numba's cache on disk; without it where no folder can be written."""
    try:
        return decorate(True)
    except RuntimeError:
        return decorate(False)


def _by_kind(kinds: Sequence[int], arguments: int, kernel: Callable[[Any, int, int], Any]) -> Any:
    """An intrinsic that runs the kernel made for its first two arguments, kind and rows."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        kind, rows, *rest = args
        done = b.append_basic_block("done")
        choice = b.switch(b.add(b.mul(kind, _long(TILE + 1)), rows), done)
        for stored in kinds:
            for count in range(1, TILE + 1):
                block = b.append_basic_block()
                choice.add_case(_long(stored * (TILE + 1) + count), block)
                with b.goto_block(block):
                    b.call(kernel(b.module, stored, count), rest)
                    b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.int64] * arguments), generate


def _by_address(arguments: int) -> Any:
    """An intrinsic that calls the function whose address is its first argument with the others."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        function = ir.FunctionType(ir.VoidType(), [_long] * arguments)
        b.call(b.inttoptr(args[0], function.as_pointer()), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * (arguments + 1)), generate


@intrinsic
def _any_accumulate(typing, kind, rows, w, scales, step, x, x_row, n, out, out_row):  # type: ignore[no-untyped-def]
    return _by_kind(KINDS, ACCUMULATE, accumulate_kernel)


@intrinsic
def _any_dot(typing, kind, rows, w, scales, x, x_row, shares, shares_row, n, out, out_row):  # type: ignore[no-untyped-def]
    return _by_kind(WHOLE, DOT, dot_kernel)


def _accumulate(kind, rows, w, scales, step, x, x_row, n, out, out_row):  # type: ignore[no-untyped-def]
    _any_accumulate(kind, rows, w, scales, step, x, x_row, n, out, out_row)


def _dot(kind, rows, w, scales, x, x_row, shares, shares_row, n, out, out_row):  # type: ignore[no-untyped-def]
    _any_dot(kind, rows, w, scales, x, x_row, shares, shares_row, n, out, out_row)


def _address(function: Callable[..., None], arguments: int) -> int:
    signature = types.void(*[types.int64] * arguments)
    return int(kept(lambda cache: cfunc(signature, cache=cache)(function)).address)


ACCUMULATE_ADDRESS = _address(_accumulate, ACCUMULATE)
DOT_ADDRESS = _address(_dot, DOT) if has_dot() else 0


@intrinsic
def accumulate(typing, kernel, kind, rows, w, scales, step, x, x_row, n, out, out_row):  # type: ignore[no-untyped-def]
    """Add x[rows, n] @ w[n, PANEL] to out[rows, PANEL], by fused multiply-adds in the order of n; 1 <= rows <= TILE.

    kernel: ACCUMULATE_ADDRESS. x and out are float32; scales: float16 [n / GROUP, SCALES, PANEL] where w has them."""
    return _by_address(ACCUMULATE)


@intrinsic
def dot(typing, kernel, kind, rows, w, scales, x, x_row, shares, shares_row, n, out, out_row):  # type: ignore[no-untyped-def]
    """The same for w of a WHOLE kind and rows that are whole numbers too: x int16 [rows, n], and in `shares`
    float32 [rows, n / GROUP, 2] for each group of inputs their factor, and their sum times it.

    kernel: DOT_ADDRESS."""
    return _by_address(DOT)


@intrinsic
def unpack(typing, kind, w, scales, n, out, out_row):  # type: ignore[no-untyped-def]
    """Write a panel w[n, PANEL] as bfloat16 to the address `out`, out_row bytes from one input to the next."""

    def generate(context: Any, b: Any, signature: Any, args: Any) -> Any:
        kind, *rest = args
        done = b.append_basic_block("done")
        choice = b.switch(kind, done)
        for stored in KINDS:
            block = b.append_basic_block()
            choice.add_case(_long(stored), block)
            with b.goto_block(block):
                b.call(unpack_kernel(b.module, stored), rest)
                b.branch(done)
        b.position_at_end(done)
        return context.get_dummy_value()

    return types.void(*[types.int64] * UNPACK), generate
