"""EXPLAIN RECONSTRUCTION: how a query would be answered, without running its scan.

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

(see ``widths``), so that n rows, whatever their states are, give a standard error of at most
``sqrt(n max_s v(s))``.  The largest one is shown: the one at the true shares would tell them.
(reconstruction, 3 and 5)

Here it is found out; ``explained`` has what is told, and its text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray
from sqlglot import exp
from sqlglot.errors import SqlglotError

from privsql.sql.bind.block import Aggregate
from privsql.sql.catalog import Catalog, Sensitive
from privsql.sql.explain.expected import Evaluate, Expected, kept
from privsql.sql.explain.report import (
    Explained,
    ExplainedAggregate,
    ExplainedBlock,
    ExplainedCell,
    ExplainedColumn,
)
from privsql.sql.explain.widths import kept_condition
from privsql.sql.explain.wording import called, said
from privsql.sql.nodes import (
    bare,
    sql,
)
from privsql.sql.parse.lexing import parsed
from privsql.sql.plan.block_plan import BlockPlan
from privsql.sql.plan.query import Direct, Planned
from privsql.sql.plan.states import Axis, States
from privsql.sql.reconstruct.inverted import Inverted, inverted_of

Floats = NDArray[np.float64]

FEW_ROWS = 1_000

_WHY = {
    "auto": "auto chooses it: it is unbiased, and cells add up",
    "inversion": "it was requested: unbiased, cells add up, estimates may leave their range",
    "iterative": "it was requested: the most likely non-negative counts; biased, cells must not"
    " be added up, and sums of values that may be negative use inversion",
}


def explain(
    planned: Planned,
    catalog: Catalog,
    evaluate: Evaluate,
    *,
    estimator: str = "auto",
    level: float = 0.95,
    policies: Sequence[str] = (),
) -> Explained:
    """Say how a query would be answered.

    ``evaluate`` runs SQL over tables that it is given, to find which states satisfy what;
    ``policies`` say what may be answered of each block.
    """
    outputs = zip(planned.described, planned.outs, strict=False)
    kinds = tuple((name, "estimate" if out.estimate else "exact") for (name, _), out in outputs)
    if isinstance(planned, Direct):
        return Explained((), planned.printed.sql, kinds)
    plans = planned.plans
    prefixes = tuple(f"{plan.prefix}_" for plan in plans)
    ctes, query = _taken_apart(planned.final.printed.sql, prefixes)
    blocks = []
    for n, plan in enumerate(plans):
        expected = Expected(plan, catalog, planned.parameters, evaluate)
        made = _Writer(n, plan, catalog, expected, estimator, level).write(ctes)
        blocks.append(replace(made, policy=policies[n] if policies else ""))
    return Explained(tuple(blocks), query, kinds)


@dataclass(frozen=True)
class _Writer:
    """Explains one block."""

    number: int
    plan: BlockPlan
    catalog: Catalog
    expected: Expected
    estimator: str
    level: float

    @cached_property
    def _inverted(self) -> Inverted:
        return inverted_of(self.plan.steps)

    def write(self, ctes: Sequence[tuple[str, str]]) -> ExplainedBlock:
        """Everything about the block."""
        block, states = self.plan.block, self.plan.states
        method = "iterative" if self.estimator == "iterative" else "inversion"
        why = _WHY[self.estimator]
        if not block.estimated:
            why = "rows are a weighted sample, so public columns are estimated as well"
            if not self.catalog.weighted:
                method, why = "exact", "public columns are published as they are"
        joins = [(called(j.table, j.alias), block.joins[j.alias]) for j in block.rows.joins]
        return ExplainedBlock(
            self.number,
            method,
            why,
            tuple(map(self._said, block.guards)),
            tuple(
                (self._said(key.expression), "sensitive" if key.sensitive else "public")
                for key in block.keys
            ),
            tuple(
                (name, "depends on a sensitive column" if owner else "public")
                for name, owner in joins
            ),
            () if states is None else self._columns(states),
            () if states is None else tuple(map(self._said, states.hidden)),
            tuple(self._aggregate(i, aggregate) for i, aggregate in enumerate(block.aggregates)),
            tuple(each.sql for each in (self.plan.scan, self.plan.beside) if each is not None),
            tuple(step for step in ctes if step[0].startswith(f"{self.plan.prefix}_")),
            self.plan.form,
        )

    def _said(self, node: exp.Expr) -> str:
        return said(node, self.plan.block)

    # -- states -----------------------------------------------------------------------

    def _columns(self, states: States) -> tuple[ExplainedColumn, ...]:
        if states.axes or not self.plan.moments:
            return tuple(map(self._column, states.axes))
        # So many cells that they were not made; the scan needs none.
        return tuple(
            ExplainedColumn(
                name,
                _mechanism(one),
                one.channel.size,
                "the scan adds up (g - c) / p of each row, and distinguishes no values",
                (),
                (),
                kept_condition(*kept(one)),
            )
            for name, one in self.catalog.sensitive.items()
            if name in self.plan.block.sensitive
        )

    def _column(self, axis: Axis) -> ExplainedColumn:
        sensitive = self.catalog.sensitive[axis.column]
        sent = "the scan sends the truth of its conditions"
        if axis.count == 1:
            sent = "the scan does not send it: the query distinguishes none of its values"
        elif self.plan.moments:
            sent = "the scan adds up (g - c) / p of each row"
        elif not axis.bits:
            sent = "the scan sends the published value"
        meanings = self._meanings(axis)
        masses = [None] * axis.count if axis.masses is None else [float(m) for m in axis.masses]
        return ExplainedColumn(
            axis.column,
            _mechanism(sensitive),
            sensitive.channel.size,
            sent,
            tuple(ExplainedCell(m, mass) for m, mass in zip(meanings, masses, strict=True)),
            tuple(tuple(float(entry) for entry in row) for row in axis.factor),
            float(np.linalg.cond(axis.factor)),
        )

    def _meanings(self, axis: Axis) -> list[str]:
        """What the atoms say in each cell."""
        columns = [column.to_pylist() for column in axis.cells.columns[1:]]
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

    def _aggregate(self, i: int, aggregate: Aggregate) -> ExplainedAggregate:
        text = self._said(aggregate.call.node)
        if aggregate.kind == "exact":
            return ExplainedAggregate(text, "exact", "no error", 0.0, short="exact")
        if aggregate.kind == "domain":
            return ExplainedAggregate(
                text,
                "from the public domain",
                "no error, and nothing about rows",
                0.0,
                short="exact: it follows from the public domain",
            )
        if aggregate.kind != "linear":
            words = "the width depends on how steep the distribution is there"
            return ExplainedAggregate(
                text,
                "estimated from the reconstructed distribution"
                + (", by inversion" if i in self._inverted.always else ""),
                words,
                interval="none" if aggregate.kind == "mode" else "Woodruff's",
                short=words,
            )
        found = [self.expected.of(self.plan.block.bases[k]) for k in aggregate.bases]
        error, words = found[0]
        short, name = words, aggregate.call.name
        if error is not None:
            mean = name == "avg" and found[1][0] == 0
            words, short = self._words(error, words, mean)
            if name not in ("count", "count_if", "sum") and not mean:
                words = f"made of {len(found)} sums, of which the first has a {words}"
                short = f"made of {len(found)} sums; the first {short}"
        interval = self._interval(i, name)
        return ExplainedAggregate(text, self._how(i), words, error, interval, short)

    def _how(self, i: int) -> str:
        """Estimated; and where the likelihood was asked for, when it is left out."""
        measures = [one.value for one in self._inverted.measures if i in one.aggregates]
        if not measures:
            return "estimated"
        names = ", ".join(dict.fromkeys(map(self._said, measures)))
        return f"estimated, by inversion if {names} is below zero in any row"

    def _interval(self, i: int, aggregate: str) -> str:
        """Which interval, and from how many rows it is reliable."""
        if i in self.plan.score_intervals:
            return "score interval of the published count, at any number of rows"
        name = "Fieller's" if aggregate == "avg" else "Wald"
        bound = ""
        if self.plan.moments:
            second = bool(self.plan.doubtful)
            bound = ", for which the scan gives a lower bound"
            bound += "; where that is below, a second scan counts states" if second else ""
        return f"{name}, called reliable from 20 effective rows on{bound}"

    def _words(self, error: float, unit: str, mean: bool) -> tuple[str, str]:
        """The largest error in words, in full and in short."""
        each = " of a group" if self.plan.block.keys else ""
        rows = self.catalog.rows
        sizes = {f"{FEW_ROWS:,} rows{each}": FEW_ROWS, f"all {rows:,}": rows}
        errors = [error * sqrt(n) / (max(n, 1) if mean else 1) for n in sizes.values()]
        told = " and ".join(f"{e:.3g} over {of}" for e, of in zip(errors, sizes, strict=True))
        times = f", times the root mean square of {unit}" if unit else ""
        z = NormalDist().inv_cdf((1 + self.level) / 2)
        ends = " and ".join(f"{z * e:.3g}" for e in errors)
        axes = () if self.plan.states is None else self.plan.states.axes
        independent = all(axis.independent for axis in axes)
        rough = "; rows were not perturbed independently, so this is rough"
        brief = ", ".join(
            f"{_figure(z * e)} over {of}" for e, of in zip(errors, sizes, strict=True)
        )
        return (
            f"standard error at most {told}{times}, at the true shares for which it is largest"
            f" ({self.level:.3g} interval: at most +- {ends})"
            f"{'' if independent else rough}"
        ), (
            f"± at most {brief}{times} ({100 * self.level:.6g}% interval"
            f"{'' if independent else ', roughly'})"
        )


def _figure(value: float) -> str:
    """A width with three digits, or all that stand before the point.

    >>> _figure(1290.4), _figure(0.01234)
    ('1,290', '0.0123')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _mechanism(sensitive: Sensitive) -> str:
    retention = getattr(sensitive.channel, "retention", None)
    kept = f", retention {retention:g}" if isinstance(retention, float) else ""
    return sensitive.mechanism + kept


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
    if not isinstance(inner, exp.Not):
        return False
    inner = bare(inner.this)
    return isinstance(inner, exp.Is) and inner.expression == exp.Null()


def _meaning(atom: str, value: object) -> str:
    if value is True:
        return atom
    if value is False:
        return f"not ({atom})"
    if value is None:
        return f"({atom}) is NULL"
    return f"{atom} = {value!r}" if isinstance(value, str) else f"{atom} = {value}"


def _taken_apart(text: str, prefixes: tuple[str, ...]) -> tuple[list[tuple[str, str]], str]:
    """The steps of the whole reconstruction by name, and the query that is left."""
    try:
        tree = parsed(text)
    except SqlglotError:
        return [], text
    with_ = tree.args.get("with_")
    if with_ is None:
        return [], text
    ours = [cte for cte in with_.expressions if cte.alias.startswith(prefixes)]
    theirs = [cte for cte in with_.expressions if not cte.alias.startswith(prefixes)]
    tree.set("with_", exp.With(expressions=theirs) if theirs else None)
    return [(cte.alias, sql(cte.this)) for cte in ours], sql(tree)


__all__ = ["Explained", "explain"]
