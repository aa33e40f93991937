"""Unbiased variance of an inverted answer, estimated from published data.

Given the original table, published rows are independent.  Let aggregate a add up
``v_a * phi_a(state)`` over rows, ``v_a`` public and ``phi_a`` a function on states, and let
``K_a = A^-1 phi_a``.  A row of multiplicity m and weight W contributes ``m W v_a K_a``, and

    Cov-hat(a, b) = sum_rows m (W^2 v_a v_b K_a K_b  -  W v_a v_b H_ab),
    H_ab          = A^-1 (phi_a phi_b),                              (reconstruction, 3 and 7)

is unbiased: the first term estimates the sum of second moments, the second the product of
what the rows really hold.  For one unweighted count it is ``sum G^2 - sum G``.

This is the error *due to the perturbation*: the truth is what the raw table would have said.
Weights add the error of sampling rows independently, each kept with chance 1/W.  SPS draws a
fixed number from each group instead, which varies less, so there the estimate errs on the
wide side.

The sums over rows arrive already grouped by published state:

    products[j] = sum over rows in j of m W   v_a v_b
    squares[j]  = sum over rows in j of m W^2 v_a v_b
    fourths[j]  = sum over rows in j of m W^4 v_a^4

so an unweighted count passes its state counts for all three.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from udfs.invert import invert_function
from udfs.kron import Array, Kron


def covariance(
    products: ArrayLike, squares: ArrayLike, left: ArrayLike, right: ArrayLike, kron: Kron
) -> Array:
    """Unbiased covariance of two inverted aggregates; shapes ``(..., S)`` to ``(...)``.

    ``left`` and ``right`` are ``phi_a`` and ``phi_b``, shape ``(S,)``.  The result may be
    negative when rows are few, also for ``left is right``.
    """
    phi_a, phi_b = kron.states(left), kron.states(right)
    seconds = invert_function(phi_a, kron) * invert_function(phi_b, kron)
    expected = invert_function(phi_a * phi_b, kron)
    rows = kron.states(squares) * seconds - kron.states(products) * expected
    total: Array = rows.sum(axis=-1)
    return total


def variance(products: ArrayLike, squares: ArrayLike, function: ArrayLike, kron: Kron) -> Array:
    """Unbiased variance of one inverted aggregate, ``Cov-hat(a, a)``.

    For a count of a single predicate at retention p whose mass is b, every published hit
    adds ``(1-c)^2/p^2 - (1-c)/p`` with ``c = (1-p) b``, every miss ``c^2/p^2 + c/p``:

    >>> from udfs.kron import retention_factor
    >>> half = Kron([retention_factor(0.5, [0.5, 0.5])])
    >>> counts = [60.0, 40.0]
    >>> float(variance(counts, counts, [0, 1], half))  # 40 * 0.75 + 60 * 0.75
    75.0
    """
    return covariance(products, squares, function, function, kron)


def published_floor(kron: Kron) -> Array:
    """Least chance, over original states, of being published in state j; shape ``(S,)``.

    Replacing values makes every state possible for every row, so a state in which no
    row was seen was still expected to hold at least this share of them.
    """
    floor = np.ones(1)
    for factor in kron.factors:
        floor = np.outer(floor, factor.min(axis=0)).ravel()
    return floor


def _merged(inverted: Array, kron: Kron) -> list[Array]:
    """For each axis, which cells go together because K is the same in them; ``(cells, classes)``.

    A query cuts a column finer for the sake of its other aggregates, which must not matter.
    """
    digits = nine_digits(inverted).reshape(kron.shape)
    return [classes_of(digits, axis) for axis in range(len(kron.shape))]


def nine_digits(inverted: Array) -> Array:
    """A function's values to nine digits: where these are equal it is called the same."""
    scale = float(np.abs(inverted).max(initial=0)) or 1.0
    # The offset keeps round numbers off the edges between two classes.
    digits: Array = np.floor(inverted / scale * 1e9 + 0.381966)
    return digits


def classes_of(tensor: Array, axis: int) -> Array:
    """Which cells of an axis a function does not distinguish; shape ``(cells, classes)``.

    >>> classes_of(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]), 0)
    array([[1., 0.],
           [0., 1.],
           [1., 0.]])
    """
    slices = np.moveaxis(tensor, axis, 0).reshape(tensor.shape[axis], -1)
    labels = np.unique(slices, axis=0, return_inverse=True)[1].reshape(-1)
    found: Array = np.eye(int(labels.max()) + 1)[labels]
    return found


def on_classes(sums: Array, merged: list[Array], shape: tuple[int, ...]) -> Array:
    """Sums over states as sums over classes of them, on the last axis."""
    lead = sums.shape[:-1]
    tensor = sums.reshape(*lead, *shape)
    for axis, classes in enumerate(merged, start=len(lead)):
        tensor = np.moveaxis(np.tensordot(tensor, classes, axes=(axis, 0)), -1, axis)
    return tensor.reshape(*lead, -1)


