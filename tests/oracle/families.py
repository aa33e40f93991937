"""Aggregate families whose estimates are held against the truth, and what is promised of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tests.oracle.releases import TABLE


@dataclass(frozen=True)
class Promise:
    """What must hold of estimates over many releases.

    ``bias`` is allowed beyond sampling noise, in standard deviations of one estimate: 0 for what
    is unbiased, something for ratios and quantiles, whose bias shrinks as 1/n.  ``variance``
    bounds stderr^2 / empirical variance (the mean of stderr^2 for linear answers; for others
    its median over reliable answers, because delta-method variances have outliers when a
    denominator is close to zero), ``coverage`` the share of 95% intervals that hold the truth.
    In *small* cells (see judging) nothing is promised of answers that are not linear.
    """

    bias: float = 0.0
    variance: tuple[float, float] | None = (0.85, 1.15)
    coverage: tuple[float, float] = (0.925, 0.975)
    missing: float = 0.0  # share of answers that may be NULL
    # Share of cells that must be large.  One job of four has 200 rows; the scan by moments, which
    # 600,000 stacked rows get, bounds effective rows from below and calls sums over it unreliable.
    large: float = 0.75
    linear: bool = True


LINEAR = Promise()
# A ratio is NULL where its denominator is not clearly non-zero or has too few effective rows:
# one in eleven at most in the smallest job, whose 200 rows leave 20 effective ones.
RATIO = Promise(bias=0.1, variance=(0.8, 1.2), missing=0.1, linear=False)
# Variances that come out below zero are NULL: up to one in five where a condition of share .3 at
# retention .4 leaves 200 to 800 rows, which makes those cells small.
SPREAD = Promise(
    bias=0.2, variance=(0.75, 1.3), coverage=(0.92, 0.98), missing=0.2, large=0.0, linear=False
)
# Positions in a domain are whole: Woodruff's interval covers more than it says.
QUANTILE = Promise(bias=0.75, variance=None, coverage=(0.925, 1.0), large=0.0, linear=False)

# Samples of SPS keep 20 to 60 rows of a group, so that cells by job are small.  Twice 300 releases:
# stderr^2 of linear answers is .90 to 1.38 of the variance, covered 91.0 to 97.7%; of the share
# 1.02 and 1.06 over all answers, 1.33 and 1.35 over the reliable ones (whose median is judged),
# because which answers are called reliable goes with their size there, which cuts their spread.
SAMPLED = {"large": 0.0, "variance": (0.85, 1.4), "coverage": (0.925, 0.985)}
PICKED = {**SAMPLED, "variance": (0.85, 1.5)}
# Of 20 to 60 rows no denominator has 20 effective ones: a ratio is NULL but by chance (98%).
NOTHING = {**PICKED, "missing": 1.0}

# Mechanisms that perturb a column as a whole.  One column at a time: the formulas of identity
# and swap are exact up to 1/N (1,500 releases: variance .94 to 1.09 of the empirical one, 93.9
# to 96.5% covered; swap's whole column is exact).  Decoys' is an interpolation on the wide side.
# Twice 300 releases: the variance of counts is 1.0 to 1.6 of the empirical one (.9 to 1.4 together
# with age, where the plain formula stands), 93.7 to 99.0% are covered; where the selection is the
# value itself or all but is, 1.1 to 1.2 and 94.0 to 96.3% (once 300 releases).  The sum of a
# public column over the whole table is the widest: 3.1 and 3.2, 99.7% covered; by job 1.1 to 1.6.
# Together with another sensitive column the plain formula errs on the wide side.
EXACT = {"coverage": (0.925, 0.98)}
WIDE = {"variance": (0.85, 3.0), "coverage": (0.925, 1.0)}
DECOY = {"variance": (0.85, 1.75), "coverage": (0.925, 1.0)}
DECOY_SUM = {"variance": (0.85, 3.75), "coverage": (0.925, 1.0)}


@dataclass(frozen=True)
class Family:
    """One aggregate; ``columns`` are those it reads.

    Linear ones can be computed by hand as well: a public ``weight`` times a function
    ``state`` of the sensitive columns.  ``{within}`` in ``select`` stands for the window of one
    release.  With a key ``below``, ``select`` is over groups by that key too, each with its
    count n.
    """

    name: str
    select: str
    where: str
    columns: tuple[str, ...]
    promise: Promise
    weight: str = "1"
    state: str = ""
    below: str = ""

    def sql(self, keys: tuple[str, ...]) -> str:
        shown = "".join(f"{key}, " for key in keys)
        where = f" WHERE {self.where}" if self.where else ""
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        if self.below:
            inner = f"SELECT {shown}{self.below}, COUNT(*) AS n FROM {TABLE}{where} GROUP BY ALL"
            return f"SELECT {shown}{self.select} AS x FROM ({inner}) AS below{group}"
        window = self.select.replace("{within}", "PARTITION BY rep" if "rep" in keys else "")
        return f"SELECT {shown}{window} AS x FROM {TABLE}{where}{group}"


def _count(name: str, condition: str, *columns: str) -> Family:
    state = f"({condition})::DOUBLE"
    return Family(name, "COUNT(*)", condition, columns, LINEAR, "1", state)


FLU = "disease = 'flu'"
FAMILIES = {
    family.name: family
    for family in (
        _count("count k=1", FLU, "disease"),
        _count("count k=2", f"{FLU} AND age > 35", "disease", "age"),
        _count("count k=3", f"{FLU} AND age > 35 AND NOT smoker", "disease", "age", "smoker"),
        _count("count or", f"{FLU} OR age < 30 OR smoker", "disease", "age", "smoker"),
        _count("count not in", "disease NOT IN ('flu', 'hiv')", "disease"),
        Family("count filter", "COUNT(*) FILTER (WHERE smoker)", "", ("smoker",), LINEAR, "1",
               "smoker::DOUBLE"),
        Family("sum public", "SUM(cost)", FLU, ("disease", "cost"), LINEAR, "cost",
               f"({FLU})::DOUBLE"),
        Family("sum sensitive", "SUM(age)", f"{FLU} AND age > 30", ("disease", "age"), LINEAR, "1",
               f"({FLU} AND age > 30)::DOUBLE * age"),
        Family("sum mixed", "SUM(age * cost)", "", ("age", "cost"), LINEAR, "cost", "age::DOUBLE"),
        Family("sum case", f"SUM(CASE WHEN {FLU} THEN cost ELSE 0 END)", "", ("disease", "cost"),
               LINEAR, "cost", f"({FLU})::DOUBLE"),
        Family("avg sensitive", "AVG(age)", "", ("age",), RATIO),
        Family("avg public", "AVG(cost)", FLU, ("disease", "cost"), RATIO),
        Family("avg both", "AVG(age)", "smoker", ("age", "smoker"), RATIO),
        Family("share", f"COUNT(*) FILTER (WHERE {FLU}) * 1.0 / COUNT(*)", "", ("disease",), RATIO),
        Family("share of some", f"COUNT(*) FILTER (WHERE {FLU}) * 1.0 / COUNT(*)", "smoker",
               ("disease", "smoker"), RATIO),
        Family("difference of rates", f"AVG(cost) FILTER (WHERE {FLU})"
               f" - AVG(cost) FILTER (WHERE NOT {FLU})", "", ("disease", "cost"), RATIO),
        Family("var_samp", "VAR_SAMP(age)", "", ("age",), SPREAD),
        Family("stddev_samp", "STDDEV_SAMP(age)", FLU, ("age", "disease"), SPREAD),
        Family("var public", "VAR_POP(cost)", FLU, ("cost", "disease"), SPREAD),
        Family("covar_samp", "COVAR_SAMP(age, cost)", "", ("age", "cost"), SPREAD),
        Family("corr", "CORR(age, cost)", "", ("age", "cost"), SPREAD),
        Family("regr_slope", "REGR_SLOPE(cost, age)", "", ("age", "cost"), SPREAD),
        Family("regr_intercept", "REGR_INTERCEPT(age, cost)", "", ("age", "cost"), SPREAD),
        # The share of the middle ages is far from what a uniform column would give: of all
        # families this one notices a wrong retention best.
        _count("count middle", "age BETWEEN 30 AND 50", "age"),
        Family("window total", "SUM(COUNT(*)) OVER ({within})", FLU, ("disease",), LINEAR),
        Family("window share", "COUNT(*) * 1.0 / SUM(COUNT(*)) OVER ({within})", FLU,
               ("disease",), RATIO),
        Family("outer sum", "SUM(n)", FLU, ("disease",), LINEAR, below="job"),
        Family("outer average", "AVG(n)", FLU, ("disease",), LINEAR, below="job"),
        Family("median", "MEDIAN(age)", "", ("age",), QUANTILE),
        Family("median public", "MEDIAN(cost)", FLU, ("cost", "disease"), QUANTILE),
        Family("quantile_disc", "QUANTILE_DISC(age, 0.25)", FLU, ("age", "disease"), QUANTILE),
    )
}  # fmt: skip

LINEAR_NAMES = tuple(name for name, family in FAMILIES.items() if family.state)
EACH = (
    "count k=1", "count k=2", "count not in", "sum public", "sum sensitive", "avg public", "share",
)  # fmt: skip

PLAIN: tuple[str, ...] = ()
BY_JOB = ("job",)
BY_DISEASE = ("disease",)

# What is asked of each mechanism; by job too, which cuts the table into four.
PLAN: dict[str, tuple[str, ...]] = {
    "uniform": tuple(FAMILIES),
    "replace": EACH,
    "finegrain": (*EACH, "difference of rates", "window share"),
    "matrix": EACH,
    "sps": (*EACH, "count filter", "avg sensitive", "window total", "outer sum"),
    "compacted": ("count k=1", "count not in", "count filter", "share", "share of some"),
    "identity": ("count k=1", "count k=2", "count not in", "sum public"),
    "swap": ("count k=1", "count k=2", "count not in", "sum public"),
    "decoy": ("count k=1", "count k=2", "count not in", "sum public"),
}

# Families that make sense for every group of a sensitive key.
KEYED = ("count filter", "sum mixed", "avg sensitive")

# Families that are about several groups of one answer, and what these are grouped by: a public
# key, whose groups share no row, and a sensitive one, whose groups share all of them.  (An outer
# SUM over groups of a sensitive key has no error bars, and a notice says so.)
BY_SMOKER = ("smoker",)
ACROSS = {
    "window total": (BY_JOB, BY_SMOKER),
    "window share": (BY_JOB, BY_SMOKER),
    "outer sum": (PLAIN,),
    "outer average": (PLAIN,),
}


def planned(mechanism: str) -> list[tuple[str, tuple[str, ...]]]:
    """Families and groupings of one mechanism."""
    found = [(name, by) for name in PLAN[mechanism] for by in ACROSS.get(name, (PLAIN, BY_JOB))]
    keyed = KEYED if mechanism in ("uniform", "replace", "finegrain", "matrix") else ()
    return found + [(name, BY_DISEASE) for name in keyed]


def promise(family: Family, mechanism: str) -> Promise:
    """What is promised of a family under one mechanism."""
    changed: dict[str, Any] = {}
    if mechanism == "sps":
        changed = SAMPLED if family.promise.linear else PICKED
        if family.promise is RATIO:
            changed = NOTHING
    elif mechanism == "decoy":
        changed = DECOY if family.weight == "1" else DECOY_SUM
    elif mechanism in ("identity", "swap") and "age" in family.columns:
        changed = WIDE
    elif mechanism in ("identity", "swap"):
        changed = EXACT
    return replace(family.promise, **changed)
