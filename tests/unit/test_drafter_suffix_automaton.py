"""The suffix automaton finds and counts what a brute-force search does, at a bounded cost."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdecode.drafters.automaton import SuffixAutomaton

TEXTS = st.lists(st.integers(0, 2), max_size=60)


def brute_force(tokens: Sequence[int], depth: int) -> tuple[int, int]:
    """(length, end) of the longest earlier match, at most `depth` long, the latest of equal ones."""
    best = (0, -1)
    for end in range(len(tokens) - 1):
        limit = min(depth, end + 1)
        length = next((i for i in range(limit) if tokens[end - i] != tokens[-1 - i]), limit)
        if length and length >= best[0]:
            best = (length, end)
    return best


def followers(tokens: Sequence[int], stretch: Sequence[int]) -> Counter[int]:
    """What stands behind each occurrence of a stretch, and how often."""
    n = len(stretch)
    starts = range(len(tokens) - n)
    return Counter(tokens[i + n] for i in starts if list(tokens[i : i + n]) == list(stretch))


@given(TEXTS, st.integers(1, 9), st.integers(1, 5))
def test_it_finds_what_brute_force_finds(tokens: list[int], depth: int, step: int) -> None:
    """Whatever the text, the depth, and how many tokens come at once."""
    grown: list[int] = []
    automaton = SuffixAutomaton(grown, depth)
    for start in range(0, len(tokens), step):
        grown += tokens[start : start + step]
        assert automaton.longest() == brute_force(grown, depth)
    assert automaton.longest() == brute_force(tokens, depth), "nothing new changes nothing"


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(0, 40), st.data())
def test_it_is_exact_on_repeated_text(block: list[int], extra: int, data: st.DataObject) -> None:
    """Long repeats with errors in them, where states are split late."""
    tokens = (block * 12)[: 3 * len(block) + extra]
    for at in data.draw(st.lists(st.integers(0, len(tokens) - 1), max_size=3)):
        tokens[at] = 5
    automaton = SuffixAutomaton(tokens, 16)
    assert automaton.longest() == brute_force(tokens, 16)
    tokens += block
    assert automaton.longest() == brute_force(tokens, 16)


@given(TEXTS, st.integers(2, 6))
def test_it_counts_what_followed(tokens: list[int], depth: int) -> None:
    """At the end of the text and three tokens into its continuations: each context is a suffix of what is followed, and
    its followers are those of the whole text."""
    automaton = SuffixAutomaton(tokens, depth)
    waiting = [(tuple(tokens), automaton.place())]
    longest = brute_force(tokens, depth - 1)[0]
    assert waiting[0][1][1] == longest
    while waiting:
        path, place = waiting.pop()
        assert place[1] < depth
        for length, total, found in automaton.levels(place):
            assert 0 < length < depth
            expected = followers(tokens, path[-length:])
            assert {token: count for token, count, _ in found} == expected
            assert total == expected.total()
            if len(path) < len(tokens) + 3:
                waiting += [((*path, token), behind) for token, _, behind in found]


def test_the_longest_context_comes_first_and_shorter_ones_differ() -> None:
    tokens = [1, 2, 3, 9, 2, 3, 8, 3, 7, 1, 2, 3]
    automaton = SuffixAutomaton(tokens, 17)
    levels = automaton.levels(automaton.place())
    assert [(length, total) for length, total, _ in levels] == [(3, 1), (2, 2), (1, 3)]
    assert [[token for token, _, _ in found] for _, _, found in levels] == [[9], [9, 8], [9, 8, 7]]


def english_like(length: int) -> list[int]:
    """Zipf-distributed phrases over a large vocabulary: much repetition at every scale."""
    rng = random.Random(0)
    phrases = [[int(rng.paretovariate(0.7)) % 5000 for _ in range(rng.randint(1, 12))] for _ in range(3000)]
    out: list[int] = []
    while len(out) < length:
        out += phrases[int(rng.paretovariate(0.6)) % len(phrases)]
    return out[:length]


NOISE = random.Random(1).choices(range(50_000), k=50_000)
LONG = {
    "english": english_like(50_000),
    "one token": [7] * 50_000,
    "noise": NOISE,
    "a document twice": NOISE[:25_000] * 2,
    "two tokens": [token % 2 for token in NOISE],
}


@pytest.mark.parametrize("text", LONG)
def test_it_stays_small_and_a_token_costs_little(text: str) -> None:
    """Faults 101 and 104: memory and work follow the tokens read, never their square. Work is counted, not timed:
    a step of reading adds a transition, and there are at most 3n; updates are of suffixes of at most `depth` tokens."""
    tokens = list(LONG[text])
    automaton = SuffixAutomaton(tokens, 16)
    automaton.longest()
    for token in NOISE[:50]:
        tokens.append(token)
        automaton.longest()
        state, updates = automaton._place[0], 0
        while state > 0:
            state, updates = automaton._link[state], updates + 1
        assert updates <= 16
    assert len(automaton._next) <= 2 * len(tokens)
    assert sum(map(len, automaton._next)) <= 3 * len(tokens)
