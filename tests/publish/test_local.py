"""Clients perturb their own rows; batches join a release."""

from __future__ import annotations

import gzip
import io
import itertools
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.channels import Uniform
from privsql.errors import DataError, Error, NotSupportedError, OperationalError, ProgrammingError
from privsql.fronts.cli.main import main
from privsql.publish.append import local as local_module
from privsql.publish.append import stream
from privsql.publish.append.append import append
from privsql.publish.append.local import perturb, perturb_file
from privsql.publish.keys.key import new_key, read_key
from privsql.publish.keys.ledger import LedgerError, Publication
from privsql.publish.keys.randomness import Seeded
from privsql.release.names import GROUP, MULTIPLICITY
from privsql.release.spec import parse_spec
from tests import specs
from tests.sizes import sized

SPEC = specs.spec(
    "visits",
    specs.drop("id"),
    specs.public("city"),
    specs.sensitive("illness", 0.5, ["flu", "cold", "none"]),
    specs.sensitive("age", 0.5, specs.grid(0, 9)),
    unit="id",
)


def rows(count: int, start: int = 0, cities=("north", "south")) -> str:
    rng = np.random.default_rng(start)
    lines = ["id,city,illness,age"]
    for i in range(start, start + count):
        sick = rng.choice(["flu", "cold", "none"], p=[0.6, 0.1, 0.3])
        lines.append(f"{i},{rng.choice(cities)},{sick},{rng.integers(0, 10)}")
    return "\n".join(lines) + "\n"


def batch(text: str, spec: str = SPEC, seed: int = 1) -> str:
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder, "rows.csv"), Path(folder, "batch.csv")
        given.write_text(text)
        perturb_file(parse_spec(spec), given, made, Seeded(seed))
        return made.read_text()


@pytest.fixture
def release(tmp_path):
    (tmp_path / "raw.csv").write_text(rows(5000))
    (tmp_path / "spec.toml").write_text(SPEC)
    privsql.publish(
        str(tmp_path / "raw.csv"), tmp_path / "r.duckdb", spec=tmp_path / "spec.toml", seed=1
    )
    return tmp_path / "r.duckdb"


def ask(path, query):
    with privsql.release.open(path).connection() as con:
        return con.execute(query).fetchall()


def test_a_client_sees_no_table_and_drops_what_is_to_be_dropped():
    text = batch(rows(3000))
    lines = text.splitlines()
    assert lines[1] == "city,illness,age"
    assert len(lines) == 3000 + 3
    counts = [sum(f",{v}," in line for line in lines[2:-1]) for v in ("flu", "cold", "none")]
    wanted = Uniform(0.5, 3).expected(np.array([0.6, 0.1, 0.3]) * 3000)
    np.testing.assert_allclose(counts, wanted, atol=5 * np.sqrt(3000 / 4))


def test_a_batch_joins_a_release(release):
    before = ask(release, f"SELECT sum({MULTIPLICITY}) FROM visits")[0][0]
    path = release.with_name("batch.csv")
    path.write_text(batch(rows(700, start=10_000)))
    assert append(release, path) == 700
    assert ask(release, f"SELECT sum({MULTIPLICITY}) FROM visits")[0][0] == before + 700
    assert ask(release, "SELECT sum(privsql_rows) FROM privsql.tuples")[0][0] == before + 700
    table = ask(release, "SELECT city, illness, age FROM visits")
    assert table == sorted(table)
    assert sorted(p.name for p in release.parent.iterdir()) == [
        "batch.csv",
        "r.duckdb",
        "raw.csv",
        "spec.toml",
    ]


def test_a_new_public_value_gets_a_group_of_its_own(release):
    path = release.with_name("batch.csv")
    path.write_text(batch(rows(50, start=10_000, cities=("east",))))
    append(release, path)
    found = dict(ask(release, f"SELECT city, {GROUP} FROM privsql.tuples"))
    assert found["east"] not in {found["north"], found["south"]}


