"""Sources: several files as one table, side by side or one after another."""

from __future__ import annotations

import io
import re
import shutil
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import privsql
from privsql.errors import DataError, OperationalError, ProgrammingError
from privsql.fronts.cli.main import main
from privsql.publish.append.local import perturb_file
from privsql.publish.keys.randomness import Seeded
from privsql.publish.source import open_source
from privsql.publish.staging import check_room
from privsql.publish.starter import starter
from privsql.release.spec import parse_spec
from tests import specs

SPEC = specs.spec(
    "visits",
    specs.public("city"),
    specs.sensitive("illness", 0.5, ["flu", "cold", "none"]),
    join="id",
    sources=[["a.csv"], ["b.parquet"]],
)

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


# --- what a file is -----------------------------------------------------------------


TEXT = b"id,city,illness\n" + b"".join(b"%d,north,flu\n" % i for i in range(30))


def packed(how: str, data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.output_stream(sink, compression=how) as stream:
        stream.write(data)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("name", ["rows.csv.gz", "rows.csv.zst", "rows.gz", "ROWS.CSV.GZ"])
def test_compressed_csv_is_read(tmp_path, name):
    how = "zstd" if name.endswith("zst") else "gzip"
    (tmp_path / name).write_bytes(packed(how, TEXT))
    with closing(open_source([str(tmp_path / name)])) as source:
        assert source.names == ["id", "city", "illness"]
        assert source.rows() == 30


def test_compressed_files_are_parts_of_one_source(tmp_path):
    (tmp_path / "a.csv").write_bytes(TEXT)
    (tmp_path / "b.csv.gz").write_bytes(packed("gzip", TEXT))
    (tmp_path / "c.csv.zst").write_bytes(packed("zstd", TEXT))
    with closing(open_source([str(tmp_path / "[ab].csv*"), str(tmp_path / "c.csv.zst")])) as source:
        assert source.rows() == 90


@pytest.mark.parametrize("kind", ["csv", "gzip", "zstd", "parquet", "duckdb", "text stream"])
def test_standard_input_is_any_of_these(tmp_path, monkeypatch, spills, kind):
    data = packed(kind, TEXT) if kind in ("gzip", "zstd") else TEXT
    if kind == "parquet":
        pq.write_table(wide(), tmp_path / "rows.parquet")
        data = (tmp_path / "rows.parquet").read_bytes()
    elif kind == "duckdb":
        with duckdb.connect(str(tmp_path / "rows.duckdb")) as con:
            con.execute("CREATE TABLE t AS SELECT 1 AS id, 'x' AS city, 'flu' AS illness")
        data = (tmp_path / "rows.duckdb").read_bytes()
    stream = io.TextIOWrapper(io.BytesIO(data))
    monkeypatch.setattr(
        sys, "stdin", io.StringIO(TEXT.decode()) if kind == "text stream" else stream
    )
    with closing(open_source(["-"])) as source:
        (folder,) = (path for path in spills.iterdir() if path.is_dir())
        assert folder.stat().st_mode & 0o777 == 0o700
        assert source.names == ["id", "city", "illness"]
        state = source.state()
    with closing(_again(tmp_path, data)) as again:
        assert again.state() == state, "the same rows are the same source, wherever they come from"


def _again(tmp_path: Path, data: bytes):
    ending = ".parquet" if data[:4] == b"PAR1" else ".duckdb" if data[8:12] == b"DUCK" else ".csv"
    ending += {b"\x1f\x8b": ".gz", b"\x28\xb5": ".zst"}.get(data[:2], "")
    (tmp_path / f"again{ending}").write_bytes(data)
    return open_source([str(tmp_path / f"again{ending}")])


def test_standard_input_stands_alone_and_may_be_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    with pytest.raises(ProgrammingError, match="standard input is a source of its own"):
        open_source(["-", "a.csv"])
    with pytest.raises(DataError, match="standard input is empty"):
        open_source(["-"])


def test_publishing_from_standard_input(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT)))
    report = privsql.publish("-", tmp_path / "r.duckdb", spec=parse_spec(SPEC), seed=1)
    assert report.rows == 30


PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("x.csv", b"", "x.csv is empty"),
        ("x.parquet", b"", "x.parquet is empty"),
        ("x.duckdb", b"", "x.duckdb is empty"),
        ("x.csv", PNG, "x.csv is not CSV: it is a PNG image"),
        ("x.parquet", PNG, "x.parquet is not a Parquet file: it is a PNG image"),
        ("x.duckdb", PNG, "x.duckdb is not a DuckDB file: it is a PNG image"),
        ("x.csv", b"PK\x03\x04xx", "it is a ZIP archive or a spreadsheet"),
        ("x.csv", packed("gzip", TEXT), "it is compressed by gzip"),
        ("x.csv.gz", TEXT, "x.csv.gz is not compressed by gzip"),
        ("x.csv.zst", TEXT, "x.csv.zst is not compressed by zstd"),
        ("x.csv.gz", packed("gzip", PNG), "it is a PNG image"),
        ("x.csv.gz", packed("gzip", b""), "x.csv.gz holds nothing"),
        ("x.csv", b"a,b\n1,\x00\x01\x02", "it holds binary data"),
        ("x.parquet", TEXT, "x.parquet is not a Parquet file: it holds other data"),
        ("x.csv", "a,b\n1,2\n".encode("utf-16"), "it is UTF-16"),
        ("x.csv", b"# privsql batch, rules 0\ncity\n", "is a batch that `privsql perturb` made"),
        ("x.csv", b"a,b,c\n1,2\n", "do not have as many fields"),
    ],
)
def test_what_is_no_source_is_refused_by_name(tmp_path, name, data, words):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(DataError) as caught:
        open_source([str(tmp_path / name)])
    assert words in str(caught.value)


