"""transformers models as LMs: rows, trees, windows, rollback, taps, layer subsets, embeddings, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from stubs import TINY, primed, tiny

from specdecode.models import stack
from specdecode.models.attention import register
from specdecode.models.hf import HFModel
from specdecode.models.lm import CHUNK
from specdecode.tree import path_to
from specdecode.types import Prompt, Row, Sublayers

# Gemma 2 caps its attention scores, which upstream offers in eager attention only.
BACKENDS = {"gemma2": ("eager",)}
KINDS = ["llama", "qwen2", "mistral", "gpt2", "gemma2", "gemma3_text"]
SERVED = [(kind, backend) for kind in KINDS for backend in BACKENDS.get(kind, ("eager", "sdpa", "tree_sdpa"))]
TREE = (-1, 0, 1, 0, 3, 3)  # node 0 is the newest token; two branches, one of which forks
TOKENS = (11, 22, 33, 44, 55)
TOLERANCE = 1e-4


def prompts(*lengths: int) -> list[Prompt]:
    rng = torch.Generator().manual_seed(7)
    return [Prompt(tuple(torch.randint(0, 97, (n,), generator=rng).tolist())) for n in lengths]


def fresh(model: Any, ids: list[int]) -> torch.Tensor:
    """[V] upstream's logits after `ids`, without any cache."""
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
    return logits


def path_tokens(row: Row, node: int) -> list[int]:
    return [row.tokens[i] for i in path_to(row.parents, node)]


@pytest.mark.parametrize(("kind", "backend"), SERVED)
def test_tree_nodes_equal_their_root_paths(kind: str, backend: str) -> None:
    """Fault 111: the tree mask is honoured by every attention back-end that is let in. Also fault 63: windowed
    layers."""
    register()
    model = tiny(kind, attention=backend)
    lm = HFModel(model)
    asked = prompts(1, 5, 20)
    cache = primed(lm, *(p.ids for p in asked))
    assert cache.lengths == (0, 4, 19)
    rows = [Row(i, (p.ids[-1], *TOKENS), TREE) for i, p in enumerate(asked)]
    rows[1] = Row(1, (asked[1].ids[-1], 9), (-1, 0))
    for row, scores in zip(rows, lm.score(cache, rows), strict=True):
        for node in range(len(row.tokens)):
            expected = fresh(model, [*asked[row.index].ids[:-1], *path_tokens(row, node)])
            assert (scores.logits[node] - expected).abs().max() < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_cached_logits_equal_fresh_ones_after_every_acceptance(kind: str) -> None:
    """Fault 62: whatever was accepted, the cache then covers exactly that. Branches, chains, nothing, everything."""
    model = tiny(kind)
    lm = HFModel(model)
    (prompt,) = prompts(12)
    for path in [(0,), (0, 1), (0, 1, 2), (0, 3), (0, 3, 4), (0, 3, 5)]:
        cache = primed(lm, prompt.ids)
        row = Row(0, (prompt.ids[-1], *TOKENS), TREE)
        lm.score(cache, [row])
        cache.keep(0, path)
        committed = [*prompt.ids[:-1], *(row.tokens[i] for i in path)]
        assert cache.lengths == (len(committed),)
        logits = lm.score(cache, [Row(0, (7, 8), (-1, 0))])[0].logits
        assert (logits[1] - fresh(model, [*committed, 7, 8])).abs().max() < TOLERANCE


def test_rows_end_without_touching_the_others() -> None:
    model = tiny("mistral")
    lm = HFModel(model)
    asked = prompts(3, 30, 9)
    cache = primed(lm, *(p.ids for p in asked))
    cache.release(1)
    scores = lm.score(cache, [Row(2, (4, 6), (-1, 0)), Row(0, (asked[0].ids[-1],), (-1,))])
    assert (scores[0].logits[1] - fresh(model, [*asked[2].ids[:-1], 4, 6])).abs().max() < TOLERANCE
    assert (scores[1].logits[0] - fresh(model, list(asked[0].ids))).abs().max() < TOLERANCE


