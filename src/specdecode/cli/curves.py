"""The curves of `specdecode calibrate` as a picture, with the floors that memory and arithmetic set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import WriteError
from ..files import whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..costs import Curve
    from ..costs.verdict import Floors


def draw(path: Path, curve: Curve, floors: Floors | None, title: str) -> None:
    """Write a PNG, whole or not at all. Raises WriteError where that cannot be."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), dpi=150, layout="constrained")
    axes = figure.subplots()
    for context, line in zip(curve.contexts, curve.seconds, strict=True):
        axes.plot(curve.rows, [1000 * s for s in line], marker="o", label=f"context {context}")
    if floors is not None:
        axes.axhline(1000 * floors.memory_s, linestyle="--", color="grey", label="reading the weights")
        work = [1000 * floors.arithmetic_s(rows) for rows in curve.rows]
        axes.plot(curve.rows, work, linestyle=":", color="grey", label="float32 arithmetic")
    axes.set(xscale="log", xlabel="rows of a pass", ylabel="ms", ylim=(0, None), title=title)
    axes.set_xticks(curve.rows, [str(rows) for rows in curve.rows])
    axes.minorticks_off()
    axes.legend()
    _write(path, figure)


def _write(path: Path, figure: Figure) -> None:
    try:
        with whole(path) as partial:
            figure.savefig(partial, format="png")
    except OSError as error:
        raise WriteError(f"cannot write {path} ({error.strerror}); give another place with --plot") from error
