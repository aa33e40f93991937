"""Line and bar charts as SVG text, without a library or network access.

Drawn for the width of a phone, at which letters have their own size, and scaled up from there.
Colours are classes of the page's style (``ink``, ``grid``, ``c0`` ...), so that they follow light
and dark.  Labels never stand on lines: the y label is above the frame, and names of lines are a
list of the page's beside the picture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 340, 240
LEFT, RIGHT, TOP, BOTTOM = 54, 18, 28, 48

# Lines that are told apart by colour; there are no more in one picture.
COLOURS = 6

# Ten times itself: an error beyond that says no more.
MOST = 10.0

# Bars: height of one with its gap, and letters of a name that fit beside it.
BAR, NAME = 20, 16
NAMES, FIGURES = 118, 66


@dataclass(frozen=True)
class Line:
    """A named line through points."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Axis:
    """From where to where, whether by powers of ten, what it shows, and whether in percent."""

    low: float
    high: float
    log: bool
    label: str
    percent: bool = False

    def place(self, value: float, start: float, stop: float) -> float:
        """Where a value stands between two ends."""
        value = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return start + share * (stop - start)

    def ticks(self) -> list[float]:
        """Round numbers along it."""
        if self.log:
            first, last = math.ceil(math.log10(self.low)), math.floor(math.log10(self.high))
            step = max(1, (last - first) // 6 + 1)
            return [10.0**k for k in range(first, last + 1, step)]
        unit = 10.0 ** math.floor(math.log10(self.high - self.low))
        step_of = next(
            u for u in (unit / 5, unit / 2, unit, 2 * unit) if (self.high - self.low) / u <= 6
        )
        first = math.ceil(self.low / step_of)
        return [step_of * k for k in range(first, math.floor(self.high / step_of + 1e-9) + 1)]

    def text(self, value: float) -> str:
        """A number as the axis writes it."""
        return f"{100 * value:,.6g}%" if self.percent else short(value)


def short(number: float) -> str:
    """A number in few letters.

    >>> [short(x) for x in (0, 0.25, 12, 1_000, 250_000, 1e6, 2.5e9, 1e-05)]
    ['0', '0.25', '12', '1000', '250k', '1M', '2.5G', '0.00001']
    """
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(number) >= size:
            return f"{number / (size if letter != 'k' else 1e3):.3g}{letter}"
    if number and abs(number) < 1e-3:
        return f"{number:.6f}".rstrip("0").rstrip(".") if abs(number) >= 1e-6 else f"{number:.0e}"
    return f"{number:.4g}"


def axis_of(
    values: Sequence[float], label: str, *, log: bool = False, percent: bool = False
) -> Axis:
    """An axis that holds all values."""
    good = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(good), max(good)) if good else (0.1 if log else 0.0, 1.0)
    if log:
        low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
        return Axis(low, high if high > low else low * 10, True, label, percent)
    low = min(low, 0.0)
    return Axis(low, high if high > low else low + 1, False, label, percent)


def chart(lines: Sequence[Line], across: Axis, up: Axis) -> str:
    """Lines in one frame; :func:`key` names them."""
    parts = [_frame(across, up)]
    for i, line in enumerate(lines):
        points = [_at(x, y, across, up) for x, y in line.points if math.isfinite(y)]
        if points:
            path = " ".join(f"{x},{y}" for x, y in points)
            parts.append(f'<polyline points="{path}" class="line c{i % COLOURS}"/>')
    what = f"{up.label} by {across.label}: {', '.join(line.name for line in lines)}"
    return _svg(parts, HEIGHT, what)


def key(lines: Sequence[Line]) -> str:
    """The names of lines as a list, each with its colour."""
    items = "".join(
        f'<li><span class="swatch c{i % COLOURS}"></span>{escape(line.name)}</li>'
        for i, line in enumerate(lines)
    )
    return f'<ul class="key">{items}</ul>'


def bars(
    names: Sequence[str], heights: Sequence[float], label: str, *, percent: bool = True
) -> str:
    """One bar a name, from left to right, with its figure; infinite ones are full and say so."""
    axis = axis_of([min(height, MOST) for height in heights], label, percent=percent)
    start, stop = NAMES, WIDTH - FIGURES
    parts = [f'<text x="0" y="12" class="ink">{escape(label)}</text>']
    for i, (name, height) in enumerate(zip(names, heights, strict=True)):
        y = TOP + BAR * i
        known = math.isfinite(height)
        end = axis.place(height if known else axis.high, start, stop)
        figure = axis.text(float(f"{min(height, MOST):.3g}")) if known else "none"
        figure = f">{figure}" if known and height > MOST else figure
        parts.append(
            f'<text x="{start - 6}" y="{y + 12}" class="ink end">{_name(name)}</text>'
            f'<rect x="{start}" y="{y + 2}" width="{max(end - start, 0.5):.1f}"'
            f' height="{BAR - 7}" class="bar{"" if known else " hollow"}"/>'
            f'<text x="{end + 4:.1f}" y="{y + 12}" class="ink">{escape(figure)}</text>'
        )
    return _svg(parts, TOP + BAR * len(names) + 4, f"{label}: {', '.join(names)}")


def _name(name: str) -> str:
    """A name that fits, with all of it where a pointer rests on it."""
    if len(name) <= NAME:
        return escape(name)
    return f"{escape(name[: NAME - 1])}…<title>{escape(name)}</title>"


def _at(x: float, y: float, across: Axis, up: Axis) -> tuple[float, float]:
    return (
        round(across.place(x, LEFT, WIDTH - RIGHT), 1),
        round(up.place(y, HEIGHT - BOTTOM, TOP), 1),
    )


def _frame(across: Axis, up: Axis) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [
        f'<text x="0" y="12" class="ink">{escape(up.label)}</text>',
        f'<text x="{right}" y="{HEIGHT - 4}" class="ink end">{escape(across.label)}</text>',
    ]
    for tick in up.ticks():
        y = round(up.place(tick, bottom, TOP), 1)
        parts.append(f'<path d="M{LEFT},{y}H{right}" class="grid"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y + 4}" class="ink end">{up.text(tick)}</text>')
    for tick in across.ticks():
        x = round(across.place(tick, LEFT, right), 1)
        parts.append(f'<path d="M{x},{bottom}v4" class="axis"/>')
        parts.append(
            f'<text x="{x}" y="{bottom + 20}" class="ink middle">{across.text(tick)}</text>'
        )
    parts.append(f'<path d="M{LEFT},{TOP}V{bottom}H{right}" class="axis"/>')
    return "".join(parts)


def _svg(parts: Sequence[str], height: float, what: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(what)}">'
        f"{''.join(parts)}</svg>"
    )
