"""Bad input, beyond what test_job has: an error of ours or the right result, and nothing left."""

from __future__ import annotations

import os
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.errors import DataError, Error, OperationalError
from privsql.release.reading import SpecError
from tests import specs
from tests.publish.test_job import SPEC, clinic, left_behind, publish, rows
from tests.sizes import sized

ONE = specs.spec("t", specs.sensitive("s", 0.4, ["a", "b"]))


@pytest.fixture
def place(tmp_path):
    pq.write_table(clinic(300), tmp_path / "raw.parquet")
    return tmp_path


def refused(place: Path, spec: str, match: str, kind: type[Error] = Error, **options) -> str:
    """What is said; nothing may be left, and the source not be touched."""
    names = left_behind(place)
    before = {name: (place / name).read_bytes() for name in names if (place / name).is_file()}
    with pytest.raises(kind, match=match) as caught:
        publish(place, spec, **options)
    assert left_behind(place) == names
    assert all((place / name).read_bytes() == data for name, data in before.items())
    return str(caught.value)


# --- domains and values ------------------------------------------------------------


def test_a_domain_with_duplicates(place):
    spec = SPEC.replace('["flu", "hiv", "none"]', '["flu", "hiv", "flu"]')
    refused(place, spec, "1 of the 3 categories are repeated", SpecError)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_real_that_is_no_number(place, bad):
    values = pa.array([0.5] * 10 + [bad])
    pq.write_table(pa.table({"s": values}), place / "raw.parquet")
    spec = ONE.replace('["a", "b"]', "{ lower = 0.0, upper = 1.0, step = 0.25 }")
    said = refused(place, spec, "column s: ", DataError)
    assert "nan" not in said.lower()
    assert "inf" not in said.lower()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.5])
def test_a_unit_that_is_no_whole_number(place, bad):
    table = clinic(300)
    units = np.arange(300.0)
    units[7] = bad
    pq.write_table(table.set_column(0, "patient_id", pa.array(units)), place / "raw.parquet")
    refused(place, SPEC, "1 row has", DataError)


@pytest.mark.parametrize(
    ("type_", "domain"),
    [
        ("TINYINT", "{ lower = 0, upper = 150 }"),
        ("UTINYINT", "{ lower = -1, upper = 20 }"),
        ("TINYINT", "[1, 2, 300]"),
        ("DECIMAL(3,1)", "{ lower = 0.0, upper = 1.0, step = 0.05 }"),
        ("DATE", "{ lower = 2020-01-01T00:00:00, upper = 2020-01-02T00:00:00, step = '1 hour' }"),
        ("TIMESTAMP_S", "{ lower = 2020-01-01T00:00:00, upper = 2020-01-01T00:00:01,"
         " step = '100 milliseconds' }"),
    ],
)  # fmt: skip
def test_a_domain_that_the_column_cannot_hold(place, type_, domain):
    sample = "2020-01-01" if type_ in ("DATE", "TIMESTAMP_S") else "1"
    with duckdb.connect(str(place / "raw.duckdb")) as con:
        con.execute(f"CREATE TABLE t AS SELECT '{sample}'::{type_} AS s FROM range(200)")
    spec = ONE.replace('["a", "b"]', domain)
    source = str(place / "raw.duckdb")
    refused(place, spec, "column s: its type.* does not hold", DataError, source=source)


# --- columns -----------------------------------------------------------------------


def test_thousands_of_columns(place):
    many = sized(2_000, 10_000) - 1
    names = [f"c{i}" for i in range(many)]
    values = pa.array([1, 2, 3] * 4)
    table = pa.table([pa.array(["a", "b"] * 6), *[values] * many], names=["s", *names])
    pq.write_table(table, place / "raw.parquet")
    start = time.monotonic()
    refused(place, ONE, f"{many:,} mistakes in spec.toml", SpecError)
    roles = "".join(f'[columns.{name}]\nrole = "drop"\n' for name in names[:-1])
    roles += f'[columns.{names[-1]}]\nrole = "public"\n'
    assert publish(place, ONE + roles).rows == 12
    assert time.monotonic() - start < 30


