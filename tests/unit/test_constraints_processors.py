"""The user's own processors end up as if nothing had been drafted."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from constraints_helpers import (
    EOS,
    INF,
    MARKOV,
    PROMPT,
    V,
    chains,
    drafter,
    filters_of,
    plain,
    speculative,
    with_processor,
)
from torch import Tensor

from specdecode.errors import BadOption
from specdecode.types import EMPTY, Draft
from specdecode.verify.greedy import Greedy


class Twice:
    """Bans a token after two uses. Counts each call by its newest token, so a call too many or too few is seen."""

    def __init__(self) -> None:
        self.uses: Counter[int] = Counter()
        self.calls: list[int] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.calls.append(input_ids.shape[1])
        self.uses[int(input_ids[0, -1])] += 1
        banned = [token for token, n in self.uses.items() if n >= 2]
        return scores.index_fill(1, torch.tensor(banned, dtype=torch.long), -INF)


class Grammar:
    """Allows the tokens of `text` in turn (or `others` too), then EOS. Raises when it is led astray or asked after its
    end, as real matchers do."""

    def __init__(self, text: Sequence[int], others: Sequence[int] = ()) -> None:
        self.text, self.others, self.place = [*text, EOS], list(others), -1

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if self.place >= 0:
            allowed = [self.text[self.place], *self.others]
            assert int(input_ids[0, -1]) in allowed, "advanced by a token that it forbids"
        self.place += 1
        assert self.place < len(self.text), "asked after its end"
        mask = torch.full_like(scores, -INF)
        keep = [self.text[self.place], *self.others]
        mask[0, keep] = scores[0, keep]
        return mask


class AfterMarker:
    """Allows even tokens only, once `marker` has been seen."""

    def __init__(self, marker: int) -> None:
        self.marker, self.active = marker, False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.active |= int(input_ids[0, -1]) == self.marker
        return scores.index_fill(1, torch.arange(1, V, 2), -INF) if self.active else scores


@pytest.mark.parametrize(
    "options", [{}, {"repetition_penalty": 1.05, "no_repeat_ngram_size": 4}], ids=["alone", "others"]
)
def test_a_stateful_processor_sees_the_committed_tokens_once_each(options: dict) -> None:
    """Fault 23: rejected drafts leave no trace in the user's own object, accepted ones are not counted twice."""
    reference = Twice()
    want = plain(with_processor(reference, **options), PROMPT, 50)
    assert want != plain(filters_of(options, len(PROMPT), eos_ids=(EOS,)), PROMPT, 50)
    truth = [*PROMPT, *want]
    draws = [chains(truth, lengths) for lengths in ((0, 3, 1, 4), (2,), (8,))]
    for draw in (*draws, *(drafter(truth, seed) for seed in range(6))):
        mine = Twice()
        assert speculative(with_processor(mine, **options), PROMPT, 50, draw) == want
        assert mine.calls == reference.calls == list(range(5, 5 + len(want)))
        assert mine.uses == reference.uses == Counter(truth[4:-1])


def test_each_row_is_asked_with_its_own_prefix() -> None:
    """Fault 28: row j sees the committed tokens and its path, also in the round after a rejection."""
    seen: list[list[int]] = []

    def spy(input_ids: Tensor, scores: Tensor) -> Tensor:
        seen.append(input_ids[0].tolist())
        return scores

    want = plain(filters_of({}, len(PROMPT)), PROMPT, 40)
    truth, tokens = [*PROMPT, *want], list(PROMPT)
    filters, draw = filters_of({"processors": (spy,)}, len(PROMPT)), drafter([*PROMPT, *want], 7)
    for _ in range(30):
        draft = draw(tokens)
        rows = filters.rows(MARKOV[[tokens[-1], *draft.tokens]], tokens, draft)
        for row in range(len(draft) + 1):
            seen.clear()
            rows[row]
            path, node = [], row - 1
            while node >= 0:
                path.insert(0, draft.tokens[node])
                node = draft.parents[node]
            assert seen == [[*tokens, *path]]
        verdict = Greedy().verify(draft, rows, None, len(tokens))
        seen.clear()
        filters.commit(rows, verdict.path)
        assert seen == [[*tokens, *verdict.tokens[:i]] for i in range(1, len(verdict.tokens))]
        tokens += verdict.tokens
        if len(tokens) > len(truth) - 12:
            tokens = list(PROMPT)


def test_only_rows_that_are_read_are_asked_for() -> None:
    asked: list[int] = []

    def count(input_ids: Tensor, scores: Tensor) -> Tensor:
        asked.append(input_ids.shape[1])
        return scores

    rows = filters_of({"processors": (count,)}).rows(MARKOV[:7], [1, 2], Draft.chain([3, 4, 5, 6, 7, 8]))
    assert asked == []
    rows[0], rows[1], rows[1], rows[0]
    assert asked == [2, 3]


