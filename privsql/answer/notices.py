"""What the figures of an answer themselves give reason to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from privsql.answer.outcome import Outcome
from privsql.errors import Notice


def notices_of(outcome: Outcome, counts: Sequence[int]) -> list[Notice]:
    """Notices about an answer; ``counts`` are its columns that are counts themselves."""
    found = []
    doubtful = sum(_false(bars.column("reliable")) for bars in outcome.bars.values())
    if doubtful:
        one = doubtful == 1
        found.append(
            Notice(
                "unreliable",
                f"{doubtful} estimate{'' if one else 's'} rest{'s' if one else ''} on too few"
                f" rows for the interval to be called {outcome.level:.4g}",
            )
        )
    below = sum(_negative(outcome.table.column(i)) for i in counts)
    if below:
        found.append(
            Notice(
                "out-of-range",
                f"{below} estimated count{'s are' if below > 1 else ' is'} below zero, as unbiased"
                " ones can be; SET privsql.estimator = 'iterative' keeps them possible",
            )
        )
    if outcome.estimator == "iterative":
        found.append(
            Notice("iterative", "iterative estimates are biased inwards: do not add up their cells")
        )
    return found


def _false(column: pa.ChunkedArray[Any]) -> int:
    return sum(chunk.false_count for chunk in column.chunks if isinstance(chunk, pa.BooleanArray))


def _negative(column: pa.ChunkedArray[Any]) -> int:
    if not pa.types.is_floating(column.type):
        return 0
    values = np.asarray(column.to_numpy(), dtype=np.float64)
    return int(np.sum(values < 0))
