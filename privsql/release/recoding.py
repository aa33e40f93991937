"""Recoding: what is done to the values of a column before anything else is.

Public columns are made coarser, because coarse public columns protect; values of sensitive ones
are brought into their domain where the spec allows it.  This module reads what a spec says; what
it means in SQL is :mod:`privsql.publish.recode`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from itertools import pairwise

import duckdb

from privsql.channels import Categorical, Domain, Grid
from privsql.release.reading import Section, a_kind, as_number, listed, quoted

Edge = int | float | date

# What a date or a timestamp can be cut to, the coarsest first.
CUTS = ("year", "quarter", "month", "week", "day", "hour")

# What public values that are not among the most frequent become, and observed ones of few rows.
OTHER = "other"

RECODINGS = ("bins", "cut", "map", "top")

TYPE = re.compile(r"\s*[A-Za-z][A-Za-z0-9_ ]*(\(\s*\d+\s*(,\s*\d+\s*)?\))?\s*")
CAST_TYPES = {
    *("boolean", "tinyint", "smallint", "integer", "bigint", "hugeint"),
    *("utinyint", "usmallint", "uinteger", "ubigint", "uhugeint", "decimal", "float", "double"),
    *("varchar", "date", "time", "uuid", "timestamp", "timestamp_s", "timestamp_ms"),
    *("timestamp_ns", "timestamp with time zone"),
}


@dataclass(frozen=True)
class Recoding:
    """What is done to the values of one column, in this order."""

    cast: str | None = None  # a DuckDB type
    mapping: tuple[tuple[str, str], ...] = ()  # values by what they become, compared as text
    map_other: str | None = None
    top: int | None = None
    bins: tuple[Edge, ...] = ()
    cut: str | int | None = None  # a unit of time, or how many characters
    clip: bool = False
    other: str | None = None

    @property
    def of_text(self) -> bool:
        """Whether a CSV file's column is to be read as text: 01 is not 1 then."""
        return bool(self.mapping) or isinstance(self.cut, int) or self.cast == "VARCHAR"

    @property
    def changes(self) -> bool:
        """Whether anything is done at all."""
        return self != Recoding()


def read_public(section: Section) -> Recoding:
    """Read how a public column is made coarser."""
    given = [key for key in RECODINGS if key in section]
    if len(given) > 1 and set(given) != {"map", "top"}:
        what = f"{given[0]} is given already"
        section.wrong(given[1], what, "only map and top go together")
    if "map_other" in section and "map" not in section:
        section.wrong("map_other", "needs map beside it", 'such as map = { "a" = "x" }')
    return Recoding(
        cast=_read_cast(section),
        mapping=_read_map(section),
        map_other=section.text("map_other"),
        top=section.whole("top", 1, 1) if "top" in section else None,
        bins=_read_bins(section),
        cut=_read_cut(section),
    )


def read_private(section: Section, domain: Domain | None, *, observed: bool) -> Recoding:
    """Read how values of a sensitive column come into its domain."""
    clip, other = section.flag("clip"), section.text("other")
    if clip and (domain is not None or observed) and not isinstance(domain, Grid):
        hint = "domain = { lower = 0, upper = 120, step = 5 }"
        section.wrong("clip", "moves values to the ends of a range, and this domain is none", hint)
    if other is not None and isinstance(domain, Grid):
        section.wrong("other", "is a word of a listed domain, and this one is a range")
    elif other is not None and isinstance(domain, Categorical) and other not in domain.categories:
        hint = f"add {quoted(other)} to the list"
        section.wrong("other", f"{quoted(other)} is not in the domain", hint)
    return Recoding(cast=_read_cast(section), clip=clip, other=other)


def _read_cast(section: Section) -> str | None:
    text = section.text("cast")
    if text is None:
        return None
    try:
        kind = duckdb.sqltype(text) if TYPE.fullmatch(text) else None
    except (duckdb.Error, RuntimeError):
        kind = None
    if kind is None or kind.id not in CAST_TYPES:
        what = f"must be a DuckDB type, not {quoted(text)}"
        section.wrong("cast", what, "such as INTEGER, DECIMAL(10, 2), VARCHAR, DATE or TIMESTAMP")
        return None
    return str(kind)


def _read_map(section: Section) -> tuple[tuple[str, str], ...]:
    if "map" not in section:
        return ()
    given = section.data["map"]
    hint = 'such as map = { "a" = "x", "b" = "x" }'
    if not isinstance(given, dict) or not given:
        what = "must be a table of values and what they become"
        section.wrong("map", what + (f", not {a_kind(given)}" if given != {} else ""), hint)
        return ()
    inside = Section(section.report, (*section.path, "map"), given)
    for key, value in given.items():
        if not isinstance(value, str):
            inside.wrong(
                key, f"must become text, not {a_kind(value)}", f"write {quoted(str(value))}"
            )
    return tuple((key, value) for key, value in given.items() if isinstance(value, str))


def _read_bins(section: Section) -> tuple[Edge, ...]:
    if "bins" not in section:
        return ()
    given = section.data["bins"]
    hint = "such as bins = [0, 18, 30, 65]"
    if not isinstance(given, list) or not given:
        section.wrong("bins", "must be a list of numbers or dates", hint)
        return ()
    kinds = {_edge_kind(edge) for edge in given}
    if len(kinds) > 1 or None in kinds:
        section.wrong("bins", "must be a list of finite numbers, or of dates", hint)
        return ()
    if any(low >= high for low, high in pairwise(given)):
        section.wrong("bins", "must rise from each to the next", hint)
        return ()
    return tuple(given)


def _edge_kind(edge: object) -> str | None:
    if isinstance(edge, datetime):
        return "timestamp" if edge.tzinfo is None else None
    if isinstance(edge, date):
        return "date"
    return "number" if as_number(edge) is not None else None


def _read_cut(section: Section) -> str | int | None:
    if "cut" not in section:
        return None
    given = section.data["cut"]
    if isinstance(given, str) and given in CUTS:
        return given
    if isinstance(given, int) and not isinstance(given, bool) and 1 <= given < 1000:
        return given
    what = f"must be one of {listed(CUTS)}, or a number of characters, not {quoted(given)}"
    section.wrong("cut", what)
    return None
