"""The rest of a SELECT without its block, with keys and aggregates as columns."""

from __future__ import annotations

from sqlglot import exp

from privsql.sql.bind.aggregates import Call, read_call
from privsql.sql.bind.from_clause import Rows, canonical, of_groups
from privsql.sql.nodes import Unsupported, bare, column, is_call, name_of, place_of, sql
from privsql.sql.reconstruct.columns import AGGREGATE, GROUPING, KEY


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
        projected = []
        for original, projection in zip(select.expressions, projections, strict=True):
            replaced = self._replace(projection, at)
            name = original.alias if isinstance(original, exp.Alias) else ""
            if isinstance(original, exp.Column):
                name = original.name
            if name:
                replaced = exp.Alias(this=replaced, alias=exp.to_identifier(name, quoted=True))
            projected.append(replaced)
        plain.set("expressions", projected)
        if having := select.args.get("having"):
            group = select.args.get("group")
            every_column = group is not None and bool(group.args.get("all"))
            node = of_groups(having.this, self._rows, aliases, at, every_column)
            node = self._replace(node, at)
            plain.set("where", exp.Where(this=node))
        if qualify := select.args.get("qualify"):
            node = self._replace(canonical(qualify.this, self._rows, aliases), at)
            plain.set("qualify", exp.Qualify(this=node))
        if order := select.args.get("order"):
            plain.set("order", self._order(order, select, projections, aliases, at))
        if windows := select.args.get("windows"):
            plain.set(
                "windows", [self._replace(canonical(w, self._rows, aliases), at) for w in windows]
            )
        for clause in ("limit", "offset", "distinct"):
            if part := select.args.get(clause):
                plain.set(clause, part.copy())
        return plain

    def _order(
        self,
        order: exp.Expr,
        select: exp.Select,
        projections: list[exp.Expr],
        aliases: dict[str, exp.Expr],
        at: dict[str, int],
    ) -> exp.Order:
        parts = []
        for ordered in order.expressions:
            made = ordered.copy()
            inner = bare(ordered.this)
            if (isinstance(inner, exp.Literal) and not inner.is_string) or (
                isinstance(inner, exp.Var) and inner.name.upper() == "ALL"
            ):
                made.set("this", inner.copy())
            else:
                node = canonical(inner, self._rows, aliases, alias_first=True)
                made.set("this", self._replace(node, at))
            parts.append(made)
        return exp.Order(expressions=parts)

    def _replace(self, node: exp.Expr, keys: dict[str, int]) -> exp.Expr:
        """Keys become KEY, aggregates AGGREGATE; what is left must be made of them."""
        node = bare(node)
        text = sql(node)
        if text in keys:
            return column(KEY(keys[text]))
        if isinstance(node, exp.Query):
            return node.copy()
        if isinstance(node, exp.Grouping | exp.GroupingId) or name_of(node) in (
            "grouping",
            "grouping_id",
        ):
            named = node.expressions or [node.this]
            texts = [sql(bare(e)) for e in named]
            if any(text not in keys for text in texts):
                raise Unsupported("GROUPING of something that is not in GROUP BY")
            bits = [
                exp.Mul(
                    this=column(GROUPING(i)),
                    expression=exp.Literal.number(2 ** (len(texts) - 1 - n)),
                )
                for n, i in enumerate(keys[text] for text in texts)
            ]
            total: exp.Expr = bits[0]
            for bit in bits[1:]:
                total = exp.Add(this=total, expression=bit)
            return exp.Paren(this=exp.cast(total, "BIGINT"))
        if isinstance(node, exp.Window):
            made: exp.Expr = node.copy()
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
            call = self.calls.setdefault(text, read_call(node))
            del call
            return column(AGGREGATE(list(self.calls).index(text)))
        if isinstance(node, exp.Column) and not isinstance(node.this, exp.Star):
            raise Unsupported(
                f"column {node.name!r} is neither aggregated nor in GROUP BY",
                hint="put it into GROUP BY, or into an aggregate",
                place=place_of(node, self._text),
            )
        made = node.copy()
        self._replace_children(made, keys)
        return made

    def _replace_children(self, node: exp.Expr, keys: dict[str, int]) -> None:
        for key, value in list(node.args.items()):
            if isinstance(value, exp.Expr) and not isinstance(value, exp.Identifier | exp.Star):
                replaced = self._replace(value, keys)
                node.set(key, _kept_paren(value, replaced))
            elif isinstance(value, list):
                node.set(
                    key,
                    [
                        _kept_paren(v, self._replace(v, keys)) if isinstance(v, exp.Expr) else v
                        for v in value
                    ],
                )


def _kept_paren(old: exp.Expr, new: exp.Expr) -> exp.Expr:
    if isinstance(old, exp.Paren) and not isinstance(new, exp.Paren | exp.Column):
        return exp.Paren(this=new)
    return new
