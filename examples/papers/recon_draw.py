"""Figures and words of Reconstruction Privacy; figures are as wide as the words below them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure


def panels(count: int = 1, height: float = 2.5, *, shared: bool = False) -> tuple[Figure, Any]:
    """A figure and its axes, one or an array of them; ``shared``: one scale of y."""
    figure = Figure(figsize=(7, height))
    axes = figure.subplots(
        1, count, sharey=shared, gridspec_kw={"wspace": 0.08 if shared else 0.3}, squeeze=False
    )
    figure.subplots_adjust(bottom=0.2)  # words follow below: they must not meet the labels
    for axis in axes.flat:
        axis.title.set_size(9)
        axis.tick_params(labelsize=7)
        axis.xaxis.label.set_size(8)
        axis.yaxis.label.set_size(8)
    return figure, axes[0, 0] if count == 1 else axes[0]


WORDS = """
Words used below. A *personal group* g is everybody who shares all public values (after
merging); f is the largest share of a sensitive value in it. The sensitive column has m values,
of which each row keeps its own with chance p. s_g is the largest group that is (lambda,
delta)-private (eq. 10). *UP* perturbs every row; *SPS* is the paper's algorithm: sample a group
down to s_g rows, perturb, duplicate. *grid* and *one* are the sound versions: perturb all rows
first, round the reconstructed f up to 1/8, 1/4, 1/2 or 1 (*one*: always 1), sample, and publish
weights instead of copies. With two values f is above 1/2, so that both are the same on ADULT.
Numbers such as (9.1) are those of the list of corrections that the code cites as
"reconstruction, 9". What follows ± is a standard deviation over runs (theorem 5: the standard
error of a mean).
"""


def explain(page: Path) -> None:
    """Put the words after the head of a page."""
    head, rest = page.read_text().split("\n\n## ", 1)
    page.write_text(f"{head}\n{WORDS}\n## {rest}")


def sweep_lines(
    axis: Any, values: list[float], found: dict[str, np.ndarray[Any, Any]], label: str
) -> None:
    """Mean and standard deviation over runs, shape (points, runs), of some ways."""
    for name, errors in found.items():
        axis.errorbar(
            values, errors.mean(axis=1), errors.std(axis=1, ddof=1), label=name, capsize=2
        )
    axis.set_xlabel(label)


def shares(axis: Any, values: list[float], found: list[tuple[float, float]], label: str) -> None:
    """v_g and v_r in percent."""
    percent = 100 * np.array(found)
    axis.plot(values, percent[:, 0], "o-", label="v_g, groups")
    axis.plot(values, percent[:, 1], "s-", label="v_r, records")
    axis.set_xlabel(label)


def domain_sizes(columns: tuple[str, ...], bars: dict[str, tuple[int, ...]]) -> Figure:
    """Numbers of values of each column, before and after merging."""
    figure, axis = panels(height=2.2)
    width = 0.8 / len(bars)
    for place, (name, sizes) in enumerate(bars.items()):
        drawn = axis.bar(np.arange(len(sizes)) + place * width, sizes, width, label=name)
        axis.bar_label(drawn, fontsize=7)
    axis.set(xticks=np.arange(len(columns)) + 0.4 - width / 2, ylabel="values")
    axis.set_xticklabels(columns)
    axis.legend(fontsize=7, title="degrees of freedom", title_fontsize=7)
    return figure
