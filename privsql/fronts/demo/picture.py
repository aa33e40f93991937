"""The picture of the demo: estimates with intervals against the true values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from privsql.answer.export import load
from privsql.fronts.demo.compared import Compared, held

INSIDE, OUTSIDE = "tab:blue", "tab:red"


def draw(path: Path, few: Sequence[Compared], many: Sequence[Compared]) -> None:
    """Draw ``few`` by name and ``many`` as a cloud around the diagonal, each with its interval.

    No pyplot: a figure by itself is drawn by Agg, whatever backend a user has chosen.
    """
    figure = load("matplotlib.figure", extra="plot", asked="the picture").Figure(
        figsize=(11, 4.5), layout="constrained"
    )
    left, right = figure.subplots(1, 2)
    _points(left, range(len(few)), few)
    left.scatter(
        range(len(few)), [each.truth for each in few], marker="_", s=900, color="black", zorder=1
    )
    left.set_xticks(range(len(few)), [each.label for each in few])
    left.set_ylim(bottom=0)
    left.set_ylabel("patients with diabetes")
    left.set_title("black: the truth; dots: estimates with 95% intervals", fontsize="medium")

    top = 1.05 * max(max(each.high, each.truth) for each in many)
    right.plot([0, top], [0, top], color="black", linewidth=0.8)
    _points(right, [each.truth for each in many], many)
    right.set_xlabel("truth")
    right.set_ylabel("estimate")
    right.set_title(
        f"every disease in every district: {held(many)} of {len(many)} intervals contain the"
        " truth\n(red ones do not)",
        fontsize="medium",
    )
    figure.savefig(path, dpi=120)


def _points(ax: object, at: Sequence[float], found: Sequence[Compared]) -> None:
    """Dots with whiskers; red where the interval misses the truth."""
    for x, each in zip(at, found, strict=True):
        ax.errorbar(  # type: ignore[attr-defined]
            [x],
            [each.estimate],
            yerr=[[max(0.0, each.estimate - each.low)], [max(0.0, each.high - each.estimate)]],
            fmt="o",
            markersize=4,
            capsize=3,
            color=INSIDE if each.inside else OUTSIDE,
            zorder=2,
        )
