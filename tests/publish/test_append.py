"""Batches join a release: once, one after the other, and exactly as they are."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import time
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.errors import DataError, IntegrityError, NotSupportedError, OperationalError
from privsql.publish.append import append as appending
from privsql.publish.append.append import append
from privsql.publish.append.local import perturb_file
from privsql.publish.database import MEMORY
from privsql.publish.keys.key import new_key
from privsql.publish.keys.randomness import Seeded
from privsql.publish.staging import staging
from privsql.release.names import GROUP, MULTIPLICITY
from privsql.release.spec import parse_spec

ROOT = Path(__file__).resolve().parents[2]

ILL = """
[columns.ill]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = ["a", "b"]
"""


def spec_of(*public: str, table: str = "t", more: str = "", unit: str = "row") -> str:
    columns = "".join(f'[columns.{name}]\nrole = "public"\n' for name in public)
    return f'[release]\ntable = "{table}"\nunit = "{unit}"\n{columns}{ILL}{more}'


def ill(columns: dict[str, object]) -> pa.Table:
    table = pa.table(columns)
    return table.append_column("ill", pa.array(["a"] * len(table)))


def publish(folder: Path, columns: dict[str, object], name: str = "r.duckdb", **words) -> Path:
    pq.write_table(ill(columns), folder / "raw.parquet")
    spec = parse_spec(spec_of(*columns, **words))
    privsql.publish(str(folder / "raw.parquet"), folder / name, spec=spec, seed=1)
    return folder / name


def batch_of(folder: Path, columns: dict[str, object], name: str = "batch.parquet", **words):
    pq.write_table(ill(columns), folder / "rows.parquet")
    spec = parse_spec(spec_of(*columns, **words))
    perturb_file(spec, folder / "rows.parquet", folder / name, Seeded(2))
    return folder / name


def ask(path: Path, query: str):
    with privsql.release.open(path).connection() as con:
        return con.execute(query).fetchall()


def total(path: Path) -> int:
    return ask(path, "SELECT sum(privsql_rows)::BIGINT FROM privsql.tuples")[0][0]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return publish(tmp_path_factory.mktemp("release"), {"city": ["north", "south"] * 50})


@pytest.fixture
def release(published, tmp_path):
    return Path(shutil.copy(published, tmp_path))


# --- once --------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_batch_is_taken_once(release, ending):
    batch = batch_of(release.parent, {"city": ["north"] * 7}, f"batch.{ending}")
    assert append(release, batch) == 7
    before = release.read_bytes()
    with pytest.raises(DataError, match="in the release already"):
        append(release, batch)
    with pytest.raises(DataError, match="in the release already"):
        append(release, batch.rename(batch.with_name("other name")))
    assert release.read_bytes() == before
    assert total(release) == 107


def test_the_release_keeps_the_hashes_of_its_batches_in_no_order(release):
    said = []
    for i in range(4):
        batch = batch_of(release.parent, {"city": ["north"] * 7}, f"{i}.csv")
        append(release, batch)
        said.append(batch.read_text().splitlines()[-1].removeprefix("# sha256 "))
    manifest = privsql.release.open(release).manifest
    assert manifest.batches == tuple(sorted(said))
    with pytest.raises(DataError, match="in the release already"):
        append(release, release.with_name("0.csv"))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_two_clients_with_equal_rows_are_both_heard(release, ending):
    """One row a client: equal batches are the rule, and dropping them would bias counts."""
    for i in range(3):
        append(release, batch_of(release.parent, {"city": ["north"]}, f"{i}.{ending}"))
    assert total(release) == 103
    assert len(privsql.release.open(release).manifest.batches) == 3


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_number_of_a_batch_cannot_be_changed_by_accident(release, ending):
    batch = batch_of(release.parent, {"city": ["north"]}, f"batch.{ending}")
    if ending == "csv":
        head, _, rest = batch.read_text().partition("\n")
        batch.write_text(head[:-4] + "0000\n" + rest)
    else:
        said = {k: v for k, v in pq.read_metadata(batch).metadata.items() if b"privsql" in k}
        table = pq.read_table(batch).replace_schema_metadata(said | {b"privsql.number": b"0"})
        pq.write_table(table, batch)
    with pytest.raises(DataError, match="was changed"):
        append(release, batch)


# --- one after the other -----------------------------------------------------------


APPENDING = """
import sys
from privsql.errors import OperationalError
from privsql.publish.append import append as appending

opened = appending.open_release