def test_rows_left_out_of_a_pass_keep_their_uncommitted_nodes() -> None:
    model = tiny("llama")
    lm = HFModel(model)
    asked = prompts(4, 6)
    cache = primed(lm, *(p.ids for p in asked))
    lm.score(cache, [Row(i, (p.ids[-1], 5), (-1, 0)) for i, p in enumerate(asked)])
    lm.score(cache, [Row(0, (6, 7, 8), (1, 2, 3), start=2)])
    grown = lm.score(cache, [Row(1, (9,), (0,), start=2)])[0].logits
    assert (grown[0] - fresh(model, [*asked[1].ids, 9])).abs().max() < TOLERANCE
    cache.keep(1, [0, 2])
    after = lm.score(cache, [Row(1, (3,), (-1,))])[0].logits
    assert (after[0] - fresh(model, [*asked[1].ids, 9, 3])).abs().max() < TOLERANCE


def test_long_prompts_are_read_in_chunks() -> None:
    model = tiny("llama", max_position_embeddings=2 * CHUNK)
    lm = HFModel(model)
    asked = prompts(CHUNK + 40, 3)
    cache = primed(lm, *(p.ids for p in asked))
    scores = lm.score(cache, [Row(i, (p.ids[-1],), (-1,)) for i, p in enumerate(asked)])
    for prompt, got in zip(asked, scores, strict=True):
        assert (got.logits[0] - fresh(model, list(prompt.ids))).abs().max() < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_taps_are_the_hidden_states_upstream_reports(kind: str) -> None:
    model = tiny(kind)
    (prompt,) = prompts(6)
    lm = HFModel(model)
    taps = lm.score(primed(lm, prompt.ids), [Row(0, (prompt.ids[-1], 5), (-1, 0))], taps=(0,))[0].taps
    with torch.no_grad():
        states = model(torch.tensor([[*prompt.ids, 5]]), output_hidden_states=True).hidden_states
    assert (taps[0] - states[1][0, -2:]).abs().max() < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_an_exited_layer_is_resumed_from_its_hidden_states(kind: str) -> None:
    """Fault 110 at the level of the model: part of the stack drafts, the rest finishes on the same cache."""
    model = tiny(kind, **({"num_hidden_layers": 4} if not kind.startswith("gemma") else {}))
    (prompt,) = prompts(10)
    lm = HFModel(model)
    cache = primed(lm, prompt.ids)
    hidden = []
    for i, (token, parent) in enumerate([(prompt.ids[-1], -1), (8, 0)]):
        scores = lm.score(cache, [Row(0, (token,), (parent,), start=i)], layers=(0, 1), taps=(1,))[0]
        hidden.append(scores.taps[1][0])
    row = Row(0, (prompt.ids[-1], 8), (-1, 0), hidden=torch.stack(hidden))
    resumed = lm.score(cache, [row], layers=(2, 3))[0].logits
    assert (resumed[1] - fresh(model, [*prompt.ids, 8])).abs().max() < TOLERANCE
    cache.keep(0, [0, 1])
    after = lm.score(cache, [Row(0, (9,), (-1,))])[0].logits
    assert (after[0] - fresh(model, [*prompt.ids, 8, 9])).abs().max() < TOLERANCE


def test_a_subset_of_layers_equals_a_model_made_of_them() -> None:
    model = tiny("llama", num_hidden_layers=4)
    small = tiny("llama", num_hidden_layers=4)
    small.model.layers = torch.nn.ModuleList([small.model.layers[0], small.model.layers[3]])
    small.model.layers[1].self_attn.layer_idx = 1
    small.config.num_hidden_layers = 2
    (prompt,) = prompts(1)
    lm = HFModel(model)
    logits = lm.score(primed(lm, prompt.ids), [Row(0, (prompt.ids[-1], 5), (-1, 0))], layers=(0, 3))[0].logits
    assert (logits[1] - fresh(small, [*prompt.ids, 5])).abs().max() < TOLERANCE


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_is_left_out_adds_nothing(kind: str) -> None:
    """As if the last projection of the part were zero."""
    model, changed = tiny(kind), tiny(kind)
    (prompt,) = prompts(6)
    last = {"self_attn": "o_proj", "mlp": "down_proj"} if kind != "gpt2" else {"attn": "c_proj", "mlp": "c_proj"}
    layers = changed.get_submodule("transformer.h" if kind == "gpt2" else "model.layers")
    names = list(last)
    for index, name in ((0, names[0]), (1, names[1])):
        for parameter in getattr(getattr(layers[index], name), last[name]).parameters():
            torch.nn.init.zeros_(parameter)
    n = len(layers)
    some = Sublayers(attention=tuple(range(1, n)), feed_forward=tuple(i for i in range(n) if i != 1))
    lm = HFModel(model)
    assert lm.capabilities.sublayers
    logits = lm.score(lm.open([prompt]), [Row.chain(0, prompt.ids)], layers=some)[0].logits
    assert (logits[-1] - fresh(changed, [*prompt.ids])).abs().max() < TOLERANCE
    assert (logits[-1] - fresh(model, [*prompt.ids])).abs().max() > 10 * TOLERANCE


