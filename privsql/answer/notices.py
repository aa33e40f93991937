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
    wild = sum(_wild(outcome.table.column(i)) for i in outcome.bars)
    if wild:
        found.append(
            Notice(
                "not-finite",
                f"{wild} estimate{'s are' if wild > 1 else ' is'} infinite or no number: the"
                " arithmetic around aggregates divides by zero or leaves a function's range",
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


def _wild(column: pa.ChunkedArray[Any]) -> int:
    """How many values are infinite or no number; NULL is none of them."""
    if not pa.types.is_floating(column.type):
        return 0
    values = np.asarray(column.drop_null().to_numpy(), dtype=np.float64)
    return int(np.sum(~np.isfinite(values)))


def _negative(column: pa.ChunkedArray[Any]) -> int:
    if not pa.types.is_floating(column.type):
        return 0
    values = np.asarray(column.to_numpy(), dtype=np.float64)
    return int(np.sum(values < 0))
