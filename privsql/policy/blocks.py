"""Many sparse vectors at once: the cells of a wide GROUP BY, orthonormal without fill-in.

Disjoint cells are orthogonal as they are.  Taken one after another behind a total they would
each become dense; taken first, they stay sparse, and the total behind them vanishes in their
span.  The span, and so every leverage, is the same in either order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from privsql.policy.basis import TOGETHER, Basis, Floats, Ints, noise

Memory = dict[bytes, tuple[Floats, Ints, float]]


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


def components(units: sparse.csr_array) -> tuple[list[Ints], Ints]:
    """Sets of few rows that share no atom with one another, and the wide rows left over.

    A total ties all cells of a ROLLUP together: where a set is too large, its widest rows go.
    """
    rows, atoms = units.shape
    lengths = np.diff(units.indptr)
    kept: Ints = np.arange(rows, dtype=np.int64)
    while True:
        part = sparse.csr_array(units[kept])
        line = np.repeat(np.arange(kept.size), np.diff(part.indptr))
        ties = sparse.coo_array(
            (np.ones(part.nnz, dtype=np.int8), (line, kept.size + part.indices)),
            shape=(kept.size + atoms, kept.size + atoms),
        )
        label = csgraph.connected_components(ties.tocsr(), directed=False)[1][: kept.size]
        names, owner, counts = np.unique(label, return_inverse=True, return_counts=True)
        # A few rows over much of the table are not sparse once they are orthogonal.
        wide = (counts[owner] > 1) & (8 * lengths[kept] > atoms)
        if not wide.any():
            large = counts[owner] > TOGETHER
            if not large.any():
                break
            wide = large & (lengths[kept] > np.median(lengths[kept[large]]))
            wide = wide if wide.any() else large
        kept = kept[~wide]
    order = np.argsort(owner, kind="stable")
    sets = np.split(kept[order], np.cumsum(counts)[:-1]) if names.size else []
    return sets, np.setdiff1d(np.arange(rows), kept)


def orthonormal(
    units: sparse.csr_array, sets: list[Ints], memory: Memory
) -> tuple[sparse.csr_array, float]:
    """Orthonormal sparse rows of all sets; ``memory`` saves doing a set twice."""
    alone = np.array([part[0] for part in sets if part.size == 1], dtype=np.int64)
    pieces = [sparse.csr_array(units[alone])]
    faintest = 1.0
    for part in sets:
        if part.size == 1:
            continue
        cut = sparse.csr_array(units[part])
        key = cut.indptr.tobytes() + cut.indices.tobytes() + cut.data.tobytes()
        if key not in memory:
            atoms = np.unique(cut.indices).astype(np.int64)
            memory[key] = (*_few(cut[:, atoms].toarray(), atoms),)
        Q, atoms, least = memory[key]
        faintest = min(faintest, least)
        rows, columns = np.nonzero(Q)
        pieces.append(
            sparse.csr_array(
                (Q[rows, columns], (rows, atoms[columns])), shape=(len(Q), units.shape[1])
            )
        )
    return sparse.csr_array(sparse.vstack(pieces, format="csr")), faintest


def _few(X: Floats, atoms: Ints) -> tuple[Floats, Ints, float]:
    """Gram and Schmidt, twice, over a few rows."""
    Q = np.empty((0, X.shape[1]))
    faintest = 1.0
    for x in X:
        for _ in range(3):
            x = x - (Q @ x) @ Q
        left = float(np.linalg.norm(x))
        if left > noise(X.shape[1]):
            Q = np.concatenate([Q, x[np.newaxis] / left])
            faintest = min(faintest, left)
    return Q, atoms, faintest
