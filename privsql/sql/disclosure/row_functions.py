"""Answers as weights of rows, split by the public columns that they use.

The account of a user's answers (``policy.account``) needs the weight of every row in every answer:

    v(row) = alpha(atom) f(row)      alpha  conditions, keys and values of grouping columns alone
                                     f      those that use a measure, a *row function*

An atom is a distinct tuple of grouping columns, so alpha comes from the small table of tuples.  A
row function is a text of its own: normalised, with constants in it, so that it can be kept and
evaluated anew on rows of a later publication:

    SELECT t.rowid AS row, t.cost // 25 AS key0, 1 AS value FROM patients AS t WHERE t.cost < 500

Rows that are missing have the value 0; with keys, every class of equal keys is a function.
(reconstruction, 8)
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property

import sqlglot
from sqlglot import exp

from privsql.errors import NotSupportedError
from privsql.sql.bind.block import Block
from privsql.sql.bind.pieces import Piece
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.expressions import call, same
from privsql.sql.nodes import (
    cast,
    chained,
    choose,
    column,
    columns_of,
    conjuncts,
    copied,
    derived,
    every,
    named,
    number,
    ranked,
    sql,
    table,
    when,
    wrapped,
)
from privsql.sql.parameters import Parameters, Printed
from privsql.sql.plan.states import joined_to
from privsql.sql.printing import text_of
from privsql.sql.reconstruct.columns import GROUPING, HIDDEN, KEY, VECTOR
from privsql.sql.scan.state_scan import MULTIPLICITY

TUPLES, ROWS, GROUP, JOINED = "tuples", "privsql_rows", "privsql_group", "u"
# Columns of a row function's text, and of the tables that rows are kept in.
ROW, VALUE, VALUES, MEMBERS = "row", "value", "row_values", "row_numbers"
ATOM, TIMES = "privsql_atom", "privsql_times"


@dataclass(frozen=True)
class Weight:
    """The weight of a row in a sum: 0 unless all conditions hold, else the product of values."""

    conditions: tuple[exp.Expr, ...] = ()
    values: tuple[exp.Expr, ...] = ()

    @classmethod
    def of(cls, piece: Piece) -> Weight:
        """The public half of a piece."""
        found = {sql(part): part for guard in piece.guards for part in conjuncts(guard)}
        return cls(tuple(found.values()), () if piece.value is None else (piece.value,))

    @property
    def indicator(self) -> bool:
        """Whether it is 0 or 1."""
        return not self.values

    @cached_property
    def key(self) -> str:
        """What makes two weights the same."""
        return repr((sorted(map(sql, self.conditions)), sorted(map(sql, self.values))))

    def times(self, other: Weight) -> Weight:
        """The product of two weights; a condition counts once."""
        both = {sql(node): node for node in (*self.conditions, *other.conditions)}
        return Weight(tuple(both.values()), (*self.values, *other.values))

    def node(self) -> exp.Expr | None:
        """As one expression; None is 1."""
        if not self.conditions and not self.values:
            return None
        value: exp.Expr = number(1)
        if self.values:
            doubles = [cast(wrapped(copied(each)), "DOUBLE") for each in self.values]
            value = chained(exp.Mul, doubles)
        guard = every(copied(each) for each in self.conditions)
        return value if guard is None else cast(when(guard, value, number(0)), "DOUBLE")


@dataclass(frozen=True)
class CellSet:
    """The vectors of all cells of one grouping set."""

    atoms: Printed  # beside the table: public tuples with their keys and VECTOR, the alphas
    # In memory, where cells have keys of tuples or hidden columns: which combination of keys each
    # cell has, and the tuples of each combination with VECTOR.
    combined: Printed | None
    matched: Printed | None
    texts: Mapping[int, str | None]  # vector -> its row function; None is the constant 1
    classed: Printed | None  # in memory: which classes of a row function each cell has


class CellSets:
    """Writes the vectors of a block's cells."""

    def __init__(
        self,
        catalog: Catalog,
        block: Block,
        hidden: Sequence[exp.Expr],
        parameters: Parameters,
        prefix: str,
    ) -> None:
        self._catalog, self._block, self._hidden = catalog, block, hidden
        self._parameters, self._prefix = parameters, prefix
        self._public = [i for i, key in enumerate(block.keys) if not key.sensitive]
        self._joins = [join for join in block.rows.joins if not block.joins[join.alias]]
        self._by_atom: set[str] = set()  # joined tables whose rows a tuple decides
        if all(self._joined_by_atom(join) for join in self._joins):
            self._by_atom = {join.alias for join in self._joins}
        conditions = [part for guard in block.guards for part in conjuncts(guard)]
        self._of_atoms = [node for node in conditions if self.of_atom(node)]
        self._of_rows = [node for node in conditions if not self.of_atom(node)]

    def _joined_by_atom(self, join: object) -> bool:
        aliases = {each.alias for each in self._joins}
        return all(
            each.name in self._catalog.grouping if each.table == PUBLISHED else True
            for ours, _ in getattr(join, "on", ())
            for each in columns_of(ours)
            if each.table == PUBLISHED or each.table in aliases
        )

    def of_atom(self, node: exp.Expr) -> bool:
        """Whether the public tuple of a row decides an expression."""
        return all(
            each.name in self._catalog.grouping
            if each.table == PUBLISHED
            else each.table in self._by_atom
            for each in columns_of(node)
        )

    def write(self, weights: Mapping[int, Weight]) -> tuple[CellSet, ...]:
        """One for each grouping set, as far as public keys tell them apart."""
        public = set(self._public)
        chosen = dict.fromkeys(tuple(i for i in each if i in public) for each in self._block.sets)
        return tuple(self._set(keys, weights) for keys in chosen)

    def _set(self, keys: tuple[int, ...], weights: Mapping[int, Weight]) -> CellSet:
        mine = [i for i in keys if self.of_atom(self._block.keys[i].expression)]
        others = [i for i in keys if i not in mine]
        ways = [h for h, node in enumerate(self._hidden) if self.of_atom(node)]
        classes = [h for h, node in enumerate(self._hidden) if h not in ways]
        texts = {v: self._text(others, classes, weight) for v, weight in weights.items()}
        vectors = [VECTOR(v) for v in weights]
        bind, names = self._parameters.bind, f"{self._prefix}_cells"
        classed = None
        if others or classes:
            classed = bind(self._classed(keys, others, names, f"{self._prefix}_classes"))
        combined = matched = None
        if mine or ways or len(self._block.sets) > 1:
            combined = bind(self._combined(keys, mine, names))
            tables = f"{self._prefix}_atoms", f"{self._prefix}_combined"
            matched = bind(_matched(mine, ways, vectors, *tables))
        return CellSet(bind(self._atoms(mine, ways, weights)), combined, matched, texts, classed)

    # -- beside the table ----------------------------------------------------------------

    def _atoms(
        self, keys: Sequence[int], ways: Sequence[int], weights: Mapping[int, Weight]
    ) -> exp.Select:
        """Per distinct public tuple its keys, and alpha of each weight."""
        made = exp.Select()
        for i in keys:
            choose(made, named(copied(self._block.keys[i].expression), KEY(i)))
        for h in ways:
            choose(made, named(copied(self._hidden[h]), HIDDEN(h)))
        choose(made, named(column("rowid", PUBLISHED), "atom"))
        for v, weight in weights.items():
            own = Weight(
                tuple(node for node in weight.conditions if self.of_atom(node)),
                tuple(node for node in weight.values if self.of_atom(node)),
            )
            choose(made, named(cast(wrapped(own.node() or number(1)), "DOUBLE"), VECTOR(v)))
        made.from_(_stored(TUPLES, PUBLISHED), copy=False)
        if self._by_atom:
            made = self._joined(made)
        for guard in self._of_atoms:
            made.where(copied(guard), copy=False)
        return made

    def _joined(self, made: exp.Select) -> exp.Select:
        for join in self._joins:
            made = joined_to(made, join.table, join.alias, join.on, join.kind)
        return made

    # -- rows ----------------------------------------------------------------------------

    def _text(self, keys: Sequence[int], hidden: Sequence[int], weight: Weight) -> str | None:
        """A row function's text, None where no measure takes part."""
        conditions = [*self._of_rows, *(c for c in weight.conditions if not self.of_atom(c))]
        values = [node for node in weight.values if not self.of_atom(node)]
        shown = {KEY(i): self._block.keys[i].expression for i in keys}
        shown |= {HIDDEN(h): self._hidden[h] for h in hidden}
        used = [*conditions, *values, *shown.values()]
        dropping = bool(self._joins) and not self._by_atom  # a join may leave rows out
        if not used and not dropping:
            return None
        made = exp.Select(expressions=[named(column("rowid", PUBLISHED), ROW)])
        for name, node in shown.items():
            choose(made, named(copied(node), name))
        value = Weight((), tuple(values)).node() or number(1)
        choose(made, named(value, VALUE))
        made.from_(table(self._catalog.table, PUBLISHED), copy=False)
        if dropping or _uses(used, {join.alias for join in self._joins}):
            made = self._joined(made)
        found = {sql(node): node for node in conditions}
        for text in sorted(found):
            made.where(copied(found[text]), copy=False)
        return text_of(inlined(made, self._parameters), used_up=True)

    # -- in memory -----------------------------------------------------------------------

    def _of_set(self, keys: Sequence[int]) -> list[exp.Expr]:
        """Whether a cell is of this grouping set."""
        return [
            exp.EQ(this=column(GROUPING(i), "cells"), expression=number(int(i not in keys)))
            for i in self._public
        ]

    def _combined(self, keys: Sequence[int], mine: Sequence[int], cells: str) -> exp.Select:
        made = exp.Select(expressions=[column("cell", "cells")])
        choose(made, *(column(KEY(i), "cells") for i in mine))
        rank: exp.Expr = number(0)
        if mine:
            rank = ranked(*(column(KEY(i), "cells") for i in mine))
        choose(made, named(rank, "combination"))
        made.from_(table(cells, "cells"), copy=False)
        of_set = every(self._of_set(keys))
        if of_set is not None:
            made.set("where", exp.Where(this=of_set))
        return made.order_by(column("cell"), copy=False)

    def _classed(
        self, keys: Sequence[int], others: Sequence[int], cells: str, classes: str
    ) -> exp.Select:
        made = exp.Select(expressions=[column("cell", "cells"), column("class", "classes")])
        made.from_(table(cells, "cells"), copy=False)
        on = every(
            [
                *(same(column(KEY(i), "cells"), column(KEY(i), "classes")) for i in others),
                *self._of_set(keys),
            ]
        )
        joined = {"kind": "CROSS"} if on is None else {"on": on}
        made.append("joins", exp.Join(this=table(classes, "classes"), **joined))
        return made.order_by(column("cell"), column("class"), copy=False)


