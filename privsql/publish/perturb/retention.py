"""Row-wise perturbation of a column: keep a value, or replace it.

A row holding value i is published as j with chance ``T[i, j]`` of its channel, by draws that
the publisher's key repeats (:mod:`privsql.publish.keys.randomness`).

The **parameters are part of the draw**: a digest of channel and domain goes into the
pseudo-random function beside the column's name.  Were the draws of p = .5 used again for
p = .2, a row published as flu first and as something else then would have been kept the first
time and replaced the second: its value is flu, for certain.  With draws of their own, two
publications are independent and their epsilons add, which is what the ledger counts.

>>> from privsql.channels import Uniform
>>> from privsql.publish.keys.randomness import Seeded
>>> from privsql.publish.groups.units import row_units
>>> ages, rows = np.array([2, 2, 2, 3, 3, 3]), row_units(0, 6)
>>> Sampler(Uniform(0.5, 10)).perturb(ages, Seeded(1), rows, "age").tolist()
[2, 2, 4, 9, 5, 3]
"""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np
from numpy.typing import NDArray

from privsql.channels import Channel, Domain, FineGrain, Matrix, Replace, Uniform
from privsql.errors import DataError, InterfaceError, NotSupportedError, how_many, with_article
from privsql.publish.keys.fingerprint import label
from privsql.publish.keys.randomness import CHUNK, Codes, Randomness, Words, bounded, uniform

# Cumulated chances are whole multiples of 2^-63: all of 64 bits would leave no room for 1.
SCALE_BITS = 63

# The largest double below one.
BELOW_ONE = 1 - 2.0**-53


class Sampler:
    """A channel, ready to be drawn from: its tables are prepared once, for many batches."""

    def __init__(self, channel: Channel, domain: Domain | None = None) -> None:
        if isinstance(channel, Matrix) and not channel.independent:
            raise NotSupportedError(
                f"{with_article(channel.mechanism)} column is not perturbed row by row",
                hint="its rows depend on each other: publish the whole table",
            )
        if domain is not None and domain.size != channel.size:
            raise InterfaceError("the channel and the domain have different sizes")
        self.channel = channel
        self.digest = digest(channel, domain)
        # One chance of keeping for all values, or one for each of them.
        self._last = np.uint64(0)
        self._retentions: NDArray[np.float64] | None = None
        self._table: Words = np.empty(0, dtype=np.uint64)
        if isinstance(channel, Matrix):
            self._table = np.empty(channel.matrix.shape, dtype=np.uint64)
            for row, masses in zip(self._table, channel.matrix, strict=True):
                row[:] = cumulative(masses)
        elif isinstance(channel, FineGrain):
            self._retentions = channel.retentions
        elif isinstance(channel, (Uniform, Replace)):
            # The largest word that keeps: uniform(w) < p, without a float for each word.
            self._last = np.uint64((math.ceil(channel.retention * 2**53) << 11) - 1)
        if isinstance(channel, Replace):
            self._table = cumulative(channel.replacing)

    def perturb(self, codes: Codes, randomness: Randomness, units: Words, column: str) -> Codes:
        """Publish a batch: ``P(published j | original i) = T[i, j]``, each row on its own.

        ``codes`` are positions in the domain, shape ``(n,)``; ``units`` has shape ``(n, 2)``.  Any
        split into batches gives the same published codes.
        """
        codes = np.asarray(codes, dtype=np.int64)
        if codes.ndim != 1 or units.shape != (len(codes), 2):
            raise InterfaceError("perturbing needs one unit of two words for each value")
        # As unsigned numbers, of which negative ones are the largest.
        if len(codes) and codes.view(np.uint64).max() >= self.channel.size:
            outside = int(((codes < 0) | (codes >= self.channel.size)).sum())
            there = how_many(outside, "value lies", "values lie")
            raise DataError(f"{there} outside the domain of {column!r}")
        drawn_as = label(column, self.digest)
        published: Codes = np.empty(len(codes), dtype=np.int64)
        for start in range(0, len(codes), CHUNK):
            rows = slice(start, start + CHUNK)
            published[rows] = self._drawn(codes[rows], randomness, units[rows], drawn_as)
        return published

    def _drawn(self, codes: Codes, randomness: Randomness, units: Words, drawn_as: str) -> Codes:
        words = randomness.words(units, drawn_as, codes)
        if self._table.ndim == 2:
            return inverse_rows(self._table, codes, words[:, 0])
        if self._retentions is None:
            kept = words[:, 0] <= self._last
        else:
            kept = uniform(words[:, 0]) < self._retentions[codes]
        if len(self._table):
            wanted = words[:, 1] >> np.uint64(64 - SCALE_BITS)
            return np.where(kept, codes, np.searchsorted(self._table, wanted, side="right"))
        drawn = bounded(randomness, units, drawn_as, codes, self.channel.size, first=words)
        np.copyto(drawn, codes, where=kept)
        return drawn


