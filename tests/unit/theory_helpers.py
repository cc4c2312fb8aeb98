"""Laws over a few tokens, in exact fractions, for the tests of theory.py."""

from __future__ import annotations

from fractions import Fraction as Frac

from hypothesis import strategies as st

UNIT = st.fractions(0, 1, max_denominator=20)
P, Q = (Frac(5, 10), Frac(3, 10), Frac(2, 10)), (Frac(2, 10), Frac(3, 10), Frac(5, 10))
SURE, EVEN = (Frac(1), Frac(0)), (Frac(1, 2), Frac(1, 2))


@st.composite
def law_pairs(draw: st.DrawFn, most: int = 4) -> tuple[list[Frac], list[Frac]]:
    """A target and a draft law over the same few tokens, zeros included."""
    size = draw(st.integers(2, most))
    weights = st.lists(st.integers(0, 6), min_size=size, max_size=size).filter(any)
    p, q = draw(weights), draw(weights)
    return [Frac(x, sum(p)) for x in p], [Frac(x, sum(q)) for x in q]