def _matched(
    keys: Sequence[int], ways: Sequence[int], vectors: Sequence[str], atoms: str, combined: str
) -> exp.Select:
    """The tuples of every combination of keys, in order.

    ``way`` tells the values of hidden columns apart: each is a vector of its own, since the
    sensitive half may be another one.
    """
    made = exp.Select(expressions=[column("combination", "cells"), column("atom", "atoms")])
    way: exp.Expr = number(0)
    if ways:
        way = ranked(*(column(HIDDEN(h), "atoms") for h in ways))
    choose(made, named(way, "way"), *(column(each, "atoms") for each in vectors))
    made.from_(table(atoms, "atoms"), copy=False)
    inner = exp.Select(expressions=[column("combination"), *(column(KEY(i)) for i in keys)])
    inner.from_(table(combined), copy=False)
    inner.distinct(copy=False)
    on = every(same(column(KEY(i), "atoms"), column(KEY(i), "cells")) for i in keys)
    joined = {"kind": "CROSS"} if on is None else {"on": on}
    made.append("joins", exp.Join(this=derived(inner, "cells"), **joined))
    return made.order_by(column("combination"), column("way"), column("atom"), copy=False)


def _uses(nodes: Iterable[exp.Expr], aliases: set[str]) -> bool:
    return any(each.table in aliases for node in nodes for each in columns_of(node))


