"""PostgreSQL's dialect as DuckDB's: the same names, the same values, or a refusal."""

from __future__ import annotations

import datetime
import decimal

import pytest

from privsql.engines import databases
from privsql.errors import Error, NotSupportedError, Place
from privsql.sql.parse.statement import SyntaxMistake
from privsql.sql.postgres.commands import Command, MixedTables, NotTranslated
from privsql.sql.postgres.read import read
from tests.fronts.pgwire.derive_expressions import SOURCE, expressions

SALES = {"sales": {"qty": "BIGINT", "amount": "DOUBLE", "region": "VARCHAR"}}


@pytest.fixture(scope="module")
def database():
    connection = databases.connected(memory_limit="256MB", threads=1, temporary="")
    connection.execute("SET TimeZone = 'UTC'")
    yield connection
    connection.close()


def one(text: str) -> Command:
    [command] = read(text, SALES)
    return command


def shown(value: object) -> str:
    """A value as PostgreSQL writes it, numbers to nine digits."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, list):
        return "{" + ",".join("NULL" if each is None else shown(each) for each in value) + "}"
    if isinstance(value, float | int | decimal.Decimal):
        return f"{float(value):.9g}"
    if isinstance(value, datetime.datetime | datetime.time):
        text = value.isoformat(*([" "] if isinstance(value, datetime.datetime) else []))
        text = text.replace("+00:00", "+00")
        head, dot, tail = text.partition(".")
        zone = "+00" if tail.endswith("+00") else ""
        return head + (dot + tail.removesuffix("+00").rstrip("0") if dot else "") + zone
    return str(value)


def rounded(text: str) -> str:
    try:
        return f"{float(text):.9g}"
    except ValueError:
        return text


@pytest.mark.parametrize(("expression", "name", "value"), expressions(), ids=lambda x: x[:40])
def test_expressions_are_named_and_valued_as_in_postgresql(database, expression, name, value):
    command = one(f"SELECT {expression} FROM {SOURCE}")
    assert command.names == (name,)
    table = database.sql(command.text).to_arrow_table()
    assert table.column_names == [name]
    assert rounded(shown(table.column(0)[0].as_py())) == rounded(value)


@pytest.mark.parametrize(
    "expression",
    [
        "overlay('abc' placing 'x' from 2)",
        "format('%x', 1)",
        "format('%s %s', 1)",
        "format($1, 1)",
        "date_bin('1 month', now(), now())",
        "to_char(1, 'RN')",
        "to_char(1, '9,9')",
        "encode('a'::bytea, 'hex')",
        "regexp_match('a', 'a')",
        "regexp_matches('a', 'a')",
        "regexp_count('a', 'a')",
        "regexp_instr('a', 'a')",
        "regexp_substr('a', 'a')",
        "get_bit('a', 1)",
        "extract(timezone from now())",
        "to_char(now(), 'DDth')",
        "to_timestamp('1', 'Q')",
        "to_timestamp('Monday', 'FMDay')",
        "b'101'",
        "x'1f'",
        "1::char(3)",
        "1::money",
        "substring('Flu' from 'F.u')",
        "'a' similar to $1",
        "'a' collate \"de_DE\"",
        "nextval('x')",
        "width_bucket(5, array[1, 2])",
        "getvariable('pg')",
        "1::numeric(50, 2)",
    ],
)
def test_what_means_something_else_is_refused(expression):
    with pytest.raises(NotTranslated):
        one(f"SELECT {expression}")


def test_zones_are_written_of_times_that_have_one():
    assert "'%H %Z'" in one("SELECT to_char(now(), 'HH24 TZ')").text
    with pytest.raises(NotTranslated):
        one("SELECT to_char(now(), 'HH24 TZ') FROM sales")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 FROM",
        "SELECT (1",
        "SELECT 'a",
        'SELECT "a',
        "SELECT /* a",
        "SELECT $$a",
        "SELECT 1_000",
        "SELECT 1 2 3",
        "(",
        "SET x",
        "FETCH",
        "DECLARE c CURSOR SELECT 1",
        "COPY (SELECT 1) TO 'file'",
        "BEGIN SOMETHING",
        "EXPLAIN",
    ],
)
def test_mistakes_have_a_place_in_the_text(text):
    with pytest.raises(SyntaxMistake) as caught:
        read(text)
    place = caught.value.place
    assert place is not None
    assert place.text == text
    assert 0 <= place.start <= len(text)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("SELECT 'a', 'it''s", 12),
        ("SELECT 'it''", 7),
        ("SELECT E'it\\'", 7),
        ("SELECT 'it' AS \"a", 15),
        ("SELECT '/*' /* ' */, /* 1", 21),
        ("SELECT $$'$$, $a$ $$", 14),
        ("SELECT 1, 12ab", 10),
        ("SELECT 0x1F", 7),
        ("SELECT $1, $2a", 12),
    ],
)
def test_what_does_not_end_is_pointed_at(text, at):
    with pytest.raises(SyntaxMistake) as caught:
        read(text)
    assert caught.value.place.start == at


def test_numbers_and_parameters_are_one_word_each():
    assert one("SET privsql.confidence_level = .9").value == ".9"
    assert one("SELECT $1::int, $2").parameters == 2


def test_nesting_has_a_limit():
    with pytest.raises(Error, match="nests deeper"):
        one("SELECT " + "(" * 500 + "1" + ")" * 500)


@pytest.mark.parametrize(
    ("text", "kind", "tables"),
    [
        ("SELECT count(*) FROM sales", "query", ("sales",)),
        ('SELECT count(*) FROM "public"."Sales"', "query", ("Sales",)),
        ("SELECT count(*) FROM other.sales", "query", ("other.sales",)),
        ("SELECT 'pg_class', count(*) FROM sales -- pg_catalog", "query", ("sales",)),
        ("WITH sales AS (SELECT * FROM sales) SELECT count(*) FROM sales", "query", ("sales",)),
        ("WITH x AS (SELECT 1 AS a) SELECT a FROM x", "constant", ()),
        ("WITH pg_class AS (SELECT 1 AS a) SELECT a FROM pg_class", "constant", ()),
        ("WITH RECURSIVE x AS (SELECT 1 AS a UNION ALL SELECT a FROM x) TABLE x", "constant", ()),
        ("SELECT relname FROM pg_class", "catalog", ("pg_class",)),
        ("SELECT 1 FROM information_schema.tables", "catalog", ("information_schema.tables",)),
        ("SELECT version()", "catalog", ()),
        ("SELECT pg_catalog.version()", "catalog", ()),
        ("SELECT current_user", "catalog", ()),
        ("SELECT user", "catalog", ()),
        ("SELECT 'sales'::regclass", "catalog", ()),
        ("SELECT 1", "constant", ()),
        ("SELECT NULL WHERE false", "constant", ()),
        ("VALUES (1, 2), (3, 4)", "constant", ()),
        ("SELECT (SELECT count(*) FROM sales)", "query", ("sales",)),
    ],
)
def test_routing_goes_by_the_tables_of_the_statement(text, kind, tables):
    command = one(text)
    assert (command.kind, command.tables) == (kind, tables)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) FROM sales, pg_class",
        "SELECT count(*) FROM sales WHERE region IN (SELECT relname FROM pg_catalog.pg_class)",
        "SELECT count(*) FROM sales WHERE region = current_user",
        "SELECT version(), count(*) FROM sales",
        "SELECT count(*) FROM sales WHERE qty = 'sales'::regclass",
        "SELECT 1 FROM information_schema.tables UNION SELECT count(*) FROM sales",
    ],
)
def test_published_tables_and_the_catalog_do_not_mix(text):
    with pytest.raises(MixedTables) as caught:
        one(text)
    assert isinstance(caught.value, NotSupportedError)
    assert caught.value.place is not None


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("SELECT qty / 2 FROM sales", 'SELECT qty // 2 AS "?column?" FROM sales'),
        ("SELECT s.qty / 2 q FROM sales s", "SELECT s.qty // 2 AS q FROM sales AS s"),
        ("SELECT amount / 2 q FROM sales", "SELECT amount / 2 AS q FROM sales"),
        ("SELECT nobody / 2 q FROM sales", "SELECT nobody / 2 AS q FROM sales"),
        ("SELECT count(*) / 2 q FROM sales", "SELECT COUNT(*) / 2 AS q FROM sales"),
        (
            "SELECT x / 2 q FROM (SELECT qty AS x FROM sales) t",
            "SELECT x // 2 AS q FROM (SELECT qty AS x FROM sales) AS t",
        ),
        ("SELECT $1 / 2 q", "SELECT $1 / 2 AS q"),
        ("SELECT $1::int / 2 q", "SELECT CAST($1 AS INT) // 2 AS q"),
        (
            'SELECT Region R, qty AS "Q" FROM public.sales ORDER BY Q DESC LIMIT ALL',
            'SELECT region AS r, qty AS "Q" FROM sales ORDER BY q DESC NULLS FIRST',
        ),
        ("SELECT pivot FROM sales", 'SELECT "pivot" FROM sales'),
        ("TABLE sales", "SELECT * FROM sales"),
        (
            "VALUES (1, 2)",
            'SELECT * FROM (VALUES (1, 2)) AS "values"(column1, column2)',
        ),
        (
            "SELECT s FROM generate_series(1, 3) s",
            "SELECT s FROM GENERATE_SERIES(1, 3) AS s(s)",
        ),
    ],
)
def test_text(text, made):
    assert one(text).text == made


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT * FROM sales", None),
        ("SELECT * FROM (SELECT count(*), sum(qty) FROM sales) t LIMIT 10", ("count", "sum")),
        ("SELECT t.* FROM (SELECT region r FROM sales) t", ("r",)),
        ("SELECT * FROM (SELECT 1, 2) t(x, Y)", ("x", "y")),
        ("SELECT count(*), count(*) FROM sales", ("count", "count")),
        ("SELECT 1 UNION SELECT 2", ("?column?",)),
        ("SELECT now(), current_timestamp", ("now", "current_timestamp")),
        ("VALUES (1, 2)", ("column1", "column2")),
        ('SELECT public.sales.region, "X" FROM sales', ("region", "X")),
    ],
)
def test_names(text, names):
    assert one(text).names == names


def test_our_own_words_stay():
    command = one("SELECT WITH RECONSTRUCTION OPTIONS (confidence_level = 0.9) count(*) FROM sales")
    assert command.text == (
        "SELECT WITH RECONSTRUCTION OPTIONS (confidence_level = 0.9) COUNT(*) AS count FROM sales"
    )
    explained = one("EXPLAIN SELECT count(*) FROM sales")
    assert explained.text == "EXPLAIN RECONSTRUCTION SELECT COUNT(*) AS count FROM sales"
    assert explained.kind == "query"


def test_several_statements():
    found = read("BEGIN; SELECT 1; SELECT ';' -- ;\n; COMMIT;;")
    assert [each.kind for each in found] == ["begin", "constant", "constant", "commit"]
    assert [each.original for each in found] == ["BEGIN", "SELECT 1", "SELECT ';'", "COMMIT"]
    assert [each.kind for each in read(" ; -- nothing")] == ["empty"]


def test_places_go_back_to_what_was_written():
    command = one("select count(*) from public.sales where nosuch > 1")
    at = command.text.index("nosuch")
    back = command.placed(Place(command.text, at, at + 6))
    assert back is not None
    assert command.original[back:] == "nosuch > 1"
    assert command.placed(Place("another text", 0, 3)) is None


@pytest.mark.parametrize(
    ("text", "kind", "fields"),
    [
        ("SET extra_float_digits = 3", "set", {"name": "extra_float_digits", "value": "3"}),
        ('SET SESSION Search_Path TO a, "B"', "set", {"name": "search_path", "value": "a, B"}),
        ("SET LOCAL x.y = 'z'", "set", {"name": "x.y", "value": "z", "local": True}),
        ("SET TIME ZONE 'UTC'", "set", {"name": "TimeZone", "value": "UTC"}),
        ("SET NAMES 'utf8'", "set", {"name": "client_encoding", "value": "utf8"}),
        ("SET datestyle TO DEFAULT", "reset", {"name": "DateStyle"}),
        ("SET privsql.estimator = 'auto'", "set", {"name": "privsql.estimator"}),
        ("RESET ALL", "reset", {"name": "all"}),
        ("SHOW TIME ZONE", "show", {"name": "TimeZone", "names": ("TimeZone",)}),
        ("show transaction isolation level", "show", {"name": "transaction_isolation"}),
        ("BEGIN READ ONLY", "begin", {"options": {"read_only": "on"}}),
        (
            "START TRANSACTION ISOLATION LEVEL repeatable read, READ WRITE",
            "begin",
            {
                "options": {"isolation": "repeatable read", "read_only": "off"},
                "tag": "START TRANSACTION",
            },
        ),
        ("END", "commit", {"tag": "COMMIT"}),
        ("ABORT", "rollback", {"tag": "ROLLBACK", "name": ""}),
        ("ROLLBACK TO SAVEPOINT s", "rollback", {"name": "s"}),
        ("SAVEPOINT s", "savepoint", {"name": "s"}),
        ("RELEASE s", "release", {"name": "s"}),
        ('FETCH FORWARD 100 FROM "nm"', "fetch", {"name": "nm", "count": 100}),
        ("FETCH ALL IN c", "fetch", {"count": None}),
        ("FETCH c", "fetch", {"name": "c", "count": 1}),
        ("FETCH NEXT FROM c", "fetch", {"name": "c", "count": 1}),
        ("FETCH next", "fetch", {"name": "next", "count": 1}),
        ("FETCH BACKWARD ALL c", "fetch", {"direction": "backward", "count": None}),
        ("MOVE ABSOLUTE -1 c", "move", {"direction": "absolute", "count": -1}),
        ("CLOSE ALL", "close", {"name": "", "tag": "CLOSE CURSOR ALL"}),
        ("DEALLOCATE PREPARE p", "deallocate", {"name": "p"}),
        ("DISCARD ALL", "discard", {"name": "all", "tag": "DISCARD ALL"}),
        ("UNLISTEN *", "listen", {"tag": "UNLISTEN"}),
        ("EXECUTE p (1, 'a,b', f(2, 3))", "execute", {"arguments": ("1", "'a,b'", "f(2, 3)")}),
        ("INSERT INTO sales VALUES (1)", "other", {"name": "INSERT"}),
        ("create database shop", "other", {"name": "CREATE"}),
    ],
)
def test_statements_that_are_no_queries(text, kind, fields):
    command = one(text)
    assert command.kind == kind
    assert {name: getattr(command, name) for name in fields} == fields


def test_queries_inside_of_statements():
    declared = one("DECLARE c NO SCROLL CURSOR WITH HOLD FOR SELECT count(*) FROM sales")
    assert (declared.name, declared.hold) == ("c", True)
    assert declared.inner is not None
    assert declared.inner.names == ("count",)
    copied = one("COPY (SELECT region FROM sales LIMIT 3) TO STDOUT WITH (FORMAT csv, HEADER)")
    assert copied.inner is not None
    assert (copied.inner.kind, dict(copied.options)) == ("query", {"format": "csv", "header": "on"})
    old = one("COPY sales (region, qty) TO STDOUT CSV HEADER DELIMITER ';'")
    assert old.inner is not None
    assert old.inner.text == "SELECT region, qty FROM sales"
    assert dict(old.options) == {"format": "csv", "header": "on", "delimiter": ";"}
    prepared = one("PREPARE p (int, text) AS SELECT count(*) FROM sales WHERE qty = $1")
    assert (prepared.name, prepared.arguments, prepared.parameters) == ("p", ("int", "text"), 1)


def test_settings_in_a_query_are_told():
    assert one("SELECT set_config('JIT', $1, false)").settings == (("jit", "$1", False),)
    assert one("SELECT set_config('a.b', 'c', true)").settings == (("a.b", "c", True),)
