"""The catalog: what tools ask PostgreSQL about itself, and what releases tell through it."""

from __future__ import annotations

import pytest

from privsql.channels import Categorical, Uniform
from privsql.errors import Error
from privsql.fronts.pgwire.catalog import database as catalog_filling
from privsql.fronts.pgwire.catalog import macros as catalog_macros
from privsql.fronts.pgwire.catalog.answers import Catalog
from privsql.fronts.pgwire.catalog.rows import VECTORS
from privsql.release.manifest import (
    Groups,
    Manifest,
    Policy,
    Privacy,
    PublicColumn,
    SensitiveColumn,
)
from privsql.sql.postgres.catalog import MACROS, REGPROC
from privsql.sql.postgres.read import read
from tests.fronts.pgwire import introspection


def manifest(table: str, **changes: object) -> Manifest:
    domain = Categorical(("flu", "none"))
    fields: dict[str, object] = {
        "release": "r",
        "software": "privsql",
        "created": "2024-01-01",
        "table": table,
        "public": (
            PublicColumn("city", "VARCHAR"),
            PublicColumn("Cost", "DECIMAL(8,2)"),
            PublicColumn("seen", "TIMESTAMP"),
            PublicColumn("tags", "VARCHAR[]"),
        ),
        "sensitive": (
            SensitiveColumn("illness", "VARCHAR", "uniform", domain, Uniform(0.25, 2), 1.0),
        ),
        "rows": 1234,
        "grouped": True,
        "weighted": True,
        "multiplicity": True,
        "privacy": Privacy("person", 1.0, 1, True),
        "groups": Groups("none", 0.05, "none", "none", 0, (), 1),
        "protection": None,
        "policy": Policy(),
    }
    return Manifest(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def catalog():
    return Catalog(
        {"visits": manifest("visits"), "Odd name": manifest("Odd name")}, "clinic", "ana", pid=77
    )


def asked(catalog: Catalog, text: str, *parameters: object) -> list[tuple[object, ...]]:
    [command] = read(text)
    assert command.kind in ("catalog", "constant")
    described = catalog.describe(command.text)
    if command.names is not None:
        assert len(described) == len(command.names)
    table = catalog.run(command.text, parameters)
    assert table.num_columns == len(described)
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def value(catalog: Catalog, expression: str) -> object:
    [(found,)] = asked(catalog, f"SELECT {expression}")
    return found


def test_columns_are_described_by_role_mechanism_and_retention(catalog):
    rows = asked(
        catalog,
        """
        SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
            pg_catalog.col_description(a.attrelid, a.attnum)
        FROM pg_catalog.pg_attribute a
        WHERE a.attrelid = 'visits'::regclass AND a.attnum > 0 AND NOT a.attisdropped
        ORDER BY a.attnum
        """,
    )
    assert [row[:2] for row in rows] == [
        ("city", "text"),
        ("Cost", "numeric(8,2)"),
        ("seen", "timestamp without time zone"),
        ("tags", "text[]"),
        ("illness", "text"),
    ]
    assert rows[0][2] == "public: published as it was"
    assert str(rows[-1][2]).startswith("sensitive: perturbed (uniform, retention 0.25)")


def test_hidden_columns_do_not_appear(catalog):
    for text in (
        "SELECT attname FROM pg_attribute",
        "SELECT column_name FROM information_schema.columns",
        "SELECT relname FROM pg_class",
    ):
        assert not [row for row in asked(catalog, text) if "privsql_" in str(row)]


def test_tables_and_schemas(catalog):
    assert asked(
        catalog,
        "SELECT table_catalog, table_schema, table_name, table_type"
        " FROM information_schema.tables ORDER BY 3",
    ) == [
        ("clinic", "public", "Odd name", "BASE TABLE"),
        ("clinic", "public", "visits", "BASE TABLE"),
    ]
    assert asked(
        catalog,
        "SELECT column_name, data_type, udt_name, numeric_precision, numeric_scale"
        " FROM information_schema.columns WHERE table_name = $1 ORDER BY ordinal_position LIMIT 4",
        "visits",
    ) == [
        ("city", "text", "text", None, None),
        ("Cost", "numeric", "numeric", 8, 2),
        ("seen", "timestamp without time zone", "timestamp", None, None),
        ("tags", "ARRAY", "_text", None, None),
    ]
    visible = asked(
        catalog,
        "SELECT relname FROM pg_class c WHERE pg_table_is_visible(oid) AND relnamespace = 2200",
    )
    assert sorted(str(row[0]) for row in visible) == ["Odd name", "visits"]
    assert value(catalog, "pg_table_is_visible('information_schema.tables'::regclass)") is False


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("current_user", "ana"),
        ("session_user", "ana"),
        ("user", "ana"),
        ("current_database()", "clinic"),
        ("current_schema()", "public"),
        ("current_schemas(true)", ["pg_catalog", "public"]),
        ("(current_schemas(false))[1]", "public"),
        ("pg_backend_pid()", 77),
        ("current_setting('max_index_keys')", "32"),
        ("current_setting('nosuch', true)", None),
        ("set_config('jit', 'off', false)", "off"),
        ("format_type(23, -1)", "integer"),
        ("format_type(1043, 14)", "character varying(10)"),
        ("format_type(1007, NULL)", "integer[]"),
        ("23::regtype::text", "integer"),
        ("'int4'::regtype::oid", 23),
        ("('\"pg_catalog\".\"' || 'int4' || '\"')::regtype::text", "integer"),
        ("""('"' || 'pg_catalog' || '"."' || 'int8' || '"')::regtype::text""", "bigint"),
        ("'pg_class'::regclass::oid", 1259),
        ("'pg_catalog.pg_class'::regclass::oid", 1259),
        ("'visits'::regclass::text", "visits"),
        ("'\"Odd name\"'::regclass::text", '"Odd name"'),
        ("'public.visits'::regclass = 'visits'::regclass", True),
        ("'public'::regnamespace::oid", 2200),
        ("2200::regnamespace::text", "public"),
        ("to_regclass('nosuch')", None),
        ("quote_ident('Odd name')", '"Odd name"'),
        ("quote_ident('select')", '"select"'),
        ("quote_ident('plain')", "plain"),
        ("quote_literal('it''s')", "'it''s'"),
        ("array_to_string(array['a', null, 'b'], '-')", "a-b"),
        ("array_to_string(array['a', null, 'b'], '-', '?')", "a-?-b"),
        ("array_upper(array[1, 2, 3], 1)", 3),
        ("has_table_privilege('visits', 'SELECT')", True),
        ("has_table_privilege('ana', 'visits', 'INSERT')", False),
        ("pg_get_userbyid(10)", "privsql"),
        ("pg_get_userbyid(99)", "unknown (OID=99)"),
        ("pg_encoding_to_char(6)", "UTF8"),
        ("obj_description('visits'::regclass, 'pg_class') LIKE 'A privsql release%'", True),
        ("pg_is_in_recovery()", False),
        ("pg_sleep(0)", ""),
    ],
)
def test_functions(catalog, expression, expected):
    assert value(catalog, expression) == expected


