"""The sampled law where drafts of several origins stand in one tree: the joint law of three tokens against exact
enumeration, under rejection, which is the rule that could be led astray by what is kept of a draft.

The drafter auto decodes its first token plainly, so three tokens are looked at.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import product

import pytest
import torch
from stubs import BranchLM, Slow, drawn_tree, make_session, stub, top_tree
from stubs.clocks import Clock

from specdecode.drafters import Drafter
from specdecode.drafters.auto import Auto
from specdecode.drafters.lm import DraftLM
from specdecode.drafters.merged import Merged
from specdecode.drafters.ngram import Ngram
from specdecode.engine import Generation
from specdecode.sampling import Sampling
from specdecode.session import Session
from specdecode.types import EMPTY, Budget, Draft
from specdecode.verify import make_rule

V, TOKENS, BATCH = 3, 3, 100
PROMPT = (1, 2, 0, 1, 2)
TARGET, SMALL, OTHER = BranchLM(V, seed=1), BranchLM(V, seed=2), BranchLM(V, seed=3)
# 27 cells: the expected total variation is about .05 at 1,500 draws and .0097 at 40,000; bounds are beyond 4.5 sigma.
FAST, WHOLE = (1_500, 0.085), (40_000, 0.016)


@cache
def exact() -> torch.Tensor:
    """[V, V, V]"""
    law = torch.zeros((V,) * TOKENS)
    for tokens in product(range(V), repeat=TOKENS):
        p = 1.0
        for i, token in enumerate(tokens):
            p *= float(TARGET.law((*PROMPT, *tokens[:i]), i).softmax(-1)[token])
        law[tokens] = p
    return law


def found(drafter: Drafter, draws: int) -> tuple[float, Counter[int]]:
    """The total variation from the exact law, and how often so many drafted tokens were accepted in a step."""
    texts: Counter[tuple[int, ...]] = Counter()
    accepted: Counter[int] = Counter()
    for start in range(0, draws, BATCH):
        sessions = [
            make_session(TARGET, PROMPT, Sampling(temperature=1.0, seed=start + i), "rejection", max_new_tokens=5)
            for i in range(BATCH)
        ]
        generation = Generation(TARGET, drafter, sessions, [make_rule("rejection")] * BATCH)
        while any(len(sessions[row].new_tokens) < TOKENS for row in generation.active):
            generation.step()
        texts.update(tuple(session.new_tokens[:TOKENS]) for session in sessions)
        accepted.update(record.accepted for session in sessions for record in session.records)
        for lm in (TARGET, SMALL, OTHER):
            lm.forget()
    law = torch.zeros((V,) * TOKENS)
    for text, count in texts.items():
        law[text] = count / draws
    return float((law - exact()).abs().sum() / 2), accepted


def cheap(rows: int, context: float) -> float:
    return 1 + 0.001 * rows


LOOKUP = Ngram(min_match=1)
MODEL = DraftLM(SMALL, k=3)
COMBINED: dict[str, Drafter] = {
    "a draft model and lookups": Merged((LOOKUP, MODEL)),
    "two draft models": Merged((MODEL, DraftLM(OTHER, k=2))),
    "drawn siblings and chosen ones": Merged(
        (top_tree(OTHER.law, (2, 1)).drafter, drawn_tree(SMALL.law, (2, 2)).drafter)
    ),
    "siblings with replacement, a model and lookups": Merged(
        (LOOKUP, drawn_tree(OTHER.law, (2, 1), replacement=True).drafter, MODEL)
    ),
    "united, and left out": Merged(
        (drawn_tree(OTHER.law, (2, 1), replacement=True).drafter, Merged((MODEL, drawn_tree(SMALL.law, (2,)).drafter)))
    ),
    "auto: lookups and a model": Auto((LOOKUP, MODEL), curve=cheap),
    "auto: all kinds": Auto(
        (LOOKUP, MODEL, drawn_tree(OTHER.law, (2, 2)).drafter, top_tree(OTHER.law, (2, 1)).drafter), curve=cheap
    ),
    "auto: lookups and what is united already": Auto((LOOKUP, Merged((MODEL, LOOKUP))), curve=cheap),
    "auto: a model that costs too much to go deep": Auto((Slow(MODEL, Clock(), 0.0), LOOKUP), curve=cheap),
}


def check(drafter: Drafter, draws: int, bound: float) -> None:
    distance, accepted = found(drafter, draws)
    assert distance < bound, f"total variation {distance:.4f}"
    assert sum(accepted[n] for n in accepted if n > 0) > draws / 5, "drafts must be at work for this to mean anything"


@pytest.mark.parametrize(
    "name",
    [
        "siblings with replacement, a model and lookups",
        "auto: all kinds",
        "auto: lookups and what is united already",
        "united, and left out",
    ],
)
def test_joint_law_quick(name: str) -> None:
    check(COMBINED[name], *FAST)


@pytest.mark.slow
@pytest.mark.parametrize("drafter", COMBINED.values(), ids=COMBINED)
def test_joint_law(drafter: Drafter) -> None:
    check(drafter, *WHOLE)


def draw(session: Session, law: BranchLM = SMALL) -> tuple[int, torch.Tensor]:
    q = session.filters.apply(law.law(tuple(session.tokens), 0), session.tokens)
    return session.noise.draw(q, len(session.tokens)), q


def drops_the_drawn_one(row: int, turn: int, session: Session, budget: Budget) -> Draft:
    """Of a drawn node and a chosen one with its token the chosen one is kept."""
    if budget.depth < 1:
        return EMPTY
    (token, q), chosen = draw(session), int(SMALL.law(tuple(session.tokens), 0).argmax())
    if token == chosen:
        return Draft.chain([chosen])
    return Draft((token, chosen), (-1, -1), q=(q, None))


def keeps_the_likely_ones(row: int, turn: int, session: Session, budget: Budget) -> Draft:
    """A drawn node is drafted only where it is likely."""
    if budget.depth < 1:
        return EMPTY
    token, q = draw(session)
    return Draft.chain([token], [q]) if q[token] == q.max() else EMPTY


@pytest.mark.parametrize("propose", [drops_the_drawn_one, keeps_the_likely_ones])
def test_a_drawn_node_that_is_kept_for_its_token_fails_the_same_check(propose: object) -> None:
    """Negative control: the two mistakes that a combination of drafts could make."""
    draws, bound = FAST
    distance, _ = found(stub(propose).drafter, draws)  # type: ignore[arg-type]
    assert distance > 1.2 * bound, f"total variation {distance:.4f} must show the fault"
