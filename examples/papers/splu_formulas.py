"""Figures 4 and 5, example 1 and theorem 4: the published count of f rows is Binomial(c f, 1/c)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from splu_data import Array
from splu_drawing import named, panels
from splu_sweeps import ANATOMY, PRINTED, PRIVSQL, Sweep
from study import Finding, Study, spread

from privsql.audit.criteria import small_sums as sums
from privsql.publish.perturb import decoy

C, E = 10, 0.3  # the paper's examples
COPIES = 400  # values of one count in a simulated column


def missed(f: int, c: int, e: float, rng: np.random.Generator, *, strict: bool = True) -> float:
    """Share of values in f rows each whose published count is off by more than e f."""
    codes = np.repeat(np.arange(COPIES), f)
    groups, left = decoy.partition(codes, c, rng)
    counts = np.bincount(decoy.publish(codes, groups, c, rng)[~left], minlength=COPIES)
    off = np.abs(counts - f)
    # Half a millionth of a row decides neither way, but rounding of e f would.
    return float(np.mean(off > e * f + 1e-6 if strict else off >= e * f - 1e-6))


def large_sums(study: Study, rng: np.random.Generator) -> None:
    """Figure 4, theorem 3 and lemma 1 with correction 9.9."""
    f = np.arange(10, 901, 40 if study.quick else 20)
    figure, axes = panels(2)
    for place, e in zip(axes, (0.1, 0.3), strict=True):
        printed = 1 / (C * e**2 * f**2.0)
        sound = np.minimum((1 - 1 / C) / (e**2 * f), 1)
        exact = np.array([sums.miss_chance(int(k), C, e) for k in f])
        dots = (20,) if study.quick else (20, 50, 100, 200)
        seen = np.array([[missed(k, C, e, rng) for k in dots] for _ in range(study.runs)])
        place.semilogy(f, printed, "r-", label="theorem 3 as printed")
        place.semilogy(f, sound, "b-", label="Chebyshev, n once (9.9)")
        place.semilogy(f, np.maximum(exact, 1e-9), "k-", lw=0.8, label="exact binomial")
        place.errorbar(dots, seen.mean(axis=0), seen.std(axis=0, ddof=1), fmt="ko", ms=3,
                       capsize=2, label="published, 400 values a run")  # fmt: skip
        place.set_ylim(1e-7, 1.5)
        named(place, "count f", "chance of an error above e f (T_E)", f"c = {C}, e = {e}")
    chance = 0.05
    first = sums.large_sum_utility_printed(C, E, chance)
    at = int(np.ceil(first))
    seen_at = [missed(at, C, E, rng, strict=False) for _ in range(study.runs)]
    sound = sums.large_sum_utility(C, E, chance)
    exact_from = sums.large_sum_utility_exact(C, E, chance)
    at_100 = 1 / (C * 0.1**2 * 100**2)
    at_100_exact = sums.miss_chance(100, C, 0.1)
    study.add(
        Finding(
            "figure 4",
            "an error of e f or more has a chance of at most 1/(c e^2 f^2) (theorem 3), so that "
            f"T_f = (c e^2 T_E)^(-1/2) (lemma 1): f >= {first:.1f} at c = 10, e = .3, T_E = .05.",
            f"at f = {at} the chance is {spread(seen_at)}, not .05; Chebyshev's bound is "
            f"(1-1/c)/(e^2 f), T_f = {sound:.0f}; by the binomial itself it is kept from "
            f"f = {exact_from} on. At e = .1, f = 100 the paper's bound says {at_100:.3g}, the "
            f"binomial {at_100_exact:.2g}.",
            study.runs,
            "reproduced with a correction",
            "The proof divides by n twice (9.9). That errors become rare as sums grow holds, but "
            "the printed bound is far below the true chance (left: at every count up to 900).",
            f"generated columns of {COPIES} values",
        ),
        figure,
    )


def small_sums(study: Study, rng: np.random.Generator) -> None:
    """Example 1 and figure 5 with T_P."""
    inside = [1 - missed(5, C, E, rng) for _ in range(study.runs)]
    chance = sums.miss_chance(5, C, E)
    study.add(
        Finding(
            "example 1",
            "f = 5, c = 10: the published count is 4, 5 or 6 with probability .52, so that it is "
            "off by more than 30% with .48.",
            f"{1 - chance:.4f} and {chance:.4f}; published: {spread(inside)} and "
            f"{spread([1 - each for each in inside])}.",
            study.runs,
            "reproduced",
            data=f"generated columns of {COPIES} values",
        )
    )
    sizes = (2, 5, 10)
    f = np.arange(1, 31)
    figure, (axes,) = panels()
    for c, colour in zip(sizes, ("tab:green", "tab:orange", "tab:blue"), strict=True):
        axes.plot(f, [sums.miss_chance(int(k), c, E) for k in f], color=colour,
                  marker=".", lw=1, label=f"c = {c}, formula")  # fmt: skip
    dots = (1, 2, 3, 5) if study.quick else (1, 2, 3, 5, 8, 12, 20, 30)
    seen = np.array([[missed(k, C, E, rng) for k in dots] for _ in range(study.runs)])
    axes.errorbar(dots, seen.mean(axis=0), seen.std(axis=0, ddof=1), fmt="ks", ms=3, capsize=2,
                  label="c = 10, published")  # fmt: skip
    axes.axhline(sums.small_sum_privacy(C, E, 3), color="0.5", ls=":", lw=1)
    axes.set_ylim(0, 0.8)
    named(axes, "count f", "chance of a relative error above .3")
    by_size = {c: sums.small_sum_privacy(c, E, 3) for c in (2, 3, 5, 10, 20)}
    told = ", ".join(f"{value:.3f} at c = {c}" for c, value in by_size.items())
    lowest = min(seen[:, i].mean() for i, k in enumerate(dots) if k <= 3)
    study.add(
        Finding(
            "figure 5",
            "small counts are badly wrong, in a saw-tooth: alpha = 3, e = .3 have T_P = .6 at "
            "c = 10, and c has little impact.",
            f"T_P = {by_size[C]:.3f}; published, the least over f = 1, 2, 3 is {lowest:.3f}. "
            f"T_P is {told}.",
            study.runs,
            "reproduced",
            "It is a statement about totals of one value. Little impact holds from c = 5 on; "
            "c = 2 protects a count of 1 with .5 only.",
            f"generated columns of {COPIES} values",
        ),
        figure,
    )


def theorem_4(study: Study, sweep: Sweep, data: str) -> None:
    """T_P for conjunctions: how often small answers with public conditions are off by over 30%."""
    rows = sweep.sizes
    figure, axes = panels(2, share=True)
    told = []
    for place, c in zip(axes, (rows[0], rows[-1]), strict=True):
        i = rows.index(c)
        f = np.arange(1, 11)
        place.plot(f, [sums.miss_chance(int(k), c, E) for k in f], "k:", label="formula, CASE 1")
        for way, colour in ((PRINTED, "tab:red"), (PRIVSQL, "tab:blue"), (ANATOMY, "tab:green")):
            off = sweep.errors(way)[:, i] > E
            shares = by_count(off, sweep.pool.answers)
            place.errorbar(f, shares.mean(axis=0), shares.std(axis=0, ddof=1),
                           color=colour, marker=".", capsize=2, lw=1, label=way)  # fmt: skip
            few = np.min(shares[:, :3].mean(axis=0))
            told.append(f"{few:.2f} ({way}, c = {c})")
        place.set_ylim(0, 1.05)
        axis = "share off by more than 30%" if place is axes[0] else ""
        named(place, "true answer f", axis, f"c = {c}")
    study.add(
        Finding(
            "theorem 4",
            "a count with public conditions has at least the T_P of a count of one value alone.",
            f"least share over f = 1, 2, 3 of queries off by more than 30%: {', '.join(told)}; "
            f"T_P is {sums.small_sum_privacy(rows[0], E, 3):.3f} and "
            f"{sums.small_sum_privacy(rows[-1], E, 3):.3f}.",
            study.runs,
            "reproduced",
            "On average over queries, which is all that a few runs can show.",
            data,
        ),
        figure,
    )


def by_count(off: NDArray[np.bool_], answers: Array) -> Array:
    """Share of queries that are off, by true answer 1..10, (runs, 10)."""
    columns = []
    for k in range(1, 11):
        some = off[:, answers == k]
        columns.append(some.mean(axis=1) if some.size else np.full(len(off), np.nan))
    return np.stack(columns, axis=1)
