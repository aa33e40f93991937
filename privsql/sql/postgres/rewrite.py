"""Queries of PostgreSQL's dialect translated to DuckDB's, node by node.

sqlglot reads the one and prints the other.  What it would change in meaning on the way is
rewritten here, or refused: a wrong answer is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sqlglot import exp

from privsql.sql.expressions import call
from privsql.sql.nodes import bare, cast, chained, place_of, rewritten
from privsql.sql.postgres import types as postgres_types
from privsql.sql.postgres.catalog import schema_call
from privsql.sql.postgres.commands import NotTranslated
from privsql.sql.postgres.functions import numerals, patterns, texts
from privsql.sql.postgres.functions.scalars import SCALARS

# Words that DuckDB keeps for itself and PostgreSQL does not.
_RESERVED = """
    anti asof at columns describe glob grouping_id lambda map pivot pivot_longer pivot_wider
    positional qualify semi show struct summarize try_cast tuple unpack unpivot
"""
RESERVED = frozenset(_RESERVED.split())

# Functions whose namesake in DuckDB does something else, or that change something.
_REFUSED = """
    encode decode regexp_matches regexp_match regexp_substr regexp_count regexp_instr
    get_bit set_bit get_byte set_byte sha224 sha256 sha384 sha512 to_number
    overlay nextval currval setval lastval setseed like_escape parse_ident
    getvariable query query_table sleep_ms write_log getenv current_query
"""
REFUSED = frozenset(_REFUSED.split())

_KNOWN = exp.FUNCTION_BY_NAME  # functions that sqlglot has a class for
REFUSED_CLASSES: dict[type[exp.Expr], str] = {
    **{_KNOWN[name.upper()]: f"{name}()" for name in REFUSED if name.upper() in _KNOWN},
    exp.BitString: "bit strings",
    exp.HexString: "bit strings",
    exp.SHA2: "sha256()",
    exp.Lock: "FOR UPDATE and FOR SHARE",
    exp.Into: "SELECT INTO",
    exp.Operator: "OPERATOR()",
}

RENAMED = {"every": "bool_and", "octet_length": "strlen"}

COLLATIONS = ("c", "posix", "default", "ucs_basic", "c.utf8", "c.utf-8")

# Fields of a time that mean the same in both; seconds are rewritten.
_FIELDS = """
    CENTURY DAY DECADE DOW DAYOFWEEK DOY DAYOFYEAR EPOCH HOUR ISODOW ISOYEAR MICROSECOND
    MICROSECONDS MILLENNIUM MILLISECOND MILLISECONDS MINUTE MONTH QUARTER WEEK YEAR
