"""Rows of the catalog that describe releases: tables, columns, comments."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from privsql.fronts.pgwire.protocol.types import kind_of
from privsql.release.manifest import Manifest, PublicColumn, SensitiveColumn

PUBLIC, PG_CATALOG, INFORMATION = 2200, 11, 13000  # of schemas
CLASS = 1259  # pg_class itself
OWNER = 10
DATABASE = 5
FIRST = 16_384  # PostgreSQL keeps lower numbers for itself

Row = dict[str, Any]


class Versioned(Protocol):
    """An object with a manifest."""

    @property
    def manifest(self) -> Manifest:
        """The manifest of a release."""


Release = Manifest | Versioned


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


def shown(releases: Mapping[str, Release]) -> list[Shown]:
    """Tables by name, with numbers that depend on the name alone.

    So they stay when a release is published again, and differ between tables.
    """
    taken: set[int] = set()
    found = []
    for name in sorted(releases):
        release = releases[name]
        manifest = release if isinstance(release, Manifest) else release.manifest
        numbers = []
        for what in ("table", "row"):
            number = FIRST + zlib.crc32(f"{what} {name}".encode()) % (2**31 - 2 * FIRST)
            while number in taken:
                number += 1
            taken.add(number)
            numbers.append(number)
        found.append(Shown(numbers[0], numbers[1], name, manifest))
    return found


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
    return f"A privsql release of {manifest.created}.  {manifest.privacy.statement()}"


def class_rows(tables: Sequence[Shown]) -> list[Row]:
    """Of pg_class."""
    return [
        _class(t.oid, t.name, PUBLIC, "r", len(t.columns))
        | {"reltype": t.row_type, "relam": 2, "reltuples": float(t.manifest.rows), "relpages": 1}
        for t in tables
    ]


def _class(oid: int, name: str, schema: int, kind: str, width: int) -> Row:
    return {
        "oid": oid,
        "relname": name,
        "relnamespace": schema,
        "reltype": 0,
        "reloftype": 0,
        "relowner": OWNER,
        "relam": 0,
        "relfilenode": 0,
        "reltablespace": 0,
        "relpages": 0,
        "reltuples": -1.0,
        "relallvisible": 0,
        "reltoastrelid": 0,
        "relhasindex": False,
        "relisshared": False,
        "relpersistence": "p",
        "relkind": kind,
        "relnatts": width,
        "relchecks": 0,
        "relhasrules": False,
        "relhastriggers": False,
        "relhassubclass": False,
        "relrowsecurity": False,
        "relforcerowsecurity": False,
        "relispopulated": True,
        "relreplident": "d",
        "relispartition": False,
        "relrewrite": 0,
        "relfrozenxid": 0,
        "relminmxid": 0,
    }


def own_class(relations: Sequence[Sequence[Any]]) -> list[Row]:
    """Of pg_class, for the catalog's own relations."""
    return [
        _class(int(oid), name, _schema(schema), kind, len(columns))
        for schema, name, oid, kind, columns in relations
    ]


def _schema(name: str) -> int:
    return PG_CATALOG if name == "pg_catalog" else INFORMATION


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
        "attcompression": "",
        "attnotnull": never,
        "atthasdef": False,
        "atthasmissing": False,
        "attidentity": "",
        "attgenerated": "",
        "attisdropped": False,
        "attislocal": True,
        "attinhcount": 0,
        "attcollation": kind["typcollation"],
    }


def attribute_rows(tables: Sequence[Shown], types: Mapping[int, Row]) -> list[Row]:
    """Of pg_attribute."""
    found = []
    for table in tables:
        for number, column in enumerate(table.columns, 1):
            kind = kind_of(column.type)
            row = types[kind.oid]
            found.append(_attribute(table.oid, number, column.name, row, kind.modifier, False))
    return found


def own_attributes(relations: Sequence[Sequence[Any]], types: Mapping[int, Row]) -> list[Row]:
    """Of pg_attribute, for the catalog's own relations."""
    by_name = {row["typname"]: row for row in types.values()}
    return [
        _attribute(int(oid), number, name, by_name[kind], -1, never)
        for _, _, oid, _, columns in relations
        for number, (name, kind, never) in enumerate(columns, 1)
        if kind in by_name
    ]


def type_rows(tables: Sequence[Shown], like: Row) -> list[Row]:
    """Of pg_type: the type of each table's rows."""
    return [
        like
        | {
            "oid": t.row_type,
            "typname": t.name,
            "typnamespace": PUBLIC,
            "typtype": "c",
            "typcategory": "C",
            "typrelid": t.oid,
            "typarray": 0,
            "typlen": -1,
            "typbyval": False,
            "typinput": "record_in",
            "typoutput": "record_out",
            "typcollation": 0,
        }
        for t in tables
    ]


def description_rows(tables: Sequence[Shown]) -> list[Row]:
    """Of pg_description."""
    found: list[Row] = []
    for t in tables:
        texts = [comment_on(t.manifest), *map(comment_of, t.columns)]
        found += [
            {"objoid": t.oid, "classoid": CLASS, "objsubid": i, "description": text}
            for i, text in enumerate(texts)
        ]
    return found


def information_tables(tables: Sequence[Shown]) -> list[Row]:
    """Of information_schema.tables."""
    return [
        {
            "table_schema": "public",
            "table_name": t.name,
            "table_type": "BASE TABLE",
            "is_insertable_into": "NO",
            "is_typed": "NO",
        }
        for t in tables
    ]


def information_columns(tables: Sequence[Shown], formats: Mapping[int, str]) -> list[Row]:
    """Of information_schema.columns."""
    found = []
    for t in tables:
        for number, column in enumerate(t.columns, 1):
            kind = kind_of(column.type)
            array = kind.element is not None
            precision, scale = _numbers(kind.name, kind.modifier)
            found.append(
                {
                    "table_schema": "public",
                    "table_name": t.name,
                    "column_name": column.name,
                    "ordinal_position": number,
                    "is_nullable": "YES",
                    "data_type": "ARRAY" if array else formats[kind.oid],
                    "numeric_precision": precision,
                    "numeric_precision_radix": None
                    if precision is None
                    else 10
                    if kind.name == "numeric"
                    else 2,
                    "numeric_scale": scale,
                    "datetime_precision": _fraction(kind.name),
                    "character_octet_length": 1 << 30 if kind.name == "text" else None,
                    "udt_schema": "pg_catalog",
                    "udt_name": f"_{kind.element.name}" if kind.element else kind.name,
                    "dtd_identifier": str(number),
                    "is_self_referencing": "NO",
                    "is_identity": "NO",
                    "identity_cycle": "NO",
                    "is_generated": "NEVER",
                    "is_updatable": "NO",
                }
            )
    return found


def _numbers(name: str, modifier: int) -> tuple[int | None, int | None]:
    fixed = {"int2": (16, 0), "int4": (32, 0), "int8": (64, 0), "float4": (24, None)}
    if name == "numeric" and modifier > 4:
        return (modifier - 4) >> 16, (modifier - 4) & 0xFFFF
    return {**fixed, "float8": (53, None)}.get(name, (None, None))


def _fraction(name: str) -> int | None:
    if name == "date":
        return 0
    return 6 if name in ("time", "timestamp", "timestamptz", "interval") else None