def test_arguments_of_functions_keep_their_own_columns(catalog):
    """A macro must not take an argument called like its own columns for one of them."""
    rows = asked(catalog, "SELECT oid, format_type(oid, NULL), oid::regtype::text FROM pg_type c")
    assert len({row[1] for row in rows}) > 150
    assert [row[1:] for row in rows if row[0] == 23] == [("integer", "integer")]
    names = asked(
        catalog, "SELECT c.oid::regclass, c.relname FROM pg_class c WHERE relnamespace=11"
    )
    assert len(names) > 100
    assert all(shown == name for shown, name in names)


def test_settings_of_the_connection(catalog):
    [command] = read(
        "SELECT current_setting('TimeZone'), setting FROM pg_settings WHERE name='TimeZone'"
    )
    table = catalog.run(command.text, (), {"TimeZone": "Europe/Berlin"})
    assert [column[0].as_py() for column in table.columns] == ["Europe/Berlin"] * 2


def test_users_do_not_see_each_other(catalog):
    other = Catalog({"visits": manifest("visits")}, "clinic", "o'neil")
    assert value(other, "current_user") == "o'neil"
    assert value(catalog, "current_user") == "ana"
    assert asked(other, "SELECT usename FROM pg_user") == [("o'neil",)]
    assert asked(other, "SELECT count(*) FROM information_schema.tables") == [(1,)]


