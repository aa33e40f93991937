"""Equal rows that are stored once are answered as if each were there."""

from __future__ import annotations

import hashlib
import math
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.release.store import open_release
from privsql.session.session import Session
from tests.oracle.releases import clinic, spec

QUERIES = (
    "SELECT COUNT(*) FROM clinic WHERE disease = 'flu'",
    "SELECT COUNT(*) FROM clinic WHERE disease = 'flu' AND job <> 'eng'",
    "SELECT job, COUNT(*) FILTER (WHERE disease IN ('hiv', 'cold')) AS n, COUNT(*) AS all_rows"
    " FROM clinic GROUP BY job ORDER BY job",
    "SELECT disease, COUNT(*) AS n FROM clinic WHERE job = 'law' GROUP BY disease ORDER BY disease",
    "SELECT disease, COUNT(*) / SUM(COUNT(*)) OVER () AS share FROM clinic WHERE job = 'eng'"
    " GROUP BY disease ORDER BY disease",
    "SELECT COUNT(*) FROM clinic WHERE disease = 'flu' AND smoker",
)


def unfolded(path: Path) -> Path:
    """The same published rows, each stored as often as it stands for."""
    made = path.with_name(f"{path.stem}-unfolded.duckdb")
    shutil.copyfile(path, made)
    manifest = open_release(path).manifest
    with duckdb.connect(str(made)) as con:
        ((rows,),) = con.execute("SELECT sum(privsql_multiplicity)::BIGINT FROM clinic").fetchall()
        text = replace(manifest, multiplicity=False, rows=rows).to_json()
        digest = hashlib.sha256(text.encode()).hexdigest()
        con.execute(
            "CREATE TABLE other AS SELECT * EXCLUDE (privsql_multiplicity) FROM clinic"
            " CROSS JOIN range(privsql_multiplicity) AS times(i)"
        )
        con.execute("ALTER TABLE other DROP COLUMN i")
        con.execute("DROP TABLE clinic")
        con.execute("ALTER TABLE other RENAME TO clinic")
        con.execute("UPDATE privsql.manifest SET document = ?, digest = ?", [text, digest])
    return made


@pytest.fixture(scope="module", params=["identity", "swap", "decoy", "uniform"])
def both(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    table = clinic().select(["job", "disease", "smoker"])
    pq.write_table(table, folder / "raw.parquet")
    (folder / "spec.toml").write_text(spec(request.param, table.column_names))
    path = folder / "compacted.duckdb"
    privsql.publish(str(folder / "raw.parquet"), path, spec=folder / "spec.toml", seed=2)
    sessions = Session(path), Session(unfolded(path))
    assert [session.catalog.multiplicity for session in sessions] == [True, False]
    yield sessions
    for session in sessions:
        session.close()


@pytest.mark.parametrize("query", QUERIES)
def test_multiplicities_change_neither_estimates_nor_errors(both, query):
    one, two = (session.run(query) for session in both)
    assert one.table.num_rows == two.table.num_rows
    for left, right in zip(
        (one.table, *one.bars.values()), (two.table, *two.bars.values()), strict=True
    ):
        for a, b in zip(left.columns, right.columns, strict=True):
            assert all(map(same, a.to_pylist(), b.to_pylist()))


def same(one: object, two: object) -> bool:
    """Equal up to rounding."""
    if isinstance(one, float) and isinstance(two, float):
        return math.isclose(one, two, rel_tol=1e-9, abs_tol=1e-7)
    return one == two
