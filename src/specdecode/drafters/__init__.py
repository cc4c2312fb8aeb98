"""Drafters: where proposed tokens come from. They know sessions and models, and no verification rule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from ..models.lm import LM, Cache
from ..registry import Method, Table
from ..session import Session
from ..types import Budget, Draft, Scores, Verdict


class Drafting(Protocol):
    """A drafter at work on one batch of sessions. All state of a generation lives here and ends with it."""

    taps: tuple[int, ...]  # target layers whose hidden states `observe` wants to see

    def draft(self, rows: Sequence[int], budgets: Sequence[Budget]) -> list[Draft]:
        """A draft for each of `rows` (indices into the batch), within its budget; an empty one where there is nothing
        worth proposing. A budget of depth 0 means an empty draft."""
        ...

    def observe(self, row: int, draft: Draft, verdict: Verdict, scores: Scores) -> None:
        """Told after each step, when session.tokens already holds verdict.tokens. scores: the target's raw view of the
        step (row 0 the previous newest token, row i + 1 draft node i)."""
        ...

    def release(self, row: int) -> None:
        """The session of `row` has ended."""
        ...


@runtime_checkable
class Drafter(Protocol):
    """A way of drafting, with its options. Immutable: one drafter serves any number of generations at once.

    For `auto`, a drafter may have one of three more attributes: `model_free`, True where drafting runs no model, so
    that it is asked at every step; `lm`, the model that it runs once for each token of depth, whose cost is measured;
    or `share(target)`, the part of a target's pass that it takes for each token of depth.
    One that holds text has `check_tokenizer(fingerprint)`, which raises Incompatible where ids mean something else."""

    name: str

    def begin(self, sessions: Sequence[Session], target: LM, cache: Cache) -> Drafting:
        """Start on sessions whose prompts are in session.tokens. `cache` is the target's own, still empty.
        Raises Incompatible when this drafter cannot serve this target."""
        ...


DRAFTERS = Table(
    "drafter",
    __name__,
    (
        Method(
            "null",
            "plain decoding: no drafts",
            lossless=True,
            needs_training=False,
            source="",
            factory="null:Null",
        ),
        Method(
            "ngram",
            "prompt lookup: what followed the longest earlier match of the newest tokens",
            lossless=True,
            needs_training=False,
            source="Saxena, Prompt Lookup Decoding (2023)",
            factory="ngram:Ngram",
        ),
        Method(
            "suffix",
            "what followed the longest earlier match, in the session and in earlier answers, as a tree by frequency",
            lossless=True,
            needs_training=False,
            source="SAM Decoding (2411.10666); SuffixDecoding (2411.04975)",
            factory="suffix:Suffix",
        ),
        Method(
            "rest",
            "what followed the newest tokens in a datastore of texts, as a tree by frequency",
            lossless=True,
            needs_training=False,
            source="REST, He et al. 2023 (2311.08252)",
            factory="rest:Rest",
            needs="store",
        ),
        Method(
            "lm",
            "a small model of the same tokenizer drafts a chain or a tree",
            lossless=True,
            needs_training=False,
            source="Leviathan et al. 2023 (2211.17192); Chen et al. 2023 (2302.01318); Gante 2023, Assisted Generation",
            factory="lm:DraftLM",
            needs="lm",
        ),
        Method(
            "layer_skip",
            "the model drafts for itself with parts of its layers left out",
            lossless=True,
            needs_training=False,
            source="Draft & Verify, Zhang et al. 2024 (2309.08168)",
            factory="layer_skip:LayerSkip",
        ),
        Method(
            "early_exit",
            "the model's first layers draft, and scoring resumes where they left off",
            lossless=True,
            needs_training=False,
            source="LayerSkip, Elhoushi et al. 2024 (2404.16710)",
            factory="early_exit:EarlyExit",
        ),
        Method(
            "ppd",
            "the likeliest guesses of an intermediate layer start the next position early",
            lossless=True,
            needs_training=False,
            source="Predictive Pipelined Decoding, Yang et al. 2024 (2307.05908)",
            factory="early_exit:PPD",
        ),
        Method(
            "jacobi",
            "the model's guesses at the next tokens, all refined in each pass",
            lossless=True,
            needs_training=False,
            source="Santilli et al. 2023 (2305.10427)",
            factory="jacobi:Jacobi",
        ),
        Method(
            "lookahead",
            "n-grams that the model writes beside the text, in the passes that check earlier ones",
            lossless=True,
            needs_training=False,
            source="Lookahead Decoding, Fu et al. 2024 (2402.02057)",
            factory="lookahead:Lookahead",
        ),
        Method(
            "merged",
            "the drafts of several drafters as one tree",
            lossless=True,
            needs_training=False,
            source="SpecInfer (2305.09781) section 3 merges token trees",
            factory="merged:Merged",
            needs="sources",
        ),
        Method(
            "forced",
            "what a grammar leaves no choice about; the others draft it too where there is a grammar",
            lossless=True,
            needs_training=False,
            source="Zheng et al. 2023, SGLang (2312.07104): jump-forward decoding, here verified",
            factory="forced:Forced",
        ),
        Method(
            "auto",
            "at each step as much of what the others offer as pays here: never slower than plain decoding",
            lossless=True,
            needs_training=False,
            source="costs and acceptance measured while decoding; the fractional programme of Dinkelbach 1967",
            factory="auto:Auto",
        ),
    ),
)
DEFAULT = "auto"


def parts(drafter: Drafter) -> Iterator[Drafter]:
    """The drafter and those that it is made of."""
    yield drafter
    for value in vars(drafter).values():
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, Drafter):
                yield from parts(part)


def make_drafter(name: str, **options: object) -> Drafter:
    """The drafter called `name`. Raises BadOption for a name that is not in DRAFTERS, for an option that the drafter
    has not, and for one that it needs and was not given."""
    drafter: Drafter = DRAFTERS.make(name, options)
    return drafter
