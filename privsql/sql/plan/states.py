"""States: the joint cells of a block's sensitive columns.

Each sensitive column is seen only through *atoms*, the largest parts of expressions that
hold it alone.  Evaluated over its domain they split it into cells (values that no atom tells
apart, refined where the channel asks for it), and the cells of all columns together make the
states:

    WHERE age > 30 AND disease IN ('flu', 'hiv')      atoms  age > 30 | disease IN (...)
                                                      cells  2        x 2        = 4 states

Everything sensitive in the block becomes SQL over one small table of states, in which an
atom is a column; the engine's own semantics decide, NULL included.  (reconstruction, 2)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privsql.channels import Channel
from privsql.channels.cells import Cells, refine
from privsql.channels.channel import MATRIX_LIMIT
from privsql.channels.domain import MATERIALISE_LIMIT
from privsql.channels.mechanisms import Replace, Uniform
from privsql.errors import TooLargeError
from privsql.sql.bind.block import Block, owners
from privsql.sql.bind.from_clause import Equality
from privsql.sql.catalog import PUBLISHED, WHOLE, Catalog
from privsql.sql.nodes import (
    chained,
    column,
    columns_of,
    copied,
    derived,
    named,
    ranked,
    replace_below,
    select,
    sql,
    table,
    wrapped,
)
from privsql.sql.plan.grids import listed, representatives, too_large
from privsql.sql.reconstruct.columns import ATOM, CODE, HIDDEN, TRUTH, UNKNOWN

MOST_STATES = 2**16
# Where columns can be reconstructed one by one no list has an entry for each of them; they are
# looked at once all the same, to see which of an answer's cells are about sensitive values.
MOST_SEPARABLE = 2**20
MOST_BITS = 6

# Numbers that the channel may take beside the groups of sensitive keys: each group's functions
# travel with it.  One column is grouped by up to 512 values so (1 GB).
MOST_HELD = 2**27

Run = Callable[[exp.Expr], pa.Table]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """One sensitive column of a block and its cells."""

    column: str
    atoms: tuple[exp.Expr, ...]
    bits: bool  # the scan sends truth values of the atoms; otherwise the published value
    null_bits: tuple[bool, ...]  # which atoms may be UNKNOWN
    cells: pa.Table  # cell, one column an atom (x<axis>_<atom>), in order of cells
    codes: pa.Table  # what the scan sends -> cell
    factor: Floats  # (cells, cells)
    channel: Channel
    # Of the cells: what replaces a value, or the published column where that is looked at.
    masses: Floats | None
    mechanism: str

    @property
    def count(self) -> int:
        """How many cells there are."""
        return len(self.factor)

    @property
    def independent(self) -> bool:
        """Whether rows were perturbed independently of each other."""
        return self.mechanism not in WHOLE

    @cached_property
    def fixed(self) -> bool:
        """Whether no value was replaced."""
        return bool((self.factor == np.eye(self.count)).all())

    @property
    def retention(self) -> float:
        """The retention of a column that keeps or replaces its values."""
        return float(self.channel.retention)  # type: ignore[attr-defined]

    @property
    def scored(self) -> bool:
        """Whether a count under a condition on this column alone has the score interval."""
        return self.masses is not None and self.independent

    @cached_property
    def _places(self) -> dict[str, int]:
        return {sql(each): i for i, each in reversed([*enumerate(self.atoms)])}

    def values(self, atom: str) -> pa.ChunkedArray[Any] | None:
        """The values on the cells of an atom as it is printed; None for what is none of these."""
        place = self._places.get(atom)
        return None if place is None else self.cells.column(1 + place)


@dataclass(frozen=True)
class States:
    """The axes of a block, and its sensitive expressions over the table of states."""

    axes: tuple[Axis, ...]
    hidden: tuple[exp.Expr, ...]  # public columns that could not be separated
    written: dict[str, exp.Expr]  # canonical sensitive expression -> over states
    rows: int | None = None  # of the whole published table, where that is known
    # Canonical sensitive expression -> the axes along which it varies; None where public columns
    # are hidden in it.
    along: Mapping[str, frozenset[int] | None] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many states there are."""
        return prod(axis.count for axis in self.axes)

    def masses(self, i: int) -> Floats:
        """Masses of the cells of axis i as a list over states.

        It stands where all other cells are the first ones: the product with a function that
        varies along axis i alone is that function's mean.
        """
        masses = self.axes[i].masses
        if masses is None:
            raise AssertionError("the cells of this axis have no masses")
        shape = [axis.count for axis in self.axes]
        made = np.zeros(shape)
        made[tuple(slice(None) if k == i else 0 for k in range(len(shape)))] = masses
        return made.ravel()

    def floor(self, axes: Collection[int]) -> Floats:
        """Least chance, over original states, of being published in each state.

        Of axes that nothing varies along, the first cell stands for all.
        """
        made = np.ones(1)
        for i, factor in enumerate(self.factors):
            least = factor.min(axis=0) if i in axes else np.eye(len(factor))[0]
            made = np.outer(made, least).ravel()
        return made

    @property
    def factors(self) -> list[Floats]:
        """The channel of each axis between its cells."""
        return [axis.factor for axis in self.axes]


