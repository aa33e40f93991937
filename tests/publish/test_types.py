"""Every type of DuckDB: published as what it was, or refused; and perturbed ones too."""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from duckdb import ColumnExpression
from scipy.stats import chisquare

import privsql
from privsql.errors import DataError
from privsql.publish.source import open_source
from privsql.publish.types import HUGEINT, plain, restored, stored

SENSITIVE = """
[columns.illness]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = ["flu", "none"]
"""

# Values of every scalar type, edges among them; NULL is added to each.
SCALARS = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "0", "127"],
    "SMALLINT": ["-32768", "32767"],
    "INTEGER": ["-2147483648", "2147483647"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "HUGEINT": [
        "-170141183460469231731687303715884105728",
        "170141183460469231731687303715884105727",
        "0",
        "-1",
    ],
    "UTINYINT": ["0", "255"],
    "USMALLINT": ["0", "65535"],
    "UINTEGER": ["0", "4294967295"],
    "UBIGINT": ["0", "18446744073709551615"],
    "UHUGEINT": ["0", "340282366920938463463374607431768211455"],
    "BIGNUM": ["0", "-1", "9" * 60],
    "FLOAT": ["nan", "inf", "-inf", "-0.0", "3.4028235e38", "1e-45"],
    "DOUBLE": ["nan", "inf", "-inf", "-0.0", "1.7976931348623157e308", "5e-324"],
    "DECIMAL(4,2)": ["-99.99", "99.99"],
    "DECIMAL(9,0)": ["-999999999", "999999999"],
    "DECIMAL(18,18)": ["-0.999999999999999999", "0.000000000000000001"],
    "DECIMAL(38,5)": [f"-{'9' * 33}.{'9' * 5}", f"{'9' * 33}.{'9' * 5}"],
    "VARCHAR": ["", " ", "NULL", "a'b\"c", "ß漢🙂", "x" * 100],
    "BIT": ["0", "1", "0101", "000000001", "10" * 70],
    "BLOB": ["", "\\x00", "\\xFF\\x00\\xAA", "abc"],
    "DATE": ["-infinity", "infinity", "1970-01-01", "1969-12-31", "5877642-06-25 (BC)",
             "5881580-07-10"],
    "TIME": ["00:00:00", "23:59:59.999999", "24:00:00"],
    "TIME_NS": ["00:00:00", "23:59:59.999999999"],
    "TIMETZ": ["00:00:00+15:59:59", "12:00:00+00", "13:00:00+01", "24:00:00-15:59:59"],
    "TIMESTAMP": ["-infinity", "infinity", "1970-01-01 00:00:00", "1969-12-31 23:59:59.999999",
                  "290309-12-22 (BC) 00:00:00", "294247-01-10 04:00:54.775806"],
    "TIMESTAMP_S": ["-infinity", "infinity", "1970-01-01 00:00:00", "1969-12-31 23:59:59"],
    "TIMESTAMP_MS": ["-infinity", "infinity", "1969-12-31 23:59:59.999"],
    "TIMESTAMP_NS": ["-infinity", "infinity", "1969-12-31 23:59:59.999999999",
                     "1677-09-22 00:00:00", "2262-04-11 23:47:16.854775806"],
    "TIMESTAMPTZ": ["-infinity", "infinity", "1970-01-01 00:00:00+00",
                    "1969-12-31 23:59:59.999999+00", "2020-06-01 12:00:00+05:30"],
    "INTERVAL": ["0 seconds", "1 microsecond", "1 month", "30 days 1 hour",
                 "83333333 years 5 days"],
    "UUID": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
             "123e4567-e89b-12d3-a456-426614174000"],
    "JSON": ['{"a": 1}', "[]", "null", '"x"'],
    "ENUM('it''s', 'b, c', 'c')": ["it's", "b, c"],
    "GEOMETRY": ["POINT(1 2)", "POINT EMPTY"],
}  # fmt: skip

NESTED = {
    "INTEGER[]": ["[1, NULL, 3]", "[]"],
    "VARCHAR[2]": ["[a, b]", "[c, NULL]"],
    "UUID[]": ["[123e4567-e89b-12d3-a456-426614174000]"],
    "STRUCT(a HUGEINT, b TIMETZ)": ["{'a': 1, 'b': 12:00:00+03}"],
    "MAP(VARCHAR, DOUBLE)": ["{a=1.5, b=NULL}"],
    "VARIANT": ["1", "[2, 3]"],
    "ENUM('u', 'v')[]": ["[u, v]"],
}

