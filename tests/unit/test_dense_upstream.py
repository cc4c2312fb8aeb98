"""The fast runtime in float32 says what transformers says, for every kind of dense stack and every form of a pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from dense_helpers import logits, tokens, upstream
from stubs import DENSE, dense, primed
from torch import Tensor

from specdecode.models.dense import stack
from specdecode.models.dense.model import DenseModel
from specdecode.models.dense.stack import Layer, Stack
from specdecode.models.hf import HFModel
from specdecode.tree import path_to
from specdecode.types import Row, Sublayers

TOLERANCE = 1e-3  # logits reach 8, and those after random embeddings 30; the differences measured are below 2e-4
TREE = (-1, 0, 1, 0, 3, 3)  # node 0 is the newest token; two branches, one of which forks
DRAFT = (11, 22, 33, 44, 55)
PROMPTS = (tokens(1), tokens(12, 1), tokens(40, 2))  # windows are 8 wide


@cache
def model(name: str) -> Any:
    return dense(name)


@cache
def ours(name: str) -> DenseModel:
    return DenseModel(model(name), dtype=torch.float32)


@cache
def theirs(name: str) -> HFModel:
    return HFModel(model(name))


def branching(index: int) -> Row:
    return Row(index, (PROMPTS[index][-1], *DRAFT), TREE)


@pytest.mark.parametrize("name", DENSE)
def test_tree_nodes_equal_their_root_paths(name: str) -> None:
    lm = ours(name)
    rows = [branching(0), Row(1, (PROMPTS[1][-1], 9), (-1, 0)), branching(2)]
    for row, scores in zip(rows, lm.score(primed(lm, *PROMPTS), rows), strict=True):
        for node in range(len(row.tokens)):
            path = [row.tokens[i] for i in path_to(row.parents, node)]
            expected = upstream(model(name), [*PROMPTS[row.index][:-1], *path])[-1]
            assert (scores.logits[node] - expected).abs().max() < TOLERANCE


def trees_in_a_ragged_batch(lm: Any) -> list[Tensor]:
    """Three sessions of one batch: each keeps another path, two go on, and one has ended."""
    cache = primed(lm, *PROMPTS)
    out = [scores.logits for scores in lm.score(cache, [branching(2), branching(0), branching(1)])]
    for index, path in enumerate([(0,), (0, 3, 5), (0, 1, 2)]):
        cache.keep(index, path)
    out += [scores.logits for scores in lm.score(cache, [Row(2, (7, 8, 9), (-1, 0, 0)), Row(0, (4,), (-1,))])]
    cache.release(0)
    cache.keep(2, [0, 2])
    return out + [scores.logits for scores in lm.score(cache, [Row.chain(1, (5, 6, 7)), Row(2, (3,), (-1,))])]


def nodes_on_earlier_ones(lm: Any) -> list[Tensor]:
    """A draft that grows pass by pass, is cut back and grows again, before it is committed."""
    cache = primed(lm, PROMPTS[2])
    grown = [
        Row.chain(0, (PROMPTS[2][-1], 5)),
        Row(0, (6, 7, 8), (1, 1, 0), start=2),
        Row(0, (9, 10), (3, 4), start=5),
        Row(0, (12, 13), (1, 3), start=4),
    ]
    out = [logits(lm, cache, row) for row in grown]
    cache.keep(0, [0, 1, 3, 5])
    return [*out, logits(lm, cache, Row.chain(0, (1, 2)))]


def a_branch_longer_than_the_window(lm: Any) -> list[Tensor]:
    """A decoy comes first, so that the branch stands in slots that are not its positions."""
    row = Row(1, tokens(30, 5), (-1, 0, 0, *range(2, 29)))
    return [logits(lm, primed(lm, PROMPTS[2], PROMPTS[0]), row)]


def own_embeddings(lm: Any) -> list[Tensor]:
    cache = primed(lm, PROMPTS[1], PROMPTS[2])
    width = lm.score(cache, [Row(0, (1,), (-1,))], taps=(0,))[0].taps[0].shape[1]
    vectors = torch.randn(2, width, generator=torch.Generator().manual_seed(1))
    rows = [
        Row(1, (3, 0, 4), (-1, 0, 1), embeds={1: vectors[0]}),
        Row(0, (0, 5, 0), (-1, 0, 0), embeds={0: vectors[1], 2: vectors[0]}),
    ]
    return [scores.logits for scores in lm.score(cache, rows)]


def taps_of_every_layer(lm: Any) -> list[Tensor]:
    cache = primed(lm, PROMPTS[1], PROMPTS[2])
    scores = lm.score(cache, [branching(1), Row(0, (3,), (-1,))][::-1], taps=tuple(range(lm.n_layers)))
    return [s.taps[layer] for s in scores for layer in range(lm.n_layers)] + [s.logits for s in scores]


def a_subset_of_layers(lm: Any) -> list[Tensor]:
    cache = primed(lm, PROMPTS[1])
    some = (0, *range(2, lm.n_layers))
    (scores,) = lm.score(cache, [Row(0, (3, *DRAFT), TREE)], layers=some, taps=some)
    return [scores.logits, *scores.taps.values()]


def parts_of_layers(lm: Any) -> list[Tensor]:
    cache, last = primed(lm, PROMPTS[1]), lm.n_layers - 1
    some = Sublayers(attention=tuple(range(last)), feed_forward=tuple(range(1, lm.n_layers)))
    (scores,) = lm.score(cache, [Row(0, (3, *DRAFT), TREE)], layers=some, taps=some.layers)
    return [scores.logits, *scores.taps.values()]


def the_head_alone(lm: Any) -> list[Tensor]:
    """Every layer drafts, and none is left to verify with."""
    cache, row, last = primed(lm, PROMPTS[1]), Row(0, (3, *DRAFT), TREE), lm.n_layers - 1
    (whole,) = lm.score(cache, [row], taps=(last,))
    (again,) = lm.score(cache, [replace(row, hidden=whole.taps[last])], layers=())
    assert torch.equal(whole.logits, again.logits)
    return [again.logits]


def an_exited_layer_resumed(lm: Any) -> list[Tensor]:
    """The lower half drafts, one token a pass; the upper half goes through all of it at once."""
    cache = primed(lm, PROMPTS[2], PROMPTS[1])
    half, hidden = lm.n_layers // 2, []
    lower, upper = tuple(range(half)), tuple(range(half, lm.n_layers))
    for i, token in enumerate(DRAFT[:3]):
        rows = [Row(0, (token,), (i - 1,), start=i), Row(1, (token + 1,), (i - 1,), start=i)]
        hidden.append([s.taps[half - 1] for s in lm.score(cache, rows, layers=lower, taps=(half - 1,))])
    first, second = (torch.cat(states) for states in zip(*hidden, strict=True))
    chain = tuple(range(-1, 2))
    rows = [
        Row(0, DRAFT[:3], chain, hidden=first),
        Row(1, tuple(t + 1 for t in DRAFT[:3]), chain, hidden=second),
    ]
    out = [scores.logits for scores in lm.score(cache, rows, layers=upper)]
    cache.keep(0, [0, 1])
    return [*out, logits(lm, cache, Row(0, (9,), (-1,)))]


FORMS: list[Callable[[Any], list[Tensor]]] = [
    trees_in_a_ragged_batch,
    nodes_on_earlier_ones,
    a_branch_longer_than_the_window,
    own_embeddings,
    taps_of_every_layer,
    a_subset_of_layers,
    parts_of_layers,
    the_head_alone,
    an_exited_layer_resumed,
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", DENSE)
def test_a_pass_of_any_form_is_what_the_other_runtime_makes_of_it(
    name: str, form: Callable[[Any], list[Tensor]]
) -> None:
    """Faults 62, 63, 110 and 111 on the fast runtime."""
    for ours_, theirs_ in zip(form(ours(name)), form(theirs(name)), strict=True):
        assert ours_.shape == theirs_.shape
        assert (ours_ - theirs_).abs().max() < TOLERANCE


def of_layers(change: Callable[[Layer], dict[str, Any]]) -> Callable[[Stack], Stack]:
    return lambda parts: replace(parts, layers=tuple(replace(layer, **change(layer)) for layer in parts.layers))


def without(biases: tuple[Tensor | None, ...], which: int) -> tuple[Tensor | None, ...]:
    return tuple(None if i == which else bias for i, bias in enumerate(biases))


MISTAKES: dict[str, tuple[str, Callable[[Stack], Stack]]] = {
    **{
        f"no bias of the {part}": ("llama, biases", of_layers(lambda x, i=i: {"biases": without(x.biases, i)}))  # type: ignore[misc]
        for i, part in enumerate(("query", "key", "value", "output"))
    },
    **{
        f"no bias of the {part} part": (
            "llama, biases",
            of_layers(lambda x, i=i: {"feed_biases": without(x.feed_biases, i)}),  # type: ignore[misc]
        )
        for i, part in enumerate(("gate", "up", "down"))
    },
    "no window": ("mistral", of_layers(lambda layer: {"window": 0})),
    "windows in all layers": ("qwen2, mixed", of_layers(lambda layer: {"window": 8})),
    "a window of one more": ("qwen3, mixed", of_layers(lambda layer: {"window": layer.window and 9})),
    "no norms of heads": ("qwen3", of_layers(lambda layer: {"head_norms": None})),
    "frequencies not scaled": ("llama", lambda parts: replace(parts, frequencies=parts.frequencies * 4)),
    "scores not scaled": ("llama, tied", lambda parts: replace(parts, attention_scale=1.0)),
    "another epsilon": ("qwen2", lambda parts: replace(parts, eps=0.1)),
    "no last norm": ("llama", lambda parts: replace(parts, last_norm=torch.ones_like(parts.last_norm))),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_any_part_would_be_seen(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: each part of a stack matters to these logits."""
    name, change = MISTAKES[mistake]
    wrong = change(stack.read(model(name)))
    monkeypatch.setattr(stack, "read", lambda _: wrong)
    lm = DenseModel(model(name), dtype=torch.float32)
    said = logits(lm, primed(lm, PROMPTS[2]), Row(0, (PROMPTS[2][-1],), (-1,)))[0]
    assert (said - upstream(model(name), PROMPTS[2])[-1]).abs().max() > 30 * TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision_are_computed_with_in_full(dtype: torch.dtype) -> None:
    """Upstream in float32 over rounded matrices: storing is the only loss."""
    for name in ("qwen3", "llama, biases"):
        rounded = dense(name)
        with torch.no_grad():
            for parameter in rounded.parameters():
                if parameter.dim() == 2:
                    parameter.copy_(parameter.to(dtype))
        lm = DenseModel(model(name), dtype=dtype)
        said = logits(lm, primed(lm, PROMPTS[2]), Row(0, (PROMPTS[2][-1],), (-1,)))[0]
        assert (said - upstream(rounded, PROMPTS[2])[-1]).abs().max() < TOLERANCE
        assert (said - upstream(model(name), PROMPTS[2])[-1]).abs().max() > TOLERANCE