def test_publishing_and_gathering_batches_give_the_same_counts(release, tmp_path):
    """The same people, published at once or perturbed one by one with the same draws."""
    text = batch(rows(5000))
    published = ask(release, f"SELECT illness, sum({MULTIPLICITY}) FROM visits GROUP BY ALL")
    local = {
        v: sum(f",{v}," in line for line in text.splitlines()[2:-1])
        for v in ("flu", "cold", "none")
    }
    for value, count in published:
        assert abs(int(count) - local[value]) < 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("flu", "cold", 1), "was changed"),
        (lambda t: t[: len(t) // 2], "not a complete batch"),
        (lambda t: t.replace("# privsql batch", "# another batch"), "not a complete batch"),
        (
            lambda t: batch(rows(10), SPEC.replace("retention = 0.5", "retention = 0.4")),
            "other rules",
        ),
        (lambda t: "", "not a complete batch"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_and_changes_nothing(release, change, words):
    before = release.read_bytes()
    path = release.with_name("batch.csv")
    path.write_text(change(batch(rows(100))))
    with pytest.raises(DataError, match=words):
        append(release, path)
    assert release.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id,city,illness,age\n1,x,flu\n",
        "id,city,illness,age\n1,x,plague,3\n",
        "id,city,illness,age\n1,x,flu,old\n",
        "id,city,illness,age\n1,x,flu,\n",
    ],
)
def test_rows_that_do_not_fit_are_told_without_their_values(text):
    with pytest.raises(DataError) as caught:
        batch(text)
    assert "plague" not in str(caught.value)
    assert "old" not in str(caught.value).replace("threshold", "")


def test_what_needs_the_whole_table_says_so():
    swapped = SPEC.replace(
        'mechanism = "uniform"\nretention = 0.5\ndomain = ["flu"',
        'mechanism = "swap"\nretention = 0.5\ndomain = ["flu"',
    )
    with pytest.raises(NotSupportedError, match="whole table"):
        batch(rows(10), swapped)
    protected = SPEC + "[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n"
    with pytest.raises(NotSupportedError, match="whole table"):
        batch(rows(10), protected)


# --- files -------------------------------------------------------------------------


def typed(count: int, start: int = 0, **more) -> pa.Table:
    return pacsv.read_csv(io.BytesIO(rows(count, start, **more).encode()))


def parquet_batch(folder: Path, table: pa.Table | None = None, spec: str = SPEC) -> Path:
    pq.write_table(typed(300, start=10_000) if table is None else table, folder / "rows.parquet")
    made = folder / "batch.parquet"
    perturb_file(parse_spec(spec), folder / "rows.parquet", made, Seeded(1))
    return made


def test_a_parquet_batch_says_the_same_as_a_csv_batch(tmp_path):
    made = pq.read_table(parquet_batch(tmp_path))
    assert made.schema.types == [pa.string(), pa.string(), pa.int64()]
    body = "\n".join(batch(rows(300, start=10_000)).splitlines()[1:-1])
    # Each is in an order of its own, which says nothing of the client's.
    keys = [(name, "ascending") for name in made.schema.names]
    other = pacsv.read_csv(io.BytesIO(body.encode()))
    assert made.sort_by(keys).to_pylist() == other.sort_by(keys).to_pylist()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["batch.parquet", "rows.parquet"]


@pytest.mark.parametrize("kinds", [("csv", "parquet"), ("parquet", "csv"), ("csv", "csv")])
def test_either_kind_becomes_either_kind(release, tmp_path, kinds):
    given, made = tmp_path / f"rows.{kinds[0]}", tmp_path / f"batch.{kinds[1]}"
    (tmp_path / "rows.csv").write_text(rows(300, start=10_000))
    pq.write_table(typed(300, start=10_000), tmp_path / "rows.parquet")
    assert perturb_file(parse_spec(SPEC), given, made, Seeded(1)) == 300
    assert append(release, made) == 300
    assert ask(release, f"SELECT sum({MULTIPLICITY}) FROM visits") == [(5300,)]


def test_a_parquet_batch_joins_a_release_as_a_csv_batch_does(release, tmp_path):
    other = release.with_name("other.duckdb")
    other.write_bytes(release.read_bytes())
    (tmp_path / "batch.csv").write_text(batch(rows(300, start=10_000)))
    assert append(release, parquet_batch(tmp_path)) == append(other, tmp_path / "batch.csv") == 300
    assert ask(release, "FROM visits") == ask(other, "FROM visits")
    assert ask(release, "FROM privsql.tuples") == ask(other, "FROM privsql.tuples")


PUBLIC = {
    "flag": [True, None, False],
    "number": [1, None, 3],
    "share": [0.5, None, -0.0],
    "text": ["", None, 'a "b",\nc'],
    "day": pa.array([0, None, 9], pa.date32()),
    "moment": pa.array([0, None, 9], pa.timestamp("us")),
    "price": pa.array([100, None, 300]).cast(pa.decimal128(21, 2)),
}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_public_columns_keep_their_values_and_nulls(tmp_path, ending):
    if ending == "csv":
        table = pa.table(PUBLIC | {"text": ["x", None, 'a "b",\nc'], "ill": ["a", "b", "a"]})
    else:
        table = pa.table(PUBLIC | {"ill": ["a", "b", "a"]})
    spec = '[release]\ntable = "t"\n'
    spec += "".join(f'[columns.{name}]\nrole = "public"\n' for name in PUBLIC)
    spec += '[columns.ill]\nrole = "sensitive"\nmechanism = "uniform"\nretention = 0.5\n'
    spec += 'domain = ["a", "b"]\n'
    source, made = tmp_path / "rows.parquet", tmp_path / f"batch.{ending}"
    pq.write_table(table, source)
    privsql.publish(str(source), tmp_path / "r.duckdb", spec=parse_spec(spec), seed=1)
    perturb_file(parse_spec(spec), source, made, Seeded(1))
    if ending == "parquet":
        order = [("number", "ascending")]
        shown = pq.read_table(made).drop(["ill"]).sort_by(order)
        assert shown == table.drop(["ill"]).sort_by(order)
    assert append(tmp_path / "r.duckdb", made) == 3
    names = ", ".join(PUBLIC)
    counted = ask(tmp_path / "r.duckdb", f"SELECT {names}, sum(privsql_rows) FROM privsql.tuples"
                  " GROUP BY ALL ORDER BY number")  # fmt: skip
    wanted = [(*row.values(), 2) for row in table.drop(["ill"]).to_pylist()]
    assert counted == [wanted[0], wanted[2], wanted[1]]


def other_rules(path: Path) -> None:
    parquet_batch(path.parent, spec=SPEC.replace("retention = 0.5", "retention = 0.4"))


def rewritten(change):
    """A batch whose rows change while what it says of itself stays."""

    def run(path: Path) -> None:
        table = pq.read_table(path)
        said = pq.read_metadata(path).metadata
        said = {key: said[key] for key in said if key.startswith(b"privsql.")}
        pq.write_table(change(table).replace_schema_metadata(said), path)

    return run


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rewritten(lambda t: t.slice(0, 299)), "was changed"),
        (rewritten(lambda t: t.take(np.arange(300)[::-1])), "was changed"),
        (rewritten(lambda t: t.set_column(2, "age", pa.array([1] * 300))), "was changed"),
        (rewritten(lambda t: t.rename_columns(["town", "illness", "age"])), "was changed"),
        (lambda p: pq.write_table(pq.read_table(p), p, row_group_size=7), "not a complete batch"),
        (lambda p: pq.write_table(typed(9), p), "not a complete batch"),
        (lambda p: p.write_bytes(p.read_bytes()[:-20]), "not a complete batch"),
        (lambda p: p.write_bytes(p.read_bytes()[:500]), "not a complete batch"),
        (lambda p: p.write_bytes(b"PAR1" + bytes(60) + p.read_bytes()[64:]), "was changed"),
        (other_rules, "other rules"),
    ],
)
def test_a_parquet_batch_that_does_not_fit_is_refused(release, change, words):
    before = release.read_bytes()
    path = parquet_batch(release.parent)
    change(path)
    with pytest.raises(DataError, match=words):
        append(release, path)
    assert release.read_bytes() == before
    assert not list(release.parent.glob(".*"))


