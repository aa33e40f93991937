"""The invented clinic that the demo publishes, from a fixed recipe.

One row is one patient.  Columns depend on each other as they do in life:

    sex ──┬─> job ──> smoker ─┐
    age ──┘                   ├─> disease ──> cost
    sex, age, district ───────┘

    patient_id  1, 2, 3, ...
    sex         F, M
    age         the decade: 20 says twenty to twenty-nine
    district    five parts of a town
    job         six kinds of work
    smoker      yes, no                                     sensitive
    disease     the main reason of the visit, eight values  sensitive
    cost        of the visit, in whole euros                a measure
    visited     the day of the visit, in 2025               a measure

Every value is an inverse distribution function at a uniform number.  ``random`` of a generator
is the same in all versions of numpy, where other distributions may change; so one seed is one
table for good.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Codes = NDArray[np.intp]

SEXES = ("F", "M")
AGES = (20, 30, 40, 50, 60, 70, 80)
DISTRICTS = ("centre", "east", "harbour", "hills", "west")
JOBS = ("care", "construction", "office", "retired", "sales", "teaching")
SMOKER = ("no", "yes")
DISEASES = ("asthma", "copd", "depression", "diabetes", "flu", "hiv", "hypertension", "none")

_AGE = (0.13, 0.16, 0.17, 0.18, 0.16, 0.13, 0.07)
_DISTRICT = (0.16, 0.26, 0.14, 0.18, 0.26)

# Weights of JOBS for women and for men who are at work.
_JOB = ((0.24, 0.02, 0.34, 0.0, 0.22, 0.18), (0.07, 0.27, 0.34, 0.0, 0.22, 0.10))
_RETIRED = (0.0, 0.0, 0.01, 0.05, 0.45, 0.97, 1.0)  # by age

# Share of smokers: by job, and how it grows or falls with age.
_SMOKERS = (0.24, 0.38, 0.20, 0.22, 0.27, 0.14)
_SMOKING = (1.0, 1.1, 1.1, 1.1, 1.0, 0.7, 0.5)

# Weights of DISEASES by age; the factors below act on them.
_DISEASE = (
    (0.070, 0.001, 0.110, 0.012, 0.160, 0.004, 0.02, 0.623),
    (0.065, 0.003, 0.120, 0.025, 0.150, 0.006, 0.05, 0.581),
    (0.060, 0.010, 0.120, 0.050, 0.140, 0.006, 0.10, 0.514),
    (0.055, 0.025, 0.110, 0.095, 0.130, 0.005, 0.18, 0.400),
    (0.050, 0.045, 0.090, 0.140, 0.120, 0.003, 0.26, 0.292),
    (0.045, 0.065, 0.080, 0.165, 0.130, 0.002, 0.32, 0.193),
    (0.040, 0.070, 0.085, 0.160, 0.150, 0.001, 0.35, 0.144),
)
_OF_MEN = (0.9, 1.2, 0.6, 1.25, 1.0, 2.5, 1.1, 1.0)
_OF_SMOKERS = (1.3, 5.5, 1.5, 1.2, 1.1, 1.2, 1.25, 0.8)
_OF_DISTRICT = (  # the harbour has worse air, the hills have older houses and better air
    (1.0, 1.0, 1.2, 1.0, 1.1, 2.0, 1.0, 1.0),
    (1.1, 1.1, 1.0, 1.15, 1.0, 0.9, 1.05, 1.0),
    (1.6, 1.5, 1.1, 1.1, 1.0, 1.2, 1.05, 0.9),
    (0.8, 0.8, 0.9, 0.85, 0.9, 0.7, 0.95, 1.1),
    (1.0, 1.0, 1.0, 1.0, 1.0, 0.8, 1.0, 1.0),
)

# Mean cost of a visit by disease; it grows with age.
_COST = (180.0, 640.0, 310.0, 420.0, 90.0, 880.0, 240.0, 70.0)
_COST_OF_AGE = (0.85, 0.9, 0.95, 1.0, 1.1, 1.25, 1.4)


def clinic(rows: int, rng: np.random.Generator) -> pa.Table:
    """Draw a table of so many patients.

    >>> table = clinic(1000, np.random.default_rng(1))
    >>> table.num_rows, table.column_names
    (1000, ['patient_id', 'sex', 'age', 'district', 'job', 'smoker', 'disease', 'cost', 'visited'])
    """
    sex = _draw(np.array([0.52, 0.48]), rng.random(rows))
    age = _draw(np.array(_AGE), rng.random(rows))
    district = _draw(np.array(_DISTRICT), rng.random(rows))
    job = _draw(np.array(_JOB)[sex], rng.random(rows))
    job[rng.random(rows) < np.array(_RETIRED)[age]] = JOBS.index("retired")
    smoker = rng.random(rows) < np.array(_SMOKERS)[job] * np.array(_SMOKING)[age]
    weights = np.array(_DISEASE)[age] * np.array(_OF_DISTRICT)[district]
    weights *= np.where((sex == SEXES.index("M"))[:, None], np.array(_OF_MEN), 1.0)
    weights *= np.where(smoker[:, None], np.array(_OF_SMOKERS), 1.0)
    disease = _draw(weights, rng.random(rows))
    # The sum of three exponential times of mean 1/3: never near zero, a long tail.
    spread = -np.log1p(-rng.random((rows, 3))).mean(axis=1)
    cost = np.ceil(np.array(_COST)[disease] * np.array(_COST_OF_AGE)[age] * spread)
    day = np.floor(365 * rng.random(rows)).astype("timedelta64[D]")
    return pa.table(
        {
            "patient_id": pa.array(np.arange(1, rows + 1)),
            "sex": _words(SEXES, sex),
            "age": pa.array(np.array(AGES)[age].astype(np.int32)),
            "district": _words(DISTRICTS, district),
            "job": _words(JOBS, job),
            "smoker": _words(SMOKER, smoker.astype(np.intp)),
            "disease": _words(DISEASES, disease),
            "cost": pa.array(cost.astype(np.int32)),
            "visited": pa.array(np.datetime64("2025-01-01") + day),
        }
    )


def _draw(weights: Floats, uniform: Floats) -> Codes:
    """The value whose stretch of the summed weights holds u: ``min {j: u W_m < W_j}``.

    ``weights`` has the shape (m,), or (rows, m) where each row has its own.

    >>> _draw(np.array([1.0, 2.0, 1.0]), np.array([0.0, 0.2, 0.3, 0.74, 0.75]))
    array([0, 0, 1, 1, 2])
    """
    sums = np.cumsum(np.atleast_2d(weights), axis=1)
    return np.asarray((uniform[:, None] * sums[:, -1:] >= sums[:, :-1]).sum(axis=1), dtype=np.intp)


def _words(values: tuple[str, ...], codes: Codes) -> pa.Array[Any]:
    return pa.DictionaryArray.from_arrays(codes.astype(np.int8), pa.array(values)).cast(pa.string())
