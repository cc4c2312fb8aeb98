"""What speculation is expected to bring: the closed formulas of the literature, as plain functions of numbers.

Symbols throughout: a, the acceptance (chance that a drafted token is accepted, independent from token to token); g,
the draft length; c, the time of one draft step in target passes; p, the target law; q, the draft law; l, the lenience.
A law is a sequence of V probabilities. Floats in, floats out; Fractions in, exact Fractions out. Arguments outside
their range raise BadOption. It knows no model and measures nothing.

Sources: [Leviathan] 2211.17192, [SpecInfer] 2305.09781, [Sequoia] 2402.12374, [Lookahead] 2402.02057.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from .errors import BadOption, check_count

Real: TypeAlias = float | Fraction
Law: TypeAlias = Sequence[Real]


# ---- drafts as chains: tokens, time, work


def expected_tokens(a: Real, g: int, branches: int = 1) -> Real:
    """Tokens emitted per step by drafts of g tokens: (1 - a^(g+1)) / (1 - a), summed term by term so that a = 1 is no
    special case ([Leviathan] eq. 1). With `branches` independent chains of which the best is kept:
    (g + 1) - sum over i = 1..g of (1 - a^i)^branches ([Lookahead])."""
    _check_unit("acceptance", a)
    check_count("draft length", g, 0)
    check_count("branches", branches, 1)
    return g + 1 - sum((1 - a**i) ** branches for i in range(1, g + 1))


def emitted_law(a: Real, g: int) -> list[Real]:
    """[g + 1] probability that a step emits 1, 2, ..., g + 1 tokens. The chance of more than k is a^k, k <= g."""
    _check_unit("acceptance", a)
    check_count("draft length", g, 0)
    return [*(a**k * (1 - a) for k in range(g)), a**g]


def speedup(a: Real, g: int, c: Real, verify_cost: Real = 1) -> Real:
    """Plain decoding's time per token over speculation's ([Leviathan] theorem 3.8).

    verify_cost: time of the pass that verifies g drafted tokens, in passes of a single token: measured t(g+1) / t(1).
    The paper takes it to be 1."""
    _check_cost("draft cost", c)
    if not 0 < verify_cost < math.inf:
        raise BadOption(f"verify cost is {verify_cost!r}; give a positive, finite number of single-token passes")
    return expected_tokens(a, g) / (g * c + verify_cost)


def can_improve(a: Real, c: Real) -> bool:
    """Whether some draft length beats plain decoding while verifying costs one pass: a > c ([Leviathan] corollary 3.9).
    The gain is then at least speedup(a, 1, c) = (1 + a) / (1 + c)."""
    _check_unit("acceptance", a)
    _check_cost("draft cost", c)
    return a > c


def best_length(
    a: Real, c: Real, longest: int = 64, verify_cost: Callable[[int], Real] = lambda g: 1
) -> tuple[int, Real]:
    """The draft length up to `longest` with the highest speed-up, and that speed-up; the shortest of equals, and (0, 1)
    where none is faster than plain decoding. verify_cost: of each draft length g >= 1, as in `speedup`."""
    check_count("longest draft", longest, 0)
    _check_unit("acceptance", a)
    _check_cost("draft cost", c)
    gains: list[Real] = [1, *(speedup(a, g, c, verify_cost(g)) for g in range(1, longest + 1))]
    g = max(range(len(gains)), key=gains.__getitem__)
    return g, gains[g]


def operations_factor(a: Real, g: int, c_ops: Real = 0) -> Real:
    """Arithmetic per emitted token over plain decoding's ([Leviathan] theorem 3.11). c_ops: operations of a draft step
    in those of the target for one token."""
    _check_cost("draft operations", c_ops)
    return (g * c_ops + g + 1) / expected_tokens(a, g)


# ---- acceptance of one drafted token


def acceptance(p: Law, q: Law, lenience: Real = 1) -> Real:
    """Chance that a token drawn from q is accepted: sum of min(p / l, q), at l = 1 one minus the total variation
    distance ([Leviathan] theorem 3.5, lenience A.5). `lenience` in (0, 1]."""
    _check_laws(p, q)
    _check_lenience(lenience)
    return sum(min(x / lenience, y) for x, y in zip(p, q, strict=True))


def leniently_accepted(p: Law, token: int, lenience: Real) -> bool:
    """Whether greedy decoding with lenience accepts `token`: p(token) >= l * max p ([Leviathan] A.5, whose printed
    inequality is reversed: l = 1 has to be exact)."""
    _check_law("target law", p)
    _check_lenience(lenience)
    return p[token] >= lenience * max(p)


# ---- acceptance of any of k drafted tokens at one node


def naive_acceptance(p: Law, q: Law, k: int) -> Real:
    """A token drawn from p is among k drawn from q with replacement: sum of p (1 - (1 - q)^k). The baseline of
    [SpecInfer] theorem 4.3."""
    _check_laws(p, q)
    check_count("candidates", k, 1)
    return sum(x * (1 - (1 - y) ** k) for x, y in zip(p, q, strict=True))


def top_k_acceptance(p: Law, q: Law, k: int) -> Real:
    """A token drawn from p is among the k likeliest of q (ties to the lowest ids): the mass p gives them. Testing
    those k one by one as point masses accepts as often."""
    _check_laws(p, q)
    check_count("candidates", k, 1)
    likeliest = sorted(range(len(q)), key=q.__getitem__, reverse=True)[:k]
    return sum(p[token] for token in likeliest)


def mss_acceptance(p: Law, q: Law, k: int) -> Real:
    """k tokens drawn from q with replacement, each tested against what the refused ones left of p ([SpecInfer]
    algorithm 2)."""
    _check_laws(p, q)
    check_count("candidates", k, 1)
    residual: Law = p
    all_refused: Real = 1
    for _ in range(k):
        all_refused *= 1 - sum(map(min, residual, q))
        residual = _residual(residual, q)
    return 1 - all_refused


def without_replacement_acceptance(p: Law, q: Law, k: int) -> Real:
    """k tokens drawn from q without replacement, each tested against what the refused ones left of p; when the support
    of q is used up the draws go on uniformly ([Sequoia] algorithm 2). Walks every order of refusals, up to
    V! / (V - k)!: meant for small vocabularies."""
    _check_laws(p, q)
    check_count("candidates", k, 1)
    return _any_accepted(p, q, k, frozenset())


def _any_accepted(residual: Law, draft: Law, draws: int, refused: frozenset[int]) -> Real:
    total: Real = 0
    for token, chance in enumerate(draft):
        if chance == 0:
            continue
        accepted = min(1, residual[token] / chance)
        later: Real = 0
        if accepted < 1 and draws > 1:
            gone = refused | {token}
            later = _any_accepted(_residual(residual, draft), _without(draft, gone), draws - 1, gone)
        total += chance * (accepted + (1 - accepted) * later)
    return total


def _residual(p: Law, q: Law) -> Law:
    """norm(max(p - q, 0)), or p where nothing is left of it."""
    left = [max(x - y, 0) for x, y in zip(p, q, strict=True)]
    mass = sum(left)
    return [x / mass for x in left] if mass else p


def _without(q: Law, refused: frozenset[int]) -> Law:
    """q without the refused tokens; uniform over the others where it gave them nothing."""
    left = [0 if token in refused else x for token, x in enumerate(q)]
    mass = sum(left)
    if mass:
        return [x / mass for x in left]
    others = len(q) - len(refused)
    return [0 if token in refused else Fraction(1, others) for token in range(len(q))]


# ---- drafts as trees


@dataclass(frozen=True)
class BestTree:
    """The best tree of a size, and what the best trees of all sizes up to it are worth.

    values:  [N] values[n - 1] is the expected number of tokens per step of the best tree of n nodes, root included.
    parents: [N - 1] its nodes without the root, as in Draft: -1 is the root, parents and elder siblings come first.
    ranks:   [N - 1] each node is its parent's ranks[i]-th choice, counted from 0.
    """

    values: tuple[Real, ...]
    parents: tuple[int, ...]
    ranks: tuple[int, ...]


def child_ranks(parents: Sequence[int]) -> tuple[int, ...]:
    """[n] how many elder siblings each node of a tree has."""
    _check_parents(parents)
    return tuple(parents[:node].count(parent) for node, parent in enumerate(parents))


def tree_value(parents: Sequence[int], rank_acceptance: Sequence[Real]) -> Real:
    """Expected tokens per step of a tree: 1 for the root's next token, and for each node the product of the acceptances
    on its path ([Sequoia] section 3).

    parents: [n] as in Draft. rank_acceptance: [b] chance that a node's first, second, ... child is the accepted one."""
    _check_rank_acceptance(rank_acceptance)
    ranks = child_ranks(parents)
    if max(ranks, default=-1) >= len(rank_acceptance):
        raise BadOption(f"a node has {max(ranks) + 1} children; give as many acceptances, not {len(rank_acceptance)}")
    reached: list[Real] = []
    for parent, rank in zip(parents, ranks, strict=True):
        reached.append(rank_acceptance[rank] * (1 if parent == -1 else reached[parent]))
    return 1 + sum(reached)