def test_rewriting_a_batch_without_changing_it_is_no_change(release):
    path = parquet_batch(release.parent)
    rewritten(lambda t: t)(path)
    assert append(release, path) == 300


def test_many_chunks_are_one_batch(release, tmp_path, monkeypatch):
    monkeypatch.setattr("privsql.publish.append.local.CHUNK", 100)
    (tmp_path / "rows.csv").write_text(rows(950, start=10_000))
    made = tmp_path / "batch.parquet"
    perturb_file(parse_spec(SPEC), tmp_path / "rows.csv", made, Seeded(1))
    assert pq.ParquetFile(made).num_row_groups == 10
    assert append(release, made) == 950


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("case", ["outside", "no unit", "no column", "no file", "no rows", "noise"])
def test_rows_of_a_file_that_do_not_fit_leave_the_old_batch(tmp_path, ending, case):
    table = typed(12_000)  # more than a chunk
    given = tmp_path / f"rows.{ending}"
    if case == "outside":
        late = [3] * 11_999 + [77]
        table = table.set_column(3, "age", pa.array(late))
    elif case == "no unit":
        table = table.set_column(0, "id", pa.array([None] * 12_000, pa.int64()))
    elif case == "no column":
        table = table.drop(["age"])
    if case == "noise":
        given.write_bytes(b"\xff\xfe\x00 noise")
    elif case == "no rows" and ending == "csv":
        given.write_bytes(b"")
    elif case == "no rows":
        pq.write_table(table.slice(0, 0), given)
    elif case != "no file":
        (pq.write_table if ending == "parquet" else pacsv.write_csv)(table, given)
    made = tmp_path / f"batch.{ending}"
    made.write_text("the old one")
    with pytest.raises(Error) as caught:
        perturb_file(parse_spec(SPEC), given, made, Seeded(1))
    assert "77" not in str(caught.value)
    assert made.read_text() == "the old one"
    assert not list(tmp_path.glob(".*"))


def test_where_nothing_can_be_written_is_told(tmp_path):
    (tmp_path / "rows.csv").write_text(rows(10))
    with pytest.raises(OperationalError, match="no folder"):
        perturb_file(parse_spec(SPEC), tmp_path / "rows.csv", tmp_path / "no" / "b.csv", Seeded(1))
    assert perturb_file(parse_spec(SPEC), tmp_path / "rows.csv", Path("/dev/null"), Seeded(1)) == 10
    assert not Path("/dev/null").is_file()


def test_a_public_value_of_another_type_is_told_without_it(release, tmp_path):
    spec = SPEC.replace('table = "visits"', 'table = "t"')
    numbers = typed(50).set_column(1, "city", pa.array([i % 25 for i in range(50)]))
    pq.write_table(numbers, tmp_path / "rows.parquet")
    source = str(tmp_path / "rows.parquet")
    privsql.publish(source, tmp_path / "t.duckdb", spec=parse_spec(spec), seed=1)
    with pytest.raises(DataError, match="does not fit its column") as caught:
        append(tmp_path / "t.duckdb", parquet_batch(tmp_path, spec=spec))
    assert "north" not in str(caught.value)


def test_a_batch_keeps_nothing_of_the_order_of_its_rows():
    """Rows sorted by illness: the first hundred lines of the batch are like any others."""
    lines = ["id,city,illness,age"]
    lines += [f"{i},north,{'flu' if i < 300 else 'none'},1" for i in range(3000)]
    made = batch("\n".join(lines) + "\n").splitlines()[2:-1]
    share = sum(",flu," in line for line in made) / len(made)
    first = sum(",flu," in line for line in made[:300]) / 300
    assert abs(first - share) < 0.12


