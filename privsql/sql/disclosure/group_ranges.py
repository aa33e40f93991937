"""The personal groups behind each cell of an answer, as a separate scan.

A cell is personal when all rows that matter to it lie in one personal group; so it is decided on
the data and not on the text, and every spelling is caught.  What matters to an aggregate are rows
where the public half of one of its pieces is not 0, WHERE, FILTER and CASE together, and where the
sensitive half is not a constant (see ``informative``): a constant says nothing about anybody.

    per public keys (and hidden columns):   group_low<s>, group_high<s>
                                            group_rows<s>

s is a base of aggregates where that can be settled beforehand.  Where public columns are hidden in
sensitive halves, or sensitive columns make groups, s is a piece, and ``informative`` puts pieces
together afterwards.

Groups are a function of the public grouping columns, so the small table of distinct public
tuples is enough where nothing else is used; conditions on measures need the rows themselves.
(reconstruction, 8)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from sqlglot import exp

from privsql.sql.bind.block import Aggregate, Block, pieces_of_block
from privsql.sql.bind.pieces import Piece
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.expressions import call, same
from privsql.sql.nodes import (
    cast,
    chained,
    choose,
    column,
    columns_of,
    copied,
    every,
    named,
    number,
    ranked,
    sql,
    star_of,
    table,
    wrapped,
)
from privsql.sql.plan.states import joined_to
from privsql.sql.reconstruct.columns import (
    AGGREGATE,
    BARS,
    EFFECTIVE,
    GROUP_BITS,
    GROUP_HIGH,
    GROUP_LOW,
    GROUP_ROWS,
    GROUP_SQUARES,
    GROUP_SUM,
    GROUPING,
    HIDDEN,
    KEY,
    OBSERVED,
    PERSONAL_GROUP,
    REFUSED,
    SECRET,
    SKETCH,
    SUPPORT,
    SUPPORT_WEIGHT,
    TIMES,
    VECTOR,
    Family,
)
from privsql.sql.scan.state_scan import GROUP, MULTIPLICITY, half_of

TUPLES, ROWS, JOINED = "tuples", "privsql_rows", "u"
# What the numbers are made with that each row has of its own, to tell rows of one tuple apart.
SALT = "rows_salt"
# A scan of the tuples pays where there are so many times fewer of them than rows.
FEWER = 8
JUDGED = ("linear", "quantile", "mode")


def judged(block: Block, informative: Sequence[bool]) -> dict[int, tuple[int, ...]]:
    """The bases of each aggregate that tell something of a sensitive value.

    Each is judged for itself: the others of a formula may be known, as in CORR(age, <one group>).
    """
    _, bases = pieces_of_block(block)
    found: dict[int, tuple[int, ...]] = {}
    for i, aggregate in enumerate(block.aggregates):
        if aggregate.kind in JUDGED:
            made = [k for k in asked(aggregate) if any(informative[t] for t in bases[k])]
            if made:
                found[i] = tuple(dict.fromkeys(made))
    return found


def asked(aggregate: Aggregate) -> tuple[int, ...]:
    """The bases that count: SUM's second only tells whether there is anything to add up."""
    return aggregate.bases[:1] if aggregate.call.name == "sum" else aggregate.bases


