"""The rest of a SELECT without its block, with keys and aggregates as columns."""

from __future__ import annotations

from sqlglot import exp

from privsql.sql.bind.aggregates import Call, read_call
from privsql.sql.bind.from_clause import Rows, canonical, of_groups
from privsql.sql.nodes import (
    Unsupported,
    bare,
    cast,
    chained,
    choose,
    column,
    copied,
    is_call,
    name_of,
    named,
    place_of,
    replace_below,
    sql,
)
from privsql.sql.reconstruct.columns import AGGREGATE, GROUPING, KEY


def given_name(projection: exp.Expr) -> str:
    """The name that the analyst gave a column, "" where there is none."""
    return projection.alias_or_name if isinstance(projection, exp.Alias | exp.Column) else ""


class Remainder:
    """Replaces keys by KEY and aggregates by AGGREGATE, and remembers the latter."""

    def __init__(self, rows: Rows, text: str) -> None:
        self._rows = rows
        self._text = text
        self.calls: dict[str, Call] = {}

    def write(
        self,
        select: exp.Select,
        projections: list[exp.Expr],
        keys: list[exp.Expr],
        aliases: dict[str, exp.Expr],
    ) -> exp.Select:
        """The SELECT that reads the block's estimates."""
        at = {sql(key): i for i, key in enumerate(keys)}
        plain = exp.Select()
        for original, projection in zip(select.expressions, projections, strict=True):
            replaced, name = self._replace(projection, at), given_name(original)
            choose(plain, named(replaced, name) if name else replaced)

        def rewritten(node: exp.Expr, alias_first: bool = False) -> exp.Expr:
            return self._replace(canonical(node, self._rows, aliases, alias_first), at)

        if having := select.args.get("having"):
            group = select.args.get("group")
            every_column = group is not None and bool(group.args.get("all"))
            node = of_groups(having.this, self._rows, aliases, at, every_column)
            plain.set("where", exp.Where(this=self._replace(node, at)))
        if qualify := select.args.get("qualify"):
            plain.set("qualify", exp.Qualify(this=rewritten(qualify.this)))
        if order := select.args.get("order"):
            made = copied(order)
            for ordered in made.expressions:
                inner = bare(ordered.this)
                position = isinstance(inner, exp.Literal) and not inner.is_string
                every_one = isinstance(inner, exp.Var) and inner.name.upper() == "ALL"
                kept = position or every_one
                ordered.set("this", inner if kept else rewritten(inner, alias_first=True))
            plain.set("order", made)
        if windows := select.args.get("windows"):
            plain.set("windows", list(map(rewritten, windows)))
        for clause in ("limit", "offset", "distinct"):
            if part := select.args.get(clause):
                plain.set(clause, copied(part))
        return plain

    def _replace(self, node: exp.Expr, keys: dict[str, int]) -> exp.Expr:
        """Keys become KEY, aggregates AGGREGATE; what is left must be made of them."""
        node = bare(node)
        text = sql(node)
        if text in keys:
            return column(KEY(keys[text]))
        if isinstance(node, exp.Query):
            return copied(node)
        if name_of(node) in ("grouping", "grouping_id"):
            texts = [sql(bare(e)) for e in node.expressions or [node.this]]
            if any(text not in keys for text in texts):
                raise Unsupported("GROUPING of something that is not in GROUP BY")
            bits = [
                exp.Mul(this=column(GROUPING(keys[text])), expression=exp.Literal.number(2**place))
                for place, text in zip(reversed(range(len(texts))), texts, strict=True)
            ]
            return exp.Paren(this=cast(chained(exp.Add, bits), "BIGINT"))
        if isinstance(node, exp.Window):
            made: exp.Expr = copied(node)
            inner = made.this
            while isinstance(inner, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
                if isinstance(inner, exp.Filter):
                    inner.expression.set("this", self._replace(inner.expression.this, keys))
                inner = inner.this
            if isinstance(inner, exp.Func):
                self._replace_children(inner, keys)
            for part in ("partition_by", "order", "spec"):
                value = made.args.get(part)
                if isinstance(value, list):
                    made.set(part, [self._replace(v, keys) for v in value])
                elif isinstance(value, exp.Expr):
                    self._replace_children(value, keys)
            return made
        if is_call(node):
            self.calls.setdefault(text, read_call(node))
            return column(AGGREGATE(list(self.calls).index(text)))
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            raise Unsupported(
                f"column {node.name!r} is neither aggregated nor in GROUP BY",
                hint="put it into GROUP BY, or into an aggregate",
                place=place_of(node, self._text),
            )
        made = copied(node)
        self._replace_children(made, keys)
        return made

    def _replace_children(self, node: exp.Expr, keys: dict[str, int]) -> None:
        def replaced(old: exp.Expr) -> exp.Expr:
            if isinstance(old, exp.Identifier | exp.Star):
                return old
            new = self._replace(old, keys)
            if isinstance(old, exp.Paren) and not isinstance(new, exp.Paren | exp.Column):
                return exp.Paren(this=new)
            return new

        replace_below(node, replaced)
