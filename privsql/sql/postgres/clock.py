"""Clock functions of a statement and their translation.

A question about a release is asked of two databases and judged in between.  A clock that runs
there would show two times, and an answer would depend on when a row is looked at.  So the time
is a parameter, bound once for the whole statement, which is judged as if the time were written
out: whoever asks could have written it.

    WHERE seen < now() - interval '1 day'   ->   WHERE seen < CAST($1 AS TIMESTAMP) - ...

It is the time of day in the client's zone and has none itself, as columns have none; below
``AT TIME ZONE`` and ``extract(epoch FROM ...)`` it keeps its zone, because there it matters.

Constants and the catalog have one database, whose clock stands still during a statement.
"""

from __future__ import annotations

from sqlglot import exp, parse_one

from privsql.sql.nodes import cast, place_of
from privsql.sql.postgres.commands import NotTranslated

# sqlglot's classes and other functions -> DuckDB's type of what they tell.
_CLASSES: dict[type[exp.Expr], str] = {
    exp.CurrentTimestamp: "TIMESTAMPTZ",
    exp.CurrentDate: "DATE",
    exp.CurrentTime: "TIME",
    exp.Localtimestamp: "TIMESTAMP",
    exp.Localtime: "TIME",
}
_CALLS = ("now", "transaction_timestamp", "statement_timestamp", "clock_timestamp")

# Digits of a second -> what is cut off; PostgreSQL rounds, which no reader of a clock can tell.
_CUT = {"0": "second", "3": "millisecond", "6": ""}

# The client's zone, as the catalog's connections are told it.
_ZONE = "COALESCE(GETVARIABLE('pg').settings['zone'], 'UTC')"


class Clock:
    """Replaces clocks in one statement.

    ``parameters`` is how many the client has; None where the database's own clock will do.
    ``types`` are those of the values to be bound after them.
    """

    def __init__(self, text: str, parameters: int | None) -> None:
        self._text, self._parameters = text, parameters
        self._numbers: dict[str, int] = {}

    @property
    def types(self) -> tuple[str, ...]:
        """DuckDB's types of the times that must be bound."""
        return tuple(self._numbers)

    def tell(self, tree: exp.Expr) -> None:
        """Replace every clock of a query, in place."""
        for node in list(tree.walk()):
            if isinstance(node, exp.Anonymous) and _since_today(node):
                midnight = cast(self._time("DATE"), "TIMESTAMP")
                node.set("expressions", [midnight, *node.expressions])
            kind = _asked(node)
            if kind:
                node.replace(self._cut(node, self._zoned(node, kind)))

    def _zoned(self, node: exp.Expr, kind: str) -> exp.Expr:
        if kind != "TIMESTAMPTZ" or self._parameters is None:
            return self._time(kind)
        holder = node.parent
        while holder is not None and not isinstance(holder, exp.Query):
            if isinstance(holder, exp.AtTimeZone):
                return self._time(kind)
            if isinstance(holder, exp.Extract) and holder.name.upper() == "EPOCH":
                # Seconds since 1970 in UTC, whatever zone the database is in.
                zone = exp.Literal.string("UTC")
                return exp.Paren(this=exp.AtTimeZone(this=self._time(kind), zone=zone))
            holder = holder.parent
        return self._time("TIMESTAMP")

    def _time(self, kind: str) -> exp.Expr:
        if self._parameters is None:
            now = exp.Anonymous(this="now")
            if kind == "TIMESTAMPTZ":
                return now
            zone = parse_one(_ZONE, dialect="duckdb")
            local = exp.Anonymous(this="timezone", expressions=[zone, now])
            return local if kind == "TIMESTAMP" else cast(local, kind)
        first = self._parameters + 1
        number = self._numbers.setdefault(kind, first + len(self._numbers))
        return cast(exp.Parameter(this=exp.Literal.number(number)), kind)

    def _cut(self, node: exp.Expr, time: exp.Expr) -> exp.Expr:
        digits = node.args.get("this") if type(node) in _CLASSES else None
        unit = "" if digits is None else _CUT.get(digits.name)
        if unit is None or (
            unit and not isinstance(node, exp.CurrentTimestamp | exp.Localtimestamp)
        ):
            raise NotTranslated(
                "this precision of a clock function is not supported here",
                hint="current_timestamp(0), or without a number",
                place=place_of(node, self._text),
            )
        if not unit:
            return time
        return exp.Anonymous(this="date_trunc", expressions=[exp.Literal.string(unit), time])


def _asked(node: exp.Expr) -> str:
    """DuckDB's type of what a clock tells; nothing for what is no clock."""
    if isinstance(node, exp.Anonymous) and not node.expressions:
        return "TIMESTAMPTZ" if str(node.this).lower() in _CALLS else ""
    return _CLASSES.get(type(node), "")


def _since_today(node: exp.Anonymous) -> bool:
    """Whether it is ``age(x)``, which counts from the midnight before now."""
    return str(node.this).lower() == "age" and len(node.expressions) == 1
