"""What the formulas take: numbers and laws, floats or exact Fractions, and the refusal of those out of range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

from ..errors import BadOption

Real: TypeAlias = float | Fraction
Law: TypeAlias = Sequence[Real]


def check_unit(name: str, value: Real) -> None:
    if not 0 <= value <= 1:
        raise BadOption(f"{name} is {value!r}; give a number from 0 to 1")


def check_cost(name: str, value: Real) -> None:
    if not 0 <= value < math.inf:
        raise BadOption(f"{name} is {value!r}; give a finite number, 0 or more")


def check_lenience(value: Real) -> None:
    if not 0 < value <= 1:
        raise BadOption(f"lenience is {value!r}; give a number above 0 and up to 1, which is exact")


def check_law(name: str, law: Law) -> None:
    total, least = float(sum(law)), float(min(law, default=0))
    if not (least >= 0 and abs(total - 1) < 1e-5):
        raise BadOption(f"{name} sums to {total:.6g}, its least entry is {least:.6g}; give probabilities that sum to 1")


def check_laws(p: Law, q: Law) -> None:
    check_law("target law", p)
    check_law("draft law", q)
    if len(p) != len(q):
        raise BadOption(f"the target law has {len(p)} tokens and the draft law {len(q)}; give both over one vocabulary")


def check_rank_acceptance(values: Sequence[Real]) -> None:
    if not (all(x >= 0 for x in values) and sum(values) <= 1 + 1e-9):
        raise BadOption(f"child acceptances are {list(values)}; one child at most is accepted, so give a sum up to 1")


def check_parents(parents: Sequence[int]) -> None:
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise BadOption(f"node {node} has parent {parent}; give -1 for the root or an earlier node")
