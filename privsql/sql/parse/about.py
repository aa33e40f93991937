"""Statements about tables: DESCRIBE, SHOW TABLES, SUMMARIZE, and the schema ``information_schema``.

    DESCRIBE t, DESC t, SHOW t, DESCRIBE SELECT ...    the columns of a table or of an answer
    SHOW TABLES, SHOW ALL TABLES, DESCRIBE             the tables
    SUMMARIZE t                                        each column in one row
    SELECT ... FROM information_schema.columns         the same as tables, to be queried

What they tell is in the manifest; a summary asks for its figures as any other query does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from sqlglot import exp

from privsql.channels import Domain, Grid
from privsql.sql.catalog import UnknownName
from privsql.sql.expressions import call
from privsql.sql.nodes import Unsupported, cast, column, named, number, select, sql, table
from privsql.sql.parse.guard import check_question, placed_in
from privsql.sql.postgres.catalog import sources

# Kinds of statements, as ``Statement.kind`` names them.
DESCRIBE, TABLES, ALL_TABLES, SUMMARIZE = "describe", "tables", "all tables", "summarize"
KINDS = (DESCRIBE, TABLES, ALL_TABLES, SUMMARIZE)

_NAME = r'(?:"(?:[^"]|"")+"|[^\W\d]\w*)'
_TABLES = re.compile(r"(?:SHOW\s+(ALL\s+)?TABLES|(DESCRIBE|DESC))\s*$", re.IGNORECASE)
_ABOUT = re.compile(
    rf"(DESCRIBE|DESC|SHOW|SUMMARIZE)\s+(?:TABLE\s+)?((?:{_NAME}\s*\.\s*)*)({_NAME})\s*$",
    re.IGNORECASE,
)
_ABOUT_QUERY = re.compile(r"(?:DESCRIBE|DESC|SUMMARIZE)\b", re.IGNORECASE)

SCHEMA = "information_schema"
SCHEMA_TABLES = ("tables", "columns", "schemata")


@dataclass(frozen=True)
class Asked:
    """A statement about a table: its kind, and the name of the table where one is given."""

    kind: str
    name: str = ""


def read_about(whole: str) -> Asked | None:
    """A statement about tables or about one table; None where it is another.

    >>> read_about('DESCRIBE main."my table"')
    Asked(kind='describe', name='my table')
    >>> read_about("show all tables").kind, read_about("SELECT 1")
    ('all tables', None)
    """
    if match := _TABLES.match(whole):
        return Asked(ALL_TABLES if match[1] or match[2] else TABLES)
    match = _ABOUT.match(whole)
    if match is None or (match[1].upper() == "SHOW" and not match[3].startswith('"')):
        return None  # SHOW of a word may be of a setting
    name = match[3]
    if name.startswith('"'):
        name = name[1:-1].replace('""', '"')
    return Asked(SUMMARIZE if match[1].upper() == "SUMMARIZE" else DESCRIBE, name)


def about_query(whole: str) -> tuple[str, int] | None:
    """The kind of a statement about a query, and where the query begins.

    >>> about_query("DESCRIBE SELECT 1"), about_query("SELECT 1")
    (('describe', 8), None)
    """
    match = _ABOUT_QUERY.match(whole)
    if match is None:
        return None
    return (SUMMARIZE if match[0].upper() == "SUMMARIZE" else DESCRIBE), match.end()


def schema_question(tree: exp.Expr, text: str) -> bool:
    """Whether a query reads ``information_schema``; with other tables beside it is refused.

    >>> from sqlglot import parse_one
    >>> sql = "SELECT column_name FROM information_schema.columns"
    >>> schema_question(parse_one(sql), sql)
    True
    """
    named_here = sources(tree)
    asked = [each for each in named_here if each.db.lower() == SCHEMA and not each.catalog]
    if not asked:
        return False
    for each in asked:
        if each.name.lower() not in SCHEMA_TABLES:
            raise UnknownName(
                f"there is no table {each.name!r} in {SCHEMA}",
                hint=f"there are {', '.join(f'{SCHEMA}.{name}' for name in SCHEMA_TABLES)}",
                place=placed_in(each, tree, text),
            )
    check_question(tree, text)
    for other in named_here:
        if not any(other is each for each in asked):
            raise Unsupported(
                f"tables of {SCHEMA} together with others",
                hint=f"ask about {SCHEMA} in a statement of its own",
                place=placed_in(other, tree, text),
            )
    return True


# Quantiles of a summary, and the types that have means and quantiles in DuckDB's SUMMARIZE.
FRACTIONS = {"q25": 0.25, "q50": 0.5, "q75": 0.75}
_NUMBERS = """
    TINYINT SMALLINT INTEGER BIGINT HUGEINT UTINYINT USMALLINT UINTEGER UBIGINT UHUGEINT
    FLOAT DOUBLE DECIMAL
