"""The shapes that drafted trees may have: which nodes get how many continuations.

A node is named by its path of ranks: (0, 1) is the second choice after the first one. Shapes know ranks, acceptances
and seconds; no token, no law and no model. `growing` fills them with tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from math import prod
from typing import Any, Protocol, runtime_checkable

from ..errors import BadOption, check_count, shown
from ..registry import option_value
from ..theory import likeliest_nodes
from .published import PUBLISHED

Path = tuple[int, ...]
Seconds = Callable[[int, int], float]  # of a step, given the nodes and the depth of its draft
MOST = 1024  # nodes in any tree


@dataclass(frozen=True)
class Plan:
    """One draft to be grown, level by level.

    widths: the children of each path, of () for the newest token; one number for all of them.
    depth:  the levels.
    beam:   on each level only so many nodes, the likeliest, get children. None: all that `widths` names.
    nodes:  of all nodes only so many, the likeliest, are drafted. None: all.

    With a beam the shape depends on the tokens, so these must be chosen and not drawn."""

    widths: Mapping[Path, int] | int
    depth: int
    beam: int | None = None
    nodes: int | None = None

    def width(self, path: Path) -> int:
        if len(path) >= self.depth:
            return 0
        return self.widths if isinstance(self.widths, int) else self.widths.get(path, 0)


@dataclass(frozen=True)
class Known:
    """What a shape may go by. acceptance: [b] chance that a node's first, second, ... child is the accepted one."""

    acceptance: tuple[float, ...]
    seconds: Seconds


@runtime_checkable
class Shape(Protocol):
    """A way to lay out a tree, with its options. learns: whether its plans go by the acceptance that is known; weighs:
    whether they go by seconds."""

    learns: bool
    weighs: bool

    def plan(self, depth: int, nodes: int, known: Known | None) -> Plan:
        """What to grow within a budget of `depth` levels and `nodes` nodes, both at least 1."""
        ...


@dataclass(frozen=True)
class Chain:
    """k tokens, one after the other."""

    k: int

    learns = weighs = False

    def plan(self, depth: int, nodes: int, known: Known | None) -> Plan:
        return Plan(1, min(self.k, depth, nodes))


@dataclass(frozen=True)
class Listed:
    """A given list of nodes; of those that a budget cannot hold the last are left out. A list that names a node before
    its parent or an elder sibling is read level by level. Raises BadOption where one of these is missing."""

    paths: tuple[Path, ...]

    learns = weighs = False

    def __post_init__(self) -> None:
        there = set(self.paths)
        if not self.paths or len(there) < len(self.paths) or len(self.paths) > MOST:
            raise BadOption(f"a tree has 1 to {MOST} different nodes; found {len(self.paths)}, {len(there)} different")
        for path in self.paths:
            if not path or any(type(rank) is not int or rank < 0 for rank in path):
                raise BadOption(f"{shown(path)} is no node of a tree; give its ranks from the root, counted from 0")
            missing = [before for before in _before(path) if before not in there]
            if missing:
                raise BadOption(f"the tree has node {_text(path)} but not {_text(missing[0])}, which comes before it")
        place = {path: i for i, path in enumerate(self.paths)}
        if any(place[before] > place[path] for path in self.paths for before in _before(path)):
            object.__setattr__(self, "paths", tuple(sorted(self.paths, key=lambda path: (len(path), path))))

    def plan(self, depth: int, nodes: int, known: Known | None) -> Plan:
        return _listed(self.paths, depth, nodes)


@dataclass(frozen=True)
class Cartesian:
    """Every node of depth d has widths[d] children (Medusa 2.3.1; SpecInfer's expansion). Raises BadOption for widths
    that are no counts, or make more nodes than there may be."""

    widths: tuple[int, ...]

    learns = weighs = False

    def __post_init__(self) -> None:
        if not self.widths:
            raise BadOption("a Cartesian tree needs the children at each depth; give them, such as 4x2x2")
        for width in self.widths:
            check_count("children of a node", width, 1)
        size = sum(prod(self.widths[: d + 1]) for d in range(len(self.widths)))
        if size > MOST:
            raise BadOption(f"a tree of widths {self.widths} has {size} nodes; keep to {MOST}")

    def plan(self, depth: int, nodes: int, known: Known | None) -> Plan:
        return _cartesian(self.widths, depth, nodes)


@dataclass(frozen=True)
class Dynamic:
    """Grown by path probability: on each level the `top` likeliest nodes get `top` children, and of all nodes the
    `nodes` likeliest are drafted (EAGLE-2, Li et al. 2024, 2406.16858, 4.1 and 4.2; there 60, 6 and 10)."""

    nodes: int = 32
    depth: int = 6
    top: int = 8

    learns = weighs = False

    def __post_init__(self) -> None:
        for f in fields(self):
            check_count(f"tree 'dynamic': {f.name}", getattr(self, f.name), 1)

    def plan(self, depth: int, nodes: int, known: Known | None) -> Plan:
        most = min(self.nodes, nodes)
        return Plan(min(self.top, most), min(self.depth, depth), beam=self.top, nodes=most)