@dataclass(frozen=True)
class _Cut:
    """A sensitive column's domain, split by the atoms of a block."""

    name: str
    atoms: tuple[exp.Expr, ...]
    evaluated: pa.Table  # value, a<atom>.., cell, in the domain's order
    plain: Cells  # values that no atom tells apart
    cells: Cells  # the same, refined where the channel asks for it
    counts: NDArray[np.int64] | None  # values that each row stands for; None: one


@dataclass(frozen=True)
class Planner:
    """Finds atoms, evaluates them over domains and makes cells."""

    catalog: Catalog
    block: Block
    run: Run
    domain: Callable[[str], str]
    separable: bool = False  # whether columns can be reconstructed one by one
    _atoms: dict[str, dict[str, exp.Expr]] = field(default_factory=dict)
    _hidden: dict[str, exp.Expr] = field(default_factory=dict)

    def plan(self, expressions: Sequence[exp.Expr]) -> States:
        """States for these sensitive expressions."""
        for node in expressions:
            self._collect(node)
        cuts = [self._cut(name) for name in self.catalog.sensitive if name in self._atoms]
        self._check_size(cuts)
        axes = tuple(self._axis(i, cut) for i, cut in enumerate(cuts))
        places = {text: column(HIDDEN(i)) for i, text in enumerate(self._hidden)}
        varying: dict[str, frozenset[int]] = {}
        for i, cut in enumerate(cuts):
            for n, text in enumerate(self._atoms[cut.name]):
                places[text] = column(TRUTH(i, n))
                several = len(axes[i].cells.column(1 + n).unique()) > 1
                varying[text] = frozenset([i] if several else [])
        written = {sql(node): _written(node, places) for node in expressions}
        along = {sql(node): self._along(node, varying) for node in expressions}
        return States(axes, tuple(self._hidden.values()), written, self.catalog.rows, along)

    def _along(
        self, node: exp.Expr, varying: Mapping[str, frozenset[int]]
    ) -> frozenset[int] | None:
        """The axes along which an expression varies, by those of its atoms."""
        text = sql(node)
        if text in varying or text in self._hidden:
            return varying.get(text)
        found = [self._along(child, varying) for child in _operands(node)]
        known = [own for own in found if own is not None]
        return frozenset().union(*known) if len(known) == len(found) else None

    def _owners(self, node: exp.Expr) -> set[str]:
        return owners(node, self.catalog, self.block.joins)

    def _collect(self, node: exp.Expr) -> None:
        found = self._owners(node)
        if len(found) == 1:
            owner = found.pop()
            # A public part of a mixed expression is hidden whole: it has fewer values.
            kept = self._atoms.setdefault(owner, {}) if owner else self._hidden
            kept.setdefault(sql(node), node)
        elif found:
            for child in _operands(node):
                self._collect(child)

    def _cut(self, name: str) -> _Cut:
        """Split a domain into cells."""
        sensitive = self.catalog.sensitive[name]
        atoms = tuple(self._atoms[name].values())
        source: exp.Expr
        counts: NDArray[np.int64] | None = None
        if sensitive.domain.size > MATERIALISE_LIMIT:
            indices, counts = representatives(sensitive, atoms, self.run)
            source = listed(sensitive, indices)
        else:
            source = table(self.domain(name), PUBLISHED)
        evaluated = self._evaluate(name, atoms, source, len(counts) if counts is not None else None)
        labels = np.asarray(evaluated.column("cell").to_numpy(), dtype=np.intp)
        plain = Cells.of(labels)
        if plain.count > MATRIX_LIMIT:
            raise _too_many({name: plain.count}, plain.count, MOST_STATES)
        # A large grid is uniform, which every partition suits.
        cells = plain if counts is not None else refine(plain, sensitive.channel)
        return _Cut(name, atoms, evaluated, plain, cells, counts)

    def _check_size(self, cuts: Sequence[_Cut]) -> None:
        """Refuse too many states or groups, before a channel between cells is built.

        Every group of sensitive keys has its own functions on states, and the channel beside
        them: groups times the sum of cells squared are the numbers to be held.
        """
        sizes = {cut.name: cut.cells.count for cut in cuts}
        count = prod(sizes.values())
        most = MOST_SEPARABLE if self.separable else MOST_STATES
        if count > most or max(sizes.values(), default=1) > MATRIX_LIMIT:
            raise _too_many(sizes, count, most)
        if self.separable:
            return
        keys = [key.expression for key in self.block.keys if key.sensitive]
        groups = min(count, prod(self._groups(key, cuts) for key in keys))
        if keys and groups * sum(size**2 for size in sizes.values()) > MOST_HELD:
            raise TooLargeError(
                f"GROUP BY makes {groups} groups of sensitive values in {count} states"
                f" ({_listed(sizes)})",
                hint="group by coarser values, as in GROUP BY x // 10",
            )

    def listable(self, states: States) -> bool:
        """Whether lists over all states fit, for every class of sensitive keys."""
        numbers = sum(axis.count**2 for axis in states.axes)
        few = not self.block.sensitive_keys or self.classes(states) * numbers <= MOST_HELD
        return states.count <= MOST_STATES and few

    def classes(self, states: States) -> int:
        """How many classes sensitive keys make, at the most."""
        keys = {sql(key.expression) for key in self.block.keys if key.sensitive}
        made = 1
        for i, axis in enumerate(states.axes):
            names = [TRUTH(i, n) for n, atom in enumerate(axis.atoms) if sql(atom) in keys]
            if names:
                made *= axis.cells.select(names).group_by(names).aggregate([]).num_rows
        return made

    def _groups(self, key: exp.Expr, cuts: Sequence[_Cut]) -> int:
        """How many values a key has, or at most has where it is made of several columns."""
        for cut in cuts:
            known = [sql(atom) for atom in cut.atoms]
            if sql(key) in known:
                values: Any = cut.evaluated.column(ATOM(known.index(sql(key))))
                return len(values.unique())
        owners = self._owners(key)
        return prod(cut.cells.count for cut in cuts if cut.name in owners)

    def _axis(self, i: int, cut: _Cut) -> Axis:
        """The column as the block sees it, with its channel between cells."""
        name, atoms, cells = cut.name, cut.atoms, cut.cells
        sensitive = self.catalog.sensitive[name]
        channel = sensitive.channel
        columns = [cut.evaluated.column(ATOM(n)) for n in range(len(atoms))]
        bits = (
            all(pa.types.is_boolean(c.type) or pa.types.is_null(c.type) for c in columns)
            and len(atoms) <= MOST_BITS
            and cells.count == cut.plain.count
            and name not in self.block.joins.values()
            and not any(node.find(exp.Query) for node in atoms)
        )
        nulls = tuple(c.null_count > 0 for c in columns)
        shown = [c.combine_chunks().take(cells.first.tolist()) for c in columns]
        number = pa.array(np.arange(cells.count))
        codes: dict[str, Any] = {}
        if bits:
            for n, c in enumerate(shown):
                codes[TRUTH(i, n)] = c.cast(pa.bool_()).fill_null(False)
                if nulls[n]:
                    codes[UNKNOWN(i, n)] = c.is_null()
            codes["cell"] = number
        else:
            codes[CODE(i)] = cut.evaluated.column("value")
            codes["cell"] = pa.array(cells.labels.astype(np.int64))
        masses = None
        if cut.counts is not None:
            if not bits or not isinstance(channel, Uniform):
                raise too_large(name)
            masses = cells.sums(cut.counts) / sensitive.domain.size
            factor = Replace(channel.retention, masses).matrix
        else:
            factor = channel.lump(cells).matrix
            if isinstance(channel, Uniform):
                masses = cells.sizes / cells.size
            elif isinstance(channel, Replace):
                masses = cells.sums(channel.replacing)
            elif sensitive.mechanism == "decoy":
                masses = _stationary(factor)
        return Axis(
            name,
            atoms,
            bits,
            nulls,
            pa.table({"cell": number, **{TRUTH(i, n): c for n, c in enumerate(shown)}}),
            pa.table(codes),
            factor,
            channel,
            masses,
            sensitive.mechanism,
        )

    def _evaluate(
        self, name: str, atoms: Sequence[exp.Expr], source: exp.Expr, rows: int | None
    ) -> pa.Table:
        """Evaluate atoms over a domain: value, ATOM, and the cell, in the domain's order."""
        inner = select(
            source,
            named(column("i", PUBLISHED), "i"),
            named(column(name, PUBLISHED), "value"),
            *(named(copied(atom), ATOM(n)) for n, atom in enumerate(atoms)),
        )
        for join in self.block.rows.joins:
            if self.block.joins[join.alias] == name:
                inner = joined_to(inner, join.table, join.alias, join.on)
        truths = [column(ATOM(n)) for n in range(len(atoms))]
        cell = exp.Sub(this=ranked(*truths), expression=exp.Literal.number(1))
        outer = select(derived(inner, "evaluated"), column("value"), *truths, named(cell, "cell"))
        found = self.run(outer.order_by(column("i"), copy=False))
        if found.num_rows != (rows or self.catalog.sensitive[name].domain.size):
            raise TooLargeError(
                f"the public table joined on {name!r} has several rows for one value",
                hint="join tables that are unique on the join key",
            )
        return found