def test_one_database_serves_all_connections_with_the_same_releases():
    first = Catalog({"visits": manifest("visits")}, "a", "a")
    assert Catalog({"visits": manifest("visits")}, "b", "b")._calls is first._calls
    changed = Catalog({"visits": manifest("visits", rows=1)}, "a", "a")
    assert changed._calls is not first._calls
    oid = "'visits'::regclass::oid"
    assert value(changed, oid) == value(first, oid)


def test_types_of_columns(catalog):
    [command] = read("SELECT oid, relname, reltuples, relhasindex, reloptions FROM pg_class")
    assert [kind for _, kind in catalog.describe(command.text)] == [
        "OID",
        "VARCHAR",
        "FLOAT",
        "BOOLEAN",
        "VARCHAR[]",
    ]
    [command] = read("SELECT array_agg(oid) FROM pg_class WHERE oid = any($1::oid[])")
    assert catalog.describe(command.text, ["OID[]"]) == [("array_agg", "OID[]")]


def test_describing_runs_nothing(catalog):
    [command] = read("SELECT pg_sleep(3600)")
    assert catalog.describe(command.text) == [("pg_sleep", "VARCHAR")]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_csv('rows.csv')",
        "SELECT * FROM duckdb_settings()",
        "SELECT * FROM nosuch()",
        "SELECT 1 FROM pg_catalog.nosuch",
        "SELECT nosuch FROM pg_class",
        "SELECT getvariable('pg')",
        "SELECT 1 FROM pg_nosuch",
    ],
)
def test_nothing_else_is_to_be_had(catalog, text):
    with pytest.raises(Error):
        asked(catalog, text)


@pytest.mark.parametrize(
    "text", ["COPY pgc.pg_class TO 'x'", "SET threads = 4", "SELECT 1; SELECT 2"]
)
def test_only_one_select_is_run(catalog, text):
    with pytest.raises(Error):
        catalog.run(text)


def test_results_have_a_limit(catalog):
    with pytest.raises(Error, match="larger than"):
        asked(catalog, "SELECT * FROM generate_series(1, 2000000)")


def test_every_function_that_is_routed_here_is_there():
    written = "\n".join(catalog_macros.statements())
    missing = [name for name in MACROS if f" pgc.{name}(" not in written]
    assert missing == ["pg_typeof"]  # typeof(), by the translation


def test_every_relation_of_postgresql_can_be_read(catalog):
    for schema, name, _, _, columns in catalog_filling.shapes()["relations"]:
        [command] = read(f'SELECT * FROM {schema}."{name}" LIMIT 0')
        assert [c for c, _ in catalog.describe(command.text)] == [c[0] for c in columns]


