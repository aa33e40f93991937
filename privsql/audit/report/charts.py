"""Line and bar charts as SVG text, without a library or network access."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 520, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 14, 46

# Colours that differ for most eyes, and in print.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


@dataclass(frozen=True)
class Line:
    """A named line through points."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Axis:
    """From where to where, whether by powers of ten, and what it shows."""

    low: float
    high: float
    log: bool
    label: str

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
            u for u in (unit / 5, unit / 2, unit, 2 * unit) if (self.high - self.low) / u <= 8
        )
        first = math.ceil(self.low / step_of)
        return [step_of * k for k in range(first, math.floor(self.high / step_of + 1e-9) + 1)]


def axis_of(values: Sequence[float], label: str, *, log: bool = False) -> Axis:
    """An axis that holds all values."""
    good = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(good), max(good)) if good else (0.1 if log else 0.0, 1.0)
    if log:
        low, high = 10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high))
        return Axis(low, high if high > low else low * 10, True, label)
    low = min(low, 0.0)
    return Axis(low, high if high > low else low + 1, False, label)


def chart(lines: Sequence[Line], across: Axis, up: Axis) -> str:
    """Lines in one frame, with a legend where there is more than one."""
    parts = [_frame(across, up)]
    for i, line in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        points = [_at(x, y, across, up) for x, y in line.points if math.isfinite(y)]
        if points:
            path = " ".join(f"{x},{y}" for x, y in points)
            parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
        if len(lines) > 1:
            y = TOP + 14 + 15 * i
            parts.append(
                f'<rect x="{WIDTH - 150}" y="{y - 8}" width="10" height="10" fill="{colour}"/>'
                f'<text x="{WIDTH - 135}" y="{y + 1}">{escape(line.name)}</text>'
            )
    return _svg(parts)


def bars(names: Sequence[str], heights: Sequence[float], across: str, up: Axis) -> str:
    """One bar a name; names are left out where they would overlap."""
    frame = Axis(0, max(len(heights), 1), False, across)
    parts = [_frame(frame, up, ticks=False)]
    width = (WIDTH - LEFT - RIGHT) / max(len(heights), 1)
    for i, (name, height) in enumerate(zip(names, heights, strict=True)):
        x, y = _at(i + 0.1, height if math.isfinite(height) else up.high, frame, up)
        parts.append(
            f'<rect x="{x}" y="{y}" width="{0.8 * width:.1f}"'
            f' height="{max(HEIGHT - BOTTOM - y, 0):.1f}" fill="{COLOURS[0]}"/>'
        )
        if len(names) <= 12:
            middle = round(x + 0.4 * width, 1)
            text = escape(name if len(name) <= 8 else name[:7] + ".")
            parts.append(
                f'<text x="{middle}" y="{HEIGHT - BOTTOM + 14}" text-anchor="middle">{text}</text>'
            )
    return _svg(parts)


def _at(x: float, y: float, across: Axis, up: Axis) -> tuple[float, float]:
    return (
        round(across.place(x, LEFT, WIDTH - RIGHT), 1),
        round(up.place(y, HEIGHT - BOTTOM, TOP), 1),
    )


def _frame(across: Axis, up: Axis, *, ticks: bool = True) -> str:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = [
        f'<path d="M{LEFT},{TOP}V{bottom}H{right}" fill="none" stroke="#444"/>',
        f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 8}" text-anchor="middle">'
        f"{escape(across.label)}</text>",
        f'<text transform="translate(14,{(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(up.label)}</text>",
    ]
    for tick in across.ticks() if ticks else []:
        x = round(across.place(tick, LEFT, right), 1)
        parts.append(f'<path d="M{x},{bottom}v4" stroke="#444"/>')
        parts.append(f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    for tick in up.ticks():
        y = round(up.place(tick, bottom, TOP), 1)
        parts.append(f'<path d="M{LEFT},{y}H{right}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4}" text-anchor="end">{tick:g}</text>')
    return "".join(parts)


def _svg(parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' font-family="sans-serif" font-size="11" role="img">{"".join(parts)}</svg>'
    )
