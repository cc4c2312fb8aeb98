"""Kind 05: the output ends at the first end token, wherever in a draft it was accepted."""

from __future__ import annotations

import pytest
from enroll import LOSSLESS, METHODS
from stubs import ScriptLM, oracle
from whole import PROMPT, base, begin, habit, make, run, say

from specdecode.sampling import Sampling

TEXT = base(habit().target, PROMPT, n=20)


def until_end(tokens: list[int], eos: set[int]) -> list[int]:
    cut = next((i + 1 for i, token in enumerate(tokens) if token in eos), len(tokens))
    return tokens[:cut]


@pytest.mark.parametrize("j", range(3, 13))
def test_an_end_token_in_mid_block(j: int) -> None:
    """Fault 36: the token at each index in turn is the end token, alone or of two; ORACLE k=8 and every method."""
    target, end, other = habit().target, TEXT[j], 22
    assert other not in TEXT
    want = until_end(TEXT, {end})
    for eos in ([end], [end, other], [other, end], [end, TEXT[15]], [TEXT[15], end]):
        (session,) = run(target, oracle(TEXT, k=8), PROMPT, n=20, eos=eos)
        assert session.new_tokens == until_end(TEXT, set(eos))
        assert session.finish_reason == "eos"
    for method in METHODS:
        pair = habit()
        assert say(pair.target, make(method, pair, k=8), PROMPT, n=20, eos=[end]) == want, method


@pytest.mark.parametrize("rule", LOSSLESS)
@pytest.mark.parametrize("method", METHODS)
def test_nothing_leaks_past_the_end(method: str, rule: str) -> None:
    """Fault 38: what is handed out ends with the end token; the cache holds nothing behind it either."""
    pair, sampling = habit(), Sampling(temperature=0 if rule == "greedy" else 1, seed=8)
    generation = begin(pair.target, make(method, pair, k=8), PROMPT, n=200, eos=[13], rule=rule, sampling=sampling)
    streamed = [token for emissions in generation for emission in emissions for token in emission.tokens]
    assert streamed.index(13) == len(streamed) - 1
    assert generation._cache.rows[0].tokens == [*PROMPT, *streamed[:-1]]


def test_the_window_is_cut_at_its_fourth_token() -> None:
    """Fault 38: ORACLE k=8 with the end at index 3 of a window; with ignore_eos the text has its full length."""
    script = [*TEXT[:3], 22, *TEXT[4:]]
    drafter = oracle(script, k=8)
    (emissions,) = begin(ScriptLM(script, 23), drafter, PROMPT, n=20, eos=[22])
    assert (emissions[0].tokens, emissions[0].accepted) == (tuple(script[:4]), 4)
    assert say(ScriptLM(script, 23), oracle(script, k=8), PROMPT, n=20, eos=[22], ignore_eos=True) == script


@pytest.mark.parametrize("method", METHODS)
def test_ignored_end_tokens_change_nothing(method: str) -> None:
    """Fault 38: with ignore_eos, as if there were no end token."""
    pair = habit()
    assert say(pair.target, make(method, pair), PROMPT, n=20, eos=[TEXT[3]], ignore_eos=True) == TEXT


@pytest.mark.parametrize("method", METHODS)
def test_no_end_token_at_all(method: str) -> None:
    """Fault 39: exactly 15 tokens on a prompt in which lookup finds a match."""
    pair = habit()
    (session,) = run(pair.target, make(method, pair), PROMPT, n=15)
    assert session.new_tokens == TEXT[:15]
    assert session.finish_reason == "length"