def test_eight_bits_stay_close() -> None:
    """No promise of equality: the largest of 97 logits, which reach 8, moves by less than 5 %."""
    lm = DenseModel(model("llama"), dtype=torch.int8)
    said = logits(lm, primed(lm, PROMPTS[2]), Row(0, (PROMPTS[2][-1],), (-1,)))[0]
    difference = (said - upstream(model("llama"), PROMPTS[2])[-1]).abs().max()
    assert TOLERANCE < difference < 0.4


def test_padding_of_the_vocabulary_is_cut_off() -> None:
    lm = DenseModel(dense("llama", vocab_size=104), vocab=97, dtype=torch.float32)
    assert lm.vocab == 97
    assert logits(lm, primed(lm, (1,)), Row(0, (1,), (-1,))).shape == (1, 97)


def test_the_model_that_was_read_is_needed_no_longer_and_left_as_it_was() -> None:
    source = dense("llama")
    before = {name: p.clone() for name, p in source.state_dict().items()}
    lm = DenseModel(source, dtype=torch.float16)
    cache = primed(lm, PROMPTS[2])
    said = logits(lm, cache, branching(0))
    assert all(torch.equal(p, before[name]) for name, p in source.state_dict().items())
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.zero_()
    assert torch.equal(logits(lm, cache, branching(0)), said)


def test_a_cache_begun_in_inference_mode_outlives_it() -> None:
    with torch.inference_mode():
        lm = DenseModel(model("llama"), dtype=torch.float16)
        cache = primed(lm, tokens(100))
    assert logits(lm, cache, branching(0)).isfinite().all()
