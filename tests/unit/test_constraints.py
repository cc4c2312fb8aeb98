"""constraints.py: the law of each row is the one that transformers' `generate` would draw from, whatever was drafted,
and the user's own processors end up as if nothing had been drafted."""

from __future__ import annotations

import copy
import math
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM
from transformers.generation.logits_process import TopPLogitsWarper

from specdecode.constraints import NUCLEUS, FilteredRows, Filters
from specdecode.errors import BadOption
from specdecode.sampling import Keyed, Sampling
from specdecode.types import EMPTY, Draft
from specdecode.verify.greedy import Greedy

INF = math.inf
V = 97
EOS = 96
Draw = Callable[[list[int]], Draft]

# Each option in our words and in transformers'.
OPTIONS = {
    "nothing": ({}, {}),
    "temperature": ({"temperature": 0.7}, {"temperature": 0.7}),
    "top_k": ({"top_k": 5}, {"top_k": 5}),
    "top_p": ({"top_p": 0.8}, {"top_p": 0.8}),
    "min_p": ({"min_p": 0.2}, {"min_p": 0.2}),
    "typical_p": ({"typical_p": 0.6}, {"typical_p": 0.6}),
    "repetition_penalty": ({"repetition_penalty": 1.3}, {"repetition_penalty": 1.3}),
    "logit_bias": ({"logit_bias": {3: 2.5, 9: -INF}}, {"sequence_bias": [[[3], 2.5], [[9], -INF]]}),
    "bad_words": ({"bad_words": ((3,), (4, 9), (5, 4, 8), (EOS,))}, {"bad_words_ids": [[3], [4, 9], [5, 4, 8], [EOS]]}),
    "only the end as a bad word": ({"bad_words": ((EOS,),)}, {"bad_words_ids": [[EOS]]}),
    "no_repeat_ngram_size": ({"no_repeat_ngram_size": 2}, {"no_repeat_ngram_size": 2}),
    "unigrams": ({"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 1}),
    "suppress": ({"suppress": (1, 2, 40)}, {"suppress_tokens": [1, 2, 40]}),
}
TOGETHER = ["temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "logit_bias", "bad_words"]
OPTIONS["together"] = tuple(
    {k: v for name in [*TOGETHER, "suppress"] for k, v in OPTIONS[name][i].items()} for i in (0, 1)
)
OURS_ALONE = {"presence_penalty": 0.7, "frequency_penalty": 0.4}


def filters_of(options: dict, prompt_length: int = 4, **more: object) -> Filters:
    return Filters(Sampling(**options), prompt_length=prompt_length, vocab=V, **more)


def upstream(options: dict, prompt_length: int, do_sample: bool, min_new_tokens: int | None) -> Callable[..., Tensor]:
    """The processors that transformers' `generate` would run."""
    config = GenerationConfig(
        **{"top_k": 0, **options}, do_sample=do_sample, eos_token_id=EOS, pad_token_id=0, min_new_tokens=min_new_tokens
    )
    config._eos_token_tensor = torch.tensor([EOS])
    return TINY._get_logits_processor(config, input_ids_seq_length=prompt_length, device="cpu")


def tiny() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=V,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=256,
        initializer_range=0.5,
    )
    return LlamaForCausalLM(config).eval()


TINY = tiny()
# A target that sees one token only: row [token] is its logits. Its greedy text runs in a circle:
# 53 10 25 77 47 73 79 90 25 77 47 73 79 90 25 ...
MARKOV = torch.randn(V, V, generator=torch.Generator().manual_seed(13)) * 2
MARKOV.fill_diagonal_(-20)


def plain(filters: Filters, prompt: Sequence[int], n: int) -> list[int]:
    return speculative(filters, prompt, n, lambda tokens: EMPTY)


def speculative(filters: Filters, prompt: Sequence[int], n: int, draw: Draw) -> list[int]:
    """What the engine does with a session's filters, on the Markov target."""
    tokens = list(prompt)
    while (left := n - len(tokens) + len(prompt)) > 0 and tokens[-1] != EOS:
        draft = draw(tokens)
        rows = filters.rows(MARKOV[[tokens[-1], *draft.tokens]], tokens, draft)
        verdict = Greedy().verify(draft, rows, None, len(tokens)).clip(left)
        if EOS in verdict.tokens:
            verdict = verdict.clip(verdict.tokens.index(EOS) + 1)
        filters.commit(rows, verdict.path)
        tokens.extend(verdict.tokens)
    return tokens[len(prompt) :]


def drafter(truth: Sequence[int], seed: int, good: float = 0.75, most: int = 9) -> Draw:
    """Random trees whose nodes continue the true path (prompt and output) with probability `good`."""
    rng = random.Random(seed)

    def draw(tokens: list[int]) -> Draft:
        drafted: list[int] = []
        parents: list[int] = []
        ahead = [len(tokens)]  # index of the true token behind each row
        for node in range(rng.randint(0, most)):
            row = rng.choice([0, node, node, node])
            true = truth[ahead[row]] if ahead[row] < len(truth) else EOS
            drafted.append(true if rng.random() < good else rng.randrange(V))
            parents.append(row - 1)
            ahead.append(ahead[row] + 1)
        return Draft(tuple(drafted), tuple(parents))

    return draw


def chains(truth: Sequence[int], lengths: Sequence[int]) -> Draw:
    """Chains of true tokens followed by a wrong one, of the given lengths in turn; past the end they go on."""
    turns = iter(range(10**6))

    def draw(tokens: list[int]) -> Draft:
        n = lengths[next(turns) % len(lengths)]
        return Draft.chain([*truth[len(tokens) : len(tokens) + n], 11, 12])

    return draw


# --- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "options", "want"),
    [
        ([0.5, 0.3, 0.15, 0.05], {"top_p": 0.7}, [0.625, 0.375, 0, 0]),
        ([0.5, 0.3, 0.15, 0.05], {"top_k": 3}, [0.5263, 0.3158, 0.1579, 0]),
        ([0.5, 0.3, 0.15, 0.05], {"top_p": 0.7, "temperature": 0.5}, [0.7353, 0.2647, 0, 0]),
        ([0.5, 0.3, 0.15, 0.05], {"top_p": 0.7, "temperature": 2}, [0.4306, 0.3335, 0.2358, 0]),
        ([0.5, 0.3, 0.15, 0.05], {"top_p": 0.7, "top_k": 3, "temperature": 2}, [0.5635, 0.4365, 0, 0]),
        ([0.3, 0.4, 0.2, 0.1], {"top_k": 2}, [0.4286, 0.5714, 0, 0]),
        ([0.4, 0.3, 0.2, 0.1], {"top_k": 2}, [0.5714, 0.4286, 0, 0]),
        ([0.5, 0.3, 0.15, 0.05], {"min_p": 0.2}, [0.5263, 0.3158, 0.1579, 0]),
        ([0.5, 0.25, 0.125, 0.125], {"top_p": 0.75}, [0.6667, 0.3333, 0, 0]),
        ([0.5, 0.3, 0.15, 0.05], {"temperature": 1, "suppress": (0,)}, [0, 0.6, 0.3, 0.1]),
        ([0.5, 0.3, 0.15, 0.05], {"temperature": 1, "logit_bias": {3: math.log(10)}}, [0.3448, 0.2069, 0.1034, 0.3448]),
        ([0.5, 0.3, 0.15, 0.05], {"temperature": 1}, [0.5, 0.3, 0.15, 0.05]),
    ],
)
def test_laws_worked_out_by_hand(raw: list[float], options: dict, want: list[float]) -> None:
    """Faults 10, 11 and 81: p and q alike are filtered, in full, before any rule or draw sees them."""
    logits = torch.tensor(raw).log()
    filters = Filters(Sampling(**options), prompt_length=1, vocab=4)
    for law in (filters.apply(logits, [0]), filters.rows(logits[None], [0], EMPTY)[0]):
        torch.testing.assert_close(law.softmax(-1), torch.tensor(want), atol=1e-4, rtol=0)


def test_presence_and_frequency_count_generated_tokens_only() -> None:
    filters = filters_of({**OURS_ALONE, "temperature": 1}, prompt_length=3)
    law = filters.apply(torch.zeros(V), [5, 5, 6, 6, 7, 7, 7])
    want = torch.zeros(V)
    want[6], want[7] = -0.7 - 0.4, -0.7 - 3 * 0.4
    torch.testing.assert_close(law, want)


@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", OPTIONS)
def test_rows_equal_those_of_transformers(name: str, greedy: bool) -> None:
    """Fault 26 (the filters' share of it): each option and several together, bit for bit, for target and drafter."""
    ours, theirs = OPTIONS[name]
    sampling = {**ours, "temperature": 0 if greedy else ours.get("temperature", 1.0)}
    rng = random.Random(3)
    for minimum in (0, 6):
        filters = filters_of(sampling, min_new_tokens=minimum, eos_ids=(EOS,))
        processors = upstream(theirs, 4, not greedy, minimum)
        for length in (4, 5, 9, 10, 40):
            prefix = [rng.choice((3, 4, 5, 8, rng.randrange(V))) for _ in range(length)]
            logits = torch.randn(V, generator=torch.Generator().manual_seed(length)) * 3
            want = processors(torch.tensor([prefix]), logits[None].clone())[0]
            assert torch.equal(filters.apply(logits, prefix), want)
            assert torch.equal(filters.rows(logits[None], prefix, EMPTY)[0], want)
            draft = Draft.chain(prefix[-2:])
            assert torch.equal(filters.rows(logits.expand(3, V), prefix[:-2], draft)[2], want)


@pytest.mark.parametrize("name", ["repetition_penalty", "no_repeat_ngram_size", "bad_words", "logit_bias", "suppress"])
def test_greedy_text_equals_that_of_transformers(name: str) -> None:
    """Fault 22: a penalty on the speculative path acts as in plain decoding, and it acts."""
    prompt = [5, 4, 3, 5, 4]
    more = {"do_sample": False, "max_new_tokens": 30, "min_new_tokens": 30, "eos_token_id": EOS, "pad_token_id": 0}
    ids, mask = torch.tensor([prompt]), torch.ones(1, 5, dtype=torch.long)

    def generate(**options: object) -> list[int]:
        return TINY.generate(ids, attention_mask=mask, **options, **more)[0, len(prompt) :].tolist()

    ours, theirs = OPTIONS[name]
    want = generate(**theirs)
    filters = filters_of(ours, len(prompt), min_new_tokens=30, eos_ids=(EOS,))
    tokens = list(prompt)
    with torch.no_grad():
        while len(tokens) < 35:
            draft = Draft.chain([*(want[len(tokens) - 5 :][:4]), 7])
            logits = TINY(torch.tensor([[*tokens, *draft.tokens]])).logits[0, len(tokens) - 1 :].float()
            rows = filters.rows(logits, tokens, draft)
            verdict = Greedy().verify(draft, rows, None, len(tokens)).clip(35 - len(tokens))
            filters.commit(rows, verdict.path)
            tokens += verdict.tokens
    assert tokens[5:] == want
    if name == "repetition_penalty":
        assert want != generate()


def test_a_greedy_session_is_penalised_but_not_truncated() -> None:
    logits = torch.tensor([3.0, 2.0, 1.0, 0.0])
    filters = Filters(Sampling(temperature=0, top_k=1, top_p=0.1, suppress=(0,)), prompt_length=1, vocab=4)
    assert filters.apply(logits, [0]).tolist() == [-INF, 2, 1, 0]


@pytest.mark.parametrize("temperature", [1e-6, 1e-7, 1e-20, 1e-30, 1e-40, 1e-46, 5e-324])
def test_a_tiny_temperature_neither_overflows_nor_breaks_ties(temperature: float) -> None:
    logits = torch.tensor([-30.0, 40.0, 39.99, 40.0, -INF])
    law = Filters(Sampling(temperature=temperature), prompt_length=1, vocab=5).apply(logits, [0])
    torch.testing.assert_close(law.softmax(-1), torch.tensor([0, 0.5, 0, 0.5, 0]))


@given(
    size=st.sampled_from([2, 20, NUCLEUS - 1, NUCLEUS, NUCLEUS + 1, 4 * NUCLEUS]),
    seed=st.integers(0, 10**6),
    mass=st.floats(0.01, 0.999),
    scale=st.sampled_from([0.0, 0.1, 1.0, 4.0]),
    step=st.sampled_from([2.0**-20, 0.5]),
)
@settings(max_examples=150, deadline=None)
def test_the_nucleus_is_that_of_transformers(size: int, seed: int, mass: float, scale: float, step: float) -> None:
    """As many tokens, with the same logits; which of several equals at its edge are in it is left open."""
    row = torch.randn(size, generator=torch.Generator().manual_seed(seed)) * scale
    row = (row / step).round() * step  # a large step makes equals
    row[seed % size] = -INF
    ours = Filters(Sampling(top_p=mass), prompt_length=1, vocab=size).apply(row, [0])
    theirs = TopPLogitsWarper(mass)(None, row[None])[0]
    reached = row.softmax(-1).sort(descending=True).values.double().cumsum(0)
    if (reached - mass).abs().min() > 1e-5:  # else rounding decides
        assert torch.equal(ours.sort().values, theirs.sort().values)
    assert torch.equal(ours[ours > -INF], row[ours > -INF])


def test_min_p_holds_for_every_draw() -> None:
    """Fault 27: no drawn token has p < .2 max p."""
    filters, noise = filters_of({"min_p": 0.2}), Keyed(3, V)
    for t in range(500):
        row = MARKOV[t % V]
        p = row.softmax(-1)
        assert p[noise.draw(filters.apply(row, [1]), t)] >= 0.2 * p.max() * 0.9999


# --- rows -------------------------------------------------------------------------------------------------------------


def test_without_options_rows_are_handed_on() -> None:
    logits = torch.randn(3, V)
    filters, row = filters_of({}, min_new_tokens=2, eos_ids=()), logits[0]
    assert filters.apply(row, [1, 2]) is row
    rows = filters.rows(logits, [1, 2], Draft.chain([3, 4]))
    assert [rows[i].data_ptr() for i in range(3)] == [logits[i].data_ptr() for i in range(3)]
    ended = filters_of({}, prompt_length=1, min_new_tokens=2, eos_ids=(EOS,))
    assert ended.apply(logits[0], [1, 2, 3]).data_ptr() == logits.data_ptr()


def test_transformers_is_imported_only_for_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers.generation", None)  # importing it fails
    filters = filters_of({"suppress": (1,), "temperature": 0.5}, min_new_tokens=2, eos_ids=(EOS,))
    assert filters.apply(torch.zeros(V), [0])[1] == -INF
    with pytest.raises(ImportError):
        filters_of({"top_k": 3})


@pytest.mark.parametrize("options", [*(ours for ours, _ in OPTIONS.values()), OURS_ALONE], ids=str)
def test_inputs_are_never_changed(options: dict) -> None:
    """Fault 13 (the filters' share of it)."""
    for temperature in (0, 1.0):
        filters = filters_of({"temperature": temperature, **options}, min_new_tokens=5, eos_ids=(EOS,))
        check_inputs_stay(filters)


def test_a_processor_may_write_into_its_arguments() -> None:
    def vandal(input_ids: Tensor, scores: Tensor) -> Tensor:
        input_ids.zero_()
        return scores.zero_()

    def witness(input_ids: Tensor, scores: Tensor) -> Tensor:
        assert input_ids[0, :5].tolist() == [5, 4, 3, 5, 4]
        return scores + 1

    check_inputs_stay(filters_of({"processors": (vandal, witness, vandal)}))


def check_inputs_stay(filters: Filters) -> None:
    logits, tokens, draft = MARKOV[:4].clone(), [5, 4, 3, 5, 4], Draft.chain([5, 4, 3])
    rows = filters.rows(logits, tokens, draft)
    laws = [rows[i].clone() for i in range(4)]
    filters.apply(logits[0], [*tokens, 5])
    filters.commit(rows, (0, 1))
    assert torch.equal(logits, MARKOV[:4])
    assert tokens == [5, 4, 3, 5, 4]
    assert all(torch.equal(rows[i], laws[i]) for i in range(4))


@given(seed=st.integers(0, 10**6), order=st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_a_row_depends_on_its_own_path_alone(seed: int, order: random.Random) -> None:
    """In whatever order rows are read, each is what `apply` makes of its prefix (without processors)."""
    options = {"repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "bad_words": ((4, 9), (3, 4, 5)), **OURS_ALONE}
    tokens = [random.Random(seed).randrange(6) for _ in range(12)]
    draft = drafter([*tokens, 1, 2, 3, 4, 5], seed)(tokens)
    logits = MARKOV[[tokens[-1], *draft.tokens]]
    rows = filters_of(options).rows(logits, tokens, draft)
    for row in order.sample(range(len(draft) + 1), len(draft) + 1):
        path, node = [], row - 1
        while node >= 0:
            path.insert(0, draft.tokens[node])
            node = draft.parents[node]
        assert torch.equal(rows[row], filters_of(options).apply(logits[row], (*tokens, *path)))


def test_prefixes_need_not_share_a_beginning() -> None:
    """Filters remember the committed tokens; a prefix that does not begin with them is still honoured."""
    filters, logits = filters_of({"repetition_penalty": 2.0}, prompt_length=1), torch.ones(V)
    for tokens in ([1, 2, 3], [1, 2, 3, 4], [7], [7, 8, 9, 10, 11, 12], [1, 2], list(range(90))):
        rows = filters.rows(logits.expand(2, V), tokens, Draft.chain([93]))
        for prefix in ([5], [*tokens, 6], tuple(tokens), [6, *tokens]):
            assert (filters.apply(logits, prefix) < 1).nonzero().flatten().tolist() == sorted(set(prefix))
        assert (rows[0] < 1).nonzero().flatten().tolist() == sorted(tokens)
        assert (rows[1] < 1).nonzero().flatten().tolist() == sorted([*tokens, 93])


def test_rows_of_an_earlier_step_are_not_read() -> None:
    filters = filters_of({"repetition_penalty": 2.0})
    old = filters.rows(MARKOV[:2], [1, 2], Draft.chain([3]))
    filters.rows(MARKOV[:1], [1, 2, 3], EMPTY)
    with pytest.raises(AssertionError, match="earlier step"):
        old[1]
    with pytest.raises(AssertionError, match="row 2"):
        old[2]


def test_minimum_length_counts_within_a_window() -> None:
    """Fault 47: rows of one window are barred from ending below the minimum, and not from there on."""
    filters = filters_of({}, prompt_length=3, min_new_tokens=6, eos_ids=(EOS, 95, 200))
    rows = filters.rows(torch.zeros(5, V), list(range(3 + 4)), Draft.chain([1, 2, 3, 4]))
    assert [rows[i][EOS].item() for i in range(5)] == [-INF, -INF, 0, 0, 0]
    assert [rows[i][95].item() for i in range(5)] == [-INF, -INF, 0, 0, 0]
    assert torch.isfinite(torch.stack([rows[i][:95] for i in range(5)])).all()


PROMPT = (5, 4, 9, 5, 4)
PARITY = {
    "repetition_penalty": {"repetition_penalty": 1.6},
    "presence and frequency": {"presence_penalty": 1.5, "frequency_penalty": 1.0},
    "logit_bias": {"logit_bias": dict.fromkeys(range(1, 90, 2), -100.0)},
    "bigrams and words": {"no_repeat_ngram_size": 2, "bad_words": ((25, 77), (10,))},
    "words": {"bad_words": ((25, 77), (47, 73, 79))},
    "suppress": {"suppress": tuple(range(40))},
}


@pytest.mark.parametrize("name", PARITY)
def test_drafts_change_nothing(name: str) -> None:
    """Faults 22, 27 and 29: greedy text under penalties and bans is that of plain decoding, also where a banned
    sequence would lie across the edge of two windows; and the option did act."""

    def make(options: dict) -> Filters:
        return filters_of(options, len(PROMPT), min_new_tokens=60, eos_ids=(EOS,))

    want = plain(make(PARITY[name]), PROMPT, 60)
    assert want != plain(make({}), PROMPT, 60)
    truth = [*PROMPT, *want]
    for draw in (chains(truth, (6,)), chains(truth, (0, 3, 1, 4)), *(drafter(truth, seed) for seed in range(4))):
        assert speculative(make(PARITY[name]), PROMPT, 60, draw) == want
    bigrams = Counter(pairwise(truth))
    if "words" in name:
        assert 25 in want
        assert (25, 77) not in bigrams
    if "bigrams" in name:
        assert max(bigrams.values()) == 2 == bigrams[5, 4]  # the prompt repeats it
    if name == "logit_bias":
        assert all(t % 2 == 0 or t >= 90 for t in want)


# --- the user's own processors ----------------------------------------------------------------------------------------


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


def with_processor(processor: Callable, **options: object) -> Filters:
    return filters_of({"processors": (processor,), **options}, len(PROMPT), eos_ids=(EOS,))


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
    for answer, found in ((None, "NoneType"), (torch.zeros(V), r"\(97,\)"), (torch.zeros(1, 5), r"\(1, 5\)")):
        filters = filters_of({"processors": (lambda ids, scores, answer=answer: answer,)})
        with pytest.raises(BadOption, match=rf"must return scores of shape \(1, 97\), returned {found}"):
            filters.rows(MARKOV[:1], [1, 2], EMPTY)[0]


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_an_id_outside_the_vocabulary_is_refused_at_once() -> None:
    with pytest.raises(BadOption, match="suppress names token 97"):
        filters_of({"suppress": (97,)})


def test_no_token_left_is_an_error_where_it_is_emitted_and_only_there() -> None:
    """Everything is banned behind token 3 only. A rule may read that row; emitting from it is refused."""

    def dead_end(input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores.fill_(-INF) if int(input_ids[0, -1]) == 3 else scores

    filters = filters_of({"processors": (dead_end,)})
    rows = filters.rows(torch.zeros(3, V), [1, 2], Draft((3, 4), (-1, -1)))
    assert not (rows[1] > -INF).any()
    filters.commit(rows, (1,))
    rows = filters.rows(torch.zeros(2, V), [1, 2, 5], Draft.chain([3]))
    with pytest.raises(BadOption, match="no token may stand at position 4"):
        filters.commit(rows, (0,))
    everything = filters_of({"suppress": tuple(range(V))})
    with pytest.raises(BadOption, match="no token may stand at position 2"):
        everything.commit(everything.rows(MARKOV[:1], [1, 2], EMPTY), ())


def test_nan_from_a_processor_is_an_error() -> None:
    filters: Filters = filters_of({"processors": (lambda ids, scores: scores * math.nan,)})
    rows: FilteredRows = filters.rows(MARKOV[:1], [1, 2], EMPTY)
    with pytest.raises(BadOption, match="no token may stand"):
        filters.commit(rows, ())
