"""A transformers model seen with some of its decoder layers, or parts of them, skipped, tapped, or entered with given
hidden states.

The view is a shallow copy that shares every weight; the model itself is never changed. Knows no cache and no draft.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..types import Sublayers


class Plan:
    """What one pass wants of the stack.

    layers: the layers to run, or their parts; None is all of them. The others hand on what they are given.
    taps:   layers whose output is recorded in `tapped` {layer: [B, T, D]}.
    hidden: [B, T, D] states that enter the first layer to run, in place of what the embedding gave; where none is to
            run, they leave the last one."""

    def __init__(self, layers: Sequence[int] | Sublayers | None, taps: Sequence[int], hidden: Tensor | None) -> None:
        self.layers = None if layers is None else Sublayers.of(layers)
        self.taps = frozenset(taps)
        self.hidden = hidden
        self.tapped: dict[int, Tensor] = {}

    @property
    def is_whole(self) -> bool:
        return self.layers is None and not self.taps and self.hidden is None

    def parts(self, layer: int) -> tuple[bool, bool]:
        """Whether the attention and the feed-forward part of a layer are run."""
        if self.layers is None:
            return True, True
        return layer in self.layers.attention, layer in self.layers.feed_forward

    def enter(self, states: Tensor) -> Tensor:
        """What goes on from here: the states to resume from at the first call, afterwards those that are given."""
        if self.hidden is None:
            return states
        states, self.hidden = self.hidden, None
        return states


class _Stage(nn.Module):
    """One decoder layer under a plan. Other attributes are the layer's own, which some models read in their loop."""

    def __init__(self, layer: nn.Module, index: int, plan: Plan, is_last: bool) -> None:
        super().__init__()
        self.layer, self.index, self.plan, self.is_last = layer, index, plan, is_last

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        parts = self.plan.parts(self.index)
        if any(parts):
            layer = self.layer if all(parts) else _half(self.layer, *parts)
            out = layer(self.plan.enter(hidden_states), *args, **kwargs)
            hidden_states = out[0] if isinstance(out, tuple) else out
        elif self.is_last:
            hidden_states = self.plan.enter(hidden_states)
        if self.index in self.plan.taps:
            self.plan.tapped[self.index] = hidden_states
        return hidden_states


class _Nothing(nn.Module):
    """What stands for a part that is left out: it adds nothing to what passes by. beside: what an attention returns
    beside its output."""

    def __init__(self, beside: tuple[None, ...]) -> None:
        super().__init__()
        self.beside = beside

    def forward(self, hidden_states: Tensor, *_: Any, **__: Any) -> Any:
        nothing = torch.zeros_like(hidden_states)
        return (nothing, *self.beside) if self.beside else nothing


def halves(layer: nn.Module) -> tuple[str, str] | None:
    """The names of a decoder layer's attention and feed-forward part; None where they cannot be told apart."""
    kinds = {name: type(part).__name__ for name, part in layer.named_children()}
    attention = [name for name, kind in kinds.items() if kind.endswith("Attention")]
    feed_forward = [name for name, kind in kinds.items() if kind.endswith("MLP")]
    return (attention[0], feed_forward[0]) if len(attention) == len(feed_forward) == 1 else None


def _half(layer: nn.Module, attention: bool, feed_forward: bool) -> nn.Module:
    """The layer with one of its parts left out."""
    names = halves(layer)
    assert names is not None, "parts of layers are offered by `capabilities` only"
    twin = _shallow(layer)
    twin.add_module(*((names[1], _Nothing(())) if attention else (names[0], _Nothing((None,)))))
    return twin


def view(model: nn.Module, path: str, plan: Plan) -> Any:
    """A model that shares `model`'s weights and runs the layers at `path` under `plan`, once."""
    top = parent = _shallow(model)
    *owners, last = path.split(".")
    for name in owners:
        child = _shallow(parent.get_submodule(name))
        parent.add_module(name, child)
        parent = child
    layers = parent.get_submodule(last)
    assert isinstance(layers, nn.ModuleList)
    end = len(layers) - 1
    parent.add_module(last, nn.ModuleList(_Stage(layer, i, plan, i == end) for i, layer in enumerate(layers)))
    return top


def find(model: nn.Module, n_layers: int) -> str | None:
    """The dotted name of the model's list of decoder layers; None where it cannot be told apart."""
    lists: list[str] = [
        name for name, m in model.named_modules() if isinstance(m, nn.ModuleList) and len(m) == n_layers and "." in name
    ]
    outer = [name for name in lists if not any(name.startswith(other + ".") for other in lists)]
    return outer[0] if len(outer) == 1 else None


def _shallow(module: nn.Module) -> nn.Module:
    twin = copy.copy(module)
    twin.__dict__["_modules"] = dict(module._modules)  # copy.copy would share the table of children
    return twin