ROWS = 120


def source_of(folder: Path, types: dict[str, list[str]], form: str) -> Path:
    """A column of each type that goes through its values, and a sensitive one."""
    path = folder / f"raw.{form}"
    with duckdb.connect(str(path) if form == "duckdb" else ":memory:") as con:
        # Types, not values: they come from the tables above.
        listed = "".join(f"x{i} {kind}, " for i, kind in enumerate(types))
        con.execute(f"CREATE TABLE raw ({listed} illness VARCHAR)")
        con.executemany(
            f"INSERT INTO raw VALUES ({'?::VARCHAR, ' * len(types)} ?)",
            [
                (
                    *([*values, None][row % (len(values) + 1)] for values in types.values()),
                    "flu" if row % 3 else "none",
                )
                for row in range(ROWS)
            ],
        )
        if form == "parquet":
            con.table("raw").to_parquet(str(path))
        elif form == "csv":
            con.table("raw").to_csv(str(path))
    return path


def spec_of(folder: Path, count: int, *, grouping: bool = True, extra: str = "") -> Path:
    flag = "true" if grouping else "false"
    columns = "".join(f'[columns.x{i}]\nrole = "public"\ngrouping = {flag}\n' for i in range(count))
    path = folder / "spec.toml"
    path.write_text(f'[release]\ntable = "t"\n{columns}{SENSITIVE}{extra}')
    return path


def as_text(relation: duckdb.DuckDBPyRelation, count: int) -> Counter[tuple[str | None, ...]]:
    """How often each row is there; as text, which shows more than Python's types can hold."""
    names = [f"x{i}" for i in range(count)]
    times = [name for name in relation.columns if name == "privsql_multiplicity"]
    texts = [ColumnExpression(name).cast("VARCHAR") for name in names]
    found: Counter[tuple[str | None, ...]] = Counter()
    for row in relation.select(*texts, *map(ColumnExpression, times)).fetchall():
        found[row[:count]] += row[count] if times else 1
    return found


def types_kept(source: Path, made: Path, count: int) -> tuple[list[str], list[str]]:
    """Types before and after, once the rows are found to be the same."""
    with closing(open_source([str(source)])) as raw, duckdb.connect() as con:
        relation = raw.relation
        if source.suffix == ".csv":
            # Copied first, or the reader would not go through the column's type to the text.
            con.read_csv(str(source)).create("copied")
            relation = con.table("copied")
        before = as_text(relation, count)
        types = [kind for _, kind in raw.columns[:count]]
    release = privsql.release.open(made)
    with release.connection() as con:
        table = con.table("t")
        assert as_text(table, count) == before
        after = dict(zip(table.columns, map(str, table.types), strict=True))
    assert [column.type for column in release.manifest.public] == [
        after[f"x{i}"] for i in range(count)
    ]
    return types, [after[f"x{i}"] for i in range(count)]


@pytest.mark.parametrize("form", ["duckdb", "parquet", "csv"])
def test_public_values_keep_value_and_type(tmp_path, form):
    source = source_of(tmp_path, SCALARS, form)
    spec, made = spec_of(tmp_path, len(SCALARS)), tmp_path / "out.duckdb"
    privsql.publish(str(source), made, spec=spec, seed=1)
    before, after = types_kept(source, made, len(SCALARS))
    # A list of values is not needed for them: ENUM is published as text.
    assert after == ["VARCHAR" if kind.startswith("ENUM") else kind for kind in before]
    # And the values that groups are told apart by are these values.
    with privsql.release.open(made).connection() as con:
        for i, kind in enumerate(after):
            listed = con.table(f'privsql."values of x{i}"')
            assert str(listed.types[0]) == kind
            texts = listed.select(ColumnExpression("value").cast("VARCHAR")).fetchall()
            # Equal numbers are one value, however they are written.
            values = {row[i] for row in as_text(con.table("t"), i + 1)}
            assert {row[0] for row in texts} == {"0.0" if v == "-0.0" else v for v in values}


