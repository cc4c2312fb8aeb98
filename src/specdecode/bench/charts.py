"""Plain drawings in SVG, made to be read on a phone: bars, stacked bars and curves, each labelled where it is drawn.

They take numbers and names, and know nothing of what those mean. Text has the colour of the page, light or dark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8a8a8a")  # told apart by everybody
WIDTH, LEFT, RIGHT = 360, 116, 44  # of a drawing, of its names' column, and of its figures'
LINE = 17
LONGEST = 17  # characters of a name
FONT = 'font-family="system-ui, sans-serif" font-size="11" fill="currentColor"'
SPAN = WIDTH - LEFT - RIGHT


def bars(groups: Mapping[str, Mapping[str, float | None]], *, mark: float | None = None) -> str:
    """A titled group of bars for each entry of `groups`, a bar a name. mark: a value to draw a line at."""
    values = [value for group in groups.values() for value in group.values() if value is not None]
    scale = SPAN / max([*values, mark or 0.0, 1e-9])
    parts, y = [], 0
    for title, group in groups.items():
        parts.append(_text(0, y + 13, title, 'font-weight="600"'))
        y += LINE
        for index, (name, value) in enumerate(group.items()):
            parts.append(_name(LEFT - 6, y + 12, name))
            if value is not None:
                parts.append(_rect(LEFT, y + 2, value * scale, index))
            shown = "n/a" if value is None else f"{value:.2f}"
            parts.append(_text(LEFT + 4 + (value or 0.0) * scale, y + 12, shown))
            y += LINE
        y += 6
    if mark is not None:
        x = LEFT + mark * scale
        parts.append(_line(x, 0, x, y, 'stroke-dasharray="3 3"'))
    return _svg(parts, y)


def stacked(rows: Mapping[str, Mapping[str, float]]) -> str:
    """A bar of the same length for each row, cut into shares of 1, with a legend of the parts."""
    parts, y = [], 0
    for name, shares in rows.items():
        parts.append(_name(LEFT - 6, y + 12, name))
        x = float(LEFT)
        for index, share in enumerate(shares.values()):
            width = max(0.0, share) * (WIDTH - LEFT)
            parts.append(_rect(x, y + 2, width, index))
            if width > 28:
                parts.append(_text(x + 3, y + 12, f"{100 * share:.0f} %", 'fill="#fff"'))
            x += width
        y += LINE
    return _svg(parts, y) + _legend({part: i for i, part in enumerate(next(iter(rows.values()), {}))})


def curves(series: Mapping[str, Sequence[float]]) -> str:
    """Shares of 0 to 1 over 1, 2, 3, ..., a curve for each name that has any, with a legend."""
    longest = max((len(values) for values in series.values()), default=0)
    height, left, top = 150, 42, 8
    step = (WIDTH - left - 12) / max(1, longest - 1)
    parts = []
    for share in (0.0, 0.5, 1.0):
        y = top + height * (1 - share)
        parts.append(_line(left, y, WIDTH, y, 'opacity="0.25"'))
        parts.append(_name(left - 4, y + 4, f"{100 * share:.0f} %"))
    for depth in range(0, longest, max(1, longest // 8)):
        parts.append(_text(left + depth * step - 3, top + height + 16, str(depth + 1)))
    for index, values in [(i, values) for i, values in enumerate(series.values()) if values]:
        points = [(left + i * step, top + height * (1 - value)) for i, value in enumerate(values)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline fill="none" stroke="{_colour(index)}" stroke-width="2" points="{path}"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{_colour(index)}"/>' for x, y in points]
    return _svg(parts, top + height + 22) + _legend({name: i for i, name in enumerate(series) if series[name]})


def _legend(colours: Mapping[str, int]) -> str:
    chips = (f'<span><i style="background:{_colour(i)}"></i>{escape(name)}</span>' for name, i in colours.items())
    return f'<p class="legend">{" ".join(chips)}</p>'


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _svg(parts: Sequence[str], height: float) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" {FONT}>{"".join(parts)}</svg>'


def _rect(x: float, y: float, width: float, index: int) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{LINE - 4}" fill="{_colour(index)}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, style: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="currentColor" {style}/>'


def _text(x: float, y: float, text: str, style: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'


def _name(x: float, y: float, name: str) -> str:
    """A name that ends at x, cut to its column."""
    return _text(x, y, name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…", 'text-anchor="end"')
