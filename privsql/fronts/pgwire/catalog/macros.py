"""PostgreSQL's system functions, as macros of the catalog database.

What differs from one connection to another is in the variable ``pg``, a structure that is set
before every statement: ``user``, ``database``, ``pid`` and ``settings``.
"""

from __future__ import annotations

from privsql.fronts.pgwire.catalog.constants import CONSTANT, NOTHING

# Object ids that PostgreSQL gives to itself.
_SELF = "getvariable('pg')"

# As the connection has it, or else as the server does.
_SETTING = (
    f"coalesce({_SELF}.settings[lower(a)],"  # noqa: S608 - a constant
    " (SELECT z_value FROM pgc._z_setting WHERE z_name = lower(a)))"
)

# What the macros read.  An argument is put into a macro as it is written, so a column of these
# must not be called like any that an argument can name.
VIEWS = {
    "_z_setting": "SELECT lower(name) AS z_name, setting AS z_value FROM pgc.pg_settings",
    "_z_role": "SELECT oid AS z_oid, rolname AS z_name FROM pgc.pg_roles",
    "_z_namespace": "SELECT oid AS z_oid, nspname AS z_name FROM pgc.pg_namespace",
    "_z_keyword": "SELECT word AS z_word FROM pgc.keywords WHERE catcode <> 'U'",
    "_z_type": "SELECT oid AS z_oid, shown AS z_shown, name AS z_name FROM pgc._formats",
    "_z_types": "SELECT MAP(list(oid), list(shown)) AS z_by_oid FROM pgc._formats",
    "_z_class": """
        SELECT c.oid AS z_oid, n.nspname <> 'information_schema' AS z_visible,
            c.relname AS z_name, n.nspname || '.' || c.relname AS z_full,
            CASE WHEN n.nspname IN ('public', 'pg_catalog') THEN '' ELSE n.nspname || '.' END
            || pgc.quote_ident(c.relname) AS z_shown
        FROM pgc.pg_class c JOIN pgc.pg_namespace n ON n.oid = c.relnamespace
    """,
    "_z_description": """
        SELECT d.objoid AS z_object, d.objsubid AS z_part, c.relname AS z_class,
            d.description AS z_text
        FROM pgc.pg_description d JOIN pgc.pg_class c ON c.oid = d.classoid
    """,
    "_z_proc": """
        SELECT p.oid AS z_oid, t.z_by_oid[p.prorettype] AS z_result,
            array_to_string(list_transform(p.proargtypes, lambda e: t.z_by_oid[e]), ', ')
            AS z_arguments
        FROM pgc.pg_proc p, pgc._z_types t
    """,
}

# Reading is allowed, and nothing else is.
_READABLE = "lower({}) IN ('select', 'usage', 'connect', 'temp', 'temporary', 'execute')"
_PRIVILEGES = {
    "has_table_privilege": 2,
    "has_schema_privilege": 2,
    "has_database_privilege": 2,
    "has_any_column_privilege": 2,
    "has_sequence_privilege": 2,
    "has_function_privilege": 2,
    "has_language_privilege": 2,
    "has_tablespace_privilege": 2,
    "has_column_privilege": 3,
}

MOST_PAIRS = 12  # of json_build_object(), which takes any number

