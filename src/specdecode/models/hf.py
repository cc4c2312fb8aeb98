"""Any transformers decoder-only model as an LM: the one file that calls a transformers forward.

Rows of a batch are padded here, once; each node attends to its row's committed prefix and to its own ancestors
through a 4-D mask, at position prefix + depth. Knows no drafter, rule, sampling or text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..errors import Incompatible
from ..tree import ancestor_mask, depths
from ..types import Prompt, Row, Scores, Sublayers
from . import stack
from .architecture import TESTED, TREE, alike, cache_argument, holds, layer_kinds, prove_trees, refuse_unservable
from .cache import PassCache, SlotCache
from .lm import Cache, Capabilities, check_prompt, read


class HFModel:
    """LM over a loaded transformers model. Never changes the model it is given.

    vocab: how many ids may be drafted or emitted; None takes the width of the logits (a tokenizer's size cuts padding).
    Raises CannotRollBack for recurrent models and Incompatible for others that cannot be served, naming the reason."""

    def __init__(self, model: Any, vocab: int | None = None) -> None:
        config = model.config.get_text_config(decoder=True)
        refuse_unservable(model, config)
        self.model = model
        self._config = config
        self._cache_argument = cache_argument(model)
        self._kinds = layer_kinds(config)
        self.device: torch.device = model.get_input_embeddings().weight.device
        width = model.get_output_embeddings().weight.shape[0]
        self.vocab = min(width, vocab or width)
        self.context = getattr(config, "max_position_embeddings", None) or 1 << 30
        self.n_layers: int = config.num_hidden_layers
        dtype = str(model.dtype).removeprefix("torch.")
        sizes = f"{self.n_layers}x{config.hidden_size} V{width}"
        self.signature = f"transformers {config.model_type} {dtype} {sizes} on {self.device}"
        tensors = list(model.parameters())
        self.nbytes, self.n_weights = sum(t.nbytes for t in tensors), sum(t.numel() for t in tensors)
        self._layers = stack.find(model, self.n_layers)
        found = self._layers is not None
        parts = found and all(stack.halves(layer) for layer in model.get_submodule(self._layers))
        if config.model_type not in TESTED:
            prove_trees(model, self._probe)
            found = found and holds(self._resumes)
            parts = found and parts and holds(self._runs_in_part)
        self.capabilities = Capabilities(taps=found, layers=found, sublayers=parts)

    def _resumes(self) -> bool:
        """Whether the upper layers go on from what left the lower ones as the whole stack does."""
        middle, row, cache = max(1, self.n_layers // 2), Row(0, *TREE), self.open([Prompt((1,))])
        (whole,) = self.score(cache, [row])
        (below,) = self.score(cache, [row], layers=range(middle), taps=[middle - 1])
        (above,) = self.score(cache, [replace(row, hidden=below.taps[middle - 1])], layers=range(middle, self.n_layers))
        return alike(whole.logits, above.logits, self.model.dtype)

    def _runs_in_part(self) -> bool:
        """Whether layers run without their attention, and without their feed-forward part."""
        every, row, cache = tuple(range(self.n_layers)), Row(0, *TREE), self.open([Prompt((1,))])
        parts = Sublayers(every, ()), Sublayers((), every)
        return all(bool(self.score(cache, [row], layers=some)[0].logits.isfinite().all()) for some in parts)

    def _probe(
        self, prefixes: Sequence[tuple[int, ...]], tokens: tuple[int, ...], parents: tuple[int, ...]
    ) -> list[Tensor]:
        """[n, V] logits of one tree behind each of several prefixes, in one ragged pass."""
        cache = self.open([Prompt(prefix) for prefix in prefixes])
        read(self, cache, dict(enumerate(prefixes)))
        return [scores.logits for scores in self.score(cache, [Row(i, tokens, parents) for i in range(len(prefixes))])]

    def open(self, prompts: Sequence[Prompt]) -> SlotCache:
        if self.model.training:
            raise Incompatible(
                f"{type(self.model).__name__} is in training mode, which makes it random: call model.eval()"
            )
        for prompt in prompts:
            check_prompt(prompt, self.vocab, self.context)
        return SlotCache(len(prompts))

    @torch.inference_mode(False)  # what the cache holds must outlive a caller's inference mode
    @torch.no_grad()
    def score(
        self,
        cache: Cache,
        rows: Sequence[Row],
        *,
        taps: Sequence[int] = (),
        layers: Sequence[int] | Sublayers | None = None,
        logits: bool = True,
    ) -> list[Scores]:
        assert isinstance(cache, SlotCache), "a cache that `open` of this runtime made"
        cache.compact()
        batch = _Batch(cache, rows, self.device)
        plan = stack.Plan(layers, taps, batch.hidden(rows))
        model = self.model
        if not plan.is_whole:
            assert self._layers is not None, "taps and layer subsets are offered by `capabilities` only"
            model = stack.view(model, self._layers, plan)
        inputs: dict[str, Any] = {
            "position_ids": batch.positions,
            "attention_mask": self._mask(batch),
            self._cache_argument: PassCache(cache, batch.bases, batch.width),
            "use_cache": True,
        }
        if any(row.embeds for row in rows):
            inputs["inputs_embeds"] = batch.embed(rows, model.get_input_embeddings())
        else:
            inputs["input_ids"] = batch.tokens
        out = torch.empty(batch.size, batch.width, 0)
        if logits:
            out = model(**inputs).logits[..., : self.vocab].float()
        else:
            model.base_model(**inputs)  # the stack without the head
        for index, tree in batch.trees.items():
            cache.wrote(index, tree)
        spans = [(batch.places[row.index], len(row.tokens)) for row in rows]
        return [Scores(out[b, :m], {layer: hidden[b, :m] for layer, hidden in plan.tapped.items()}) for b, m in spans]

    def _mask(self, batch: _Batch) -> Tensor | dict[str, Tensor] | None:
        """[B, 1, T, S] for a model of one kind of layer, else a dict of them by kind, as such models expect it. None
        where each node sees every slot, which the kernels do faster without a mask."""
        if batch.sees_all and self._kinds.keys() == {"full_attention"}:
            return None
        masks = {kind: self._for_backend(batch.mask(kind, size)) for kind, size in self._kinds.items()}
        return masks if len(masks) > 1 else next(iter(masks.values()))

    def _for_backend(self, visible: Tensor) -> Tensor:
        if self._config._attn_implementation != "eager":
            return visible
        dtype = self.model.dtype
        return torch.zeros_like(visible, dtype=dtype).masked_fill_(~visible, torch.finfo(dtype).min)


class _Batch:
    """The rows of one pass, padded to [B, T] in the cache's physical order. Padding sees itself only and is never
    read."""

    def __init__(self, cache: SlotCache, rows: Sequence[Row], device: torch.device) -> None:
        asked = {row.index: row for row in rows}
        assert len(asked) == len(rows), "a pass takes each row of the cache once"
        order, lengths = cache.rows, cache.lengths
        self.size, self.width = len(order), max(len(row.tokens) for row in rows)
        self.device = device
        self.tokens = torch.zeros(self.size, self.width, dtype=torch.long)
        self.positions = torch.zeros(self.size, self.width, dtype=torch.long)
        self.places: dict[int, int] = {}  # row index -> line of the batch
        self.trees: dict[int, tuple[int, ...]] = {}  # row index -> parents of all its uncommitted nodes
        self.bases: list[int] = []  # line -> first slot to write
        self._visible: list[tuple[int, int, Tensor, list[int]]] = []
        for line, index in enumerate(order):
            length, tree = lengths[index], cache.uncommitted(index)
            if (row := asked.get(index)) is None:
                self.bases.append(length + len(tree))
                continue
            assert row.start <= len(tree), f"row {index} holds {len(tree)} uncommitted nodes, not {row.start}"
            self.bases.append(length + row.start)
            self.places[index], self.trees[index] = line, (*tree[: row.start], *row.parents)
            depth = depths(self.trees[index])
            self.tokens[line, : len(row.tokens)] = torch.tensor(row.tokens)
            self.positions[line, : len(row.tokens)] = torch.tensor(depth[row.start :]) + length
            self._visible.append((line, length, ancestor_mask(self.trees[index])[row.start :], depth))
        self.tokens, self.positions = self.tokens.to(device), self.positions.to(device)

    @property
    def sees_all(self) -> bool:
        """Whether each row is one node that sees all before it, as far back in every row."""
        alike = self.width == 1 and len(set(self.bases)) == 1 and len(self.places) == self.size
        return alike and all(bool(ancestors.all()) for _, _, ancestors, _ in self._visible)

    def mask(self, kind: str, size: int | None) -> Tensor:
        """[B, 1, T, S] bool: which slots each node sees in a layer of this kind (facts of position, not of slot
        order)."""
        span = max(self.bases) + self.width
        mask = torch.zeros(self.size, self.width, span, dtype=torch.bool)
        for line, base in enumerate(self.bases):
            mask[line, :, base : base + self.width].fill_diagonal_(True)
        for line, length, ancestors, depth in self._visible:
            m, nodes = ancestors.shape
            mask[line, :m, :length] = True
            mask[line, :m, length : length + nodes] = ancestors
            if kind != "full_attention" and size is not None:
                slots = torch.cat([torch.arange(length), torch.tensor(depth) + length])
                here = slots[length + nodes - m :, None]
                near = here - slots < size if kind == "sliding_attention" else here // size == slots // size
                mask[line, :m, : length + nodes] &= near
        return mask[:, None].to(self.device)

    def embed(self, rows: Sequence[Row], embedding: torch.nn.Module) -> Tensor:
        """[B, T, D] input embeddings, with those that rows bring themselves in place of their tokens'."""
        out: Tensor = embedding(self.tokens).clone()
        for row in rows:
            for node, vector in row.embeds.items():
                out[self.places[row.index], node] = vector.to(out)
        return out

    def hidden(self, rows: Sequence[Row]) -> Tensor | None:
        """[B, T, D] hidden states with which the rows resume, or None when they start from embeddings."""
        resumed = [row for row in rows if row.hidden is not None]
        if not resumed:
            return None
        assert len(resumed) == len(rows), "either all rows of a pass resume from hidden states or none does"
        first = resumed[0].hidden
        assert first is not None
        out = first.new_zeros(self.size, self.width, first.shape[-1])
        for row in resumed:
            assert row.hidden is not None
            out[self.places[row.index], : len(row.tokens)] = row.hidden
        return out