@pytest.mark.parametrize("form", ["duckdb", "parquet"])
def test_nested_values_keep_value_and_type(tmp_path, form):
    source = source_of(tmp_path, NESTED, form)
    spec, made = spec_of(tmp_path, len(NESTED), grouping=False), tmp_path / "out.duckdb"
    privsql.publish(str(source), made, spec=spec, seed=1)
    before, after = types_kept(source, made, len(NESTED))
    assert after == ["VARCHAR[]" if kind.startswith("ENUM") else kind for kind in before]
    spec, read = spec_of(tmp_path, len(NESTED)), []
    with pytest.raises(DataError, match="lists and structures") as problem:
        privsql.publish(
            str(source), tmp_path / "groups.duckdb", spec=spec, seed=1, progress=read.append
        )
    assert not read, "refused before any row was read"
    # All mistakes at once.
    assert all(f"x{i}" in problem.value.reason for i in range(len(NESTED)))
    assert not (tmp_path / "groups.duckdb").exists()


@pytest.mark.parametrize("kind", ["UNION(n INTEGER, t VARCHAR)", "UNION(n INTEGER, t VARCHAR)[]"])
def test_types_that_would_arrive_as_others_are_refused(tmp_path, kind):
    source = source_of(tmp_path, {kind: []}, "duckdb")
    read = []
    with pytest.raises(DataError, match="types cannot be published") as problem:
        privsql.publish(
            str(source),
            tmp_path / "out.duckdb",
            spec=spec_of(tmp_path, 1),
            seed=1,
            progress=read.append,
        )
    assert "x0" in problem.value.reason
    assert "VARCHAR" in (problem.value.hint or "")
    assert not read
    assert not (tmp_path / "out.duckdb").exists()


def test_merging_by_raw_frequencies_finds_the_same_values(tmp_path):
    """The raw side is counted in the source, the published side in the release."""
    types = {kind: SCALARS[kind] for kind in ("HUGEINT", "UUID", "TIMETZ", "BOOLEAN")}
    types["ENUM('a', 'b')"] = ["a", "b"]
    source = source_of(tmp_path, types, "duckdb")
    spec = spec_of(tmp_path, len(types), extra='[groups]\nfrom = "raw"\nsignificance = 0.9999\n')
    privsql.publish(str(source), tmp_path / "out.duckdb", spec=spec, seed=1)
    types_kept(source, tmp_path / "out.duckdb", len(types))


def test_parts_that_are_joined_keep_their_types(tmp_path):
    for name in "ab":
        with duckdb.connect(str(tmp_path / f"{name}.duckdb")) as con:
            con.execute(
                f"CREATE TABLE raw AS SELECT i AS id, '12:00:00+03:30'::TIMETZ AS t_{name},"
                f" (i - 170141183460469231731687303715884105727)::HUGEINT AS h_{name}"
                " FROM range(9) AS t(i)"
            )
    joined = [[str(tmp_path / "a.duckdb")], [str(tmp_path / "b.duckdb")]]
    with closing(open_source([], joined=joined, on="id")) as source:
        assert [kind for _, kind in source.columns[1:]] == ["TIME WITH TIME ZONE", "HUGEINT"] * 2
        texts = [ColumnExpression(name).cast("VARCHAR") for name in ("t_a", "h_b")]
        assert source.relation.select(*texts).fetchall()[0] == (
            "12:00:00+03:30",
            "-170141183460469231731687303715884105727",
        )


@pytest.mark.parametrize("cut", [slice(None), slice(1, 3), slice(3, 3)])
def test_plain_and_restored_are_inverse(cut):
    numbers = pa.array([5, None, -7, 2**62])[cut]
    assert plain(restored(numbers, HUGEINT)).cast(pa.int64()).equals(numbers)
    assert plain(restored(numbers, HUGEINT)[:1]).cast(pa.int64()).equals(numbers[:1])
    texts = ["123e4567-e89b-12d3-a456-426614174000", None, "f" * 8 + "-ffff" * 4 + "f" * 8]
    uuids = restored(pa.array(texts)[cut], pa.uuid())
    assert plain(uuids).to_pylist() == texts[cut]
    assert plain(uuids[1:]).to_pylist() == texts[cut][1:]
    assert stored(uuids).type == pa.binary(16)
    assert plain(pa.array([1])).type == pa.int64()
    with pytest.raises(pa.ArrowInvalid, match="not a UUID"):
        restored(pa.array(["secret"]), pa.uuid())


