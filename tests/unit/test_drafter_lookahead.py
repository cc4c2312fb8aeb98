"""Lookahead decoding: what the window writes, and what a draft is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from stubs import BranchLM, ScriptLM, StubLM, Watched, decode, make_session, plain, primed

from specdecode.drafters import make_drafter
from specdecode.drafters.lookahead import Lookahead, Looking
from specdecode.drafters.ngram import Ngram
from specdecode.drafters.prediction import rows_by_path
from specdecode.engine import Generation
from specdecode.errors import BadOption, Incompatible
from specdecode.models.lm import Capabilities
from specdecode.sampling import Sampling
from specdecode.session import Session
from specdecode.tree import depths
from specdecode.types import Budget, Draft, Row, Scores, Verdict
from specdecode.verify import make_rule

V = 40
PROMPT = tuple(range(10, 22))
WIDE = Budget(50)
SEEDED = Sampling(temperature=0.8, top_k=8, seed=11)


def begin(drafter: Lookahead, prompt: Sequence[int] = PROMPT, rule: str = "greedy") -> tuple[Session, Looking]:
    target = ScriptLM([], V)
    session = make_session(target, prompt, SEEDED if rule != "greedy" else None, rule, max_new_tokens=999)
    return session, drafter.begin([session], target, target.open([]))


def draft_of(looking: Looking, budget: Budget = WIDE) -> Draft:
    return looking.draft([0], [budget])[0]


def step(target: StubLM, session: Session, looking: Looking, tokens: Sequence[int]) -> tuple[Draft, Scores]:
    """One pass over the next draft, of which nothing is accepted but that these `tokens` come next."""
    draft = draft_of(looking)
    (scores,) = target.score(primed(target, session.tokens), [Row.of(0, session.newest, draft)])
    session.tokens.extend(tokens)
    looking.observe(0, draft, Verdict(tuple(tokens), (0,) * (len(tokens) - 1), 0), scores)
    return draft, scores


def pooled(looking: Looking) -> set[tuple[int, ...]]:
    return {(key, *tail) for key in range(V) for tail in looking._pools[0].tails(key)}


# What the window writes.


def bigram(prefix: tuple[int, ...], _: int) -> torch.Tensor:
    return 10 * torch.eye(V)[(prefix[-1] * 7 + 3) % V]


def test_columns_become_what_the_target_says_after_their_first_token() -> None:
    """With a target that reads one token alone, after N - 1 passes n-grams are runs of its own text; but for those of
    column 0, whose first token is always the newest."""
    target = StubLM(bigram, V)
    session, looking = begin(Lookahead(text=False))
    for _ in range(3):
        step(target, session, looking, [0])
    early = pooled(looking)
    for _ in range(6):
        step(target, session, looking, [0])
    late = {ngram for ngram in pooled(looking) - early if ngram[0] != 0}
    assert len(late) >= 5
    for first, *rest in late:
        for token in rest:
            assert token == (first * 7 + 3) % V
            first = token


@pytest.mark.parametrize("rule", ["greedy", "coupled", "rejection"])
def test_a_column_goes_on_as_the_target_would_behind_its_path(rule: str) -> None:
    """The token at each end is the target's after the text, level 0 as far as the column, and the column itself, under
    the session's filters; drawn where the noise of a position is fixed, the likeliest elsewhere."""
    target = BranchLM(V, seed=4)
    session, looking = begin(Lookahead(window=4, level=4, text=False), rule=rule)
    for tokens in ([3], [5, 6], [7], [8, 9, 3]):
        before, window = list(session.tokens), looking._windows[0]
        known, paths, firsts = pooled(looking), window.paths(), [session.newest, *(c[0] for c in window._columns[1:])]
        step(target, session, looking, tokens)
        for i, path in enumerate(paths):
            assert path[:i] == tuple(firsts[1 : i + 1]), "level 0 up to the column"
            prefix = [*before, *path]
            law = session.filters.apply(target.law(tuple(prefix), 0), prefix)
            end = int(law.argmax()) if rule == "rejection" else session.noise.draw(law, len(prefix))
            ngram = (firsts[i], *path[i:], end)
            assert len(ngram) == 4
            assert ngram in pooled(looking)
        assert len(pooled(looking) - known) <= 4


