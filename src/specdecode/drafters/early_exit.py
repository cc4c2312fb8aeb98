"""The target's first layers draft, and its head reads what leaves them (LayerSkip, Elhoushi et al. 2024, 2404.16710).

The scoring pass resumes where they left off, with the same keys, values and hidden states: no layer is run twice for a
node. Models that were trained for it accept more, others little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import BadOption, Incompatible, check_count
from ..models.lm import LM, Cache, check_trees
from ..session import Session
from ..types import Sublayers
from .model_drafting import ModelDrafting, Steady, StepSeconds, check_confidence, remembered
from .reading import TargetCache
from .shapes import Cartesian, Chain, Shape, chain_length, chain_or_tree

K = 6  # tokens of a chain, as in the paper's repository


@dataclass(frozen=True)
class EarlyExit:
    """exit:       after how many layers drafts leave the stack; None: half of them.
    k:          tokens of a chain; None: 6.
    confidence: end a path before a token whose law gives no token this much probability; None never does.
    tree:       a shape instead of a chain, as the drafter "lm" has it. Trees that drop nodes at their end (dynamic
                ones) are scored from the first layer, and so are drafts beside which another source drafts or is asked
                later: in `merged` and `auto` put this one last.
    Raises BadOption for what is none of these and for a layer that the model has not, Incompatible where its layers
    cannot be told apart."""

    exit: int | None = None
    k: int | None = None
    confidence: float | None = None
    tree: str | Shape | None = None

    name = "early_exit"

    def __post_init__(self) -> None:
        if self.exit is not None:
            check_count("drafter 'early_exit': exit", self.exit, 1)
        k = chain_length(self.name, self.k, self.tree, K)
        check_confidence(self.name, self.confidence)
        if self.tree is not None and self.k is not None:
            raise BadOption("drafter 'early_exit': k is for chains, and a tree has its own depth; leave it out")
        object.__setattr__(self, "k", k)

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> ModelDrafting:
        shape = chain_or_tree(self.name, self.k, self.tree)
        return _begin(self, Steady(shape, self.confidence), sessions, target, cache)

    def share(self, target: LM) -> float:
        """Of a pass: see Drafter."""
        return _layers(self, target) / target.n_layers


@dataclass(frozen=True)
class PPD:
    """The k likeliest guesses of an intermediate layer start the next position early (Predictive Pipelined Decoding,
    Yang et al. 2024, 2307.05908). There each guess runs on hardware of its own while the layers above decide; here all
    of them share the scoring pass, as siblings of one tree. `theory.pipelined` has the trade of compute for latency.

    exit: after how many layers guesses are taken; None: half of them. k: guesses.
    Raises BadOption and Incompatible as EarlyExit does."""

    exit: int | None = None
    k: int = 3

    name = "ppd"

    def __post_init__(self) -> None:
        if self.exit is not None:
            check_count("drafter 'ppd': exit", self.exit, 1)
        check_count("drafter 'ppd': k", self.k, 1)

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> ModelDrafting:
        return _begin(self, Steady(Cartesian((self.k,))), sessions, target, cache)

    def share(self, target: LM) -> float:
        """Of a pass: see Drafter."""
        return _layers(self, target) / target.n_layers


def _layers(drafter: EarlyExit | PPD, target: LM) -> int:
    """How many layers draft. Raises BadOption for more than there are."""
    if drafter.exit is None:
        return max(1, target.n_layers // 2)
    if drafter.exit > target.n_layers:
        raise BadOption(
            f"drafter {drafter.name!r}: exit={drafter.exit}, but this model has {target.n_layers} layers; give fewer"
        )
    return drafter.exit


def _begin(
    drafter: EarlyExit | PPD, pace: Steady, sessions: Sequence[Session], target: LM, cache: Cache
) -> ModelDrafting:
    """The first layers of the target at work."""
    if not (target.capabilities.layers and target.capabilities.taps):
        raise Incompatible(f"drafter {drafter.name!r}: this model's layers cannot be told apart; choose another")
    if not isinstance(pace.shape, Chain):
        check_trees(target, drafter.name, "choose another drafter")
    exit = _layers(drafter, target)
    reading = TargetCache(target, cache, sessions, Sublayers.of(range(exit)), exit=exit)
    seconds = _seconds(target, exit / target.n_layers) if pace.shape.weighs else None
    return ModelDrafting(reading, sessions, lambda: pace, seconds=seconds)


def _seconds(target: LM, share: float) -> StepSeconds:
    """The newest token and each level pass the first layers by themselves, all of them together those above."""
    whole, above = remembered(target), 1 - share
    return lambda context, nodes, depth: above * whole(1 + nodes, context) + (1 + depth) * share * whole(1, context)
