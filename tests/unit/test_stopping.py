"""Where a session ends, decided before anything is committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdecode.errors import BadOption
from specdecode.stopping import Stopping
from specdecode.types import Draft, Verdict

EOS, OTHER_EOS = 99, 98


@dataclass(frozen=True)
class StopTokens:
    """Stands in for the text scanner: a run of ids that ends the output."""

    wanted: tuple[int, ...]

    def scan(self, tokens: Sequence[int]) -> int | None:
        n = len(self.wanted)
        return next((i for i in range(n, len(tokens) + 1) if tuple(tokens[i - n : i]) == self.wanted), None)


def full_accept(*tokens: int) -> Verdict:
    """Everything but the last of `tokens` was drafted and accepted; the last is the target's own."""
    return Verdict.of(Draft.chain(tokens[:-1]), range(len(tokens) - 1), tokens[-1])


def run(stopping: Stopping, text: Sequence[int], k: int) -> tuple[list[int], str | None]:
    """What a session emits of `text` when each step accepts k tokens of it and adds the next one."""
    emitted: list[int] = []
    reason = None
    while reason is None:
        step = text[len(emitted) : len(emitted) + k + 1]
        verdict, reason = stopping.clip(full_accept(*step), emitted)
        emitted += verdict.tokens
    return emitted, reason


@pytest.mark.parametrize("stop_ids", [{EOS}, {EOS, OTHER_EOS}, {OTHER_EOS, EOS}])
@pytest.mark.parametrize("j", range(3, 13))
def test_eos_in_mid_window_ends_the_output(j, stop_ids):
    """Fault 36: an EOS accepted in mid-block did not stop generation."""
    text = list(range(20))
    text[j] = EOS
    emitted, reason = run(Stopping(max_new_tokens=20, stop_ids=frozenset(stop_ids)), text, k=8)
    assert emitted == text[: j + 1]
    assert reason == "eos"


@pytest.mark.parametrize("first", [EOS, OTHER_EOS])
def test_first_of_two_eos_ids_wins(first):
    """Fault 36: an EOS list of two ids, either one first."""
    second = EOS + OTHER_EOS - first
    emitted, reason = run(Stopping(stop_ids=frozenset({EOS, OTHER_EOS})), [1, 2, first, 3, second, 4], k=8)
    assert (emitted, reason) == ([1, 2, first], "eos")


def test_nothing_after_eos_leaves_the_step():
    """Fault 38: stray tokens after EOS reached the client; the verdict that is committed and streamed ends with it."""
    verdict, reason = Stopping(stop_ids=frozenset({EOS})).clip(full_accept(1, 2, 3, EOS, 5, 6, 7, 8, 9), [0])
    assert (verdict.tokens, reason) == ((1, 2, 3, EOS), "eos")
    assert verdict.path == (0, 1, 2)


def test_without_stop_ids_the_output_has_its_full_length():
    """Fault 38: an end token that is to be ignored is no stop id."""
    text = [1, 2, 3, EOS, 5, EOS, 7, 8, 9, 10]
    assert run(Stopping(9), text, k=8) == (text[:9], "length")


@pytest.mark.parametrize("k", [0, 1, 5, 20])
def test_no_eos_configured(k):
    """Fault 39: decoding crashed where no EOS id was configured; exactly 15 tokens must come."""
    assert run(Stopping(max_new_tokens=15), range(40), k) == (list(range(15)), "length")


@pytest.mark.parametrize("k", [0, 1, 5])
@pytest.mark.parametrize("limit", range(1, 9))
def test_limit_holds_for_every_draft_length(k, limit):
    """Fault 45: speculation returned more than max_new_tokens."""
    assert run(Stopping(max_new_tokens=limit), range(20), k) == (list(range(limit)), "length")


def test_accepted_is_counted_after_the_cut():
    """Fault 129: four drafts match, the second is EOS: 2 emitted, 2 accepted (the fault counts 5)."""
    verdict, _ = Stopping(stop_ids=frozenset({EOS})).clip(full_accept(1, EOS, 3, 4, 5), [])
    assert (len(verdict.tokens), verdict.accepted) == (2, 2)


def test_eos_as_the_targets_own_token():
    verdict, reason = Stopping(stop_ids=frozenset({EOS})).clip(full_accept(1, EOS), [])
    assert (verdict.tokens, verdict.accepted, reason) == ((1, EOS), 1, "eos")


def test_verdict_that_does_not_end_is_untouched():
    verdict = full_accept(1, 2, 3)
    assert Stopping(4, stop_ids=frozenset({EOS})).clip(verdict, []) == (verdict, None)


def test_eos_before_the_minimum_does_not_stop():
    stopping = Stopping(min_new_tokens=3, stop_ids=frozenset({EOS}))
    assert stopping.clip(full_accept(EOS, 1, EOS), [])[1] is None
    assert stopping.clip(full_accept(EOS, EOS, 2), [0])[1] is None
    verdict, reason = stopping.clip(full_accept(EOS, EOS, EOS, 2), [0, 0])
    assert (verdict.tokens, reason) == ((EOS, EOS), "eos")


