"""What the target said at the nodes of a step, as tokens to draft later: for drafters whose own nodes are their source.

Knows sessions and drafts, and no drafter's ways.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..sampling import Stream
from ..session import Session
from ..types import Draft


def predict(session: Session, row: Tensor, prefix: Sequence[int]) -> int:
    """The token that follows `prefix` by the target's raw logits `row` [V] there, under the session's filters.

    Where the noise of a position is fixed (sampling.Keyed) it is the very token that plain decoding would draw after
    this prefix; greedily too. The numbers of a Stream belong to the rule, so there it is the likeliest token."""
    law = session.filters.apply(row, prefix)
    if isinstance(session.noise, Stream):
        return int(law.max(0).indices)
    return session.noise.draw(law, len(prefix))


def rows_by_path(draft: Draft) -> dict[tuple[int, ...], int]:
    """Each path of tokens in a step's draft -> the row of the scores that decides what follows it; () is the newest
    token. So a drafter finds its own nodes whatever was cut from its draft or united with it."""
    paths: list[tuple[int, ...]] = [()]
    rows: dict[tuple[int, ...], int] = {(): 0}
    for node, (token, parent) in enumerate(zip(draft.tokens, draft.parents, strict=True)):
        path = (*paths[parent + 1], -1 if node in draft.embeds else token)
        paths.append(path)
        rows.setdefault(path, node + 1)
    return rows
