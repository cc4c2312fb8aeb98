"""Kind 03: penalties, bans and the user's own processors act on every row of a draft as in plain decoding."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from itertools import pairwise
from typing import Any

import pytest
import torch
from enroll import METHODS, SAMPLED
from stubs import ScriptLM, StubLM, mix, oracle
from torch import Tensor
from whole import PROMPT, base, begin, habit, make, run, say, transformers, upstream

from specdecode.drafters import Drafter
from specdecode.drafters.null import Null
from specdecode.models.lm import LM
from specdecode.sampling import Sampling
from specdecode.text.request import Limits

# --- every option -----------------------------------------------------------------------------------------------------


def every_other(input_ids: Tensor, scores: Tensor) -> Tensor:
    """A processor without state: the newest token, and every second one before it, become less likely."""
    seen = input_ids.flip(1)[0, ::2]
    return scores.index_add(1, seen, torch.full((1, len(seen)), -0.5))


EOS = {"eos": (9, 14)}
SAMPLINGS: dict[str, dict[str, Any]] = {
    "temperature": {"temperature": 0.6},
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.5},
    "min_p": {"min_p": 0.4},
    "typical_p": {"typical_p": 0.4},
    "repetition_penalty": {"repetition_penalty": 1.3},
    "presence_penalty": {"presence_penalty": 1.5},
    "frequency_penalty": {"frequency_penalty": 0.6},
    "logit_bias": {"logit_bias": {2: 4.0, 13: -9.0}},
    "bad_words": {"bad_words": ((12,), (3, 13), (16, 15))},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "suppress": {"suppress": (3, 16)},
    "seed": {"seed": 99},
    "processors": {"processors": (every_other,)},
}
LIMITS: dict[str, dict[str, Any]] = {
    "max_new_tokens": {"n": 17},
    "min_new_tokens": {"min_new_tokens": 30, **EOS},
    "stop_ids": {"stop_ids": (3, 21)},
    "ignore_eos": {"ignore_eos": True, **EOS},
}
ONLY_DRAWN = {"temperature", "top_k", "top_p", "min_p", "typical_p", "seed"}
PROMPTS = [PROMPT, (7, 3, 7, 3, 7, 3)]


def options(field: str | None, temperature: float) -> dict[str, Any]:
    sampling = {"temperature": temperature, "seed": 5, **SAMPLINGS.get(field, {})}
    if temperature == 0:
        sampling["temperature"] = 0
    return {"sampling": Sampling(**sampling), **LIMITS.get(field, {})}


def test_no_option_is_forgotten() -> None:
    """Fault 26: a new option of Sampling or Limits belongs into the tables above."""
    assert set(SAMPLINGS) == {f.name for f in fields(Sampling)}
    assert set(LIMITS) == {f.name for f in fields(Limits)} - {"stop", "include_stop"}, "which need a tokenizer"


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("field", [*SAMPLINGS, *LIMITS])
def test_every_option_acts_the_same_under_every_method(field: str, temperature: float) -> None:
    """Fault 26: the text of each method is that of plain decoding under the same option, greedily and with coupled
    noise; and the option acts."""
    asked = options(field, temperature)
    want = [base(habit().target, prompt, **asked) for prompt in PROMPTS]
    free = {**options(None, temperature), "eos": asked.get("eos", ())}
    acts = [base(habit().target, prompt, **free) for prompt in PROMPTS] != want
    assert acts == bool(temperature or field not in ONLY_DRAWN)
    for method in METHODS:
        pair = habit()
        sessions = run(pair.target, make(method, pair), *PROMPTS, **asked)
        assert [session.new_tokens for session in sessions] == want, method


UPSTREAM: dict[str, dict[str, Any]] = {
    "repetition_penalty": {"repetition_penalty": 1.3},
    "logit_bias": {"sequence_bias": {(2,): 4.0, (13,): -9.0}},
    "bad_words": {"bad_words_ids": [[12], [3, 13], [16, 15]]},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "suppress": {"suppress_tokens": [3, 16]},
    "max_new_tokens": {"max_new_tokens": 17},
    "min_new_tokens": {"min_new_tokens": 30, "eos_token_id": [9, 14]},
    "stop_ids": {"eos_token_id": [3, 21]},
}


@pytest.mark.parametrize("field", UPSTREAM)
def test_the_base_is_upstreams(field: str) -> None:
    """Fault 26: what plain decoding says under an option is what transformers' generate says under it."""
    target, prompt = transformers().target, [10, 3, 13, 16, 10, 3]
    assert base(target, prompt, **options(field, 0)) == upstream(target, prompt, 40, **UPSTREAM[field])


@pytest.mark.parametrize("method", METHODS)
def test_a_penalty_on_a_transformer(method: str) -> None:
    """Fault 22: penalty 1.3, 50 tokens: as in plain decoding at that penalty, and not as without it."""
    pair, prompt, law = transformers(), [10, 3, 5], Sampling(repetition_penalty=1.3)
    want = base(pair.target, prompt, n=50, sampling=law)
    assert say(pair.target, make(method, pair), prompt, n=50, sampling=law) == want
    assert base(pair.target, prompt, n=50) != want


# --- the user's own processors ----------------------------------------------------------------------------------------


class Twice:
    """Bans a token after two uses, in prompt or output."""

    def __init__(self) -> None:
        self.heard: list[int] = []

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.heard.append(int(input_ids[0, -1]))
        worn = [token for token, uses in Counter(self.heard).items() if uses >= 2]
        return scores.index_fill(1, torch.tensor(worn, dtype=torch.long), -torch.inf)