def test_a_folder_is_no_source(tmp_path):
    with pytest.raises(OperationalError, match="is a folder"):
        open_source([str(tmp_path)])


def test_a_release_and_a_batch_are_no_raw_data(tmp_path):
    (tmp_path / "raw.csv").write_bytes(TEXT)
    out, spec = tmp_path / "r.duckdb", parse_spec(SPEC)
    privsql.publish(str(tmp_path / "raw.csv"), out, spec=spec, seed=1)
    for source in (str(out), f"{out}::{spec.table}"):
        with pytest.raises(DataError, match=r"r\.duckdb is a release") as caught:
            privsql.publish(source, tmp_path / "again.duckdb", spec=spec, seed=1)
        assert "privsql query" in str(caught.value)
        with pytest.raises(DataError, match="is a release"):
            starter(source)
    perturb_file(spec, tmp_path / "raw.csv", tmp_path / "batch.parquet", Seeded(1))
    with pytest.raises(DataError, match=r"batch.parquet is a batch"):
        open_source([str(tmp_path / "batch.parquet")])
    assert not (tmp_path / "again.duckdb").exists()


def test_the_line_and_the_column_of_a_mixed_type_are_named(tmp_path):
    (tmp_path / "x.csv").write_text("a,b\n" + "1,x\n" * 30_000 + "secret,y\n")
    named = pytest.raises(DataError, match="line 30,002 of a file, column a,")
    with closing(open_source([str(tmp_path / "x.csv")])) as source, named as caught:
        list(source.batches(["a"]))
    assert "secret" not in str(caught.value)


def test_the_command_takes_several_sources(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "a.csv").write_bytes(TEXT)
    (tmp_path / "b.csv.gz").write_bytes(packed("gzip", TEXT))
    command = ["publish", str(tmp_path / "spec.toml"), "-o", str(tmp_path / "r.duckdb")]
    for name in ("a.csv", "b.csv.gz"):
        command += ["--source", str(tmp_path / name)]
    done = CliRunner().invoke(main, [*command, "--seed", "1"])
    assert done.exit_code == 0, done.stderr
    assert "published 60 rows" in done.stdout
    done = CliRunner().invoke(main, [*command[:4], "--source", "-", "--force"], input=TEXT)
    assert done.exit_code == 0, done.stderr
    assert "published 30 rows" in done.stdout


# --- room ---------------------------------------------------------------------------


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(tmp_path):
    def usage(folder):
        return shutil._ntuple_diskusage(0, 0, 10 * 10**9)

    assert check_room(tmp_path, 1_000_000, 6, usage) is None
    said = check_room(tmp_path, 50_000_000, 6, usage)
    assert said == (
        "publishing 50,000,000 rows needs about 6.5 GB of temporary disk space beside the release;"
        " 10 GB are free"
    )
    with pytest.raises(OperationalError) as caught:
        check_room(tmp_path, 1_000_000_000, 6, usage)
    assert "needs about 149 GB" in str(caught.value)
    assert "10 GB are free there" in str(caught.value)
    with pytest.raises(OperationalError, match="needs about 14 GB"):
        check_room(tmp_path, 50_000_000, 16, usage)


def test_publishing_says_and_refuses(tmp_path, monkeypatch):
    (tmp_path / "raw.csv").write_bytes(TEXT)
    monkeypatch.setattr("privsql.publish.staging.ROW_BYTES", 10**8)
    told: list[str] = []
    source, out = str(tmp_path / "raw.csv"), tmp_path / "r.duckdb"
    privsql.publish(source, out, spec=parse_spec(SPEC), seed=1, say=told.append)
    assert [line[:40] for line in told] == ["publishing 30 rows needs about 2 GB of t"]
    monkeypatch.setattr("privsql.publish.staging.ROW_BYTES", 10**15)
    with pytest.raises(OperationalError, match="temporary disk space"):
        privsql.publish(source, tmp_path / "b.duckdb", spec=parse_spec(SPEC), seed=1)
    assert not (tmp_path / "b.duckdb").exists()
    # The publisher may know better, and is told what is missing all the same.
    (tmp_path / "spec.toml").write_text(SPEC)
    command = ["publish", str(tmp_path / "spec.toml"), "-o", str(tmp_path / "b.duckdb")]
    command += ["--source", source, "--seed", "1"]
    refused = CliRunner().invoke(main, command)
    assert refused.exit_code == 1
    assert "--ignore-disk" in refused.stderr
    done = CliRunner().invoke(main, [*command, "--ignore-disk"])
    assert done.exit_code == 0, done.stderr
    assert "temporary disk space beside the release" in done.stderr
    assert (tmp_path / "b.duckdb").exists()
