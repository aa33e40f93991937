"""Advice as text: lines for a spec, what they mean, and the trade-off behind them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from privsql.advise.curves import Curve
from privsql.audit.report.report import finite
from privsql.errors import OperationalError, ProgrammingError
from privsql.release.columns import EPSILON_LIMIT

# What a picture can be written as.
PICTURES = (".png", ".svg", ".pdf")

# Letters of a query that a legend shows.
SHOWN = 60


@dataclass(frozen=True)
class Row:
    """One line of the trade-off: a retention, the epsilon in all, each query's ±."""

    retention: float
    epsilon: float
    widths: tuple[float, ...]
    advised: bool = False


@dataclass(frozen=True)
class Tradeoff:
    """Interval widths against privacy: the queries, what was wanted of each, the lines."""

    queries: tuple[str, ...]
    wanted: tuple[float, ...]
    relative: bool
    rows: tuple[Row, ...]
    curve: Curve = field(repr=False)

    def text(self) -> str:
        """A table, by falling retention; * marks what is advised, - where there is no ±."""
        kind = "relative ±" if self.relative else "±"
        names = ["retention", "epsilon", *(f"{kind} {i + 1}" for i in range(len(self.queries)))]
        lines = [
            [f"{row.retention:.3g}{'*' * row.advised}", *map(_shown, (row.epsilon, *row.widths))]
            for row in self.rows
        ]
        lines.append(["goal", "", *map(_shown, self.wanted)])
        sizes = [max(map(len, column)) for column in zip(names, *lines, strict=True)]
        return "\n".join(
            "  ".join(cell.rjust(size) for cell, size in zip(line, sizes, strict=True)).rstrip()
            for line in [names, *lines]
        )


@dataclass(frozen=True)
class Advice:
    """Lines of a spec for a given guarantee or interval width.

    ``numbers`` holds the figures by name, for programs; ``to_dict()`` has everything.
    """

    wanted: str
    toml: str
    meaning: tuple[str, ...]
    numbers: Mapping[str, Any]
    warnings: tuple[str, ...] = ()
    tradeoff: Tradeoff | None = None

    def __str__(self) -> str:
        """Print it for a person."""
        lines = [self.wanted, "", "write into the spec:", ""]
        lines += [f"    {line}" if line else "" for line in self.toml.splitlines()]
        lines += ["", *self.meaning]
        if self.tradeoff is not None:
            lines += ["", self.tradeoff.text()]
        return "\n".join([*lines, *(f"WARNING: {warning}" for warning in self.warnings)])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for machines; JSON has no infinity, so what has no number is None."""
        found: dict[str, Any] = {
            "wanted": self.wanted,
            "spec": self.toml,
            "meaning": list(self.meaning),
            "warnings": list(self.warnings),
            **self.numbers,
        }
        if self.tradeoff is not None:
            found["curve"] = [asdict(row) for row in self.tradeoff.rows]
        plain: dict[str, Any] = finite(found)
        return plain

    def plot(self, path: str | Path) -> None:
        """Draw the trade-off into a picture file; needs the extra ``privsql[plot]``."""
        if self.tradeoff is None:
            raise ProgrammingError(
                "there is a curve only for given interval widths", hint="give queries and widths"
            )
        check_picture(path)
        draw(self.tradeoff, Path(path))


def check_picture(path: str | Path) -> None:
    """Refuse, before any work, a picture that could not be written at the end."""
    from privsql.answer.export import load

    where = Path(path)
    if where.suffix.lower() not in PICTURES:
        raise ProgrammingError(
            f"{where} is not a picture file", hint=f"end it in {', '.join(PICTURES)}"
        )
    if not where.parent.is_dir() or where.is_dir():
        raise OperationalError(f"a picture cannot be written to {where}: there is no such folder")
    load("matplotlib", extra="plot", asked="a picture of the curve")


def draw(tradeoff: Tradeoff, path: Path) -> None:
    """Each query's ± against retention, as lines with the pilots on them, both axes by ratio."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    ax = figure.add_subplot()
    measured = [point.retention for point in tradeoff.curve.points]
    low, high = min(measured), max(measured)
    steps = [low * (high / low) ** (i / 100) for i in range(101)]
    for i, query in enumerate(tradeoff.queries):
        line = [(p, tradeoff.curve.width(i, p)) for p in steps]
        line = [(p, width) for p, width in line if math.isfinite(width)]
        (drawn,) = ax.plot(*zip(*line, strict=True), label=_short(query)) if line else (None,)
        if drawn is None:
            continue
        points = [(each.retention, each.widths[i]) for each in tradeoff.curve.points]
        points = [each for each in points if math.isfinite(each[1])]
        ax.plot(*zip(*points, strict=True), "o", color=drawn.get_color(), markersize=4)
        ax.axhline(tradeoff.wanted[i], color=drawn.get_color(), linestyle=":", linewidth=1)
    for row in tradeoff.rows:
        if row.advised:
            ax.axvline(row.retention, color="black", linewidth=1)
            ax.set_title(f"advised retention {row.retention:.3g}", fontsize="medium")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("retention (more privacy to the left)")
    ax.set_ylabel("relative ±" if tradeoff.relative else "± (half of the 95% interval)")
    for text in ax.legend(fontsize="small").get_texts():
        text.set_parse_math(False)  # "$" must stay a dollar
    try:
        figure.savefig(path, dpi=150)
    except OSError as problem:
        raise OperationalError(f"{path} cannot be written: {problem.strerror}") from None


def entry(name: str, lines: Sequence[str]) -> str:
    """Lines of a column's table in a spec.

    >>> print(entry("shoe size", ["retention = 0.5"]))
    [columns."shoe size"]
    retention = 0.5
    """
    key = name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name)
    return "\n".join([f"[columns.{key}]", *lines])


def retention_lines(retention: str, epsilon: float) -> list[str]:
    """Lines of a column for a retention, with its epsilon, and consent to a large one."""
    note = f"  # epsilon {epsilon:.4g}" if math.isfinite(epsilon) else ""
    consent = ["accept_epsilon = true"] if epsilon > EPSILON_LIMIT else []
    return [f"retention = {retention}{note}", *consent]


def _short(query: str) -> str:
    line = " ".join(query.split())
    return line if len(line) <= SHOWN else line[: SHOWN - 3] + "..."


def _shown(number: float) -> str:
    return f"{number:.4g}" if math.isfinite(number) else "-"
