"""A block: one SELECT over published rows, taken apart into what has to be estimated.

    SELECT job, AVG(age) FROM patients WHERE disease = 'flu' GROUP BY job HAVING COUNT(*) > 5
    `--keys--'  `aggregates over bases'       `-- branches --'             `-- the rest stays SQL

The block says what to add up; ``scan`` writes the SQL that does so beside the table,
``reconstruct`` what turns the sums into estimates, and the SELECT that is left reads those
as if they were a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from sqlglot import exp

from privsql.sql import aggregates
from privsql.sql.aggregates import Base, Call, read_call
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.pieces import Branch, Separator, counting, within
from privsql.sql.rows import Rows, canonical
from privsql.sql.tree import (
    Unsupported,
    bare,
    column,
    columns_of,
    conjuncts,
    is_aggregate,
    name_of,
    outermost,
    place_of,
    sql,
)

VOLATILE = frozenset(
    [
        "random",
        "setseed",
        "uuid",
        "uuidv4",
        "uuidv7",
        "gen_random_uuid",
        "nextval",
        "currval",
        "setval",
        "stats",
        "vector_type",
        "write_log",
        "error",
        "sleep_ms",
        "current_query",
        "current_query_id",
        "current_connection_id",
        "current_transaction_id",
    ]
)
OURS = ("stderr", "low", "high", "reliable", "observed")


@dataclass(frozen=True)
class Key:
    """An expression of GROUP BY, and the sensitive columns in it."""

    expression: exp.Expr
    sensitive: frozenset[str]


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of the SELECT: exact as it stands, or a formula over bases."""

    call: Call
    kind: str  # exact | linear | quantile | mode | domain
    bases: tuple[int, ...] = ()
    ordered: exp.Expr | None = None  # the sensitive value of a quantile or mode
    fraction: exp.Expr | None = None


@dataclass(frozen=True)
class Block:
    """What one SELECT over published rows needs."""

    rows: Rows
    guards: tuple[exp.Expr, ...]  # public conditions of WHERE
    where: tuple[Branch, ...]  # the others, as branches
    keys: tuple[Key, ...]
    sets: tuple[tuple[int, ...], ...]  # grouping sets, by positions of keys
    grouped: bool
    bases: tuple[Base, ...]
    aggregates: tuple[Aggregate, ...]
    sensitive: frozenset[str]  # sensitive columns anywhere in it
    joins: dict[str, str]  # alias of a joined table -> the sensitive column it hangs on, or ""

    @property
    def estimated(self) -> bool:
        """Whether anything in it depends on a sensitive column."""
        return bool(self.sensitive)


@dataclass(frozen=True)
class Leaf:
    """A block and the SELECT that reads it: columns ``k0..`` are keys, ``a0..`` aggregates."""

    block: Block
    select: exp.Select
    names: tuple[str, ...]  # of the projections, "" where the analyst gave none


