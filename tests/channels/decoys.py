"""The closed form of a decoy partition, to compare what is drawn with."""

from __future__ import annotations

from typing import Any

import numpy as np

from privsql.channels import Decoy


def proportional(totals: Any, c: int) -> Decoy:
    """Channel of a partition that mixes values in proportion to what there is of them.

        T[i, j] = (c-1)/c * u_j / (U - u_i)   for i != j,    U = sum u,
        u_i (U - u_i) = f_i (c-1):

    pairs of rows that share a group form a symmetric table without a diagonal, as near
    to independence as its margins ``f_i (c-1)`` allow.  Hence ``f T = f``: the expected
    published count of each value is its count.  (SPLU eq. 6-9 miss that; reconstruction, 9.7)

    >>> proportional([100, 100, 100, 100], 2).matrix[0].round(4)
    array([0.5   , 0.1667, 0.1667, 0.1667])
    """
    f = np.array(totals, dtype=np.float64)
    wanted = f / f.sum() * (c - 1)
    u = np.sqrt(wanted)
    # Fixed point of a symmetric scaling; the square root damps its oscillation.
    for _ in range(10_000):
        scaled = np.sqrt(u * wanted / (u.sum() - u))
        moved = np.abs(scaled - u).max()
        u = scaled
        if moved <= 1e-15 * u.max():
            break
    matrix = (c - 1) / c * u / (u.sum() - u)[:, None]
    np.fill_diagonal(matrix, 0)
    # Off the fixed point by rounding only: make rows sum to one exactly.
    matrix *= ((c - 1) / c / matrix.sum(axis=1))[:, None]
    np.fill_diagonal(matrix, 1 / c)
    return Decoy(c, matrix)
