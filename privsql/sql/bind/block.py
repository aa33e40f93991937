"""A block: one SELECT over published rows, split into the parts to be estimated.

    SELECT job, AVG(age) FROM patients WHERE disease = 'flu' GROUP BY job HAVING COUNT(*) > 5
    `--keys--'  `aggregates over bases'       `-- branches --'             `-- the rest stays SQL

The block says what to add up; ``scan`` writes the SQL that does so beside the table,
``reconstruct`` what turns the sums into estimates, and the SELECT that is left reads those
as if they were a table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Literal

from sqlglot import exp

from privsql.sql.bind import aggregates
from privsql.sql.bind.aggregates import Base, Call, read_call
from privsql.sql.bind.distinct import check_scope, distinct_rows
from privsql.sql.bind.from_clause import Rows, conditions_of, projected
from privsql.sql.bind.grouping import not_shown, read_grouping
from privsql.sql.bind.pieces import (
    Branch,
    Piece,
    Separator,
    counting,
    is_true,
    some_guard,
    within,
)
from privsql.sql.bind.remainder import Remainder, given_name
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.nodes import (
    NotEstimable,
    Unsupported,
    aliases_of,
    bare,
    columns_of,
    copied,
    given,
    place_of,
)
from privsql.sql.parse.forbidden import Refusing

# The mark of a SELECT whose rows are shown as they are, so that they may be too many.
LISTED = "privsql_listed"

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
    """A quantile, from the distribution of its one base."""

    call: Call
    bases: tuple[int]
    ordered: exp.Expr  # the value
    fraction: exp.Expr
    public: bool = False  # whether public values take part in the order
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


@dataclass(frozen=True)
class Distinct:
    """How many values a public expression has on the rows of its one base."""

    call: Call
    bases: tuple[int]
    value: exp.Expr
    kind: Literal["distinct"] = "distinct"


Aggregate = Exact | Linear | Quantile | Mode | Domain | Distinct


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
    possible: bool = False  # its groups are those that could exist: sensitive values decide

    @cached_property
    def pieces(self) -> tuple[list[Piece], list[list[int]]]:
        """All different pieces, and those of each base by their place."""
        found: list[Piece] = []
        index: dict[str, int] = {}
        for base in self.bases:
            for piece in base:
                if index.setdefault(piece.key, len(found)) == len(found):
                    found.append(piece)
        return found, [[index[piece.key] for piece in base] for base in self.bases]

    @property
    def sensitive_keys(self) -> list[int]:
        """Positions of keys with a sensitive column in them."""
        return [i for i, key in enumerate(self.keys) if key.sensitive]

    @property
    def everyone(self) -> bool:
        """Whether no public condition, key or join tells rows apart."""
        return not (self.guards or self.keys or self.rows.joins)

    @property
    def estimated(self) -> bool:
        """Whether anything in it depends on a sensitive column."""
        return bool(self.sensitive)


def pieces_of_block(block: Block) -> tuple[list[Piece], list[list[int]]]:
    """All different pieces of a block, and those of each base by their place."""
    return block.pieces


def owners(node: exp.Expr, catalog: Catalog, joins: Mapping[str, str]) -> set[str]:
    """The sensitive columns that an expression is a function of; "" stands for public ones."""
    return {
        (each.name if each.name in catalog.sensitive else "")
        if each.table == PUBLISHED
        else joins.get(each.table, "")
        for each in columns_of(node)
    }


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
        self._refusing = Refusing(text, public)
        self._bases: dict[tuple[str, ...], Base] = {}

    # -- roles ------------------------------------------------------------------------

    def _join_roles(self) -> dict[str, str]:
        roles: dict[str, str] = {}
        for join in self._rows.joins:
            used = {each for ours, _ in join.on for each in owners(ours, self._catalog, roles)}
            if any(used) and any(each.safe for each in join.on):
                raise Unsupported(
                    "a join on a sensitive column by IS NOT DISTINCT FROM", hint="join with ="
                )
            if len(used) > 1 and any(used):
                raise Unsupported(
                    "a join with a public table on several columns of which one is sensitive",
                    hint="join on one sensitive column alone, or on public ones",
                )
            roles[join.alias] = next(iter(used), "")
        return roles

    def sensitive(self, *nodes: exp.Expr) -> frozenset[str]:
        """Sensitive columns in any of some expressions."""
        found = (owners(node, self._catalog, self._joins) for node in nodes)
        return frozenset().union(*found) - {""}

    def _has_public(self, node: exp.Expr) -> bool:
        return "" in owners(node, self._catalog, self._joins)

    # -- the SELECT -------------------------------------------------------------------

    def build(self, select: exp.Select) -> Leaf:
        """Take the SELECT apart."""
        self._refusing.clauses(select)
        aliases = aliases_of(select)
        where = [*self._rows.where, *conditions_of(select, self._rows)]
        projections = [self._projection(p, aliases) for p in select.expressions]
        keys, sets, grouped = read_grouping(select, projections, aliases, self._rows, self._text)
        where = list(map(self._rows.public, where))
        shown = list(map(self._rows.public, keys))
        for node in (*where, *shown, *(e.ours for join in self._rows.joins for e in join.on)):
            self._refusing.nodes(node)
        for join in self._rows.joins:
            if not isinstance(join.table, exp.Table):
                self._refusing.query(join.table.this)
            if self._joins[join.alias] and join.kind == "INNER":
                where.append(given(copied(join.on[0].theirs)))
        guards = tuple(node for node in where if not self.sensitive(node) and not is_true(node))
        conditions = [self._separator.condition(node) for node in where if self.sensitive(node)]
        branches = reduce(within, conditions, [Branch()])
        bound = tuple(Key(key, self.sensitive(key)) for key in shown)
        remainder = Remainder(self._rows, self._text)
        rest = remainder.write(select, projections, keys, aliases)
        calls = list(map(self._read, remainder.calls.values()))
        below = self.sensitive(*where, *shown)
        whole = not below and not keys and not guards
        made = tuple(self._aggregate(call, branches, below, whole) for call in calls)
        possible = not made and bool(conditions)
        if possible:
            self._check_listed(select)
            guards = (*guards, *some_guard(branches))
            if not any(key.sensitive for key in bound):
                below, branches = frozenset(), [Branch()]
        block = Block(
            self._rows,
            guards,
            tuple(branches),
            bound,
            sets,
            grouped,
            tuple(self._bases.values()),
            made,
            below | self.sensitive(*(call.node for call in calls)),
            self._joins,
            tuple(where),
            possible,
        )
        return Leaf(block, rest, tuple(map(given_name, select.expressions)))

    @staticmethod
    def _check_listed(select: exp.Select) -> None:
        """Groups that could exist may be listed; nothing may be made of how many they are."""
        if LISTED not in select.meta or select.find(exp.Window) is not None:
            raise Unsupported(
                "which groups exist under a sensitive condition cannot be known, so that nothing"
                " can be made of them",
                hint="list them by themselves, or ask how many rows they have: COUNT(*) ..."
                " GROUP BY",
            )

    def _read(self, call: Call) -> Call:
        """An aggregate whose sub-queries read no published rows."""
        node = self._rows.public(call.node)
        self._refusing.nodes(node)
        return call if node is call.node else read_call(node)

    def _projection(self, node: exp.Expr, aliases: dict[str, exp.Expr]) -> exp.Expr:
        if node.unalias().is_star:
            raise not_shown(node.unalias(), self._text)
        return projected(node, self._rows, aliases)

    # -- aggregates -------------------------------------------------------------------

    def _aggregate(
        self, call: Call, where: list[Branch], below: frozenset[str], whole: bool
    ) -> Aggregate:
        """An aggregate of the rows of ``where``; ``whole`` says whether those are all rows."""
        involved = below | self.sensitive(call.node)
        if not involved and not self._catalog.weighted:
            return Exact(call)
        if call.name in ("min", "max") and whole and call.filter is None:
            argument = call.arguments[0]
            sole = len(call.arguments) == 1 and len(self.sensitive(argument)) == 1
            if sole and not self._has_public(argument):
                return Domain(call, argument)
        try:
            if call.name in (*aggregates.ORDERED, "mode"):
                return self._distribution(call, where)
            if call.distinct and involved:
                check_scope(call, self._catalog, involved)
                value, pieces = distinct_rows(call, self._separator, where)
                return Distinct(call, (self._base(pieces),), value)
            self._check_added(call)
            found = aggregates.bases(call, self._separator, where)
        except Unsupported as problem:
            problem.place = problem.place or place_of(call.node, self._text)
            raise problem from None
        return Linear(call, tuple(map(self._base, found)))

    def _check_added(self, call: Call) -> None:
        """Refuse means of dates: numbers alone are added up."""
        argument = next(iter(call.arguments), None)
        if call.name != "avg" or not isinstance(argument, exp.Column):
            return
        kinds = {} if argument.table in self._joins else dict(self._catalog.columns)
        if kinds.get(argument.name, "").startswith(("DATE", "TIME")):
            raise Unsupported(
                f"AVG of a {kinds[argument.name]} where rows are estimated",
                hint=f"ask for AVG(epoch({argument.name})), which is in seconds",
            )

    def _base(self, base: Base) -> int:
        key = tuple(sorted(piece.key for piece in base))
        self._bases.setdefault(key, base)
        return list(self._bases).index(key)

    def _distribution(self, call: Call, where: list[Branch]) -> Aggregate:
        value = call.arguments[0]
        public = not self.sensitive(value) or self._has_public(value)
        if call.distinct or (public and (call.name == "mode" or self._catalog.weighted)):
            if self._catalog.weighted:
                raise aggregates.sampled(call)
            raise NotEstimable(
                f"{call.name.upper()} of a public column under a sensitive condition",
                hint="GROUP BY the column, and COUNT(*)",
            )
        rows = aggregates.rows_of(call, self._separator, where)
        base = self._base(counting(within(self._separator.value(value), rows)))
        if call.name == "mode":
            return Mode(call, (base,), value)
        fraction: exp.Expr = exp.Literal.number("0.5")
        if call.name in aggregates.QUANTILES:
            fraction = call.arguments[1]
            if next(columns_of(fraction), None) is not None:
                raise Unsupported("a quantile whose fraction is not a constant")
            if isinstance(bare(fraction), exp.Array | exp.Tuple):
                raise Unsupported("several quantiles in one call", hint="ask for each on its own")
        return Quantile(call, (base,), value, fraction, public)
