"""Sub-queries over published rows that refer to the rows around them.

What they need of published rows is an exact answer; the reference stays a condition over it:

    EXISTS (SELECT 1 FROM t AS b WHERE b.house = t.house AND b.cost > 100)
    EXISTS (SELECT 1 FROM <SELECT DISTINCT b.house ... WHERE b.cost > 100> AS s
            WHERE s.found0 = t.house)

    (SELECT AVG(b.cost) FROM t AS b WHERE b.job = t.job)
    (SELECT ... FROM <SELECT b.job, AVG(b.cost) ... GROUP BY b.job> AS s WHERE s.found0 = t.job)

An aggregate needs equalities with the rows around it.  Of no row it is what DuckDB says of no row:
0 for a COUNT, NULL for most others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from privsql.sql.nodes import (
    OUTER,
    Unsupported,
    bare,
    choose,
    column,
    conjuncts,
    define,
    derived,
    every,
    is_call,
    named,
    number,
    outermost,
    when,
    wrapped,
)
from privsql.sql.subqueries.frozen import ASK_FIRST, Exact
from privsql.sql.subqueries.scopes import OWNER, SCOPE, owned, scopes_in

# How a sub-query is used: whether it has rows, as a list of values, as one value.
Use = Literal["exists", "list", "value"]

SOURCE = "privsql_found"

_EQUALITIES = (exp.EQ, exp.NullSafeEQ)


@dataclass(frozen=True)
class Correlated:
    """Rewrites one SELECT with published rows in FROM that refers to rows around it."""

    exact: Exact
    use: Use

    def rewritten(self, select: exp.Select) -> exp.Select:
        """The same over exact answers."""
        select = select.copy()
        conditions = self._conditions(select)
        inside = scopes_in(select)
        own = [each for each in conditions if _own(each, inside)]
        open_ = [each for each in conditions if not _own(each, inside)]
        having = select.args.get("having")
        aggregated = select.args.get("group") or having or any(map(_aggregated, select.expressions))
        self._check_clauses(select, bool(aggregated))
        if not aggregated:
            return self._rows(select, own, open_)
        keys = [self._key(each, inside, select.meta[SCOPE]) for each in open_]
        if select.args.get("group"):
            return self._groups(select, own, keys, inside)
        return self._value(select, own, keys, inside)

    # -- parts ------------------------------------------------------------------------

    def _conditions(self, select: exp.Select) -> list[exp.Expr]:
        """Those of WHERE and of inner joins whose ON refers to rows around."""
        where = select.args.get("where")
        found = list(conjuncts(where.this)) if where is not None else []
        inside = scopes_in(select)
        for join in select.args.get("joins") or ():
            on = join.args.get("on")
            if not _own(join.this, inside):
                raise _too_deep()
            if on is None or _own(on, inside):
                continue
            if join.side or (join.kind or "INNER") not in ("INNER", "CROSS"):
                raise _too_deep()
            found += conjuncts(on)
            join.set("on", exp.Boolean(this=True))
        if not _own(select.args["from_"].this, inside):
            raise _too_deep()
        return found

    def _check_clauses(self, select: exp.Select, aggregated: bool) -> None:
        limit = select.args.get("limit")
        harmless = self.use == "exists" and not aggregated and _some(limit)
        unable = [c for c in ("offset", "qualify", "windows", "with_") if select.args.get(c)]
        if (limit is not None and not harmless) or unable or select.find(exp.Window) is not None:
            raise Unsupported(
                "LIMIT, OFFSET, a window or a CTE in a sub-query over published rows that refers"
                " to the rows around it",
                hint="join with the answer of a sub-query that stands on its own",
            )

    @staticmethod
    def _key(node: exp.Expr, inside: set[int], scope: int) -> tuple[exp.Expr, exp.Expr, bool]:
        """An equality as (ours within, theirs around, whether NULL equals NULL)."""
        node = bare(node)
        if isinstance(node, _EQUALITIES):
            for ours, theirs in ((node.left, node.right), (node.right, node.left)):
                if (
                    _own(ours, inside)
                    and any(True for _ in owned(ours, {scope}))
                    and not any(True for _ in owned(theirs, inside))
                ):
                    return ours, theirs, isinstance(node, exp.NullSafeEQ)
        raise Unsupported(
            "an aggregate of published rows that are chosen by more than equality with the rows"
            " around them",
            hint="compare with =, or join with the answer of a sub-query on its own",
        )

    # -- three shapes -----------------------------------------------------------------

    def _rows(self, select: exp.Select, own: list[exp.Expr], open_: list[exp.Expr]) -> exp.Select:
        """Rows as they are: of a list or of EXISTS each once."""
        scope = select.meta[SCOPE]
        shown = [] if self.use == "exists" else list(select.expressions)
        if any(each.is_star for each in shown):
            raise Unsupported("a star in a sub-query here", hint="list its columns")
        names: dict[str, str] = {}
        inner = exp.Select()
        for each in [c for node in (*shown, *open_) for c in owned(node, {scope})]:
            text = each.sql("duckdb").casefold()
            if text not in names:
                names[text] = f"found{len(names)}"
                define(inner, names[text], each.copy())
        if not names:
            define(inner, "found0", number(1))
        if self.use != "value":
            inner.set("distinct", exp.Distinct())
        source = self._frozen(select, inner, own)
        made = exp.Select(expressions=shown or [number(1)])
        made.meta[SCOPE] = scope
        if self.use == "value" and select.args.get("distinct"):
            made.set("distinct", exp.Distinct())
        condition = every(open_)
        if condition is not None:
            made.set("where", exp.Where(this=condition))
        for each in list(owned(made, {scope})):
            own_name = names[each.sql("duckdb").casefold()]
            each.replace(_found(own_name, scope))
        return made.from_(source, copy=False)

    def _groups(
        self,
        select: exp.Select,
        own: list[exp.Expr],
        keys: list[tuple[exp.Expr, exp.Expr, bool]],
        inside: set[int],
    ) -> exp.Select:
        """Groups, with the equalities' own sides as further keys."""
        group = select.args["group"]
        plain = not any(value for key, value in group.args.items() if key != "expressions")
        listed = [bare(each) for each in group.expressions]
        if not plain or any(isinstance(each, exp.Literal | exp.Tuple) for each in listed):
            raise Unsupported(
                "GROUP BY with positions or grouping sets in a sub-query that refers to the rows"
                " around it",
                hint="write the columns",
            )
        scope = select.meta[SCOPE]
        inner = exp.Select()
        shown = list(select.expressions) if self.use != "exists" else []
        self._check_own([*shown, *listed, select.args.get("having")], inside)
        for i, (ours, _, _) in enumerate(keys):
            define(inner, f"same{i}", ours.copy())
        for i, each in enumerate(shown):
            define(inner, f"value{i}", each.unalias().copy())
        inner.set(
            "group",
            exp.Group(expressions=[*(ours.copy() for ours, _, _ in keys), *group.expressions]),
        )
        inner.set("having", select.args.get("having"))
        source = self._frozen(select, inner, own)
        made = exp.Select(expressions=[_found(f"value{i}", scope) for i in range(len(shown))])
        if not shown:
            choose(made, number(1))
        made.meta[SCOPE] = scope
        made.set("where", exp.Where(this=_equal(keys, scope)))
        return made.from_(source, copy=False)

    def _value(
        self,
        select: exp.Select,
        own: list[exp.Expr],
        keys: list[tuple[exp.Expr, exp.Expr, bool]],
        inside: set[int],
    ) -> exp.Select:
        """One aggregate of the rows that fit: of none what DuckDB says of no rows."""
        having = select.args.get("having")
        if len(select.expressions) != 1 or (having is not None and self.use != "value"):
            raise Unsupported(
                "an aggregate of this kind in a sub-query that refers to the rows around it",
                hint="compare one aggregate, without HAVING",
            )
        scope = select.meta[SCOPE]
        value: exp.Expr = select.expressions[0].unalias()
        self._check_own([value, having], inside)
        if having is not None:
            value = when(having.this, value)
        inner = exp.Select()
        for i, (ours, _, _) in enumerate(keys):
            define(inner, f"same{i}", ours.copy())
        define(inner, "value", value.copy())
        inner.set("group", exp.Group(expressions=[ours.copy() for ours, _, _ in keys]))
        source = self._frozen(select, inner, own)
        nothing = exp.Select(expressions=[named(value.copy(), "value")])
        nothing.set("from_", select.args["from_"].copy())
        nothing.set("joins", [each.copy() for each in select.args.get("joins") or ()])
        nothing.set("where", exp.Where(this=exp.Boolean(this=False)))
        nothing.meta[SCOPE] = scope
        none = exp.EQ(this=exp.Count(this=exp.Star(), big_int=True), expression=number(0))
        found = when(none, self.exact.value(nothing), exp.Max(this=_found("value", scope)))
        made = exp.Select(expressions=[found])
        made.meta[SCOPE] = scope
        made.set("where", exp.Where(this=_equal(keys, scope)))
        return made.from_(source, copy=False)

    @staticmethod
    def _check_own(nodes: Iterable[exp.Expr | None], inside: set[int]) -> None:
        if not all(_own(node, inside) for node in nodes if node is not None):
            raise Unsupported(
                "an aggregate over values of published rows and of the rows around them",
                hint=f"aggregate the sub-query's own columns; {ASK_FIRST}",
            )

    def _frozen(self, select: exp.Select, inner: exp.Select, own: list[exp.Expr]) -> exp.Subquery:
        """The exact answer to the part that refers to nothing around it."""
        inner.set("from_", select.args["from_"].copy())
        inner.set("joins", [each.copy() for each in select.args.get("joins") or ()])
        condition = every(each.copy() for each in own)
        if condition is not None:
            inner.set("where", exp.Where(this=condition))
        inner.meta[SCOPE] = select.meta[SCOPE]
        return derived(self.exact.relation(inner), SOURCE)