def best_tree(rank_acceptance: Sequence[Real], size: int) -> BestTree:
    """The tree of `size` nodes, root included, with the highest `tree_value` ([Sequoia] algorithm 1)."""
    _check_rank_acceptance(rank_acceptance)
    check_count("tree size", size, 1)
    if size > 1 and not rank_acceptance:
        raise BadOption(f"a tree of {size} nodes was asked for with no child acceptances; give at least one")
    # table[n, b]: value of the best tree of n nodes whose root has b children, and the size of the last child's subtree
    table: dict[tuple[int, int], tuple[Real, int]] = {(1, 0): (1, 0)}
    values: list[Real] = [1]
    width = [0]  # width[n - 1]: children of the root of the best tree of n nodes
    for n in range(2, size + 1):
        widest = min(len(rank_acceptance), n - 1)
        for b in range(1, widest + 1):
            table[n, b] = max(
                (table[n - m, b - 1][0] + rank_acceptance[b - 1] * values[m - 1], m)
                for m in range(1, n - b + 1)
                if (n - m, b - 1) in table
            )
        value, children = max((table[n, b][0], b) for b in range(1, widest + 1))
        values.append(value)
        width.append(children)
    parents = _lay_out({key: m for key, (_, m) in table.items()}, width)
    return BestTree(tuple(values), parents, child_ranks(parents))


