"""Sources: several files as one table, side by side or one after another."""

from __future__ import annotations

import re
import tempfile
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.errors import DataError, OperationalError, ProgrammingError
from privsql.publish.source import open_source
from privsql.release.spec import parse_spec

SPEC = """
[release]
table = "visits"
join = "id"
sources = [["a.csv"], ["b.parquet"]]
[columns.city]
role = "public"
[columns.illness]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = ["flu", "cold", "none"]
"""

ROWS = 1000


@pytest.fixture(autouse=True)
def spills(tmp_path, monkeypatch):
    """Where parts spill; nothing may be left there."""
    folder = tmp_path / "spills"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.iterdir())


def wide() -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "id": np.arange(ROWS) + 500,
            "city": rng.choice(["north", "south"], ROWS),
            "illness": rng.choice(["flu", "cold", "none"], ROWS),
        }
    )


def shuffled(table: pa.Table, seed: int) -> pa.Table:
    return table.take(np.random.default_rng(seed).permutation(len(table)))


def parts(place: Path, left: pa.Table | None = None, right: pa.Table | None = None):
    table = wide()
    left = shuffled(table.select(["id", "city"]), 2) if left is None else left
    right = shuffled(table.select(["illness", "id"]), 3) if right is None else right
    pacsv.write_csv(left, place / "a.csv")
    pq.write_table(right, place / "b.parquet")
    return [[str(place / "a.csv")], [str(place / "b.parquet")]]


def read(joined, on: str = "id") -> pa.Table:
    with closing(open_source([], joined=joined, on=on)) as source:
        assert source.rows() == ROWS
        return pa.Table.from_batches(source.batches(source.names))


def test_parts_are_the_wide_table_in_the_order_of_the_key(tmp_path):
    assert read(parts(tmp_path)).to_pylist() == wide().to_pylist()


def test_parts_of_every_kind_and_of_several_files(tmp_path):
    table = wide().append_column("n", pa.array(range(ROWS)))
    pacsv.write_csv(table.select(["city", "id"]).slice(0, 300), tmp_path / "a1.csv")
    pacsv.write_csv(table.select(["city", "id"]).slice(300), tmp_path / "a2.csv")
    small = table.select(["id", "n"]).cast(pa.schema([("id", pa.int32()), ("n", pa.int64())]))
    pq.write_table(shuffled(small, 4), tmp_path / "b.parquet")
    with duckdb.connect(str(tmp_path / "c.duckdb")) as con:
        con.register("raw", table)
        con.execute('CREATE TABLE "the ill" AS SELECT illness, id AS "ID" FROM raw')
        con.execute("CREATE TABLE other AS SELECT 1")
    files = [str(tmp_path / name) for name in ("a*.csv", "b.parquet", "c.duckdb::the ill")]
    joined = [[file] for file in files]
    assert read(joined).select(table.schema.names).to_pylist() == table.to_pylist()
    with closing(open_source([], joined=joined, on="id")) as source:
        assert source.names == ["city", "id", "n", "illness"]
        named = [str(tmp_path / name) for name in ("a1.csv", "a2.csv")]
        assert list(source.files) == [*named, *files[1:]]
        before = source.state()
    pacsv.write_csv(table.select(["city", "id"]).slice(299), tmp_path / "a3.csv")
    with closing(open_source(files[:1])) as source:
        assert source.state() != before


def test_two_tables_of_one_database(tmp_path):
    with duckdb.connect(str(tmp_path / "c.duckdb")) as con:
        con.register("raw", wide())
        con.execute("CREATE TABLE a AS SELECT id, city FROM raw")
        con.execute("CREATE TABLE b AS SELECT id, illness FROM raw ORDER BY illness")
    joined = [[f"{tmp_path / 'c.duckdb'}::{name}"] for name in "ab"]
    assert read(joined).to_pylist() == wide().to_pylist()


def test_joined_parts_publish_as_the_wide_table_does(tmp_path):
    """The parts are found beside the spec that names them."""
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC)
    assert parse_spec(SPEC).sources_joined == (("a.csv",), ("b.parquet",))
    parts(tmp_path)
    pq.write_table(wide(), tmp_path / "wide.parquet")
    privsql.publish(str(tmp_path / "wide.parquet"), tmp_path / "w.duckdb", spec=spec, seed=1)
    privsql.publish(None, tmp_path / "j.duckdb", spec=spec, seed=1)
    tables = []
    for name in ("w", "j"):
        with privsql.release.open(tmp_path / f"{name}.duckdb").connection() as con:
            tables.append((con.table("visits").columns, con.execute("FROM visits").fetchall()))
    assert tables[0] == tables[1]
    assert "id" not in tables[0][0]


