"""The target drafts for itself with parts of its layers left out (Draft & Verify, Zhang et al. 2024, 2309.08168).

Draft passes read the target's own keys and values, so a draft needs no prompt of its own and no memory. Which parts are
left out is `skip_sets`' business.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ..errors import BadOption, Incompatible, check_flag, shown
from ..models.lm import LM, Cache, check_trees
from ..session import Session
from ..types import Draft, Sublayers, Verdict
from . import skip_sets
from .model_drafting import ModelDrafting, Pace, Steady, StepSeconds, check_confidence, remembered
from .reading import TargetCache
from .shapes import Chain, Shape, chain_length, chain_or_tree
from .skip_sets import TUNED, SkipSet

K = 8  # tokens of a chain, the paper's repository has the same


@dataclass(frozen=True)
class LayerSkip:
    """skip:      what is left out: a set such as "a3-9+a12+m4" (attention of layers 3 to 9 and 12, feed-forward part of
               layer 4), or the name of one that `specdecode tune layer-skip` found for this model. None: the one named
               "tuned", if there is one, else attention of every other layer of the middle half.
    k:         the most tokens of a chain; None: 8.
    confidence: a token drafted from a law that gives none this much probability is the last of its path; with None
               there is no such limit.
    adaptive:  move that limit so that nine of ten drafted tokens are accepted; see Threshold. None: where there is one,
               and chains are drafted, which alone can have it.
    tree:      a shape instead of a chain, as the drafter "lm" has it.
    Raises BadOption for what is none of these, Incompatible where the model's layers cannot be run in part."""

    skip: str | None = None
    k: int | None = None
    confidence: float | None = 0.8
    adaptive: bool | None = None
    tree: str | Shape | None = None

    name = "layer_skip"

    def __post_init__(self) -> None:
        k = chain_length(self.name, self.k, self.tree, K)
        check_confidence(self.name, self.confidence)
        if self.skip is not None and not isinstance(self.skip, str):
            raise BadOption(f"drafter 'layer_skip': skip={shown(self.skip)} is no text; give one such as 'a3-9+m4'")
        if self.adaptive is not None:
            check_flag("drafter 'layer_skip': adaptive", self.adaptive)
        if self.adaptive and self.confidence is None:
            raise BadOption("drafter 'layer_skip': adaptive moves the confidence, of which there is none; give one")
        if self.tree is not None and (self.k is not None or self.adaptive):
            raise BadOption("drafter 'layer_skip': k and adaptive are for chains, not for trees; leave them out")
        object.__setattr__(self, "k", k)
        if self.tree is None:
            object.__setattr__(self, "adaptive", self.adaptive is not False and self.confidence is not None)

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> ModelDrafting:
        if not target.capabilities.sublayers:
            raise Incompatible("drafter 'layer_skip': this model's layers have no parts to skip; choose another")
        shape = chain_or_tree(self.name, self.k, self.tree)
        if self.tree is not None:
            check_trees(target, self.name, f"leave tree={self.tree} out")
        pace: Callable[[], Pace] = partial(Steady, shape, self.confidence, keeps_last=True)
        if self.adaptive and self.confidence is not None and isinstance(shape, Chain):
            pace = partial(Threshold, shape, self.confidence)
        reading = TargetCache(target, cache, sessions, self.runs(target))
        seconds = self._seconds(target) if shape.weighs else None
        return ModelDrafting(reading, sessions, pace, seconds=seconds)

    def runs(self, target: LM) -> Sublayers:
        """The parts of the target that draft."""
        if self.skip is None:
            skip = skip_sets.load(TUNED, target.signature) or SkipSet.every_other(target.n_layers)
        else:
            known = SkipSet.parse(self.skip) or skip_sets.load(self.skip, target.signature)
            if known is None:
                raise BadOption(
                    f"drafter 'layer_skip': no skip set called {self.skip!r} was found for this model; give one such "
                    "as a3-9+m4, or run: specdecode tune layer-skip"
                )
            skip = known
        return skip.rest(target.n_layers)

    def share(self, target: LM) -> float:
        """Of a pass: see Drafter."""
        run = self.runs(target)
        return (len(run.attention) + len(run.feed_forward)) / (2 * target.n_layers)

    def _seconds(self, target: LM) -> StepSeconds:
        whole, share = remembered(target), self.share(target)
        return lambda context, nodes, depth: whole(1 + nodes, context) + depth * share * whole(1, context)


class Threshold:
    """The confidence at which a chain ends, moved after each step as the paper's repository does: with m of n drafted
    tokens accepted, rate := rate / 2 + m / 2n; the threshold goes a tenth of the way to itself + 0.01 where the rate is
    below 0.9, and to itself - 0.01 where it is not and the chain ended before its greatest length."""

    keeps_last = True

    def __init__(self, shape: Chain, confidence: float) -> None:
        self.shape, self.confidence = shape, confidence
        self._rate = 0.0

    def see(self, draft: Draft, verdict: Verdict) -> None:
        drafted = len(draft)
        self._rate = 0.5 * self._rate + 0.5 * min(verdict.accepted, drafted) / drafted
        goal = self.confidence
        if self._rate < 0.9:
            goal += 0.01
        elif drafted < self.shape.k:
            goal -= 0.01
        self.confidence = 0.9 * self.confidence + 0.1 * goal
