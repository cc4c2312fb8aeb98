"""The dense runtime for GPUs, on tensors in main memory: the same code but for recorded passes, which need CUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from enroll import build
from stubs import DENSE, decode, dense, oracle, plain, primed, tiny
from torch import Tensor

from specdecode.errors import BadInput, BadOption, Incompatible, OutOfContext
from specdecode.models import runtime
from specdecode.models.dense.device import WIDEST, DeviceModel, padded_width
from specdecode.models.dense.device_cache import KEPT, LEAST, Memories, Shape
from specdecode.models.hf import HFModel
from specdecode.models.lm import CHUNK, LM
from specdecode.types import Prompt, Row, Sublayers

TREE = (-1, 0, 1, 0, 3, 3)
TOKENS = (11, 22, 33, 44, 55)
TOLERANCE = 1e-4
Script = Callable[[LM], Sequence[Tensor]]


def prompts(*lengths: int) -> list[tuple[int, ...]]:
    rng = torch.Generator().manual_seed(7)
    return [tuple(torch.randint(0, 97, (n,), generator=rng).tolist()) for n in lengths]


def compare(model: Any, script: Script) -> None:
    """What `script` gets from the device runtime is what it gets from upstream's forward."""
    ours, theirs = script(DeviceModel(model)), script(HFModel(model))
    assert len(ours) == len(theirs) > 0
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine.shape == yours.shape
        assert (mine - yours).abs().max() < TOLERANCE


def logits(lm: LM, cache: Any, rows: Sequence[Row], **options: Any) -> list[Tensor]:
    return [scores.logits for scores in lm.score(cache, rows, **options)]


@pytest.mark.parametrize("name", DENSE)
class TestEveryStack:
    def test_ragged_trees_and_chains_after_every_acceptance(self, name: str) -> None:
        asked = prompts(1, 5, 20)

        def script(lm: LM) -> list[Tensor]:
            cache, out = primed(lm, *asked), []
            for path in [(0,), (0, 1, 2), (0, 3, 5), (0, 3, 4)]:
                rows = [Row(2, (asked[2][-1], *TOKENS), TREE), Row(0, (asked[0][-1], *TOKENS), TREE)]
                out += logits(lm, cache, [*rows, Row.chain(1, (7, 9))])
                cache.keep(0, path)
                cache.keep(1, [0])
                cache.keep(2, path)
            return out

        compare(dense(name), script)

    def test_taps_layers_and_resuming(self, name: str) -> None:
        (prompt,) = prompts(10)

        def script(lm: LM) -> list[Tensor]:
            last = lm.n_layers - 1
            cache, hidden, out = primed(lm, prompt), [], []
            for i, token in enumerate((prompt[-1], 8)):
                (scores,) = lm.score(cache, [Row.chain(0, (token,), start=i)], layers=(0,), taps=(0, last))
                hidden.append(scores.taps[0][0])
                out += [scores.logits, *scores.taps.values()]
            row = Row(0, (prompt[-1], 8), (-1, 0), hidden=torch.stack(hidden))
            out += logits(lm, cache, [row], layers=range(1, lm.n_layers))
            cache.keep(0, [0, 1])
            return [*out, *logits(lm, cache, [Row.chain(0, (9,))])]

        compare(dense(name), script)

    def test_parts_of_layers(self, name: str) -> None:
        (prompt,) = prompts(10)
        some = Sublayers(attention=(0,), feed_forward=(1,))
        compare(dense(name), lambda lm: logits(lm, primed(lm, prompt), [Row.chain(0, (9, 8))], layers=some))

    def test_greedy_text_is_upstreams(self, name: str) -> None:
        model, asked = dense(name), prompts(3, 12)
        small = tiny("llama", seed=1, vocab_size=model.config.vocab_size)
        base = [plain(HFModel(model), prompt, 16) for prompt in asked]
        lm = DeviceModel(model)
        for drafter in (build("null", None), build("ngram", None), build("lm", DeviceModel(small))):
            assert [session.new_tokens for session in decode(lm, drafter, *asked, n=16)] == base


