"""Domains too large to enumerate: one representative value per stretch of a grid.

Comparisons with constants split a grid into stretches within which none of them changes; one
value of each, with the number of values that it stands for, is then as good as the domain:

    seen >= TIMESTAMP '2024-01-01' AND seen < TIMESTAMP '2024-02-01'
    |------ before ------|--- January ---|------ after ------|      3 values instead of 10^8

Counts are exact, by interval arithmetic on the grid.  Anything but a comparison of the bare
column with constants would need every value, and is refused.  (reconstruction, 1)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlglot import exp

from privsql.channels import Interval
from privsql.errors import TooLargeError
from privsql.sql.bind.comparisons import values_of
from privsql.sql.catalog import PUBLISHED, Sensitive
from privsql.sql.nodes import (
    COMPARISONS,
    bare,
    cast,
    columns_of,
    copied,
    derived,
    named,
    number,
    union_all,
)

Run = Callable[[exp.Expr], pa.Table]


def representatives(
    sensitive: Sensitive, atoms: Sequence[exp.Expr], run: Run
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Indices of one value for each stretch, and how many values each stands for.

    A text that the column is compared with is read as the column's type, as DuckDB does.
    """
    domain = sensitive.domain
    nodes = dict(enumerate(node for atom in atoms for node in _constants(atom, sensitive.name)))
    values = values_of(nodes, run)
    texts = [i for i, value in values.items() if isinstance(value, str)]
    values |= values_of({i: cast(copied(nodes[i]), sensitive.type) for i in texts}, run)
    cuts = {0, domain.points}
    for value in values.values():
        if value is None:
            continue
        for interval in (Interval.below(value), Interval.at_most(value)):
            for found in domain.ranges(interval):
                cuts |= {found.start, min(found.stop, domain.points)}
    edges = sorted(cuts)
    starts, counts = edges[:-1], [b - a for a, b in itertools.pairwise(edges)]
    if domain.null_index is not None:
        starts.append(domain.null_index)
        counts.append(1)
    return np.array(starts, dtype=np.int64), np.array(counts, dtype=np.int64)


def _constants(node: exp.Expr, name: str) -> Iterator[exp.Expr]:
    """Constants that the column is compared with, or a refusal."""
    node = bare(node)
    if not any(c.name == name for c in columns_of(node)):
        return
    if isinstance(node, exp.And | exp.Or):
        yield from _constants(node.left, name)
        yield from _constants(node.right, name)
    elif isinstance(node, exp.Not):
        yield from _constants(node.this, name)
    elif isinstance(node, exp.Is):
        inner = bare(node.this)
        if not isinstance(inner, exp.Column):
            yield from _constants(inner, name)
    elif isinstance(node, exp.Between) and isinstance(bare(node.this), exp.Column):
        yield from (node.args["low"], node.args["high"])
    elif isinstance(node, exp.In) and isinstance(bare(node.this), exp.Column) and node.expressions:
        yield from node.expressions
    elif isinstance(node, COMPARISONS):
        sides = [bare(node.this), bare(node.expression)]
        constants = [side for side in sides if next(columns_of(side), None) is None]
        columns = [side for side in sides if isinstance(side, exp.Column)]
        if len(constants) != 1 or len(columns) != 1:
            raise too_large(name)
        yield constants[0]
    else:
        raise too_large(name)


def too_large(name: str) -> TooLargeError:
    """The refusal of an expression that would need every value."""
    return TooLargeError(
        f"the domain of {name!r} is too large to evaluate an expression on each of its values",
        hint="compare the column itself with constants: <, <=, =, BETWEEN, IN, IS NULL",
    )


def listed(sensitive: Sensitive, indices: NDArray[np.int64]) -> exp.Subquery:
    """Values of a domain written out, as the table that atoms are evaluated over."""
    rows = []
    for i, value in enumerate(sensitive.domain.decode(indices).to_pylist()):
        text: exp.Expr = exp.Null() if value is None else exp.Literal.string(str(value))
        columns = [named(number(i), "i"), named(cast(text, sensitive.type), sensitive.name)]
        rows.append(exp.Select(expressions=columns))
    return derived(union_all(rows), PUBLISHED)