def test_limit_and_eos_on_one_token_is_eos():
    assert Stopping(2, stop_ids=frozenset({EOS})).clip(full_accept(1, EOS, 3), [])[1] == "eos"


def test_stop_string_cuts_after_the_completing_token():
    verdict, reason = Stopping(scanner=StopTokens((1, 2))).clip(full_accept(7, 1, 2, 8), [5])
    assert (verdict.tokens, verdict.path, verdict.accepted, reason) == ((7, 1, 2), (0, 1), 3, "stop")


def test_stop_string_may_begin_in_an_earlier_step():
    verdict, reason = Stopping(scanner=StopTokens((1, 2))).clip(full_accept(2, 8), [5, 1])
    assert (verdict.tokens, reason) == ((2,), "stop")


def test_stop_string_is_not_held_back_by_the_minimum():
    assert Stopping(min_new_tokens=9, scanner=StopTokens((1, 2))).clip(full_accept(1, 2, 3), [])[1] == "stop"


@pytest.mark.parametrize(
    ("tokens", "limit", "kept", "reason"),
    [
        ((1, 2, EOS, 4), 4, 2, "stop"),
        ((EOS, 1, 2, 4), 4, 1, "eos"),
        ((3, 1, 2, EOS), 2, 2, "length"),
        ((3, 1, 2, EOS), 3, 3, "stop"),
    ],
)
def test_earliest_cut_wins(tokens, limit, kept, reason):
    stopping = Stopping(limit, stop_ids=frozenset({EOS}), scanner=StopTokens((1, 2)))
    verdict, found = stopping.clip(full_accept(*tokens), [])
    assert (len(verdict.tokens), found) == (kept, reason)


def test_stop_id_that_completes_a_stop_string_is_eos():
    assert Stopping(stop_ids=frozenset({2}), scanner=StopTokens((1, 2))).clip(full_accept(1, 2, 3), [])[1] == "eos"


def test_path_of_a_tree_is_cut_with_its_tokens():
    draft = Draft(tokens=(10, 11, 12, 13), parents=(-1, -1, 1, 2))
    verdict, _ = Stopping(2).clip(Verdict.of(draft, (1, 2, 3), 14), [])
    assert (verdict.tokens, verdict.path, verdict.accepted) == ((11, 12), (1,), 2)


@given(
    text=st.lists(st.integers(0, 5), min_size=12, max_size=12),
    k=st.integers(0, 8),
    limit=st.integers(1, 10),
    minimum=st.integers(0, 10),
    stop_ids=st.frozensets(st.integers(0, 5), max_size=2),
    wanted=st.one_of(st.none(), st.lists(st.integers(0, 5), min_size=1, max_size=3)),
)
def test_speculation_ends_where_plain_decoding_ends(text, k, limit, minimum, stop_ids, wanted):
    scanner = None if wanted is None else StopTokens(tuple(wanted))
    stopping = Stopping(limit, min(minimum, limit), stop_ids, scanner=scanner)
    assert run(stopping, text, k) == run(stopping, text, 0)


def test_a_session_that_ended_is_our_own_bug():
    with pytest.raises(AssertionError, match="ended"):
        Stopping(2).clip(full_accept(1), [0, 0])


def test_a_missed_stop_string_is_our_own_bug():
    with pytest.raises(AssertionError, match="earlier step"):
        Stopping(scanner=StopTokens((1, 2))).clip(full_accept(3), [1, 2])


def test_defaults():
    stopping = Stopping()
    assert (stopping.max_new_tokens, stopping.min_new_tokens, stopping.stop_ids) == (128, 0, frozenset())
    assert stopping.clip(full_accept(EOS, 1), [0] * 125)[1] is None
    assert stopping.clip(full_accept(EOS, 1), [0] * 126)[1] == "length"


@pytest.mark.parametrize("value", [0, -1, 1.5, 8.0, "8", None, True])
def test_maximum_must_be_a_positive_whole_number(value):
    with pytest.raises(BadOption, match=r"^max_new_tokens=.* at least 1; [^\n]*$"):
        Stopping(max_new_tokens=value)


@pytest.mark.parametrize("value", [-1, 0.5, None, False])
def test_minimum_must_be_a_whole_number(value):
    with pytest.raises(BadOption, match=r"^min_new_tokens=.* at least 0; [^\n]*$"):
        Stopping(min_new_tokens=value)


def test_whole_numbers_of_numpy_are_welcome():
    assert run(Stopping(np.int64(3), np.int64(0)), range(9), k=1) == ([0, 1, 2], "length")


def test_minimum_must_not_exceed_the_maximum():
    with pytest.raises(BadOption, match=r"^min_new_tokens=9 exceeds max_new_tokens=8; [^\n]*$"):
        Stopping(8, 9)
    assert Stopping(8, 8).min_new_tokens == 8
