"""What a user's answers span, measured from outside of the check."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from scipy import sparse

from privsql.engines import Memory
from privsql.policy.base import Asked
from privsql.policy.public_rows import PublicRows
from privsql.policy.served_table import Serving
from privsql.policy.sketch.basis import Floats
from privsql.policy.sketch.leverage import Admission, Cells, Leverage


def stacked(cells: Sequence[sparse.csr_array | Floats]) -> Cells:
    """Stack one matrix (or one vector) per cell."""
    parts = [sparse.csr_array(np.atleast_2d(c)) if isinstance(c, np.ndarray) else c for c in cells]
    owner = np.repeat(np.arange(len(parts)), [part.shape[0] for part in parts])
    whole = sparse.csr_array(sparse.vstack(parts, format="csr"))
    return Cells(whole, owner.astype(np.int64), len(parts))


def admit(user: Leverage, cells: Cells) -> Admission:
    """Decide and take effect at once."""
    proposal = user.propose(cells)
    user.commit(proposal)
    return proposal.admission


def leverages(user: Leverage) -> Floats:
    """The exact leverage of every group, in ascending order of the groups' numbers."""
    basis = user._basis
    layout = basis.layout
    inner = basis.trace.copy()
    for at, (size, first, count, atom) in enumerate(layout.runs):
        if size > 1 and at in basis.grams:
            inner[first : first + count] = np.linalg.eigvalsh(basis.grams[at])[:, -1]
        elif size > 1:
            for g in range(count):
                low = atom + g * size
                Q = basis.rows[:, low : low + size]
                if basis.blocks is not None:
                    Q = np.concatenate([Q, basis.blocks[:, low : low + size].toarray()])
                inner[first + g] = np.linalg.norm(Q, 2) ** 2 if len(Q) else 0.0
    found = np.empty(layout.numbers.size)
    found[np.argsort(np.argsort(layout.numbers))] = inner
    return found


def serving(rows: Sequence[int], groups: Sequence[int] | None = None, name: str = "t") -> Serving:
    """A table of public tuples that a server might serve."""
    counts = np.array(rows)
    owner = np.arange(counts.size) if groups is None else np.array(groups)
    tuples = pa.table({"g": np.arange(counts.size), "privsql_rows": counts, "privsql_group": owner})
    public = PublicRows({"g": "BIGINT"}, ("g",), tuples, None)
    return Serving(name, "release", f"{list(rows)} {owner.tolist()}", lambda: public, Memory)


def asked(weights: Floats) -> list[Asked]:
    """A cell with one vector of weights a row."""
    atoms = np.flatnonzero(weights)
    return [Asked(None, "", atoms, np.asarray(weights, dtype=np.float64)[atoms])]