def _own(node: exp.Expr, inside: set[int]) -> bool:
    """Whether an expression refers to nothing around the SELECT that it is in."""
    return not any(
        OUTER in each.meta or each.meta.get(OWNER, 0) not in {0, *inside}
        for each in node.find_all(exp.Column)
    )


def _some(limit: exp.Expr | None) -> bool:
    """Whether a LIMIT keeps at least one row."""
    number_ = None if limit is None else limit.args.get("expression")
    return isinstance(number_, exp.Literal) and number_.name != "0"


def _aggregated(node: exp.Expr) -> bool:
    return next(outermost(node, is_call), None) is not None


def _found(name: str, scope: int) -> exp.Column:
    made = column(name, SOURCE)
    made.meta[OWNER] = scope
    return made


def _equal(keys: list[tuple[exp.Expr, exp.Expr, bool]], scope: int) -> exp.Expr:
    parts: list[exp.Expr] = []
    for i, (_, theirs, safe) in enumerate(keys):
        kind = exp.NullSafeEQ if safe else exp.EQ
        parts.append(kind(this=_found(f"same{i}", scope), expression=wrapped(theirs)))
    made = every(parts)
    return exp.Boolean(this=True) if made is None else made


def _too_deep() -> Unsupported:
    return Unsupported(
        "a sub-query over published rows that refers to the rows around it in a join or in FROM",
        hint="refer to them in WHERE",
    )
