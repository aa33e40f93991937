"""Bases of many sparse vectors at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from privsql.policy.functions import Floats
from privsql.policy.sketch.basis import Basis
from privsql.policy.wide import TOGETHER, Memory, components, noise, orthonormal


def combine(
    base: Basis, units: sparse.csr_array, memory: Memory, most_entries: int
) -> tuple[Basis | None, float]:
    """The basis of ``base`` and unit rows; the smallest residual that counted as new.

    Leverages are not measured yet.  None where it would hold more than ``most_entries``.
    """
    kept, wide = components(units)
    blocks, faintest = orthonormal(units, kept, memory)
    old = base.blocks
    carried = sparse.csr_array((0, units.shape[1]))
    if old is not None:
        touched = np.zeros(units.shape[1], dtype=np.bool_)
        touched[blocks.indices] = True
        row = np.repeat(np.arange(old.shape[0]), np.diff(old.indptr))
        mixed = np.zeros(old.shape[0], dtype=np.bool_)
        mixed[row[touched[old.indices]]] = True
        carried = sparse.csr_array(old[np.flatnonzero(mixed)])
        left = carried - (carried @ blocks.T) @ blocks
        norms = np.sqrt(np.asarray(left.multiply(left).sum(axis=1)).ravel())
        carried = sparse.csr_array(carried[np.flatnonzero(norms > noise(units.shape[1]))])
        apart = sparse.csr_array(old[np.flatnonzero(~mixed)])
        blocks = sparse.csr_array(sparse.vstack([apart, blocks], format="csr"))
    dense = base.rank + carried.shape[0] + wide.size
    if dense * units.shape[1] + blocks.nnz > most_entries:
        return None, 0.0
    made = Basis.empty(base.layout, base.limit, blocks)
    # What was answered before stays known even where its residual is faint.
    made.absorb(parts(base.rows))
    made.absorb(parts(carried))
    return made, min(faintest, made.absorb(parts(sparse.csr_array(units[wide]))))


def parts(rows: Floats | sparse.csr_array) -> Iterator[Floats]:
    """Dense copies of a few rows at a time."""
    for low in range(0, rows.shape[0], TOGETHER):
        part = rows[low : low + TOGETHER]
        yield part.copy() if isinstance(part, np.ndarray) else part.toarray()
