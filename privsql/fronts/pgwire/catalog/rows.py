"""Rows of the catalog that describe releases: tables, columns, comments."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privsql.fronts.pgwire.protocol.types import kind_of
from privsql.release.manifest import Manifest, PublicColumn, SensitiveColumn

SCHEMAS = {"pg_catalog": 11, "public": 2200, "information_schema": 13000}
CLASS = 1259  # pg_class itself
OWNER = 10
INTERNAL = 12  # the language of functions that are compiled in
FIRST = 16_384  # PostgreSQL keeps lower numbers for itself

# Columns that every table has in PostgreSQL, and their numbers.
SYSTEM = {"ctid": -1, "xmin": -2, "cmin": -3, "xmax": -4, "cmax": -5, "tableoid": -6}

# Columns of short lists that are written without braces: "23 25".
VECTORS = dict.fromkeys(("indcollation", "indclass", "partclass", "partcollation"), "OIDVECTOR")
VECTORS |= dict.fromkeys(("indkey", "indoption", "tgattr", "partattrs", "stxkeys"), "INT2VECTOR")
VECTORS |= {"proargtypes": "OIDVECTOR", "prattrs": "INT2VECTOR"}

Row = dict[str, Any]


@dataclass(frozen=True)
class Shown:
    """One table as the catalog shows it."""

    oid: int
    row_type: int
    name: str
    manifest: Manifest

    @property
    def columns(self) -> tuple[PublicColumn | SensitiveColumn, ...]:
        """As a session lists them: public ones first.  Columns that explain rows are not there."""
        return (*self.manifest.public, *self.manifest.sensitive)


def shown(releases: Mapping[str, Manifest]) -> list[Shown]:
    """Tables by name, with numbers that depend on the name alone.

    So they stay when a release is published again, and differ between tables.
    """
    taken: set[int] = set()

    def number(text: str) -> int:
        made = FIRST + zlib.crc32(text.encode()) % (2**31 - 2 * FIRST)
        while made in taken:
            made += 1
        taken.add(made)
        return made

    return [
        Shown(number(f"table {name}"), number(f"row {name}"), name, releases[name])
        for name in sorted(releases)
    ]


def comment_of(column: PublicColumn | SensitiveColumn) -> str:
    """What a tool shows beside a column: whether its values are the originals."""
    if isinstance(column, PublicColumn):
        return "public: published as it was"
    kept = getattr(column.channel, "retention", None)
    strength = f", retention {kept:.4g}" if isinstance(kept, float | int) else ""
    return (
        f"sensitive: perturbed ({column.mechanism}{strength});"
        " answers are reconstructed and carry an error"
    )


def comment_on(manifest: Manifest) -> str:
    """What a tool shows beside a table."""
    if not manifest.sensitive:  # nothing of it was perturbed
        return "A public table, to be joined."
    return f"A privsql release of {manifest.created}.  {manifest.privacy.statement()}"


def numbers(
    releases: Mapping[str, Manifest], relations: Sequence[Sequence[Any]]
) -> dict[str, tuple[int, list[str]]]:
    """The number of each table and the names of its columns, by the table's name."""
    found = {}
    for schema, name, oid, _, columns in relations:
        known = int(oid), [each[0] for each in columns]
        found[f"{schema}.{name}"] = known
        if schema == "pg_catalog":
            found[name] = known
    for table in shown(releases):
        found[table.name] = table.oid, [column.name for column in table.columns]
    return found


def located(
    origins: Sequence[tuple[str, str] | None], tables: Mapping[str, tuple[int, list[str]]]
) -> list[tuple[int, int]]:
    """The number of the table and of the column of each column of a result; 0 of others.

    >>> located([("t", "b"), None, ("t", "*")], {"t": (7, ["a", "b"])})
    [(7, 2), (0, 0), (7, 1), (7, 2)]
    """
    found = []
    for origin in origins:
        oid, columns = tables.get(origin[0], (0, [])) if origin else (0, [])
        name = origin[1] if origin else ""
        if name == "*":
            found += [(oid, number) for number in range(1, len(columns) + 1)]
        elif name in columns:
            found.append((oid, columns.index(name) + 1))
        else:
            number = SYSTEM.get(name, 0)
            found.append((oid if number else 0, number))
    return found