def _lay_out(last_child: dict[tuple[int, int], int], width: Sequence[int]) -> tuple[int, ...]:
    """The parents of the tree whose splits best_tree found, level by level."""
    parents: list[int] = []
    subtrees = [(-1, len(width))]  # (node, size of its subtree), grows while it is read
    for node, size in subtrees:
        sizes = []
        for b in range(width[size - 1], 0, -1):
            sizes.append(last_child[size, b])
            size -= sizes[-1]
        for child_size in reversed(sizes):
            subtrees.append((len(parents), child_size))
            parents.append(node)
    return tuple(parents)


# ---- arguments


def _check_unit(name: str, value: Real) -> None:
    if not 0 <= value <= 1:
        raise BadOption(f"{name} is {value!r}; give a number from 0 to 1")


def _check_cost(name: str, value: Real) -> None:
    if not 0 <= value < math.inf:
        raise BadOption(f"{name} is {value!r}; give a finite number, 0 or more")


def _check_lenience(value: Real) -> None:
    if not 0 < value <= 1:
        raise BadOption(f"lenience is {value!r}; give a number above 0 and up to 1, which is exact")


def _check_law(name: str, law: Law) -> None:
    total, least = float(sum(law)), float(min(law, default=0))
    if not (least >= 0 and abs(total - 1) < 1e-5):
        raise BadOption(f"{name} sums to {total:.6g}, its least entry is {least:.6g}; give probabilities that sum to 1")


def _check_laws(p: Law, q: Law) -> None:
    _check_law("target law", p)
    _check_law("draft law", q)
    if len(p) != len(q):
        raise BadOption(f"the target law has {len(p)} tokens and the draft law {len(q)}; give both over one vocabulary")


def _check_rank_acceptance(values: Sequence[Real]) -> None:
    if not (all(x >= 0 for x in values) and sum(values) <= 1 + 1e-9):
        raise BadOption(f"child acceptances are {list(values)}; one child at most is accepted, so give a sum up to 1")


def _check_parents(parents: Sequence[int]) -> None:
    for node, parent in enumerate(parents):
        if not -1 <= parent < node:
            raise BadOption(f"node {node} has parent {parent}; give -1 for the root or an earlier node")
