"""The matrix kernels of the fast CPU pass, as LLVM vector code for the processor at hand, x86 or ARM.

A matrix is stored in one of KINDS and decoded in registers. The order in which an output is added up depends on nothing
but its inputs, so a row's result is bitwise the same whatever rows share the pass. Knows addresses and strides; no
model, layer or cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils

F32, F16, BF16, INT8, INT4 = KINDS = range(5)  # how a matrix is stored
WHOLE = (INT8, INT4)  # as whole numbers, with scales that a group of inputs shares
BITS = (32, 16, 16, 8, 4)  # of one stored weight, by kind
UNIT = (1, 1, 1, 2, 4)  # inputs whose weights are stored side by side
GROUP = 32  # inputs that share scales
SCALES = (0, 0, 0, 1, 2)  # float16 numbers that the weights of a group share: a factor; a factor and an offset
LANES = 16
PANEL = 2 * LANES  # outputs that a micro-kernel computes together; matrices are stored as panels of so many columns
TILE = 8  # rows that it computes together: TILE * PANEL / LANES accumulators stay in registers
AHEAD = 2048  # bytes fetched ahead of use: the processor's own prefetching stops at the end of a page

_float, _half = ir.FloatType(), ir.HalfType()
_byte, _short, _int, _long = (ir.IntType(bits) for bits in (8, 16, 32, 64))
_vector = ir.VectorType(_float, LANES)
_ints = ir.VectorType(_int, LANES)
_VECTORS = range(PANEL // LANES)

Builder = Any  # llvmlite's builders and values carry no types
Value = Any
Use = Callable[[Value, list[Value]], None]  # what is to be done with the weights [PANEL] of an input


def _at(b: Builder, address: Value, kind: Any) -> Value:
    return b.inttoptr(address, kind.as_pointer())


def _plus(b: Builder, address: Value, offset: int) -> Value:
    return b.add(address, _long(offset))


def _splat(b: Builder, scalar: Value) -> Value:
    undefined = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
    return b.shuffle_vector(b.insert_element(undefined, scalar, _int(0)), undefined, ir.Constant(_ints, [0] * LANES))


def _fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    kind = ir.FunctionType(_vector, [_vector] * 3)
    return b.call(cgutils.get_or_insert_function(b.module, kind, f"llvm.fma.v{LANES}f32"), [x, y, z])


def _prefetch(b: Builder, address: Value) -> None:
    kind = ir.FunctionType(ir.VoidType(), [_byte.as_pointer(), _int, _int, _int])
    fetch = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    b.call(fetch, [_at(b, address, _byte), _int(0), _int(3), _int(1)])


def _constant(value: int) -> Value:
    return ir.Constant(_ints, [value] * LANES)


def _load_floats(b: Builder, address: Value, kind: int) -> list[Value]:
    """PANEL numbers of a floating-point kind as vectors of float32."""
    out = []
    for v in _VECTORS:
        place = _plus(b, address, BITS[kind] * LANES * v // 8)
        if kind == F32:
            out.append(b.load(_at(b, place, _vector), align=4))
        elif kind == F16:
            out.append(b.fpext(b.load(_at(b, place, ir.VectorType(_half, LANES)), align=2), _vector))
        else:  # bfloat16 is the upper half of a float32
            wide = b.zext(b.load(_at(b, place, ir.VectorType(_short, LANES)), align=2), _ints)
            out.append(b.bitcast(b.shl(wide, _constant(16)), _vector))
    return out


def _load_whole(b: Builder, address: Value, kind: int) -> list[list[Value]]:
    """The whole numbers of the inputs of a unit, [UNIT][PANEL / LANES] vectors of float32. An output has two bytes: one
    for each of two inputs, or for four a half each, in the order first, third; second, fourth."""
    out: list[list[Value]] = [[] for _ in range(UNIT[kind])]
    for v in _VECTORS:
        place = _plus(b, address, 2 * LANES * v)
        both = b.zext(b.load(_at(b, place, ir.VectorType(_short, LANES)), align=2), _ints)
        for vectors, start in zip(out, (0, 8) if kind == INT8 else (0, 8, 4, 12), strict=True):
            if kind == INT8:
                number = b.ashr(b.shl(both, _constant(24 - start)), _constant(24))
            else:
                number = b.and_(b.lshr(both, _constant(start)), _constant(15))
            vectors.append(b.sitofp(number, _vector))
    return out


def _each_input(b: Builder, kind: int, w: Value, scales: Value, step: Value, n: Value, use: Use) -> None:
    """The loop over the n inputs of a panel, in order. step: bytes from one unit of inputs to the next."""

    def at(index: Value) -> Value:
        place = b.add(w, b.mul(index, step))
        _prefetch(b, _plus(b, place, AHEAD))
        return place

    if kind not in WHOLE:
        with cgutils.for_range(b, n) as loop:
            use(loop.index, _load_floats(b, at(loop.index), kind))
        return
    units = GROUP // UNIT[kind]
    with cgutils.for_range(b, b.sdiv(n, _long(GROUP))) as groups:
        factors, offsets = _load_scales(b, scales, groups.index, kind)
        with cgutils.for_range(b, _long(units)) as loop:
            unit = b.add(b.mul(groups.index, _long(units)), loop.index)
            first = b.mul(unit, _long(UNIT[kind]))
            for i, numbers in enumerate(_load_whole(b, at(unit), kind)):
                if offsets is None:
                    weights = [b.fmul(*each) for each in zip(numbers, factors, strict=True)]
                else:
                    weights = [_fma(b, *each) for each in zip(numbers, factors, offsets, strict=True)]
                use(b.add(first, _long(i)), weights)


def _load_scales(b: Builder, scales: Value, group: Value, kind: int) -> tuple[list[Value], list[Value] | None]:
    """The factors, and for INT4 the offsets, [PANEL] each, of a group."""
    place = b.add(scales, b.mul(group, _long(2 * PANEL * SCALES[kind])))
    return _load_floats(b, place, F16), _load_floats(b, _plus(b, place, 2 * PANEL), F16) if kind == INT4 else None


def accumulate_kernel(module: Any, kind: int, rows: int) -> Any:
    """The LLVM function that adds x[rows, n] @ w[n, PANEL] to out[rows, PANEL].

    Arguments: addresses and strides in bytes, as in `accumulate`."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_long] * 8), f"panel_{kind}_{rows}")
    function.linkage = "internal"
    w, scales, step, x, x_row, n, out, out_row = function.args
    b = ir.IRBuilder(function.append_basic_block())
    totals = [[cgutils.alloca_once(b, _vector) for _ in _VECTORS] for _ in range(rows)]
    xs = [b.add(x, b.mul(x_row, _long(row))) for row in range(rows)]
    outs = [[_plus(b, b.add(out, b.mul(out_row, _long(r))), 4 * LANES * v) for v in _VECTORS] for r in range(rows)]
    for row in range(rows):
        for v in _VECTORS:
            b.store(b.load(_at(b, outs[row][v], _vector), align=4), totals[row][v])

    def add(k: Value, weights: list[Value]) -> None:
        for row in range(rows):
            value = _splat(b, b.load(_at(b, b.add(xs[row], b.mul(k, _long(4))), _float), align=4))
            for v in _VECTORS:
                b.store(_fma(b, weights[v], value, b.load(totals[row][v])), totals[row][v])

    _each_input(b, kind, w, scales, step, n, add)
    for row in range(rows):
        for v in _VECTORS:
            b.store(b.load(totals[row][v]), _at(b, outs[row][v], _vector), align=4)
    b.ret_void()
    return function