def with_twice(lm: LM, drafter: Drafter, **asked: Any) -> tuple[list[int], list[int]]:
    """The new tokens, and the tokens that the processor counted."""
    processor = Twice()
    new = say(lm, drafter, (1, 2, 3), sampling=Sampling(processors=(processor,), **asked))
    return new, processor.heard


@pytest.mark.parametrize("asked", [{}, {"temperature": 1, "seed": 3}], ids=["greedy", "coupled"])
def test_rejected_drafts_leave_no_trace_in_a_processor(asked: dict[str, Any]) -> None:
    """Fault 23: afterwards it has counted the committed tokens, once each; MIX[0,3,1,4] and every method."""
    truth, heard = with_twice(habit().target, Null(), **asked)
    assert heard == [3, *truth[:-1]]
    free = base(habit().target, (1, 2, 3), sampling=Sampling(**asked))
    assert max(Counter(truth).values()) == 2 < max(Counter(free).values())
    for k in (2, 8):
        assert with_twice(habit().target, mix(truth, (0, 3, 1, 4), k=k, vocab=23), **asked) == (truth, heard)
        for method in METHODS:
            pair = habit()
            assert with_twice(pair.target, make(method, pair, k), **asked) == (truth, heard), (method, k)


class Diary:
    """Writes down what it is asked, forks included."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def __deepcopy__(self, memo: Any) -> Diary:
        return self

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.asked.append(tuple(input_ids[0].tolist()))
        return scores


def test_processors_see_the_history_of_their_row() -> None:
    """Fault 28: row j is asked with the committed tokens and draft[:j], in every round, also after a rejection."""
    diary, truth = Diary(), base(habit().target, PROMPT, n=100)
    pattern = torch.randint(0, 5, (30,), generator=torch.Generator().manual_seed(1)).tolist()
    drafter = mix(truth, pattern, k=4, vocab=23)
    generation = begin(habit().target, drafter, PROMPT, n=100, sampling=Sampling(processors=(diary,)))
    for _ in range(30):
        del diary.asked[:]
        generation.step()
        turn = drafter.seen[-1]
        rows = [(*turn.prefix, *turn.draft.tokens[:j]) for j in range(turn.verdict.accepted + 1)]
        assert set(diary.asked) == set(rows)
    assert {turn.verdict.accepted for turn in drafter.seen} == {0, 1, 2, 3, 4}
    assert generation.sessions[0].new_tokens == truth[: len(generation.sessions[0].new_tokens)]


# --- bans and biases across the rows of a window ----------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_bans_hold_across_the_edge_of_a_window(method: str) -> None:
    """Fault 29: no bigram twice and never 4, 9, on a prompt that repeats itself."""

    def law(prefix: tuple[int, ...], i: int) -> Tensor:
        """Wants 4 often, and 9 after it."""
        liked = torch.zeros(23)
        liked[9 if prefix[-1] == 4 else 4] = 6.0
        return habit().target.law(prefix, i) + liked

    target, prompt = StubLM(law, 23), PROMPT * 2
    asked = Sampling(no_repeat_ngram_size=2, bad_words=((4, 9),))
    want = base(target, prompt, n=60, sampling=asked)
    assert say(target, make(method, habit(), k=6), prompt, n=60, sampling=asked) == want
    bigrams = Counter(pairwise([prompt[-1], *want]))
    assert max(bigrams.values()) == 1
    assert not set(bigrams) & set(pairwise(prompt))
    assert (4, 9) not in bigrams
    assert 4 in want
    assert (4, 9) in pairwise(base(target, prompt, n=60, sampling=Sampling(no_repeat_ngram_size=2)))


def test_a_banned_sequence_over_two_rounds() -> None:
    """Fault 29: 4 ends one round and 9 would begin the next."""
    script = [10, 11, 4, 9, 12, 13, 14, 4, 9, 15] * 3
    ends = set()
    for k in (1, 2, 3, 4):
        drafter = oracle(script, k=k)
        new = say(ScriptLM(script), drafter, [1], n=30, sampling=Sampling(bad_words=((4, 9),)))
        assert new == [0 if token == 9 else token for token in script], "0 is the first of the other ids"
        ends |= {turn.verdict.tokens[-1] for turn in drafter.seen}
    assert 4 in ends


def test_a_bias_reaches_every_row_of_a_window() -> None:
    """Fault 27: a token that the text holds five times is biased away from each of its places."""
    script = [10, 7, 11, 7, 12, 13, 7, 14, 15, 16, 7, 7]
    asked = Sampling(logit_bias={7: -100})
    want = base(ScriptLM(script), [1], n=12, sampling=asked)
    assert say(ScriptLM(script), oracle(script, k=4), [1], n=12, sampling=asked) == want
    assert want == [0 if token == 7 else token for token in script]


@pytest.mark.parametrize("rule", SAMPLED)
@pytest.mark.parametrize("method", METHODS)
def test_min_p_reaches_every_row_of_a_window(method: str, rule: str) -> None:
    """Fault 27: no token with p < .2 max p is emitted; 2400 tokens in all."""
    pair = habit()
    laws = [Sampling(temperature=1, min_p=0.2, seed=seed) for seed in range(5)]
    for session in run(pair.target, make(method, pair), *[PROMPT] * 5, n=40, rule=rule, sampling=laws):
        for end in range(len(PROMPT), len(session.tokens)):
            law = pair.target.law(tuple(session.tokens[:end]), end - len(PROMPT)).softmax(-1)
            assert law[session.tokens[end]] >= 0.2 * law.max() - 1e-6