class Membership:
    """Writes scans over rows, or distinct public tuples, with their personal groups."""

    def __init__(self, catalog: Catalog, block: Block, hidden: Sequence[exp.Expr] = ()) -> None:
        self._catalog = catalog
        self._block = block
        self._hidden = hidden
        self._public = [(i, key) for i, key in enumerate(block.keys) if not key.sensitive]

    # -- smallest and largest group -----------------------------------------------------

    def ranges(self, supports: Mapping[int, Support]) -> exp.Select:
        """Smallest and largest group, and rows, where each support holds."""
        small = self._grouping_only(each.node for each in supports.values())
        made = self._keyed()
        group = column(GROUP, self._owner(small))
        for s, support in supports.items():
            many = small or self._catalog.multiplicity
            choose(made, *ranged(s, support, group, self._rows(small) if many else None))
        return self._grouped(self._from(made, small))

    def inside(self, supports: Mapping[int, Support]) -> bool:
        """Whether the scan of the block itself had better bring these ranges.

        That is where rows have to be looked at anyway, or tuples are hardly fewer than they.
        """
        if not self._catalog.grouped or self._several or self._hidden:
            return False
        many = self._catalog.tuples * FEWER > self._catalog.rows
        return many or not self._grouping_only(each.node for each in supports.values())

    def watched(
        self, supports: Mapping[int, Support], packed: bool
    ) -> tuple[list[exp.Expr], list[exp.Expr]]:
        """The same ranges for the block's own scan: columns of rows, aggregates over them.

        Packed, one aggregate stands for two, which a million groups feel: GROUP_BITS has the bits
        that some group number has above those that some lack.  All rows are of one group exactly
        where no bit is in both.
        """
        group: exp.Expr = column(GROUP, PUBLISHED)
        if packed:
            wide = cast(group, "UBIGINT")
            high = exp.Mul(this=wide, expression=number(2**32))
            low = exp.Sub(this=number(2**32 - 1), expression=wide)
            group = exp.Add(this=high, expression=exp.Paren(this=low))
        inner: list[exp.Expr] = [named(group, PERSONAL_GROUP)]
        outer: list[exp.Expr] = []
        rows = column(TIMES) if self._catalog.multiplicity else None
        for s, support in supports.items():
            where = weight = None
            if support.where is not None:
                inner.append(named(support.where, SUPPORT(s)))
                where = column(SUPPORT(s))
            if support.weight is not None:
                inner.append(named(support.weight, SUPPORT_WEIGHT(s)))
                weight = column(SUPPORT_WEIGHT(s))
            outer += ranged(s, Support(where, weight), column(PERSONAL_GROUP), rows, packed)
        return inner, outer

    # -- atoms --------------------------------------------------------------------------

    def atoms(self, vectors: Mapping[int, exp.Expr | None], former: bool = False) -> exp.Select:
        """Per cell and distinct public tuple, the sum VECTOR of each weight over its rows.

        Those are the vectors of which ``policy.leverage`` keeps account.  Where a measure tells
        rows of one tuple apart, sums could cancel: SKETCH are those of the weights times
        numbers that only we know, one for each row (see ``policy.vectors``).  ``former`` asks
        for the numbers of histories of format 1.
        """
        small = self._grouping_only(vectors.values())
        made = self._keyed()
        atom = column("rowid", PUBLISHED if small else JOINED)
        choose(made, named(atom, "atom"))
        for v, weight in vectors.items():
            rows = cast(self._rows(small), "DOUBLE")
            term = rows if weight is None else exp.Mul(this=wrapped(weight), expression=rows)
            choose(made, named(exp.Sum(this=term), VECTOR(v)))
            for b in range(0 if small else sketches(self._catalog)):
                secret = exp.Mul(this=term, expression=secret_number(b, former))
                choose(made, named(exp.Sum(this=secret), SKETCH(v, b)))
        return self._grouped(self._from(made, small, tuples=True), atom)

    # -- parts --------------------------------------------------------------------------

    def _keyed(self) -> exp.Select:
        made = exp.Select()
        for i, key in self._public:
            choose(made, named(copied(key.expression), KEY(i)))
        for i, key in self._public:
            flag: exp.Expr = number(0)
            if self._several:
                flag = exp.Grouping(expressions=[copied(key.expression)])
            choose(made, named(flag, GROUPING(i)))
        for i, node in enumerate(self._hidden):
            choose(made, named(copied(node), HIDDEN(i)))
        return made

    @property
    def _several(self) -> bool:
        sets = self._block.sets
        return len(sets) > 1 or any(len(s) != len(self._block.keys) for s in sets)

    def _owner(self, small: bool) -> str:
        return PUBLISHED if small or self._catalog.grouped else JOINED

    def _rows(self, small: bool) -> exp.Expr:
        if small:
            return column(ROWS, PUBLISHED)
        return column(MULTIPLICITY, PUBLISHED) if self._catalog.multiplicity else number(1)

    def _from(self, made: exp.Select, small: bool, tuples: bool = False) -> exp.Select:
        if small:
            made.from_(_tuples(PUBLISHED), copy=False)
        else:
            made.from_(table(self._catalog.table, PUBLISHED), copy=False)
            if tuples or not self._catalog.grouped:
                made.append("joins", _with_tuples(self._catalog))
        for join in self._block.rows.joins:
            if not self._block.joins[join.alias]:
                made = joined_to(made, join.table, join.alias, join.on, join.kind)
        for guard in self._block.guards:
            made.where(copied(guard), copy=False)
        return made

    def _grouped(self, made: exp.Select, *more: exp.Expr) -> exp.Select:
        keys = {i: key.expression for i, key in self._public}
        chosen = dict.fromkeys(tuple(i for i in each if i in keys) for each in self._block.sets)
        sets = [
            [copied(node) for node in (*(keys[i] for i in each), *more, *self._hidden)]
            for each in (chosen if self._several else [keys])
        ]
        if self._several:
            tuples = [exp.Tuple(expressions=each) for each in sets]
            made.set("group", exp.Group(expressions=[exp.GroupingSets(expressions=tuples)]))
        elif sets[0]:
            made.group_by(*sets[0], copy=False)
        return made

    def _grouping_only(self, selecting: Iterable[exp.Expr | None]) -> bool:
        """Whether nothing but grouping columns decides which rows are selected."""
        nodes = [*self._block.guards, *self._hidden, *filter(None, selecting)]
        nodes += [key.expression for _, key in self._public]
        for join in self._block.rows.joins:
            if not self._block.joins[join.alias]:
                nodes += [ours for ours, _ in join.on]
        used = {c.name for node in nodes for c in columns_of(node) if c.table == PUBLISHED}
        return used <= set(self._catalog.grouping)