def unpack_kernel(module: Any, kind: int) -> Any:
    """The LLVM function that writes w[n, PANEL] as bfloat16, rounded to the nearest, ties to even."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_long] * 5), f"unpack_{kind}")
    function.linkage = "internal"
    w, scales, n, out, out_row = function.args
    b = ir.IRBuilder(function.append_basic_block())

    def write(k: Value, weights: list[Value]) -> None:
        target = b.add(out, b.mul(k, out_row))
        for v in _VECTORS:
            bits = b.bitcast(weights[v], _ints)
            even = b.and_(b.lshr(bits, _constant(16)), _constant(1))
            bits = b.add(bits, b.add(_constant(0x7FFF), even))
            short = b.trunc(b.lshr(bits, _constant(16)), ir.VectorType(_short, LANES))
            b.store(short, _at(b, _plus(b, target, 2 * LANES * v), short.type), align=2)

    _each_input(b, kind, w, scales, _long(row_bytes(kind)), n, write)
    b.ret_void()
    return function


def dot_kernel(module: Any, kind: int, rows: int) -> Any:
    """The LLVM function of `dot` for one kind and number of rows: whole numbers times whole numbers, added up exactly
    within a group of inputs; the groups' sums are scaled and added in order."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_long] * 9), f"dot_{kind}_{rows}")
    function.linkage = "internal"
    w, scales, x, x_row, shares, shares_row, n, out, out_row = function.args
    b = ir.IRBuilder(function.append_basic_block())
    sums = [[cgutils.alloca_once(b, _ints) for _ in _VECTORS] for _ in range(rows)]
    pairs = ir.FunctionType(_ints, [_ints] * 3)  # of int16, as this instruction sees them
    multiply_add = cgutils.get_or_insert_function(module, pairs, "llvm.x86.avx512.vpdpwssd.512")
    with cgutils.for_range(b, b.sdiv(n, _long(GROUP))) as groups:
        for row in range(rows):
            for v in _VECTORS:
                b.store(_constant(0), sums[row][v])
        units = GROUP // UNIT[kind]
        with cgutils.for_range(b, _long(units)) as loop:
            unit = b.add(b.mul(groups.index, _long(units)), loop.index)
            place = b.add(w, b.mul(unit, _long(row_bytes(kind))))
            _prefetch(b, _plus(b, place, AHEAD))
            first = b.mul(unit, _long(2 * UNIT[kind]))
            halves = [_load_pairs(b, _plus(b, place, 2 * LANES * v), kind) for v in _VECTORS]
            for i in range(UNIT[kind] // 2):
                for row in range(rows):  # a row's numbers are spread once and used at once: registers are few
                    source = b.add(b.add(x, b.mul(x_row, _long(row))), b.add(first, _long(4 * i)))
                    value = _splat(b, b.load(_at(b, source, _int), align=2))
                    for v in _VECTORS:
                        b.store(b.call(multiply_add, [b.load(sums[row][v]), value, halves[v][i]]), sums[row][v])
        factors, offsets = _load_scales(b, scales, groups.index, kind)
        for row in range(rows):
            share = b.add(b.add(shares, b.mul(shares_row, _long(row))), b.mul(groups.index, _long(8)))
            factor, total = (_splat(b, b.load(_at(b, _plus(b, share, 4 * i), _float), align=4)) for i in (0, 1))
            for v in _VECTORS:
                target = _at(b, _plus(b, b.add(out, b.mul(out_row, _long(row))), 4 * LANES * v), _vector)
                scaled = b.fmul(factors[v], factor)
                value = _fma(b, b.sitofp(b.load(sums[row][v]), _vector), scaled, b.load(target, align=4))
                if offsets is not None:
                    value = _fma(b, offsets[v], total, value)
                b.store(value, target, align=4)
    b.ret_void()
    return function


def _load_pairs(b: Builder, address: Value, kind: int) -> list[Value]:
    """The weights of a unit for LANES outputs as pairs of int16, one pair of inputs after the other."""
    wide = ir.VectorType(_short, 2 * LANES)
    narrow = b.load(_at(b, address, ir.VectorType(_byte, 2 * LANES)), align=1)
    if kind == INT8:
        return [b.bitcast(b.sext(narrow, wide), _ints)]
    both = b.zext(narrow, wide)
    low = b.and_(both, ir.Constant(wide, [15] * 2 * LANES))
    return [b.bitcast(part, _ints) for part in (low, b.lshr(both, ir.Constant(wide, [4] * 2 * LANES)))]


def row_bytes(kind: int) -> int:
    """Bytes of the weights of a unit of inputs in a panel."""
    return PANEL * BITS[kind] * UNIT[kind] // 8