# (name, parameters, body); several bodies of one name differ in the number of parameters.
_WRITTEN: tuple[tuple[str, str, str], ...] = (
    ("version", "", "'PostgreSQL 15.0 (privsql)'"),
    ("current_user", "", f"{_SELF}.user"),
    ("session_user", "", f"{_SELF}.user"),
    ("current_database", "", f"{_SELF}.database"),
    ("current_catalog", "", f"{_SELF}.database"),
    ("current_schema", "", "'public'"),
    ("current_schemas", "a", "CASE WHEN a THEN ['pg_catalog', 'public'] ELSE ['public'] END"),
    ("pg_backend_pid", "", f"{_SELF}.pid"),
    ("current_setting", "a", _SETTING),
    ("current_setting", "a, b", _SETTING),
    ("set_config", "a, b, c", "b"),
    (
        "pg_get_userbyid",
        "a",
        "coalesce((SELECT z_name FROM pgc._z_role WHERE z_oid = a), 'unknown (OID=' || a || ')')",
    ),
    (
        # Without its schema's name, which information_schema needs.
        "pg_table_is_visible",
        "a",
        "(SELECT z_visible FROM pgc._z_class WHERE z_oid = a)",
    ),
    ("pg_encoding_to_char", "a", "CASE a WHEN 6 THEN 'UTF8' WHEN 0 THEN 'SQL_ASCII' ELSE '' END"),
    ("pg_char_to_encoding", "a", "CASE upper(a) WHEN 'UTF8' THEN 6 ELSE -1 END"),
    (
        "format_type",
        "a, b",
        "CASE WHEN a IS NULL THEN NULL ELSE coalesce("
        "(SELECT z_shown || CASE WHEN a = 1700 AND b > 4 THEN '(' || ((b - 4) >> 16) || ','"
        " || ((b - 4) & 65535) || ')'"
        " WHEN a IN (1042, 1043) AND b > 4 THEN '(' || (b - 4) || ')' ELSE '' END"
        " FROM pgc._z_type WHERE z_oid = a), CASE WHEN a = 0 THEN '-' ELSE '???' END) END",
    ),
    (
        "obj_description",
        "a, b",
        "(SELECT z_text FROM pgc._z_description"
        " WHERE z_object = a AND z_part = 0 AND z_class = b LIMIT 1)",
    ),
    (
        "obj_description",
        "a",
        "(SELECT z_text FROM pgc._z_description WHERE z_object = a AND z_part = 0 LIMIT 1)",
    ),
    (
        "col_description",
        "a, b",
        "(SELECT z_text FROM pgc._z_description"
        " WHERE z_object = a AND z_part = b AND z_class = 'pg_class' LIMIT 1)",
    ),
    (
        "quote_ident",
        "a",
        "CASE WHEN regexp_full_match(a, '[a-z_][a-z0-9_$]*')"
        " AND NOT EXISTS (SELECT 1 FROM pgc._z_keyword WHERE z_word = a)"
        " THEN a ELSE '\"' || replace(a, '\"', '\"\"') || '\"' END",
    ),
    ("quote_literal", "a", "'''' || replace(a::VARCHAR, '''', '''''') || ''''"),
    (
        "pg_size_pretty",
        "a",
        "CASE WHEN abs(a) < 10240 THEN a || ' bytes' ELSE (a // 1024) || ' kB' END",
    ),
    (
        # In steps of 50 ms, between which a statement can be canceled; sleep_ms() itself cannot.
        "pg_sleep",
        "a",
        "(WITH RECURSIVE z_steps(z_i) AS (SELECT 0 UNION ALL SELECT z_i + 1 FROM z_steps"
        " WHERE z_i < (a) * 20 AND sleep_ms(50 + z_i * 0) IS NULL)"
        " SELECT left(count(*)::VARCHAR, 0) FROM z_steps)",
    ),
    (
        "pg_get_function_result",
        "a",
        "(SELECT z_result FROM pgc._z_proc WHERE z_oid = a)",
    ),
    (
        "pg_get_function_arguments",
        "a",
        "(SELECT z_arguments FROM pgc._z_proc WHERE z_oid = a)",
    ),
    ("array_upper", "a, b", "CASE WHEN len(a) > 0 THEN len(a)::INTEGER END"),
    ("array_lower", "a, b", "CASE WHEN len(a) > 0 THEN 1 END"),
    (
        "array_to_string",
        "a, b",
        "CASE WHEN a IS NULL THEN NULL ELSE"
        " coalesce(list_aggregate(list_filter(a::VARCHAR[], lambda e: e IS NOT NULL),"
        " 'string_agg', b), '') END",
    ),
    (
        "array_to_string",
        "a, b, c",
        "CASE WHEN a IS NULL THEN NULL ELSE"
        " coalesce(list_aggregate(list_transform(a::VARCHAR[], lambda e: coalesce(e, c)),"
        " 'string_agg', b), '') END",
    ),
    (
        "_pg_expandarray",
        "a",
        "unnest([{'x': a[i], 'n': i::INTEGER} for i in range(1, len(a) + 1)])",
    ),
    ("_pg_truetypid", "a, t", "a.atttypid"),
    ("_pg_truetypmod", "a, t", "a.atttypmod"),
    ("_pg_char_max_length", "a, b", "CASE WHEN a IN (1042, 1043) AND b > 4 THEN b - 4 END"),
    (
        "_pg_numeric_precision",
        "a, b",
        "CASE a WHEN 21 THEN 16 WHEN 23 THEN 32 WHEN 20 THEN 64 WHEN 700 THEN 24 WHEN 701 THEN 53"
        " WHEN 1700 THEN CASE WHEN b > 4 THEN (b - 4) >> 16 END END",
    ),
    (
        "_pg_numeric_scale",
        "a, b",
        "CASE WHEN a IN (20, 21, 23) THEN 0 WHEN a = 1700 AND b > 4 THEN (b - 4) & 65535 END",
    ),
    (
        "_pg_datetime_precision",
        "a, b",
        "CASE WHEN a = 1082 THEN 0 WHEN a IN (1083, 1114, 1184, 1186) THEN 6 END",
    ),
    # Objects by name.  A name in public or pg_catalog needs no schema.
    (
        "regclass_name",
        "a",
        "CASE WHEN a IS NULL THEN NULL ELSE coalesce((SELECT z_shown FROM pgc._z_class"
        " WHERE z_oid = TRY_CAST(a AS UINTEGER)), CASE WHEN TRY_CAST(a AS UINTEGER) = 0 THEN '-'"
        " ELSE a::VARCHAR END) END",
    ),
    (
        "regclass_oid",
        "a",
        "coalesce(TRY_CAST(a AS UINTEGER), (SELECT min(z_oid) FROM pgc._z_class"
        " WHERE pgc._plain(a::VARCHAR) IN (z_name, z_full)))",
    ),
    (
        "_plain",
        "a",
        "replace(regexp_replace(a, '^(\"?public\"?|\"?pg_catalog\"?)\\.', ''), '\"', '')",
    ),
    (
        "regtype_name",
        "a",
        "CASE WHEN a IS NULL THEN NULL WHEN TRY_CAST(a AS UINTEGER) IS NULL THEN a::VARCHAR"
        " ELSE coalesce((SELECT z_shown FROM pgc._z_type WHERE z_oid = TRY_CAST(a AS UINTEGER)),"
        " CASE WHEN TRY_CAST(a AS UINTEGER) = 0 THEN '-' ELSE a::VARCHAR END) END",
    ),
    (
        "regtype_oid",
        "a",
        "coalesce(TRY_CAST(a AS UINTEGER), (SELECT min(z_oid) FROM pgc._z_type"
        " WHERE lower(pgc._plain(a::VARCHAR)) IN (z_shown, z_name)))",
    ),
    (
        "regnamespace_name",
        "a",
        "coalesce((SELECT z_name FROM pgc._z_namespace WHERE z_oid = TRY_CAST(a AS UINTEGER)),"
        " a::VARCHAR)",
    ),
    (
        "regnamespace_oid",
        "a",
        "coalesce(TRY_CAST(a AS UINTEGER), (SELECT z_oid FROM pgc._z_namespace"
        " WHERE z_name = replace(a::VARCHAR, '\"', '')))",
    ),
    (
        "regrole_name",
        "a",
        "coalesce((SELECT z_name FROM pgc._z_role WHERE z_oid = TRY_CAST(a AS UINTEGER)),"
        " a::VARCHAR)",
    ),
    (
        "regrole_oid",
        "a",
        "coalesce(TRY_CAST(a AS UINTEGER), (SELECT min(z_oid) FROM pgc._z_role"
        " WHERE z_name = replace(a::VARCHAR, '\"', '')))",
    ),
    # Functions are text in these tables: their names, without a schema.
    ("regproc_name", "a", "pgc._plain(a::VARCHAR)"),
    ("regclass_names", "a", "list_transform(a, lambda e: e::VARCHAR)"),
    (
        "regtype_names",
        "a",
        "(SELECT list_transform(a, lambda e: coalesce(z_by_oid[e], e::VARCHAR)) FROM pgc._z_types)",
    ),
    ("regproc_names", "a", "list_transform(a, lambda e: e::VARCHAR)"),
    ("to_regclass", "a", "pgc.regclass_oid(a)"),
    ("to_regtype", "a", "pgc.regtype_oid(a)"),
    ("to_regproc", "a", "pgc.regproc_name(a)"),
    ("to_regnamespace", "a", "pgc.regnamespace_oid(a)"),
    ("to_regrole", "a", "pgc.regrole_oid(a)"),
)

