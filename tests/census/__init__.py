"""The census table of the papers, counted: as much of it as tests need, in two small files.

Counts of rows of the Adult data set (B. Becker and R. Kohavi, UCI Machine Learning Repository,
https://doi.org/10.24432/C5XW20, CC BY 4.0) by a few of its columns; the 45,222 rows in which
no value is missing.  Rows of one kind stand together, kinds in the order of their values.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

GROUPS = ("education", "occupation", "race", "sex", "income")
MARRIAGES = ("education_num", "marital_status", "income")


def rows(columns: tuple[str, ...]) -> pa.Table:
    """The whole table by the columns of one file: ``GROUPS`` or ``MARRIAGES``."""
    name = "groups" if columns == GROUPS else "marriages"
    counted = pc.read_csv(Path(__file__).with_name(f"{name}.csv"))
    many = counted["people"].to_numpy()
    return counted.select(list(columns)).take(pa.array(np.repeat(np.arange(len(many)), many)))