class TestPasses:
    def test_more_nodes_on_uncommitted_ones(self) -> None:
        asked = prompts(4, 6)

        def script(lm: LM) -> list[Tensor]:
            cache = primed(lm, *asked)
            out = logits(lm, cache, [Row.chain(i, (ids[-1], 5)) for i, ids in enumerate(asked)])
            out += logits(lm, cache, [Row(0, (6, 7, 8), (1, 0, 2), start=2)])
            out += logits(lm, cache, [Row(1, (9,), (0,), start=2)])
            cache.keep(1, [0, 2])
            cache.keep(0, [0, 3])
            return [*out, *logits(lm, cache, [Row.chain(1, (3,)), Row.chain(0, (4,))])]

        compare(dense("mistral"), script)

    def test_nodes_with_embeddings_of_their_own(self) -> None:
        model, (prompt, other) = dense("qwen2"), prompts(6, 9)
        vector = model.get_input_embeddings()(torch.tensor(8)).detach()
        rows = [Row(0, (prompt[-1], 0, 3), (-1, 0, 1), embeds={1: vector}), Row.chain(1, (4,))]
        compare(model, lambda lm: logits(lm, primed(lm, prompt, other), rows))

    def test_a_pass_without_logits_gives_none(self) -> None:
        lm = DeviceModel(dense("llama"))
        (scores,) = lm.score(primed(lm, (1, 2)), [Row.chain(0, (2, 3))], logits=False)
        assert scores.logits.shape == (2, 0)

    def test_logits_are_the_callers_to_keep(self) -> None:
        lm = DeviceModel(dense("llama"))
        cache = primed(lm, (1, 2))
        first = lm.score(cache, [Row.chain(0, (2,))])[0].logits
        copy = first.clone()
        lm.score(cache, [Row.chain(0, (5,))])
        assert torch.equal(first, copy)

    def test_padding_of_the_vocabulary_is_cut_off(self) -> None:
        lm = DeviceModel(tiny("llama", vocab_size=104), vocab=97)
        assert lm.vocab == 97
        assert lm.score(primed(lm, (1,)), [Row.chain(0, (1,))])[0].logits.shape == (1, 97)

    def test_a_cache_begun_in_inference_mode_outlives_it(self) -> None:
        def script(lm: LM) -> list[Tensor]:
            with torch.inference_mode():
                cache = primed(lm, (1, 2, 3))
            return logits(lm, cache, [Row.chain(0, (3,))])

        compare(dense("llama"), script)

    def test_text_of_a_tree_drafter(self) -> None:
        model, (prompt,) = dense("qwen3, mixed"), prompts(9)
        base = plain(HFModel(model), prompt)
        (session,) = decode(DeviceModel(model), oracle({prompt: base}, k=5), prompt)
        assert session.new_tokens == base

    @pytest.mark.parametrize(
        ("nodes", "width"), [(1, 1), (2, 2), (3, 4), (5, 8), (33, 64), (64, 64), (65, 128), (129, 192), (1024, 1024)]
    )
    def test_widths(self, nodes: int, width: int) -> None:
        assert padded_width(nodes) == width


class TestMemory:
    def test_growth_keeps_what_was_read(self) -> None:
        """Two growths: within the prompt, and under uncommitted nodes."""
        asked = prompts(CHUNK + 40, 3)

        def script(lm: LM) -> list[Tensor]:
            cache = primed(lm, *asked)
            out = logits(lm, cache, [Row.chain(i, ids[-1:]) for i, ids in enumerate(asked)])
            cache.keep(0, [0])
            lm.score(cache, [Row.chain(0, asked[0][:1000])], logits=False)
            return [*out, *logits(lm, cache, [Row.chain(0, (5, 6), start=1000), Row.chain(1, (7,), start=1)])]

        compare(dense("llama", max_position_embeddings=4 * CHUNK), script)

    @pytest.mark.parametrize(("length", "slots"), [(LEAST - 2, LEAST), (LEAST - 1, LEAST), (LEAST, 2 * LEAST)])
    def test_a_row_may_fill_all_slots_but_the_last(self, length: int, slots: int) -> None:
        model, (prompt,) = dense("llama", max_position_embeddings=1024), prompts(length)
        lm = DeviceModel(model)
        cache = primed(lm, prompt)
        lm.score(cache, [Row.chain(0, prompt[-1:])])
        assert cache._memory.slots == slots
        compare(model, lambda lm: logits(lm, primed(lm, prompt), [Row.chain(0, prompt[-1:])]))

    def test_size_follows_the_tokens_held_and_not_the_context(self) -> None:
        lm = DeviceModel(dense("llama", max_position_embeddings=1 << 20))
        small = primed(lm, (1, 2)).nbytes
        assert small == 2 * lm.n_layers * LEAST * 2 * 24 * 4
        assert primed(lm, tuple(range(90)) * 3).nbytes == 2 * small

    def test_rows_end_without_touching_the_others(self) -> None:
        asked = prompts(3, 300, 9, 5)

        def script(lm: LM) -> list[Tensor]:
            cache, out = primed(lm, *asked), []
            for ended in (1, 3, 0):
                out += logits(lm, cache, [Row(2, (4, 6), (-1, -1))])
                cache.release(ended)
                out += logits(lm, cache, [Row(2, (8,), (1,), start=2)])
                cache.keep(2, [1, 2])
            return out

        compare(dense("qwen2", max_position_embeddings=1024), script)

    def test_memory_shrinks_as_sessions_end(self) -> None:
        lm = DeviceModel(dense("qwen2"))
        cache = primed(lm, *prompts(3, 250, 9, 5))
        sizes = []
        for ended in (1, 3, 0):
            cache.release(ended)
            lm.score(cache, [Row.chain(2, (4,))])
            sizes.append(cache._memory.rows)
        assert sizes == [4, 2, 1]
        cache.release(2)
        assert cache.nbytes == 0

    def test_a_released_row_is_not_scored_again(self) -> None:
        lm = DeviceModel(dense("llama"))
        cache = primed(lm, (1, 2), (3,))
        cache.release(0)
        with pytest.raises(AssertionError, match="row 0 was released"):
            lm.score(cache, [Row.chain(0, (4,))])

    def test_memory_is_lent_again_clean(self) -> None:
        """Also that of a generation that was abandoned: its NaN must not reach the next."""
        lm = DeviceModel(dense("llama"))
        fresh = logits(lm, primed(lm, (1, 2, 3)), [Row.chain(0, (3,))])[0]
        cache = primed(lm, (1, 2))
        memory = cache._memory
        memory.data.fill_(float("nan"))
        other = primed(lm, (1, 2))
        assert other._memory is not memory
        del cache
        again = primed(lm, (1, 2, 3))
        assert again._memory is memory
        assert torch.equal(logits(lm, again, [Row.chain(0, (3,))])[0], fresh)

    @pytest.mark.parametrize(("bytes_kept", "kept"), [(1 << 30, KEPT), (0, 1)])
    def test_few_memories_wait(self, bytes_kept: int, kept: int) -> None:
        class Borrower: ...

        memories = Memories(Shape(1, 1, 8, torch.float32, torch.device("cpu"), bytes_kept))
        alive = Borrower()
        held = memories.lend(alive, 1, LEAST)
        for rows in range(1, KEPT + 5):
            memories.lend(Borrower(), rows, LEAST)
        assert len(memories) == 1 + kept
        assert memories.lend(Borrower(), KEPT + 4, LEAST) is not held
        assert held.borrower() is alive


