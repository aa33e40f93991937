"""Small figures: lines with the spread over runs, and shares by band."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from splu_data import Array
from splu_sweeps import ANATOMY, DBR, LN2, LN3, PRINTED, PRIVSQL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# One colour and mark a way, in every figure.
LOOKS = {
    PRINTED: ("tab:red", "s"),
    PRIVSQL: ("tab:blue", "o"),
    ANATOMY: ("tab:green", "^"),
    DBR: ("tab:orange", "v"),
    LN2: ("0.35", "x"),
    LN3: ("0.6", "+"),
}


def panels(number: int = 1, *, share: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side; nothing is shown on a screen."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    plt.close("all")
    figure, axes = plt.subplots(1, number, figsize=(7.0, 3.0), squeeze=False, sharey=share)
    figure.subplots_adjust(wspace=0.08 if share else 0.3, bottom=0.15)
    return figure, list(axes[0])


def lines(
    axes: Axes, x: Sequence[float] | Array, ways: Mapping[str, Array], *, percent: bool = True
) -> None:
    """Mean over runs with its standard deviation; each way has shape (runs, len(x))."""
    scale = 100.0 if percent else 1.0
    for name, values in ways.items():
        colour, mark = LOOKS.get(name, (None, "o"))
        sd = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros(values.shape[1])
        axes.errorbar(
            x,
            scale * values.mean(axis=0),
            scale * sd,
            color=colour,
            marker=mark,
            markersize=4,
            linewidth=1.2,
            capsize=2,
            label=name,
        )


def named(axes: Axes, x: str, y: str, title: str = "", *, legend: bool = True) -> None:
    """Labels, a light grid, a legend."""
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.set_title(title, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    if legend:
        axes.legend(fontsize=6.5)


def band_names(edges: Sequence[float]) -> list[str]:
    """Names of bands of selectivity, in per cent."""
    from itertools import pairwise

    return [f"{100 * low:g}-{100 * high:g}" for low, high in pairwise(edges)]
