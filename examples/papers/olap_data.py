"""Tables, predicates and releases of Privacy Preserving OLAP.

ADULT means its 32,561 training rows with the four numeric columns, ranges and predicates of the
paper (section 7).  A query of k columns looks at the first k of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from study import adult, stored

import privsql
from privsql.channels import Grid, Interval

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Column:
    """An integer column with its public range and the paper's predicate on it."""

    name: str
    lower: int
    upper: int
    low: int
    high: int

    @property
    def mass(self) -> float:
        """b of the closed range on the grid of integers, (high-low+1)/(max-min+1)."""
        return float(Grid.of(self.lower, self.upper).mass(Interval(self.low, self.high)))

    @property
    def paper_mass(self) -> float:
        """b as the paper has it, (high-low)/(max-min): right for a continuum only."""
        return (self.high - self.low) / (self.upper - self.lower)

    @property
    def condition(self) -> str:
        """The predicate in SQL."""
        return f"{self.name} BETWEEN {self.low} AND {self.high}"


COLUMNS = (
    Column("age", 17, 90, 25, 45),
    Column("fnlwgt", 10_000, 1_500_000, 100_000, 1_000_000),
    Column("hours_per_week", 1, 100, 30, 60),
    Column("education_num", 1, 16, 5, 10),
)


def people(rng: np.random.Generator, quick: bool) -> tuple[pa.Table, str]:
    """The paper's four columns of ADULT's training rows, or of a generated table."""
    names = [column.name for column in COLUMNS]
    whole = stored("adult_all_48842.parquet")
    if quick or whole is None:
        found, source = adult(rng, 32_561)
        if source != "ADULT":
            found = _heaped(rng, found)
        rows = 4_000 if quick else found.num_rows
        return found.select(names).slice(0, rows), f"{source}, {min(rows, found.num_rows)} rows"
    return whole.filter(pc.field("split") == "train").select(names), "ADULT, 32,561 training rows"


def _heaped(rng: np.random.Generator, table: pa.Table) -> pa.Table:
    """A generated table in which nearly half work 40 hours, as in ADULT."""
    hours = np.where(rng.random(table.num_rows) < 0.45, 40, table["hours_per_week"].to_numpy())
    place = table.column_names.index("hours_per_week")
    return table.set_column(place, "hours_per_week", pa.array(hours))


def state_counts(table: pa.Table, columns: tuple[Column, ...]) -> Counts:
    """Rows in each of the 2^k states; the first column is the leftmost bit (OLAP fig. 2)."""
    state = np.zeros(table.num_rows, dtype=np.int64)
    for column in columns:
        values = table[column.name].to_numpy()
        state = 2 * state + ((values >= column.low) & (values <= column.high))
    return np.bincount(state, minlength=1 << len(columns))


def zipf(rows: int) -> Counts:
    """How often each value occurs: shares fall as rank^-0.5 over rows/10 values.

    The least frequent then occurs 5 times, as in the paper.  Value i is the i-th most frequent.
    """
    weights = np.arange(1, rows // 10 + 1) ** -0.5
    steps = np.rint(np.cumsum(weights / weights.sum()) * rows).astype(np.int64)
    return np.diff(steps, prepend=0)


def half(counts: Counts) -> Column:
    """A range of the most frequent values that holds about half of the rows."""
    values = len(counts)
    high = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2)) + 1
    return Column("v", 1, values, 1, high)


@dataclass(frozen=True)
class Retention:
    """What a release does to each of its columns."""

    retention: float
    mechanism: str = "uniform"


def publish(
    table: pa.Table, columns: tuple[Column, ...], how: Retention, seed: int, folder: Path
) -> Path:
    """A release of a table in which every column is perturbed and nothing is refused."""
    lines = ["[release]", 'table = "people"', "[policy]", 'personal_groups = "allow"']
    lines += ["min_rows = 0"]
    for column in columns:
        lines += [f"[columns.{column.name}]", 'role = "sensitive"']
        lines += [f'mechanism = "{how.mechanism}"', f"retention = {how.retention}"]
        lines.append("accept_epsilon = true")  # the paper's retentions on its fine grids
        lines.append(f"domain = {{ lower = {column.lower}, upper = {column.upper}, step = 1 }}")
    source, spec, out = folder / "people.parquet", folder / "people.toml", folder / "out.duckdb"
    pq.write_table(table.select([column.name for column in columns]), source)
    spec.write_text("\n".join(lines) + "\n")
    out.unlink(missing_ok=True)
    privsql.publish(str(source), out, spec=spec, seed=seed)
    return out


def ask_states(
    con: privsql.Connection, columns: tuple[Column, ...], estimator: str
) -> tuple[Array, Array]:
    """Reconstructed and published counts of all states, asked in SQL."""
    asked = ", ".join(f"{column.condition} AS p{i}" for i, column in enumerate(columns))
    keys = ", ".join(f"p{i}" for i in range(len(columns)))
    text = f"SELECT {asked}, COUNT(*) AS n, privsql_observed(n) AS seen FROM people GROUP BY {keys}"
    found = np.zeros((2, 1 << len(columns)))
    for row in con.sql(text, estimator=estimator).arrow().to_pylist():
        state = 0
        for i in range(len(columns)):
            state = 2 * state + int(row[f"p{i}"])
        found[:, state] = row["n"], row["seen"]
    return found[0], found[1]