def weights(
    squares: ArrayLike, fourths: ArrayLike, function: ArrayLike, kron: Kron
) -> tuple[Array, Array]:
    """Second and fourth sums whose ratio is the effective rows; shapes ``(..., S)`` to ``(...)``.

    ``function`` has shape ``(S,)``, or one for each group.  States in which K is the same count as
    one, axis by axis, so that the result depends on the function alone and not on how finely
    columns are cut.

        second = sum s[j] L[j]^2,    fourth = sum t[j] L[j]^4,
        L      = K - sum(squares * K) / sum(squares),
        s[j]   = max(squares[j], floor[j] * sum(squares)),
        t[j]   = max(fourths[j], floor[j] * sum(fourths), h^2),    h = sum(fourths)/sum(squares).

    Both add up over independent parts of one answer (the groups of a total), so that
    ``n_eff = sum(second)^2 / sum(fourth)`` over them.  A constant g, whose answer is known,
    adds (0, 0), and so do no rows at all.
    """
    second, fourth, phi = kron.states(squares), kron.states(fourths), kron.states(function)
    if phi.ndim > 1:
        return _weights_of_each(second, fourth, phi, kron)
    inverted = invert_function(phi, kron)
    merged = _merged(inverted, kron)
    if all(len(classes) == classes.shape[1] for classes in merged):
        return weights_of_states(second, fourth, inverted, published_floor(kron))
    floor = np.ones(1)
    for factor, classes in zip(kron.factors, merged, strict=True):
        floor = np.outer(floor, (factor @ classes).min(axis=0)).ravel()
    firsts = np.ix_(*(classes.argmax(axis=0) for classes in merged))
    return weights_of_states(
        on_classes(second, merged, kron.shape),
        on_classes(fourth, merged, kron.shape),
        inverted.reshape(kron.shape)[firsts].ravel(),
        floor,
    )


def _weights_of_each(
    second: Array, fourth: Array, functions: Array, kron: Kron
) -> tuple[Array, Array]:
    """``weights`` where each group has its own function: groups that share one go together."""
    second, fourth, functions = np.broadcast_arrays(second, fourth, functions)
    lead = functions.shape[:-1]
    rows = [part.reshape(-1, kron.size) for part in (second, fourth, functions)]
    if (rows[2] == rows[2][:1]).all():
        distinct, which = rows[2][:1], np.zeros(len(rows[2]), dtype=np.intp)
    else:
        distinct, which = np.unique(rows[2], axis=0, return_inverse=True)
    found = np.empty((2, len(rows[2])))
    for i, phi in enumerate(distinct):
        some = which.reshape(-1) == i
        found[:, some] = weights(rows[0][some], rows[1][some], phi, kron)
    return found[0].reshape(lead), found[1].reshape(lead)


def weights_of_states(
    second: Array, fourth: Array, inverted: Array, floor: Array
) -> tuple[Array, Array]:
    """The two sums of ``weights`` over states as they are; ``inverted`` is K on them."""
    all_second = second.sum(axis=-1, keepdims=True)
    all_fourth = fourth.sum(axis=-1, keepdims=True)
    divisor = np.where(all_second > 0, all_second, 1.0)
    heavy = all_fourth / divisor
    centred = inverted - np.sum(second * inverted, axis=-1, keepdims=True) / divisor
    # What is left of a constant is rounding.
    rounding = 1e-12 * np.abs(inverted).max(axis=-1, keepdims=True)
    centred = np.where(np.abs(centred) > rounding, centred, 0.0)
    second = np.maximum(second, floor * all_second)
    fourth = np.maximum(np.maximum(fourth, floor * all_fourth), heavy**2)
    return np.sum(second * centred**2, axis=-1), np.sum(fourth * centred**4, axis=-1)


def effective_rows(
    squares: ArrayLike, fourths: ArrayLike, function: ArrayLike, kron: Kron
) -> Array:
    """Effective number of equally weighted rows; a Wald interval needs about 20.

        n_eff = second^2 / fourth                                    (see ``weights``)

    The plain ratio ``(sum K^2)^2 / sum K^4`` praises itself when it should not, in two ways.
    K is centred, because a constant added to g moves the answer by a number that is known
    and its error not at all: otherwise every NOT passes, whose rows all weigh about 1.  And
    each state counts below the line as if it held one typical heavy row, and at least the
    share that the channel sends there from anywhere (``published_floor``): otherwise, if
    the few rows that would weigh most happen to be missing, the rest look even.  At p = .2
    with two predicates of mass .01 on 300 rows, none of which satisfy both, the plain ratio
    passes in over half of the releases and under 5% of their intervals contain the truth; this
    rule passes none (both are tested).  No rows at all give 0; a constant g, whose answer is
    known, gives infinity.
    """
    second, fourth = weights(squares, fourths, function, kron)
    known = np.where(kron.states(squares).sum(axis=-1) > 0, np.inf, 0.0)
    rows: Array = np.where(fourth > 0, second**2 / np.where(fourth > 0, fourth, 1.0), known)
    return rows
