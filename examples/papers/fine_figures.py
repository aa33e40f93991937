"""The pictures of the fine-grain study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from fine_data import COLOURS, DISEASES, LABELS, WAYS, Array, Case
from fine_runs import Sweep
from matplotlib.axes import Axes
from matplotlib.figure import Figure

mpl.use("Agg")
mpl.rcParams.update({"font.size": 8, "axes.grid": True, "grid.alpha": 0.3})


def _axes(count: int, width: float = 3.4, height: float = 2.6) -> tuple[Figure, list[Axes]]:
    # No layout engine: the page is cut to what is drawn anyway, and this is twice as quick.
    figure = Figure(figsize=(width * count, height))
    figure.subplots_adjust(bottom=0.2)  # the words begin right below
    return figure, list(np.atleast_1d(figure.subplots(1, count, gridspec_kw={"wspace": 0.35})))


def operators(matrices: Mapping[str, Array]) -> Figure:
    """Figure 2: each entry is the chance that a row's value becomes a column's."""
    figure, axes = _axes(len(matrices), 2.5, 2.6)
    for ax, (name, matrix) in zip(axes, matrices.items(), strict=True):
        ax.imshow(matrix, cmap="Blues", vmin=0, vmax=0.6)
        ax.grid(False)
        for (i, j), chance in np.ndenumerate(matrix):
            ax.text(j, i, f"{chance:.3f}", ha="center", va="center")
        ax.set_xticks(range(4), DISEASES, rotation=30)
        ax.set_yticks(range(4), DISEASES)
        ax.set_title(name, fontsize=8)
        ax.set_xlabel("published")
    axes[0].set_ylabel("original")
    return figure


def bars(values: Mapping[str, float]) -> Figure:
    """Record utility of the operators of the example."""
    figure, (ax,) = _axes(1, 4.5, 2.2)
    ax.barh([LABELS[way] for way in values], list(values.values()),
            color=[COLOURS[way] for way in values])  # fmt: skip
    for place, value in enumerate(values.values()):
        ax.text(value + 0.005, place, f"{value:.5g}", va="center")
    ax.set_xlim(0, 0.55)
    ax.set_xlabel("record utility")
    return figure


def falls(
    priors: Array, lowest: Mapping[str, Array], measured: Mapping[str, Array], rho: Sequence[float]
) -> Figure:
    """Theorem 1: the lowest posterior of one value, over all published values and other priors."""
    figure, (ax,) = _axes(1, 5.0, 3.0)
    for way, line in lowest.items():
        # Uniform and two-sided fall alike here: let both be seen.
        width = 4 if way == "uniform" else 1.5
        ax.plot(priors, line, color=COLOURS[way], lw=width, label=LABELS[way])
        if way in measured:
            ax.errorbar(rho[1], measured[way].mean(), measured[way].std(ddof=1),
                        fmt="o", color=COLOURS[way], capsize=3)  # fmt: skip
    ax.plot(priors, priors, color="black", lw=0.6, ls=":", label="nothing learnt")
    ax.axhline(rho[0], color="black", lw=0.8, ls="--")
    ax.axvline(rho[1], color="black", lw=0.8, ls="--")
    ax.annotate("rho1 = 1/10", (priors[0], rho[0]), xytext=(2, 2), textcoords="offset points")
    ax.annotate("rho2 = 1/7", (rho[1], priors[0]), xytext=(2, 2), textcoords="offset points")
    ax.set_xlabel("prior of SARS")
    ax.set_ylabel("lowest posterior of SARS")
    ax.legend(fontsize=7)
    return figure


def frequencies(cases: Sequence[Case]) -> Figure:
    """Figure 4: sorted frequencies of the columns."""
    figure, (ax,) = _axes(1, 5.0, 2.8)
    for case in cases:
        ax.semilogy(np.arange(1, case.size + 1), np.sort(case.shares)[::-1], ".-", label=case.label)
    ax.set_xlabel("value, by rank")
    ax.set_ylabel("frequency")
    ax.legend(fontsize=7)
    return figure


def sweeps(found: Sweep) -> Figure:
    """Figure 5: both utilities by theta, with the spread over runs."""
    figure, (left, right) = _axes(2)
    for way in WAYS:
        points = found.points[way]
        left.plot(found.thetas, found.record(way), ".-", color=COLOURS[way], label=LABELS[way])
        sd = [each.converged.std(ddof=1) for each in points]
        right.errorbar(found.thetas, found.aggregate(way), sd, fmt=".-", capsize=2,
                       color=COLOURS[way])  # fmt: skip
    right.axhline(found.blind, color="black", lw=0.8, ls=":", label="1/m for all, no data")
    left.set_ylim(top=1.35 * left.get_ylim()[1])  # room for the legend
    left.set_ylabel("record utility")
    right.set_ylabel("aggregate utility")
    for ax in (left, right):
        ax.set_xlabel("theta")
        ax.legend(fontsize=7)
    figure.suptitle(found.case.label, fontsize=8)
    return figure


def told(thetas: Sequence[float], exact: Mapping[str, Sequence[int]], size: int) -> Figure:
    """The theta rule: how many raw counts the published retentions give away."""
    figure, (ax,) = _axes(1, 4.5, 2.6)
    for way, numbers in exact.items():
        ax.plot(thetas, numbers, ".-", color=COLOURS[way], label=LABELS[way])
    ax.axhline(size, color="black", lw=0.8, ls=":")
    ax.set_ylim(0, size * 1.05)
    ax.set_xlabel("theta")
    ax.set_ylabel("raw counts read exactly")
    ax.legend(fontsize=7, loc="lower right")
    return figure


def condition(answers: Mapping[str, tuple[Array, Array]], truth: float) -> Figure:
    """One condition: each release's answer by inversion and by the shortcut."""
    figure, (ax,) = _axes(1, 5.0, 2.6)
    for place, (inverted, short) in enumerate(answers.values()):
        ax.plot(np.full(len(inverted), place - 0.1), inverted, "o", ms=4, alpha=0.6,
                color="tab:green", label=None if place else "inversion, refined cells")  # fmt: skip
        ax.plot(np.full(len(short), place + 0.1), short, "x", ms=5,
                color="tab:orange", label=None if place else "two states")  # fmt: skip
    ax.axhline(truth, color="black", lw=0.8, ls=":", label="truth")
    ax.set_xticks(range(len(answers)), [LABELS[way].replace(", ", ",\n") for way in answers])
    ax.set_xlim(-0.5, len(answers) - 0.5)
    ax.set_ylabel("rows")
    ax.legend(fontsize=7, loc="upper left")
    return figure