def test_hundreds_of_public_columns(place):
    many = sized(150, 500)
    names = [f"c{i}" for i in range(many)]
    values = pa.array([1, 2, 3] * 40)
    table = pa.table([pa.array(["a", "b"] * 60), *[values] * many], names=["s", *names])
    pq.write_table(table, place / "raw.parquet")
    roles = "".join(f'[columns.{name}]\nrole = "public"\n' for name in names)
    start = time.process_time()
    report = publish(place, ONE + roles)
    # Of processor time, which grows with the pairs of columns: 60 seconds for 500 of them.
    assert time.process_time() - start < 60 * (many / 500) ** 2
    assert len(privsql.release.open(place / "out.duckdb").manifest.public) == many
    assert report.rows == 120


def test_names_that_differ_only_in_case(place):
    table = pa.table({"s": ["a", "b"], "x": [1, 2], "X": [3, 4]})
    pq.write_table(table, place / "raw.parquet")
    both = '[columns.x]\nrole = "public"\n[columns.X]\nrole = "drop"\n'
    refused(place, ONE + both, "differ only in case", SpecError)
    refused(place, ONE + '[columns.x]\nrole = "public"\n', "has no role", SpecError)


def test_a_spec_in_another_case_names_the_same_columns(place):
    spec = SPEC.replace("columns.gender", "columns.GENDER").replace("columns.age", "columns.Age")
    spec = spec.replace('unit = "patient_id"', 'unit = "Patient_ID"')
    report = publish(place, spec)
    assert [c.name.lower() for c in report.manifest.public] == ["gender", "job", "cost"]
    assert privsql.release.open(place / "out.duckdb").manifest == report.manifest


def test_files_whose_columns_differ(place):
    pq.write_table(clinic(50), place / "part-1.parquet")
    pq.write_table(clinic(50).drop_columns(["job"]), place / "part-2.parquet")
    source = str(place / "part-*.parquet")
    refused(place, SPEC, "cannot be read|no such", Error, source=source)


def test_a_column_that_only_later_files_have_never_leaves(place):
    pq.write_table(clinic(50), place / "part-1.parquet")
    pq.write_table(clinic(50).append_column("extra", pa.array(range(50))), place / "part-2.parquet")
    publish(place, source=str(place / "part-*.parquet"))
    assert b"extra" not in (place / "out.duckdb").read_bytes()
    assert rows(place, "SELECT sum(privsql_rows) FROM privsql.tuples") == [(100,)]


def test_csv_files_whose_columns_differ(place):
    (place / "part-1.csv").write_text("s,x\n" + "a,1\n" * 50)
    (place / "part-2.csv").write_text("s\n" + "b\n" * 50)
    spec = ONE + '[columns.x]\nrole = "public"\n'
    refused(place, spec, "cannot be read|no such", Error, source=str(place / "part-*.csv"))


def test_a_source_that_changes_while_it_is_read(place):
    """Its columns are gone on the second look, as with a file that somebody rewrites."""
    raw = place / "raw.parquet"
    spec = SPEC.replace('domain = ["flu", "hiv", "none"]', 'domain = "observed"')
    (place / "spec.toml").write_text(spec)
    import privsql.publish.job as job

    original = job.resolve

    def resolve(*arguments):
        pq.write_table(pa.table({"other": [1]}), raw)
        return original(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job, "resolve", resolve)
        with pytest.raises(Error):
            privsql.publish(str(raw), place / "out.duckdb", spec=place / "spec.toml", seed=1)
    assert left_behind(place) == []


def test_a_table_of_one_column(place):
    pq.write_table(pa.table({"s": ["a", "b"] * 50}), place / "raw.parquet")
    assert publish(place, ONE).manifest.public == ()
    assert sum(n for _, n in rows(place, "SELECT s, sum(privsql_multiplicity) FROM t GROUP BY s"))
    assert {v for (v,) in rows(place, "SELECT s FROM t")} <= {"a", "b"}


