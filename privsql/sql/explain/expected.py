"""The expected error of a sum, before a row is read.

The functions of a block are evaluated over its states, or over the domains where it has none, by
an engine that holds no release; ``widths`` makes the largest error from them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privsql.channels.mechanisms import Replace
from privsql.sql.bind.aggregates import Base
from privsql.sql.bind.pieces import Piece
from privsql.sql.catalog import PUBLISHED, Catalog, Sensitive
from privsql.sql.explain.widths import MOST_WORK, Kept, product_error, row_error
from privsql.sql.explain.wording import said
from privsql.sql.expressions import or_zero
from privsql.sql.nodes import (
    cast,
    choose,
    column,
    columns_of,
    derived,
    every,
    named,
    number,
    ranked,
    sql,
    table,
    when,
)
from privsql.sql.parameters import Parameters, Printed
from privsql.sql.plan.block_plan import BlockPlan
from privsql.sql.plan.states import States
from privsql.sql.reconstruct.columns import ATOM

Floats = NDArray[np.float64]

# Runs a statement over these tables, without any release.
Evaluate = Callable[[Printed, Mapping[str, pa.Table]], pa.Table]


@dataclass(frozen=True)
class Expected:
    """The errors that the sums of one block may have."""

    plan: BlockPlan
    catalog: Catalog
    parameters: Parameters
    evaluate: Evaluate

    def of(self, base: Base) -> tuple[float | None, str]:
        """The largest standard deviation that a row adds to a sum, and in which unit."""
        states = self.plan.states
        if states is None:
            return None, "the width is not known before the scan"
        if self.catalog.weighted:
            return None, "the width depends on the weights of the rows"
        if states.hidden:
            return None, "the width depends on public values that a condition compares with"
        values = [piece.value for piece in base if piece.value is not None]
        if values and len(base) > 1:
            return None, "the width depends on the public values that are added up"
        unit = said(values[0], self.plan.block) if values else ""
        if not states.axes and self.plan.block.sensitive:
            # A scan of moments that has too many cells to tell them apart.
            found = [self._product(piece) for piece in base]
            errors = [error for error in found if error is not None]
            if len(errors) == len(found):
                return sum(errors), unit
            return None, "the width is not computed for so many states"
        functions, classes = self._functions(base, states)
        if len(classes) * states.count * len(functions) > MOST_WORK:
            return None, "the width is not computed for so many states"
        sums = (sum(row_error(states.factors, g * chosen) for g in functions) for chosen in classes)
        return max(sums, default=0.0), unit

    def _product(self, piece: Piece) -> float | None:
        """A piece's error from the functions of one column that it is a product of."""
        found: list[Kept] = []
        for name, sensitive in self.catalog.sensitive.items():
            own = [n for n in piece.sensitive if any(c.name == name for c in columns_of(n))]
            if own:
                values = self._over_domain(sensitive, piece, own)
                found.append(Kept(*kept(sensitive), values))
        return product_error(found)

    def _over_domain(self, sensitive: Sensitive, piece: Piece, nodes: Sequence[exp.Expr]) -> Floats:
        """A column's part of a piece, evaluated over its whole domain."""
        factor = next((node for node in nodes if node is piece.factor), None)
        value = _function(factor, [node for node in nodes if node is not factor])
        domain = sensitive.domain.values()
        name = f"{self.plan.prefix}_domain"
        place = {"i": pa.array(np.arange(len(domain))), "value": domain}
        typed = named(cast(column("value"), sensitive.type), sensitive.name)
        inner = exp.Select(expressions=[column("i"), typed]).from_(table(name), copy=False)
        query = exp.Select(expressions=[named(value, ATOM(0))])
        query.from_(derived(inner, PUBLISHED), copy=False).order_by(column("i"), copy=False)
        found = self.evaluate(self.parameters.bind(query), {name: pa.table(place)})
        return np.asarray(found.column(ATOM(0)).to_numpy(), dtype=np.float64)

    def _functions(self, base: Base, states: States) -> tuple[list[Floats], list[Floats]]:
        """Each piece as a function on states, and the sensitive groups as 0 and 1 on them."""
        query = exp.Select()
        for n, piece in enumerate(base):
            factor = None if piece.factor is None else _over(states, piece.factor)
            value = _function(factor, [_over(states, node) for node in piece.truths])
            choose(query, named(value, ATOM(n)))
        keys = [_over(states, key.expression) for key in self.plan.block.keys if key.sensitive]
        choose(query, named(ranked(*keys) if keys else exp.Literal.number(1), "class"))
        tables = {f"{self.plan.prefix}_axis{i}": axis.cells for i, axis in enumerate(states.axes)}
        for i, name in enumerate(tables):
            if i == 0:
                query.from_(table(name, f"axis{i}"), copy=False)
            else:
                query.append("joins", exp.Join(this=table(name, f"axis{i}"), kind="CROSS"))
        if tables:
            query.order_by(*(column("cell", f"axis{i}") for i in range(len(tables))), copy=False)
        found = self.evaluate(self.parameters.bind(query), tables)
        functions = [
            np.asarray(found.column(ATOM(n)).to_numpy(), dtype=np.float64) for n in range(len(base))
        ]
        labels = np.asarray(found.column("class").to_numpy())
        classes = [(labels == label).astype(np.float64) for label in np.unique(labels)]
        return functions, classes


def kept(sensitive: Sensitive) -> tuple[float, Floats]:
    """Retention and replacement distribution of a column that keeps or replaces its values."""
    channel = sensitive.channel
    if isinstance(channel, Replace):
        return float(channel.retention), np.asarray(channel.replacing, dtype=np.float64)
    retention: float = channel.retention  # type: ignore[attr-defined]
    return float(retention), np.full(channel.size, 1 / channel.size)


def _function(factor: exp.Expr | None, truths: Sequence[exp.Expr]) -> exp.Expr:
    """A sensitive half: its factor, or 1, where its conditions are true, and 0 elsewhere."""
    value: exp.Expr = number(1.0) if factor is None else cast(factor, "DOUBLE")
    truth = every(truths)
    return or_zero(value if truth is None else when(truth, value, number(0.0)))


def _over(states: States, node: exp.Expr) -> exp.Expr:
    """A sensitive expression over the table of states."""
    return states.written.get(sql(node), node).copy()