def class_rows(tables: Sequence[Shown]) -> list[Row]:
    """Of pg_class."""
    return [
        _class(t.oid, t.name, SCHEMAS["public"], "r", len(t.columns))
        | {"reltype": t.row_type, "relam": 2, "reltuples": float(t.manifest.rows), "relpages": 1}
        for t in tables
    ]


def _class(oid: int, name: str, schema: int, kind: str, width: int) -> Row:
    return {
        "oid": oid,
        "relname": name,
        "relnamespace": schema,
        "relowner": OWNER,
        "reltuples": -1.0,
        "relpersistence": "p",
        "relkind": kind,
        "relnatts": width,
        "relispopulated": True,
        "relreplident": "d",
    }


def own_class(relations: Sequence[Sequence[Any]]) -> list[Row]:
    """Of pg_class, for the catalog's own relations."""
    return [
        _class(int(oid), name, SCHEMAS[schema], kind, len(columns))
        for schema, name, oid, kind, columns in relations
    ]


def _attribute(oid: int, number: int, name: str, kind: Row, modifier: int, never: bool) -> Row:
    return {
        "attrelid": oid,
        "attname": name,
        "atttypid": kind["oid"],
        "attstattarget": -1,
        "attlen": kind["typlen"],
        "attnum": number,
        "attndims": int(kind["typcategory"] == "A"),
        "attcacheoff": -1,
        "atttypmod": modifier,
        "attbyval": kind["typbyval"],
        "attalign": kind["typalign"],
        "attstorage": kind["typstorage"],
        "attnotnull": never,
        "attislocal": True,
        "attcollation": kind["typcollation"],
    }


def attribute_rows(tables: Sequence[Shown], types: Mapping[int, Row]) -> list[Row]:
    """Of pg_attribute."""
    return [
        _attribute(table.oid, number, column.name, types[kind.oid], kind.modifier, False)
        for table in tables
        for number, column in enumerate(table.columns, 1)
        for kind in [kind_of(column.type)]
    ]


def own_attributes(relations: Sequence[Sequence[Any]], types: Mapping[int, Row]) -> list[Row]:
    """Of pg_attribute, for the catalog's own relations."""
    by_name = {row["typname"]: row for row in types.values()}
    return [
        _attribute(int(oid), number, name, by_name[kind], -1, never)
        for _, _, oid, _, columns in relations
        for number, (name, kind, never) in enumerate(columns, 1)
        if kind in by_name
    ]


def function_rows(functions: Sequence[Sequence[Any]]) -> list[Row]:
    """Of pg_proc, for functions that other rows name: those that read and write types."""
    return [
        {
            "oid": oid,
            "proname": name,
            "pronamespace": SCHEMAS["pg_catalog"],
            "proowner": OWNER,
            "prolang": INTERNAL,
            "procost": 1.0,
            "prokind": "f",
            "proisstrict": True,
            "provolatile": "i",
            "proparallel": "s",
            "pronargs": len(arguments.split()),
            "prorettype": result,
            "proargtypes": [int(each) for each in arguments.split()],
            "prosrc": name,
        }
        for oid, name, result, arguments in functions
    ]


def type_rows(tables: Sequence[Shown], like: Row) -> list[Row]:
    """Of pg_type: the type of each table's rows, which is ``record`` but for its name."""
    return [
        like
        | {
            "oid": t.row_type,
            "typname": t.name,
            "typnamespace": SCHEMAS["public"],
            "typtype": "c",
            "typcategory": "C",
            "typrelid": t.oid,
            "typarray": 0,
        }
        for t in tables
    ]


def description_rows(tables: Sequence[Shown]) -> list[Row]:
    """Of pg_description."""
    return [
        {"objoid": t.oid, "classoid": CLASS, "objsubid": i, "description": text}
        for t in tables
        for i, text in enumerate([comment_on(t.manifest), *map(comment_of, t.columns)])
    ]