def test_paths_come_before_parts(tmp_path):
    pq.write_table(wide(), tmp_path / "wide.parquet")
    with closing(
        open_source([str(tmp_path / "wide.parquet")], joined=[["no.csv"], ["no.csv"]], on="id")
    ) as source:
        assert source.names == ["id", "city", "illness"]


def keys(ids) -> pa.Table:
    return pa.table({"id": pa.array(ids), "illness": ["flu"] * len(ids)})


GOOD = list(range(500, 500 + ROWS))


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ([*GOOD, 777, 777, 778], "part 2 .* 5 rows share their key"),
        ([*GOOD[:-3], None, None, None], "part 2 .* 3 rows have no key"),
        ([*GOOD[:-4], None, None, 777, 778], "2 rows have no key and 4 rows share their key"),
        (GOOD[:-3], "3 of part 1$"),
        ([*GOOD, 7777, 7778], "2 of part 2$"),
        ([*GOOD[:-1], 7777], "1 of part 1, 1 of part 2$"),
    ],
)
def test_keys_that_do_not_match_one_to_one_are_counted_and_not_shown(tmp_path, ids, words):
    joined = parts(tmp_path, right=keys(ids))
    with pytest.raises(DataError) as caught:
        open_source([], joined=joined, on="id")
    assert re.search(words, caught.value.reason)
    assert "777" not in str(caught.value)


def test_columns_that_several_parts_have_are_named(tmp_path):
    right = wide().rename_columns(["id", "City", "illness"])
    with pytest.raises(ProgrammingError, match="same columns: City"):
        open_source([], joined=parts(tmp_path, right=right), on="id")


def test_a_key_of_two_types_is_refused(tmp_path):
    right = keys([str(i) for i in GOOD])
    with pytest.raises(ProgrammingError, match="BIGINT in part 1, VARCHAR in part 2"):
        open_source([], joined=parts(tmp_path, right=right), on="id")


def test_parts_that_cannot_be_opened(tmp_path):
    joined = parts(tmp_path)
    with pytest.raises(ProgrammingError, match="need a key"):
        open_source([], joined=joined)
    with pytest.raises(ProgrammingError, match="part 1 of the source has no column"):
        open_source([], joined=joined, on="person")
    with pytest.raises(ProgrammingError, match="part 2 of the source names no file"):
        open_source([], joined=[joined[0], []], on="id")
    with pytest.raises(OperationalError, match="no file"):
        open_source([], joined=[joined[0], [str(tmp_path / "c.csv")]], on="id")
    (tmp_path / "a.csv").write_bytes(b"id,city\n1,\xff\xfe\n")
    with pytest.raises(DataError, match="UTF-8"):
        open_source([], joined=joined, on="id")
    (tmp_path / "a.csv").write_text("id,city\n" + "1,x\n" * 30_000 + "zzz,x\n")
    with pytest.raises(DataError) as caught:
        open_source([], joined=joined, on="id")
    assert "zzz" not in str(caught.value)


def test_words_of_a_domain_are_words_whatever_a_csv_file_makes_of_them(tmp_path):
    """DuckDB takes yes and no for truth values, and 01 for a number."""
    (tmp_path / "raw.csv").write_text("sex,hiv,code\n" + "F,yes,01\nM,no,02\n" * 40)
    (tmp_path / "spec.toml").write_text(
        '[release]\ntable = "t"\nsource = "raw.csv"\n[columns.sex]\nrole = "public"\n'
        + "".join(
            f'[columns.{name}]\nrole = "sensitive"\nmechanism = "uniform"\nretention = 1\n'
            f"accept_epsilon = true\ndomain = {domain}\n"
            for name, domain in (("hiv", ["no", "yes"]), ("code", ["01", "02", "03"]))
        )
    )
    privsql.publish(None, tmp_path / "r.duckdb", spec=tmp_path / "spec.toml")
    with privsql.connect(str(tmp_path / "r.duckdb")) as con:
        found = con.execute(
            "SELECT hiv, code, COUNT(*) FROM t GROUP BY ALL ORDER BY ALL"
        ).fetchall()
    assert [row for row in found if row[2]] == [("no", "02", 40), ("yes", "01", 40)]
