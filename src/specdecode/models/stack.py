"""A transformers model seen with some of its decoder layers skipped, tapped, or entered with given hidden states.

The view is a shallow copy that shares every weight; the model itself is never changed. Knows no cache and no draft.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn


class Plan:
    """What one pass wants of the stack.

    layers: the layers to run, ascending; None is all of them. The others hand on what they are given.
    taps:   layers whose output is recorded in `tapped` {layer: [B, T, D]}.
    hidden: [B, T, D] states that enter the first layer to run, in place of what the embedding gave."""

    def __init__(self, layers: Sequence[int] | None, taps: Sequence[int], hidden: Tensor | None) -> None:
        self.layers = None if layers is None else frozenset(layers)
        self.taps = frozenset(taps)
        self.hidden = hidden
        self.tapped: dict[int, Tensor] = {}

    @property
    def is_whole(self) -> bool:
        return self.layers is None and not self.taps and self.hidden is None

    def runs(self, layer: int) -> bool:
        return self.layers is None or layer in self.layers

    def enter(self, states: Tensor) -> Tensor:
        """The states for a layer that runs: those to resume from at the first one, afterwards what came before."""
        if self.hidden is None:
            return states
        states, self.hidden = self.hidden, None
        return states


class _Stage(nn.Module):
    """One decoder layer under a plan. Other attributes are the layer's own, which some models read in their loop."""

    def __init__(self, layer: nn.Module, index: int, plan: Plan) -> None:
        super().__init__()
        self.layer, self.index, self.plan = layer, index, plan

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("layer"), name)

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
        if self.plan.runs(self.index):
            out = self.layer(self.plan.enter(hidden_states), *args, **kwargs)
            hidden_states = out[0] if isinstance(out, tuple) else out
        if self.index in self.plan.taps:
            self.plan.tapped[self.index] = hidden_states
        return hidden_states


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
    parent.add_module(last, nn.ModuleList(_Stage(layer, i, plan) for i, layer in enumerate(layers)))
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
