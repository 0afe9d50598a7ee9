"""A step's schedule as a picture: time to the right, a row for each partition, a box for each time that it computed.

Pure: from the record of a step to the text of an SVG.
"""

import html
from collections.abc import Iterator, Sequence
from math import floor, log10
from typing import NamedTuple


class Computed(NamedTuple):
    """A partition computed for a microbatch, from one time to another; seconds since the epoch."""

    microbatch: int
    backward: bool
    start: float
    end: float


_LEFT, _PLOT, _RIGHT, _TOP, _ROW, _BOX, _BOTTOM = 90, 960, 90, 64, 44, 32, 40
_FORWARD, _BACKWARD = "#3b76af", "#d9772b"
_ROOM_OF_A_DIGIT = 9
_TICKS = 10
_ONE_BOX = 0.005
"""Of the whole step: what lies no further apart, of one microbatch and direction, is one box."""


def picture(partitions: Sequence[Sequence[Computed]], title: str) -> str:
    """The SVG of what each partition computed. ValueError if none of them computed anything."""
    spans = [span for partition in partitions for span in partition]
    if not spans:
        raise ValueError("There is nothing to draw; the step computed nothing.")
    begin, end = min(span.start for span in spans), max(span.end for span in spans)
    lasts = (end - begin) or 1e-6
    width, height = _LEFT + _PLOT + _RIGHT, _TOP + _ROW * len(partitions) + _BOTTOM
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" font-family="sans-serif" font-size="13">',
        f"<title>{html.escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        f'<text x="{_LEFT}" y="24" font-size="15" font-weight="bold">{html.escape(title)}</text>',
        *_legend(lasts),
        *_axis(lasts, _TOP + _ROW * len(partitions)),
    ]
    for index, partition in enumerate(partitions):
        top = _TOP + _ROW * index
        busy = sum(span.end - span.start for span in partition) / lasts
        lines.append(_text(_LEFT - 8, top + 21, f"partition {index}", "end"))
        lines.append(_text(_LEFT + _PLOT + 8, top + 21, f"{busy:.0%} busy"))
        for span in joined(partition, _ONE_BOX * lasts):
            lines.append(_box(span, (span.start - begin) / lasts, (span.end - begin) / lasts, top))
    return "\n".join([*lines, "</svg>", ""])


def joined(spans: Sequence[Computed], gap: float) -> list[Computed]:
    """Neighbours of one microbatch and direction in one, if they are no further apart than `gap`."""
    found: list[Computed] = []
    for span in sorted(spans, key=lambda each: each.start):
        last = found[-1] if found else None
        if last and last[:2] == span[:2] and span.start - last.end <= gap:
            found[-1] = last._replace(end=span.end)
        else:
            found.append(span)
    return found


def _box(span: Computed, left: float, right: float, top: float) -> str:
    """From `left` to `right` of the plot, with the microbatch's number where there is room for it."""
    x, width = _LEFT + left * _PLOT, max((right - left) * _PLOT, 0.5)
    direction = "backward" if span.backward else "forward"
    told = f"microbatch {span.microbatch}, {direction}, {(span.end - span.start) * 1e3:.2f} ms"
    number = str(span.microbatch)
    shown = width >= _ROOM_OF_A_DIGIT * len(number) + 4
    label = _text(x + width / 2, top + 21, number, "middle", "#fff") if shown else ""
    edge = ' stroke="#fff" stroke-width="0.5"' if width > 3 else ""
    return (
        f'<g><title>{told}</title><rect x="{x:.2f}" y="{top}" width="{width:.2f}" height="{_BOX}" '
        f'fill="{_BACKWARD if span.backward else _FORWARD}"{edge}/>{label}</g>'
    )


def _legend(lasts: float) -> Iterator[str]:
    for x, color, name in ((_LEFT, _FORWARD, "forward"), (_LEFT + 90, _BACKWARD, "backward")):
        yield f'<rect x="{x}" y="36" width="14" height="14" fill="{color}"/>'
        yield _text(x + 20, 48, name)
    yield _text(_LEFT + 190, 48, f"a box has its microbatch's number; {lasts * 1e3:.1f} ms in all")


def _axis(lasts: float, bottom: float) -> Iterator[str]:
    """Lines at round numbers of milliseconds."""
    step = tick(lasts * 1e3)
    for place in range(int(lasts * 1e3 / step + 1e-9) + 1):
        x = _LEFT + place * step / (lasts * 1e3) * _PLOT
        yield f'<line x1="{x:.2f}" y1="{_TOP - 6}" x2="{x:.2f}" y2="{bottom}" stroke="#ddd"/>'
        yield _text(x, bottom + 18, f"{place * step:g} ms", "middle", "#555")


def tick(whole: float) -> float:
    """The least of 1, 2 and 5 times a power of ten that divides `whole` into ten parts at most."""
    power = 10.0 ** floor(log10(whole / _TICKS))
    return next(power * factor for factor in (1, 2, 5, 10) if whole / (power * factor) <= _TICKS)


def _text(x: float, y: float, text: str, anchor: str = "start", color: str = "#222") -> str:
    return f'<text x="{x:.2f}" y="{y}" text-anchor="{anchor}" fill="{color}">{text}</text>'
