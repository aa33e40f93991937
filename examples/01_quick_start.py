"""Publish a table, query it in SQL, and compare with the true values.

Run it with ``python examples/01_quick_start.py``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq

import privsql
from privsql.fronts.demo.recipe import clinic

SPEC = """
[release]
table = "patients"
source = "clinic.parquet"
unit = "patient_id"

[columns.sex]
role = "public"
[columns.age]
role = "public"
[columns.district]
role = "public"
[columns.job]
role = "public"
[columns.cost]
role = "public"
grouping = false
[columns.visited]
role = "drop"
[columns.smoker]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = ["no", "yes"]
[columns.disease]
role = "sensitive"
mechanism = "uniform"
retention = 0.4
domain = ["asthma", "copd", "depression", "diabetes", "flu", "hiv", "hypertension", "none"]
"""

QUESTIONS = [
    "SELECT smoker, COUNT(*) AS n FROM patients GROUP BY smoker ORDER BY smoker",
    "SELECT COUNT(*) AS n FROM patients WHERE disease = 'flu' AND age < 40",
    "SELECT AVG(cost) AS n FROM patients WHERE disease IN ('asthma', 'copd')",
    "SELECT COUNT(*) AS n FROM patients",  # no perturbed column: exact
]


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        raw = clinic(100_000, np.random.default_rng(2026))
        pq.write_table(raw, folder / "clinic.parquet")
        (folder / "clinic.toml").write_text(SPEC)

        report = privsql.publish(None, folder / "clinic.duckdb", spec=folder / "clinic.toml")
        print(report.manifest.privacy.statement())

        with privsql.connect(str(folder / "clinic.duckdb")) as con, duckdb.connect() as truth:
            truth.register("patients", raw)
            for sql in QUESTIONS:
                print(f"\n{sql}")
                answer = con.sql(sql, error_bars=True).df()
                answer["truth"] = truth.sql(sql).df()["n"]
                print(answer.round(1).to_string(index=False))
            try:
                con.sql(
                    "SELECT COUNT(*) FROM patients WHERE smoker = 'yes'"
                    " AND sex = 'F' AND age = 30 AND district = 'east' AND job = 'sales'"
                )
            except privsql.Error as refused:
                print(f"\n{refused}")


if __name__ == "__main__":
    main()