# What a sensitive column can be: its type, its values in the order of the domain, the domain.
KINDS = {
    "text": ("VARCHAR", ["a", "b", "c", "d"], '["a", "b", "c", "d"]'),
    "integer": ("SMALLINT", ["-1", "0", "1", "2"], "{ lower = -1, upper = 2, step = 1 }"),
    "huge": ("HUGEINT", ["-1", "0", "1", "2"], "{ lower = -1, upper = 2, step = 1 }"),
    "listed": ("UBIGINT", ["7", "9", "30", "8"], "[7, 9, 30, 8]"),
    "decimal": (
        "DECIMAL(6,2)",
        ["0.25", "0.50", "0.75", "1.00"],
        "{ lower = 0.25, upper = 1.00, step = 0.25 }",
    ),
    "date": (
        "DATE",
        ["1969-12-31", "1970-01-01", "1970-01-02", "1970-01-03"],
        '{ lower = 1969-12-31, upper = 1970-01-03, step = "1 day" }',
    ),
    "timestamp": (
        "TIMESTAMP",
        [f"1969-12-31 {hour}:00:00" for hour in (20, 21, 22, 23)],
        '{ lower = 1969-12-31T20:00:00, upper = 1969-12-31T23:00:00, step = "1 hour" }',
    ),
    "boolean": ("BOOLEAN", ["false", "true"], "[false, true]"),
    "enum": ("ENUM('a', 'b')", ["a", "b"], '["a", "b"]'),
}

SHARES = {3: [0.4, 0.35, 0.25], 5: [0.3, 0.25, 0.2, 0.15, 0.1]}  # NULL last
MATRIX = {
    3: [[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]],
    5: (0.5 * np.eye(5) + 0.1 * np.roll(np.eye(5), 1, axis=1) + 0.08).tolist(),
}
MECHANISMS = {
    "uniform": lambda m: "retention = 0.4",
    "matrix": lambda m: f"matrix = {MATRIX[m]}",
    "finegrain": lambda m: f"rho = {[[0.1, 0.3 + 0.1 * (i % 3)] for i in range(m)]}",
    "identity": lambda m: "retention = 0.4",
    "swap": lambda m: "retention = 0.4",
    "decoy": lambda m: "group_size = 2",
}
PEOPLE = 12_000


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_perturbed_columns_keep_their_type_and_follow_their_channel(
    tmp_path, monkeypatch, mechanism
):
    monkeypatch.setattr("privsql.publish.perturb.decoy.SIMULATED_ROWS", 1 << 18)
    rng = np.random.default_rng(5)
    codes, spec = {}, '[release]\ntable = "t"\n[columns.id]\nrole = "public"\ngrouping = false\n'
    with duckdb.connect(str(tmp_path / "raw.duckdb")) as con:
        raw = {"id": np.arange(PEOPLE)}
        casts = ["id"]
        for name, (kind, values, domain) in KINDS.items():
            size = len(values) + 1
            codes[name] = rng.choice(size, PEOPLE, p=SHARES[size])
            raw[name] = pa.array([*values, None]).take(pa.array(codes[name]))
            casts.append(f"{name}::{kind} AS {name}")
            spec += (
                f'[columns.{name}]\nrole = "sensitive"\nmechanism = "{mechanism}"\n'
                f"domain = {domain}\nnullable = true\n{MECHANISMS[mechanism](size)}\n"
            )
        con.register("texts", pa.table(raw))
        con.execute(f"CREATE TABLE raw AS SELECT {', '.join(casts)} FROM texts")
    (tmp_path / "spec.toml").write_text(spec)
    made = tmp_path / "out.duckdb"
    privsql.publish(str(tmp_path / "raw.duckdb"), made, spec=tmp_path / "spec.toml", seed=3)
    release = privsql.release.open(made)
    with release.connection() as con:
        table = con.table("t")
        types = dict(zip(table.columns, map(str, table.types), strict=True))
        texts = [ColumnExpression(name).cast("VARCHAR") for name in KINDS]
        rows = table.select(ColumnExpression("id"), *texts).fetchall()
    chances = []
    for i, column in enumerate(release.manifest.sensitive):
        kind, values, _ = KINDS[column.name]
        assert types[column.name] == column.type == ("VARCHAR" if "ENUM" in kind else kind)
        numbers = {value: code for code, value in enumerate([*values, None])}
        seen = np.zeros((len(numbers), len(numbers)))
        for row in rows:
            seen[codes[column.name][row[0]], numbers[row[i + 1]]] += 1
        expected = column.channel.matrix * seen.sum(axis=1, keepdims=True)
        chances += [
            chisquare(s, e * s.sum() / e.sum()).pvalue for s, e in zip(seen, expected, strict=True)
        ]
    # As many tests as values of all columns, by Bonferroni.
    assert min(chances) > 1e-3 / len(chances)
    # Rows of identity, swap and decoy depend on each other, which only makes them closer.
    assert np.median(chances) > 0.2