def slowly(path):
    found = opened(path)
    if path.name == "r.duckdb":
        print("opened", flush=True)
        sys.stdin.readline()
    return found

appending.open_release = slowly
try:
    print(appending.append("r.duckdb", sys.argv[1]))
except OperationalError as problem:
    print("refused:", problem.reason)
"""


def appender(place: Path, batch: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", APPENDING, batch.name],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_of_two_appends_at_once_neither_loses_the_rows_of_the_other(release):
    """Both would have read the old release before either wrote a new one."""
    place = release.parent
    batches = [batch_of(place, {"city": ["north"] * n}, f"{n}.csv") for n in (10, 20)]
    first = appender(place, batches[0])
    assert first.stdout is not None
    assert first.stdout.readline() == "opened\n"
    second = appender(place, batches[1])
    said = second.communicate("go\n", timeout=60)[0]
    assert first.communicate("go\n", timeout=60)[0] == "10\n"
    assert "another process" in said
    assert total(release) == 110
    third = appender(place, batches[1])
    assert third.communicate("go\n", timeout=60)[0].splitlines()[-1] == "20"
    assert total(release) == 130
    assert not list(place.glob(".*"))


def test_two_names_of_one_release_meet_at_one_lock(release):
    link = release.with_name("link.duckdb")
    link.symlink_to(release)
    batch = batch_of(release.parent, {"city": ["north"] * 5})
    with staging(release, force=True), pytest.raises(OperationalError, match="another process"):
        append(link, batch)
    assert append(link, batch) == 5
    assert link.is_symlink()
    assert total(release) == 105


def test_readers_keep_what_they_opened(release):
    batch = batch_of(release.parent, {"city": ["north"] * 5})
    count = f"SELECT sum({MULTIPLICITY})::BIGINT FROM t"
    with privsql.release.open(release).connection() as con:
        assert con.execute(count).fetchall() == [(100,)]
        append(release, batch)
        assert con.execute(count).fetchall() == [(100,)]
    assert ask(release, count) == [(105,)]


def test_where_there_is_no_release_nothing_is_made(tmp_path):
    with pytest.raises(OperationalError, match="no release"):
        append(tmp_path / "r.duckdb", tmp_path / "b.csv")
    assert list(tmp_path.iterdir()) == []


# --- values are compared as the database compares them -----------------------------

NAN = float("nan")


def moments(*seconds: int | None) -> pa.Array:
    return pa.array(seconds, pa.timestamp("us", tz="UTC"))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (moments(0, 10**6, None, 0), moments(0, 10**6, None, 5 * 10**6)),
        (pa.array([NAN, 1.0, None, NAN]), pa.array([NAN, 1.0, None, 5.0])),
        (pa.array([0.0, -0.0, None, 2.0]), pa.array([-0.0, 0.0, None, 5.0])),
        (pa.array([0.0, -0.0, 1, 2], pa.float32()), pa.array([-0.0, 0.0, 1, 5], pa.float32())),
        (pa.array(["é", "e", None, "E"]), pa.array(["é", "e", None, "x"])),
        (pa.array([True, None, None, True]), pa.array([True, True, None, False])),
        (
            pa.array([Decimal("1.50"), Decimal("2.00"), None, Decimal("1.50")]),
            pa.array([Decimal("1.50"), Decimal("2.00"), None, Decimal("7.25")]),
        ),
    ],
    ids=["timestamptz", "nan", "zero", "zero32", "text", "boolean", "decimal"],
)
def test_known_values_keep_their_label_and_new_ones_get_their_own(
    tmp_path, monkeypatch, old, new, ending
):
    # The other column brings both zeros into different tuples.
    if ending == "csv":  # each row carries the number of its group
        monkeypatch.setattr("privsql.publish.groups.numbering.SMALL", 0)
    other = ["p", "q", "p", "q"]
    release = publish(tmp_path, {"x": old, "y": other}, more='[groups]\nmerge = "none"\n')
    labels = 'SELECT value::VARCHAR, label FROM privsql."values of x"'
    with privsql.release.open(release).connection() as con:
        before = dict(con.execute(labels).fetchall())
        shown = con.execute("SELECT count(*) FROM (SELECT DISTINCT x FROM t)").fetchall()
    assert len(before) == shown[0][0]
    append(release, batch_of(tmp_path, {"x": new, "y": other}, f"batch.{ending}"))
    opened = privsql.release.open(release)
    times = MULTIPLICITY if opened.manifest.multiplicity else "1"
    shown = "SELECT x, y, sum(privsql_rows) AS n FROM privsql.tuples GROUP BY ALL"
    counted = f"SELECT x, y, sum({times}) AS n FROM t GROUP BY ALL"
    with opened.connection() as con:
        after = con.execute(labels).fetchall()
        tuples = con.execute(f"SELECT count(*) FROM ({shown})").fetchall()
        listed = con.execute("SELECT count(*), sum(privsql_rows) FROM privsql.tuples").fetchall()
        wrong = con.execute(f"SELECT count(*) FROM ({shown} EXCEPT {counted})").fetchall()
        groups = con.execute(
            f"SELECT {GROUP}, count(*) FROM privsql.tuples GROUP BY ALL"
        ).fetchall()
    assert len(dict(after)) == len(after) == len(before) + 1
    assert before.items() <= dict(after).items()
    assert len({label for _, label in after}) == len(after)
    # Each tuple stands there once, as the database tells tuples apart, with all its rows.
    assert listed == [(tuples[0][0], 8)]
    assert wrong == [(0,)]
    assert {count for _, count in groups} == {1}
    assert opened.manifest.groups.count == len(groups)


def test_merged_values_stay_merged(tmp_path):
    """Labels are the publisher's: what was one personal group stays one."""
    release = publish(tmp_path, {"x": ["p", "q", "r"] * 200, "y": ["u"] * 600})
    labels = 'SELECT value, label FROM privsql."values of x"'
    before = dict(ask(release, labels))
    append(release, batch_of(tmp_path, {"x": ["s", "p", "t"], "y": ["u"] * 3}))
    after = dict(ask(release, labels))
    assert before.items() <= after.items()
    assert after["s"] != after["t"]
    assert not {after["s"], after["t"]} & set(before.values())