class Builder:
    """Takes one SELECT apart."""

    def __init__(
        self, catalog: Catalog, rows: Rows, text: str, kind: Callable[[exp.Expr], str]
    ) -> None:
        self._kind = kind
        self._catalog = catalog
        self._rows = rows
        self._text = text
        self._joins = self._join_roles()
        self._separator = Separator(self.sensitive, self._has_public)
        self._calls: dict[str, Call] = {}
        self._bases: list[Base] = []

    # -- roles ------------------------------------------------------------------------

    def _join_roles(self) -> dict[str, str]:
        roles: dict[str, str] = {}
        for join in self._rows.joins:
            used: set[str] = set()
            public = False
            for ours, _ in join.on:
                for each in columns_of(ours):
                    name = self._owner(each, roles)
                    used |= {name} if name else set()
                    public = public or not name
            if len(used) > 1 or (used and public):
                raise Unsupported(
                    "a join with a public table on several columns of which one is sensitive",
                    hint="join on one sensitive column alone, or on public ones",
                )
            roles[join.alias] = next(iter(used), "")
        return roles

    def _owner(self, node: exp.Column, joins: dict[str, str]) -> str:
        """The sensitive column that a canonical column is a function of, or nothing."""
        if node.table == PUBLISHED:
            return node.name if node.name in self._catalog.sensitive else ""
        return joins.get(node.table, "")

    def sensitive(self, node: exp.Expr) -> frozenset[str]:
        """Sensitive columns in an expression."""
        return frozenset(filter(None, (self._owner(c, self._joins) for c in columns_of(node))))

    def _has_public(self, node: exp.Expr) -> bool:
        return any(not self._owner(c, self._joins) for c in columns_of(node))

    # -- the SELECT -------------------------------------------------------------------

    def build(self, select: exp.Select) -> Leaf:
        """Take the SELECT apart."""
        self._refuse_clauses(select)
        aliases = {
            p.alias.casefold(): p.this for p in select.expressions if isinstance(p, exp.Alias)
        }
        where = list(self._rows.where)
        if condition := select.args.get("where"):
            where += conjuncts(canonical(condition.this, self._rows, aliases))
        projections = [self._projection(p, aliases) for p in select.expressions]
        keys, sets, grouped = self._grouping(select, projections, aliases)
        for node in (*where, *keys, *(ours for join in self._rows.joins for ours, _ in join.on)):
            self._refuse_nodes(node)
        for join in self._rows.joins:
            if self._joins[join.alias] and join.kind == "INNER":
                where.append(exp.Not(this=exp.Is(this=join.on[0][1].copy(), expression=exp.Null())))
        guards = tuple(node for node in where if not self.sensitive(node))
        branches = [Branch()]
        for node in where:
            if self.sensitive(node):
                branches = within(branches, self._separator.condition(node))
        bound = [Key(key, self.sensitive(key)) for key in keys]
        rest = self._rest(select, projections, keys, aliases)
        below = self.sensitive_of(where) | frozenset().union(*(key.sensitive for key in bound))
        bases: dict[tuple[object, ...], int] = {}
        made = [
            self._aggregate(call, branches, below, bases, bound, guards)
            for call in self._calls.values()
        ]
        if below and not made and any(self.sensitive(node) for node in where):
            raise Unsupported(
                "which groups exist under a sensitive condition cannot be known",
                hint="ask how many rows they have: COUNT(*) ... GROUP BY",
            )
        everything = below.union(*(self.sensitive(c.node) for c in self._calls.values()))
        block = Block(
            self._rows,
            guards,
            tuple(branches),
            tuple(bound),
            sets,
            grouped,
            tuple(self._bases),
            tuple(made),
            everything,
            self._joins,
        )
        names = tuple(
            p.alias_or_name if isinstance(p, exp.Alias | exp.Column) else ""
            for p in select.expressions
        )
        return Leaf(block, rest, names)

    def sensitive_of(self, nodes: Iterable[exp.Expr]) -> frozenset[str]:
        """Sensitive columns in any of several expressions."""
        return frozenset().union(*(self.sensitive(node) for node in nodes))

    def _refuse_clauses(self, select: exp.Select) -> None:
        for clause in (
            "sample",
            "pivots",
            "match",
            "laterals",
            "connect",
            "into",
            "locks",
            "cluster",
        ):
            if select.args.get(clause):
                raise Unsupported(f"{clause.upper()} over published rows")

    def _refuse_nodes(self, node: exp.Expr) -> None:
        for each in node.walk():
            name = name_of(each)
            if name in VOLATILE:
                raise Unsupported(
                    f"the volatile function {name}()",
                    hint="an answer must not change when it is asked again",
                    place=place_of(each, self._text),
                )
        for query in outermost(node, lambda n: isinstance(n, exp.Query)):
            self._refuse_query(query)

    def _refuse_query(self, query: exp.Expr) -> None:
        """A sub-query in a condition or an argument runs beside the table: only public ones."""
        place = place_of(query, self._text)
        if self._kind(query) != "public":
            raise Unsupported(
                "a sub-query over published rows inside a condition, a key or an aggregate",
                hint="ask for it on its own and put its answer in as a value, or compare in HAVING",
                place=place,
            )
        known: set[str] = set()
        for table in query.find_all(exp.Table):
            known.add(table.alias_or_name.casefold())
            for name, _ in self._catalog.tables.get(
                self._catalog.public_table(table.name) or "", ()
            ):
                known.add(name.casefold())
        for alias in query.find_all(exp.Alias, exp.TableAlias):
            known |= {alias.alias.casefold()} if alias.alias else set()
            if isinstance(alias, exp.TableAlias):
                known |= {c.name.casefold() for c in alias.columns} | {alias.name.casefold()}
        for each in query.find_all(exp.Column):
            if (
                not isinstance(each.this, exp.Star)
                and (each.table or each.name).casefold() not in known
            ):
                raise Unsupported(
                    "a sub-query that refers to the published rows around it",
                    hint="join the public table instead, or list the values",
                    place=place,
                )

    def _projection(self, node: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        inner = node.this if isinstance(node, exp.Alias) else node
        if inner.is_star or next(outermost(inner, lambda n: isinstance(n, exp.Columns)), None):
            raise Unsupported(
                "published rows themselves are not shown",
                hint="ask for aggregates: COUNT(*), AVG(x), ... GROUP BY ...",
                place=place_of(inner, self._text),
            )
        own = node.alias.casefold() if isinstance(node, exp.Alias) else ""
        return canonical(inner, self._rows, {k: v for k, v in aliases.items() if k != own})

    def _grouping(
        self,
        select: exp.Select,
        projections: list[exp.Expr],
        aliases: dict[str, exp.Expr],
    ) -> tuple[list[exp.Expr], tuple[tuple[int, ...], ...], bool]:
        group = select.args.get("group")
        distinct = select.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise Unsupported("DISTINCT ON over published rows", hint="use GROUP BY")
        keys: dict[str, exp.Expr] = {}

        def add(node: exp.Expr) -> int:
            node = bare(node)
            keys.setdefault(sql(node), node)
            return list(keys).index(sql(node))

        if group is None:
            if any(self._has_aggregate(p) for p in projections) or select.args.get("having"):
                return [], ((),), False
            if distinct is None:
                raise Unsupported(
                    "published rows themselves are not shown",
                    hint="ask for aggregates: COUNT(*), AVG(x), ... GROUP BY ...",
                    place=place_of(select.expressions[0], self._text)
                    if select.expressions
                    else None,
                )
            for projection in projections:
                add(projection)
            return list(keys.values()), (tuple(range(len(keys))),), True
        if group.args.get("all") or group.args.get("totals"):
            for projection in projections:
                if not self._has_aggregate(projection):
                    add(projection)
            return list(keys.values()), (tuple(range(len(keys))),), bool(keys)

        def read(node: exp.Expr) -> list[int]:
            node = bare(node)
            if isinstance(node, exp.Tuple):
                return [i for each in node.expressions for i in read(each)]
            if isinstance(node, exp.Literal) and not node.is_string:
                at = int(node.this)
                if not 1 <= at <= len(projections):
                    raise Unsupported(f"GROUP BY {at}: there is no such column in the SELECT list")
                return [add(projections[at - 1])]
            return [add(canonical(node, self._rows, aliases))]

        def element(node: exp.Expr) -> list[tuple[int, ...]]:
            if isinstance(node, exp.Rollup):
                parts = [tuple(read(e)) for e in node.expressions]
                return [sum(parts[:i], ()) for i in range(len(parts), -1, -1)]
            if isinstance(node, exp.Cube):
                parts = [tuple(read(e)) for e in node.expressions]
                choices = product((True, False), repeat=len(parts))
                return [
                    sum((p for p, kept in zip(parts, choice, strict=True) if kept), ())
                    for choice in choices
                ]
            if isinstance(node, exp.GroupingSets):
                return [s for e in node.expressions for s in element(e)]
            return [tuple(read(node))]

        elements = [element(e) for e in group.expressions]
        for clause in ("rollup", "cube", "grouping_sets"):
            for node in group.args.get(clause) or ():
                elements.append(element(node))
        sets = tuple(tuple(dict.fromkeys(sum(choice, ()))) for choice in product(*elements))
        return list(keys.values()), sets, True

    def _has_aggregate(self, node: exp.Expr) -> bool:
        return bool(next(_aggregates(node), None))

    def _rest(
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
            node = self._replace(self._later(having.this, aliases, keys), at)
            plain.set("where", exp.Where(this=node))
        if qualify := select.args.get("qualify"):
            node = self._replace(self._later(qualify.this, aliases, keys), at)
            plain.set("qualify", exp.Qualify(this=node))
        if order := select.args.get("order"):
            plain.set("order", self._order(order, select, projections, aliases, at))
        if windows := select.args.get("windows"):
            plain.set(
                "windows", [self._replace(self._later(w, aliases, keys), at) for w in windows]
            )
        for clause in ("limit", "offset", "distinct"):
            if part := select.args.get(clause):
                plain.set(clause, part.copy())
        return plain

    def _later(
        self, node: exp.Expr, aliases: dict[str, exp.Expr], keys: list[exp.Expr]
    ) -> exp.Expr:
        return canonical(node, self._rows, aliases)

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
        """Keys become ``k<i>``, aggregates ``a<i>``; what is left must be made of them."""
        node = bare(node)
        text = sql(node)
        if text in keys:
            return column(f"k{keys[text]}")
        if isinstance(node, exp.Query):
            return node.copy()
        if isinstance(node, exp.Grouping | exp.GroupingId) or name_of(node) in (
            "grouping",
            "grouping_id",
        ):
            named = node.expressions or [node.this]
            wanted = [keys.get(sql(bare(e))) for e in named]
            if None in wanted:
                raise Unsupported("GROUPING of something that is not in GROUP BY")
            bits = [
                exp.Mul(
                    this=column(f"g{i}"), expression=exp.Literal.number(2 ** (len(wanted) - 1 - n))
                )
                for n, i in enumerate(wanted)
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
        if _is_call(node):
            self._refuse_nodes(node)
            call = self._calls.setdefault(text, read_call(node))
            del call
            return column(f"a{list(self._calls).index(text)}")
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

    # -- aggregates -------------------------------------------------------------------

    def _aggregate(
        self,
        call: Call,
        where: list[Branch],
        below: frozenset[str],
        known: dict[tuple[object, ...], int],
        keys: list[Key],
        guards: tuple[exp.Expr, ...],
    ) -> Aggregate:
        place = place_of(call.node, self._text)
        involved = below | self.sensitive(call.node)
        if not involved and not self._catalog.weighted:
            return Aggregate(call, "exact")
        if call.name in ("min", "max", "any_value") and not below and not keys and not guards:
            used = self.sensitive(call.arguments[0]) if call.arguments else frozenset()
            if (
                call.name != "any_value"
                and call.filter is None
                and len(used) == 1
                and not self._has_public(call.arguments[0])
            ):
                return Aggregate(call, "domain", ordered=call.arguments[0])
        try:
            if call.name in (*aggregates.ORDERED, "mode"):
                return self._distribution(call, where, known)
            found = aggregates.bases(call, self._separator, where)
        except Unsupported as problem:
            raise Unsupported(
                problem.reason, hint=problem.hint, place=problem.place or place
            ) from None
        return Aggregate(call, "linear", tuple(self._base(base, known) for base in found))

    def _base(self, base: Base, known: dict[tuple[object, ...], int]) -> int:
        key = tuple(sorted(piece.key for piece in base))
        if key not in known:
            known[key] = len(self._bases)
            self._bases.append(base)
        return known[key]

    def _distribution(
        self, call: Call, where: list[Branch], known: dict[tuple[object, ...], int]
    ) -> Aggregate:
        value = call.arguments[0]
        if call.distinct or not self.sensitive(value) or self._has_public(value):
            raise Unsupported(
                f"{call.name.upper()} of a public column under a sensitive condition",
                hint="only the distribution of a sensitive column can be reconstructed; use AVG",
            )
        rows = where
        if call.filter is not None:
            rows = within(rows, self._separator.condition(call.filter))
        counted = within(self._separator.value(value), rows)
        base = self._base(counting(counted), known)
        kind = "mode" if call.name == "mode" else "quantile"
        fraction: exp.Expr = exp.Literal.number("0.5")
        if call.name in ("quantile_cont", "quantile_disc"):
            fraction = call.arguments[1]
            if next(columns_of(fraction), None) is not None:
                raise Unsupported("a quantile whose fraction is not a constant")
            if isinstance(bare(fraction), exp.Array | exp.Tuple):
                raise Unsupported("several quantiles in one call", hint="ask for each on its own")
        return Aggregate(call, kind, (base,), value, fraction)


def _kept_paren(old: exp.Expr, new: exp.Expr) -> exp.Expr:
    if isinstance(old, exp.Paren) and not isinstance(new, exp.Paren | exp.Column):
        return exp.Paren(this=new)
    return new


def _is_call(node: exp.Expr) -> bool:
    if isinstance(node, exp.Filter | exp.WithinGroup):
        return True
    return is_aggregate(node)


def _aggregates(node: exp.Expr) -> Iterator[exp.Expr]:
    """Aggregates in an expression; a window function is none, but may hold some."""
    if isinstance(node, exp.Window):
        inner = node.this
        while isinstance(inner, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
            inner = inner.this
        for child in inner.iter_expressions():
            yield from _aggregates(child)
        for child in node.iter_expressions():
            if child is not node.this:
                yield from _aggregates(child)
        return
    if _is_call(node):
        yield node
        return
    for child in node.iter_expressions():
        if not isinstance(child, exp.Query):
            yield from _aggregates(child)


Check = Callable[[exp.Expr], None]
