"""Choose parameters from a guarantee or from the precision that analysts need, and audit.

Run it with ``python examples/07_choosing_parameters.py``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import privsql
from privsql.fronts.demo.questions import SPEC_TEXT
from privsql.fronts.demo.recipe import clinic

QUERY = "SELECT COUNT(*) AS n FROM patients WHERE disease = 'diabetes' AND district = 'harbour'"


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pq.write_table(clinic(30_000, np.random.default_rng(4)), folder / "clinic.parquet")
        spec = folder / "clinic.toml"
        spec.write_text(SPEC_TEXT)

        print("--- From a guarantee: epsilon 2 for both columns together")
        print(privsql.advise(spec, epsilon=2))

        print("\n--- From a guarantee: a belief of 10% must not rise above 50%, eight values")
        print(privsql.advise(rho=(0.1, 0.5), values=8))

        print("\n--- From precision: this count to within 150, with as little kept as possible")
        print(QUERY)
        advice = privsql.advise(spec, queries={QUERY: 150}, draws=1, seed=3)
        print(advice)

        print("\n--- Audit: publish as the spec says, and audit the release")
        privsql.publish(None, folder / "clinic.duckdb", spec=spec)
        report = privsql.audit(folder / "clinic.duckdb", raw=str(folder / "clinic.parquet"))
        print(report.summary())
        with privsql.connect(str(folder / "clinic.duckdb")) as con:
            print(con.sql(QUERY))


if __name__ == "__main__":
    main()
