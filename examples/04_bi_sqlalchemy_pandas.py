"""A release as a database: SQLAlchemy, pandas and the queries of a dashboard.

Over the wire the same works with ``postgresql+psycopg://`` and ``privsql serve``.  Run it with
``python examples/04_bi_sqlalchemy_pandas.py``; it needs ``privsql[sqlalchemy]``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import sqlalchemy as sa

import privsql
from privsql.fronts.demo.questions import SPEC_TEXT
from privsql.fronts.demo.recipe import clinic


def main() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pq.write_table(clinic(60_000, np.random.default_rng(4)), folder / "clinic.parquet")
        (folder / "clinic.toml").write_text(SPEC_TEXT)
        privsql.publish(None, folder / "clinic.duckdb", spec=folder / "clinic.toml")

        engine = sa.create_engine(f"privsql:///{folder / 'clinic.duckdb'}")

        print("What a tool sees when it connects:")
        for column in sa.inspect(engine).get_columns("patients"):
            print(f"  {column['name']:<10}{column['type']!s:<12}{column['comment']}")

        print("\nA query built by SQLAlchemy, read by pandas:")
        patients = sa.Table("patients", sa.MetaData(), autoload_with=engine)
        question = (
            sa.select(patients.c.district, sa.func.count().label("n"))
            .where(patients.c.disease == "diabetes")
            .group_by(patients.c.district)
            .order_by(patients.c.district)
        )
        with engine.connect() as connection:
            print(pd.read_sql(question, connection).round().to_string(index=False))

            print("\nA filter menu: the values come from the public domain, not from rows:")
            menu = sa.select(patients.c.disease).distinct()
            print(" ", sorted(connection.execute(menu).scalars()))

            print("\nError bars as columns, for whiskers in a chart:")
            connection.execute(sa.text("SET privsql.error_bars = true"))
            text = "SELECT smoker, COUNT(*) AS n FROM patients GROUP BY smoker ORDER BY smoker"
            print(pd.read_sql(sa.text(text), connection).round(1).to_string(index=False))
        engine.dispose()


if __name__ == "__main__":
    main()
