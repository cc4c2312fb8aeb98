"""Parallel decoding: the drafts are the iterates of the paper's algorithms, which are written out here."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from stubs import BranchLM, ScriptLM, StubLM, Watched, decode, make_session, plain

from specdecode.drafters import Drafter, make_drafter
from specdecode.drafters.jacobi import Iteration, Jacobi
from specdecode.drafters.merged import take
from specdecode.drafters.ngram import Ngram
from specdecode.engine import Generation
from specdecode.errors import BadOption
from specdecode.sampling import Sampling
from specdecode.session import Session
from specdecode.types import Budget, Draft, Scores, Verdict
from specdecode.verify import make_rule

V, PROMPT = 12, (3, 1, 4, 1, 5)
SEEDED = Sampling(temperature=0.8, top_k=6, seed=11)


def forgetful(scale: float = 3.0) -> StubLM:
    """What it says depends mostly on the last token but one, and on the whole prefix a little: guesses come right
    before what stands before them, as Jacobi iteration needs it, and a wrong prefix shows."""
    habit, whim = BranchLM(V, 1, scale=scale), BranchLM(V, 2, scale=0.3)
    return StubLM(lambda prefix, i: habit.law(prefix[-2:-1], i) + whim.law(prefix, i), V)


def say(target: StubLM, session: Session, prefix: Sequence[int]) -> int:
    """The token that plain decoding would put behind any prefix."""
    law = session.filters.apply(target.law(tuple(prefix), 0), prefix)
    return session.noise.draw(law, len(prefix))


def iterates(target: StubLM, session: Session, prefix: Sequence[int], y: Sequence[int]) -> list[list[int]]:
    """y and what Jacobi iteration makes of it, y_i = say(prefix, y_<i) for all i at once, until it stays."""
    out = [list(y)]
    while len(out) == 1 or out[-1] != out[-2]:
        out.append([say(target, session, [*prefix, *out[-1][:i]]) for i in range(len(y))])
    return out


def run(target: StubLM, drafter: Drafter, n: int, rule: str) -> tuple[Session, list[tuple[int, list[int]]]]:
    """A finished session, and before each pass how many tokens were out, and these with the draft behind them."""
    watched = Watched(drafter)
    (session,) = decode(target, watched, PROMPT, n=n, rule=rule, sampling=SEEDED if rule == "coupled" else None)
    turns = [([*turn.prefix, *turn.draft.tokens], len(turn.prefix)) for turn in watched.seen]
    return session, [(done - len(PROMPT), tokens[len(PROMPT) :]) for tokens, done in turns]


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_the_whole_output_is_iterated_as_in_algorithm_1(rule: str) -> None:
    """After t passes the text and the guess behind it are the t-th iterate, of which t tokens at least are final; when
    sampling too, where the solution is the text of the seed."""
    n, target = 40, forgetful()
    session, turns = run(target, Jacobi(block=None, init=7), n, rule)
    expected = iterates(target, session, PROMPT, [7] * n)
    assert session.new_tokens == expected[-1]
    for t, (done, tokens) in enumerate(turns):
        assert tokens == expected[t][: n - 1], f"iterate {t}"
        assert done >= t
        assert tokens[:t] == session.new_tokens[:t], f"the first {t} tokens are final"
    assert len(turns) < n, "some pass has made more than one token final"


@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_blocks_are_iterated_one_after_another_as_in_algorithm_2(rule: str) -> None:
    n, b, target = 30, 6, forgetful()
    session, turns = run(target, Jacobi(mode="gauss-seidel", block=b, init=7), n, rule)
    text = session.new_tokens
    for start in range(0, n, b):
        mine = [tokens[start:] for done, tokens in turns if start <= done < start + b]
        expected = iterates(target, session, [*PROMPT, *text[:start]], [7] * b)
        assert mine == [y[: b - 1] for y in expected[: len(mine)]]
        assert expected[len(mine)] == text[start : start + b], "the block ends when it has converged, and not before"
    assert len(turns) < n


def test_no_pass_serves_to_find_that_a_block_has_converged() -> None:
    """A target that never reads what it said: one pass a block to say it, and the next for all its tokens."""
    script = list(range(20, 50))
    session, turns = run(ScriptLM(script), Jacobi(mode="gauss-seidel", block=5, init=7), 30, "greedy")
    assert session.new_tokens == script
    assert [done for done, _ in turns] == [done for start in range(0, 30, 5) for done in (start, start + 1)]


def test_the_hybrid_ends_in_plain_decoding() -> None:
    """As algorithm 2 for the first `length` tokens, the last block cut there; then nothing is drafted."""
    target = forgetful()
    _, blocks = run(target, Jacobi(mode="gauss-seidel", block=6, init=7), 30, "greedy")
    session, turns = run(target, Jacobi(mode="hybrid", block=6, length=15, init=7), 30, "greedy")
    assert session.new_tokens == plain(target, PROMPT, 30)
    assert [turn for turn in turns if turn[0] < 12] == [turn for turn in blocks if turn[0] < 12]
    assert all(len(tokens) == 14 for done, tokens in turns if 12 <= done < 15)
    assert [(done, len(tokens)) for done, tokens in turns if done >= 15] == [(i, i) for i in range(15, 30)]


def test_a_block_that_moves_with_the_text() -> None:
    """Always as long as the budget allows; what was said along the last guess, then first guesses."""
    n, b, target = 30, 5, forgetful()
    session, turns = run(target, Jacobi(block=b, init=7), n, "greedy")
    text, guess = session.new_tokens, [7] * (b - 1)
    for done, tokens in turns:
        draft = tokens[done:]
        assert draft == guess[: n - done - 1]
        said = [say(target, session, [*PROMPT, *text[:done], *draft[:i]]) for i in range(len(draft) + 1)]
        final = next((d for d, now in turns if d > done and now), n) - done
        guess = (said[final:] + [7] * b)[: b - 1]


@pytest.mark.parametrize(
    ("init", "first"), [("prompt", (3, 1, 4, 1)), ("repeat", (5, 5, 5, 5)), (9, (9, 9, 9, 9)), (0, (0, 0, 0, 0))]
)
def test_first_guesses(init: str | int, first: tuple[int, ...]) -> None:
    _, iteration = begin(Jacobi(block=5, init=init))
    assert draft_of(iteration).tokens == first


def begin(drafter: Jacobi, rule: str = "greedy") -> tuple[Session, Iteration]:
    session = make_session(ScriptLM([], V), PROMPT, SEEDED if rule != "greedy" else None, rule, max_new_tokens=99)
    return session, drafter.begin([session], ScriptLM([], V), ScriptLM([], V).open([]))


def draft_of(iteration: Iteration, depth: int = 50) -> Draft:
    (draft,) = iteration.draft([0], [Budget(depth)])
    return draft


def saying(*tokens: int) -> Scores:
    """Scores whose rows say these tokens."""
    return Scores(10 * torch.eye(V)[list(tokens)])


def told(session: Session, iteration: Iteration, draft: Draft, verdict: Verdict, scores: Scores) -> None:
    session.tokens.extend(verdict.tokens)
    iteration.observe(0, draft, verdict, scores)


def guessed() -> tuple[Session, Iteration, Draft]:
    """A session whose guess is 8, 9, 10, 11."""
    session, iteration = begin(Jacobi(block=5, init=7))
    told(session, iteration, draft_of(iteration), Verdict((2,), (), 0), saying(2, 8, 9, 10, 11))
    draft = draft_of(iteration)
    assert draft.tokens == (8, 9, 10, 11)
    return session, iteration, draft


def test_what_was_cut_from_a_draft_stays_guessed() -> None:
    """Behind two nodes that were scored, of four, stands what the last of them says, and then the old guess."""
    session, iteration, draft = guessed()
    told(session, iteration, take(draft, [0, 1]), Verdict((2,), (), 0), saying(2, 5, 6))
    assert draft_of(iteration).tokens == (5, 6, 11, 7)


def test_a_draft_that_was_not_drafted_stays_guessed() -> None:
    session, iteration, _ = guessed()
    told(session, iteration, Draft(), Verdict((2,), (), 0), saying(2))
    assert draft_of(iteration).tokens == (9, 10, 11, 7)


def test_a_budget_cuts_the_draft_and_not_the_guess() -> None:
    _, iteration, draft = guessed()
    assert iteration.draft([0], [Budget(50, nodes=2)])[0].tokens == draft.tokens[:2]
    assert draft_of(iteration, depth=3).tokens == draft.tokens[:3]
    assert draft_of(iteration, depth=0).tokens == ()
    assert draft_of(iteration).tokens == draft.tokens


def test_a_guess_is_found_within_a_tree() -> None:
    """Its first two nodes stand where another draft branches, of which one token is accepted, or two."""
    tree, scores = Draft((1, 8, 2, 9), (-1, -1, 0, 1)), saying(1, 2, 6, 3, 5)
    session, iteration, _ = guessed()
    told(session, iteration, tree, Verdict((1, 2), (0,), 1), scores)
    assert draft_of(iteration).tokens == (5, 11, 7, 7), "5 is what stands behind 8, 9; 6 is final otherwise"
    session, iteration, _ = guessed()
    told(session, iteration, tree, Verdict((1, 2, 3), (0, 2), 2), scores)
    assert draft_of(iteration).tokens == (11, 7, 7, 7)


def test_probes_that_are_no_tokens_are_not_mistaken_for_the_guess() -> None:
    session, iteration = begin(Jacobi(block=5, init=7))
    draft_of(iteration)
    probe = Draft((7, 7), (-1, 0), candidate=(False, False), embeds={0: torch.zeros(4)})
    told(session, iteration, probe, Verdict((2,), (), 0), saying(2, 8, 9))
    assert draft_of(iteration).tokens == (7, 7, 7, 7)


def test_the_rules_own_stream_is_left_alone() -> None:
    """A guess is the likeliest token where the session's noise is a stream: nothing is drawn, nothing stated."""
    session, iteration = begin(Jacobi(block=4), "rejection")
    fresh = make_session(ScriptLM([], V), PROMPT, SEEDED, "rejection")
    draft = draft_of(iteration)
    assert draft.is_chosen
    told(session, iteration, draft, Verdict((2,), (), 0), saying(2, 8, 9, 10))
    assert draft_of(iteration).tokens == (8, 9, 10)
    assert session.noise.uniform() == fresh.noise.uniform()


