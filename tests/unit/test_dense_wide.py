"""Prompts read in bfloat16: close to what exact passes read, the same bits alone or among others, and only where they
may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from dense_helpers import STORED, logits, made, opened, tokens
from stubs import DENSE

from specdecode.models.dense import wide
from specdecode.models.dense.layout import OUT
from specdecode.models.dense.model import DenseModel
from specdecode.models.lm import read
from specdecode.types import Prompt, Row

LONG = tokens(150)
CLOSE = 0.05  # of the largest logit; bfloat16 keeps 8 bits, so each product is off by up to .4 %
ROUGH = [stored for stored in STORED if stored != "float32"]


@pytest.fixture(autouse=True)
def _bfloat16_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor that multiplies it fast; others compute the same, slowly."""
    monkeypatch.setattr(wide, "pays", lambda: True)


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many tokens each wide pass reads."""
    run, seen = wide.run, list[int]()

    def counting(w: Any, work: Any, *rest: Any) -> None:
        seen.append(len(work.positions))
        run(w, work, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(wide, "run", counting)
        yield seen


def read_wide(lm: DenseModel, *prompts: Sequence[int]) -> Any:
    cache = lm.open([Prompt(tuple(prompt)) for prompt in prompts])
    read(lm, cache, dict(enumerate(prompts)))
    return cache


def next_logits(lm: DenseModel, cache: Any, index: int = 0) -> torch.Tensor:
    return logits(lm, cache, Row(index, (5, 6, 7), (-1, 0, 0)))


def far(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference, as a share of the largest entry."""
    return float((a - b).abs().max() / b.abs().max())