"""
FIELDS = frozenset(_FIELDS.split())


class Rewriting:
    """Rewrites one parsed statement; ``text`` is what it was parsed from.

    ``zoned`` says that times know their zone; those of published tables have none.
    """

    def __init__(self, text: str, *, zoned: bool = False) -> None:
        self._text, self._zoned = text, zoned

    def tree(self, tree: exp.Expr) -> exp.Expr:
        """All nodes, those below others first."""
        return rewritten(tree, self._node)

    def _node(self, node: exp.Expr) -> exp.Expr:
        refused = REFUSED_CLASSES.get(type(node))
        if refused is not None:
            raise self._refused(f"{refused} of PostgreSQL", node)
        for kind, rewrite in self._REWRITES:
            if isinstance(node, kind):
                return rewrite(self, node)
        return node

    def _refused(self, what: str, node: exp.Expr, hint: str | None = None) -> NotTranslated:
        return NotTranslated(
            f"{what} is not supported here",
            hint=hint or "rewrite it with other PostgreSQL constructs",
            place=place_of(node, self._text),
        )

    # -- names and tables -------------------------------------------------------------

    def _identifier(self, node: exp.Expr) -> exp.Expr:
        if not node.args.get("quoted"):
            node.set("this", node.name.lower())
            if node.name in RESERVED:
                node.set("quoted", True)
        return node

    def _table(self, node: exp.Expr) -> exp.Expr:
        node.set("only", None)
        if node.text("db").lower() in ("public", "pg_catalog"):
            node.set("db", None)
            node.set("catalog", None)
        if not isinstance(node.this, exp.Identifier):
            self._name_column(node)
        return node

    def _name_column(self, node: exp.Expr) -> exp.Expr:
        """``generate_series(1, 3) AS s``: PostgreSQL calls its one column s as well."""
        alias = node.args.get("alias")
        if isinstance(alias, exp.TableAlias) and alias.this and not alias.args.get("columns"):
            alias.set("columns", [alias.this.copy()])
        return node

    def _values(self, node: exp.Expr) -> exp.Expr:
        alias = node.args.get("alias")
        if not isinstance(alias, exp.TableAlias):
            alias = exp.TableAlias(this=exp.to_identifier("values", quoted=True))
        if not alias.args.get("columns"):
            alias.set("columns", [exp.to_identifier(name) for name in names_of_values(node)])
        node.set("alias", alias)
        if isinstance(node.parent, exp.From | exp.Join | exp.Lateral):
            return node
        # VALUES on its own is a query: its columns need names as well.
        return exp.Select(expressions=[exp.Star()], from_=exp.From(this=node.copy()))

    def _dot(self, node: exp.Expr) -> exp.Expr:
        return node.expression if isinstance(node, exp.Dot) and schema_call(node) else node

    def _column(self, node: exp.Expr) -> exp.Expr:
        node.set("db", None)
        node.set("catalog", None)
        return node

    def _limit(self, node: exp.Expr) -> exp.Expr:
        count = node.args.get("expression")
        if isinstance(count, exp.Var | exp.Column | exp.Null) and count.name.upper() in ("ALL", ""):
            node.pop()
        return node

    def _fetch(self, node: exp.Expr) -> exp.Expr:
        options = node.args.get("limit_options")
        if options is not None and (options.args.get("percent") or options.args.get("with_ties")):
            raise self._refused("FETCH FIRST with ties or percent", node)
        return exp.Limit(expression=node.args.get("count") or exp.Literal.number(1))

    # -- values -----------------------------------------------------------------------

    def _escaped(self, node: exp.Expr) -> exp.Expr:
        return exp.Literal.string(node.name)

    def _cast(self, node: exp.Expr) -> exp.Expr:
        kind = node.args["to"]
        if isinstance(kind, exp.DataType):
            node.set("this", _array(node.this) or node.this)
        if postgres_types.type_name(kind) in postgres_types.OBJECTS:
            return node  # of the catalog, or refused there
        return postgres_types.cast(node, self._text)

    def _collate(self, node: exp.Expr) -> exp.Expr:
        if node.expression.name.lower() not in COLLATIONS:
            raise self._refused("a collation other than C", node)
        inner: exp.Expr = node.this
        return inner

    def _any(self, node: exp.Expr) -> exp.Expr:
        """``x = ANY (ARRAY[..])`` is a list of values, whatever the database."""
        right = node.expression
        like = isinstance(node, exp.Like | exp.ILike)
        if not isinstance(right, exp.Any | exp.All):
            if not like and isinstance(node.this, exp.Column):
                # column = '{0}': an array as text, which is cast to its own type.
                node.set("expression", _array(right) or right)
            return _like(node) if like else node
        of = bare(right.this)
        if of.is_string:
            of = list_of(of.name) or of
            right.set("this", of)
        if not isinstance(of, exp.Array) or any(
            isinstance(each, exp.Query) for each in of.expressions
        ):
            if like:
                raise self._refused("LIKE ANY of something other than a list of patterns", node)
            return node
        if isinstance(right, exp.Any) and isinstance(node, exp.EQ):
            return _in(node.this, of) if of.expressions else exp.false()
        if isinstance(right, exp.All) and isinstance(node, exp.NEQ):
            return exp.Not(this=_in(node.this, of)) if of.expressions else exp.true()
        if like:
            each = [
                exp.Paren(this=_like(type(node)(this=node.this.copy(), expression=pattern)))
                for pattern in of.expressions
            ]
            return exp.Paren(this=chained(exp.Or if isinstance(right, exp.Any) else exp.And, each))
        return node

    def _regexp(self, node: exp.Expr) -> exp.Expr:
        """Finds a part that matches; ``.`` is any character, a new line too."""
        options = "is" if isinstance(node, exp.RegexpILike) else "s"
        flag = node.args.get("flag")
        if flag is not None:
            if not isinstance(flag, exp.Literal) or set(flag.name) - set("icsn"):
                raise self._refused("these flags of a regular expression", node)
            options = "".join(sorted(set(flag.name) & {"i"} | {"s"}))
        return call("regexp_matches", node.this, node.expression, exp.Literal.string(options))

    def _similar(self, node: exp.Expr) -> exp.Expr:
        pattern = node.expression
        if not isinstance(pattern, exp.Literal) or isinstance(node.parent, exp.Escape):
            raise self._refused("SIMILAR TO with another pattern than a plain string", node)
        made = re.sub(
            r"[%_.^$]", lambda m: {"%": ".*", "_": "."}.get(m[0], "\\" + m[0]), pattern.name
        )
        matched = exp.Literal.string(made)
        return call("regexp_full_match", node.this, matched, exp.Literal.string("s"))

    def _substring(self, node: exp.Expr) -> exp.Expr:
        start = node.args.get("start")
        if start is not None and start.is_string:
            raise self._refused("substring() by a regular expression", node, "regexp_replace()")
        return node

    # -- times ------------------------------------------------------------------------

    def _extract(self, node: exp.Expr) -> exp.Expr:
        field = node.name.upper()
        if field in ("SECOND", "SECONDS"):
            # With their fraction: DuckDB's are whole.
            micros = exp.Extract(this=exp.Var(this="MICROSECONDS"), expression=node.expression)
            return exp.Paren(this=exp.Div(this=micros, expression=exp.Literal.number("1000000.0")))
        if field not in FIELDS:
            raise self._refused(f"the field {field.lower()} of a time", node)
        return node

    def _format(self, node: exp.Expr) -> exp.Expr:
        given = node.args.get("format")
        pattern = given.name if isinstance(given, exp.Literal) else None
        made = None if pattern is None else self._by_pattern(node, pattern)
        if made is None:
            raise self._refused(
                "this pattern",
                node,
                "patterns of YYYY, MM, DD, HH24, MI, SS, US, Mon, Month, Day, Q, IYYY, IW, DDD, AM,"
                " or of 9, 0, FM, S and MI with a point and commas",
            )
        return made

    def _by_pattern(self, node: exp.Expr, pattern: str) -> exp.Expr | None:
        if isinstance(node, exp.TimeToStr):
            given = numerals.template(pattern)
            if given is not None:
                return numerals.number_text(node.this, given)
            return patterns.time_text(node.this, pattern, zoned=self._zoned)
        letters = patterns.strptime(pattern)
        if letters is None:
            return None
        told = call("strptime", node.this, exp.Literal.string(letters))
        return cast(told, "DATE") if isinstance(node, exp.StrToDate) else told

    # -- functions --------------------------------------------------------------------

    def _anonymous(self, node: exp.Expr) -> exp.Expr:
        name = str(node.this).lower()
        if name in REFUSED:
            raise self._refused(f"{name}() of PostgreSQL", node)
        if name in SCALARS:
            made = SCALARS[name](node.expressions)
            if made is None:
                raise self._refused(f"{name}() with these arguments", node)
            return made
        if name in RENAMED:
            return exp.Anonymous(this=RENAMED[name], expressions=node.expressions)
        return node

    def _formatted(self, node: exp.Expr) -> exp.Expr:
        """``format()`` of values; names of objects are the catalog's, which has rewritten them."""
        made = None
        if isinstance(node.this, exp.Literal):
            made = texts.formatted(node.this.name, node.expressions, None)
        if made is None:
            raise self._refused(
                "format() with this pattern", node, "format() with a plain pattern of %s and %L"
            )
        return made

    def _hex(self, node: exp.Expr) -> exp.Expr:
        return node if isinstance(node.parent, exp.Lower) else exp.Lower(this=node.copy())

    def _ordered_set(self, node: exp.Expr) -> exp.Expr:
        """``percentile_cont(p) WITHIN GROUP (ORDER BY x)`` and its kin, as DuckDB's own."""
        function, order = node.this, node.expression
        keys = order.expressions if isinstance(order, exp.Order) else []
        if len(keys) != 1:
            raise self._refused("WITHIN GROUP by several values", node)
        value, descending = keys[0].this, bool(keys[0].args.get("desc"))
        if isinstance(function, exp.Mode) or str(function.this).lower() == "mode":
            return call("mode", value)
        share = function.this
        if isinstance(function, exp.PercentileDisc):
            if descending:
                raise self._refused("percentile_disc() in descending order", node)
            return call("quantile_disc", value, share)
        if isinstance(function, exp.PercentileCont):
            if descending:
                rest = exp.Sub(this=exp.Literal.number(1), expression=exp.Paren(this=share))
                share = exp.Paren(this=rest)
            return call("quantile_cont", value, share)
        raise self._refused("this function WITHIN GROUP", node)

    _REWRITES: tuple[
        tuple[
            type[exp.Expr] | tuple[type[exp.Expr], ...], Callable[[Rewriting, exp.Expr], exp.Expr]
        ],
        ...,
    ] = (
        (exp.Identifier, _identifier),
        (exp.Table, _table),
        (exp.Unnest, _name_column),
        (exp.Values, _values),
        (exp.Column, _column),
        (exp.Dot, _dot),
        (exp.Limit, _limit),
        (exp.Fetch, _fetch),
        (exp.ByteString, _escaped),
        (exp.Cast, _cast),
        (exp.Collate, _collate),
        ((exp.RegexpLike, exp.RegexpILike), _regexp),
        (exp.SimilarTo, _similar),
        ((exp.EQ, exp.NEQ, exp.Like, exp.ILike), _any),
        (exp.Substring, _substring),
        (exp.Extract, _extract),
        ((exp.TimeToStr, exp.StrToTime, exp.StrToDate), _format),
        (exp.Anonymous, _anonymous),
        (exp.Format, _formatted),
        (exp.Hex, _hex),
        (exp.WithinGroup, _ordered_set),
    )