def _stored(name: str, alias: str) -> exp.Table:
    made = table(name, alias)
    made.set("db", exp.to_identifier("privsql"))
    return made


# -- constants ----------------------------------------------------------------------------


def inlined(tree: exp.Expr, parameters: Parameters) -> exp.Expr:
    """The tree with the values of its parameters in their place, each of its own type."""
    for node in list(tree.find_all(exp.Placeholder)):
        node.replace(_constant(parameters.values[str(node.this)]))
    return tree


def _constant(value: object) -> exp.Expr:
    if value is None:
        return exp.Null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, int):
        made: exp.Expr = number(abs(value))
        return exp.Paren(this=exp.Neg(this=made)) if value < 0 else made
    if isinstance(value, list | tuple):
        return exp.Array(expressions=[_constant(each) for each in value])
    for kind, name in _TYPES:
        if isinstance(value, kind):
            return cast(exp.Literal.string(str(value)), name(value))
    raise NotSupportedError(
        f"a parameter of the type {type(value).__name__} in a public condition",
        hint="write the condition with a number, a text or a date",
    )


def _decimal(value: object) -> str:
    _, digits, exponent = Decimal(str(value)).as_tuple()
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    width = max(len(digits) + (max(0, exponent) if isinstance(exponent, int) else 0), scale, 1)
    return f"DECIMAL({min(width, 38)}, {min(scale, 38)})"


