"""The tables of Reconstruction Privacy: merged public values, personal groups, query pool.

raw table -- chi-square test of all pairs of values --> merged values -- all equal --> groups
random conditions on raw values with an answer of at least 0.1% of the rows --> the pool
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsql.publish.groups.chisquare import linked
from privsql.publish.groups.merging import Merging, merge, personal_groups

Codes = NDArray[np.int64]
Array = NDArray[np.float64]

SELECTIVITY = 0.001  # least share of the rows that a query of the pool selects
DIMENSIONS = (1, 2, 3)  # conditions on public columns


@dataclass(frozen=True)
class Case:
    """A table with some public columns and one sensitive one, as codes."""

    name: str
    columns: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]  # of each public column, in the order of its codes
    public: tuple[Codes, ...]  # codes of each public column, shape (n,)
    target: str  # the sensitive column
    domain: tuple[str, ...]
    sensitive: Codes  # shape (n,)
    fixed: Merging | None = None  # a merging to take instead of the test's

    @property
    def size(self) -> int:
        """Sensitive values, m."""
        return len(self.domain)

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return len(self.sensitive)

    def merging(self, **options: Any) -> Merging:
        """Public values merged by the chi-square test (RECON 3.4); options as ``merge``."""
        tables = {
            column: [_counts(code, len(values), self.sensitive, self.size)]
            for column, values, code in zip(self.columns, self.values, self.public, strict=True)
        }
        tuples, rows = np.unique(np.stack(self.public), axis=1, return_counts=True)
        names = dict(zip(self.columns, self.values, strict=True))
        return merge(tables, list(tuples), rows, names=names, **options)

    def links(self, column: int) -> NDArray[np.bool_]:
        """Which pairs of values of a public column the test cannot tell apart."""
        size = len(self.values[column])
        return linked(_counts(self.public[column], size, self.sensitive, self.size))

    @cached_property
    def merged(self) -> Merging:
        """The merging with m - 1 degrees of freedom, which reproduces table 4."""
        return self.fixed or self.merging()

    @cached_property
    def groups(self) -> Codes:
        """Personal group of each row."""
        return np.asarray(personal_groups(self.public, self.merged))

    @cached_property
    def cells(self) -> Codes:
        """Merged value of each group in each column, shape (groups, columns)."""
        first = np.unique(self.groups, return_index=True)[1]
        labels = zip(self.merged.labels, self.public, strict=True)
        return np.stack([label[code[first]] for label, code in labels], axis=1)

    @cached_property
    def counts(self) -> Codes:
        """Original rows of each group and sensitive value, shape (groups, m)."""
        return _counts(self.groups, len(self.cells), self.sensitive, self.size)

    @cached_property
    def frequencies(self) -> Array:
        """Largest frequency f of each group."""
        return np.asarray(self.counts.max(axis=1) / self.counts.sum(axis=1))

    def part(self, rows: int, rng: np.random.Generator) -> Case:
        """A random part of the table."""
        chosen = rng.permutation(self.rows)[:rows]
        public = tuple(code[chosen] for code in self.public)
        name = f"a part of {self.name}"
        return Case(name, self.columns, self.values, public, self.target, self.domain,
                    self.sensitive[chosen])  # fmt: skip

    def evened(self, share: float, rng: np.random.Generator) -> Case:
        """The same groups, a share of the sensitive values drawn anew and all alike."""
        drawn = rng.integers(self.size, size=self.rows)
        values = np.where(rng.random(self.rows) < share, drawn, self.sensitive)
        name = f"{self.name}, evened"
        return replace(self, name=name, sensitive=values, fixed=self.merged)

    def table(self) -> pa.Table:
        """The table with merged public values, which is what the paper publishes."""
        named: dict[str, Any] = {
            column: np.array([f"{column} {i}" for i in range(size)])[label[code]]
            for column, size, label, code in zip(
                self.columns, self.merged.sizes, self.merged.labels, self.public, strict=True
            )
        }
        return pa.table(named | {self.target: np.array(self.domain)[self.sensitive]})


@dataclass(frozen=True)
class Pool:
    """Count queries: public conditions on merged values, and one sensitive value each.

    Queries that differ only in the sensitive value share a row of ``selected``.
    """

    conditions: tuple[tuple[tuple[int, int], ...], ...]  # (column, merged value) pairs
    selected: Array  # which groups a condition selects, 0 or 1, shape (conditions, groups)
    condition: Codes  # of each query
    value: Codes  # sensitive value of each query
    answers: Array  # true counts

    def errors(self, estimates: Array) -> Array:
        """Relative error ``|est - ans| / ans`` of each query, from estimates (groups, m)."""
        return np.asarray(np.abs(self.signed(estimates)) / self.answers)

    def signed(self, estimates: Array) -> Array:
        """``est - ans`` of each query; answers are sums over groups."""
        return np.asarray((self.selected @ estimates)[self.condition, self.value] - self.answers)


def case(table: pa.Table, name: str, columns: tuple[str, ...], target: str) -> Case:
    """Encode a table."""
    values, codes = zip(*(_encoded(table, column) for column in (*columns, target)), strict=True)
    return Case(name, columns, values[:-1], codes[:-1], target, values[-1], codes[-1])


def pool(
    given: Case,
    size: int,
    rng: np.random.Generator,
    dimensions: tuple[int, ...] = DIMENSIONS,
) -> Pool:
    """Draw queries as the paper does (RECON 6.1).

    The number of conditions, the columns, a value of each and the sensitive value are drawn
    with equal chances among *original* values; a query that selects at least 0.1% of the rows
    enters the pool with its values replaced by merged ones.
    """
    tables = {columns: _cube(given, columns) for columns in _subsets(len(given.columns))}
    found: dict[tuple[tuple[int, int], ...], int] = {}
    condition: list[int] = []
    value: list[int] = []
    while len(value) < size:
        d = int(rng.choice(dimensions))
        columns = tuple(sorted(rng.permutation(len(given.columns))[:d].tolist()))
        places = tuple(int(rng.integers(len(given.values[c]))) for c in columns)
        target = int(rng.integers(given.size))
        if tables[columns][(*places, target)] < SELECTIVITY * given.rows:
            continue
        labels = [int(given.merged.labels[c][v]) for c, v in zip(columns, places, strict=True)]
        asked = tuple(zip(columns, labels, strict=True))
        condition.append(found.setdefault(asked, len(found)))
        value.append(target)
    selected = np.array(
        [np.all([given.cells[:, c] == v for c, v in asked], axis=0) for asked in found], dtype=float
    )
    numbers, values = np.array(condition), np.array(value)
    answers = (selected @ given.counts)[numbers, values]
    return Pool(tuple(found), selected, numbers, values, answers)


def _subsets(columns: int) -> Iterator[tuple[int, ...]]:
    for d in DIMENSIONS:
        yield from combinations(range(columns), d)


def _cube(given: Case, columns: tuple[int, ...]) -> Codes:
    """Rows of each combination of original values and sensitive value."""
    sizes = [len(given.values[c]) for c in columns] + [given.size]
    flat = np.ravel_multi_index([*(given.public[c] for c in columns), given.sensitive], sizes)
    return np.bincount(flat, minlength=int(np.prod(sizes))).reshape(sizes)


def _counts(rows: Codes, size: int, columns: Codes, width: int) -> Codes:
    return np.bincount(rows * width + columns, minlength=size * width).reshape(size, width)


def _encoded(table: pa.Table, column: str) -> tuple[tuple[str, ...], Codes]:
    """Sorted values of a column, and the place of each row's value among them."""
    found: Any = table[column].combine_chunks().dictionary_encode()
    values = found.dictionary.to_numpy(zero_copy_only=False)
    order = np.argsort(values)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return tuple(str(value) for value in values[order]), place[found.indices.to_numpy()]
