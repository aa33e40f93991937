"""SQLAlchemy's constructs in DuckDB's dialect, and its types.

Most of SQLAlchemy's own spelling is right as it is.  What differs stands here; whether a
construct can be answered is for the session to say, with its usual errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

from sqlalchemy import exc, types
from sqlalchemy.dialects.postgresql import INTERVAL
from sqlalchemy.sql import compiler
from sqlalchemy.sql.elements import ColumnElement

Type = types.TypeEngine[Any]

# The categories of duckdb_keywords() that cannot name a column everywhere.
_WORDS = (
    "all analyse analyze and anti any array as asc asof asymmetric at authorization binary "
    "both by case cast check collate collation column columns concurrently constraint create "
    "cross default deferrable desc describe distinct do else end except false fetch for "
    "foreign freeze from full generated glob group having ilike in initially inner intersect "
    "into is isnull join lambda lateral leading left like limit map natural not notnull null "
    "offset on only or order outer overlaps pivot pivot_longer pivot_wider placing positional "
    "primary qualify references returning right select semi show similar some struct "
    "summarize symmetric table tablesample then to trailing true try_cast tuple union unique "
    "unpack unpivot using variadic verbose when where window with "
)
RESERVED = frozenset(_WORDS.split())


class PrivsqlPreparer(compiler.IdentifierPreparer):
    """Quotes names as DuckDB does."""

    # SQLAlchemy's own list has older words that cost nothing to quote.
    reserved_words = compiler.RESERVED_WORDS | RESERVED


class PrivsqlCompiler(compiler.SQLCompiler):
    """Writes queries."""

    def limit_clause(self, select: Any, **kw: Any) -> str:
        """LIMIT and OFFSET; an OFFSET alone needs no LIMIT (DuckDB refuses LIMIT -1)."""
        return self._cut(select._limit_clause, select._offset_clause, kw)

    def fetch_clause(
        self,
        select: Any,
        fetch_clause: Any = None,
        require_offset: bool = False,
        use_literal_execute_for_simple_int: bool = False,
        **kw: Any,
    ) -> str:
        """FETCH FIRST n ROWS ONLY is LIMIT n; the other forms have no counterpart."""
        del require_offset, use_literal_execute_for_simple_int
        options = select._fetch_clause_options or {}
        if options.get("percent") or options.get("with_ties"):
            raise exc.CompileError("FETCH with PERCENT or WITH TIES is not supported; use limit()")
        wanted = select._fetch_clause if fetch_clause is None else fetch_clause
        return self._cut(wanted, select._offset_clause, kw)

    def _cut(
        self, limit: ColumnElement[Any] | None, offset: ColumnElement[Any] | None, kw: Any
    ) -> str:
        text = "" if limit is None else f"\n LIMIT {self.process(limit, **kw)}"
        return text if offset is None else f"{text}\n OFFSET {self.process(offset, **kw)}"

    def visit_ilike_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """ILIKE is DuckDB's own."""
        return self._like(binary, "ILIKE", kw)

    def visit_not_ilike_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """And NOT ILIKE."""
        return self._like(binary, "NOT ILIKE", kw)

    def _like(self, binary: Any, word: str, kw: Any) -> str:
        left, right = self._sides(binary, kw)
        return f"{left} {word} {right}{self._modifier(binary, 'escape', ' ESCAPE ')}"

    def visit_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """A part that matches is enough, as in PostgreSQL's ``~``."""
        return self._regexp("regexp_matches", binary, kw)

    def visit_not_regexp_match_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """The contrary."""
        return f"NOT {self.visit_regexp_match_op_binary(binary, operator, **kw)}"

    def visit_regexp_replace_op_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """The first match unless the flags hold ``g``, as in PostgreSQL."""
        return self._regexp("regexp_replace", binary, kw)

    def _regexp(self, function: str, binary: Any, kw: Any) -> str:
        left, right = self._sides(binary, kw)
        return f"{function}({left}, {right}{self._modifier(binary, 'flags', ', ')})"

    def _sides(self, binary: Any, kw: Any) -> tuple[str, str]:
        return self.process(binary.left, **kw), self.process(binary.right, **kw)

    def _modifier(self, binary: Any, name: str, before: str) -> str:
        value = binary.modifiers.get(name)
        return "" if value is None else before + self.render_literal_value(value, types.STRINGTYPE)

    def visit_empty_set_expr(self, element_types: Any, **kw: Any) -> str:
        """A list of no value, typed so that it can be compared with."""
        nothing = ", ".join(
            f"CAST(NULL AS {self.dialect.type_compiler_instance.process(each)})"
            for each in element_types or [types.INTEGER()]
        )
        return f"SELECT {nothing} WHERE 1!=1"