@pytest.mark.parametrize("name", ["merged", "auto"])
@pytest.mark.parametrize("rule", ["greedy", "coupled"])
def test_with_others(name: str, rule: str) -> None:
    """As a source its draft is cut and shares nodes; the text is that of plain decoding, and its guesses come right."""
    options = {"curve": lambda rows, context: 1 + rows / 1000, "clock": lambda: 0.0} if name == "auto" else {}
    drafter = make_drafter(name, sources=(Ngram(min_match=1), Jacobi(block=6)), **options)
    target, law = forgetful(6.0), SEEDED if rule == "coupled" else None
    (session,) = decode(target, Watched(drafter), PROMPT, n=60, rule=rule, sampling=law)
    (alone,) = decode(target, make_drafter("null"), PROMPT, n=60, rule=rule, sampling=law)
    assert session.new_tokens == alone.new_tokens
    assert sum(record.accepted for record in session.records) > 0


def test_an_ended_session_frees_its_guess() -> None:
    _, iteration = begin(Jacobi())
    iteration.release(0)
    assert not iteration._guesses


def test_a_token_of_another_vocabulary_is_refused_before_any_pass() -> None:
    target = ScriptLM([], V)
    session = make_session(target, PROMPT)
    with pytest.raises(BadOption, match=r"init=12 is no token; the vocabulary ends at 11"):
        Generation(target, Jacobi(init=12), [session], [make_rule("greedy")])
    assert not target.reads


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "newton"}, "mode='newton' is unknown; use jacobi, gauss-seidel, hybrid"),
        ({"init": "zeros"}, "init='zeros' is unknown; use prompt, repeat or a token id"),
        ({"init": -1}, "init=-1 is unknown"),
        ({"init": True}, "init=True is unknown"),
        ({"block": 1}, "block=1 is not a whole number of at least 2"),
        ({"block": None, "mode": "gauss-seidel"}, "block=None is not a whole number of at least 2"),
        ({"mode": "hybrid"}, "length=None is not a whole number of at least 1"),
        ({"mode": "hybrid", "length": 0}, "length=0 is not a whole number of at least 1"),
        ({"length": 9}, "mode='jacobi' has no length, found 9"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadOption, match=message) as caught:
        make_drafter("jacobi", **options)
    assert "\n" not in str(caught.value)
