"""The kernels as SQL functions on Arrow columns: names, parameters and results.

Vectors over states are ``DOUBLE[]``, the transition matrix is its list of factors,
``DOUBLE[][][]``, so that a call reads like the mathematics:

    SELECT privsql_invert([60, 40], [[[0.75, 0.25], [0.25, 0.75]]])

A NULL argument gives NULL, as everywhere in SQL; an end of an interval that is not known is
NULL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from udfs import intervals, invert, iterate, lists, mle, quantile, variance
from udfs.axiswise.program import Ints, Program, Published
from udfs.axiswise.solve import First, Solved, solve
from udfs.errors import KernelError
from udfs.intervals import Bounds
from udfs.iterate import Likelihood
from udfs.kron import Array, Kron
from udfs.lists import Arrow, Column, Pieces, Rows

Body = Callable[..., Arrow]

VECTOR, FACTORS, NUMBER = "DOUBLE[]", "DOUBLE[][][]", "DOUBLE"
INTERVAL = "STRUCT(low DOUBLE, high DOUBLE, reliable BOOLEAN)"
LIKELIHOOD = "STRUCT(estimate DOUBLE[], gap DOUBLE, rounds BIGINT, converged BOOLEAN)"
POSITIONS = "STRUCT(estimate BIGINT, low BIGINT, high BIGINT, reliable BOOLEAN)"
TALLY = (
    "STRUCT(total DOUBLE[], excess DOUBLE[], variance DOUBLE[], second DOUBLE[],"
    " fourth DOUBLE[], certain BOOLEAN)"
)
QUANTILE = (
    "STRUCT(lower BIGINT, upper BIGINT, fraction DOUBLE, low BIGINT, high BIGINT, reliable BOOLEAN)"
)
CELLS = (
    'STRUCT("group" BIGINT[], class BIGINT[], estimate DOUBLE[][], observed DOUBLE[][],'
    " second DOUBLE[][], fourth DOUBLE[][], mass DOUBLE[][], covariance DOUBLE[][])"
)


@dataclass(frozen=True, slots=True)
class Function:
    """One SQL function: its name, parameters with their types, result, body and meaning."""

    name: str
    parameters: dict[str, str]
    returns: str
    body: Body
    meaning: str

    @property
    def signature(self) -> str:
        """The function as documentation writes it."""
        inside = ", ".join(f"{name} {kind}" for name, kind in self.parameters.items())
        return f"{self.name}({inside}) -> {self.returns}"


def _vectors(kernel: Callable[..., Array], *names: str, gives: str = NUMBER) -> Body:
    """Body of a function of vectors over states and, as the last argument, of the factors."""

    def body(*columns: Column) -> Arrow:
        *vectors, factors = columns
        pieces: Pieces = []
        for kron, rows in lists.by_factors(factors):
            arrays = (
                lists.states(column, name, kron, rows)
                for column, name in zip(vectors, names, strict=True)
            )
            pieces.append((rows, kernel(*arrays, kron)))
        if gives == VECTOR:
            return lists.list_array(pieces, len(factors))
        return pa.array(lists.scatter(pieces, len(factors)), type=pa.float64())

    return body


def _likelihood(
    counts: Column, factors: Column, solve: Callable[[Array, Kron], Likelihood]
) -> Arrow:
    found = [
        (rows, solve(lists.states(counts, "counts", kron, rows), kron))
        for kron, rows in lists.by_factors(factors)
    ]
    size = len(factors)
    return _struct(
        estimate=lists.list_array([(rows, one.estimate) for rows, one in found], size),
        gap=lists.nullable(_gathered(found, "gap", size)),
        rounds=_gathered(found, "rounds", size),
        converged=_gathered(found, "converged", size),
    )


def _em(counts: Column, factors: Column, tolerance: Column, limit: Column) -> Arrow:
    within = _constant(tolerance, "tolerance")
    rounds = int(_constant(limit, "rounds"))

    def solve(y: Array, kron: Kron) -> Likelihood:
        return iterate.expectation_maximisation(y, kron, tolerance=within, limit=rounds)

    return _likelihood(counts, factors, solve)


def _critical(level: Column, cells: Column) -> Arrow:
    pairs = zip(
        lists.numbers(level, "level").tolist(), lists.numbers(cells, "cells").tolist(), strict=True
    )
    return pa.array([intervals.critical(one, int(many)) for one, many in pairs])


def _score(hits: Column, rows: Column, factors: Column, z: Column) -> Arrow:
    arrays = [lists.numbers(c, n) for c, n in ((hits, "hits"), (rows, "rows"), (z, "z"))]
    pieces: list[tuple[Rows, Bounds]] = []
    for kron, chosen in lists.by_factors(factors):
        y, n, critical = (array[chosen] for array in arrays)
        pieces.append((chosen, intervals.score_interval(y, n, kron, critical)))
    ends = (_gathered(pieces, name, len(factors)) for name in ("low", "high", "reliable"))
    return _bounds(Bounds(*ends))


def _wald(*columns: Column) -> Arrow:
    estimate, spread, z = _arrays((*columns[:2], columns[3]), ("estimate", "variance", "z"))
    # What is exact is worth any number of rows.
    rows = lists.ends(columns[2], "effective_rows")
    return _bounds(intervals.wald_interval(estimate, spread, rows, z))


def _fieller(*columns: Column) -> Arrow:
    names = ("numerator", "denominator", "v_num", "cov", "v_den", "z")
    top, bottom, v_top, cov, v_bottom, z = _arrays((*columns[:5], columns[6]), names)
    rows = lists.ends(columns[5], "effective_rows")
    return _bounds(intervals.fieller_interval(top, bottom, (v_top, cov, v_bottom), rows, z))


def _woodruff(excess: Column, spread: Column, rows: Column, z: Column) -> Arrow:
    critical = lists.numbers(z, "z")
    columns = ((excess, "excess"), (spread, "variance"), (rows, "effective_rows"))
    lengths = [lists.ragged(column, name)[0] for column, name in columns]
    if not (np.array_equal(lengths[0], lengths[1]) and np.array_equal(lengths[0], lengths[2])):
        raise KernelError("excess, variance and effective_rows must be equally long")
    table = np.empty((len(excess), 4), dtype=np.int64)
    batches = zip(*(lists.by_length(column, name) for column, name in columns), strict=True)
    for (chosen, over), (_, errors), (_, effective) in batches:
        found = intervals.woodruff_interval(over, errors, effective, critical[chosen])
        # SQL counts positions of a list from one.
        table[chosen] = np.stack(
            [found.estimate + 1, found.low + 1, found.high + 1, found.reliable], axis=1
        )
    estimate, low, high, reliable = table.T
    return _struct(estimate=estimate, low=low, high=high, reliable=reliable.astype(bool))


def _dense(states: Column, amounts: Column, size: Column) -> Arrow:
    width, rows = int(_constant(size, "size")), len(states)
    table = lists.dense(lists.ragged(states, "states"), lists.ragged(amounts, "amounts"), width)
    return lists.list_array([(slice(None), table)], rows)


def _weights(squares: Column, fourths: Column, function: Column, factors: Column) -> Arrow:
    columns = ((squares, "squares"), (fourths, "fourths"), (function, "function"))
    pieces: Pieces = []
    for kron, rows in lists.by_factors(factors):
        second, fourth, g = (lists.states(column, name, kron, rows) for column, name in columns)
        pieces.append((rows, np.stack(variance.weights(second, fourth, g, kron), axis=1)))
    second, fourth = lists.scatter(pieces, len(factors)).T
    return _struct(second=second, fourth=fourth)


_LISTS = ("total", "excess", "variance", "second", "fourth")


def _tally(*columns: Column) -> Arrow:
    *vectors, positions, q, size, factors = columns
    share, width = _constant(q, "q"), int(_constant(size, "size"))
    found: list[tuple[Rows, quantile.Tallies]] = []
    for kron, rows in lists.by_factors(factors):
        place = lists.states(positions, "positions", kron, rows)
        first, second, fourth = (
            lists.states(column, name, kron, rows)
            for column, name in zip(vectors, ("products", "squares", "fourths"), strict=True)
        )
        for some in lists.alike(place):
            sums = first[some], second[some], fourth[some]
            one = quantile.tally(sums, place[some][0], share, width, kron)
            found.append((lists.among(rows, some), one))
    many = len(factors)
    tables = {
        name: lists.list_array([(slice(None), _gathered(found, name, many))], many)
        for name in _LISTS
    }
    return _struct(**tables, certain=_gathered(found, "certain", many))


def _quantile(tallies: Column, q: Column, kind: Column, z: Column) -> Arrow:
    critical, share = lists.numbers(z, "z"), _constant(q, "q")
    which = kind[0].as_py()
    if len(kind) > 1 and len(kind.unique()) > 1:
        raise KernelError("kind must be the same in every row")
    counts, (*fields, certain) = lists.parts(tallies, [*_LISTS, "certain"], "tallies")
    there = np.flatnonzero(counts)
    absent = np.ones(len(counts), dtype=bool)
    kinds = {"lower": "i8", "upper": "i8", "fraction": "f8", "low": "i8", "high": "i8"}
    kinds["reliable"] = "?"
    table = {name: np.zeros(len(counts), kind) for name, kind in kinds.items()}
    if len(there):
        whole = quantile.added(_tallies(fields, certain), counts[there])
        found = quantile.quantile(whole, share, which, critical[there])
        absent[there] = ~found.known
        for name, values in table.items():
            values[there] = getattr(found, name)
    return _struct(**{name: pa.array(values, mask=absent) for name, values in table.items()})


def _tallies(fields: Sequence[Arrow], certain: Arrow) -> quantile.Tallies:
    total, excess, spread, second, fourth = (
        lists.equal_lists(field, f"{name} of tallies")
        for field, name in zip(fields, _LISTS, strict=True)
    )
    if not total.shape == excess.shape == spread.shape == second.shape == fourth.shape:
        raise KernelError("the lists of a tally must be equally long")
    if certain.null_count:
        raise KernelError("certain of tallies must not be NULL")
    known = certain.to_numpy(zero_copy_only=False).astype(bool)
    return quantile.Tallies(total, excess, spread, second, fourth, known)


def _cells(*columns: Column) -> Arrow:
    *_, factors = columns
    found: dict[int, Solved] = {}
    for kron, rows in lists.by_factors(factors):
        for row in range(len(factors)) if isinstance(rows, slice) else rows.tolist():
            found[row] = _solved(columns, row, kron)
    solved = [found[row] for row in range(len(factors))]
    names = ("estimate", "observed", "second", "fourth", "mass", "covariance")
    return _struct(
        group=pa.array([each.group for each in solved], type=pa.list_(pa.int64())),
        **{"class": pa.array([each.wanted for each in solved], type=pa.list_(pa.int64()))},
        **{name: lists.list_of_lists([getattr(each, name) for each in solved]) for name in names},
    )


def _solved(columns: Sequence[Column], row: int, kron: Kron) -> Solved:
    """One row of arguments, answered."""
    cells, owner, groups, sums, labels, wanted, functions, pieces, pairs, *rest = columns
    scored, masses, first, _ = rest
    published = Published(
        tuple(map(_integers, lists.inner(cells, row, "cells"))),
        _integers(_row(owner, row, "owner")),
        int(lists.numbers(groups, "groups")[row]),
        tuple(lists.inner(sums, row, "sums")),
    )
    keys = [_integers(each) for each in lists.inner(wanted, row, "wanted")]
    program = Program(
        published,
        kron,
        tuple(_integers(x) if len(x) else None for x in lists.inner(labels, row, "labels")),
        np.array(keys, dtype=np.intp).T if keys else np.zeros((1, 0), dtype=np.intp),
        tuple(
            tuple(f if len(f) else None for f in own)
            for own in lists.innermost(functions, row, "functions")
        ),
        _integers(np.array(lists.inner(pieces, row, "pieces")).reshape(-1, 3)),
        _integers(np.array(lists.inner(pairs, row, "pairs")).reshape(-1, 5)),
        _integers(_row(scored, row, "scored")),
        tuple(x if len(x) else None for x in lists.inner(masses, row, "masses")),
    )
    count, descending, *those = _integers(_row(first, row, "first")).tolist() or (0, 0)
    return solve(program, First(np.array(those, dtype=np.intp), count, bool(descending)))


def _row(column: Column, row: int, name: str) -> Array:
    return lists.ragged(column.slice(row, 1), name)[1]


def _integers(values: Array) -> Ints:
    return values.astype(np.intp)


def _constrain(*columns: Column) -> Arrow:
    estimate, low, high = _arrays(columns[:3], ("estimate", "low", "high"))
    # What has no end may say so: sums are not bounded above.
    floor, ceiling = (
        lists.ends(c, n) for c, n in zip(columns[3:], ("floor", "ceiling"), strict=True)
    )
    uncut = Bounds(low, high, np.ones(len(low), dtype=bool))
    cut = intervals.constrain(uncut, estimate, floor, ceiling)
    return _struct(low=cut.low, high=cut.high)


def _bounds(bounds: Bounds) -> Arrow:
    low, high = lists.nullable(bounds.low), lists.nullable(bounds.high)
    return _struct(low=low, high=high, reliable=bounds.reliable)


def _struct(**fields: Arrow | NDArray[Any]) -> Arrow:
    """A column of structs."""
    arrays: list[Arrow] = [
        pa.array(values) if isinstance(values, np.ndarray) else values for values in fields.values()
    ]
    return pa.StructArray.from_arrays(arrays, names=list(fields))


def _gathered(found: Sequence[tuple[Rows, object]], name: str, size: int) -> NDArray[Any]:
    """One attribute of batched results, in the order of the rows."""
    return lists.scatter([(rows, getattr(one, name)) for rows, one in found], size)


def _arrays(columns: Sequence[Column], names: Sequence[str]) -> list[Array]:
    return [lists.numbers(column, name) for column, name in zip(columns, names, strict=True)]


def _constant(column: Column, name: str) -> float:
    values = lists.numbers(column, name)
    if not (values == values[0]).all():
        raise KernelError(f"{name} must be the same in every row")
    return float(values[0])


def _function(name: str, parameters: str, returns: str, body: Body, meaning: str) -> Function:
    """Make an entry of the table; parameters are written as in SQL: ``name TYPE, ...``."""
    # A comma inside a STRUCT's brackets is the type's.
    types = dict(one.split(" ", 1) for one in re.split(r", (?![^(]*\))", parameters))
    return Function(f"privsql_{name}", types, returns, body, meaning)


FUNCTIONS: tuple[Function, ...] = (
    _function(
        "expected",
        f"counts {VECTOR}, factors {FACTORS}",
        VECTOR,
        _vectors(lambda x, kron: kron.rows(x), "counts", gives=VECTOR),
        "expected published states of original ones",
    ),
    _function(
        "invert",
        f"observed {VECTOR}, factors {FACTORS}",
        VECTOR,
        _vectors(invert.invert, "observed", gives=VECTOR),
        "original states, unbiased, from published counts or sums",
    ),
    _function(
        "dense",
        f"states BIGINT[], amounts {VECTOR}, size BIGINT",
        VECTOR,
        _dense,
        "dense vector over `size` states, numbered from zero, from its non-zero entries",
    ),
    _function(
        "inverse",
        f"function {VECTOR}, factors {FACTORS}",
        VECTOR,
        _vectors(invert.invert_function, "function", gives=VECTOR),
        "function of published states whose sum estimates that of a function of original ones",
    ),
    _function(
        "estimate",
        f"observed {VECTOR}, function {VECTOR}, factors {FACTORS}",
        NUMBER,
        _vectors(invert.estimate, "observed", "function"),
        "sum of a function over original states, unbiased",
    ),
    _function(
        "variance",
        f"products {VECTOR}, squares {VECTOR}, function {VECTOR}, factors {FACTORS}",
        NUMBER,
        _vectors(variance.variance, "products", "squares", "function"),
        "unbiased variance of that estimate",
    ),
    _function(
        "covariance",
        f"products {VECTOR}, squares {VECTOR}, left {VECTOR}, right {VECTOR}, factors {FACTORS}",
        NUMBER,
        _vectors(variance.covariance, "products", "squares", "left", "right"),
        "unbiased covariance of two estimates",
    ),
    _function(
        "effective_rows",
        f"squares {VECTOR}, fourths {VECTOR}, function {VECTOR}, factors {FACTORS}",
        NUMBER,
        _vectors(variance.effective_rows, "squares", "fourths", "function"),
        "effective number of equally weighted rows behind the estimate",
    ),
    _function(
        "weights",
        f"squares {VECTOR}, fourths {VECTOR}, function {VECTOR}, factors {FACTORS}",
        "STRUCT(second DOUBLE, fourth DOUBLE)",
        _weights,
        "summed over independent parts of an answer: `sum(second)^2 / sum(fourth)` effective rows",
    ),
    _function(
        "likelihood",
        f"counts {VECTOR}, factors {FACTORS}",
        LIKELIHOOD,
        partial(_likelihood, solve=mle.maximum_likelihood),
        "most likely non-negative original states, with their certificate",
    ),
    _function(
        "em",
        f"counts {VECTOR}, factors {FACTORS}, tolerance {NUMBER}, rounds INTEGER",
        LIKELIHOOD,
        _em,
        "the papers' iteration, stopped by its own rule",
    ),
    _function(
        "critical",
        f"level {NUMBER}, cells BIGINT",
        NUMBER,
        _critical,
        "critical value z of simultaneous intervals for this many cells",
    ),
    _function(
        "score_interval",
        f"hits {NUMBER}, rows {NUMBER}, factors {FACTORS}, z {NUMBER}",
        INTERVAL,
        _score,
        "interval of a count under one condition, from its published count",
    ),
    _function(
        "wald_interval",
        f"estimate {NUMBER}, variance {NUMBER}, effective_rows {NUMBER}, z {NUMBER}",
        INTERVAL,
        _wald,
        "estimate +- z standard errors",
    ),
    _function(
        "fieller_interval",
        ", ".join(
            f"{name} {NUMBER}"
            for name in ("numerator", "denominator", "v_num", "cov", "v_den", "effective_rows", "z")
        ),
        INTERVAL,
        _fieller,
        "interval of a ratio",
    ),
    _function(
        "quantile_interval",
        f"excess {VECTOR}, variance {VECTOR}, effective_rows {VECTOR}, z {NUMBER}",
        POSITIONS,
        _woodruff,
        "position of a quantile in an ordered domain, counted from one, and its interval",
    ),
    _function(
        "tally",
        f"products {VECTOR}, squares {VECTOR}, fourths {VECTOR}, positions BIGINT[], q {NUMBER},"
        f" size BIGINT, factors {FACTORS}",
        TALLY,
        _tally,
        "contribution of one part of the rows to a quantile, at each of `size` positions in an"
        " ordered column, numbered from zero (-1: a state that is not counted)",
    ),
    _function(
        "quantile",
        f"tallies {TALLY}[], q {NUMBER}, kind VARCHAR, z {NUMBER}",
        QUANTILE,
        _quantile,
        "quantile between two positions, counted from zero, and its interval, from the tallies"
        " of its parts, whose rows differ (NULL: no part); kind is 'disc' or 'cont'",
    ),
    _function(
        "cells",
        "cells BIGINT[][], owner BIGINT[], groups BIGINT, sums DOUBLE[][], labels BIGINT[][],"
        " wanted BIGINT[][], functions DOUBLE[][][], pieces BIGINT[][], pairs BIGINT[][],"
        f" scored BIGINT[], masses DOUBLE[][], first BIGINT[], factors {FACTORS}",
        CELLS,
        _cells,
        "all cells of an answer at once, column by column: published states as the cell of each"
        " column and the number of a group; the class of each cell of a column (empty: no key) and"
        " the classes that are wanted; of each piece a function of each column (empty: 1) and its"
        " sums (products, squares, fourths), of each pair both pieces, whether the second is over"
        " all classes, and its sums (products, squares); `scored`: the one column that a piece is"
        " a function of (-1: others too), with the `masses` of its cells; `first`: only so many"
        " cells, whether from the largest, and of which pieces' sum (empty: all cells)",
    ),
    _function(
        "constrain",
        ", ".join(f"{name} {NUMBER}" for name in ("estimate", "low", "high", "floor", "ceiling")),
        "STRUCT(low DOUBLE, high DOUBLE)",
        _constrain,
        "interval of a constrained estimate: clipped to the possible range, containing the"
        " estimate, of positive width",
    ),
)
