"""Equations 6-9 and the partition rule: where the paper's errors on large sums come from."""

from __future__ import annotations

import numpy as np
from splu_data import CENSUS_EDGES, Array, Case, Pool
from splu_drawing import band_names, named, panels
from splu_sweeps import CONVERGED, COUNTED, READINGS, SIMULATED, STOPPED, readings
from study import Finding, Study, spread

from privsql.publish.perturb.decoy import Method


def equations(
    study: Study, given: Case, pool: Pool, sizes: tuple[int, ...], rng: np.random.Generator
) -> dict[int, dict[tuple[str, str], Array]]:
    """Correction 9.7: the mean signed error of each reading, over group sizes."""
    found = {}
    for c in sizes:
        methods: tuple[Method, ...] = ("proportional", "anatomy") if c == 5 else ("proportional",)
        found[c] = readings(given, pool, c, methods, study.runs, rng)
    figure, (axes,) = panels()
    axes.plot(sizes, [-100 / (c + 1) for c in sizes], "k:", label="-1/(c+1)")
    bias: dict[str, Array] = {}
    for reading in READINGS:
        each = [found[c]["proportional", reading] / pool.answers - 1 for c in sizes]
        bias[reading] = np.stack([off.mean(axis=1) for off in each], axis=1)
        axes.errorbar(sizes, 100 * bias[reading].mean(axis=0),
                      100 * bias[reading].std(axis=0, ddof=1), marker="o", ms=3, lw=1,
                      capsize=2, label=reading)  # fmt: skip
    named(axes, "c", "mean signed error of large sums, %", "proportional groups")
    at = sizes.index(5)
    told = {r: spread(100 * bias[r][:, at]) for r in READINGS}
    study.add(
        Finding(
            "equations 6-9",
            "a row with another value has s among its decoys with chance c f/N.",
            f"at c = 5 large sums are off on average by {told[CONVERGED]}% (-1/(c+1) is -16.7%) "
            f"once the iteration has converged, {told[STOPPED]}% where the paper stops it; with "
            f"the counted chance f(c-1)/(N-f) by {told[COUNTED]}%, with the simulated channel by "
            f"{told[SIMULATED]}%.",
            study.runs,
            "reproduced with a correction",
            "c f/N counts the row that holds s among its own decoys (9.7); only the counted chance "
            "keeps the expected published count equal to f. -1/(c+1) is the loss where the "
            "condition has nothing to do with s; queries with large answers have more than that. "
            "Stopping at 1% pulls answers towards the published counts, a bias of its own.",
            given.name,
        ),
        figure,
    )
    return found


def partition(study: Study, given: Case, pool: Pool, found: dict[tuple[str, str], Array]) -> None:
    """Correction 9.8: what is left when ten publications are averaged is bias."""
    bands = pool.bands(CENSUS_EDGES, given.rows)
    figure, axes = panels(2, share=True)
    left: dict[tuple[str, str], float] = {}
    for place, method in zip(axes, ("anatomy", "proportional"), strict=True):
        for reading in READINGS:
            estimates = found[method, reading]
            off = np.abs(estimates.mean(axis=0) - pool.answers) / pool.answers
            left[method, reading] = float(off.mean())
            place.plot([100 * off[band].mean() if band.any() else np.nan for band in bands],
                       marker="o", ms=3, lw=1, label=reading)  # fmt: skip
        place.set_xticks(range(len(bands)), band_names(CENSUS_EDGES))
        first = method == "anatomy"
        axis = f"error of the mean of {study.runs} runs, %" if first else ""
        named(place, "selectivity, %", axis, f"{method} groups", legend=not first)
    axes[0].set_ylim(0, 32)
    noise = float(
        np.mean(found["proportional", SIMULATED].std(axis=0, ddof=1) / pool.answers)
        * np.sqrt(2 / np.pi / study.runs)
    )

    def told(method: str, reading: str) -> str:
        one = pool.errors(found[method, reading]).mean(axis=1)
        return f"{spread(100 * one)}% and {100 * left[method, reading]:.1f}%"

    study.add(
        Finding(
            "section 6.1",
            "groups are made of the c largest buckets, and the chance of a decoy depends on the "
            "count of a value alone.",
            f"relative error of large sums at c = 5, of one publication and of the mean of "
            f"{study.runs} (noise alone: {100 * noise:.1f}%): largest buckets as printed "
            f"{told('anatomy', STOPPED)}, with the counted chance {told('anatomy', COUNTED)}, with "
            f"their own channel simulated {told('anatomy', SIMULATED)}; proportional groups with "
            f"the counted chance {told('proportional', COUNTED)}, with the simulated channel "
            f"{told('proportional', SIMULATED)}.",
            study.runs,
            "reproduced with a correction",
            "With the largest buckets the decoys of a row depend on its value. Read as if they "
            "did not, most of the error is bias, which no data cures (9.8); read by their own "
            "channel they are nearly unbiased and noisier than proportional groups.",
            given.name,
        ),
        figure,
    )
