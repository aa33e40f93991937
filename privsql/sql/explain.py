"""EXPLAIN RECONSTRUCTION: how a query would be answered, without asking the published rows.

    block 0: estimated by inversion
      disease    uniform, 4 values, retention 0.3
        cell 0   disease = 'flu'             mass 0.25
        cell 1   not (disease = 'flu')       mass 0.75
      COUNT(*)   standard error at most 74 in 1,000 rows, 471 in all 40,000 ...
      scan       SELECT ...
      steps      ...

The width that is to be expected comes from the number of rows and the channel alone.  A row
in state s adds ``G(published)`` to an estimate, ``G = A^-1 g``, with the variance

    v(s) = sum_j A[s, j] G[j]^2 - g[s]^2,

so that n rows, whatever their states are, give a standard error of at most
``sqrt(n max_s v(s))``.  The largest one is shown: the one at the true shares would tell them.
(reconstruction, 3 and 5)

Here it is found out; ``explained`` has what is told, and its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import sqlglot
from numpy.typing import NDArray
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.sql.aggregates import Base
from privsql.sql.block import Aggregate, Block
from privsql.sql.catalog import PUBLISHED, Catalog
from privsql.sql.explained import (
    Explained,
    ExplainedAggregate,
    ExplainedBlock,
    ExplainedCell,
    ExplainedColumn,
)
from privsql.sql.plan import BlockPlan, Parameters, Printed
from privsql.sql.states import Axis, States
from privsql.sql.tree import bare, cast, choose, column, every, named, number, sql, table

Floats = NDArray[np.float64]

# Runs a statement over these tables, without any release.
Evaluate = Callable[[Printed, Mapping[str, pa.Table]], pa.Table]

# States times groups beyond which a width is not worth its time.
MOST_WORK = 2**22

FEW_ROWS = 1_000

_WHY = {
    "auto": "auto takes it: it is unbiased, and cells add up",
    "inversion": "it was asked for: unbiased, cells add up, estimates may leave their range",
    "iterative": "it was asked for: the likeliest counts that are not negative; biased, cells"
    " must not be added up, and sums of values that may be negative use inversion",
}


def explain(
    plans: Sequence[BlockPlan],
    final: Printed,
    outputs: Sequence[tuple[str, bool]],
    catalog: Catalog,
    parameters: Parameters,
    evaluate: Evaluate,
    *,
    estimator: str = "auto",
    level: float = 0.95,
) -> Explained:
    """Say how a query would be answered.

    ``outputs`` names the columns and says which are estimates; ``evaluate`` runs SQL over
    tables that it is given, to find which states satisfy what.
    """
    ctes, query = _taken_apart(final.sql, tuple(f"{plan.prefix}_" for plan in plans))
    blocks = tuple(
        _Writer(n, plan, catalog, parameters, evaluate, estimator, level).write(ctes)
        for n, plan in enumerate(plans)
    )
    kinds = tuple((name, "estimate" if estimate else "exact") for name, estimate in outputs)
    return Explained(blocks, query, kinds)


class _Writer:
    """Explains one block."""

    def __init__(
        self,
        number_: int,
        plan: BlockPlan,
        catalog: Catalog,
        parameters: Parameters,
        evaluate: Evaluate,
        estimator: str,
        level: float,
    ) -> None:
        self._number = number_
        self._plan = plan
        self._block: Block = plan.block
        self._states: States | None = plan.states
        self._catalog = catalog
        self._parameters = parameters
        self._evaluate = evaluate
        self._estimator = estimator
        self._z = NormalDist().inv_cdf((1 + level) / 2)
        self._level = level
        # Rows that are stored once may stand for several: their number is not that of rows.
        self._rows = None if catalog.multiplicity else catalog.rows
        names = {join.alias: _called(join.table, join.alias) for join in self._block.rows.joins}
        self._names = {PUBLISHED: "", **names}

    def write(self, ctes: Sequence[tuple[str, str]]) -> ExplainedBlock:
        """Everything about the block."""
        block, states = self._block, self._states
        exact = not block.estimated and not self._catalog.weighted
        method = "iterative" if self._estimator == "iterative" else "inversion"
        why = _WHY.get(self._estimator, "it was asked for")
        if exact:
            why = "public columns are published as they are"
        elif not block.estimated:
            why = "rows are a weighted sample, so public columns are estimated as well"
        scans = [self._plan.scan.sql]
        if self._plan.beside is not None:
            scans.append(self._plan.beside.sql)
        return ExplainedBlock(
            self._number,
            "exact" if exact else method,
            why,
            tuple(self._said(node) for node in block.guards),
            tuple(
                (self._said(key.expression), "sensitive" if key.sensitive else "public")
                for key in block.keys
            ),
            tuple(
                (
                    _called(join.table, join.alias),
                    "hangs on a sensitive column" if block.joins.get(join.alias) else "public",
                )
                for join in block.rows.joins
            ),
            () if states is None else tuple(map(self._column, states.axes)),
            () if states is None else tuple(self._said(node) for node in states.hidden),
            tuple(self._aggregate(aggregate) for aggregate in block.aggregates),
            tuple(scans),
            tuple(step for step in ctes if step[0].startswith(f"{self._plan.prefix}_")),
        )

    def _said(self, node: exp.Expr) -> str:
        """An expression with its columns as the analyst knows them."""
        holder = exp.Paren(this=node.copy())
        for each in list(holder.find_all(exp.Column)):
            name = self._names.get(each.table)
            if name is not None and isinstance(each.this, exp.Identifier):
                plain = exp.to_identifier(each.name)
                qualifier = exp.to_identifier(name) if name else None
                each.replace(exp.Column(this=plain, table=qualifier))
        inner: exp.Expr = holder.this
        return sql(inner)

    # -- states -----------------------------------------------------------------------

    def _column(self, axis: Axis) -> ExplainedColumn:
        sensitive = self._catalog.sensitive[axis.column]
        retention = getattr(axis.channel, "retention", None)
        kept = f", retention {retention:g}" if isinstance(retention, float) else ""
        sent = "the scan sends the truth of its conditions"
        if axis.count == 1:
            sent = "the scan need not send it: the query tells none of its values apart"
        elif not axis.bits:
            sent = "the scan sends the published value"
        meanings = self._meanings(axis)
        masses = [None] * axis.count if axis.masses is None else [float(m) for m in axis.masses]
        return ExplainedColumn(
            axis.column,
            sensitive.mechanism + kept,
            sensitive.channel.size,
            sent,
            tuple(ExplainedCell(m, mass) for m, mass in zip(meanings, masses, strict=True)),
            tuple(tuple(float(entry) for entry in row) for row in axis.factor),
            float(np.linalg.cond(axis.factor)),
        )

    def _meanings(self, axis: Axis) -> list[str]:
        """What the atoms say in each cell."""
        names = [name for name in axis.cells.column_names if name != "cell"]
        columns = [axis.cells.column(name).to_pylist() for name in names]
        atoms = [self._said(_plain(atom)) for atom in axis.atoms]
        known = [_is_known(atom) for atom in axis.atoms]
        found = []
        for values in zip(*columns, strict=True):
            told = list(zip(atoms, values, known, strict=False))
            # That a value is known goes without saying where something else is said of it.
            said = [(atom, value) for atom, value, obvious in told if not (obvious and value)]
            parts = [_meaning(*each) for each in said or [each[:2] for each in told]]
            found.append(" and ".join(parts))
        found = found or ["every value"] * axis.count
        for text in {text for text in found if found.count(text) > 1}:
            several = [i for i, each in enumerate(found) if each == text]
            for n, i in enumerate(several):
                found[i] = f"{text} (part {n + 1} of {len(several)}: perturbed differently)"
        return found

    # -- widths -----------------------------------------------------------------------

    def _aggregate(self, aggregate: Aggregate) -> ExplainedAggregate:
        text = self._said(aggregate.call.node)
        if aggregate.kind == "exact":
            return ExplainedAggregate(text, "exact", "no error", 0.0)
        if aggregate.kind == "domain":
            return ExplainedAggregate(
                text, "from the public domain", "no error, and nothing about rows", 0.0
            )
        if aggregate.kind != "linear":
            return ExplainedAggregate(
                text,
                "estimated from the reconstructed distribution",
                "the width depends on how steep the distribution is there",
            )
        found = [self._base(self._block.bases[i]) for i in aggregate.bases]
        return self._linear(aggregate, text, found)

    def _linear(
        self, aggregate: Aggregate, text: str, found: list[tuple[float | None, str]]
    ) -> ExplainedAggregate:
        error, unit = found[0]
        name = aggregate.call.name
        if error is None:
            return ExplainedAggregate(text, "estimated", unit)
        mean = name == "avg" and found[1][0] == 0
        words = self._words(error, unit, mean)
        if name not in ("count", "count_if", "sum") and not mean:
            words = f"made of {len(found)} sums, of which the first has a {words}"
        return ExplainedAggregate(text, "estimated", words, error)

    def _words(self, error: float, unit: str, mean: bool) -> str:
        each = " of a group" if self._block.keys else ""
        sizes = [(FEW_ROWS, f"{FEW_ROWS:,} rows{each}")]
        if self._rows is not None:
            sizes.append((self._rows, f"all {self._rows:,}"))
        errors = [error * sqrt(n) / (max(n, 1) if mean else 1) for n, _ in sizes]
        told = " and ".join(f"{e:.3g} over {of}" for e, (_, of) in zip(errors, sizes, strict=True))
        times = f", times the root mean square of {unit}" if unit else ""
        ends = " and ".join(f"{self._z * e:.3g}" for e in errors)
        rough = "; rows were not perturbed independently, so this is rough" if self._rough else ""
        return (
            f"standard error at most {told}{times}, at the true shares for which it is largest"
            f" ({self._level:.3g} interval: at most +- {ends}){rough}"
        )

    @property
    def _rough(self) -> bool:
        return self._states is not None and not all(a.independent for a in self._states.axes)

    def _base(self, base: Base) -> tuple[float | None, str]:
        """The largest standard deviation that a row adds to a sum, and in which unit."""
        states = self._states
        if states is None:
            return None, "the width is not known before the scan"
        if self._catalog.weighted:
            return None, "the width depends on the weights of the rows"
        if states.hidden:
            return None, "the width depends on public values that a condition compares with"
        values = [piece.value for piece in base if piece.value is not None]
        if values and len(base) > 1:
            return None, "the width depends on the public values that are added up"
        functions, classes = self._functions(base, states)
        if len(classes) * states.count * len(functions) > MOST_WORK:
            return None, "the width is not worked out for so many states"
        worst = 0.0
        for chosen in classes:
            worst = max(worst, sum(row_error(states.factors, g * chosen) for g in functions))
        return worst, self._said(values[0]) if values else ""

    def _functions(self, base: Base, states: States) -> tuple[list[Floats], list[Floats]]:
        """Each piece as a function on states, and the sensitive groups as 0 and 1 on them."""
        query = exp.Select()
        for n, piece in enumerate(base):
            value: exp.Expr = number(1.0)
            if piece.factor is not None:
                value = cast(_over(states, piece.factor), "DOUBLE")
            truth = every(_over(states, node) for node in piece.truths)
            if truth is not None:
                value = exp.Case(ifs=[exp.If(this=truth, true=value)], default=number(0.0))
            choose(query, named(exp.Coalesce(this=value, expressions=[number(0.0)]), f"g{n}"))
        keys = [key.expression for key in self._block.keys if key.sensitive]
        order = [exp.Ordered(this=_over(states, key), nulls_first=False) for key in keys]
        rank: exp.Expr = exp.Literal.number(1)
        if order:
            rank = exp.Window(
                this=exp.Anonymous(this="dense_rank"),
                order=exp.Order(expressions=order),
                over="OVER",
            )
        choose(query, named(rank, "class"))
        tables = {f"{self._plan.prefix}_axis{i}": axis.cells for i, axis in enumerate(states.axes)}
        for i, name in enumerate(tables):
            if i == 0:
                query.from_(table(name, f"axis{i}"), copy=False)
            else:
                query.append("joins", exp.Join(this=table(name, f"axis{i}"), kind="CROSS"))
        if tables:
            query.order_by(*(column("cell", f"axis{i}") for i in range(len(tables))), copy=False)
        found = self._evaluate(self._parameters.bind(query), tables)
        functions = [
            np.asarray(found.column(f"g{n}").to_numpy(), dtype=np.float64) for n in range(len(base))
        ]
        labels = np.asarray(found.column("class").to_numpy())
        classes = [(labels == label).astype(np.float64) for label in np.unique(labels)]
        return functions, classes


def _over(states: States, node: exp.Expr) -> exp.Expr:
    """A sensitive expression over the table of states."""
    return states.written.get(sql(node), node).copy()


def row_error(factors: Sequence[Floats], function: Floats) -> float:
    """Largest standard deviation of ``G(published)`` over the states that a row may be in.

    ``function`` is g over all states, the last factor's cell changing fastest.  Retention 1/2
    and a predicate of mass 1/2: G is 3/2 or -1/2, so from either state

    >>> half = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> round(row_error([half], np.array([0.0, 1.0])) ** 2, 9)
    0.75
    """
    shape = [len(factor) for factor in factors]
    g = np.asarray(function, dtype=np.float64).reshape(shape)
    inverted = g
    for axis, factor in enumerate(factors):
        inverted = _along(np.asarray(np.linalg.inv(factor), dtype=np.float64), inverted, axis)
    second = inverted * inverted
    for axis, factor in enumerate(factors):
        second = _along(factor, second, axis)
    variance = second - g * g
    # What is left of a function that needs no inversion is rounding.
    rounding = 1e-12 * float(np.max(second, initial=0.0))
    largest = float(np.max(variance, initial=0.0))
    return sqrt(largest) if largest > rounding else 0.0


def _along(matrix: Floats, tensor: Floats, axis: int) -> Floats:
    return np.moveaxis(np.tensordot(matrix, tensor, axes=(1, axis)), 0, axis)


# -- words ------------------------------------------------------------------------------


def _plain(atom: exp.Expr) -> exp.Expr:
    """``P`` of ``(P) IS TRUE``: a cell says which of the two it is."""
    atom = bare(atom)
    if isinstance(atom, exp.Is) and isinstance(atom.expression, exp.Boolean):
        return bare(atom.this) if atom.expression.this else atom
    return atom


def _is_known(atom: exp.Expr) -> bool:
    """Whether an atom is ``x IS NOT NULL``."""
    inner = bare(atom)
    inner = bare(inner.this) if isinstance(inner, exp.Not) else inner
    return inner is not bare(atom) and isinstance(inner, exp.Is) and inner.expression == exp.Null()


def _meaning(atom: str, value: object) -> str:
    if value is True:
        return atom
    if value is False:
        return f"not ({atom})"
    if value is None:
        return f"({atom}) is NULL"
    return f"{atom} = {value!r}" if isinstance(value, str) else f"{atom} = {value}"


def _called(joined: exp.Expr, alias: str) -> str:
    return joined.name if isinstance(joined, exp.Table) else alias


def _taken_apart(text: str, prefixes: tuple[str, ...]) -> tuple[list[tuple[str, str]], str]:
    """The steps of the whole reconstruction by name, and the query that is left."""
    try:
        tree = sqlglot.parse_one(text, dialect="duckdb")
    except SqlglotError:
        return [], text
    with_ = tree.args.get("with_")
    if with_ is None:
        return [], text
    ours = [cte for cte in with_.expressions if cte.alias.startswith(prefixes)]
    theirs = [cte for cte in with_.expressions if not cte.alias.startswith(prefixes)]
    steps = [(cte.alias, sql(cte.this)) for cte in ours]
    tree.set("with_", exp.With(expressions=theirs) if theirs else None)
    return steps, sql(tree)


__all__ = [
    "Evaluate",
    "Explained",
    "ExplainedAggregate",
    "ExplainedBlock",
    "ExplainedCell",
    "ExplainedColumn",
    "explain",
    "row_error",
]