def test_the_window_moves_with_the_text() -> None:
    """A column that stood at i stands at i + 1 - m after a step of m tokens, with the token it was given; fresh ones,
    stretches of the prompt, come in at the end."""
    session, looking = begin(Lookahead(text=False))
    window = looking._windows[0]
    before = [list(column) for column in window._columns]
    ngrams = window.advance(session.newest, [1, 2, 3, 0, 5], 3)
    assert window._columns[:3] == [[*column[1:], end] for column, end in zip(before[2:], (3, 0, 5), strict=True)]
    assert ngrams[1:] == [(*column, end) for column, end in zip(before[1:], (2, 3, 0, 5), strict=True)]
    assert len(window._columns) == 5
    twice = PROMPT * 2
    for column in window._columns[3:]:
        assert tuple(column) in {twice[i : i + 4] for i in range(len(PROMPT))}
    window.advance(session.newest, [None] * 5, 9)
    assert len(window._columns) == 5, "all are fresh"


def test_a_column_that_was_not_scored_stays() -> None:
    session, looking = begin(Lookahead(text=False))
    before = looking._windows[0].paths()
    draft_of(looking)
    session.tokens.append(3)
    looking.observe(0, Draft(), Verdict((3,), (), 0), Scores(torch.eye(V)[:1]))
    assert looking._windows[0].paths() == before
    assert pooled(looking) == set()


# What a draft is made of.


def test_the_window_is_probes_in_a_tree() -> None:
    """W - 1 tokens of level 0, one after another, and on each of them, and on the newest token, a column's N - 2 other
    tokens: level j of column i is i + j deep."""
    _, looking = begin(Lookahead(window=4, level=4, text=False), prompt=range(25))
    draft, paths = draft_of(looking), looking._windows[0].paths()
    assert len(draft) == 3 + 4 * 2
    assert not any(draft.is_candidate(node) for node in range(len(draft)))
    assert [len(path) for path in paths] == [2, 3, 4, 5]
    depth = depths(draft.parents)
    assert [depth[rows_by_path(draft)[path] - 1] + 1 for path in paths] == [2, 3, 4, 5]


def test_probes_are_never_accepted() -> None:
    """Though the target say what they say."""
    _, looking = begin(Lookahead(text=False))
    path = looking._windows[0].paths()[0]
    (session,) = decode(ScriptLM(path, V), Watched(Lookahead(text=False)), PROMPT, n=20)
    first = session.records[0]
    assert session.new_tokens[:3] == list(path)
    assert (first.nodes, first.accepted, first.emitted) == (0, 0, 1)
    assert first.probes > 10


def test_a_pass_is_both_branches() -> None:
    """Candidates and probes share what they agree on, and that is a candidate."""
    session, looking = begin(Lookahead(window=2, level=3, guesses=3, text=False))
    paths = looking._windows[0].paths()
    for tail in ((1, 2), (1, 3), (paths[0][0], 5)):
        looking._pools[0].add((session.newest, *tail))
    draft = draft_of(looking)
    found = {path: draft.is_candidate(row - 1) for path, row in rows_by_path(draft).items() if row}
    candidates = {(1,), (1, 2), (1, 3), paths[0], (*paths[0], 5)}
    assert {path for path, candidate in found.items() if candidate} == candidates
    assert set(found) == candidates | {paths[1][:1], paths[1]}
    assert len(draft) == len(found), "no path is twice"


def test_the_last_seen_is_tried_first() -> None:
    session, looking = begin(Lookahead(window=1, level=2, text=False))
    for token in (1, 2, 1, 3):
        looking._pools[0].add((session.newest, token))
    assert draft_of(looking).tokens == (3, 1, 2)


@pytest.mark.parametrize("depth", range(9))
@pytest.mark.parametrize("nodes", [0, 1, 4, 9, 13, 64])
def test_budgets(depth: int, nodes: int) -> None:
    """Candidates come first and are cut, columns are drafted to their ends or not at all."""
    session, looking = begin(Lookahead(text=False), prompt=range(25))
    for tail in ((1, 2, 3, 4), (5, 6, 7, 8)):
        looking._pools[0].add((session.newest, *tail))
    draft = draft_of(looking, Budget(depth, nodes))
    assert len(draft) <= nodes
    assert max(depths(draft.parents), default=-1) < max(depth, 0)
    candidates = sum(draft.is_candidate(node) for node in range(len(draft)))
    assert candidates == min(nodes, 2 * min(depth, 4))
    ends = {rows_by_path(draft).get(path) for path in looking._windows[0].paths()} - {None}
    parents = set(draft.parents)
    leaves = {node + 1 for node in range(candidates, len(draft)) if node not in parents}
    assert leaves <= ends