def test_several_rows_a_person_cost_the_release_its_epsilon(tmp_path):
    text = rows(500)
    (tmp_path / "raw.csv").write_text(text + "".join(text.splitlines(keepends=True)[1:]))
    (tmp_path / "spec.toml").write_text(SPEC)
    report = privsql.publish(
        str(tmp_path / "raw.csv"), tmp_path / "r.duckdb", spec=tmp_path / "spec.toml"
    )
    privacy = report.manifest.privacy
    assert (privacy.raw, privacy.rows_per_unit, privacy.epsilon) == ((), 2, math.inf)
    assert "some persons have several rows, up to 2." in str(report)
    assert "loses as much in each: up to 2 times what one row loses" in privacy.statement()
    protected = SPEC + "[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n"
    (tmp_path / "spec.toml").write_text(protected)
    with pytest.raises(DataError, match="several rows"):
        privsql.publish(
            str(tmp_path / "raw.csv"), tmp_path / "p.duckdb", spec=tmp_path / "spec.toml"
        )


def test_a_table_may_be_called_like_our_own_temporary_ones(tmp_path):
    (tmp_path / "raw.csv").write_text(rows(100))
    for name in ("staged", "batch", "marked"):
        (tmp_path / "spec.toml").write_text(SPEC.replace('"visits"', f'"{name}"'))
        out = tmp_path / f"{name}.duckdb"
        privsql.publish(str(tmp_path / "raw.csv"), out, spec=tmp_path / "spec.toml", seed=1)
        assert privsql.release.open(out).manifest.table == name


# --- types that no batch can hold ---------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_column_of_intervals_is_refused_by_name(tmp_path, ending):
    with duckdb.connect() as con:
        con.execute(
            "COPY (SELECT 1 AS id, INTERVAL 3 DAY AS stay, 'flu' AS illness, 2 AS age)"
            f" TO '{tmp_path / 'rows.parquet'}'"
        )
    spec = SPEC.replace("columns.city", "columns.stay")
    with pytest.raises(NotSupportedError, match="column stay: a column of type INTERVAL") as caught:
        perturb_file(
            parse_spec(spec), tmp_path / "rows.parquet", tmp_path / f"b.{ending}", Seeded(1)
        )
    assert "days" in str(caught.value.hint)
    assert [p.name for p in tmp_path.iterdir()] == ["rows.parquet"]


# --- the ledger of the key ------------------------------------------------------------

KEYED = SPEC.replace('unit = "id"', 'unit = "id"\nkey = "p.key"')


@pytest.fixture
def client(tmp_path, monkeypatch):
    monkeypatch.setattr("privsql.publish.append.local.CHUNK", 100)  # 300 rows are a stream
    new_key(tmp_path / "p.key")
    (tmp_path / "spec.toml").write_text(KEYED)
    (tmp_path / "rows.csv").write_text(rows(300))
    return tmp_path


def lines_of(client: Path) -> list[Publication]:
    return read_key(client / "p.key").ledger().publications()


def go(client: Path, out: str = "batch.csv", **options):
    given = client / options.pop("given", "rows.csv")
    options.setdefault("accept_public", ["city"])
    return perturb(client / "spec.toml", given, client / out, **options)


def test_a_batch_is_entered_and_repeating_it_costs_nothing(client):
    count, notes = go(client)
    assert count == 300
    total = Uniform(0.5, 3).epsilon + Uniform(0.5, 10).epsilon
    assert notes.facts[0].startswith(f"ledger: epsilon {total:.4g} ")
    _, notes = go(client, "again.csv")
    assert [(line.kind, line.complete) for line in lines_of(client)] == [("perturb", True)] * 2
    assert len(notes.facts) == 1, "the same rows are no other state"
    (client / "rows.csv").write_text(rows(300, start=200))
    _, notes = go(client, "other.csv")
    assert f"epsilon up to {2 * total:.4g} " in notes.facts[1]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_same_rows_published_and_perturbed_are_one_state(client, ending):
    source = client / f"rows.{ending}"
    pq.write_table(typed(300), client / "rows.parquet")
    privsql.publish(str(source), client / "r.duckdb", spec=client / "spec.toml")
    go(client)
    assert [line.kind for line in lines_of(client)] == ["publish", "perturb"]
    report = privsql.publish(str(source), client / "r2.duckdb", spec=client / "spec.toml")
    privacy = report.manifest.privacy
    assert (privacy.publications, privacy.states) == (3, 1)