def test_no_public_column_is_one_group(tmp_path):
    release = publish(tmp_path, {"x": [1, 2, 3]}, more="")
    spec = spec_of("x").replace('role = "public"', 'role = "public"\ngrouping = false')
    privsql.publish(
        str(tmp_path / "raw.parquet"), release, spec=parse_spec(spec), seed=1, force=True
    )
    append(release, batch_of(tmp_path, {"x": [4, 5]}))
    assert ask(release, f"SELECT {GROUP}, privsql_rows FROM privsql.tuples") == [(0, 5)]


def test_many_new_values_take_no_square_of_their_time(tmp_path):
    release = publish(tmp_path, {"x": [0]})
    batch = batch_of(tmp_path, {"x": pa.array(range(60_000))})
    start = time.process_time()
    append(release, batch)
    assert time.process_time() - start < 15  # the square took minutes
    assert privsql.release.open(release).manifest.groups.count == 60_000


def test_appending_keeps_to_the_memory_of_publishing(release, monkeypatch):
    seen = []
    rebuild = appending._rebuild

    def spying(con, *more):
        seen.extend(con.execute("SELECT current_setting('memory_limit')").fetchall()[0])
        return rebuild(con, *more)

    monkeypatch.setattr(appending, "_rebuild", spying)
    append(release, batch_of(release.parent, {"city": ["north"]}))
    with duckdb.connect(config={"memory_limit": MEMORY}) as con:
        assert seen == list(con.execute("SELECT current_setting('memory_limit')").fetchall()[0])


@pytest.mark.parametrize("name", ["staged", "added", "all_rows", "counted", "batch", "release"])
def test_a_table_may_be_called_like_our_own(tmp_path, name):
    release = publish(tmp_path, {"x": [1, 2, 3]}, table=name)
    assert append(release, batch_of(tmp_path, {"x": [3, 4]}, table=name)) == 2
    assert total(release) == 5


# --- what the release says then ----------------------------------------------------


@pytest.mark.parametrize("unit", ["row", "person"])
def test_the_promise_counts_batches_and_claims_no_memory(tmp_path, unit):
    (tmp_path / "raw.csv").write_text("person,x,ill\n" + "1,2,a\n" * (unit == "row") + "2,3,b\n")
    dropped = '[columns.person]\nrole = "drop"\n'
    spec = spec_of("x", unit=unit, more=dropped).replace(
        "[release]", '[release]\nsource = "raw.csv"\nkey = "p.key"'
    )
    (tmp_path / "spec.toml").write_text(spec)
    new_key(tmp_path / "p.key")
    release = tmp_path / "r.duckdb"
    before = privsql.publish(None, release, spec=tmp_path / "spec.toml").manifest.privacy
    assert before.memory
    assert before.batches == 0
    assert "batch" not in before.statement()
    for i in (1, 2):
        batch = tmp_path / f"{i}.csv"
        perturb_file(parse_spec(spec), tmp_path / "raw.csv", batch, Seeded(i))
        append(release, batch)
        now = privsql.release.open(release).manifest.privacy
        assert not now.memory
        assert (now.batches, now.publications) == (i, before.publications)
        assert now.epsilon == before.epsilon
        assert f"with {i} batch" in now.statement()
        assert "repeats the same draw" not in now.statement()