_TYPES = (
    (float, lambda _: "DOUBLE"),
    (Decimal, _decimal),
    (datetime.datetime, lambda value: "TIMESTAMPTZ" if value.tzinfo else "TIMESTAMP"),
    (datetime.date, lambda _: "DATE"),
    (datetime.time, lambda _: "TIME"),
    (uuid.UUID, lambda _: "UUID"),
)


# -- rows that are kept --------------------------------------------------------------------


def tuples_scan(catalog: Catalog) -> Printed:
    """The distinct public tuples: their grouping columns, row counts and personal groups."""
    names = [named(column(name, PUBLISHED), name) for name in catalog.grouping]
    made = exp.Select(expressions=[*names, column(ROWS, PUBLISHED), column(GROUP, PUBLISHED)])
    made.from_(_stored(TUPLES, PUBLISHED), copy=False)
    return Printed(text_of(made.order_by(column("rowid", PUBLISHED), copy=False)))


def rows_scan(catalog: Catalog) -> Printed:
    """The distinct public rows: public tuple, measures, and how many rows are like it."""
    atom = named(column("rowid", JOINED), ATOM)
    measures = [named(column(name, PUBLISHED), name) for name in catalog.measures]
    many: exp.Expr = exp.Count(this=exp.Star())
    if catalog.multiplicity:
        many = exp.Sum(this=column(MULTIPLICITY, PUBLISHED))
    made = exp.Select(expressions=[atom, *measures, named(cast(many, "BIGINT"), TIMES)])
    made.from_(table(catalog.table, PUBLISHED), copy=False)
    on = every(same(column(name, PUBLISHED), column(name, JOINED)) for name in catalog.grouping)
    made.append("joins", exp.Join(this=_stored(TUPLES, JOINED), on=on or exp.Boolean(this=True)))
    made.set("group", exp.Group(all=True))
    return Printed(text_of(made.order_by(column(ATOM), copy=False)))


def content_scan(catalog: Catalog) -> Printed:
    """A digest of the public rows, whatever their order."""
    public = [name for name, _ in catalog.columns if name not in catalog.sensitive]
    hashed = call("hash", *(column(name) for name in public)) if public else number(0)
    many = column(MULTIPLICITY) if catalog.multiplicity else number(1)
    spread = exp.Mul(this=cast(hashed, "HUGEINT"), expression=many)
    made = exp.Select(expressions=[named(cast(exp.Sum(this=spread), "VARCHAR"), "content")]).from_(
        table(catalog.table), copy=False
    )
    return Printed(text_of(made))