def test_very_long_names(place):
    public, sensitive = "p" * 5_000, "s" * 5_000
    pq.write_table(pa.table({sensitive: ["a", "b"] * 50, public: [1, 2] * 50}), place / "x.parquet")
    spec = ONE.replace("[columns.s]", f"[columns.{sensitive}]")
    spec += f'[columns.{public}]\nrole = "public"\n'
    report = publish(place, spec, source=str(place / "x.parquet"))
    assert report.manifest.sensitive[0].name == sensitive
    assert privsql.release.open(place / "out.duckdb").manifest == report.manifest


@pytest.mark.parametrize("length", [240, 256, 5_000])
def test_very_long_names_of_the_release(place, length):
    refused(place, SPEC, "too long", OperationalError, out="x" * length)


PUBLIC_TYPES = {
    "LIST": "[i % 3, 1]",
    "STRUCT": "{'a': i % 3}",
    "MAP": "MAP {'k': i % 3}",
    "ARRAY": "[i % 3, 1]::INTEGER[2]",
    "BLOB": "('x' || i % 3)::BLOB",
    "BIT": "(i % 3)::INTEGER::BIT",
    "INTERVAL": "to_days((i % 3)::INTEGER)",
    "UUID": "('00000000-0000-0000-0000-00000000000' || i % 3)::UUID",
    "HUGEINT": "(i % 3)::HUGEINT",
    "UBIGINT": "(i % 3)::UBIGINT",
    "TIME": "TIME '10:00' + to_hours(i % 3)",
    "TIMESTAMPTZ": "make_timestamptz(i % 3)",
    "TIMESTAMP_NS": "make_timestamp(i % 3)::TIMESTAMP_NS",
    "ENUM": "(['a', 'b', 'c'])[i % 3 + 1]::ENUM('a', 'b', 'c')",
    "DECIMAL": "(i % 3)::DECIMAL(30, 2)",
    "FLOAT": "CASE i % 3 WHEN 0 THEN 'nan'::FLOAT WHEN 1 THEN -0.0::FLOAT ELSE 1 END",
    "JSON": "('{\"k\": ' || i % 3 || '}')::JSON",
}

# The list of an ENUM is not needed for its values; all other types stay what they are.
CARRIED = {"ENUM": "VARCHAR"}


# As a measure every second type in `make test`: the rest goes the same way there.
MEASURED = [
    pytest.param(kind, False, marks=pytest.mark.soak) if number % 2 else (kind, False)
    for number, kind in enumerate(PUBLIC_TYPES)
]


@pytest.mark.parametrize(
    ("kind", "grouping"), [*((kind, True) for kind in PUBLIC_TYPES), *MEASURED]
)
def test_public_columns_of_every_type(place, kind, grouping):
    with duckdb.connect(str(place / "raw.duckdb")) as con:
        con.execute(
            f"CREATE TABLE t AS SELECT {PUBLIC_TYPES[kind]} AS p,"
            " CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END AS s FROM range(300) r(i)"
        )
        source = con.execute("SELECT p::VARCHAR, count(*) FROM t GROUP BY p ORDER BY p").fetchall()
        (type_,) = con.execute("SELECT any_value(typeof(p)) FROM t").fetchall()[0]
    spec = ONE + f'[columns.p]\nrole = "public"\ngrouping = {str(grouping).lower()}\n'
    if grouping and kind in ("LIST", "STRUCT", "MAP", "ARRAY"):
        refused(place, spec, "column p: ", DataError, source=str(place / "raw.duckdb"))
        return
    report = publish(place, spec, source=str(place / "raw.duckdb"))
    assert report.manifest.public[0].type == CARRIED.get(kind, type_)
    counted = "sum(privsql_multiplicity)" if report.manifest.multiplicity else "count(*)"
    assert rows(place, f"SELECT p::VARCHAR, {counted} FROM t GROUP BY p ORDER BY p") == source