"""
NUMBERS = frozenset(_NUMBERS.split())
TIMES = ("DATE", "TIME", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS")


def is_moment(kind: str) -> bool:
    """Whether a type is of dates, with times or without.

    >>> is_moment("DATE"), is_moment("TIMESTAMP_S"), is_moment("TIME")
    (True, True, False)
    """
    return kind == "DATE" or kind.startswith("TIMESTAMP")


def summary_queries(
    source: str, name: str, kind: str, *, public: bool, estimated: bool = False
) -> list[str]:
    """The queries behind one row of a summary.

    Apart, because each can be refused for reasons of its own.  The range of a sensitive column
    is that of its domain, and needs none.  An ``estimated`` mean of dates is asked for in
    microseconds, see ``as_text``.

    >>> for text in summary_queries("people", "job", "VARCHAR", public=True): print(text)
    SELECT COUNT(*) AS "rows", COUNT("job") AS "given" FROM "people"
    SELECT MIN("job") AS "min", MAX("job") AS "max" FROM "people"
    SELECT APPROX_COUNT_DISTINCT("job") AS "approx_unique" FROM "people"
    """
    found: list[dict[str, exp.Expr]] = [
        {"rows": exp.Count(this=exp.Star()), "given": exp.Count(this=column(name))}
    ]
    if public:
        found.append({"min": exp.Min(this=column(name)), "max": exp.Max(this=column(name))})
        found.append({"approx_unique": call("approx_count_distinct", column(name))})
    plain = kind.split("(")[0]
    if plain in NUMBERS or plain in TIMES:
        moments = estimated and is_moment(kind)
        value = call("epoch_us", column(name)) if moments else column(name)
        found.append({"avg": exp.Avg(this=value)})
    if plain in NUMBERS:
        found[-1]["std"] = exp.Stddev(this=column(name))
    if plain in NUMBERS or plain in TIMES:
        found.append(
            {
                label: call("quantile_disc", column(name), number(fraction))
                for label, fraction in FRACTIONS.items()
            }
        )
    return [
        sql(select(table(source), *(named(node, label) for label, node in each.items())))
        for each in found
    ]


def as_text(source: str, names: tuple[str, ...], *, moments: bool = False) -> str:
    """Values of a table as DuckDB writes them; ``moments`` are numbers of microseconds."""

    def value(name: str) -> exp.Expr:
        if not moments:
            return column(name)
        return call("make_timestamp", cast(call("round", column(name)), "BIGINT"))

    return sql(select(table(source), *(named(cast(value(n), "VARCHAR"), n) for n in names)))


def range_values(domain: Domain) -> pa.Array[Any]:
    """Values of a domain, the least and the largest among them.

    Those of a grid are in order, and there may be too many of them to be written out.
    """
    count = domain.points
    return domain.decode(np.array([0, count - 1]) if isinstance(domain, Grid) else np.arange(count))


def range_of(source: str, name: str, kind: str) -> str:
    """The least and the largest value of a table, of a type, as DuckDB writes them."""
    ends = {"min": exp.Min, "max": exp.Max}
    nodes = [
        named(cast(end(this=cast(column(name), kind)), "VARCHAR"), label)
        for label, end in ends.items()
    ]
    return sql(select(table(source), *nodes))


def star_query(name: str) -> str:
    """All columns of a table."""
    return sql(select(table(name), exp.Star()))


def summary_of(name: str) -> str:
    """DuckDB's summary of a public table."""
    return sql(select(exp.Subquery(this=exp.Summarize(this=table(name))), exp.Star()))