def digest(channel: Channel, domain: Domain | None = None) -> str:
    """Name a column's parameters: equal digests draw alike, different ones independently.

    SHA-256 of the channel and of the domain, without which codes mean nothing.

    >>> from privsql.channels import Uniform
    >>> digest(Uniform(0.5, 10)) == digest(Uniform(0.2, 10))
    False
    """
    if isinstance(channel, Matrix):  # a text of m^2 numbers would be far larger than they are
        parameters: dict[str, object] = {"mechanism": channel.mechanism, "size": channel.size}
        numbers = np.ascontiguousarray(channel.matrix, dtype="<f8").tobytes()
    else:
        parameters, numbers = channel.to_dict(), b""
    described = [parameters, None if domain is None else domain.to_dict()]
    text = json.dumps(described, sort_keys=True, default=str).encode("utf-8", "surrogatepass")
    return hashlib.sha256(hashlib.sha256(text).digest() + numbers).hexdigest()


def cumulative(masses: NDArray[np.float64]) -> Words:
    """Cumulated chances in units of 2^-63: value j is drawn by ``c[j-1] <= w < c[j]``.

    Whole numbers, so that they end at exactly 2^63, a value without mass has an empty
    interval wherever it stands, and one with any mass has an interval.  Each chance is within
    2^-53 of itself, relatively, and 2^-63; the most frequent value takes up what rounding
    leaves.

    >>> (cumulative(np.array([0.0, 0.25, 0.75, 0.0])) / 2.0**63).tolist()
    [0.0, 0.25, 1.0, 1.0]
    """
    shares = np.minimum(masses / math.fsum(masses.tolist()), BELOW_ONE)
    parts = np.ldexp(shares, SCALE_BITS).astype(np.uint64)
    parts[(masses > 0) & (parts == 0)] = 1
    largest = masses.argmax()
    parts[largest] = int(parts[largest]) + (1 << SCALE_BITS) - int(parts.sum(dtype=np.uint64))
    return np.cumsum(parts, dtype=np.uint64)


def inverse_rows(table: Words, codes: Codes, words: Words) -> Codes:
    """First j with ``w < table[code, j]``, one binary search per row, all rows in step.

    ``table`` is ``(m, m)``, each row as :func:`cumulative` gives it.  log2(m) gathers, and no
    temporary larger than the batch.

    >>> table = np.stack([cumulative(np.array([0.5, 0.5])), cumulative(np.array([0.0, 1.0]))])
    >>> inverse_rows(table, np.array([0, 0, 1]), np.array([0, 2**63, 0], dtype=np.uint64)).tolist()
    [0, 1, 1]
    """
    flat, width = table.reshape(-1), table.shape[1]
    wanted = words >> np.uint64(64 - SCALE_BITS)
    base = codes * width
    place, length = base.copy(), width
    while length > 1:
        half = length // 2
        # The last entry of a row is above every word, so the search stays inside of it.
        place += half * (flat[place + (half - 1)] <= wanted)
        length -= half
    found: Codes = place - base
    return found
