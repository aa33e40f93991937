"""SQLAlchemy over an embedded release: what it writes, what it finds, what comes back."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import logging
import os
import subprocess
import threading
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy import case, cast, exc, func, select, text

import privsql
from privsql.fronts.sqlalchemy import compiler as alchemy_sql
from privsql.fronts.sqlalchemy.dialect import PrivsqlDialect
from tests.sql.clinic import publish

FLU = "SELECT count(*) AS n FROM patients WHERE disease = 'flu'"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("alchemy"), 0.5)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("strict"), 0.5, policy="refuse", least=10)


@pytest.fixture(scope="module")
def engine(release: Path) -> Iterator[sa.Engine]:
    made = sa.create_engine(f"privsql:///{release}")
    yield made
    made.dispose()


@pytest.fixture
def con(engine: sa.Engine) -> Iterator[sa.Connection]:
    with engine.connect() as made:
        yield made


@pytest.fixture(scope="module")
def patients(engine: sa.Engine) -> sa.Table:
    return sa.Table("patients", sa.MetaData(), autoload_with=engine)


@pytest.fixture(scope="module")
def plain(release: Path) -> Iterator[privsql.Connection]:
    """The DB-API itself, to compare with."""
    with privsql.connect(release) as made:
        yield made


def rows(connection: sa.Connection, statement: Any, *given: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(statement, *given)]


# -- Core, each with the SQL that it must equal ------------------------------------------------

JOBS = "SELECT job, count(*) FROM patients WHERE disease = 'flu' GROUP BY job ORDER BY job"


def _band(p: sa.Table) -> Any:
    return case((p.c.age < 40, "young"), (p.c.age < 60, "grown"), else_="old")


def _jobs(p: sa.Table) -> Any:
    counted = select(p.c.job, func.count().label("n")).where(p.c.disease == "flu")
    return counted.group_by(p.c.job)


CORE: dict[str, tuple[Any, dict[str, Any], str]] = {
    "select, group_by, order_by, label": (
        lambda p: _jobs(p).order_by(p.c.job),
        {},
        JOBS,
    ),
    "filter": (
        lambda p: select(func.count().filter(p.c.disease == "flu").label("n")),
        {},
        FLU,
    ),
    "case as an object in SELECT and GROUP BY": (
        lambda p: select(b := _band(p), func.count()).group_by(b).order_by(b),
        {},
        "SELECT CASE WHEN age < 40 THEN 'young' WHEN age < 60 THEN 'grown' ELSE 'old' END AS b,"
        " count(*) FROM patients GROUP BY b ORDER BY b",
    ),
    "case by its label": (
        lambda p: select(_band(p).label("b"), func.count()).group_by("b").order_by("b"),
        {},
        "SELECT CASE WHEN age < 40 THEN 'young' WHEN age < 60 THEN 'grown' ELSE 'old' END AS b,"
        " count(*) FROM patients GROUP BY b ORDER BY b",
    ),
    "having, bindparam": (
        lambda p: _jobs(p).having(func.count() > sa.bindparam("least")).order_by(p.c.job),
        {"least": 250},
        "SELECT job, count(*) AS n FROM patients WHERE disease = 'flu' GROUP BY job"
        " HAVING n > 250 ORDER BY job",
    ),
    "cast": (
        lambda p: select(cast(func.count(), sa.Float), cast(func.count(), sa.BigInteger)).where(
            p.c.age < 30
        ),
        {},
        "SELECT count(*)::DOUBLE, count(*)::BIGINT FROM patients WHERE age < 30",
    ),
    "union_all": (
        lambda p: sa.union_all(
            select(func.count()).where(p.c.age < 30), select(func.count()).where(p.c.age >= 30)
        ),
        {},
        "SELECT count(*) FROM patients WHERE age < 30"
        " UNION ALL SELECT count(*) FROM patients WHERE age >= 30",
    ),
    "union": (
        lambda p: sa.union(select(func.count().label("n")), _least(p)).order_by("n"),
        {},
        "SELECT 1 AS n UNION SELECT count(*) FROM patients WHERE age < 30 ORDER BY n",
    ),
    "CTE of rows": (
        lambda p: select(func.count()).select_from(
            select(p).where(p.c.disease == "flu").cte("sick")
        ),
        {},
        FLU,
    ),
    "CTE of an answer": (
        lambda p: select(func.sum(_jobs(p).cte("by_job").c.n)),
        {},
        "SELECT sum(n) FROM (SELECT job, count(*) AS n FROM patients WHERE disease = 'flu'"
        " GROUP BY job)",
    ),
    "subquery": (
        lambda p: select(s := _jobs(p).subquery()).where(s.c.job == "eng"),
        {},
        "SELECT job, count(*) FROM patients WHERE disease = 'flu' AND job = 'eng' GROUP BY job",
    ),
    "over": (
        lambda p: (
            select(p.c.job, func.count() / func.sum(func.count()).over())
            .where(p.c.disease == "flu")
            .group_by(p.c.job)
            .order_by(p.c.job)
        ),
        {},
        "SELECT job, count(*) / sum(count(*)) OVER () FROM patients WHERE disease = 'flu'"
        " GROUP BY job ORDER BY job",
    ),
    "offset alone": (
        lambda p: _jobs(p).order_by(p.c.job).offset(1),
        {},
        JOBS + " OFFSET 1",
    ),
    "limit and offset": (
        lambda p: _jobs(p).order_by(p.c.job).limit(1).offset(1),
        {},
        JOBS + " LIMIT 1 OFFSET 1",
    ),
    "fetch": (
        lambda p: _jobs(p).order_by(p.c.job).fetch(2),
        {},
        JOBS + " LIMIT 2",
    ),
    "in_, between": (
        lambda p: select(func.count()).where(
            p.c.disease.in_(["flu", "hiv"]), p.c.age.between(20, 40)
        ),
        {},
        "SELECT count(*) FROM patients WHERE disease IN ('flu', 'hiv') AND age BETWEEN 20 AND 40",
    ),
    "in_ of nothing": (
        lambda p: select(func.count()).where(p.c.disease.in_([])),
        {},
        "SELECT count(*) FROM patients WHERE disease = 'flu' AND false",
    ),
    "ilike": (
        lambda p: select(func.count()).where(p.c.disease.ilike("FL%")),
        {},
        FLU,
    ),
    "not ilike with an escape": (
        lambda p: select(func.count()).where(p.c.disease.not_ilike("FL/_%", escape="/")),
        {},
        "SELECT count(*) FROM patients WHERE disease IS NOT NULL",
    ),
    "regexp_match": (
        lambda p: select(func.count()).where(p.c.disease.regexp_match("^F", flags="i")),
        {},
        FLU,
    ),
    "not regexp_match": (
        lambda p: select(func.count()).where(~p.c.disease.regexp_match("^f")),
        {},
        "SELECT count(*) FROM patients WHERE disease <> 'flu'",
    ),
    "regexp_replace": (
        lambda p: select(func.count()).where(p.c.disease.regexp_replace("l.", "") == "f"),
        {},
        FLU,
    ),
    "timestamps": (
        lambda p: select(func.count()).where(p.c.seen < dt.datetime(2024, 7, 1)),
        {},
        "SELECT count(*) FROM patients WHERE seen < TIMESTAMP '2024-07-01'",
    ),
    "is null, or, not": (
        lambda p: select(func.count()).where(
            sa.or_(p.c.disease.is_(None), sa.not_(p.c.age > 50), sa.false())
        ),
        {},
        "SELECT count(*) FROM patients WHERE disease IS NULL OR NOT age > 50",
    ),
    "within_group": (
        lambda p: select(func.percentile_cont(0.5).within_group(p.c.age)),
        {},
        "SELECT median(age) FROM patients",
    ),
    "floor division": (
        lambda p: select(d := p.c.age // 40, func.count()).group_by(d).order_by(d),
        {},
        "SELECT age // 40 AS d, count(*) FROM patients GROUP BY d ORDER BY d",
    ),
    "tuples": (
        lambda p: select(func.count()).where(sa.tuple_(p.c.job, p.c.disease).in_([("eng", "flu")])),
        {},
        "SELECT count(*) FROM patients WHERE job = 'eng' AND disease = 'flu'",
    ),
    "rollup": (
        lambda p: (
            select(p.c.job, func.count()).group_by(func.rollup(p.c.job)).order_by(func.count())
        ),
        {},
        "SELECT job, count(*) AS n FROM patients GROUP BY ROLLUP (job) ORDER BY n",
    ),
    "distinct": (
        lambda p: select(p.c.disease).distinct().order_by(p.c.disease),
        {},
        "SELECT DISTINCT disease FROM patients ORDER BY disease",
    ),
    "the schema": (
        lambda p: select(func.count()).select_from(p.to_metadata(sa.MetaData(), schema="main")),
        {},
        "SELECT count(*) FROM patients",
    ),
}


def _least(p: sa.Table) -> Any:
    return select(func.count()).where(p.c.age < 30)


@pytest.mark.parametrize("name", CORE)
def test_core_asks_what_the_sql_asks(
    con: sa.Connection, plain: privsql.Connection, patients: sa.Table, name: str
) -> None:
    statement, given, sql = CORE[name]
    found = rows(con, statement(patients), given)
    expected = plain.execute(sql).fetchall()
    assert found
    assert len(found) == len(expected)
    for row, other in zip(found, expected, strict=True):
        assert row == pytest.approx(other)


def test_parameters_are_bound_and_never_pasted(patients: sa.Table, con: sa.Connection) -> None:
    evil = "flu' OR 'a' = 'a"
    statement = select(func.count()).where(patients.c.disease == evil)
    assert evil not in str(statement.compile(con.engine))
    assert rows(con, statement) == [(0,)]
    assert rows(
        con, text("SELECT CAST(:a AS VARCHAR) AS a, :a || :b AS b"), {"a": "x", "b": "'"}
    ) == [("x", "x'")]


@pytest.mark.parametrize(
    ("sql", "given"),
    [
        ("SELECT count(*) FROM patients WHERE age < ?", (30,)),
        ("SELECT count(*) FROM patients WHERE age < $1", (30,)),
        ("SELECT count(*) FROM patients WHERE age < :most", {"most": 30}),
    ],
)
def test_text_of_ones_own_may_use_any_style(con: sa.Connection, sql: str, given: Any) -> None:
    expected = rows(con, text("SELECT count(*) FROM patients WHERE age < 30"))
    assert [tuple(row) for row in con.exec_driver_sql(sql, given)] == expected


def test_values_keep_their_python_types(con: sa.Connection) -> None:
    values = [
        True,
        7,
        2**40,
        1.5,
        Decimal("12.34"),
        "ß",
        b"\x00\xff",
        dt.date(2024, 2, 29),
        dt.time(1, 2, 3),
        dt.datetime(2024, 2, 29, 1, 2, 3, 4),
        dt.timedelta(days=2, seconds=3),
        uuid.UUID(int=7),
        None,
    ]
    labelled = [sa.literal(value).label(f"v{i}") for i, value in enumerate(values)]
    (found,) = rows(con, select(*labelled))
    assert list(found) == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (sa.Float(), "DOUBLE"),
        (sa.Float(24), "FLOAT"),
        (sa.Double(), "DOUBLE"),
        (sa.DOUBLE_PRECISION(), "DOUBLE"),
        (sa.Numeric(12, 2), "DECIMAL(12,2)"),
        (sa.String(10), "VARCHAR"),
        (sa.Text(), "VARCHAR"),
        (sa.Unicode(), "VARCHAR"),
        (sa.SmallInteger(), "SMALLINT"),
        (sa.Integer(), "INTEGER"),
        (sa.BigInteger(), "BIGINT"),
        (alchemy_sql.HugeInteger(), "HUGEINT"),
        (sa.Boolean(), "BOOLEAN"),
        (sa.Date(), "DATE"),
        (sa.Time(), "TIME"),
        (sa.DateTime(), "TIMESTAMP"),
        (sa.TIMESTAMP(timezone=True), "TIMESTAMP WITH TIME ZONE"),
        (sa.Interval(), "INTERVAL"),
        (sa.Uuid(), "UUID"),
        (sa.LargeBinary(), "BLOB"),
        (sa.JSON(), "JSON"),
        (sa.ARRAY(sa.Integer), "INTEGER[]"),
        (sa.Enum("a", "b", name="ab"), "VARCHAR"),
    ],
    ids=str,
)
def test_a_cast_names_duckdbs_type(kind: Any, expected: str) -> None:
    dialect = PrivsqlDialect()
    sql = str(select(cast(sa.null(), kind).label("x")).compile(dialect=dialect))
    with duckdb.connect() as connection:
        (found,) = connection.execute(f"DESCRIBE {sql}").fetchall()
    assert found[1] == expected


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("BOOLEAN", sa.Boolean),
        ("UTINYINT", sa.SmallInteger),
        ("UINTEGER", sa.BigInteger),
        ("HUGEINT", alchemy_sql.HugeInteger),
        ("FLOAT", sa.REAL),
        ("DECIMAL(10,2)", sa.Numeric),
        ("VARCHAR", sa.String),
        ("ENUM('a', 'b')", sa.String),
        ("DATE", sa.Date),
        ("TIMESTAMP_NS", sa.TIMESTAMP),
        ("INTEGER[]", sa.ARRAY),
        ("INTEGER[3]", sa.ARRAY),
        ("INTEGER[][]", sa.types.NullType),
        ("STRUCT(a INTEGER)", sa.types.NullType),
        ("MAP(INTEGER, VARCHAR)", sa.types.NullType),
    ],
)
def test_duckdbs_types_are_reflected(kind: str, expected: type[Any]) -> None:
    assert isinstance(alchemy_sql.type_of(kind), expected)
    zoned = alchemy_sql.type_of("TIMESTAMP WITH TIME ZONE")
    assert isinstance(zoned, sa.TIMESTAMP)
    assert zoned.timezone


def test_names_are_quoted_where_duckdb_needs_it() -> None:
    with duckdb.connect() as connection:
        words = connection.execute(
            "SELECT keyword_name FROM duckdb_keywords()"
            " WHERE keyword_category IN ('reserved', 'type_function')"
        ).fetchall()
    assert {word for (word,) in words} == alchemy_sql.RESERVED
    quote = PrivsqlDialect().identifier_preparer.quote
    assert (quote("end"), quote("Job"), quote("a b"), quote('a"b'), quote("job")) == (
        '"end"',
        '"Job"',
        '"a b"',
        '"a""b"',
        "job",
    )


def test_literals_are_written_for_tools_that_compile_them_in(
    con: sa.Connection, patients: sa.Table
) -> None:
    statement = select(func.count()).where(
        patients.c.seen < dt.datetime(2024, 7, 1), patients.c.disease != "o'b%", sa.true()
    )
    printed = str(statement.compile(con.engine, compile_kwargs={"literal_binds": True}))
    assert "$" not in printed
    assert "'o''b%'" in printed
    assert rows(con, text(printed.replace(":", "\\:"))) == rows(con, statement)
    values = [
        dt.date(2024, 2, 29),
        dt.time(1, 2, 3, 4),
        dt.datetime(2024, 2, 29, 1, 2, 3, 4),
        dt.timedelta(days=-2, microseconds=3),
    ]
    for value in values:
        shown = select(sa.literal(value)).compile(
            con.engine, compile_kwargs={"literal_binds": True}
        )
        assert rows(con, text(str(shown).replace(":", "\\:"))) == [(value,)]


# -- error bars, notices, errors ----------------------------------------------------------------


def test_error_bars_by_url_by_set_and_by_prefix(release: Path, con: sa.Connection) -> None:
    names = ["n", "n_stderr", "n_low", "n_high", "n_reliable"]
    made = sa.create_engine(
        f"privsql:///{release}?error_bars=true&confidence_level=0.5&estimator=iterative"
    )
    with made.connect() as other:
        result = other.execute(text(FLU))
        assert list(result.keys()) == names
        (found,) = result.mappings()
        assert rows(other, text("SHOW privsql.estimator")) == [("iterative",)]
        assert rows(other, text("SHOW privsql.confidence_level")) == [("0.5",)]
    made.dispose()
    table = sa.table("patients", sa.column("disease"))
    statement = (
        select(func.count().label("n"))
        .where(table.c.disease == "flu")
        .prefix_with("WITH RECONSTRUCTION OPTIONS (error_bars = true)")
    )
    wider = con.execute(statement).mappings().one()
    assert list(wider) == names
    assert wider["n_high"] - wider["n_low"] > found["n_high"] - found["n_low"] > 0


def test_settings_of_one_user_do_not_reach_the_next(release: Path) -> None:
    made = sa.create_engine(f"privsql:///{release}?confidence_level=0.9", pool_size=1)
    with made.connect() as first:
        first.execute(text("SET privsql.error_bars = true"))
        first.execute(text("SET privsql.confidence_level = 0.5"))
        assert len(first.execute(text(FLU)).keys()) == 5
    with made.connect() as second:
        assert list(second.execute(text(FLU)).keys()) == ["n"]
        assert rows(second, text("SHOW privsql.confidence_level")) == [("0.9",)]
    made.dispose()


def test_notices_are_kept_and_logged(strict: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = sa.create_engine(f"privsql:///{strict}")
    sql = (
        "SELECT job, gender, favourite, count(*) AS n FROM patients WHERE disease = 'flu'"
        " GROUP BY ALL"
    )
    caplog.set_level(logging.INFO, "sqlalchemy.dialects.privsql")
    with made.connect() as connection:
        result = connection.execute(text(sql))
        before = result.cursor.notices  # type: ignore[attr-defined]
        assert all(row.n is None for row in result.fetchall())
        (notice,) = result.context.notices  # type: ignore[attr-defined]
        assert (notice.code, before) == ("personal-group", (notice,))
        assert caplog.messages == [str(notice)]
        frame = pd.read_sql(text(sql), connection)
        assert frame.n.isna().all()
        assert connection.info["notices"] == (notice,)
        connection.execute(text("SELECT 1"))
        assert connection.info["notices"] == ()
    made.dispose()


@pytest.mark.parametrize(
    ("sql", "kind", "code", "sqlstate"),
    [
        (
            "SELECT count(*) FROM patients WHERE job = 'eng' AND gender = 'F'"
            " AND favourite = 'flu' AND disease = 'hiv'",
            exc.NotSupportedError,
            "personal-group",
            "42501",
        ),
        ("SELECT * FROM patients", exc.NotSupportedError, "rows", "42501"),
        ("SELECT FROM WHERE", exc.ProgrammingError, "syntax", "42601"),
        ("SELECT wrong FROM patients", exc.ProgrammingError, "unknown-name", "42703"),
        (
            "SELECT age, disease, seen, count(*) FROM patients GROUP BY ALL",
            exc.NotSupportedError,
            "too-large",
            "54000",
        ),
        ("SET privsql.estimator = 'x'", exc.ProgrammingError, "programming", "42000"),
        ("CREATE TABLE x (a INTEGER)", exc.NotSupportedError, "unsupported", "0A000"),
    ],
)
def test_errors_are_sqlalchemys_with_ours_inside(
    strict: Path, sql: str, kind: type[exc.DBAPIError], code: str, sqlstate: str
) -> None:
    made = sa.create_engine(f"privsql:///{strict}")
    with made.connect() as connection:
        with pytest.raises(exc.DBAPIError) as caught:
            connection.execute(text(sql))
        assert type(caught.value) is kind
        assert isinstance(caught.value.orig, privsql.Error)
        assert (caught.value.orig.code, caught.value.orig.sqlstate) == (code, sqlstate)
        assert rows(connection, text("SELECT 1")) == [(1,)]  # no transaction was spoilt
    made.dispose()


def test_nothing_can_be_written(engine: sa.Engine, patients: sa.Table) -> None:
    frame = pd.DataFrame({"a": [1]})
    with pytest.raises(exc.NotSupportedError):
        frame.to_sql("mine", engine, index=False)
    for statement in (
        sa.insert(patients).values(job="x"),
        sa.update(patients).values(job="x"),
        sa.delete(patients),
    ):
        with engine.connect() as con, pytest.raises(exc.NotSupportedError):
            con.execute(statement)


# -- reflection --------------------------------------------------------------------------------


def test_the_inspector_finds_what_a_query_can_name(engine: sa.Engine) -> None:
    found = sa.inspect(engine)
    assert found.get_schema_names() == ["main"]
    assert found.default_schema_name == "main"
    assert found.get_table_names() == found.get_table_names(schema="main") == ["patients"]
    assert found.get_table_names(schema="privsql") == []
    assert found.has_table("patients")
    assert found.has_table("PATIENTS", schema="main")
    assert not found.has_table("tuples")
    assert not found.has_table("patients", schema="privsql")
    columns = found.get_columns("patients")
    assert [(c["name"], str(c["type"])) for c in columns] == [
        ("job", "VARCHAR"),
        ("gender", "VARCHAR"),
        ("favourite", "VARCHAR"),
        ("cost", "INTEGER"),
        ("disease", "VARCHAR"),
        ("age", "INTEGER"),
        ("seen", "TIMESTAMP"),
    ]
    comments = [c["comment"] or "" for c in columns]
    assert [c.partition(":")[0] for c in comments] == ["public"] * 4 + ["sensitive"] * 3
    assert "uniform, retention 0.5" in comments[-1]
    assert "privsql release" in (found.get_table_comment("patients")["text"] or "")


def test_what_a_release_does_not_have_is_empty(engine: sa.Engine) -> None:
    found = sa.inspect(engine)
    assert found.get_pk_constraint("patients")["constrained_columns"] == []
    assert found.get_foreign_keys("patients") == []
    assert found.get_indexes("patients") == []
    assert found.get_unique_constraints("patients") == []
    assert found.get_check_constraints("patients") == []
    assert found.get_table_options("patients") == {}
    assert found.get_view_names() == found.get_view_names(schema="main") == []
    assert found.get_materialized_view_names() == found.get_sequence_names() == []
    assert found.get_temp_table_names() == found.get_temp_view_names() == []
    assert not found.has_sequence("s")
    assert not found.has_index("patients", "i")
    for ask in (found.get_columns, found.get_pk_constraint, found.get_indexes):
        with pytest.raises(exc.NoSuchTableError):
            ask("privsql_rows")
    with pytest.raises(exc.NoSuchTableError):
        found.get_view_definition("v")


def test_metadata_reflects_and_public_tables_join(release: Path) -> None:
    places = pd.DataFrame({"job": ["eng", "law", "med"], "floor": [1, 1, 2]})
    made = sa.create_engine(f"privsql:///{release}", connect_args={"tables": {"places": places}})
    metadata = sa.MetaData()
    metadata.reflect(made)
    assert sorted(metadata.tables) == ["patients", "places"]
    people, beside = metadata.tables["patients"], metadata.tables["places"]
    assert [str(column.type) for column in beside.columns] == ["VARCHAR", "BIGINT"]
    assert not people.primary_key.columns
    joined = people.join(beside, people.c.job == beside.c.job)
    statement = (
        select(beside.c.floor, func.count().label("n"))
        .select_from(joined)
        .where(people.c.disease == "flu")
        .group_by(beside.c.floor)
    )
    with made.connect() as connection:
        assert {row.floor for row in connection.execute(statement)} == {1, 2}
    made.dispose()


# -- connections -------------------------------------------------------------------------------


def test_the_entry_point_is_installed() -> None:
    (found,) = importlib.metadata.entry_points(group="sqlalchemy.dialects", name="privsql")
    assert found.load() is PrivsqlDialect


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("privsql://", "name the release"),
        ("privsql://clinic.duckdb", "three slashes"),
        ("privsql://ann@host/clinic.duckdb", "postgresql"),
        ("privsql:///c.duckdb?colour=red", "error_bars"),
        ("privsql:///c.duckdb?error_bars=maybe", "true or false"),
        ("privsql:///c.duckdb?confidence_level=high", "a number"),
        ("privsql:///c.duckdb?confidence_level=2", "between 0 and 1"),
        ("privsql:///c.duckdb?estimator=magic", "inversion"),
        ("privsql:///c.duckdb?error_bars=true&error_bars=false", "twice"),
    ],
)
def test_a_wrong_url_is_told_at_once(url: str, said: str) -> None:
    with pytest.raises(exc.ArgumentError, match=said):
        sa.create_engine(url)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    made = sa.create_engine(f"privsql:///{tmp_path / 'none.duckdb'}")
    with pytest.raises(exc.DBAPIError) as caught:
        made.connect()
    assert isinstance(caught.value.orig, privsql.Error)


def test_transactions_do_nothing_and_succeed(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        with connection.begin_nested() as nested:
            assert rows(connection, text("SELECT 1")) == [(1,)]
            nested.rollback()
        assert rows(connection, text("SELECT 2")) == [(2,)]
        connection.commit()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert rows(connection, text("SELECT 3")) == [(3,)]
        assert connection.get_isolation_level() == "SERIALIZABLE"
        connection.rollback()


def test_a_connection_that_was_closed_is_replaced(release: Path) -> None:
    made = sa.create_engine(f"privsql:///{release}", pool_size=1)
    with made.connect() as connection:
        connection.connection.dbapi_connection.close()  # type: ignore[union-attr]
        with pytest.raises(exc.InterfaceError) as caught:
            connection.execute(text("SELECT 1"))
        assert caught.value.connection_invalidated
    with made.connect() as connection:
        assert rows(connection, text("SELECT 1")) == [(1,)]
    made.dispose()


def test_threads_share_an_engine(engine: sa.Engine) -> None:
    found: list[Any] = []

    def ask() -> None:
        with engine.connect() as connection:
            found.append(rows(connection, text(FLU)))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(each == found[0] for each in found)


# -- tools -------------------------------------------------------------------------------------


def test_pandas_reads_text_and_select(engine: sa.Engine, patients: sa.Table) -> None:
    statement = _jobs(patients).order_by(patients.c.job)
    frames = [
        pd.read_sql(JOBS.replace("count(*)", "count(*) AS n"), engine),
        pd.read_sql(text(JOBS.replace("count(*)", "count(*) AS n")), engine),
        pd.read_sql(statement, engine),
        pd.read_sql_query(
            "SELECT job, count(*) AS n FROM patients WHERE disease = ? GROUP BY job ORDER BY job",
            engine,
            params=("flu",),
        ),
    ]
    for frame in frames:
        pd.testing.assert_frame_equal(frame, frames[0])
    assert list(frames[0].job) == ["eng", "law", "med"]
    assert frames[0].n.dtype == float
    exact = pd.read_sql(text("SELECT job, count(*) AS n FROM patients GROUP BY job"), engine)
    assert exact.n.dtype == int
    many = list(pd.read_sql(statement, engine, chunksize=2))
    assert [len(part) for part in many] == [2, 1]


def test_what_superset_asks(engine: sa.Engine) -> None:
    """The calls and the statements of its SQL Lab and Explore, as its code makes them."""
    assert engine.dialect.name == "privsql"
    assert engine.dialect.identifier_preparer.quote("patients") == "patients"
    with engine.connect() as connection:
        raw = connection.connection
        assert engine.dialect.do_ping(raw.dbapi_connection)  # type: ignore[arg-type]
        cursor = raw.cursor()
        cursor.execute(
            'SELECT job AS job, COUNT(*) AS "COUNT(*)" FROM (SELECT * FROM patients) AS'
            " virtual_table WHERE disease IN ('flu') GROUP BY job ORDER BY \"COUNT(*)\" DESC"
            " LIMIT 1000"
        )
        assert [column[0] for column in cursor.description] == ["job", "COUNT(*)"]
        assert {column[1] for column in cursor.description} == {"VARCHAR", "DOUBLE"}
        assert len(cursor.fetchall()) == 3
        inner = select(sa.text("*")).select_from(
            sa.text("(SELECT job, COUNT(*) AS n FROM patients GROUP BY job) AS virtual_table")
        )
        printed = inner.limit(1000).compile(engine, compile_kwargs={"literal_binds": True})
        cursor.execute(str(printed))
        assert len(cursor.fetchall()) == 3
        cursor.close()


@pytest.mark.skipif(
    "PRIVSQL_JUPYSQL" not in os.environ,
    reason="PRIVSQL_JUPYSQL names no Python with jupysql and privsql in it",
)
def test_jupysql(release: Path, tmp_path: Path) -> None:
    program = tmp_path / "notebook.py"
    program.write_text(
        f"""
from IPython.terminal.interactiveshell import TerminalInteractiveShell
shell = TerminalInteractiveShell.instance()
run = shell.run_line_magic
run("load_ext", "sql")
run("config", "SqlMagic.feedback = 0")
run("sql", "privsql:///{release}")
frame = run("sql", {JOBS.replace("count(*)", "count(*) AS n")!r}).DataFrame()
print("jobs", list(frame.job), frame.n.dtype)
print("tables", run("sqlcmd", "tables"))
run("config", "SqlMagic.named_parameters = 'enabled'")
shell.user_ns["least"] = 30
print("bound", len(run("sql", "SELECT count(*) AS n FROM patients WHERE age < :least")))
try:
    run("sql", "SELECT * FROM patients")
except Exception as problem:
    print("refused", "[rows]" in str(problem))
""",
        encoding="utf-8",
    )
    done = subprocess.run(
        [os.environ["PRIVSQL_JUPYSQL"], str(program)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "IPYTHONDIR": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert "jobs ['eng', 'law', 'med'] float64" in done.stdout, done.stderr[-2000:]
    assert "patients" in done.stdout.partition("tables")[2]
    assert "bound 1" in done.stdout
    assert "refused True" in done.stdout
