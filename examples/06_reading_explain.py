"""Read EXPLAIN RECONSTRUCTION: the width of an answer before it is computed.

Run it with ``python examples/06_reading_explain.py``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

import privsql
from privsql.fronts.demo.questions import SPEC_TEXT
from privsql.fronts.demo.recipe import clinic

ONE = "SELECT COUNT(*) AS n FROM patients WHERE disease = 'copd'"
TWO = "SELECT COUNT(*) AS n FROM patients WHERE disease = 'copd' AND smoker = 'yes'"

READING = """
Reading it: a factor is how published cells follow from original ones; the condition number
says how much inverting them stretches errors, and it multiplies over conditions. The expected
width follows from rows and channels alone, so it reveals nothing about the answer. The answers:"""


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pq.write_table(clinic(60_000, np.random.default_rng(4)), folder / "clinic.parquet")
        (folder / "clinic.toml").write_text(SPEC_TEXT)
        privsql.publish(None, folder / "clinic.duckdb", spec=folder / "clinic.toml")
        with privsql.connect(str(folder / "clinic.duckdb")) as con:
            for what, sql in (("One perturbed condition", ONE), ("Two of them", TWO)):
                print(f"--- {what}\n{con.explain(sql)}")
            print("--- The first in full: cells, channels, and the SQL of scan and reconstruction")
            print(con.explain(ONE, verbose=True))
            print("--- The same two conditions, spelled out as four counts")
            for part in con.expand(TWO):
                print(part)
            print(READING)
            for sql in (ONE, TWO):
                print(con.sql(sql))


if __name__ == "__main__":
    main()
