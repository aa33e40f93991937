"""Functions of one statement that an account would call faint, found from inner products.

Within an atom an account takes function after function apart (``policy.functions``), and calls one
*faint* there if what is left of it, beside the constant and the functions before it, is not
rounding and less than 1e-7 of its length: ``1 + 1e-9 * cost``.  Nothing may be answered with it
there.  Most functions are seen not to be, atom by atom:

    constant      f is 0, or the same number on all rows: nothing is left, exactly
    independent   let s be the smallest eigenvalue of the inner products of 1 and the functions that
                  are not constant, all at length one: at least sqrt(s) is left of each
    indicators    let w be whole numbers, orthogonal to 1 and the other indicators over classes of
                  n_c rows, and not to f.  w / n_c is so over rows, and what is left of f squared is
                  at least 1 / sum of w_c^2 / n_c.  By Cramer's rule there is such a w on at most
                  K + 2 classes whose numbers are determinants of zeros and ones, and those of size
                  m are at most (m + 1)^((m + 1) / 2) / 2^m (Hadamard)

In the atoms that remain, few as a rule, the rows decide, by the same arithmetic as in an account.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from privsql.policy.functions import FAINT, TINY, Atoms, Functions
from privsql.policy.public_rows import PublicRows
from privsql.policy.within.classes import Bools, Floats

# Eigenvalues from which on functions are independent: far above rounding, and above FAINT^2.
CLEAR = 1e-10

Values = Bools | Floats


class Products:
    """Inner products of functions by atom, each scaled to a largest value of one."""

    def __init__(
        self, public: PublicRows, functions: Sequence[Values], used: Sequence[int]
    ) -> None:
        self.starts = np.searchsorted(public.atom, np.arange(public.counts.size))
        alike = bool((public.times == 1).all())
        self.M: dict[tuple[int, int], Floats] = {}
        self.sums: dict[int, Floats] = {}
        scaled: dict[int, Values] = {}
        for k in used:
            each = functions[k]
            scaled[k] = each if each.dtype == np.bool_ else each / np.abs(each).max()
        for k, one in scaled.items():
            left = one if alike else one * public.times
            self.sums[k] = np.add.reduceat(left, self.starts, dtype=np.float64)
            for n, two in scaled.items():
                if n <= k:
                    bits = left.dtype == two.dtype == np.bool_
                    both = np.logical_and(left, two) if bits else left * two
                    self.M[k, n] = np.add.reduceat(both, self.starts, dtype=np.float64)


def any_faint(
    public: PublicRows,
    functions: Sequence[Values],
    products: Products,
    used: Mapping[int, Bools],
) -> bool:
    """Whether a function is faint in an atom where it is used, or too many cannot be told.

    ``functions`` are in the order in which an account would take them.
    """
    plain = [each for each in functions if each.dtype == np.bool_]
    if len(plain) == len(functions) and _few(len(plain), int(public.counts.max())):
        return False
    if len(used) < len(functions):
        return True  # one that has no weight anywhere: an account takes it all the same
    for each in functions:
        size = np.abs(each) if each.dtype != np.bool_ else each
        if each.dtype != np.bool_ and bool(((size > 0) & (size < TINY * size.max())).any()):
            return True
    doubtful = _doubtful(public, functions, products)
    doubtful &= np.logical_or.reduce(list(used.values()))
    return bool(doubtful.any()) and _on_rows(public, functions, used, doubtful)


def _few(indicators: int, rows: int) -> bool:
    """Whether so many indicators on so many rows cannot be faint."""
    m = indicators + 1
    determinant = (m + 1) ** ((m + 1) / 2) / 2**m
    return bool((m + 1) * determinant**2 * rows * FAINT**2 < 1)


def _doubtful(public: PublicRows, functions: Sequence[Values], products: Products) -> Bools:
    """Atoms where functions that are not constant are not seen to be independent."""
    size, many = public.counts.size, len(functions)
    G = np.zeros((size, many + 1, many + 1))
    G[:, 0, 0] = 1.0
    length = {}
    for k, each in enumerate(functions):
        low, high = (f.reduceat(each, products.starts) for f in (np.minimum, np.maximum))
        own = np.sqrt(products.M[k, k])
        # In terms of the constant alone, exactly.
        length[k] = np.where(low == high, np.inf, np.where(own > 0, own, np.inf))
        G[:, k + 1, k + 1] = 1.0
        along = products.sums[k] / length[k] / np.sqrt(public.counts)
        G[:, k + 1, 0] = G[:, 0, k + 1] = along
        for n in range(k):
            G[:, k + 1, n + 1] = products.M[k, n] / length[k] / length[n]
            G[:, n + 1, k + 1] = G[:, k + 1, n + 1]
    return np.asarray(np.linalg.eigvalsh(G)[:, 0] < CLEAR)


def _on_rows(
    public: PublicRows, functions: Sequence[Values], used: Mapping[int, Bools], some: Bools
) -> bool:
    """Whether a function is faint in one of these atoms, by the rows of these."""
    rows = some[public.atom]
    atoms = Atoms(public.counts[some], public.groups[some])
    lengths = np.bincount(public.atom[rows], minlength=some.size)[some]
    ours = Functions(atoms, lengths, public.times[rows].astype(np.float64))
    for k, each in enumerate(functions):
        faint = ours.add(each[rows]).faint
        if faint is not None and bool((faint & used[k][some]).any()):
            return True
    return False
