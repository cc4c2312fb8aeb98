"""The frozen values that cross package boundaries: Prompt, Budget, Draft, Row, Sublayers, Scores, Verdict,
TokenLogprob.

They hold data and small derivations, and know no model, rule or text. Shape alphabet: B batch, T time, n draft nodes,
V vocabulary, D hidden, L layers, S key/value slots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Prompt:
    """What a model is asked to continue. Token ids today; other inputs (an encoder's text, images) will be added as
    fields, so code passes the Prompt on: a session starts from its ids, and the rest only `models/` reads."""

    ids: tuple[int, ...]


@dataclass(frozen=True)
class Budget:
    """The most a drafter may propose in one step: `depth` tokens on any path, `nodes` in the whole tree."""

    depth: int
    nodes: int = 64

    @property
    def longest(self) -> int:
        """The tokens of the longest chain within it; 0 where nothing is to be drafted."""
        return max(0, min(self.depth, self.nodes))


@dataclass(frozen=True, eq=False)
class Draft:
    """A tree of n proposed tokens that hangs on the newest committed token.

    tokens:    [n] ids. A probe that has its own embedding may hold any valid id.
    parents:   [n] index of each node's parent; -1 is the newest committed token. A parent comes before its children.
    candidate: [n] True where the node may be accepted; False marks a probe, which rides along to be read by the
               drafter.
    q:         [n] the law each node was drawn from, [V] logits up to a constant, after the session's filters; None
               entries are point masses (the node was chosen, not drawn). Siblings drawn from one law share one tensor's
               memory (views of it count, copies do not).
    embeds:    {node: [D]} input embeddings of probes that are no vocabulary token.
    replacement: whether drawn siblings were drawn with replacement (they may then repeat a token).
    hidden:     [n + 1, D] the states of the newest token and of each node as they enter layer `entry`, where the layers
                below have been run for them, in this order, behind the target's own prefix. The scoring pass resumes
                there.
    confidence: [n] the drafter's own estimate of the chance that each node is accepted once its parent is; None where
               it has none. Nodes of like confidence are learned together, others by depth.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    candidate: tuple[bool, ...] | None = None
    q: tuple[Tensor | None, ...] | None = None
    embeds: dict[int, Tensor] = field(default_factory=dict)
    replacement: bool = False
    confidence: tuple[float, ...] | None = None
    hidden: Tensor | None = None
    entry: int = 0

    def __post_init__(self) -> None:
        n = len(self.tokens)
        assert len(self.parents) == n, f"{n} tokens but {len(self.parents)} parents"
        chain = self.parents == tuple(range(-1, n - 1))  # the usual shape, told at once
        assert chain or all(-1 <= p < i for i, p in enumerate(self.parents)), f"parents come first: {self.parents}"
        assert self.candidate is None or len(self.candidate) == n, "one candidate flag a node"
        assert self.q is None or len(self.q) == n, "one law a node"
        assert self.confidence is None or len(self.confidence) == n, "one confidence a node"
        assert self.hidden is None or len(self.hidden) == n + 1, "a state of the newest token, and one a node"
        assert (self.hidden is None) == (self.entry == 0), "states enter a layer above the first, or the head"

    @classmethod
    def chain(
        cls,
        tokens: Sequence[int],
        q: Sequence[Tensor | None] | None = None,
        confidence: tuple[float, ...] | None = None,
    ) -> Draft:
        """A draft without branches: each token hangs on the one before it."""
        parents = tuple(range(-1, len(tokens) - 1))
        return cls(tuple(tokens), parents, q=None if q is None else tuple(q), confidence=confidence)

    def __len__(self) -> int:
        return len(self.tokens)

    def law(self, node: int) -> Tensor | None:
        """[V] logits of the law `node` was drawn from, None for a point mass."""
        return None if self.q is None else self.q[node]

    @property
    def is_chosen(self) -> bool:
        """Whether every node is a candidate that was chosen and not drawn: such a draft may be cut at will."""
        if self.q is None and self.candidate is None:
            return True
        laws = self.q or ()
        return all(law is None for law in laws) and all(self.candidate or ())

    def is_candidate(self, node: int) -> bool:
        return self.candidate is None or self.candidate[node]


@dataclass(frozen=True, eq=False)
class Row:
    """One session's share of a target pass: new nodes behind a committed prefix.

    index:   the session's row in the cache.
    tokens:  [m] ids of the nodes to run.
    parents: [m] the parent of each node, counted over all uncommitted nodes of this row, the `start` earlier ones
             first; -1 is the committed prefix. The usual row is the newest committed token (node 0, parent -1) and
             its draft.
    start:   how many uncommitted nodes of this row were run before and still stand behind the committed prefix.
    embeds:  {i: [D]} input embeddings that replace those of tokens[i].
    hidden:  [m, D] hidden states with which the nodes enter the first of the layers to run, instead of embeddings.
    """

    index: int
    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    start: int = 0
    embeds: dict[int, Tensor] = field(default_factory=dict)
    hidden: Tensor | None = None

    @classmethod
    def chain(cls, index: int, tokens: Sequence[int], start: int = 0) -> Row:
        """The row of `tokens` one after another, behind `start` uncommitted ones."""
        return cls(index, tuple(tokens), tuple(range(start - 1, start + len(tokens) - 1)), start=start)

    @classmethod
    def of(cls, index: int, newest: int, draft: Draft) -> Row:
        """The row of a step: the newest committed token followed by its draft tree."""
        return cls(
            index,
            (newest, *draft.tokens),
            (-1, *(p + 1 for p in draft.parents)),
            embeds={node + 1: e for node, e in draft.embeds.items()},
            hidden=draft.hidden,
        )


@dataclass(frozen=True)
class Sublayers:
    """Which parts of a decoder stack a pass runs: indices of layers, ascending. A part that is left out hands on what
    it was given (Draft & Verify, Zhang et al. 2024, 2309.08168, skips attention and feed-forward parts one by one)."""

    attention: tuple[int, ...]
    feed_forward: tuple[int, ...]

    @classmethod
    def of(cls, layers: Sequence[int] | Sublayers) -> Sublayers:
        """Both parts of whole layers."""
        return layers if isinstance(layers, Sublayers) else cls(tuple(layers), tuple(layers))

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers of which anything is run."""
        return tuple(sorted({*self.attention, *self.feed_forward}))


@dataclass(frozen=True, eq=False)
class Scores:
    """What the target said about one Row: `logits` [m, V] raw, one line a node in the row's order (empty when they were
    not asked for), and `taps` {layer: [m, D]} hidden states that left the given layers."""

    logits: Tensor
    taps: dict[int, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What one step emits for one session.

    tokens:   the accepted draft tokens, then one token drawn from the target (correction or bonus). Never empty.
    path:     draft nodes of tokens[:-1], root to leaf: those whose keys and values are kept.
    accepted: how many of `tokens` had been drafted. len(path), or one more when the cut fell on a drafted token.
    nats:     what each of `tokens` cost under a relaxed rule (verify/relaxed.py says in what); empty: nothing.
    """

    tokens: tuple[int, ...]
    path: tuple[int, ...]
    accepted: int
    nats: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.path) == len(self.tokens) - 1, f"{self.tokens} does not fit path {self.path}"
        assert len(self.nats) in (0, len(self.tokens)), f"{self.nats} are not the costs of {self.tokens}"

    @property
    def nodes(self) -> tuple[int, ...]:
        """The nodes of the step's Row that are kept: the newest token's, then those of `path`."""
        return (0, *(node + 1 for node in self.path))

    @classmethod
    def of(cls, draft: Draft, path: Sequence[int], next_token: int, nats: Sequence[float] = ()) -> Verdict:
        """nats: what each token of `path` cost; the next token costs nothing."""
        costs = (*nats, 0.0) if any(nats) else ()
        return cls((*(draft.tokens[i] for i in path), next_token), tuple(path), len(path), costs)

    def clip(self, n: int) -> Verdict:
        """The verdict cut to its first `n` >= 1 tokens; the last of them becomes the newest, unscored token."""
        if n >= len(self.tokens):
            return self
        return Verdict(self.tokens[:n], self.path[: n - 1], min(self.accepted, n), self.nats[:n])


@dataclass(frozen=True)
class TokenLogprob:
    """The target's raw log-probability of an emitted token, before filters, and its `top` alternatives {id:
    logprob}."""

    token: int
    logprob: float
    top: dict[int, float]


EMPTY = Draft()
