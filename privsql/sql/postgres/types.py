"""Casts: PostgreSQL's types under DuckDB's names, where both mean the same.

Three do not.  ``numeric`` without digits has any number of them: here it is DOUBLE, since
DuckDB's DECIMAL alone would round to three.  ``varchar(n)`` cuts, DuckDB's does not.  ``char(n)``
ignores trailing blanks when it compares, which nothing here does, so it is refused.
"""

from __future__ import annotations

import re

from sqlglot import exp

from privsql.sql import nodes
from privsql.sql.nodes import place_of
from privsql.sql.postgres.commands import NotTranslated

# sqlglot's name -> PostgreSQL's own.
_INSIDE = {
    "INT": "int4",
    "BIGINT": "int8",
    "SMALLINT": "int2",
    "DOUBLE": "float8",
    "FLOAT": "float4",
    "DECIMAL": "numeric",
    "BOOLEAN": "bool",
    "CHAR": "bpchar",
    "VARBINARY": "bytea",
    "SMALLSERIAL": "int2",
    "SERIAL": "int4",
    "BIGSERIAL": "int8",
    "TIMESTAMPNTZ": "timestamp",
}

# PostgreSQL's own name -> DuckDB's.
DUCKDB = {
    "bool": "BOOLEAN",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "numeric": "DOUBLE",
    "text": "VARCHAR",
    "varchar": "VARCHAR",
    "bpchar": "VARCHAR",
    "name": "VARCHAR",
    "char": "VARCHAR",
    "unknown": "VARCHAR",
    "bytea": "BLOB",
    "date": "DATE",
    "time": "TIME",
    "timetz": "TIMETZ",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "interval": "INTERVAL",
    "uuid": "UUID",
    "json": "JSON",
    "jsonb": "JSON",
    "oid": "UINTEGER",
    "xid": "UINTEGER",
    "int2vector": "SMALLINT[]",
    "oidvector": "UINTEGER[]",
}

# What format_type() says, where it is not the type's own name.
FORMATS = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bpchar": "character",
    "varchar": "character varying",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "char": '"char"',
    "varbit": "bit varying",
    "any": '"any"',
}

# Written -> inside.
WRITTEN = {shown: name for name, shown in FORMATS.items()}
WRITTEN |= {"int": "int4", "decimal": "numeric"}

# Objects by name, which are numbers inside.
OBJECTS = ("regclass", "regtype", "regproc", "regprocedure", "regnamespace", "regrole")

INTEGERS = frozenset({"int2", "int4", "int8", "oid"})


def type_name(kind: exp.Expr) -> str:
    """The name that PostgreSQL has for a type inside; that of an array's elements.

    >>> from sqlglot import parse_one
    >>> [type_name(parse_one(f"x::{t}", dialect="postgres").to)
    ...     for t in ("integer", "text[]", "double precision", "pg_catalog.regtype", '"char"')]
    ['int4', 'text', 'float8', 'regtype', 'char']
    """
    return _taken_apart(kind)[0]


def _taken_apart(kind: exp.Expr) -> tuple[str, int, list[int]]:
    """A type's own name, how many times it is an array, and its numbers."""
    if isinstance(kind, exp.DataType) and kind.this == exp.DType.ARRAY:
        if not kind.expressions:
            return "anyarray", 0, []
        name, depth, numbers = _taken_apart(kind.expressions[0])
        return name, depth + 1, numbers
    if isinstance(kind, exp.DataType) and kind.this == exp.DType.USERDEFINED:
        given = kind.args.get("kind")
        word = given.name if isinstance(given, exp.Expr) else str(given)
        word = word.split(".")[-1].strip('"').lower()
        depth = len(word) - len(word.lstrip("_"))
        word = word.lstrip("_")
        return WRITTEN.get(word, word), depth, []
    word = str(getattr(kind.this, "value", kind.this)).upper()
    numbers = [int(each.name) for each in kind.expressions if isinstance(each, exp.DataTypeParam)]
    return _INSIDE.get(word, word.lower()), 0, numbers


def is_integer(kind: exp.Expr) -> bool:
    """Whether a type is one of whole numbers, so that dividing it leaves a whole number."""
    name, depth, _ = _taken_apart(kind)
    return name in INTEGERS and depth == 0


def object_type(kind: exp.Expr) -> tuple[str, bool] | None:
    """``regclass`` and its kin, and whether it is an array of them; None for other types."""
    name, depth, _ = _taken_apart(kind)
    return (name, depth > 0) if name in OBJECTS else None


def cast(node: exp.Expr, text: str) -> exp.Expr:
    """The cast as DuckDB has it, or a refusal."""
    name, depth, numbers = _taken_apart(node.args["to"])
    if name not in DUCKDB:
        known = sorted(set(DUCKDB) - {"unknown", "xid", "char"})
        raise NotTranslated(
            f"the type {name} is not known here",
            hint=f"there are {', '.join(known)}",
            place=place_of(node, text),
        )
    if name == "bpchar" and numbers and numbers != [1] and not depth:
        raise NotTranslated(
            "character(n) ignores blanks at the end, which is not done here",
            hint="cast to text or to varchar(n)",
            place=place_of(node, text),
        )
    target = DUCKDB[name]
    if name == "numeric" and numbers:
        target = f"DECIMAL({', '.join(map(str, numbers))})"
        if numbers[0] > 38:
            raise NotTranslated("numeric has at most 38 digits here", place=place_of(node, text))
    made = nodes.cast(node.this, target + "[]" * depth)
    cut = numbers[0] if numbers else 1 if _single(node, name) else None
    if name in ("varchar", "bpchar", "char") and cut is not None and not depth:
        return exp.Left(this=made, expression=exp.Literal.number(cut))
    return made


def _single(node: exp.Expr, name: str) -> bool:
    """``char`` alone is one character; ``bpchar`` and ``varchar`` alone are of any length."""
    kind = node.args["to"]
    return name == "char" or (isinstance(kind, exp.DataType) and kind.this == exp.DType.CHAR)


_ELEMENT = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^{},"\s][^{},"]*?))\s*(?:,|$)', re.DOTALL)


def elements(text: str) -> list[str | None] | None:
    """The elements of an array that is written as text; None where it is not one.

    >>> elements('{a, "b, c", NULL}'), elements("{}"), elements("{a,}")
    (['a', 'b, c', None], [], None)
    """
    body = text.strip()
    if not (body.startswith("{") and body.endswith("}")):
        return None
    body, at = body[1:-1].strip(), 0
    found: list[str | None] = []
    while at < len(body):
        match = _ELEMENT.match(body, at)
        if match is None:
            return None
        quoted, plain = match.groups()
        if plain is None:
            found.append(re.sub(r"\\(.)", r"\1", quoted))
        else:
            found.append(None if plain.upper() == "NULL" else plain)
        at = match.end()
    return None if body.endswith(",") else found