# --- exactly -----------------------------------------------------------------------

DAY = date(2026, 1, 1)

LOSSY = {
    "fraction for integer": ([1, 2], [1.0, 3.7]),
    "integer for double": ([0.5, 1.5], [1, 2**53 + 1]),
    "too large": (pa.array([1, 2], pa.int8()), [3, 300]),
    "decimal digits": (
        pa.array([Decimal("1.25"), Decimal("2.50")]),
        [Decimal("1.250"), Decimal("1.255")],
    ),
    "double for float": (pa.array([0.5, 1.5], pa.float32()), [0.5, 0.1]),
    "time for date": ([DAY, DAY], [datetime(2026, 1, 1), datetime(2026, 1, 1, 12)]),
    "nanoseconds": (
        pa.array([0, 1], pa.timestamp("us")),
        pa.array([1000, 1001], pa.timestamp("ns")),
    ),
    "number for boolean": ([True, False], [1, 2]),
    "text for integer": ([1, 2], ["3.00", "3.7"]),
    "exponent for integer": ([1, 2], ["3", "37e-1"]),
    "words for integer": ([1, 2], ["3", "many"]),
    "text for decimal": (pa.array([Decimal("1.25")] * 2), ["1.2500", "1.255"]),
    "text with time for date": ([DAY, DAY], ["2026-01-01 00:00:00", "2026-01-01 12:00:00"]),
    "text with offset for timestamp": (
        [datetime(2026, 1, 1)] * 2,
        ["2026-01-01 12:00:00.5", "2026-01-01 12:00:00.5+05"],
    ),
    "text finer than timestamp": (
        [datetime(2026, 1, 1)] * 2,
        ["2026-01-01 12:00:00.1234560", "2026-01-01 12:00:00.1234567"],
    ),
}