def test_another_retention_is_refused_unless_the_loss_is_accepted(client):
    source = str(client / "rows.csv")
    privsql.publish(source, client / "r.duckdb", spec=client / "spec.toml")
    before = (client / "p.key.ledger").read_bytes()
    (client / "spec.toml").write_text(KEYED.replace("retention = 0.5", "retention = 0.3"))
    with pytest.raises(LedgerError, match="illness, age of the same persons"):
        go(client)
    assert (client / "p.key.ledger").read_bytes() == before
    assert not (client / "batch.csv").exists()
    _, notes = go(client, accept_loss=True)
    both = [Uniform(p, m).epsilon for p in (0.5, 0.3) for m in (3, 10)]
    assert notes.facts[0].startswith(f"ledger: epsilon {sum(both):.4g} ")
    # The other way round: what was perturbed is known when somebody publishes.
    (client / "spec.toml").write_text(KEYED.replace("retention = 0.5", "retention = 0.4"))
    with pytest.raises(LedgerError):
        privsql.publish(source, client / "r2.duckdb", spec=client / "spec.toml")


@pytest.mark.parametrize("bad", ["late", "first", "header", "empty", "missing", "units"])
def test_bad_rows_enter_nothing(client, bad):
    text = rows(300)
    if bad == "late":
        text += "99999,north,plague,3\n"
    elif bad == "first":
        text = text.replace("\n0,", "\n0,north,plague,3\n0,", 1)
    elif bad == "header":
        text = text.replace("illness", "sickness", 1)
    elif bad == "units":
        text += ",north,flu,3\n"
    (client / "rows.csv").write_text("" if bad == "empty" else text)
    with pytest.raises(Error):
        go(client, given="none.csv" if bad == "missing" else "rows.csv")
    assert lines_of(client) == []
    assert not (client / "batch.csv").exists()


def test_no_rows_enter_nothing(client):
    (client / "rows.csv").write_text(rows(0))
    assert go(client)[0] == 0
    assert lines_of(client) == []


class Pipe(io.StringIO):
    """Standard output that looks into the ledger whenever rows leave."""

    def __init__(self, client: Path, breaks: int | None = None) -> None:
        super().__init__()
        self.client, self.seen, self.breaks = client, [], breaks

    def write(self, text: str) -> int:
        self.seen.append([line.complete for line in lines_of(self.client)])
        if self.breaks is not None and len(self.seen) > self.breaks:
            raise BrokenPipeError(32, "Broken pipe")
        return super().write(text)


def test_rows_that_stream_out_are_entered_before_the_first_leaves(client, monkeypatch):
    monkeypatch.setattr(sys, "stdout", pipe := Pipe(client))
    _, notes = perturb(client / "spec.toml", client / "rows.csv", None, accept_public="city")
    assert len(pipe.seen) > 3
    assert set(map(tuple, pipe.seen)) == {(False,)}
    assert [line.complete for line in lines_of(client)] == [False, True]
    assert "first publication" in notes.facts[0], "two lines, one publication"
    # The state of the stream is that of the file.
    assert "2 in all" in go(client)[1].facts[0]
    assert len(go(client)[1].facts) == 1


@pytest.mark.parametrize("how", ["rows", "pipe"])
def test_a_stream_that_breaks_off_counts_as_a_state_of_its_own(client, monkeypatch, how):
    text, chunks = rows(300), local_module._chunks

    def unreadable(raw, local):
        yield from itertools.islice(chunks(raw, local), 2)
        raise DataError("the source cannot be read")

    if how == "rows":
        monkeypatch.setattr(local_module, "_chunks", unreadable)
    monkeypatch.setattr(sys, "stdout", Pipe(client, breaks=2 if how == "pipe" else None))
    with pytest.raises(Error):
        perturb(client / "spec.toml", client / "rows.csv", None, accept_public="city")
    assert [line.complete for line in lines_of(client)] == [False]
    monkeypatch.setattr(local_module, "_chunks", chunks)
    # Not even what is known to have left is taken for all that left.
    (client / "rows.csv").write_text("".join(text.splitlines(keepends=True)[:101]))
    assert "2 different states" in go(client)[1].facts[1]


def test_bad_first_rows_of_a_stream_enter_nothing(client, monkeypatch):
    monkeypatch.setattr(sys, "stdout", pipe := Pipe(client))
    (client / "rows.csv").write_text("id,city,illness,age\n1,north,plague,3\n")
    with pytest.raises(DataError):
        perturb(client / "spec.toml", client / "rows.csv", None, accept_public="city")
    blob = typed(10).set_column(1, "city", pa.array([b"x"] * 10))
    pq.write_table(blob, client / "rows.parquet")
    with pytest.raises(NotSupportedError, match="not written as CSV"):
        perturb(client / "spec.toml", client / "rows.parquet", None, accept_public="city")
    (client / "spec.toml").write_text(KEYED.replace("retention = 0.5", "retention = 0.3"))
    assert (pipe.getvalue(), lines_of(client)) == ("", [])


def test_rows_without_a_unit_are_drawn_afresh_and_that_adds(client):
    (client / "spec.toml").write_text(KEYED.replace('unit = "id"\n', ""))
    go(client)
    first = (client / "batch.csv").read_text()
    with pytest.raises(LedgerError, match="without a unit") as caught:
        go(client, "again.csv")
    assert "as unit in the spec" in str(caught.value)
    _, notes = go(client, "again.csv", accept_loss=True)
    total = 2 * (Uniform(0.5, 3).epsilon + Uniform(0.5, 10).epsilon)
    assert notes.facts[0].startswith(f"ledger: epsilon {total:.4g} ")
    assert sorted((client / "again.csv").read_text().split()) != sorted(first.split())


