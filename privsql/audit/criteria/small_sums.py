"""Privacy of small sums and accuracy of large ones under decoy groups (SPLU 4).

The published count of a value that f rows hold is ``Binomial(c f, 1/c)``: its own rows and
the rows it is a decoy of, each of which shows it with chance 1/c.
"""

from __future__ import annotations

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from privsql.channels.channel import checked_number
from privsql.errors import ChannelError, DataError

Array = NDArray[np.float64]

# (1-e)f is 7 and not 7.000000000000001 for e = .3, f = 10.
ROUNDING = 1e-9

# Counts up to which each one's binomial is looked at.
MOST = 1_000_000

# Decoy groups beyond this need every value to be rarer than one in a thousand.
LARGEST_GROUP = 1000


class AdviseError(DataError):
    """The goal contradicts itself, or cannot be reached."""

    code = "advise"


def miss_chance(count: int, group_size: int, relative_error: float) -> float:
    """Chance that the published count of f rows is off by more than e f.

        1 - sum_{x = ceil((1-e) f)}^{floor((1+e) f)} Binom(x; c f, 1/c)

    >>> round(miss_chance(5, 10, 0.3), 2)
    0.48
    """
    return float(_misses(np.array([count]), group_size, relative_error)[0])


def small_sum_privacy(group_size: int, relative_error: float, alpha: int) -> float:
    """T_P: the least chance of a relative error above e, over counts 1..alpha  (SPLU thm 4).

    >>> round(small_sum_privacy(10, 0.3, 3), 3)
    0.613
    """
    if not alpha >= 1:
        raise ChannelError("alpha must be a whole number of at least 1")
    counts = np.arange(1, alpha + 1)
    return float(_misses(counts, group_size, relative_error).min())


def large_sum_utility_printed(group_size: int, relative_error: float, chance: float) -> float:
    """T_f as SPLU lemma 1 prints it, ``(c e^2 T_E)^(-1/2)``.  Wrong: it divides by n twice.

    >>> round(large_sum_utility_printed(10, 0.3, 0.05), 1)
    4.7
    """
    _checked(group_size, relative_error, chance)
    return float((group_size * relative_error**2 * chance) ** -0.5)


def large_sum_utility(group_size: int, relative_error: float, chance: float) -> float:
    """T_f by Chebyshev: counts from here on are off by e f or more with chance <= T_E.

        Var = f (1 - 1/c),   P(|f' - f| >= e f) <= (1-1/c) / (e^2 f),   T_f = (1-1/c) / (e^2 T_E)

    >>> round(large_sum_utility(10, 0.3, 0.05), 9)
    200.0
    """
    _checked(group_size, relative_error, chance)
    return (1 - 1 / group_size) / (relative_error**2 * chance)


def large_sum_utility_exact(group_size: int, relative_error: float, chance: float) -> int:
    """T_f by the binomial itself: the least f from which on every count keeps to T_E.

    The chance is a saw-tooth in f, so the last f that misses counts, not the first that keeps
    to it; beyond Chebyshev's T_f none misses.  Where that is beyond ``MOST`` it is the answer.

    >>> large_sum_utility_exact(10, 0.3, 0.05)
    41
    """
    last = math.ceil(large_sum_utility(group_size, relative_error, chance))
    if last > MOST:
        return last
    counts = np.arange(1, last + 1)
    missing = _misses(counts, group_size, relative_error, strict=False) > chance
    return int(counts[missing].max(initial=0)) + 1


def _misses(
    counts: NDArray[np.int_], group_size: int, relative_error: float, *, strict: bool = True
) -> Array:
    """P(|f' - f| > e f), or >= where not strict; one for each count."""
    from scipy.stats import binom

    _checked(group_size, relative_error, 0.5)
    if (counts < 1).any():
        raise ChannelError("a count must be at least 1")
    nudge = ROUNDING if strict else -ROUNDING
    low = np.ceil((1 - relative_error) * counts - nudge)
    high = np.floor((1 + relative_error) * counts + nudge)
    rows = counts * group_size
    below = binom.cdf(low - 1, rows, 1 / group_size)
    above = binom.sf(high, rows, 1 / group_size)
    misses: Array = np.asarray(below + above)
    return misses


def _checked(group_size: int, relative_error: float, chance: float) -> None:
    if group_size < 2:
        raise ChannelError("a decoy group holds at least 2 values")
    if not relative_error > 0 or not 0 < chance < 1:
        raise ChannelError("the relative error must be above 0, the chance between 0 and 1")


def checked_whole(value: object, name: str, least: int, most: int) -> int:
    """A whole number between two others, or a refusal (True is refused)."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise AdviseError(f"{name} must be a whole number from {least} to {most}")
    return value


def smallest_group(wanted: float, error: float, alpha: int) -> int:
    """Smallest decoy group c whose T_P is at least the given one.

    T_P grows with c towards that of a Poisson sum, so beyond that limit nothing helps.

    >>> smallest_group(0.613, 0.3, 3)
    11
    >>> smallest_group(0.612, 0.3, 3)
    10
    """
    chance, off = checked_number(wanted, "T_P"), checked_number(error, "e")
    if not 0 < chance < 1 or not 0 < off < 1:
        raise AdviseError("T_P and e must lie strictly between 0 and 1")
    checked_whole(alpha, "alpha, the largest small sum,", 1, 10_000)
    most = small_sum_privacy(LARGEST_GROUP, off, alpha)
    if most < chance:
        raise AdviseError(
            f"no decoy group reaches T_P = {chance:g}: at e = {off:g} and alpha = {alpha} it"
            f" stays below {most + 0.0005:.3f}",
            hint="ask for less, or a smaller alpha or e",
        )
    sizes = range(2, LARGEST_GROUP + 1)  # c = 1 hides nothing
    return sizes[bisect_left(sizes, chance, key=lambda c: small_sum_privacy(c, off, alpha))]