def _in(left: exp.Expr, of: exp.Expr) -> exp.Expr:
    return exp.Paren(this=exp.In(this=left, expressions=list(of.expressions)))


def _like(node: exp.Expr) -> exp.Expr:
    """PostgreSQL's LIKE knows a backslash before ``%`` and ``_``; DuckDB's must be told."""
    pattern = node.expression
    told = isinstance(node.parent, exp.Escape)
    if told or (isinstance(pattern, exp.Literal) and "\\" not in pattern.name):
        return node
    return exp.Escape(this=node.copy(), expression=exp.Literal.string("\\"))


def names_of_values(node: exp.Expr) -> tuple[str, ...]:
    """The names that PostgreSQL gives to the columns of VALUES."""
    rows = node.expressions
    width = len(rows[0].expressions) if rows and isinstance(rows[0], exp.Tuple) else 1
    return tuple(f"column{i + 1}" for i in range(width))


def _array(node: exp.Expr) -> exp.Array | None:
    """An array that is written as text."""
    return list_of(node.name) if node.is_string and node.name.startswith("{") else None


def list_of(text: str) -> exp.Array | None:
    """PostgreSQL's text of an array, ``{a,"b c",NULL}``, of one dimension; else None.

    >>> list_of('{r,"",NULL}').sql("duckdb"), list_of("{0}").sql("duckdb"), list_of("{{1}}")
    ("['r', '', NULL]", "['0']", None)
    """
    found = postgres_types.elements(text)
    if found is None:
        return None
    return exp.Array(
        expressions=[exp.null() if each is None else exp.Literal.string(each) for each in found]
    )