def test_a_commit_reads_what_the_rule_did_not() -> None:
    """A rule that emits without reading (or a cut within the path) still leaves the processors where they belong."""
    for read in ((), (0,), (3, 1), (0, 1, 2, 3)):
        for path in ((), (0,), (0, 1), (0, 1, 2)):
            mine = Twice()
            filters = with_processor(mine)
            rows = filters.rows(MARKOV[:4], PROMPT, Draft.chain([1, 2, 3]))
            for row in read:
                rows[row]
            filters.commit(rows, path)
            assert mine.calls == list(range(5, 6 + len(path)))


def test_a_grammar_is_not_asked_past_its_end() -> None:
    """Fault 31: the window runs past the end of the text; the grammar would raise if it were asked there."""
    text = [11, 12, 13, 12, 60, 7]
    for draw in (chains([*PROMPT, *text, EOS, 1, 2, 3], (9,)), chains([*PROMPT, *text, EOS, 1, 2, 3], (2,))):
        mine = Grammar(text)
        assert speculative(with_processor(mine), PROMPT, 40, draw) == [*text, EOS]
        assert mine.place == len(text)


def test_a_row_behind_the_end_can_be_read() -> None:
    """Fault 31: rules that read every row read those behind the end too."""
    filters = with_processor(Grammar([11]), temperature=1)
    rows = filters.rows(torch.zeros(5, V), PROMPT, Draft.chain([11, EOS, 3, 4]))
    assert [int((rows[i] > -INF).sum()) for i in range(5)] == [1, 1, V, V, V]


def test_a_constraint_that_starts_within_the_window_acts_there() -> None:
    """Fault 32: the marker is accepted, the first forbidden token behind it is not, and an allowed one replaces it."""
    want = plain(with_processor(AfterMarker(20), logit_bias={20: 4.0}), PROMPT, 30)
    start = want.index(20) + 1
    assert start < 20
    assert all(token % 2 == 0 for token in want[start:])
    assert any(token % 2 for token in plain(filters_of({"logit_bias": {20: 4.0}}, 5), PROMPT, 30)[start:])
    mine = AfterMarker(20)
    filters = with_processor(mine, logit_bias={20: 4.0})
    tokens = [*PROMPT, *want[: start - 1]]
    draft = Draft.chain([20, 31, 33])
    rows = filters.rows(MARKOV[[tokens[-1], *draft.tokens]], tokens, draft)
    verdict = Greedy().verify(draft, rows, None, len(tokens))
    assert verdict.tokens == tuple(want[start - 1 : start + 1])
    assert not mine.active
    filters.commit(rows, verdict.path)
    assert mine.active
    for seed in range(4):
        filters = with_processor(AfterMarker(20), logit_bias={20: 4.0})
        assert speculative(filters, PROMPT, 30, drafter([*PROMPT, *want], seed)) == want


def test_forbidden_drafts_are_silently_rejected(caplog: pytest.LogCaptureFixture) -> None:
    """Fault 34: a drafter that always proposes what the grammar forbids; the grammar never hears of it, not even from a
    rule that reads every row."""
    text = [11, 12, 13, 12, 60, 7, 11, 11]
    mine = Grammar(text, others=[1, 2])
    reference = Grammar(text, others=[1, 2])
    bias = {1: -50.0, 2: -50.0}
    want = plain(with_processor(reference, logit_bias=bias), PROMPT, 40)
    assert want == [*text, EOS]

    def forbidden(tokens: list[int]) -> Draft:
        return Draft((50, 51, 1, 52), (-1, 0, -1, 2))

    filters = with_processor(mine, logit_bias=bias)
    every = filters.rows(MARKOV[[PROMPT[-1], 50, 51, 1, 52]], PROMPT, forbidden([]))
    kept = copy.deepcopy(mine)
    assert [int((every[row] > -INF).sum()) for row in (4, 3, 2, 1, 0)] == [V, 3, V, V, 3]
    assert kept.place == -1
    mine.place = -1
    assert speculative(filters, PROMPT, 40, forbidden) == want
    assert mine.place == reference.place
    assert not caplog.records


def test_shared_state_of_two_processors_stays_shared() -> None:
    """Processors are forked together: one that reads what another writes does so in the forks too."""
    writer = Twice()

    class Reader:
        def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
            return scores + len(self.writer.calls)

        writer: Twice

    reader = Reader()
    reader.writer = writer
    filters = filters_of({"processors": (writer, reader)})
    rows = filters.rows(torch.zeros(3, V), [1, 2], Draft.chain([3, 4]))
    assert [rows[i].max().item() for i in range(3)] == [1, 2, 3]


def test_a_processor_must_return_scores() -> None:
    for answer, found in ((None, "NoneType"), (torch.zeros(V), r".*\(97,\)"), (torch.zeros(1, 5), r".*\(1, 5\)")):
        filters = filters_of({"processors": (lambda ids, scores, answer=answer: answer,)})
        with pytest.raises(BadOption, match=rf"must return floating-point scores of shape \(1, 97\), returned {found}"):
            filters.rows(MARKOV[:1], [1, 2], EMPTY)[0]