@dataclass(frozen=True)
class Optimal:
    """The tree that emits most: Sequoia (Chen et al. 2024, 2402.12374) 4.1, with a limit to its depth.

    nodes:      in the tree; None takes as many as give the most tokens per second by the measured costs.
    depth:      the most levels, each of which is a pass of what drafts.
    acceptance: [b] chance that a node's first, second, ... child is the accepted one, none above the one before it, or
                such a row for each depth (Medusa's trees); None measures it in the session itself.
    Raises BadOption for anything else."""

    nodes: int | None = None
    depth: int = 8
    acceptance: tuple[float, ...] | tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        if self.nodes is not None:
            check_count("tree 'optimal': nodes", self.nodes, 1)
        check_count("tree 'optimal': depth", self.depth, 1)
        if self.acceptance is not None:
            _likeliest(self._rows(self.acceptance), 1)

    @property
    def learns(self) -> bool:
        return self.acceptance is None

    @property
    def weighs(self) -> bool:
        return self.nodes is None

    def plan(self, depth: int, nodes: int, known: Known | None) -> Plan:
        acceptance = self.acceptance
        if acceptance is None:
            assert known is not None
            acceptance = known.acceptance
        rows = self._rows(acceptance)[:depth]
        if self.nodes is not None:
            return _listed(_likeliest(rows, min(nodes, self.nodes)), depth, nodes)
        assert known is not None
        return _listed(_most_per_second(rows, nodes, known.seconds), depth, nodes)

    def _rows(self, acceptance: Any) -> tuple[tuple[float, ...], ...]:
        by_depth = acceptance if acceptance and isinstance(acceptance[0], tuple) else (acceptance,) * self.depth
        return tuple(by_depth[: self.depth])


def _before(path: Path) -> list[Path]:
    """Its parent and the sibling before it, as far as there are any."""
    return [before for before in (path[:-1], (*path[:-1], path[-1] - 1)) if before and before[-1] >= 0]


def _most_per_second(rows: tuple[tuple[float, ...], ...], most: int, seconds: Seconds) -> tuple[Path, ...]:
    """The best tree of the depth and size that pay most; no node where none pays."""
    best: tuple[Path, ...] = ()
    best_rate = 1 / seconds(0, 0)
    for depth in range(1, len(rows) + 1):
        paths, tokens = _likeliest(rows[:depth], most), 1.0
        for n, path in enumerate(paths, 1):
            tokens += prod(rows[d][rank] for d, rank in enumerate(path))
            if (rate := tokens / seconds(n, depth)) > best_rate:
                best, best_rate = paths[:n], rate
    return best


@lru_cache(maxsize=256)
def _likeliest(rows: tuple[tuple[float, ...], ...], size: int) -> tuple[Path, ...]:
    return likeliest_nodes(rows, size)


@lru_cache(maxsize=256)
def _listed(paths: tuple[Path, ...], depth: int, nodes: int) -> Plan:
    widths: dict[Path, int] = {}
    for path in [path for path in paths if len(path) <= depth][:nodes]:
        widths[path[:-1]] = widths.get(path[:-1], 0) + 1
    return Plan(widths, depth)


@lru_cache(maxsize=256)
def _cartesian(widths: tuple[int, ...], depth: int, nodes: int) -> Plan:
    level: list[Path] = [()]
    paths: list[Path] = []
    for width in widths[:depth]:
        level = [(*path, rank) for path in level for rank in range(width)]
        paths += level
    return _listed(tuple(paths), depth, nodes)


SHAPES: dict[str, type[Any]] = {"dynamic": Dynamic, "optimal": Optimal}


def make_shape(text: str) -> Shape:
    """The shape that a text names: widths such as 4x2x2, a list of nodes such as 0/1/00/01, a name of PUBLISHED, or
    dynamic or optimal, with options: dynamic:nodes=32:depth=6, optimal:acceptance=.6/.2/.1. Raises BadOption for any
    other text."""
    name, *given = text.split(":")
    if name in SHAPES:
        return _with_options(name, given)
    try:
        widths = tuple(map(int, text.split("x"))) if "x" in text else ()
        paths = () if widths else tuple(tuple(map(int, node)) for node in PUBLISHED.get(text, text).split("/"))
    except ValueError:
        known = ", ".join([*SHAPES, *PUBLISHED])
        raise BadOption(
            f"tree={text!r} is no tree; give {known}, widths such as 4x2x2, or nodes such as 0/1/00"
        ) from None
    return Cartesian(widths) if widths else Listed(paths)


def shape_of(name: str, tree: object) -> Shape | None:
    """The shape that the option `tree` of the drafter `name` asks for, None for none. Raises BadOption."""
    shape = make_shape(tree) if isinstance(tree, str) else tree
    if shape is not None and not isinstance(shape, Shape):
        raise BadOption(f"drafter {name!r}: tree={shown(tree)} is no tree; give a Shape or its name")
    return shape


def chain_length(name: str, k: int | None, tree: object, usual: int) -> int | None:
    """The option `k` of the drafter `name`, which drafts chains or what `tree` asks for: the usual one where neither is
    given. Raises BadOption for what is no count, and for what is no tree."""
    if k is not None:
        check_count(f"drafter {name!r}: k", k, 1)
    return usual if k is None and shape_of(name, tree) is None else k


def chain_or_tree(name: str, k: int | None, tree: object) -> Shape:
    """The shape of its drafts, by the options as `chain_length` leaves them."""
    shape = shape_of(name, tree)
    if shape is not None:
        return shape
    assert k is not None, "a drafter of chains has a k"
    return Chain(k)


def _with_options(name: str, given: Iterable[str]) -> Shape:
    known = [f.name for f in fields(SHAPES[name])]
    options: dict[str, Any] = {}
    for part in given:
        option, equals, value = part.partition("=")
        if not equals or option not in known or option in options:
            raise BadOption(f"tree {name!r}: {part!r} is none of its options, once each: {'=, '.join(known)}=")
        options[option] = option_value(value)
        if option == "acceptance":
            try:
                options[option] = tuple(map(float, value.split("/")))
            except ValueError:
                raise BadOption(f"tree {name!r}: {part!r} should give numbers, such as .6/.2/.1") from None
    shape: Shape = SHAPES[name](**options)
    return shape


def _text(path: Path) -> str:
    return "-".join(map(str, path))