@pytest.mark.parametrize("name", DENSE)
def test_what_was_read_is_close_to_an_exact_reading(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows, biases, norms of heads, ties and grouped heads included. Nor is it the same: it was read another way."""
    lm = made(name, "float16")
    with counted(monkeypatch) as seen:
        cache = read_wide(lm, LONG)
    assert seen == [len(LONG)]
    assert 0 < far(next_logits(lm, cache), next_logits(lm, opened(lm, LONG))) < CLOSE


@pytest.mark.parametrize("stored", ROUGH)
def test_whatever_the_weights_are_stored_in(stored: str) -> None:
    """Whole numbers in groups too, which fill up the last group with zeros: that of "llama" is not full."""
    for name in ("llama, biases", "qwen3, mixed") if stored.startswith("q") else ("llama", "qwen3, mixed"):
        lm = made(name, stored)
        assert 0 < far(next_logits(lm, read_wide(lm, LONG)), next_logits(lm, opened(lm, LONG))) < CLOSE


@pytest.mark.parametrize("name", DENSE)
def test_another_prompt_would_be_far(name: str) -> None:
    """Negative control of the tolerance."""
    lm, other = made(name, "float16"), (*LONG[:-30], *tokens(30, 1))
    assert far(next_logits(lm, read_wide(lm, other)), next_logits(lm, read_wide(lm, LONG))) > 3 * CLOSE


@pytest.mark.parametrize("stored", ROUGH)
@pytest.mark.parametrize("name", ["llama, biases", "qwen3, mixed"])
def test_a_prompt_read_alone_and_in_a_batch_has_the_same_bits(name: str, stored: str) -> None:
    """Plain and speculative decoding, one prompt and a batch of them, so start from the same cache."""
    lm, prompts = made(name, stored), [LONG, tokens(9, 1), tokens(70, 2), tokens(64, 3)]
    together = read_wide(lm, *prompts)
    for index, prompt in enumerate(prompts):
        alone = read_wide(lm, prompt)
        assert torch.equal(next_logits(lm, together, index), next_logits(lm, alone))


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen2, mixed"])
def test_a_prompt_may_be_read_in_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second piece sees the first, by windows too; the same bits alone and in a batch; short pieces are exact."""
    lm, other = made(name, "float16"), tokens(120, 8)

    def in_pieces(*prompts: Sequence[int]) -> Any:
        cache = lm.open([Prompt(tuple(prompt)) for prompt in prompts])
        for begin, end in ((0, 70), (70, 140), (140, 150)):
            read(lm, cache, {row: prompt[begin:end] for row, prompt in enumerate(prompts)})
        return cache

    with counted(monkeypatch) as seen:
        alone = in_pieces(LONG)
    assert seen == [70, 70]
    assert 0 < far(next_logits(lm, alone), next_logits(lm, opened(lm, LONG))) < CLOSE
    assert torch.equal(next_logits(lm, in_pieces(other, LONG), 1), next_logits(lm, alone))


@pytest.mark.parametrize("name", ["llama, biases", "qwen3, mixed"])
def test_taps_and_parts_of_the_stack_are_read_as_well(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = made(name, "float16")
    half, last = lm.n_layers // 2, lm.n_layers - 1
    lower, upper = range(half), range(half, lm.n_layers)

    def by_halves(ids: Sequence[int], cache: Any) -> list[torch.Tensor]:
        row = Row.chain(0, ids)
        (below,) = lm.score(cache, [row], layers=lower, taps=(half - 1,), logits=False)
        resumed = Row(0, row.tokens, row.parents, hidden=below.taps[half - 1])
        (above,) = lm.score(cache, [resumed], layers=upper, taps=(last,), logits=False)
        cache.keep(0, range(len(ids)))
        return [below.taps[half - 1], above.taps[last]]

    with counted(monkeypatch) as seen:
        cache = lm.open([Prompt(LONG)])
        halves = by_halves(LONG, cache)
        whole = lm.open([Prompt(LONG)])
        (scores,) = lm.score(whole, [Row.chain(0, LONG)], taps=(half - 1, last), logits=False)
    assert seen == [len(LONG)] * 3
    assert scores.logits.shape[0] == 0
    whole.keep(0, range(len(LONG)))
    assert torch.equal(halves[0], scores.taps[half - 1])
    assert torch.equal(halves[1], scores.taps[last])
    assert torch.equal(next_logits(lm, cache), next_logits(lm, whole))
    (exact,) = lm.score(lm.open([Prompt(LONG)]), [Row.chain(0, LONG)], taps=(half - 1, last))
    for layer in (half - 1, last):
        assert 0 < far(scores.taps[layer], exact.taps[layer]) < CLOSE


def test_nodes_hung_on_earlier_ones_see_them() -> None:
    """A long chain behind uncommitted nodes, without logits."""
    lm = made("llama", "float16")
    cache = lm.open([Prompt(LONG)])
    logits(lm, cache, Row.chain(0, LONG[:50]))
    lm.score(cache, [Row.chain(0, LONG[50:], start=50)], logits=False)
    cache.keep(0, range(len(LONG)))
    assert far(next_logits(lm, cache), next_logits(lm, opened(lm, LONG))) < CLOSE


def test_own_embeddings_are_read() -> None:
    lm = made("llama", "float16")
    vector = torch.randn(40, generator=torch.Generator().manual_seed(3))
    said = []
    for piece in (LONG, LONG[:-10]):
        row = Row(0, piece, tuple(range(-1, len(piece) - 1)), embeds={len(LONG) - 30: vector})
        cache = lm.open([Prompt(LONG)])
        lm.score(cache, [row], logits=False)
        cache.keep(0, range(len(piece)))
        if piece != LONG:
            read(lm, cache, {0: LONG[-10:]})
        said.append(next_logits(lm, cache))
    assert far(said[0], said[1]) < CLOSE
    assert far(said[0], next_logits(lm, read_wide(lm, LONG))) > 2 * CLOSE


def test_float32_is_never_read_so(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = made("llama", "float32")
    with counted(monkeypatch) as seen:
        cache = read_wide(lm, LONG)
    assert seen == []
    assert torch.equal(next_logits(lm, cache), next_logits(lm, opened(lm, LONG)))


def test_nor_where_bfloat16_does_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide, "pays", lambda: False)
    lm = made("llama", "float16")
    with counted(monkeypatch) as seen:
        cache = read_wide(lm, LONG)
    assert seen == []
    assert torch.equal(next_logits(lm, cache), next_logits(lm, opened(lm, LONG)))


def tree(lm: DenseModel, cache: Any) -> None:
    lm.score(cache, [Row(0, LONG, (-1, 0, 0, *range(2, len(LONG) - 1)))], logits=False)


READINGS: dict[str, tuple[Callable[[DenseModel, Any], Any], list[int]]] = {
    "one token too few": (lambda lm, cache: read(lm, cache, {0: LONG[: wide.LEAST - 1]}), []),
    "just enough": (lambda lm, cache: read(lm, cache, {0: LONG[: wide.LEAST]}), [wide.LEAST]),
    "two prompts, one short": (lambda lm, cache: read(lm, cache, {0: LONG, 1: LONG[:9]}), [len(LONG)]),
    "logits asked for": (lambda lm, cache: lm.score(cache, [Row.chain(0, LONG)]), []),
    "a tree": (tree, []),
}


@pytest.mark.parametrize("reading", READINGS)
def test_decoding_and_short_prompts_are_exact(reading: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = made("llama", "float16")
    ask, expected = READINGS[reading]
    with counted(monkeypatch) as seen:
        ask(lm, lm.open([Prompt(LONG), Prompt(LONG)]))
    assert seen == expected


@pytest.mark.parametrize("stored", STORED)
def test_matrices_are_unpacked_to_the_nearest_bfloat16(stored: str) -> None:
    """As torch rounds what is stored, ties to even."""
    packed = made("qwen3, mixed", stored)._packed
    panels = packed._kept[0][1][OUT]
    assert torch.equal(packed._matrix(1, OUT), panels.rows(torch.arange(32)).T.bfloat16())
