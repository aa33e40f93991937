"""Releases to audit, made once for all tests of this folder."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import privsql
from tests import specs

ROWS = 4_000

SPEC = specs.spec(
    "people",
    specs.public("city"),
    specs.public("n"),
    specs.measure("cost"),
    specs.sensitive("ill", 0.5, ["flu", "cold", "none"]),
    specs.sensitive("age", 0.3, specs.grid(0, 19)),
    more='[groups]\nmerge = "none"\n',
)


def people(rows: int = ROWS) -> pa.Table:
    """Four cities (one of them NULL) by two letters, of unequal sizes."""
    rng = np.random.default_rng(1)
    city = rng.choice(["a", "b", "c", None], rows, p=[0.7, 0.2, 0.07, 0.03])
    letter = rng.choice(["x", "y"], rows, p=[0.8, 0.2])
    chance = np.where(city == "a", 0.7, 0.2)
    ill = np.where(rng.random(rows) < chance, "none", rng.choice(["flu", "cold"], rows))
    age = np.minimum(rng.geometric(0.25, rows) - 1, 19)
    return pa.table({"id": np.arange(rows), "city": city, "n": letter, "cost": age * 1.5,
                     "ill": ill, "age": age})  # fmt: skip


@pytest.fixture(scope="session")
def clinic(tmp_path_factory):
    """A folder with one raw table as Parquet, CSV and DuckDB, and a release of it."""
    import duckdb

    folder = tmp_path_factory.mktemp("audit")
    table = people().drop_columns(["id"])
    pq.write_table(table, folder / "people.parquet")
    with duckdb.connect(str(folder / "people.duckdb")) as con:
        con.from_arrow(table).create("raw_people")
        con.execute(f"COPY raw_people TO '{folder / 'people.csv'}'")
    (folder / "spec.toml").write_text(SPEC)
    privsql.publish(
        str(folder / "people.parquet"), folder / "plain.duckdb", spec=folder / "spec.toml"
    )
    return folder


@pytest.fixture(scope="session")
def publish(clinic):
    """Publish the same raw table by another spec."""

    def make(name: str, spec: str, **options: object):
        path = clinic / f"{name}.toml"
        path.write_text(spec)
        out = clinic / f"{name}.duckdb"
        privsql.publish(str(clinic / "people.parquet"), out, spec=path, force=True, **options)
        return out

    return make
