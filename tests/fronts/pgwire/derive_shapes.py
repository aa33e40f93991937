"""Reads the shapes of a live PostgreSQL 15's catalog and writes what privsql ships of them.

    python -m tests.fronts.pgwire.derive_shapes host=/var/run/postgresql user=postgres > shapes.json

The argument is what psql takes to connect; the result is ``shapes.json`` of ``pgwire/catalog``.
It holds names and types of the columns of every catalog relation, and the rows that no release
changes: types, access methods, languages, collations, ranges, some settings and some functions.
Nothing of it depends on the machine: settings are chosen by name, and values with paths in
them are left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

RELATIONS = """
    SELECT n.nspname AS schema, c.relname AS name, c.oid::int8 AS oid, c.relkind::text AS kind,
        (SELECT json_agg(json_build_array(a.attname, t.typname, a.attnotnull) ORDER BY a.attnum)
         FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname IN ('pg_catalog', 'information_schema') AND c.relkind IN ('r', 'v')
    ORDER BY 1, 2
"""

SETTINGS = """
    application_name bytea_output client_encoding client_min_messages datestyle
    default_table_access_method default_tablespace default_transaction_isolation
    default_transaction_read_only extra_float_digits integer_datetimes intervalstyle
    is_superuser jit lc_collate lc_ctype lc_messages lc_monetary lc_numeric lc_time lock_timeout
    max_identifier_length max_index_keys row_security search_path server_encoding server_version
    server_version_num session_replication_role standard_conforming_strings statement_timeout
    idle_in_transaction_session_timeout synchronous_commit timezone transaction_deferrable
    transaction_isolation transaction_read_only xmlbinary xmloption array_nulls
    backslash_quote block_size escape_string_warning quote_all_identifiers
"""

# Functions that work over a release, for tools that complete names.
FUNCTIONS = """
    count sum avg min max stddev stddev_pop stddev_samp variance var_pop var_samp covar_pop
    covar_samp corr percentile_cont percentile_disc mode abs ceil floor round trunc sqrt exp ln log
    power mod sign lower upper length char_length substring substr trim ltrim rtrim btrim replace
    concat strpos left right split_part date_trunc date_part extract to_char to_timestamp to_date
    now version current_database current_schema format_type pg_get_userbyid row_number rank
    dense_rank lag lead
"""

ROWS = {
    "pg_type": "typrelid = 0 AND typelem NOT IN (SELECT oid FROM pg_type WHERE typrelid <> 0)",
    "pg_range": "true",
    "pg_am": "true",
    "pg_language": "lanname <> 'plpgsql'",
    "pg_collation": "collname IN ('default', 'C', 'POSIX', 'ucs_basic')",
    "pg_opclass": "opcdefault AND opcmethod = 403",
    "pg_tablespace": "true",
    "pg_settings": "lower(name) IN ({})".format(
        ", ".join(f"'{name}'" for name in SETTINGS.split())
    ),
    "pg_proc": "pronamespace = 11 AND proname IN ({})".format(
        ", ".join(f"'{name}'" for name in FUNCTIONS.split())
    ),
}

# Functions that the rows above name by number: those that read and write types, and the like.
NAMED = """
    SELECT oid::int8 AS oid, proname, prorettype::int8 AS result, proargtypes::text AS arguments
    FROM pg_catalog.pg_proc WHERE oid = ANY ('{{{}}}') ORDER BY oid
"""

KEYWORDS = "SELECT word, catcode::text, barelabel, catdesc, baredesc FROM pg_get_keywords()"


def asked(connection: str, query: str) -> list[dict[str, Any]]:
    """The rows of a query, each by the names of its columns."""
    wrapped = f"SELECT coalesce(json_agg(row_to_json(q)), '[]') FROM ({query}) AS q"
    done = subprocess.run(
        ["psql", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", wrapped, connection],
        check=True,
        capture_output=True,
        text=True,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def derived(connection: str) -> dict[str, Any]:
    """All that is shipped."""
    version = asked(connection, "SELECT current_setting('server_version_num')::int AS v")[0]["v"]
    if version // 10000 != 15:
        raise SystemExit(f"PostgreSQL 15 is wanted, this is {version // 10000}")
    relations = asked(connection, RELATIONS)
    columns = {r["name"]: r["columns"] for r in relations if r["schema"] == "pg_catalog"}
    rows: dict[str, list[list[Any]]] = {}
    functions: set[int] = set()
    for name, condition in ROWS.items():
        numbered = [column for column, kind, _ in columns[name] if kind == "regproc"]
        listed = ", ".join(
            f"{column}::oid::int8 AS {column}" if column in numbered else column
            for column, *_ in columns[name]
        )
        query = f"SELECT {listed} FROM pg_catalog.{name} WHERE {condition} ORDER BY 1"
        found = asked(connection, query)
        rows[name] = [[_value(row[column]) for column, *_ in columns[name]] for row in found]
        functions |= {row[column] for row in found for column in numbered}
    functions -= {0, *(int(row[0]) for row in rows["pg_proc"])}
    named = asked(connection, NAMED.format(",".join(map(str, sorted(functions)))))
    return {
        "relations": [
            [r["schema"], r["name"], r["oid"], r["kind"], r["columns"]] for r in relations
        ],
        "rows": rows,
        "functions": [list(row.values()) for row in named],
        "keywords": [list(row.values()) for row in asked(connection, KEYWORDS + " ORDER BY 1")],
    }


def _value(value: Any) -> Any:
    """A value as JSON; paths, which a machine could have, are none of what is asked for."""
    if isinstance(value, str) and value.startswith("/"):
        return None
    return value


def written(shapes: dict[str, Any]) -> str:
    """One line a relation and a row, so that changes can be read."""
    lines = ["{"]
    for number, (key, value) in enumerate(shapes.items()):
        last = number == len(shapes) - 1
        if isinstance(value, dict):
            lines.append(f' "{key}": {{')
            for i, (name, rows) in enumerate(value.items()):
                lines.append(f'  "{name}": [')
                lines += _lines(rows, "   ")
                lines.append("  ]" + "," * (i < len(value) - 1))
            lines.append(" }" + "," * (not last))
        else:
            lines.append(f' "{key}": [')
            lines += _lines(value, "  ")
            lines.append(" ]" + "," * (not last))
    return "\n".join([*lines, "}", ""])


def _lines(rows: list[Any], indent: str) -> list[str]:
    shown = [json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows]
    return [indent + row + "," * (i < len(shown) - 1) for i, row in enumerate(shown)]


if __name__ == "__main__":
    sys.stdout.write(written(derived(" ".join(sys.argv[1:]))))
