"""A small release that the tests of the query layer share, and its raw table."""

from __future__ import annotations

from pathlib import Path

import duckdb

import privsql

RAW = """
    SELECT (['eng', 'law', 'med'])[1 + (hash(i) % 3)::INTEGER] AS job,
           (['F', 'M'])[1 + (hash(i + 7) % 2)::INTEGER] AS gender,
           (['flu', 'hiv', 'none'])[1 + (hash(i * 13) % 3)::INTEGER] AS favourite,
           (10 + hash(i * 3) % 100)::INTEGER AS cost,
           CASE WHEN hash(i * 17) % 20 = 0 THEN NULL
                ELSE (['flu', 'hiv', 'none'])[1 + least(hash(i * 5) % 5, 2)::INTEGER]
           END AS disease,
           (20 + hash(i * 11) % 60)::INTEGER AS age,
           TIMESTAMP '2024-01-01' + to_seconds((hash(i * 19) % 31536000)::BIGINT) AS seen
    FROM range(4000) AS r(i)
"""

SPEC = """
[release]
table = "patients"
source = "{source}"
[columns.job]
role = "public"
[columns.gender]
role = "public"
[columns.favourite]
role = "public"
[columns.cost]
role = "public"
grouping = false
[columns.disease]
role = "sensitive"
mechanism = "uniform"
retention = {p}
accept_epsilon = true
domain = ["flu", "hiv", "none"]
nullable = true
[columns.age]
role = "sensitive"
mechanism = "uniform"
retention = {p}
accept_epsilon = true
domain = {{ lower = 0, upper = 120, step = 1 }}
[columns.seen]
role = "sensitive"
mechanism = "uniform"
retention = {p}
accept_epsilon = true
domain = {{ lower = 2024-01-01 00:00:00, upper = 2024-12-31 23:59:59, step = "1 second" }}
[groups]
merge = "none"
[policy]
personal_groups = "{policy}"
min_rows = {least}
"""


def raw() -> duckdb.DuckDBPyConnection:
    """The raw table, as nobody but the publisher has it."""
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE patients AS {RAW}")
    return connection


def publish(
    folder: Path,
    retention: float,
    seed: int = 7,
    policy: str = "allow",
    least: int = 0,
    more: str = "",
) -> Path:
    """Publish it with one retention for all columns."""
    source, release = folder / "patients.parquet", folder / f"clinic{retention:g}.duckdb"
    with raw() as connection:
        connection.table("patients").write_parquet(str(source))
    spec = folder / "clinic.toml"
    text = SPEC.format(source=source, p=retention, policy=policy, least=least)
    spec.write_text(text + more, encoding="utf-8")
    privsql.publish(str(source), str(release), spec=str(spec), seed=seed)
    return release