class PrivsqlTypeCompiler(compiler.GenericTypeCompiler):
    """Writes types, for CAST."""

    def visit_FLOAT(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """SQLAlchemy's Float is Python's: eight bytes, where DuckDB's FLOAT has four."""
        return "REAL" if type_.precision is not None and type_.precision <= 24 else "DOUBLE"

    def visit_DOUBLE_PRECISION(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """The same by its long name."""
        return "DOUBLE"

    def visit_string(self, type_: Any, **kw: Any) -> str:
        """Text; DuckDB takes a length and does not hold to it, so none is said."""
        return "VARCHAR"

    visit_text = visit_unicode = visit_unicode_text = visit_enum = visit_string

    def visit_datetime(self, type_: Any, **kw: Any) -> str:
        """With or without a time zone."""
        return "TIMESTAMP WITH TIME ZONE" if type_.timezone else "TIMESTAMP"

    visit_DATETIME = visit_TIMESTAMP = visit_datetime  # noqa: N815

    def visit_uuid(self, type_: Any, **kw: Any) -> str:
        """DuckDB has them."""
        return "UUID"

    def visit_INTERVAL(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Without a precision: there is one only."""
        return "INTERVAL"

    def visit_JSON(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Text that is known to be JSON."""
        return "JSON"

    def visit_ARRAY(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """A list, of lists where there are dimensions."""
        return f"{self.process(type_.item_type, **kw)}{'[]' * (type_.dimensions or 1)}"

    def visit_HUGEINT(self, type_: Any, **kw: Any) -> str:  # noqa: N802
        """Of ``HugeInteger``."""
        return "HUGEINT"


class HugeInteger(types.BigInteger):
    """Integers of up to 128 bits: an exact SUM of integers is one."""

    __visit_name__ = "HUGEINT"


class _Timestamp(types.DateTime):
    """Literals say their type: a sensitive column is compared with values, not with text."""

    def literal_processor(self, dialect: Any) -> Callable[[Any], str]:
        """With a zone where the value has one."""
        return lambda value: (
            f"{'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'} '{value.isoformat(' ')}'"
        )


class _Date(types.Date):
    """Likewise."""

    def literal_processor(self, dialect: Any) -> Callable[[Any], str]:
        """A day."""
        return lambda value: f"DATE '{value.isoformat()}'"


class _Time(types.Time):
    """Likewise."""

    def literal_processor(self, dialect: Any) -> Callable[[Any], str]:
        """A time of day."""
        return lambda value: f"TIME '{value.isoformat()}'"


class _Interval(INTERVAL):
    """A duration."""

    @classmethod
    def adapt_emulated_to_native(cls, impl: Any, **kw: Any) -> _Interval:  # type: ignore[override]
        """What stands for SQLAlchemy's Interval here."""
        return cls()

    def literal_processor(self, dialect: Any) -> Callable[[Any], str]:
        """In microseconds, which is all that a timedelta knows."""
        return lambda value: f"to_microseconds({value // timedelta(microseconds=1)})"


COLSPECS: dict[type[Type], type[Type]] = {
    types.DateTime: _Timestamp,
    types.Date: _Date,
    types.Time: _Time,
    types.Interval: _Interval,
}


# DuckDB's names, as a manifest and a description write them.
_TYPES: dict[str, Callable[[], Type]] = {
    "BOOLEAN": types.BOOLEAN,
    "TINYINT": types.SMALLINT,
    "UTINYINT": types.SMALLINT,
    "SMALLINT": types.SMALLINT,
    "USMALLINT": types.INTEGER,
    "INTEGER": types.INTEGER,
    "UINTEGER": types.BIGINT,
    "BIGINT": types.BIGINT,
    "UBIGINT": HugeInteger,
    "HUGEINT": HugeInteger,
    "UHUGEINT": HugeInteger,
    "FLOAT": types.REAL,
    "DOUBLE": types.DOUBLE,
    "VARCHAR": types.VARCHAR,
    "ENUM": types.VARCHAR,
    "UUID": types.UUID,
    "JSON": types.VARCHAR,  # it arrives as text
    "BLOB": types.BLOB,
    "DATE": types.DATE,
    "TIME": types.TIME,
    "TIMESTAMP": types.TIMESTAMP,
    "TIMESTAMP_S": types.TIMESTAMP,
    "TIMESTAMP_MS": types.TIMESTAMP,
    "TIMESTAMP_NS": types.TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": lambda: types.TIMESTAMP(timezone=True),
    "TIME WITH TIME ZONE": lambda: types.TIME(timezone=True),
    "INTERVAL": _Interval,
}
_DECIMAL = re.compile(r"DECIMAL\((\d+), ?(\d+)\)")


def type_of(duckdb: str) -> Type:
    """SQLAlchemy's type for one of DuckDB's.

    >>> type_of("DECIMAL(10,2)"), type_of("INTEGER[]").item_type
    (NUMERIC(precision=10, scale=2), INTEGER())
    >>> type_of("STRUCT(a INTEGER)")
    NullType()
    """
    if duckdb.endswith("]"):
        inner = type_of(duckdb[: duckdb.rindex("[")])
        nested = isinstance(inner, types.NullType | types.ARRAY)
        return types.NullType() if nested else cast(Type, types.ARRAY(inner))
    if found := _DECIMAL.fullmatch(duckdb):
        return types.NUMERIC(int(found[1]), int(found[2]))
    return _TYPES.get(duckdb.partition("(")[0].strip(), types.NullType)()
