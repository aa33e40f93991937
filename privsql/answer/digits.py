"""Rounding of error bars to the digits that matter (see ``sql.disclosure.rounding``).

Arithmetic around estimates makes errors anew, out of covariances; so bars are rounded once more
where they are shown.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DIGITS, PARTS = 3, 100


def coarse(bars: pa.Table) -> pa.Table:
    """``stderr`` to three digits, ``low`` and ``high`` to a hundredth of it.

    Ends that are dates are those of a quantile: values of the domain, and stay what they are.

    >>> coarse(pa.table({"stderr": [46.1987], "low": [683.1234], "high": [None]})).to_pylist()
    [{'stderr': 46.2, 'low': 683.298, 'high': None}]
    """
    error = significant(_floats(bars, "stderr"))
    made = bars
    for name in ("stderr", "low", "high"):
        if pa.types.is_temporal(bars.schema.field(name).type):
            continue
        values = _floats(bars, name)
        step = error / PARTS
        with np.errstate(divide="ignore", invalid="ignore"):
            multiple = np.round(values / step) * step
            near = np.where(step > 0, _round(multiple, error, DIGITS + 2), significant(values))
        shown: Any = pa.array(error if name == "stderr" else near, from_pandas=True)
        made = made.set_column(made.column_names.index(name), name, shown)
    return made


def significant(values: Floats) -> Floats:
    """Three significant digits of each number.

    >>> significant(np.array([0.0, 12345.678, -0.00123456]))
    array([ 0.00e+00,  1.23e+04, -1.23e-03])
    """
    return np.where(values == 0, 0.0, _round(values, values, DIGITS))


def _round(values: Floats, sizes: Floats, digits: int) -> Floats:
    """Rounded to the place that so many digits of ``sizes`` reach."""
    with np.errstate(divide="ignore", invalid="ignore"):
        places = digits - 1 - np.floor(np.log10(np.abs(sizes)))
        up, down = 10.0 ** np.maximum(places, 0), 10.0 ** np.maximum(-places, 0)
        return np.asarray(np.round(values * up / down) / up * down, dtype=np.float64)


def _floats(bars: pa.Table, name: str) -> Floats:
    return np.asarray(bars.column(name).to_numpy(), dtype=np.float64)
