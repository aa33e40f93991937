"""Names inside a release."""

from __future__ import annotations

# Columns of the published table that explain a row and belong to nobody.
GROUP = "privsql_group"
WEIGHT = "privsql_weight"
MULTIPLICITY = "privsql_multiplicity"

# What tells rows apart: DuckDB's own in a file, a column of the view over a folder.
ROW_NUMBER = "rowid"

# No column of a source may begin like this.
RESERVED = "privsql_"

# Tables beside it: distinct public values with their group, and how many rows have them.
TUPLES = 'privsql."tuples"'
ROWS = "privsql_rows"


def quoted(name: str) -> str:
    """The name of a table as DuckDB's relations read it: quoted, so that dots are part of it.

    >>> quoted('a "b".c')
    '"a ""b"".c"'
    """
    return '"' + name.replace('"', '""') + '"'


def published_table(table: str) -> str:
    """The published table, whatever temporary one of ours is called like it.

    A release is called ``release`` in every connection of ours, whatever its file is called.
    """
    return f"release.main.{quoted(table)}"


def domain_table(column: str) -> str:
    """Table that lists the values of a sensitive column's domain."""
    return f"privsql.{quoted(f'domain of {column}')}"


def values_table(column: str) -> str:
    """Table that says what the values of a public column merge into."""
    return f"privsql.{quoted(f'values of {column}')}"