# Digits of text are read as the nearest number, so these are lossy in Parquet only.
LAX = ("integer for double", "double for float")


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A release with a column for each case."""
    columns = {f"x{i}": old for i, (old, _) in enumerate(LOSSY.values())}
    return publish(tmp_path_factory.mktemp("wide"), columns)


def fitting() -> dict[str, pa.Array]:
    return {f"x{i}": pa.array(new).slice(0, 1) for i, (_, new) in enumerate(LOSSY.values())}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_public_values_of_other_types_that_would_not_be_changed_are_taken(wide, tmp_path, ending):
    release = Path(shutil.copy(wide, tmp_path))
    append(release, batch_of(tmp_path, fitting(), f"good.{ending}"))
    assert total(release) == 3


@pytest.mark.parametrize(
    ("case", "ending"),
    [
        (case, end)
        for case in LOSSY
        for end in ("csv", "parquet")
        if end[0] == "p" or case not in LAX
    ],
)
def test_a_public_value_that_would_be_changed_is_refused_by_its_place(wide, tmp_path, case, ending):
    release = Path(shutil.copy(wide, tmp_path))
    before = release.read_bytes()
    name, new = f"x{[*LOSSY].index(case)}", pa.array(LOSSY[case][1])
    # A batch is in an order of its own.
    rows = {each: pa.concat_arrays([one] * 5) for each, one in fitting().items()}
    rows[name] = pa.concat_arrays([new.slice(0, 1)] * 4 + [new.slice(1, 1)])
    batch = batch_of(tmp_path, rows, f"bad.{ending}")
    if ending == "parquet":
        shown = pq.read_table(batch).column(name).to_pylist()
    else:
        lines = batch.read_text().splitlines()[1:-1]
        shown = [row[name] for row in csv.DictReader(lines)]
    place = next(i for i, value in enumerate(shown) if shown.count(value) == 1) + 1
    where = f"column {name}: the value in row {place} of the"
    with pytest.raises(DataError, match=where) as caught:
        append(release, batch)
    assert str(shown[place - 1]) not in str(caught.value).replace(where, "").replace("22023", "")
    assert release.read_bytes() == before
    assert not list(tmp_path.glob(".*"))


def test_a_moment_is_no_time_of_day_somewhere(tmp_path):
    release = publish(tmp_path, {"x": [datetime(2026, 1, 1)]})
    with pytest.raises(DataError, match="row 1 of the batch"):
        append(release, batch_of(tmp_path, {"x": moments(0)}))


def test_rows_are_counted_through_all_of_a_batch(tmp_path, monkeypatch):
    release = publish(tmp_path, {"x": [1]})
    monkeypatch.setattr("privsql.publish.append.local.CHUNK", 100)
    lines = ["x,ill", *["1,a"] * 950, *["1.5,a"] * 1]
    (tmp_path / "rows.csv").write_text("\n".join(lines) + "\n")
    batch = tmp_path / "batch.parquet"
    perturb_file(parse_spec(spec_of("x")), tmp_path / "rows.csv", batch, Seeded(1))
    place = pq.read_table(batch).column("x").to_pylist().index("1.5") + 1
    assert place > 900
    with pytest.raises(DataError, match=f"row {place} of the batch"):
        append(release, batch)


FITTING = [
    ([1, 2], [3.0, None]),
    (pa.array([1, 2], pa.int8()), [3, None]),
    ([0.5, None], [3, 2**53]),
    ([0.5, 1.5], pa.array([0.1, NAN], pa.float32())),
    (["a", "b"], ["", None]),
    (pa.array([Decimal("1.25")] * 2), pa.array([Decimal("3.5")] * 2)),
    (["a", "b"], [1, 2]),
]


def test_values_of_another_type_that_fit_are_taken(tmp_path):
    release = publish(tmp_path, {f"x{i}": old for i, (old, _) in enumerate(FITTING)})
    assert (
        append(release, batch_of(tmp_path, {f"x{i}": n for i, (_, n) in enumerate(FITTING)})) == 2
    )
    assert total(release) == 4
    listed = ", ".join(f"x{i}" for i in range(len(FITTING)))
    third = "SELECT {} FROM privsql.tuples WHERE x0 = 3"
    assert ask(release, third.format(listed)) == [
        (3, 3, 3.0, float(np.float32(0.1)), "", Decimal("3.50"), "1")
    ]


# --- what needs the whole table ----------------------------------------------------

WHOLE = {
    "swap": 'mechanism = "swap"\nretention = 0.5',
    "identity": 'mechanism = "identity"\nretention = 0.5',
    "decoy": 'mechanism = "decoy"\ngroup_size = 2',
    "sps": 'mechanism = "uniform"\nretention = 0.5',
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_release_of_a_whole_table_takes_no_rows(tmp_path, monkeypatch, case):
    monkeypatch.setattr("privsql.publish.perturb.decoy.SIMULATED_ROWS", 1 << 14)
    values = ["a", "b", "c", "d", "e"] * 40
    table = pa.table({"x": ["u", "v"] * 100, "ill": values})
    pq.write_table(table, tmp_path / "raw.parquet")
    spec = spec_of("x").replace('mechanism = "uniform"\nretention = 0.5', WHOLE[case])
    spec = spec.replace('["a", "b"]', '["a", "b", "c", "d", "e"]')
    if case == "sps":
        spec += "[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n"
    release = tmp_path / "r.duckdb"
    privsql.publish(str(tmp_path / "raw.parquet"), release, spec=parse_spec(spec), seed=1)
    before = release.read_bytes()
    # Whatever the batch is: there is no right one.
    with pytest.raises(NotSupportedError, match="made of a whole table") as caught:
        append(release, batch_of(tmp_path, {"x": ["u"]}))
    assert caught.value.hint is not None
    assert ("groups were cut down" in caught.value.reason) == (case == "sps")
    assert release.read_bytes() == before
    assert not list(tmp_path.glob(".*"))


# --- whatever the file is called ---------------------------------------------------

NAMES = [
    *("privsql.duckdb", "PRIVSQL", "main.duckdb", "old.duckdb", "release.duckdb", "a b.duckdb"),
    *('q"uo"te.duckdb', "it's.duckdb", "a.b.c.duckdb", "größe 数据.duckdb", "[1-9]*.duckdb"),
    *("a?b.duckdb", "md5:x.duckdb", "$path;--.duckdb"),
]


@pytest.mark.parametrize(
    "name",
    [
        name
        if number % 2 == 0 or not name.isascii()
        else pytest.param(name, marks=pytest.mark.soak)
        for number, name in enumerate(NAMES)
    ],
)
def test_a_release_may_have_any_name(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    pq.write_table(ill({"x": [1, 2, 3]}), "raw.parquet")
    privsql.publish("raw.parquet", name, spec=parse_spec(spec_of("x")), seed=1)
    assert append(name, batch_of(tmp_path, {"x": [3, 4]})) == 2
    with privsql.release.open(tmp_path / name).connection() as con:
        assert con.execute("SELECT sum(privsql_rows) FROM privsql.tuples").fetchall() == [(5,)]
        assert con.execute("SELECT count(DISTINCT x) FROM t").fetchall() == [(4,)]
        with pytest.raises(duckdb.Error):
            con.execute("CREATE TABLE more AS SELECT 1")
        with pytest.raises(duckdb.Error):
            con.execute("SELECT * FROM read_text('raw.parquet')")
    assert not list(tmp_path.glob(".*"))


def test_a_damaged_release_takes_no_rows(release):
    batch = batch_of(release.parent, {"city": ["north"]})
    with duckdb.connect(str(release)) as con:
        con.execute('DROP TABLE privsql."values of city"')
    with pytest.raises(IntegrityError, match="missing"):
        append(release, batch)


# --- types that Arrow has no word for ----------------------------------------------

# Type, what the release has, what the batch brings; the release has the first of each.
STRANGE = {
    "HUGEINT": ("-170141183460469231731687303715884105728", "12345678901234567890123456789"),
    "UUID": ("123e4567-e89b-12d3-a456-426614174000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "TIMETZ": ("12:00:00+00", "08:30:00+00"),
    "JSON": ('{"a": 1}', "[2, 3]"),
    "BOOLEAN": ("true", "false"),
    "BIT": ("0101", "000000001"),
}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_strange_types_are_appended_as_what_they_are(tmp_path, ending):
    """From CSV as text; from Parquet as they are, where Parquet has the type."""
    strange = dict(STRANGE)
    if ending == "csv":  # Parquet knows times of UTC only
        strange["TIMETZ"] = ("12:00:00+03:30", "08:30:00+00")
    with duckdb.connect(str(tmp_path / "raw.duckdb")) as con:
        listed = ", ".join(f"x{i} {kind}" for i, kind in enumerate(strange))
        con.execute(f"CREATE TABLE raw ({listed}, ill VARCHAR)")
        row = f"INSERT INTO raw VALUES ({'?::VARCHAR, ' * len(strange)} 'a')"
        con.execute(row, [old for old, _ in strange.values()])
        con.execute(
            "CREATE TABLE more AS SELECT * REPLACE (x0::VARCHAR AS x0, x5::VARCHAR AS x5) FROM raw"
        )
        con.execute(row.replace("raw", "more"), [new for _, new in strange.values()])
        con.table("more").to_parquet(str(tmp_path / "rows.parquet"))
        con.table("more").to_csv(str(tmp_path / "rows.csv"))
    spec, release = parse_spec(spec_of(*(f"x{i}" for i in range(6)))), tmp_path / "r.duckdb"
    privsql.publish(f"{tmp_path / 'raw.duckdb'}::raw", release, spec=spec, seed=1)
    batch = tmp_path / f"batch.{ending}"
    perturb_file(spec, tmp_path / f"rows.{ending}", batch, Seeded(2))
    assert append(release, batch) == 2
    texts = ", ".join(f"x{i}::VARCHAR, typeof(x{i})" for i in range(6))
    found = ask(release, f"SELECT {texts}, privsql_rows FROM privsql.tuples")
    with duckdb.connect() as con:
        names = [con.execute(f"SELECT typeof(NULL::{kind})").fetchall()[0][0] for kind in strange]
    wanted = [
        (*(part for pair in zip(row, names, strict=True) for part in pair), count)
        for row, count in zip(zip(*strange.values(), strict=True), (2, 1), strict=True)
    ]
    assert sorted(found) == sorted(wanted)


def test_a_type_that_csv_has_no_word_for_asks_for_parquet(tmp_path):
    with duckdb.connect() as con:
        rows = con.sql("SELECT '12:00:00+03:30'::TIMETZ AS x, 'a' AS ill")
        rows.to_parquet(str(tmp_path / "rows.parquet"))
    with pytest.raises(NotSupportedError, match="column x: a column of type TIME_TZ") as caught:
        perturb_file(
            parse_spec(spec_of("x")), tmp_path / "rows.parquet", tmp_path / "b.csv", Seeded(1)
        )
    assert "Parquet" in (caught.value.hint or "")
    assert not (tmp_path / "b.csv").exists()
