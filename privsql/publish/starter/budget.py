"""What an epsilon for the whole release leaves to each sensitive column.

With equal shares of epsilon, a column of m values keeps one with p = (g-1) / (g-1+m), g = e^share.
Of a share of the whole table, ± is then known before anything is published: at a share of one
half of n rows, of conditions that half of the values meet, the error of the reconstruction is

    sqrt(1 - p^2) / (2 p sqrt(n))

and 1.96 times this is half of the 95% interval.  Other shares have less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from privsql.channels import Uniform

EPSILON = 3.0
# Half of a 95% interval in standard errors.
WIDE = 1.96
# Beyond these a budget is too thin: ± of a share, and what is kept.
MOST_ERROR, LEAST_KEPT = 0.10, 0.05


@dataclass(frozen=True)
class Share:
    """What one sensitive column gets."""

    name: str
    epsilon: float
    retention: float
    error: float  # ± of a share of the whole table

    @property
    def why_thin(self) -> str:
        """Why too little is kept to answer from; empty if that is not so."""
        if self.error > MOST_ERROR:
            return f"± {100 * self.error:.0f} points"
        if self.retention < LEAST_KEPT:
            return f"{100 * self.retention:.2g}% of its values are kept"
        return ""


def shared(sizes: Sequence[tuple[str, int]], rows: int) -> tuple[Share, ...]:
    """Equal shares of epsilon for columns with so many values each.

    >>> [f"{share.retention:.2f} ± {share.error:.3f}" for share in shared([("a", 4)], 10_000)]
    ['0.83 ± 0.007']
    """
    shares = []
    for name, size in sizes:
        epsilon = EPSILON / len(sizes)
        kept = Uniform.from_epsilon(epsilon, size).retention
        error = WIDE * math.sqrt((1 - kept**2) / max(rows, 1)) / (2 * kept)
        shares.append(Share(name, epsilon, kept, error))
    return tuple(shares)