# One statement for each construct that tools use and that DuckDB spells or means otherwise.
TOOLS = [
    # an operator and a collation with their schema
    """SELECT k.relname, pg_catalog.pg_get_userbyid(k.relowner) FROM pg_catalog.pg_class k
       WHERE k.relname OPERATOR(pg_catalog.~) '^vis' COLLATE pg_catalog.default""",
    # an array as text, and an array of a query
    """SELECT x.polname, x.polroles <> '{0}', array(SELECT r.oid FROM pg_roles r
       WHERE r.oid = any (x.polroles)) FROM pg_policy x""",
    # sets in the select list
    """SELECT unnest(x.indkey), generate_subscripts(x.indkey, 1),
       (information_schema._pg_expandarray(x.indkey)).n FROM pg_index x
       WHERE x.indrelid = ANY (ARRAY[1, 2])""",
    """SELECT count(*) FROM pg_catalog.pg_get_keywords() WHERE word <> ALL ('{a,b}'::text[])""",
    # functions by name
    "SELECT oid FROM pg_type WHERE typinput = 'pg_catalog.array_in'::regproc AND typname = '_int4'",
    "SELECT p.prorettype::regtype, p.proargtypes::regtype[]::text[] FROM pg_proc p LIMIT 3",
    "SELECT * FROM unnest(current_schemas(false))",
    """WITH RECURSIVE t(oid, depth) AS (SELECT typelem, 0 FROM pg_type WHERE oid = 1007
       UNION ALL SELECT p.typelem, t.depth + 1 FROM pg_type p, t WHERE p.oid = t.oid)
       SELECT *, oid::regtype::text AS name FROM t ORDER BY depth""",
    "SELECT json_build_object('a', 1, 'b', relname) FROM pg_class LIMIT 1",
]


@pytest.mark.parametrize("text", TOOLS, ids=range(len(TOOLS)))
def test_statements_of_tools(catalog, text):
    asked(catalog, text)


def test_answers_to_tools(catalog):
    assert asked(catalog, TOOLS[0]) == [("visits", "privsql")]
    assert asked(catalog, TOOLS[4]) == [(1007,)]
    assert asked(catalog, TOOLS[6]) == [("public",)]
    assert [row[2] for row in asked(catalog, TOOLS[7])] == ["integer", "-"]


def test_statements_of_tools_about_the_catalog_work(catalog):
    """``python -m tests.fronts.pgwire.introspection`` prints how many, by tool."""
    given = [*(text for _, text in introspection.statements()), *TOOLS]
    asked_for = [text for text in given if introspection.about_the_catalog(text)]
    assert len(asked_for) == len(given) >= 204
    wrong = [(text, introspection.problem_with(catalog, text)) for text in asked_for]
    assert [text for text, problem in wrong if problem is not None] == []


def test_an_order_of_joined_rows_takes_no_memory_for_rows_that_are_not_there(catalog):
    """TypeORM's: DuckDB expects millions of rows, and has five."""
    sql = next(text for _, text in introspection.statements() if "col_attr" in text)
    served = introspection.served(manifest("patients"))
    assert [row[4] for row in asked(served, sql)] == [1, 2, 3, 4, 5]
    assert [row[4] for row in asked(catalog, sql)] == [1, 2, 3, 4, 5] * 2
    many = "SELECT i FROM generate_series(1, 9) t(i) ORDER BY i DESC LIMIT 3"
    assert asked(catalog, many) == [(9,), (8,), (7,)]
    with pytest.raises(Error, match="larger than 1000000 rows"):
        asked(catalog, "SELECT i FROM generate_series(1, 1000002) t(i) ORDER BY i")


def test_numbers_of_functions_are_known_by_their_columns():
    found = {
        name
        for _, _, _, _, columns in catalog_filling.shapes()["relations"]
        for name, kind, _ in columns
        if kind == "regproc"
    }
    assert found == REGPROC


def test_vectors_are_known_by_their_columns():
    found = {
        name: kind.upper()
        for _, _, _, _, columns in catalog_filling.shapes()["relations"]
        for name, kind, _ in columns
        if kind in ("oidvector", "int2vector")
    }
    assert found == VECTORS


def test_tables_have_statistics_and_privileges(catalog):
    sql = "SELECT relname, n_live_tup FROM pg_stat_user_tables ORDER BY 1"
    assert asked(catalog, sql) == [("Odd name", 1234), ("visits", 1234)]
    sql = "SELECT privilege_type FROM information_schema.table_privileges WHERE table_name='visits'"
    assert asked(catalog, sql) == [("SELECT",)]
    assert value(catalog, "character_set_name FROM information_schema.character_sets") == "UTF8"
