"""Kind 20: whatever the shape of a draft, the text is the target's. Node by node: tests/unit/test_hf.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from enroll import LOSSLESS, ONE_TEXT
from stubs import BranchLM, Watched, drawn_tree, stub, top_tree
from whole import Pair, base, run, say, transformers

from specdecode.sampling import Sampling
from specdecode.session import Session
from specdecode.tree import depths, path_to
from specdecode.types import EMPTY, Budget, Draft

SHAPES = {"chain": (-1, 0, 1, 2), "wide": (-1,) * 6, "ragged": (-1, -1, 0, 0, 2, 1, 4, 4)}


def shaped(pair: Pair, parents: tuple[int, ...]) -> Watched:
    """Every node holds the likeliest token of the small model that no earlier sibling holds."""

    def propose(row: int, turn: int, session: Session, budget: Budget) -> Draft:
        if budget.depth <= max(depths(parents)):
            return EMPTY
        tokens: list[int] = []
        for node, parent in enumerate(parents):
            prefix = (*session.tokens, *(tokens[i] for i in path_to(parents, parent)))
            rank = parents[:node].count(parent)
            tokens.append(int(pair.law(prefix, 0).topk(rank + 1).indices[rank]))
        return Draft(tuple(tokens), parents)

    return stub(propose)


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_shape_does_not_leak_into_the_text(shape: str, temperature: float) -> None:
    """Fault 112: a chain, a wide and a ragged tree on a transformer, greedily and with coupled noise."""
    pair, law = transformers(), Sampling(temperature=temperature, seed=2)
    drafter = shaped(pair, SHAPES[shape])
    assert say(pair.target, drafter, [10, 3, 5], sampling=law) == base(pair.target, [10, 3, 5], sampling=law)
    paths = {turn.verdict.path for turn in drafter.seen}
    assert max(map(len, paths)) == (1 if shape == "wide" else max(map(len, paths)))
    assert () in paths
    if shape != "chain":
        assert any(path != tuple(range(len(path))) for path in paths), "another branch than the first was taken"


MAKERS: dict[str, Callable[..., Watched]] = {
    "chosen": top_tree,
    "drawn": drawn_tree,
    "drawn with replacement": lambda law, widths: drawn_tree(law, widths, replacement=True),
}


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("widths", [(1,), (4,), (1,) * 4, (8,), (4,) * 4, (1,) * 70], ids=str)
def test_degenerate_sizes(widths: tuple[int, ...], maker: str, rule: str) -> None:
    """Fault 114: depth 1, width 1, wider than the vocabulary of 5, and trees that the budget of 64 nodes cuts."""
    target, law = BranchLM(5, 1), Sampling(temperature=0 if rule == "greedy" else 1, seed=4)
    n = 80 if len(widths) == 70 else 20
    drafter = MAKERS[maker](BranchLM(5, 2, scale=3).law if len(widths) < 70 else target.law, widths)
    (session,) = run(target, drafter, (1, 2, 3), n=n, rule=rule, sampling=law)
    assert len(session.new_tokens) == n
    if rule in ONE_TEXT:
        assert session.new_tokens == base(target, (1, 2, 3), n=n, sampling=law)
    assert max(record.nodes for record in session.records) <= 64
