"""Asking hundreds of releases one question: the query layer, or the formula by hand."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import reduce
from pathlib import Path
from typing import Any, Protocol

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsql.release.manifest import Manifest, SensitiveColumn
from privsql.release.names import MULTIPLICITY, WEIGHT
from privsql.release.store import open_release
from tests.oracle.families import Family
from tests.oracle.judging import Estimates
from tests.oracle.releases import KEPT, TABLE, WHOLE, Releases
from tests.oracle.sessions import session_class

Array = NDArray[np.float64]

# Keys, then the estimate, stderr, low, high, reliable.
Line = tuple[Any, ...]


class Asks(Protocol):
    """Someone who answers a family for every group, with error bars."""

    def ask(self, family: Family, keys: tuple[str, ...]) -> list[Line]: ...


class LayerAsks:
    """The query layer on one release."""

    def __init__(self, path: Path) -> None:
        self.session = session_class()(path)

    def ask(self, family: Family, keys: tuple[str, ...]) -> list[Line]:
        outcome = self.session.run(family.sql(keys))
        place = len(keys)
        columns = [column.to_pylist() for column in outcome.table.columns]
        if place not in outcome.bars:
            raise AssertionError("the estimate came without error bars")
        bars = outcome.bars[place]
        columns += [bars.column(n).to_pylist() for n in ("stderr", "low", "high", "reliable")]
        return list(zip(*columns, strict=True))


class ByHand:
    """Section 3 of reconstruction.md, row by row: what the layer must agree with.

    Only for linear families.  ``fault`` makes it wrong in a way the judge must notice.
    """

    def __init__(self, table: pa.Table, manifest: Manifest, fault: str = "") -> None:
        self.table, self.manifest, self.fault = table, manifest, fault
        self._codes: dict[str, NDArray[Any]] = {}  # reading codes takes longer than all else
        self._grouped: dict[tuple[str, ...], tuple[NDArray[Any], list[tuple[Any, ...]]]] = {}

    @classmethod
    def of(cls, path: Path, fault: str = "") -> ByHand:
        """Answer about a release in a file."""
        release = open_release(path)
        with release.connection() as con:
            table: pa.Table = con.sql(f"FROM {TABLE}").to_arrow_table()
        return cls(table, release.manifest, fault)

    def ask(self, family: Family, keys: tuple[str, ...]) -> list[Line]:
        columns = [c for c in self.manifest.sensitive if c.name in (*family.columns, *keys)]
        public = [key for key in keys if key not in {c.name for c in columns}]
        groups, labels = self._groups(public)
        values: list[Any] = [None]
        if len(public) < len(keys):  # one sensitive key, and it comes last
            domain = next(c for c in columns if c.name == keys[-1]).domain
            values = domain.values().to_pylist()
        lines = []
        for value in values:
            state = family.state
            if value is not None:
                state = f"({state}) * ({keys[-1]} = '{value}')::DOUBLE"
            totals, variances = self._totals(family.weight, state, columns, groups, len(labels))
            for label, total, variance in zip(labels, totals, variances, strict=True):
                # What is left of zero is rounding: swap's whole column is exact.
                exact = abs(variance) <= 1e-9 * max(1.0, abs(total))
                known = 0.0 if exact else math.nan
                stderr = math.sqrt(variance) if variance > 0 and not exact else known
                bars = (stderr, total - 1.96 * stderr, total + 1.96 * stderr, True)
                lines.append((*label, *([value] if value is not None else []), total, *bars))
        return lines

    def _groups(self, public: list[str]) -> tuple[NDArray[Any], list[tuple[Any, ...]]]:
        """The group of each row, and the keys of each group."""
        if tuple(public) not in self._grouped:
            groups = np.zeros(len(self.table), dtype=np.int64)
            labels: list[tuple[Any, ...]] = [()]
            for name in public:
                encoded = self.table.column(name).combine_chunks().dictionary_encode()
                values = encoded.dictionary.to_pylist()
                groups = groups * len(values) + encoded.indices.to_numpy()
                labels = [(*label, value) for label in labels for value in values]
            self._grouped[tuple(public)] = groups, labels
        return self._grouped[tuple(public)]

    def _coded(self, column: SensitiveColumn) -> NDArray[Any]:
        if column.name not in self._codes:
            self._codes[column.name] = column.domain.codes(self.table.column(column.name))
        return self._codes[column.name]

    def _totals(
        self,
        weight: str,
        state: str,
        columns: list[SensitiveColumn],
        groups: NDArray[Any],
        count: int,
    ) -> tuple[Array, Array]:
        """``sum m W G`` and ``sum m (W^2 G^2 - W H)`` of each group."""
        g = _evaluated(state, columns)
        G, H = _inverted(g, columns), _inverted(g * g, columns)
        if self.fault == "not reconstructed":
            G, H = g, np.zeros_like(g)
        codes = tuple(self._coded(column) for column in columns)
        public = self._public(weight)
        m = self._hidden(MULTIPLICITY)
        w = self._hidden(WEIGHT)
        wanted = public * G[codes]
        spread = w * w * wanted**2 - w * public**2 * H[codes]
        total: Array = np.bincount(groups, m * w * wanted, minlength=count).astype(np.float64)
        variance: Array = np.bincount(groups, m * spread, minlength=count).astype(np.float64)
        if len(columns) == 1 and columns[0].mechanism in WHOLE:
            error = G[codes] ** 2 - H[codes]
            variance = np.array(
                [
                    self._whole(columns[0], public * (groups == group), error, variance[group], g)
                    for group in range(count)
                ]
            )
        return total, variance * (0.5 if self.fault == "small stderr" else 1.0)

    def _whole(
        self, column: SensitiveColumn, v: Array, error: Array, plain: float, g: Array
    ) -> float:
        """Variance of an answer about one column that was perturbed as a whole.

        A sum over all N rows; ``v`` is zero outside of the selection.
        """
        rows, mean = len(v), v.mean()
        if column.mechanism == "decoy":
            # Each group publishes c draws from its c values: Var(y . g) = f . g (g - T g).
            published = np.bincount(self._coded(column), minlength=len(g))
            whole = float(published @ (g * (g - column.channel.matrix @ g)))
            near = v.sum() ** 2 / (rows * (v @ v))
            return float((1 - near**3) * plain + mean**2 * whole)
        p = KEPT
        k = (v - mean * (1 if column.mechanism == "swap" else 1 - p)) / p
        return float(p * p * (k * k) @ error)

    def _public(self, weight: str) -> Array:
        if weight == "1":
            return np.ones(len(self.table))
        return np.asarray(self.table.column(weight).to_numpy(), dtype=np.float64)

    def _hidden(self, name: str) -> Array:
        if name not in self.table.column_names:
            return np.ones(len(self.table))
        return np.asarray(self.table.column(name).to_numpy(), dtype=np.float64)


_KNOWN: dict[tuple[str, ...], Array] = {}


def _evaluated(state: str, columns: list[SensitiveColumn]) -> Array:
    """A function of sensitive columns over all their values, an axis a column."""
    key = (state, *(f"{column.name} {column.domain.to_dict()}" for column in columns))
    if key not in _KNOWN:
        _KNOWN[key] = _over_domains(state, columns)
    return _KNOWN[key]


def _over_domains(state: str, columns: list[SensitiveColumn]) -> Array:
    with duckdb.connect() as con:
        for column in columns:
            values = pa.table({column.name: column.domain.values()})
            numbers = pa.array(np.arange(len(values)), pa.int64())
            con.register(f"d_{column.name}", values.append_column("c", numbers))
        froms = ", ".join(f"d_{c.name}" for c in columns)
        order = ", ".join(f"d_{c.name}.c" for c in columns)
        found = con.execute(f"SELECT ({state})::DOUBLE FROM {froms} ORDER BY {order}").fetchnumpy()
    shape = tuple(c.domain.size for c in columns)
    return np.asarray(next(iter(found.values())), dtype=np.float64).reshape(shape)


def _inverted(g: Array, columns: list[SensitiveColumn]) -> Array:
    def along(values: Array, axis: int) -> Array:
        turned = np.moveaxis(values, axis, -1)
        done = turned @ np.linalg.inv(columns[axis].channel.matrix).T
        return np.moveaxis(done, -1, axis)

    return reduce(along, range(len(columns)), g)


def gathered(
    releases: Releases, askers: list[Asks], family: Family, by: tuple[str, ...]
) -> dict[object, Estimates]:
    """Answers of all releases beside the raw one, a cell for each group."""
    with duckdb.connect() as con:
        con.register(TABLE, releases.raw)
        truths = {row[:-1]: float(row[-1]) for row in con.execute(family.sql(by)).fetchall()}
    lines: dict[object, list[Line]] = defaultdict(list)
    if releases.stacked:
        for line in sorted(askers[0].ask(family, ("rep", *by)), key=lambda line: int(line[0])):
            lines[line[1 : 1 + len(by)]].append(line[1 + len(by) :])
    else:
        for asker in askers:
            for line in asker.ask(family, by):
                lines[line[: len(by)]].append(line[len(by) :])
    found: dict[object, Estimates] = {}
    for key, truth in truths.items():
        if len(lines[key]) != releases.copies:
            raise AssertionError(f"{len(lines[key])} answers for {key}, not {releases.copies}")
        columns = [np.array(each, dtype=np.float64) for each in zip(*lines[key], strict=True)]
        found[key] = Estimates(truth, *columns)
    return found