def sketches(catalog: Catalog) -> int:
    """How many numbers of its own each row has.

    With few, what answers tell of rows within a tuple looks like more than it is, and more is
    refused than must be; with many tuples more of them would be too dear.
    """
    return max(3, min(16, 20_000 // max(1, catalog.tuples)))


def secrets_of_tuples(catalog: Catalog, former: bool = False) -> exp.Select:
    """Per distinct public tuple, the sums SECRET of the rows' secret numbers."""
    atom = column("rowid", JOINED)
    made = exp.Select(expressions=[named(atom, "atom")])
    rows: exp.Expr = number(1.0)
    if catalog.multiplicity:
        rows = cast(column(MULTIPLICITY, PUBLISHED), "DOUBLE")
    for b in range(sketches(catalog)):
        secret = exp.Mul(this=rows, expression=secret_number(b, former))
        choose(made, named(exp.Sum(this=secret), SECRET(b)))
    made.from_(table(catalog.table, PUBLISHED), copy=False)
    made.append("joins", _with_tuples(catalog))
    return made.group_by(copied(atom), copy=False).order_by(column("atom"), copy=False)


def secret_number(b: int, former: bool = False) -> exp.Expr:
    """A row's number between -sqrt(3) and sqrt(3), of variance 1; the salt is bound.

    DuckDB's hash of two values is an XOR of a hash of each, so the numbers of one row are nearly
    one number; a hash of that hash makes them independent.  ``former`` are the dependent ones,
    in which histories of format 1 are written.
    """
    salt = exp.Add(this=exp.Placeholder(this=SALT), expression=number(b))
    hashed = call("hash", column("rowid", PUBLISHED), salt)
    share = exp.Div(
        this=cast(hashed if former else call("hash", hashed), "DOUBLE"),
        expression=number(2.0**64),
        typed=False,
        safe=False,
    )
    centred = exp.Sub(this=wrapped(share), expression=number(0.5))
    return exp.Mul(this=number(12.0**0.5), expression=wrapped(centred))


def _tuples(alias: str) -> exp.Table:
    made = table(TUPLES, alias)
    made.set("db", exp.to_identifier("privsql"))
    return made


def _with_tuples(catalog: Catalog) -> exp.Join:
    """Each published row with its public tuple."""
    on = every(same(column(name, PUBLISHED), column(name, JOINED)) for name in catalog.grouping)
    return exp.Join(this=_tuples(JOINED), on=on or exp.Boolean(this=True))


def _same_cell(keys: Sequence[int], one: str, two: str) -> exp.Expr | None:
    """Whether rows of two tables are of one cell, as far as these keys tell."""
    equal = [same(column(KEY(i), one), column(KEY(i), two)) for i in keys]
    equal += [
        exp.EQ(this=column(GROUPING(i), one), expression=column(GROUPING(i), two)) for i in keys
    ]
    return every(equal)


def matched(block: Block, values: Sequence[str], hidden: int, atoms: str, cells: str) -> exp.Select:
    """The atoms of every cell with their ``values``, by the cell's number, in order.

    ``way`` tells the values of hidden columns apart: each is a vector of its own, since the
    sensitive half may be another one.
    """
    public = [i for i, key in enumerate(block.keys) if not key.sensitive]
    made = exp.Select(expressions=[column("cell", "cells"), column("atom", "atoms")])
    ways: exp.Expr = number(0)
    if hidden:
        ways = ranked(*(column(HIDDEN(i), "atoms") for i in range(hidden)))
    choose(made, named(ways, "way"), *(column(value, "atoms") for value in values))
    made.from_(table(atoms, "atoms"), copy=False)
    on = _same_cell(public, "atoms", "cells")
    joined = {"kind": "CROSS"} if on is None else {"on": on}
    made.append("joins", exp.Join(this=table(cells, "cells"), **joined))
    made.order_by(column("cell"), column("way"), column("atom"), copy=False)
    return made


def gathered(block: Block, supports: Mapping[int, bool], scan: str) -> exp.Select:
    """Ranges per cell from a scan that has them per published state; which are weighted."""
    public = [i for i, key in enumerate(block.keys) if not key.sensitive]
    made = exp.Select(expressions=[column(KEY(i)) for i in public])
    choose(made, *(named(number(0), GROUPING(i)) for i in public))
    for s, weighted in supports.items():
        for family, node in PARTS[: None if weighted else 3]:
            choose(made, named(call(node, column(family(s))), family(s)))
    made.from_(table(scan), copy=False)
    if public:
        made.group_by(*(column(KEY(i)) for i in public), copy=False)
    return made


@dataclass(frozen=True)
class Support:
    """The rows that matter to a sum: where its public halves are not 0, and how much each does.

    ``weight`` is None where they are 0 or 1.
    """

    where: exp.Expr | None  # None stands for everywhere
    weight: exp.Expr | None

    @property
    def node(self) -> exp.Expr | None:
        """Everything in it that may name a column."""
        return self.where if self.weight is None else self.weight

    @classmethod
    def of(cls, pieces: Iterable[Piece]) -> Support:
        """Of several pieces together."""
        pieces = list(pieces)
        halves = [half_of(piece) for piece in pieces]
        weight: exp.Expr | None = None
        if not all(half.indicator for half in halves):
            nodes = {sql(half.node): half.node for half in halves if half.node is not None}
            weight = chained(exp.Add, (exp.Abs(this=node) for node in nodes.values()))
        return cls(support_of(pieces), weight)


# What is kept of a support, and how parts of it are put together.
PARTS = (
    (GROUP_LOW, "min"),
    (GROUP_HIGH, "max"),
    (GROUP_ROWS, "sum"),
    (GROUP_SUM, "sum"),
    (GROUP_SQUARES, "sum"),
)


def ranged(
    s: int, support: Support, group: exp.Expr, rows: exp.Expr | None, packed: bool = False
) -> list[exp.Expr]:
    """Groups and rows of a support and, where rows weigh differently, the sums of |w| and w^2.

    Their ratio (sum |w|)^2 / sum w^2 is the number of rows that the sum is really about.  ``rows``
    is how many each stands for; None is one.
    """
    parts: dict[Family, exp.Expr] = {GROUP_BITS: call("bit_or", group)}
    if not packed:
        parts = {GROUP_LOW: exp.Min(this=group), GROUP_HIGH: exp.Max(this=group)}
    counted = exp.Count(this=exp.Star(), big_int=True)
    parts[GROUP_ROWS] = counted if rows is None else exp.Sum(this=rows)
    if support.weight is not None:
        heavy = wrapped(support.weight)
        if rows is not None:
            heavy = exp.Mul(this=heavy, expression=rows)
        parts[GROUP_SUM] = exp.Sum(this=heavy)
        squares = exp.Mul(this=wrapped(support.weight), expression=heavy)
        parts[GROUP_SQUARES] = exp.Sum(this=squares)
    if support.where is not None:
        where = exp.Where(this=support.where)
        parts = {each: exp.Filter(this=node, expression=where) for each, node in parts.items()}
    total = exp.Coalesce(this=parts[GROUP_ROWS], expressions=[number(0)])
    parts[GROUP_ROWS] = cast(total, "BIGINT")
    return [named(node, family(s)) for family, node in parts.items()]


def support_of(pieces: Iterable[Piece]) -> exp.Expr | None:
    """Where the public half of one of the pieces is not 0; None stands for everywhere."""
    found: dict[str, exp.Expr] = {}
    for piece in pieces:
        parts = list(piece.guards)
        if piece.value is not None and next(columns_of(piece.value), None) is not None:
            parts.append(exp.NEQ(this=wrapped(piece.value), expression=number(0)))
        whole = every(copied(part) for part in parts)
        if whole is None:
            return None
        found.setdefault(sql(whole), whole)
    if not found:
        return None
    return reduce(lambda a, b: exp.Or(this=wrapped(a), expression=wrapped(b)), found.values())


def masked(
    prefix: str,
    block: Block,
    hidden: Sequence[int],
    classes: bool,
    traces: Mapping[str, tuple[int, ...]],
) -> exp.Select:
    """The block's table with refused cells empty: their error and their trace as well.

    ``classes`` says whether the mask tells sensitive keys apart, too; ``traces`` are further
    columns that would tell of aggregates.
    """
    made = exp.Select().from_(table(f"{prefix}_open", "block"), copy=False)
    known = [i for i, key in enumerate(block.keys) if classes or not key.sensitive]
    on = _same_cell(known, "block", "mask")
    join = {"kind": "CROSS"} if on is None else {"side": "LEFT", "on": on}
    made.append("joins", exp.Join(this=table(f"{prefix}_mask", "mask"), **join))
    covered = {
        family(i): (i,)
        for i in hidden
        for family in (AGGREGATE, *BARS.values(), EFFECTIVE, OBSERVED)
    }
    replaced = []
    for name, those in {**covered, **traces}.items():
        whens = [
            exp.If(
                this=exp.EQ(this=column(REFUSED(i), "mask"), expression=exp.Boolean(this=True)),
                true=exp.Null(),
            )
            for i in those
        ]
        replaced.append(named(exp.Case(ifs=whens, default=column(name, "block")), name))
    return choose(made, star_of("block", replaced))