def test_without_a_key_it_is_a_one_off_and_says_so(client):
    (client / "spec.toml").write_text(SPEC)
    _, notes = go(client)
    assert "no key" in notes.warnings[0]
    assert lines_of(client) == []


def test_clients_at_once_are_all_entered(client):
    environment = os.environ | {"PYTHONPATH": str(Path(privsql.__file__).parents[1])}
    command = [sys.executable, "-m", "privsql.fronts.cli.main", "perturb", "spec.toml"]
    command += ["--accept-public", "city"]
    running = []
    for i in range(4):
        (client / f"rows{i}.csv").write_text(rows(50, start=1000 * i))
        files = ["-i", f"rows{i}.csv", *(["-o", f"batch{i}.csv"] if i % 2 else [])]
        running.append(
            subprocess.Popen(
                [*command, *files],
                cwd=client,
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    said = [process.communicate(timeout=120)[1] for process in running]
    assert [process.returncode for process in running] == [0] * 4, said
    assert all("perturbed 50 rows\nledger: epsilon" in text for text in said)
    complete = [line for line in lines_of(client) if line.complete]
    assert len({line.release for line in complete}) == 4
    assert len({line.columns["age"].state for line in complete}) == 4


@pytest.mark.parametrize("where", ["pipe", "device", "file"])
def test_interrupted_it_does_not_take_back_what_has_left(client, monkeypatch, capsys, where):
    """Ctrl-C in the middle of a stream: a file is not there, but rows in a pipe are gone."""

    def interrupted(raw, local):
        yield from itertools.islice(chunks(raw, local), 2)
        raise KeyboardInterrupt

    chunks = local_module._chunks
    monkeypatch.setattr(local_module, "_chunks", interrupted)
    out = {"pipe": "-", "device": "/dev/null", "file": str(client / "b.csv")}[where]
    command = ["perturb", str(client / "spec.toml"), "-i", str(client / "rows.csv"), "-o", out]
    command += ["--accept-public", "city"]
    with pytest.raises(SystemExit) as stopped:
        main(command)
    assert stopped.value.code == 1
    said = capsys.readouterr().err
    said = said.partition("age: perturbed, epsilon 2.4\n")[2]
    assert said.startswith("interrupted; ")
    assert ("nothing was changed" in said) == (where == "file")
    assert ("rows already written" in said) == (where != "file")
    assert len(lines_of(client)) == (where != "file")
    assert not (client / "b.csv").exists()


def test_the_command_refuses_and_accepts(client):
    def run(*more: str):
        command = [sys.executable, "-m", "privsql.fronts.cli.main", "perturb", "spec.toml"]
        return subprocess.run(
            [*command, "--accept-public", "city", "-i", "rows.csv", *more],
            cwd=client,
            capture_output=True,
            text=True,
        )

    assert run().stdout.startswith("# privsql batch")
    (client / "spec.toml").write_text(KEYED.replace("retention = 0.5", "retention = 0.3"))
    refused = run()
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[3].startswith("ERROR 42501 [ledger]")
    assert run("--accept-loss").returncode == 0


# --- consent ------------------------------------------------------------------------


def test_a_public_column_leaves_only_by_leave_of_the_client(client):
    wide = KEYED.replace("[columns.city]", '[columns.name]\nrole = "public"\n[columns.city]')
    (client / "spec.toml").write_text(wide)
    text = rows(300).replace("id,", "name,id,", 1).replace("\n", "\nmarie,")[: -len("marie,")]
    (client / "rows.csv").write_text(text)
    for agreed in ([], ["city"], "city", ["NAME"]):
        with pytest.raises(ProgrammingError, match="would leave as") as caught:
            go(client, accept_public=agreed)
        assert "marie" not in str(caught.value)
    assert "--accept-public name" in go_refused(client, accept_public=["city"])
    assert "no such public column" in go_refused(client, accept_public=["citty"])
    assert 'did you mean "city"?' in go_refused(client, accept_public=["citty"])
    assert lines_of(client) == []
    assert not (client / "batch.csv").exists()
    assert go(client, accept_public=["City", "name"])[0] == 300
    assert go(client, accept_public="all")[0] == 300


def go_refused(client: Path, **options) -> str:
    with pytest.raises(ProgrammingError) as caught:
        go(client, **options)
    return str(caught.value)


def test_the_spec_does_not_accept_an_epsilon_for_the_client(client):
    open_spec = KEYED.replace(
        'retention = 0.5\ndomain = ["flu"',
        'accept_epsilon = true\nretention = 1.0\ndomain = ["flu"',
    )
    (client / "spec.toml").write_text(open_spec)
    told: list[str] = []
    refused = go_refused(client, say=told.append)
    assert told == [
        "city: public, leaves as it is",
        "illness: perturbed, epsilon no limit: values may leave as they are",
        "age: perturbed, epsilon 2.4",
    ]
    assert "the epsilon of illness is above 5" in refused
    assert "--accept-epsilon" in refused
    assert lines_of(client) == []
    assert go(client, accept_epsilon=True)[0] == 300


def test_the_command_tells_what_leaves_before_a_row_is_read(client, capsys):
    command = ["perturb", str(client / "spec.toml"), "-i", str(client / "nowhere.csv")]
    with pytest.raises(SystemExit):
        main(command)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("city: public, leaves as it is\nillness: perturbed, epsilon 1.39\n")
    assert "add --accept-public city" in said.err


# --- rows as publishing reads them --------------------------------------------------


def test_standard_input_is_read_as_a_file_is(client, monkeypatch, tmp_path):
    packed = gzip.compress(rows(300).encode())
    states = set()
    for given in (rows(300).encode(), packed, (client / "rows.csv").read_bytes()):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        assert perturb(client / "spec.toml", None, client / "b.csv", accept_public="all")[0] == 300
        states.add(lines_of(client)[-1].columns["age"].state)
    assert len(states) == 1


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("id,city,illness,age", "7,north,flu,3.0"),
        ("id;city;illness;age", "7;north;flu;3"),
        ("age,illness,city,id", "3,flu,north,7"),
        ("id,city,illness,age", '"7","north","flu","3"'),
    ],
)
def test_perturb_reads_what_publish_reads(tmp_path, header, line):
    (tmp_path / "rows.csv").write_text(f"{header}\n" + f"{line}\n" * 40)
    source = str(tmp_path / "rows.csv")
    kept = SPEC.replace("retention = 0.5", "retention = 1.0\naccept_epsilon = true")
    kept = kept.replace('unit = "id"', "")
    perturb_file(parse_spec(kept), tmp_path / "rows.csv", tmp_path / "b.csv", Seeded(1))
    assert (tmp_path / "b.csv").read_text().splitlines()[2:-1] == ["north,flu,3"] * 40
    privsql.publish(source, tmp_path / "r.duckdb", spec=parse_spec(kept), seed=1)
    assert ask(tmp_path / "r.duckdb", "SELECT DISTINCT city, illness, age::INT FROM visits") == [
        ("north", "flu", 3)
    ]