def _written(node: exp.Expr, places: Mapping[str, exp.Column], branch: bool = False) -> exp.Expr:
    """An expression over the table of states; ``branch`` is WHEN ... THEN of a CASE."""
    place = None if branch else places.get(sql(node))
    if place is not None:
        return copied(place)

    def written(child: exp.Expr) -> exp.Expr:
        if isinstance(child, exp.DataType):
            return child
        if isinstance(child, exp.Query):
            for each in list(columns_of(child)):
                each.replace(_written(each, places))
            return child
        arm = isinstance(node, exp.Case) and isinstance(child, exp.If)
        return _written(child, places, arm)

    made = copied(node)
    replace_below(made, written)
    return made


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    """The expressions that one is made of; a branch of CASE is no expression by itself."""
    for child in node.iter_expressions():
        if isinstance(node, exp.Case) and isinstance(child, exp.If):
            yield from _operands(child)
        elif isinstance(child, exp.Query):
            yield from columns_of(child)  # of the rows around it
        elif not isinstance(child, exp.DataType):
            yield child


def _listed(sizes: dict[str, int]) -> str:
    return ", ".join(f"{name} has {size} cells" for name, size in sizes.items())


def _too_many(sizes: dict[str, int], count: int, most: int) -> TooLargeError:
    """The refusal of a query with too many states."""
    return TooLargeError(
        f"the query needs {count} states ({_listed(sizes)})",
        hint=f"at most {most} can be distinguished, {MATRIX_LIMIT} of one column;"
        " coarsen a condition or a key",
    )


