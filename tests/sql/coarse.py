"""A release whose sensitive columns lie on grids that are coarser than their types."""

from __future__ import annotations

from pathlib import Path

import duckdb

import privsql

RAW = """
    SELECT (['eng', 'law'])[1 + (hash(i) % 2)::INTEGER] AS job,
           (hash(i * 3) % 126)::INTEGER AS docvis,
           (3 + hash(i * 5) % 41)::BIGINT AS odd,
           35 + (hash(i * 7) % 7001) / 1000 AS temp,
           ((hash(i * 11) % 10001) / 100)::DECIMAL(10, 2) AS paid,
           DATE '2024-01-01' + (hash(i * 13) % 365)::INTEGER AS born,
           TIMESTAMP '2024-01-01' + to_seconds((hash(i * 17) % 86401)::BIGINT) AS seen,
           TIMESTAMP '2024-01-01' + to_seconds((hash(i * 19) % 86401)::BIGINT) AS left_at,
           (hash(i * 23) % 121)::INTEGER AS age,
           (['flu', 'hiv', 'none'])[1 + (hash(i * 29) % 3)::INTEGER] AS disease,
           (1 + hash(i * 31) % 3)::INTEGER AS edu
    FROM range(3000) AS r(i)
"""

# Steps and first points, as SQL: how the raw table looks once it is rounded.
ROUNDED = """
    SELECT job, (5 * floor(docvis / 5 + 0.5))::INTEGER AS docvis,
           (3 + 5 * floor((odd - 3) / 5 + 0.5))::BIGINT AS odd,
           35 + 0.5 * floor((temp - 35) / 0.5 + 0.5) AS temp,
           (0.25 * floor(paid::DOUBLE / 0.25 + 0.5))::DECIMAL(10, 2) AS paid,
           DATE '2024-01-01'
               + (7 * floor((born - DATE '2024-01-01') / 7 + 0.5))::INTEGER AS born,
           TIMESTAMP '2024-01-01' + to_seconds((900 * floor(
               epoch(seen - TIMESTAMP '2024-01-01') / 900 + 0.5))::BIGINT) AS seen,
           left_at, age, disease, edu
    FROM visits
"""

DOMAINS = {
    "docvis": "{ lower = 0, upper = 125, step = 5 }",
    "odd": "{ lower = 3, upper = 43, step = 5 }",
    "temp": "{ lower = 35.0, upper = 42.0, step = 0.5 }",
    "paid": "{ lower = 0.00, upper = 100.00, step = 0.25 }",
    "born": '{ lower = 2024-01-01, upper = 2024-12-30, step = "7 days" }',
    "seen": '{ lower = 2024-01-01 00:00:00, upper = 2024-01-02 00:00:00, step = "15 minutes" }',
    "left_at": '{ lower = 2024-01-01 00:00:00, upper = 2024-01-02 00:00:00, step = "1 second" }',
    "age": "{ lower = 0, upper = 120, step = 1 }",
    "disease": '["flu", "hiv", "none"]',
    "edu": "[1, 2, 3]",
}


def spec(retention: float) -> str:
    """The spec of the release."""
    columns = "".join(
        f'[columns.{name}]\nrole = "sensitive"\nmechanism = "uniform"\nretention = {retention}\n'
        f"accept_epsilon = true\ndomain = {domain}\n"
        for name, domain in DOMAINS.items()
    )
    return (
        '[release]\ntable = "visits"\n[columns.job]\nrole = "public"\n'
        f'{columns}[groups]\nmerge = "none"\n[policy]\npersonal_groups = "allow"\nmin_rows = 0\n'
    )


def raw() -> duckdb.DuckDBPyConnection:
    """The raw table ``visits``, and ``rounded`` as it is before it is perturbed."""
    connection = duckdb.connect()
    connection.execute(f"CREATE TABLE visits AS {RAW}")
    connection.execute(f"CREATE TABLE rounded AS {ROUNDED}")
    return connection


def publish(folder: Path, retention: float) -> privsql.publish.report.PublishReport:
    """Publish it; the report says where it is."""
    source = folder / "visits.parquet"
    with raw() as connection:
        connection.table("visits").write_parquet(str(source))
    (folder / "visits.toml").write_text(spec(retention), encoding="utf-8")
    release = folder / f"visits{retention:g}.duckdb"
    return privsql.publish(str(source), release, spec=folder / "visits.toml", seed=7)
