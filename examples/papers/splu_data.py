"""The tables of Small sum privacy, large sum utility, and the queries that are asked of them.

A query is a conjunction of up to three public conditions with one value of each sensitive
column.  The paper draws 5,000 at random whose answers are small (1 to 10 rows) and 5,000 whose
answers are large; here the distinct ones are counted and, where there are more, 5,000 drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Codes = NDArray[np.int64]
Array = NDArray[np.float64]

POOL = 5000  # queries of a pool
DIMENSIONS = (1, 2, 3)  # public conditions of a query
SMALL = (1, 11)  # answers that should be wrong
CENSUS_EDGES = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05)  # shares of the rows that a query selects
REACTION_EDGES = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.09)
PAIR_EDGES = (0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.007)


@dataclass(frozen=True)
class Case:
    """A table as codes: public columns, and one or two sensitive ones."""

    name: str
    columns: tuple[str, ...]
    public: tuple[Codes, ...]  # shape (n,) each
    targets: tuple[str, ...]
    sensitive: tuple[Codes, ...]  # shape (n,) each

    @property
    def rows(self) -> int:
        """Rows of the table, N."""
        return len(self.sensitive[0])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values of each sensitive column."""
        return tuple(int(codes.max()) + 1 for codes in self.sensitive)

    @property
    def joint(self) -> Codes:
        """All sensitive values of a row as one code."""
        return flat(self.sensitive, self.sizes)

    def totals(self, column: int = 0) -> Codes:
        """Rows of each value of a sensitive column."""
        return np.bincount(self.sensitive[column], minlength=self.sizes[column])

    def taken(self, rows: Codes) -> Case:
        """These rows only, or several times; values that are left without a row go."""
        sensitive = tuple(_recoded(codes[rows]) for codes in self.sensitive)
        public = tuple(codes[rows] for codes in self.public)
        return Case(self.name, self.columns, public, self.targets, sensitive)

    def table(self) -> pa.Table:
        """The codes as a table, to be published."""
        both = (*self.public, *self.sensitive)
        return pa.table(dict(zip((*self.columns, *self.targets), both, strict=True)))


@dataclass(frozen=True)
class Pool:
    """Queries with their true answers, and which rows satisfy their public conditions.

    A condition is a number; ``member_rows[i]`` satisfies condition ``member_of[i]``.
    """

    column_sets: tuple[tuple[int, ...], ...]  # of each condition
    conditions: tuple[tuple[int, ...], ...]  # the codes that it asks for
    condition: Codes  # of each query, shape (Q,)
    value: Codes  # sensitive value of each query, as a joint code, shape (Q,)
    answers: Array  # shape (Q,)
    member_rows: Codes
    member_of: Codes
    width: int  # joint codes

    def counted(self, joint: Codes, weights: Array | None = None) -> Array:
        """Rows of each condition by joint code, shape (conditions, width).

        Codes below zero stand for rows that were not published.
        """
        codes, weight = joint[self.member_rows], None
        cells = self.member_of * self.width + codes
        if weights is not None:
            weight = weights[self.member_rows]
        if (codes < 0).any():
            cells = cells[codes >= 0]
            weight = None if weight is None else weight[codes >= 0]
        length = len(self.conditions) * self.width
        return np.bincount(cells, weight, length).reshape(-1, self.width).astype(np.float64)

    def asked(self, table: Array) -> Array:
        """The cells of a table (conditions, width) that the queries ask for."""
        picked: Array = table[self.condition, self.value]
        return picked

    def errors(self, estimates: Array) -> Array:
        """Relative error of each query: |estimate - answer| / answer."""
        found: Array = np.abs(estimates - self.answers) / self.answers
        return found

    def bands(self, edges: Sequence[float], rows: int) -> list[NDArray[np.bool_]]:
        """Which queries select a share of the rows between neighbouring edges."""
        share = self.answers / rows
        return [(share >= low) & (share < high) for low, high in pairwise(edges)]