def _stationary(matrix: Floats) -> Floats | None:
    """Shares that a channel leaves as they are: of decoys, the published column's.

    >>> _stationary(np.array([[0.5, 0.5], [0.25, 0.75]]))
    array([0.33333333, 0.66666667])
    """
    system = matrix.T - np.eye(len(matrix))
    system[-1] = 1.0
    wanted = np.zeros(len(matrix))
    wanted[-1] = 1.0
    try:
        return np.asarray(np.linalg.solve(system, wanted), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None


def joined_to(
    select: exp.Select,
    joined: exp.Expr,
    alias: str,
    on: Sequence[Equality],
    kind: str = "LEFT",
) -> exp.Select:
    """Add a public table to a SELECT under its canonical alias."""
    equal = [
        (exp.NullSafeEQ if each.safe else exp.EQ)(
            this=wrapped(copied(each.ours)), expression=copied(each.theirs)
        )
        for each in on
    ]
    side = kind if kind == "LEFT" else None
    source = under(joined, alias)
    on_all = chained(exp.And, equal)
    select.append("joins", exp.Join(this=source, on=on_all, side=side, kind=None if side else kind))
    return select


def under(joined: exp.Expr, alias: str) -> exp.Expr:
    """A joined table under another alias; the names that ``v(a, b)`` gave its columns stay."""
    made = copied(joined)
    old = joined.args.get("alias")
    columns = [copied(each) for each in old.columns] if isinstance(old, exp.TableAlias) else []
    made.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True), columns=columns))
    return made
