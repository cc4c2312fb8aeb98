"""A small language model drafts, a chain (Leviathan et al. 2211.17192, algorithm 1; Chen et al. 2302.01318) or a tree.

It reads the session into a cache of its own and draws from its own law under the session's filters. It knows the size
of the target's vocabulary and nothing else of it; whether the two tokenizers agree is checked where the pair is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ..errors import BadOption, check_flag, shown
from ..models.lm import LM, Cache, check_trees
from ..session import Session
from ..types import Draft, Verdict
from . import Drafter, make_drafter
from .model_drafting import ModelDrafting, Pace, Steady, StepSeconds, check_confidence, remembered
from .reading import OwnCache
from .shapes import Chain, Dynamic, Shape, chain_length, chain_or_tree, shape_of

SCHEDULES = ("fixed", "assisted")
K = 5  # tokens of a chain


@dataclass(frozen=True)
class DraftLM:
    """lm:         the model that drafts, with the target's tokenizer.
    k:          tokens in a draft that is a chain; the first draft's length where the schedule moves it. None: 5.
    tree:       the shape of a draft that is a tree: a Shape, or what `shapes.make_shape` reads, such as "4x2x2",
                "dynamic:nodes=32", "optimal:nodes=16" or "mc_sim_7b_63". None: a chain.
    schedule:   "fixed", or "assisted": two more after a draft that was accepted whole, else one less (Gante, "Assisted
                Generation", 2023). For chains.
    confidence: end a path before a token whose law gives no token this much probability (Zhang et al. 2309.08168 and
                BiLD 2302.07863 stop like this); None never does.
    ahead:      a cheaper drafter, or its name: a cascade (CS Drafting, Chen et al. 2024, 2312.11462). It guesses what
                this model will draft, which reads the guesses along in one pass; the draft is the same as without it.
    replacement: whether siblings that are drawn are drawn with replacement, as the rule kseq wants them.
    Raises BadOption for options that are none, and for those that exclude each other.
    """

    lm: LM
    k: int | None = None
    tree: str | Shape | None = None
    schedule: str = "fixed"
    confidence: float | None = None
    replacement: bool = False
    ahead: str | Drafter | None = None

    name = "lm"

    def __post_init__(self) -> None:
        k = chain_length(self.name, self.k, self.tree, K)
        if self.schedule not in SCHEDULES:
            raise BadOption(f"drafter 'lm': schedule={self.schedule!r} is unknown; use {' or '.join(SCHEDULES)}")
        check_confidence(self.name, self.confidence)
        check_flag("drafter 'lm': replacement", self.replacement)
        if self.replacement and (self.tree is None or isinstance(shape_of(self.name, self.tree), Dynamic)):
            raise BadOption("drafter 'lm': replacement is for drawn siblings, which chains and dynamic trees have not")
        if self.tree is not None and (self.k is not None or self.schedule != "fixed"):
            raise BadOption("drafter 'lm': k and schedule are for chains, and a tree has its own depth; leave them out")
        _ahead_of(self.ahead)
        object.__setattr__(self, "k", k)

    @property
    def shape(self) -> Shape:
        return chain_or_tree(self.name, self.k, self.tree)

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> ModelDrafting:
        if not hasattr(self.lm, "score"):
            raise BadOption(
                f"drafter 'lm': lm is a {type(self.lm).__name__}; make the drafter with draft_model(model, target)"
            )
        for role, lm in (("target", target), ("draft model", self.lm)):
            if self.tree is not None:
                check_trees(lm, self.name, f"leave tree={shown(self.tree)} out", role=role)
        shape = self.shape
        pace: Callable[[], Pace] = partial(Steady, shape, self.confidence)
        if self.schedule == "assisted" and isinstance(shape, Chain):
            pace = partial(Assisted, shape.k, self.confidence)
        reading, ahead = OwnCache(self.lm, sessions), _ahead_of(self.ahead)
        return ModelDrafting(
            reading,
            sessions,
            pace,
            replacement=self.replacement,
            seconds=self._seconds(target) if shape.weighs else None,
            ahead=None if ahead is None else ahead.begin(sessions, self.lm, cache),
        )

    def _seconds(self, target: LM) -> StepSeconds:
        whole, small = remembered(target), remembered(self.lm)
        return lambda context, nodes, depth: whole(1 + nodes, context) + depth * small(1, context)


def _ahead_of(option: object) -> Drafter | None:
    """Raises BadOption for what is no drafter, or one that lives in the passes of the model it drafts for."""
    ahead = make_drafter(option) if isinstance(option, str) else option
    if ahead is None:
        return None
    if isinstance(ahead, type) or not isinstance(ahead, Drafter):
        raise BadOption(f"drafter 'lm': ahead={shown(option)} is no drafter; make one with make_drafter")
    if not (getattr(ahead, "model_free", False) or hasattr(ahead, "lm")):
        raise BadOption(
            f"drafter 'lm': {ahead.name!r} cannot draft for a draft model; give ahead='ngram', or another 'lm'"
        )
    return ahead


class Assisted:
    """Chains of two tokens more after one that was accepted whole, else of one less."""

    keeps_last = False

    def __init__(self, k: int, confidence: float | None) -> None:
        self._k, self.confidence = k, confidence

    @property
    def shape(self) -> Shape:
        return Chain(self._k)

    def see(self, draft: Draft, verdict: Verdict) -> None:
        self._k = self._k + 2 if verdict.accepted == len(draft) else max(1, self._k - 1)
