"""A suffix automaton over a growing list of tokens: where its newest tokens occurred before, and what followed.

Built online, Blumer et al. 1985 ("The smallest automaton recognizing the subwords of a text"). A state stands for
stretches of tokens that end at the same places, the shorter ones suffixes of the longest; its link leads to the next
shorter suffix that ends elsewhere too. Beside that each state counts its places and knows the latest, for stretches up
to a bounded length, so that a token costs a bounded number of updates. It knows one list and no drafts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from .continuations import Level

Place = tuple[int, int]  # a state, and how many of the newest tokens it is taken to stand for

LEVELS = 3  # contexts that have a say in what follows: the longest and its next shorter ones
FOLLOWERS = 48  # of a context that are looked at, the first seen: the frequent ones are among them


class SuffixAutomaton:
    """tokens: the list, read in place; it only ever grows.
    depth:  the longest stretch that is counted and matched.

    n tokens cost O(n) steps and at most 2n states (some 350 bytes each), and `depth` updates a token at most."""

    def __init__(self, tokens: Sequence[int], depth: int) -> None:
        self.tokens = tokens
        self._depth = depth
        self._next: list[dict[int, int]] = [{}]  # of each state; 0 is the empty stretch
        self._link, self._length = [-1], [0]
        self._count, self._latest = [0], [-1]
        self._whole = 0  # the state of the whole list
        self._place: Place = (0, 0)  # the longest suffix that occurred before, or `depth` tokens of it
        self._match = (0, -1)
        self._seen = 0

    def longest(self) -> tuple[int, int]:
        """(length, end): the longest suffix of `tokens`, at most `depth` of them, that also ends at an earlier index,
        and the latest such index; (0, -1) where the newest token is new."""
        self._read()
        return self._match

    def place(self) -> Place:
        """Where to look what may follow: the longest suffix that occurred before, short of `depth`."""
        self._read()
        return self._short(*self._place)

    def levels(self, place: Place) -> list[Level[Place]]:
        """What followed a stretch and its next shorter suffixes, longest first."""
        state, length = place
        levels: list[Level[Place]] = []
        while length > 0 and len(levels) < LEVELS:
            followers = self._next[state]
            total = self._count[state] - (self._latest[state] == self._seen - 1)  # nothing followed the newest yet
            if total:
                items = islice(followers.items(), FOLLOWERS)
                levels.append(
                    (length, total, [(token, self._count[s], self._short(s, length + 1)) for token, s in items])
                )
            state = self._link[state]
            length = self._length[state]
        return levels

    def _short(self, state: int, length: int) -> Place:
        """The place of at most depth - 1 tokens of a stretch, whose followers are all counted."""
        if length < self._depth:
            return state, length
        above = self._link[state]
        return (above if self._length[above] >= self._depth - 1 else state), self._depth - 1

    def _read(self) -> None:
        for end in range(self._seen, len(self.tokens)):
            self._add(self.tokens[end], end)
        self._seen = len(self.tokens)

    def _add(self, token: int, end: int) -> None:
        """Take in the token at `end`."""
        suffix = self._extend(token, end)
        length = self._length[suffix]
        if length > self._depth:  # so the last place held `depth` tokens, and is here followed by the token again
            suffix, length = self._next[self._place[0]][token], self._depth
            above = self._link[suffix]
            suffix = above if self._length[above] >= length else suffix
        self._place = suffix, length
        self._match = length, self._latest[suffix]
        while suffix > 0:
            self._count[suffix] += 1
            self._latest[suffix] = end
            suffix = self._link[suffix]

    def _extend(self, token: int, end: int) -> int:
        """The textbook's step. Returns the state of the longest suffix that occurred before."""
        following, link = self._next, self._link
        whole, state = self._new({}, 0, end + 1, 1, end), self._whole
        self._whole = whole
        while state >= 0 and token not in following[state]:
            following[state][token] = whole
            state = link[state]
        if state < 0:
            return 0
        suffix = following[state][token]
        if self._length[suffix] != self._length[state] + 1:  # it stands for longer stretches too, which ended elsewhere
            longer = suffix
            places = self._count[longer], self._latest[longer]
            suffix = self._new(following[longer].copy(), link[longer], self._length[state] + 1, *places)
            link[longer] = suffix
            while state >= 0 and following[state].get(token) == longer:
                following[state][token] = suffix
                state = link[state]
        link[whole] = suffix
        return suffix

    def _new(self, following: dict[int, int], link: int, length: int, count: int, latest: int) -> int:
        self._next.append(following)
        self._link.append(link)
        self._length.append(length)
        self._count.append(count)
        self._latest.append(latest)
        return len(self._next) - 1
