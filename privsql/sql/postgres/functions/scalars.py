"""Functions that DuckDB lacks or has under another name, each as an expression.

date_bin(stride, t, origin)      time_bucket(stride, t, origin)
width_bucket(x, low, high, n)    CASE WHEN x < low THEN 0 ... END
initcap(s)                       words of letters and digits, each with a capital
json_agg(x), jsonb_agg(x)        to_json(list(x))
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from privsql.sql.expressions import call
from privsql.sql.nodes import cast, wrapped

Arguments = Sequence[exp.Expr]
_MONTHS = re.compile(r"(?i)(?<![a-z])(mon(th)?s?|y(ear)?s?|decades?|centur|millenni)")


def date_bin(arguments: Arguments) -> exp.Expr | None:
    """``date_bin``; months have no fixed length, so PostgreSQL refuses them."""
    if len(arguments) != 3:
        return None
    stride, time, origin = arguments
    inner = stride.find(exp.Literal)
    unit = stride.args.get("unit") if isinstance(stride, exp.Interval) else None
    told = f"{'' if inner is None else inner.name} {'' if unit is None else unit.name}"
    if inner is None or _MONTHS.search(told):
        return None
    made = stride if not stride.is_string else cast(stride, "INTERVAL")
    origin = cast(origin, "TIMESTAMP") if origin.is_string else origin
    time = cast(time, "TIMESTAMP") if time.is_string else time
    return call("time_bucket", made, time, origin)


def width_bucket(arguments: Arguments) -> exp.Expr | None:
    """``width_bucket``: the number of one of n intervals of equal width, 0 below, n + 1 above.

    floor(n (x - low) / (high - low)) + 1, and with the signs turned where low > high.
    """
    if len(arguments) != 4:
        return None
    x, low, high, count = (wrapped(each) for each in arguments)
    zero, one = exp.Literal.number(0), exp.Literal.number(1)

    def below(one_: exp.Expr, other: exp.Expr) -> exp.Expr:
        """``one_ < other`` in the direction of the interval."""
        up = exp.And(
            this=exp.LT(this=low.copy(), expression=high.copy()),
            expression=exp.LT(this=one_.copy(), expression=other.copy()),
        )
        down = exp.And(
            this=exp.GT(this=low.copy(), expression=high.copy()),
            expression=exp.GT(this=one_.copy(), expression=other.copy()),
        )
        return exp.Or(this=exp.Paren(this=up), expression=exp.Paren(this=down))

    share = exp.Div(
        this=cast(exp.Paren(this=exp.Sub(this=x.copy(), expression=low.copy())), "DOUBLE"),
        expression=call("nullif", exp.Sub(this=high.copy(), expression=low.copy()), zero.copy()),
    )
    inside = exp.Add(
        this=call("floor", exp.Mul(this=exp.Paren(this=share), expression=count.copy())),
        expression=one,
    )
    above = exp.Add(this=count.copy(), expression=one.copy())
    arms = [
        exp.If(this=below(x, low), true=zero.copy()),
        exp.If(this=below(x, high), true=inside),
        exp.If(this=exp.NEQ(this=low.copy(), expression=high.copy()), true=above),
    ]
    return cast(exp.Case(ifs=arms), "INTEGER")


def initcap(arguments: Arguments) -> exp.Expr | None:
    """``initcap``: words are letters and digits; what stands between them stays."""
    if len(arguments) != 1:
        return None
    words = exp.Literal.string(r"[\pL\pN]+|[^\pL\pN]+")
    found = call("regexp_extract_all", cast(arguments[0], "VARCHAR"), words)
    word = exp.to_identifier("w")
    first = call("upper", call("left", exp.column("w"), exp.Literal.number(1)))
    rest = call("lower", call("substr", exp.column("w"), exp.Literal.number(2)))
    each = exp.Lambda(this=exp.DPipe(this=first, expression=rest), expressions=[word])
    return call("array_to_string", call("list_transform", found, each), exp.Literal.string(""))


def json_agg(arguments: Arguments) -> exp.Expr | None:
    """``json_agg`` and ``jsonb_agg``; of no rows they are NULL, as a list is."""
    return call("to_json", call("list", *arguments)) if len(arguments) == 1 else None


def _json_pairs(arguments: Arguments) -> exp.Expr | None:
    if len(arguments) != 2:
        return None
    return call("json_group_object", cast(arguments[0], "VARCHAR"), arguments[1])


SCALARS: dict[str, Callable[[Arguments], exp.Expr | None]] = {
    "date_bin": date_bin,
    "width_bucket": width_bucket,
    "initcap": initcap,
    "json_agg": json_agg,
    "jsonb_agg": json_agg,
    "json_object_agg": _json_pairs,
    "jsonb_object_agg": _json_pairs,
}
# Those that sqlglot would read as something of its own.
PLAIN = frozenset({"DATE_BIN", "WIDTH_BUCKET", "INITCAP", "JSON_AGG", "JSON_OBJECT_AGG"})