def function_scan(text: str, stored: str, types: Mapping[str, str]) -> Printed:
    """A row function over rows that are kept: its rows and values."""
    tree = _over(sqlglot.parse_one(text, dialect="duckdb"), stored, types)
    return Printed(text_of(tree, used_up=True))


def functions_scan(
    texts: Sequence[str], stored: str, types: Mapping[str, str]
) -> list[tuple[Printed, tuple[str, ...]]]:
    """Several row functions without keys: scans, and the functions that each has values of.

    Functions of the same rows are columns ``value_0``, ``value_1``, .. of one scan.
    """
    shared: dict[tuple[object, ...], list[tuple[str, exp.Expr]]] = {}
    for text in texts:
        tree = sqlglot.parse_one(text, dialect="duckdb")
        same = tuple((k, _frozen(v)) for k, v in tree.args.items() if v and k != "expressions")
        shared.setdefault(same, []).append((text, tree))
    made = []
    for some in shared.values():
        whole = _over(some[0][1], stored, types)
        values = [_value(tree) for _, tree in some[1:]]
        for n, node in enumerate((_value(whole), *values)):
            node.set("alias", exp.to_identifier(f"{VALUE}_{n}"))
        whole.set("expressions", [*whole.expressions, *map(_filled, values)])
        printed = Printed(text_of(whole, used_up=True))
        made.append((printed, tuple(text for text, _ in some)))
    return made


def _frozen(node: object) -> object:
    return tuple(node) if isinstance(node, list) else node


def _value(tree: exp.Expr) -> exp.Expr:
    """The value of a row function."""
    found: exp.Expr = next(node for node in tree.expressions if node.alias == VALUE)
    return found


def classes_scan(text: str, stored: str, types: Mapping[str, str]) -> Printed:
    """A row function with keys: every class of them, with its rows and values."""
    tree = _over(sqlglot.parse_one(text, dialect="duckdb"), stored, types)
    keys = [node.alias for node in tree.expressions if node.alias not in (ROW, VALUE)]
    made = exp.Select(expressions=[column(name) for name in keys])
    choose(made, named(call("list", column(ROW)), MEMBERS))
    choose(made, named(call("list", column(VALUE)), VALUES))
    made.from_(derived(tree, "rows"), copy=False)
    return Printed(text_of(made.group_by(*map(column, keys), copy=False), used_up=True))


def has_keys(text: str) -> bool:
    """Whether a row function's text has keys."""
    return len(sqlglot.parse_one(text, dialect="duckdb").expressions) > 2


def _over(tree: exp.Expr, stored: str, types: Mapping[str, str]) -> exp.Expr:
    """A row function over a stored copy of its table, whose columns have their own types again."""
    source = tree.args["from_"].this
    inner = exp.Select(expressions=[named(column("rowid"), "rowid")])
    choose(inner, *(named(cast(column(name), kind), name) for name, kind in types.items()))
    inner.from_(table(stored), copy=False)
    source.replace(derived(inner, PUBLISHED))
    _filled(_value(tree))
    return tree


def _filled(value: exp.Expr) -> exp.Expr:
    """A value with 0 for NULL, as a number, in place."""
    number_ = cast(wrapped(value.this), "DOUBLE")
    value.set("this", exp.Coalesce(this=number_, expressions=[number(0)]))
    return value


def common_scan(columns: Sequence[str], numbers: tuple[str, str], one: str, two: str) -> Printed:
    """Rows of one table and those of another that are equal in some columns, by their numbers."""
    first, second = numbers
    made = exp.Select(
        expressions=[named(column(first, "a"), "one"), named(column(second, "b"), "two")]
    )
    made.from_(table(one, "a"), copy=False)
    on = every(same(column(name, "a"), column(name, "b")) for name in columns)
    joined = exp.Join(this=table(two, "b"), side="LEFT", on=on or exp.Boolean(this=True))
    made.append("joins", joined)
    return Printed(text_of(made))