# --- CSV ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "ERROR"),
        ("s,x\n", "no rows"),
        ("\n\n\n", "ERROR"),
        ("s,x\na,1\nb\n", "ERROR"),
        ("\0\0\0", "ERROR"),
    ],
)
@pytest.mark.parametrize("mechanism", ["uniform", "swap", "finegrain", "observed"])
def test_csv_files_without_a_table(place, text, said, mechanism):
    (place / "raw.csv").write_text(text)
    spec = ONE + '[columns.x]\nrole = "public"\n'
    if mechanism == "swap":
        spec = spec.replace("uniform", "swap")
    elif mechanism == "finegrain":
        spec = spec.replace('"uniform"', '"finegrain"\nprior = "raw"')
        spec = spec.replace("retention = 0.4", "theta = 3")
    elif mechanism == "observed":
        spec, said = spec.replace('["a", "b"]', '"observed"'), "ERROR"
    refused(place, spec, said, Error, source=str(place / "raw.csv"))


# --- paths -------------------------------------------------------------------------


def spec_refused(place: Path, path: Path, match: str) -> None:
    before = left_behind(place)
    with pytest.raises(Error, match=match):
        privsql.publish(str(place / "raw.parquet"), place / "out.duckdb", spec=path, seed=1)
    assert left_behind(place) == before


def test_a_spec_that_is_no_spec(place):
    spec_refused(place, place / "nowhere.toml", "cannot be read")
    spec_refused(place, place, "cannot be read")
    (place / "latin.toml").write_bytes(b'# \xe9\n[release]\ntable = "t"\n')
    spec_refused(place, place / "latin.toml", "not UTF-8")
    (place / "empty.toml").write_bytes(b"")
    spec_refused(place, place / "empty.toml", r"no \[release\]")
    spec_refused(place, place / "raw.parquet", "not UTF-8|not valid TOML")


def test_a_folder_that_nobody_may_write_in(place):
    folder = place / "locked"
    folder.mkdir()
    folder.chmod(0o500)
    try:
        if os.access(folder, os.W_OK):
            pytest.skip("permissions do not hold for this user")
        refused(place, SPEC, "cannot write", OperationalError, out="locked/out.duckdb")
    finally:
        folder.chmod(0o700)


def test_a_folder_is_never_overwritten(place):
    (place / "out.duckdb").mkdir()
    (place / "out.duckdb" / "precious").write_text("x")
    refused(place, SPEC, "is a folder", OperationalError, force=True)
    assert (place / "out.duckdb" / "precious").read_text() == "x"


@pytest.mark.parametrize("kind", ["raw.parquet", "raw.csv", "raw.duckdb", "link.parquet"])
@pytest.mark.parametrize("force", [True, False])
def test_the_source_is_never_overwritten(place, kind, force):
    table = clinic(300)
    with duckdb.connect(str(place / "raw.duckdb")) as con:
        con.register("given", table)
        con.execute("CREATE TABLE people AS FROM given")
        con.unregister("given")
        con.execute("COPY people TO '" + str(place / "raw.csv") + "'")
    (place / "link.parquet").symlink_to(place / "raw.parquet")
    before = {each.name: each.read_bytes() for each in place.iterdir() if each.name != "spec.toml"}
    with pytest.raises(OperationalError):
        publish(place, source=str(place / kind), out=kind, force=force)
    for name, data in before.items():
        assert (place / name).read_bytes() == data
    assert left_behind(place) == ["link.parquet"]


def test_a_part_of_the_source_is_never_overwritten(place):
    pq.write_table(clinic(50), place / "part-1.parquet")
    pq.write_table(clinic(50), place / "part-2.parquet")
    source = str(place / "part-*.parquet")
    refused(
        place, SPEC, "source", OperationalError, source=source, out="part-2.parquet", force=True
    )


@pytest.mark.parametrize("name", ["spec.toml", "p.key"])
def test_neither_the_spec_nor_the_key_is_overwritten(place, name):
    from privsql.publish.keys.key import new_key

    new_key(place / "p.key")
    spec = SPEC.replace('unit = "patient_id"', 'unit = "patient_id"\nkey = "p.key"')
    key = (place / "p.key").read_bytes()
    with pytest.raises(OperationalError):
        publish(place, spec, out=name, seed=None, force=True)
    assert (place / "p.key").read_bytes() == key
    assert (place / "spec.toml").read_text() == spec
