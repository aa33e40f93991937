# ruff: noqa: S608 - all names in these statements are quoted, or ours
"""Public columns that tell a sensitive one: a copy of it, or what it follows from.

Perturbing a column protects nobody where a column beside it tells the same.  For each pair,

    agreement = chance that two rows with one public value have one sensitive value
    base      = the same chance for any two rows

Where hardly any two rows share a public value, rows that are neighbours in its order count as
sharing one.  From raw data both are counted, and so is the share of rows whose value is the most
frequent one among the *others* with their public value (a row must not tell itself).  From a
release alone pairs of rows are reconstructed: with G(y) = T^-1 e_y, E<G(y), G(y')> = 1[x = x'],

    E |sum G(y)|^2 - sum |G(y)|^2 = pairs of rows with equal values

over the rows of a public value, whose draws are independent.  The error of their sum is bounded,
so that a pair is named only where it is certain, and otherwise left open.  (reconstruction, 2)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import duckdb
import numpy as np
from numpy.typing import NDArray

from privsql.audit.counting import Integers, codes_of, summed
from privsql.audit.criteria.amplification import Array
from privsql.audit.uniqueness import ColumnRisk, N
from privsql.channels import Replace, Uniform
from privsql.release.manifest import Manifest, SensitiveColumn
from privsql.release.names import MULTIPLICITY, published_table, quoted

# A column tells another if so many rows have what it says, and half of the others' errors go.
TELLING, FEWER_ERRORS = 0.95, 0.5

# Agreement below this means a share below TELLING: a share q agrees in at least q^2 of the pairs.
AGREEING = TELLING**2

# Deviations of an estimate that count as certain: many pairs of columns are looked at.
Z = 3.0

# Rows that count as neighbours, and values of a column that are looked at, chosen by a hash.
NEIGHBOURS, MOST_VALUES = 5, 200_000

# Rows that differ from the most frequent value: with fewer nothing can be told.
FEW = 5

Verdict = Literal["tells", "open", "free"]


@dataclass(frozen=True)
class Link:
    """A public column beside a sensitive one."""

    public: str
    sensitive: str
    verdict: Verdict
    agreement: float | None = None
    error: float = 0.0  # of the agreement, at three deviations; 0 where it was counted
    base: float | None = None
    share: float | None = None  # from raw data alone
    base_share: float | None = None


@dataclass(frozen=True)
class Pairs:
    """Rows by public value (places 0, 1, ...) and sensitive value, once each."""

    places: Integers
    codes: Integers
    counts: Array

    @property
    def sizes(self) -> Array:
        """Rows of each place."""
        return summed(self.places, self.counts, int(self.places.max(initial=-1)) + 1)


def links(
    con: duckdb.DuckDBPyConnection,
    manifest: Manifest,
    risks: tuple[ColumnRisk, ...],
    *,
    known: bool,
) -> tuple[Link, ...]:
    """Every public column of a plain type beside every sensitive one."""
    values = {risk.name: risk.values for risk in risks}
    chosen = [c.name for c in manifest.public if not _nested(c.type) and values.get(c.name, 0) > 1]
    found = []
    for column in manifest.sensitive:
        fit = known or _reconstructible(column, manifest)
        for name in chosen:
            if not fit:
                found.append(Link(name, column.name, "open"))
                continue
            pairs = _pairs(con, manifest, name, column, values[name], known=known)
            found.append(_link(name, column, pairs, known=known))
    return tuple(found)


def _link(name: str, column: SensitiveColumn, pairs: Pairs, *, known: bool) -> Link:
    """One pair of columns, judged."""
    together = neighbours(pairs)
    if known:
        base_share, share = shares_told(together)
        agreement, base = agreed(together)
        enough = (1 - base_share) * pairs.counts.sum() >= FEW
        tells = enough and share >= TELLING and fewer_errors(share, base_share)
        verdict: Verdict = "tells" if tells else "free"
        return Link(name, column.name, verdict, agreement, 0.0, base, share, base_share)
    channel = column.channel
    assert isinstance(channel, (Uniform, Replace))  # noqa: S101 - chosen so
    agreement, error = estimated(together, channel)
    base = min(max(estimated(_as_one(together), channel)[0], 1 / channel.size), 1.0)
    verdict = "open"
    if agreement + Z * error < AGREEING or not fewer_errors(min(agreement + Z * error, 1.0), base):
        verdict = "free"
    elif agreement - Z * error >= AGREEING and fewer_errors(agreement - Z * error, base):
        verdict = "tells"
    shown = min(max(agreement, 0.0), 1.0)
    return Link(name, column.name, verdict, shown, Z * error, base)


def fewer_errors(share: float, base: float) -> bool:
    """Whether at least half of the errors go that a guess without the column makes."""
    return base < 1 and (share - base) / (1 - base) >= FEWER_ERRORS


def neighbours(pairs: Pairs) -> Pairs:
    """Places that rows share; neighbours are put together where most rows are alone.

    >>> alone = Pairs(np.arange(10), np.arange(10) // 5, np.ones(10))
    >>> neighbours(alone).sizes.tolist()
    [5.0, 5.0]
    """
    sizes = pairs.sizes
    if 2 * sizes[sizes >= 2].sum() >= sizes.sum():
        return pairs
    starts = np.cumsum(sizes) - sizes
    places = (starts // NEIGHBOURS).astype(np.int64)[pairs.places]
    places = np.unique(places, return_inverse=True)[1]
    width = int(pairs.codes.max(initial=0)) + 1
    if width > 1 << 31:
        pairs = Pairs(pairs.places, np.unique(pairs.codes, return_inverse=True)[1], pairs.counts)
        width = int(pairs.codes.max(initial=0)) + 1
    keys, at = np.unique(places * width + pairs.codes, return_inverse=True)
    return Pairs(keys // width, keys % width, summed(at, pairs.counts, len(keys)))


def shares_told(pairs: Pairs) -> tuple[float, float]:
    """Share of the rows with the most frequent value, and of rows that their place tells.

    A place tells a row if the most frequent value among its other rows is the row's own; a row
    that is alone is told by the most frequent value of all.
    """
    total = pairs.counts.sum()
    base = float(summed(*_dense(pairs.codes, pairs.counts)).max() / total)
    order = np.lexsort((-pairs.counts, pairs.places))
    places, counts = pairs.places[order], pairs.counts[order]
    starts = np.flatnonzero(np.diff(places, prepend=-1))
    first = counts[starts]
    ends = np.append(starts[1:], len(counts))
    second = np.where(ends - starts > 1, counts[np.minimum(starts + 1, len(counts) - 1)], 0.0)
    alone = (ends - starts == 1) & (first == 1)
    hits = np.where(first - 1 > second, first, 0.0)[~alone].sum() + base * alone.sum()
    return base, float(hits / total)


def agreed(pairs: Pairs) -> tuple[float, float]:
    """Agreement of rows that share a place, and of any two rows, counted."""
    return _agreement(pairs, pairs.counts * (pairs.counts - 1)), _agreement(
        one := _as_one(pairs), one.counts * (one.counts - 1)
    )


def estimated(pairs: Pairs, channel: Uniform | Replace) -> tuple[float, float]:
    """Agreement of original values, reconstructed from published ones, and a bound on its error.

    With c = 1-p and y_k published rows of value k among the n of a place,

        equal pairs = (sum y_k^2 - 2 c n sum y_k q_k + c^2 n^2 |q|^2 - sum y_k g_k) / p^2
        g_k = 1 - 2 c q_k + c^2 |q|^2

    The variance is at most ``4/p^2 (sum y_k x_k^2 - (sum y_k x_k)^2/n) + 2/p^4 sum y_k (y_k-1)``
    a place; over many places also what they scatter by.
    """
    p, c = channel.retention, 1 - channel.retention
    q = (
        channel.replacing[pairs.codes]
        if isinstance(channel, Replace)
        else np.full(len(pairs.codes), 1 / channel.size)
    )
    square = 1 / channel.size
    if isinstance(channel, Replace):
        square = float((channel.replacing**2).sum())
    y, n = pairs.counts, pairs.sizes
    shared = n >= 2
    if not shared.any():
        return 0.0, math.inf
    sums = [summed(pairs.places, each, len(n)) for each in (y * y, y * q)]
    equal = sums[0] - 2 * c * n * sums[1] + c**2 * n**2 * square
    equal = (equal - (n - 2 * c * sums[1] + c**2 * square * n)) / p**2
    x = np.clip((y - c * q * n[pairs.places]) / p, 0, n[pairs.places])
    held = summed(pairs.places, y * x, len(n)) ** 2 / np.maximum(n, 1)
    spread = 4 / p**2 * (summed(pairs.places, y * x * x, len(n)) - held)
    spread += 2 / p**4 * summed(pairs.places, y * (y - 1), len(n))
    weight = 1 / (n[shared] - 1)
    each, rows = equal[shared] * weight, n[shared]
    total = float(rows.sum())
    found = float(each.sum()) / total
    variance = float((spread[shared] * weight**2).sum())
    if len(rows) >= 100:
        variance = min(variance, float(((each - rows * found) ** 2).sum()))
    return found, math.sqrt(variance) / total


def _agreement(pairs: Pairs, equal: Array) -> float:
    """Equal pairs of a place over all of its pairs, by the rows of places that are shared."""
    n = pairs.sizes
    shared = n >= 2
    if not shared.any():
        return 0.0
    found = summed(pairs.places, equal, len(n))[shared] / (n[shared] - 1)
    return float(found.sum() / n[shared].sum())


def _as_one(pairs: Pairs) -> Pairs:
    """All rows in one place."""
    values, at = np.unique(pairs.codes, return_inverse=True)
    counts = summed(at, pairs.counts, len(values))
    return Pairs(np.zeros(len(values), dtype=np.int64), values, counts)


def _dense(codes: Integers, counts: Array) -> tuple[NDArray[np.intp], Array, int]:
    values, at = np.unique(codes, return_inverse=True)
    return at, counts, len(values)


def _pairs(
    con: duckdb.DuckDBPyConnection,
    manifest: Manifest,
    name: str,
    column: SensitiveColumn,
    values: int,
    *,
    known: bool,
) -> Pairs:
    """Rows counted by a public and a sensitive column, public values in their order."""
    public, sensitive = quoted(name), quoted(column.name)
    times = MULTIPLICITY if manifest.multiplicity and not known else "1"
    source = "raw" if known else published_table(manifest.table)
    step = -(-values // MOST_VALUES)
    some = f" WHERE hash({public}) % {step} = 0" if step > 1 else ""
    found = con.sql(
        f"SELECT dense_rank() OVER (ORDER BY {public}) - 1 AS place, {sensitive} AS code,"
        f" sum({times})::DOUBLE AS {N} FROM {source}{some} GROUP BY {public}, {sensitive}"
    ).to_arrow_table()
    places = found.column(0).to_numpy().astype(np.int64)
    codes = codes_of(column.name, column.domain, found.column(1))
    counts = found.column(2).to_numpy()
    # Raw values that a grid rounds to one point are one value.
    order = np.lexsort((codes, places))
    places, codes, counts = places[order], codes[order], counts[order]
    first = (np.diff(places, prepend=-1) != 0) | (np.diff(codes, prepend=-1) != 0)
    starts = np.flatnonzero(first)
    return Pairs(places[starts], codes[starts], np.add.reduceat(counts, starts))


def _reconstructible(column: SensitiveColumn, manifest: Manifest) -> bool:
    """Whether rows are independent trials that each count once, of a channel with a retention."""
    return manifest.protection is None and column.mechanism in ("uniform", "replace")


def _nested(kind: str) -> bool:
    """Whether a type holds others: such columns are looked at as a whole, and not here."""
    return kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION", "VARIANT"))