SMALL = {**TINY["qwen2"], "num_hidden_layers": 4}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16}
STACKS: dict[str, tuple[dict[str, Any], bool, bool]] = {
    "qwen3": ({}, True, True),
    "falcon": ({"alibi": False}, False, False),  # its loop wants what only its own layers return
    "qwen2_moe": ({**MOE, "mlp_only_layers": [0]}, True, False),  # the first layer is like others, the second is not
    "gpt_oss": ({"num_local_experts": 4, "head_dim": 8}, True, False),  # its feed-forward part returns two things
}


@pytest.mark.parametrize("kind", STACKS)
def test_only_what_a_stack_was_seen_to_do_is_offered(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, layers, parts = STACKS[kind]
    monkeypatch.setitem(TINY, kind, SMALL)
    can = HFModel(tiny(kind, **changes)).capabilities
    assert (can.layers, can.taps, can.sublayers) == (layers, layers, parts)


@pytest.mark.parametrize("kind", KINDS)
def test_nodes_may_bring_their_own_embeddings(kind: str) -> None:
    model = tiny(kind)
    (prompt,) = prompts(6)
    lm = HFModel(model)
    cache = primed(lm, prompt.ids)
    vector = model.get_input_embeddings()(torch.tensor(8)).detach()
    row = Row(0, (prompt.ids[-1], 0, 3), (-1, 0, 1), embeds={1: vector})
    logits = lm.score(cache, [row])[0].logits
    assert (logits[2] - fresh(model, [*prompt.ids, 8, 3])).abs().max() < TOLERANCE


def test_the_model_is_left_as_it_was() -> None:
    model = tiny("llama")
    names = [name for name, _ in model.named_modules()]
    (prompt,) = prompts(4)
    lm = HFModel(model)
    lm.score(primed(lm, prompt.ids), [Row(0, (1, 2), (-1, 0))], taps=(0, 1), layers=(1,))
    assert [name for name, _ in model.named_modules()] == names
    assert type(model.model.layers[0]).__name__ == "LlamaDecoderLayer"


def test_padding_of_the_vocabulary_is_cut_off() -> None:
    """Fault 54: ids beyond the tokenizer's are never seen by a rule."""
    lm = HFModel(tiny("llama", vocab_size=104), vocab=97)
    assert lm.vocab == 97
    assert lm.score(primed(lm, (1,)), [Row(0, (1,), (-1,))])[0].logits.shape == (1, 97)


def test_the_decoder_stack_is_found_in_every_architecture() -> None:
    assert stack.find(tiny("llama"), 2) == "model.layers"
    assert stack.find(tiny("llama"), 7) is None
    assert stack.find(tiny("gpt2"), 2) == "transformer.h"


def test_a_cache_begun_in_inference_mode_outlives_it() -> None:
    model = tiny("llama")
    lm = HFModel(model)
    (prompt,) = prompts(9)
    with torch.inference_mode():
        cache = primed(lm, prompt.ids)
    logits = lm.score(cache, [Row(0, (prompt.ids[-1],), (-1,))])[0].logits
    assert (logits[0] - fresh(model, list(prompt.ids))).abs().max() < TOLERANCE
