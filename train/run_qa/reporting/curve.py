"""Draws training.svg: three panels with loss, F1 and exact match, and examples per second over the training's steps.

It is written as text, because a plotting library would be the largest package of the image after torch. Pure.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]

_WIDTH, _LEFT, _RIGHT = 760, 64, 28
_TOP, _PANEL, _GAP, _BOTTOM = 68, 170, 62, 46
_HEADING = 22  # pixels between heading and panel, for the values of its highest dots
_MOST_POINTS = 400
_MOST_DOTS = 12  # a line of at most this many points is drawn with dots and values


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a panel: its key in the history, its label, and its colour (from the palette of Okabe and Ito, for
    colour-blind readers).
    """

    key: str
    label: str
    colour: str


@dataclass(frozen=True, slots=True)
class Panel:
    """Lines on one scale, from 0 to `most` (None: the highest value)."""

    title: str
    series: tuple[Series, ...]
    most: float | None = None


_PANELS = (
    Panel("training loss", (Series("loss", "loss", "#0072B2"),)),
    Panel(
        "held-out questions, %", (Series("f1", "F1", "#D55E00"), Series("exact_match", "exact match", "#009E73")), 100
    ),
    Panel("throughput", (Series("examples_per_second", "examples/s", "#0072B2"),)),
)


def draw(history: Sequence[Mapping[str, float]], title: str) -> str:
    """The SVG of a history (records.history); panels without values in the history are omitted."""
    lines = {each.key: points for panel in _PANELS for each in panel.series if (points := _points(history, each.key))}
    panels = [panel for panel in _PANELS if any(each.key in lines for each in panel.series)]
    last = max((step for points in lines.values() for step, _ in points), default=1.0)
    height = _TOP + len(panels) * _PANEL + max(len(panels) - 1, 0) * _GAP + _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#333">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        _text(_LEFT, 22, title, 'font-size="15" font-weight="bold"'),
    ]
    for turn, panel in enumerate(panels):
        parts += _drawn(panel, lines, last, _TOP + turn * (_PANEL + _GAP))
    parts.append(_text((_LEFT + _WIDTH - _RIGHT) / 2, height - 10, "step", 'text-anchor="middle"'))
    return "\n".join([*parts, "</svg>", ""])


def _points(history: Iterable[Mapping[str, float]], key: str) -> list[Point]:
    """Steps and finite values of a key; more than _MOST_POINTS of them are averaged in groups."""
    by_step = {float(entry["step"]): float(entry[key]) for entry in history if math.isfinite(entry.get(key, math.nan))}
    points = list(by_step.items())
    size = -(-len(points) // _MOST_POINTS) or 1
    groups = [points[first : first + size] for first in range(0, len(points), size)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def ticks(most: float) -> list[float]:
    """Three to six round numbers from 0 to `most` or just above."""
    rough = max(most, 1e-6) / 4
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    return [turn * step for turn in range(max(math.ceil(most / step - 1e-9), 1) + 1)]


def _drawn(panel: Panel, lines: Mapping[str, list[Point]], last: float, top: int) -> list[str]:
    """The SVG of a panel whose upper edge is `top` pixels below the picture's."""
    drawn = [series for series in panel.series if series.key in lines]
    scale = ticks(panel.most or max(value for series in drawn for _, value in lines[series.key]))
    right, bottom = _WIDTH - _RIGHT, top + _PANEL

    def x(step: float) -> float:
        return round(_LEFT + (right - _LEFT) * step / last, 1)

    def y(value: float) -> float:
        return round(bottom - _PANEL * value / scale[-1], 1)

    parts = [_text(_LEFT, top - _HEADING, panel.title, 'font-weight="bold"')]
    for value in scale:
        parts.append(f'<path d="M{_LEFT} {y(value)}H{right}" stroke="#ddd"/>')
        parts.append(_text(_LEFT - 8, y(value) + 4, f"{value:g}", 'text-anchor="end"'))
    for step in ticks(last):
        if step <= last:
            parts.append(_text(x(step), bottom + 16, f"{step:g}", 'text-anchor="middle"'))
    for turn, series in enumerate(drawn):
        points = lines[series.key]
        path = " ".join(f"{x(step)},{y(value)}" for step, value in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{series.colour}" stroke-width="1.8"/>')
        below = -8 if turn == 0 else 16  # pixels from a dot down to its value
        for step, value in points if len(points) <= _MOST_DOTS else []:
            parts.append(f'<circle cx="{x(step)}" cy="{y(value)}" r="3" fill="{series.colour}"/>')
            style = f'text-anchor="middle" font-size="10" fill="{series.colour}"'
            parts.append(_text(x(step), y(value) + below, f"{value:.1f}", style))
        style = f'text-anchor="end" fill="{series.colour}"'
        parts.append(_text(right - 90 * turn, top - _HEADING, series.label, style))
    return parts


def _text(x: float, y: float, words: str, style: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'