def test_what_is_public_in_csv_stays_as_it_is_written(tmp_path):
    (tmp_path / "rows.csv").write_text("id,city,illness,age\n1,01,flu,\n")
    spec = SPEC.replace("step = 1 }", "step = 1, nullable = true }")
    perturb_file(parse_spec(spec), tmp_path / "rows.csv", tmp_path / "b.csv", Seeded(1))
    assert (tmp_path / "b.csv").read_text().splitlines()[2].startswith("01,")


def test_a_misfit_at_the_end_is_found_before_the_first_row_leaves(client, monkeypatch):
    (client / "rows.csv").write_text(rows(300) + "99999,north,plague,3\n")
    monkeypatch.setattr(sys, "stdout", pipe := Pipe(client))
    with pytest.raises(DataError, match=r"column illness: 1 value .* \(row 301\)") as caught:
        perturb(client / "spec.toml", client / "rows.csv", None, accept_public="city")
    assert "plague" not in str(caught.value)
    assert (pipe.getvalue(), lines_of(client)) == ("", [])
    with pytest.raises(DataError, match="such as 'plague'"):
        go(client, show_values=True)


# --- rows of a pipe -----------------------------------------------------------------


class Client:
    """`privsql perturb` between two pipes, rows of which can be written and read in turn."""

    def __init__(self, place: Path, *more: str, spec: str = KEYED, most: int = stream.MOST) -> None:
        (place / "spec.toml").write_text(spec)
        program = "import privsql.fronts.cli.main as cli, privsql.publish.append.stream as stream\n"
        program += f"stream.MOST = {most}\ncli.main()"
        command = [sys.executable, "-c", program, "perturb", "spec.toml", "--accept-public", "all"]
        self.process = subprocess.Popen(
            [*command, *more],
            cwd=place,
            # An empty PYTHONUNBUFFERED is none: rows have to be flushed by the program.
            env=os.environ
            | {"PYTHONPATH": str(Path(privsql.__file__).parents[1]), "PYTHONUNBUFFERED": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def send(self, text: str) -> None:
        self.process.stdin.write(text)
        self.process.stdin.flush()

    def lines(self, count: int) -> list[str]:
        return [self.process.stdout.readline() for _ in range(count)]

    def memory(self) -> int:
        """Bytes that the process holds now."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGESIZE")

    def end(self) -> tuple[str, str]:
        said = self.process.communicate(timeout=120)
        self.process.wait(timeout=120)
        return said


def test_rows_of_a_pipe_leave_while_it_stays_open(client, release):
    """Three pieces; the last has fields that the first did not need quotes for."""
    running = Client(client)
    sent = rows(40, start=20_000).splitlines(keepends=True)
    running.send("".join(sent[:11]))
    head = running.lines(2)
    assert head[0].startswith("# privsql batch")
    assert head[1] == "city,illness,age\n"
    first = running.lines(10)
    assert {line.split(",")[0] for line in first} <= {"north", "south"}
    running.send("".join(sent[11:31]))
    assert len(running.lines(20)) == 20
    running.send("".join(sent[31:]).replace(",north,", ',"north, by\nthe ""sea""",'))
    rest, said = running.end()
    assert running.process.returncode == 0, said
    assert "perturbed 40 rows" in said
    assert '"north, by\nthe ""sea"""' in rest
    (client / "batch.csv").write_text("".join(head + first) + rest)
    assert [line.complete for line in lines_of(client)] == [False, True]


def test_a_row_of_a_pipe_that_does_not_fit_stops_its_piece(client):
    running = Client(client)
    running.send(rows(50))
    assert len(running.lines(52)) == 52
    running.send("90,north,flu,3\n91,north,plague,77\n92,north,flu,3\n")
    rest, said = running.end()
    assert (running.process.returncode, rest) == (1, "")
    said = said.partition("ERROR")[2]
    assert "column illness: 1 value lies outside the list of 3 values (row 52)" in said
    assert "column age: 1 value lies outside the range 0 to 9 (row 52)" in said
    assert "the first 50 rows were written and count in the key's ledger" in " ".join(said.split())
    assert "nothing was written" not in said
    assert "plague" not in said
    assert [line.complete for line in lines_of(client)] == [False]


def test_a_broken_line_of_a_pipe_is_told_by_its_place(client):
    running = Client(client)
    running.send(rows(50))
    assert len(running.lines(52)) == 52
    running.send("90,north,flu,3\n91,north\n92,north,flu,3\n")
    said = running.end()[1]
    assert running.process.returncode == 1
    assert "line 53 of standard input" in said


def test_a_pipe_into_a_file_is_all_or_nothing(client):
    running = Client(client, "-o", "batch.csv")
    running.send(rows(50) + "91,north,plague,3\n")
    said = running.end()[1]
    assert running.process.returncode == 1
    assert "nothing was written" in said
    assert not (client / "batch.csv").exists()
    assert lines_of(client) == []


def test_a_pipe_is_read_as_a_file_is(client, tmp_path):
    """The same rows at retention 1: what leaves is the same, whatever pieces they come in."""
    spec = KEYED.replace("retention = 0.5", "retention = 1.0\naccept_epsilon = true").replace(
        "step = 1 }", "step = 1 }\nclip = true"
    )
    text = rows(300).replace(",9\n", ",99.5\n").replace("id,", "\ufeffid,", 1)
    (client / "spec.toml").write_text(spec)
    (client / "rows.csv").write_text(text)
    _, notes = go(client, accept_epsilon=True)
    wanted = (client / "batch.csv").read_text().splitlines()[1:-1]
    running = Client(client, "--accept-epsilon", spec=spec)
    sent = text.splitlines(keepends=True)
    for start in range(0, 301, 150):
        running.send("".join(sent[start : start + 150]))
        time.sleep(1.5 if start == 0 else 0)
    made, said = running.end()
    assert running.process.returncode == 0, said
    assert made.splitlines()[1] == wanted[0]
    assert sorted(made.splitlines()[2:-1]) == sorted(wanted[1:])
    (clipped,) = (fact for fact in notes.facts if "moved to the ends" in fact)
    assert clipped in said


def test_a_compressed_pipe_is_read_to_its_end(client):
    running = Client(client)
    running.process.stdin.buffer.write(gzip.compress(rows(300).encode()))
    made, said = running.end()
    assert len(made.splitlines()) == 303, said


def test_an_empty_pipe_is_told(client):
    made, said = Client(client).end()
    assert made == ""
    assert "standard input is empty" in said


@pytest.mark.parametrize(("most", "pieces"), [(1, 4), (40, 2), (1 << 20, 1)])
def test_pieces_are_whole_lines(monkeypatch, most, pieces):
    monkeypatch.setattr(stream, "MOST", most)
    monkeypatch.setattr(stream, "BLOCK", 7)
    text = b'a,b\n1,"x\ny"\n2,"""\n"\n3,z\n' + b'4,"\n\n\n"\n5,last'
    reading, writing = os.pipe()
    os.write(writing, text)
    os.close(writing)
    found = list(stream.Lines(reading).pieces())
    os.close(reading)
    assert b"".join(found) == text
    assert len(found) >= pieces
    for piece in found:
        assert piece.count(b'"') % 2 == 0
        assert piece.endswith(b"\n") or piece is found[-1]
    assert found[0].count(b"\n") >= 2


def test_a_quote_that_is_never_closed_is_told(monkeypatch):
    monkeypatch.setattr(stream, "LONGEST", 1000)
    reading, writing = os.pipe()
    os.write(writing, b'a,b\n1,"' + b"x\n" * 1000)
    with pytest.raises(DataError, match="standard input has a line of more than"):
        list(stream.Lines(reading).pieces())
    os.close(reading)
    os.close(writing)


def test_a_long_stream_is_perturbed_in_flat_memory(client):
    """After the first pieces the process grows no more, however much follows."""
    running = Client(client, spec=KEYED + specs.drop("note"), most=1 << 20)
    note = "x" * 1000
    piece = "".join(f"{line},{note}\n" for line in rows(1000).splitlines()[1:])
    running.send("id,city,illness,age,note\n")
    reader = threading.Thread(target=lambda: [None for _ in running.process.stdout])
    reader.start()
    held = []
    for _ in range(sized(18, 400)):
        running.send(piece)
        held.append(running.memory())
    running.process.stdin.close()
    reader.join(timeout=300)
    assert running.process.wait(timeout=120) == 0
    third = len(held) // 3
    assert max(held[third:]) < max(held[:third]) + third * len(piece)
    for each in (running.process.stdout, running.process.stderr):
        each.close()
