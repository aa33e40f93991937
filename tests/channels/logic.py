"""SQL's three truth values as numbers, so that logic becomes arithmetic on arrays.

    FALSE < UNKNOWN < TRUE,   AND = min,   OR = max,   NOT = reflection

A condition on a column that may be NULL is UNKNOWN there, and so is its negation; WHERE
keeps what is TRUE.  Hence the complement of P is "P is not true", never ``NOT P``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privsql.channels import Cells
from privsql.errors import ChannelError

Truth = NDArray[np.int8]

FALSE, UNKNOWN, TRUE = 0, 1, 2


def truth(values: Iterable[bool | None]) -> Truth:
    """Truth values from what a SQL engine returns for a condition: True, False or None.

    >>> truth([True, False, None])
    array([2, 0, 1], dtype=int8)
    """
    names: dict[object, int] = {True: TRUE, False: FALSE, None: UNKNOWN}
    try:
        return np.array([names[value] for value in values], dtype=np.int8)
    except (KeyError, TypeError):
        raise ChannelError("a truth value is True, False or None") from None


def both(left: Truth, right: Truth) -> Truth:
    """``left AND right``.

    >>> both(truth([None, None, None]), truth([True, False, None])).tolist()
    [1, 0, 1]
    """
    return np.minimum(left, right)


def either(left: Truth, right: Truth) -> Truth:
    """``left OR right``.

    >>> either(truth([None, None, None]), truth([True, False, None])).tolist()
    [2, 1, 1]
    """
    return np.maximum(left, right)


def negation(value: Truth) -> Truth:
    """``NOT value``: UNKNOWN stays UNKNOWN.

    >>> negation(truth([True, False, None])).tolist()
    [0, 2, 1]
    """
    return (TRUE - value).astype(np.int8)


def is_true(value: Truth) -> NDArray[np.bool_]:
    """``value IS TRUE``: what WHERE and FILTER keep.

    >>> is_true(truth([True, False, None])).tolist()
    [True, False, False]
    """
    kept: NDArray[np.bool_] = value == TRUE
    return kept


def partition(truths: Iterable[Any], size: int) -> Cells:
    """Coarsest partition of values that tells apart what the conditions tell apart.

    ``truths`` holds one array of ``size`` truth values, or any other codes, a condition.

    >>> partition([[2, 2, 0, 0, 1], [2, 0, 0, 0, 1]], 5).labels
    array([0, 1, 2, 2, 3])
    """
    cells = Cells.of(np.zeros(size, dtype=np.intp))
    for truth_values in truths:
        given = truth_values
        codes = given if isinstance(given, np.ndarray) else np.array(given, dtype=object)
        other = Cells.of(codes)
        cells = Cells.of(cells.labels * other.count + other.labels)
    return cells


def parents(cells: Cells, coarse: Cells) -> NDArray[np.intp]:
    """For a refinement of ``coarse``: the coarse cell that holds each of its cells.

    >>> parents(Cells.of([0, 1, 2, 2]), Cells.of([0, 0, 1, 1]))
    array([0, 0, 1])
    """
    found = coarse.labels[cells.first]
    assert np.array_equal(found[cells.labels], coarse.labels), "no refinement"
    return found