_TABLES = (
    ("pg_get_keywords", "", "SELECT * FROM pgc.keywords"),
    ("pg_show_all_settings", "", "SELECT * FROM pgc.pg_settings"),
    (
        "pg_options_to_table",
        "a",
        "SELECT split_part(o, '=', 1) AS option_name, split_part(o, '=', 2) AS option_value"
        " FROM unnest(a) AS u(o)",
    ),
    (
        "aclexplode",
        "a",
        "SELECT 0::UINTEGER AS grantor, 0::UINTEGER AS grantee, o AS privilege_type,"
        " false AS is_grantable FROM unnest(a) AS u(o) WHERE false",
    ),
    (
        "pg_timezone_names",
        "",
        "SELECT 'UTC' AS name, 'UTC' AS abbrev, INTERVAL 0 SECOND AS utc_offset, false AS is_dst",
    ),
    ("pg_listening_channels", "", "SELECT '' AS pg_listening_channels WHERE false"),
)


def statements() -> list[str]:
    """Views and macros, in an order in which each finds those that it needs."""
    bodies: dict[str, list[tuple[str, str]]] = {}
    for name, forms in NOTHING.items():
        bodies[name] = [(form, "NULL::VARCHAR") for form in forms]
    for constant, functions in CONSTANT.items():
        for name, forms in functions.items():
            bodies[name] = [(form, constant) for form in forms]
    for name, count in _PRIVILEGES.items():
        letters = "abcd"
        bodies[name] = [
            (", ".join(letters[:n]), _READABLE.format(letters[n - 1])) for n in (count, count + 1)
        ]
    for name, form, body in sorted(_WRITTEN, key=lambda row: _LATE.get(row[0], 0)):
        bodies.setdefault(name, []).append((form, body))
    bodies["json_build_object"] = [
        (
            ", ".join(f"k{i}, v{i}" for i in range(n)),
            f"json_object({', '.join(f'k{i}::VARCHAR, v{i}' for i in range(n))})",
        )
        for n in range(1, MOST_PAIRS + 1)
    ]
    bodies["pg_get_function_identity_arguments"] = [("a", "pgc.pg_get_function_arguments(a)")]
    views = {name: f"CREATE VIEW pgc.{name} AS {body}" for name, body in VIEWS.items()}
    made = [views.pop("_z_keyword"), _macro("quote_ident", bodies.pop("quote_ident"))]
    made += [*views.values(), *(_macro(name, forms) for name, forms in bodies.items())]
    return made + [
        f"CREATE MACRO pgc.{name}({form}) AS TABLE {body}" for name, form, body in _TABLES
    ]


def _macro(name: str, forms: list[tuple[str, str]]) -> str:
    overloads = ", ".join(f"({form}) AS ({body})" for form, body in forms)
    return f"CREATE MACRO pgc.{name}{overloads}"


# Those that call others come after them.
_LATE = {
    "current_setting": 1,
    "regclass_name": 1,
    "regclass_oid": 1,
    "regtype_oid": 1,
    "regproc_name": 1,
    "pg_get_function_result": 1,
    "pg_get_function_arguments": 1,
    "regclass_names": 2,
    "regtype_names": 2,
    "to_regclass": 2,
    "to_regtype": 2,
    "to_regproc": 2,
    "to_regnamespace": 2,
    "to_regrole": 2,
}