def flat(codes: Sequence[Codes], sizes: Sequence[int]) -> Codes:
    """Several codes of a row as one; -1 where one of them is below zero."""
    whole = np.zeros(len(codes[0]), dtype=np.int64)
    missing = np.zeros(len(codes[0]), dtype=np.bool_)
    for each, size in zip(codes, sizes, strict=True):
        whole = whole * size + each
        missing |= each < 0
    return np.where(missing, -1, whole)


def case(
    table: pa.Table,
    name: str,
    columns: Sequence[str],
    target: str,
    bins: dict[str, int] | None = None,
) -> Case:
    """Public columns and a sensitive one; ``bins`` are further sensitive columns, in bins.

    Bins hold about equal numbers of rows, as the paper's intervals of age do.
    """
    public = tuple(_recoded(table[column].to_numpy(zero_copy_only=False)) for column in columns)
    sensitive = [_recoded(table[target].to_numpy(zero_copy_only=False))]
    for column, number in (bins or {}).items():
        values = table[column].to_numpy(zero_copy_only=False)
        codes = _recoded(values)
        share = np.bincount(codes) / len(codes)
        middle = np.cumsum(share) - share / 2  # a value goes where its middle falls
        sensitive.append(_recoded((middle * number).astype(np.int64)[codes]))
    return Case(name, tuple(columns), public, (target, *(bins or ())), tuple(sensitive))


def pool(
    given: Case, low: float, high: float, rng: np.random.Generator, *, number: int = POOL
) -> Pool:
    """Distinct queries with low <= answer < high, at most ``number`` of them, drawn at random."""
    width = int(np.prod(given.sizes))
    joint, sets, found = given.joint, [], []
    for size in DIMENSIONS:
        for columns in combinations(range(len(given.columns)), size):
            keys = _key(given, columns)
            cells, rows = np.unique(keys * width + joint, return_counts=True)
            fits = (rows >= low) & (rows < high)
            sets.append(columns)
            found.append((np.full(fits.sum(), len(sets) - 1), cells[fits], rows[fits]))
    place, cells, answers = (np.concatenate(part) for part in zip(*found, strict=True))
    if len(cells) > number:
        drawn = np.sort(rng.choice(len(cells), number, replace=False))
        place, cells, answers = place[drawn], cells[drawn], answers[drawn]
    keys, value = cells // width, cells % width
    asked, condition = np.unique(np.stack([place, keys]), axis=1, return_inverse=True)
    column_sets, conditions = [], []
    members = [np.zeros((2, 0), dtype=np.int64)]
    for number_of_set in np.unique(asked[0]).tolist():
        columns = sets[number_of_set]
        here = np.flatnonzero(asked[0] == number_of_set)
        row_keys = _key(given, columns)
        at = np.minimum(np.searchsorted(asked[1][here], row_keys), len(here) - 1)
        rows = np.flatnonzero(asked[1][here][at] == row_keys)
        members.append(np.stack([rows, here[at[rows]]]))
        for key in asked[1][here].tolist():
            column_sets.append(columns)
            conditions.append(_codes(given, columns, key))
    member_rows, member_of = np.concatenate(members, axis=1)
    return Pool(
        tuple(column_sets),
        tuple(conditions),
        condition.reshape(-1),
        value,
        answers.astype(np.float64),
        member_rows,
        member_of,
        width,
    )


def doubled(given: Pool, rows: int) -> Pool:
    """The pool of a table that holds every row twice."""
    return Pool(
        given.column_sets,
        given.conditions,
        given.condition,
        given.value,
        2 * given.answers,
        np.concatenate([given.member_rows, given.member_rows + rows]),
        np.concatenate([given.member_of, given.member_of]),
        given.width,
    )


def _key(given: Case, columns: Sequence[int]) -> Codes:
    whole = np.zeros(given.rows, dtype=np.int64)
    for column in columns:
        whole = whole * (int(given.public[column].max()) + 1) + given.public[column]
    return whole


def _codes(given: Case, columns: Sequence[int], key: int) -> tuple[int, ...]:
    codes: list[int] = []
    for column in reversed(columns):
        key, code = divmod(key, int(given.public[column].max()) + 1)
        codes.append(code)
    return tuple(reversed(codes))


def _recoded(values: NDArray[np.generic]) -> Codes:
    """0, 1, ... in the order of the values."""
    codes: Codes = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return codes