class TestRuntime:
    """Which models of a GPU come here. That there is none is no matter: what decides is where the weights are."""

    def test_int8_is_refused_off_the_cpu(self) -> None:
        with pytest.raises(BadOption, match="int8 weights are for the CPU") as caught:
            runtime.check_runtime(None, torch.int8, torch.device("cuda"))
        assert "\n" not in str(caught.value)
        runtime.check_runtime(None, torch.int8, torch.device("cpu"))
        runtime.check_runtime("dense", torch.float16, torch.device("cuda"))

    @pytest.mark.parametrize("asked", ["dense", None])
    def test_a_device_takes_it_when_asked_to(self, asked: str | None) -> None:
        model = dense("llama").to("meta")
        if asked:
            assert isinstance(runtime.run(model, 97, asked), DeviceModel)
        else:
            assert isinstance(runtime.run(model, 97, asked), HFModel)

    def test_other_stacks_are_refused_by_name(self) -> None:
        with pytest.raises(Incompatible, match="gpt2"):
            DeviceModel(tiny("gpt2"))

    def test_weights_in_several_places_are_refused(self) -> None:
        model = dense("llama")
        model.model.layers[1].to("meta")
        with pytest.raises(Incompatible, match="several devices"):
            DeviceModel(model)

    @pytest.mark.parametrize(("ids", "error"), [((), BadInput), ((97,), BadInput), ((1,) * 256, OutOfContext)])
    def test_prompts_that_cannot_be_decoded_are_refused(self, ids: tuple[int, ...], error: type[Exception]) -> None:
        with pytest.raises(error):
            DeviceModel(dense("llama")).open([Prompt((1, 2)), Prompt(ids)])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="records CUDA graphs")
def test_recorded_passes_equal_those_run_one_by_one() -> None:
    """Passes with taps are never recorded. Widths in no order, growth, ended rows and a second generation."""
    lm = DeviceModel(dense("mistral", max_position_embeddings=1024).cuda())
    last = lm.n_layers - 1
    for _ in range(2):
        cache = primed(lm, *prompts(5, 40, 3))
        for step in range(60):
            n = (1, 7, 2, WIDEST, 3)[step % 5]
            rows = [Row.chain(2, [(step + i) % 97 for i in range(n)]), Row.chain(0, range(max(1, n - 1)))]
            recorded, eager = lm.score(cache, rows), lm.score(cache, rows, taps=(last,))
            for ours, theirs in zip(recorded, eager, strict=True):
                assert (ours.logits - theirs.logits).abs().max() < 1e-3
            cache.keep(0, [0])
            cache.keep(2, range(n))
            if step == 40:
                cache.release(1)
        assert set(cache._memory.recorded) <= {1, 2, 4, 8, WIDEST}
