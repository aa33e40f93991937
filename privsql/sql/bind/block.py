"""A block: one SELECT over published rows, split into the parts to be estimated.

    SELECT job, AVG(age) FROM patients WHERE disease = 'flu' GROUP BY job HAVING COUNT(*) > 5
    `--keys--'  `aggregates over bases'       `-- branches --'             `-- the rest stays SQL

The block says what to add up; ``scan`` writes the SQL that does so beside the table,
``reconstruct`` what turns the sums into estimates, and the SELECT that is left reads those
as if they were a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from sqlglot import exp

from privsql.sql.bind import aggregates
from privsql.sql.bind.aggregates import Base, Call
from privsql.sql.bind.from_clause import Rows, canonical
from privsql.sql.bind.grouping import read_grouping
from privsql.sql.bind.pieces import Branch, Piece, Separator, counting, is_true, within
from privsql.sql.bind.remainder import Remainder
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.nodes import (
    Unsupported,
    bare,
    columns_of,
    conjuncts,
    outermost,
    place_of,
)
from privsql.sql.parse.forbidden import Refusing

OURS = ("stderr", "low", "high", "reliable", "observed")


@dataclass(frozen=True)
class Key:
    """An expression of GROUP BY, and the sensitive columns in it."""

    expression: exp.Expr
    sensitive: frozenset[str]


@dataclass(frozen=True)
class Exact:
    """An aggregate of public rows, exact as it stands."""

    call: Call
    bases: tuple[int, ...] = ()
    kind: Literal["exact"] = "exact"


@dataclass(frozen=True)
class Linear:
    """A formula over bases: a count, a sum, an average, a spread."""

    call: Call
    bases: tuple[int, ...]
    kind: Literal["linear"] = "linear"


@dataclass(frozen=True)
class Quantile:
    """A quantile of a sensitive value, from the distribution of its one base."""

    call: Call
    bases: tuple[int]
    ordered: exp.Expr  # the value
    fraction: exp.Expr
    kind: Literal["quantile"] = "quantile"


@dataclass(frozen=True)
class Mode:
    """The most frequent of a sensitive value."""

    call: Call
    bases: tuple[int]
    ordered: exp.Expr
    kind: Literal["mode"] = "mode"


@dataclass(frozen=True)
class Domain:
    """The least or largest value of a sensitive column: of its public domain."""

    call: Call
    ordered: exp.Expr
    bases: tuple[int, ...] = ()
    kind: Literal["domain"] = "domain"


Aggregate = Exact | Linear | Quantile | Mode | Domain


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
    conditions: tuple[exp.Expr, ...] = ()  # of WHERE, as they were written

    @property
    def estimated(self) -> bool:
        """Whether anything in it depends on a sensitive column."""
        return bool(self.sensitive)


def pieces_of_block(block: Block) -> tuple[list[Piece], list[list[int]]]:
    """All different pieces of a block, and those of each base by their place."""
    found: list[Piece] = []
    index: dict[str, int] = {}
    for base in block.bases:
        for piece in base:
            if index.setdefault(piece.key, len(found)) == len(found):
                found.append(piece)
    return found, [[index[piece.key] for piece in base] for base in block.bases]


@dataclass(frozen=True)
class Leaf:
    """A block and the SELECT that reads it: its columns are KEY and AGGREGATE."""

    block: Block
    select: exp.Select
    names: tuple[str, ...]  # of the projections, "" where the analyst gave none


class Builder:
    """Takes one SELECT apart."""

    def __init__(
        self, catalog: Catalog, rows: Rows, text: str, public: Callable[[exp.Expr], bool]
    ) -> None:
        self._catalog = catalog
        self._rows = rows
        self._text = text
        self._joins = self._join_roles()
        self._separator = Separator(self.sensitive, self._has_public)
        self._refusing = Refusing(catalog, text, public)
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
        self._refusing.clauses(select)
        aliases = {
            p.alias.casefold(): p.this for p in select.expressions if isinstance(p, exp.Alias)
        }
        where = list(self._rows.where)
        if condition := select.args.get("where"):
            where += conjuncts(canonical(condition.this, self._rows, aliases))
        projections = [self._projection(p, aliases) for p in select.expressions]
        keys, sets, grouped = read_grouping(select, projections, aliases, self._rows, self._text)
        for node in (*where, *keys, *(ours for join in self._rows.joins for ours, _ in join.on)):
            self._refusing.nodes(node)
        for join in self._rows.joins:
            if not isinstance(join.table, exp.Table):
                self._refusing.query(join.table)
        for join in self._rows.joins:
            if self._joins[join.alias] and join.kind == "INNER":
                where.append(exp.Not(this=exp.Is(this=join.on[0][1].copy(), expression=exp.Null())))
        guards = tuple(node for node in where if not self.sensitive(node) and not is_true(node))
        branches = [Branch()]
        for node in where:
            if self.sensitive(node):
                branches = within(branches, self._separator.condition(node))
        bound = [Key(key, self.sensitive(key)) for key in keys]
        remainder = Remainder(self._rows, self._text)
        rest = remainder.write(select, projections, keys, aliases)
        calls = list(remainder.calls.values())
        for call in calls:
            self._refusing.nodes(call.node)
        below = self.sensitive_of(where) | frozenset().union(*(key.sensitive for key in bound))
        bases: dict[tuple[object, ...], int] = {}
        made = [self._aggregate(call, branches, below, bases, bound, guards) for call in calls]
        if below and not made and any(self.sensitive(node) for node in where):
            raise Unsupported(
                "which groups exist under a sensitive condition cannot be known",
                hint="ask how many rows they have: COUNT(*) ... GROUP BY",
            )
        everything = below.union(*(self.sensitive(c.node) for c in calls))
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
            tuple(where),
        )
        names = tuple(
            p.alias_or_name if isinstance(p, exp.Alias | exp.Column) else ""
            for p in select.expressions
        )
        return Leaf(block, rest, names)

    def sensitive_of(self, nodes: Iterable[exp.Expr]) -> frozenset[str]:
        """Sensitive columns in any of several expressions."""
        return frozenset().union(*(self.sensitive(node) for node in nodes))

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
            return Exact(call)
        alone = not below and not keys and not guards and call.filter is None
        if call.name in ("min", "max") and alone and len(call.arguments) == 1:
            (argument,) = call.arguments
            if len(self.sensitive(argument)) == 1 and not self._has_public(argument):
                return Domain(call, argument)
        try:
            if call.name in (*aggregates.ORDERED, "mode"):
                return self._distribution(call, where, known)
            found = aggregates.bases(call, self._separator, where)
        except Unsupported as problem:
            raise Unsupported(
                problem.reason, hint=problem.hint, place=problem.place or place
            ) from None
        return Linear(call, tuple(self._base(base, known) for base in found))

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
            if self._catalog.weighted:
                raise aggregates.sampled(call)
            raise Unsupported(
                f"{call.name.upper()} of a public column under a sensitive condition",
                hint="only the distribution of a sensitive column can be reconstructed; use AVG",
            )
        rows = where
        if call.filter is not None:
            rows = within(rows, self._separator.condition(call.filter))
        counted = within(self._separator.value(value), rows)
        base = self._base(counting(counted), known)
        if call.name == "mode":
            return Mode(call, (base,), value)
        fraction: exp.Expr = exp.Literal.number("0.5")
        if call.name in ("quantile_cont", "quantile_disc"):
            fraction = call.arguments[1]
            if next(columns_of(fraction), None) is not None:
                raise Unsupported("a quantile whose fraction is not a constant")
            if isinstance(bare(fraction), exp.Array | exp.Tuple):
                raise Unsupported("several quantiles in one call", hint="ask for each on its own")
        return Quantile(call, (base,), value, fraction)
