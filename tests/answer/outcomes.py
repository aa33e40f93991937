"""Outcomes to present, made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from privsql.answer.outcome import Outcome, ResultColumn

Numbers = Sequence[float | None]


def bars(low: Numbers, high: Numbers, reliable: Sequence[bool | None] | None = None) -> pa.Table:
    """Bars with these ends, and a quarter of the width as standard error."""
    pairs = list(zip(low, high, strict=True))
    stderr = [None if a is None or b is None else (b - a) / 4 for a, b in pairs]
    return pa.table(
        {
            "stderr": pa.array(stderr, pa.float64()),
            "low": pa.array(low, pa.float64()),
            "high": pa.array(high, pa.float64()),
            "reliable": pa.array([True] * len(low) if reliable is None else reliable, pa.bool_()),
        }
    )


def outcome(
    n: Numbers, low: Numbers, high: Numbers, reliable: Sequence[bool | None] | None = None
) -> Outcome:
    """One column n of estimates."""
    return Outcome(
        "rows",
        (ResultColumn("n", "DOUBLE", estimate=True),),
        pa.table({"n": pa.array(n, pa.float64())}),
        bars={0: bars(low, high, reliable)},
        estimator="inversion",
    )


def counts(error_bars: bool = False) -> Outcome:
    """Two keys and two estimates, with NULLs in both."""
    return Outcome(
        "rows",
        (
            ResultColumn("job", "VARCHAR"),
            ResultColumn("cost", "HUGEINT"),
            ResultColumn("n", "DOUBLE", estimate=True),
            ResultColumn("share", "DOUBLE", estimate=True),
        ),
        pa.table(
            {
                "job": ["eng", "law", "None"],
                "cost": pa.array([12, 700, None], pa.decimal128(38, 0)),
                "n": [1402.31, 30.0, None],
                "share": [0.31234, 0.02, 0.5],
            }
        ),
        bars={
            2: bars([1054.2, 20.0, None], [1750.4, 40.0, None], [True, True, None]),
            3: bars([0.30111, 0.009, None], [0.32357, 0.031, None], [True, True, None]),
        },
        estimator="inversion",
        error_bars=error_bars,
    )