def test_a_column_needs_no_room_for_what_it_shares() -> None:
    session, looking = begin(Lookahead(window=1, text=False))
    (path,) = looking._windows[0].paths()
    looking._pools[0].add((session.newest, *path[:2], 1, 2))
    assert len(draft_of(looking, Budget(9, nodes=5))) == 5, "four of the candidate, one more to the end of the column"
    assert len(draft_of(looking, Budget(9, nodes=4))) == 4


def test_the_pool_takes_the_text() -> None:
    """The prompt's n-grams at once, those of the output as they come; not where it is told not to."""
    session, looking = begin(Lookahead(level=3))
    assert pooled(looking) == {PROMPT[i : i + 3] for i in range(len(PROMPT) - 2)}
    session.tokens.extend([1, 2])
    looking.observe(0, Draft(), Verdict((1, 2), (0,), 0), Scores(torch.eye(V)[:1]))
    assert {(*PROMPT[-2:], 1), (PROMPT[-1], 1, 2)} <= pooled(looking)
    _, silent = begin(Lookahead(level=3, text=False))
    assert pooled(silent) == set()
    _, short = begin(Lookahead(level=3), prompt=[1, 2])
    assert pooled(short) == set()


def test_the_rules_own_stream_is_left_alone() -> None:
    session, looking = begin(Lookahead(), rule="rejection")
    fresh = make_session(ScriptLM([], V), PROMPT, SEEDED, "rejection")
    draft, _ = step(BranchLM(V), session, looking, [3])
    assert draft.q is None
    assert session.noise.uniform() == fresh.noise.uniform()


@pytest.mark.parametrize("name", ["merged", "auto"])
@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_with_others(name: str, rule: str) -> None:
    options: dict[str, Any] = {"curve": lambda rows, context: 1 + rows / 1000, "clock": lambda: 0.0}
    sources = (Ngram(min_match=1), Lookahead(window=3, level=3))
    drafter = make_drafter(name, sources=sources, **(options if name == "auto" else {}))
    target, law = StubLM(lambda prefix, i: bigram(prefix, i) / 3, V), SEEDED if rule == "coupled" else None
    (session,) = decode(target, Watched(drafter), PROMPT, n=60, rule=rule, sampling=law)
    (alone,) = decode(target, make_drafter("null"), PROMPT, n=60, rule=rule, sampling=law)
    assert session.new_tokens == alone.new_tokens
    assert sum(record.accepted for record in session.records) > 0
    assert sum(record.probes for record in session.records) > 0


def test_tokens_per_step_of_a_text_that_it_has_to_find_itself() -> None:
    """Without the text in the pool all candidates are the window's own."""
    target = StubLM(bigram, V)
    (session,) = decode(target, Watched(Lookahead(text=False)), PROMPT, n=60)
    assert session.new_tokens == plain(target, PROMPT, 60)
    assert len(session.records) < 30


def test_an_ended_session_frees_its_pool_and_window() -> None:
    _, looking = begin(Lookahead())
    looking.release(0)
    assert not looking._pools
    assert not looking._windows


def test_a_target_without_trees_is_refused_before_any_pass() -> None:
    target = ScriptLM([], V)
    target.capabilities = Capabilities(trees=False)
    with pytest.raises(Incompatible, match="drafter 'lookahead' drafts trees, which this target cannot score"):
        Generation(target, Lookahead(), [make_session(target, PROMPT)], [make_rule("greedy")])
    assert not target.reads


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window=0 is not a whole number of at least 1"),
        ({"level": 1}, "level=1 is not a whole number of at least 2"),
        ({"guesses": 0}, "guesses=0 is not a whole number of at least 1"),
        ({"text": 1}, "text=1 is neither true nor false"),
        ({"window": 15, "guesses": 15}, "take up to 119 nodes, and a step has 64; lower one of them"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadOption, match=message) as caught:
        make_drafter("lookahead", **options)
    assert "\n" not in str(caught.value)
