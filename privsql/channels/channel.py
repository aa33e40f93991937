"""A channel: the perturbation of one column.

    T[i, j] = P(published j | original i),   rows sum to one.

Values are positions in the column's domain.  Functions on the domain have shape
``(..., m)``: the last axis is the domain.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privsql.channels.cells import Cells, refine
from privsql.errors import ChannelError, Error, TooLargeError, with_article

Array = NDArray[np.float64]

# A dense matrix beyond this many values (128 MiB) is a mistake, not a need.
MATRIX_LIMIT = 4096

# A channel worse conditioned than this would drown any table in its own rounding.
CONDITION_LIMIT = 1e10

# How far a sum of probabilities may be from one and still be rounding.
SUM_TOLERANCE = 1e-9


class Channel(ABC):
    """The perturbation of one column; the mechanisms derive from it."""

    mechanism: ClassVar[str]
    parameters: ClassVar[tuple[str, ...]]  # attributes that define it, as it is made from them
    optional: ClassVar[Mapping[str, object]] = {}  # those that a description may leave out
    size: int  # number m of values in the domain, NULL included where the column may hold it
    _known: ClassVar[dict[str, type[Channel]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Remember the mechanism's name, for ``channel_from_dict``."""
        super().__init_subclass__(**kwargs)
        Channel._known[cls.mechanism] = cls

    @property
    def matrix(self) -> Array:
        """The matrix T, shape ``(m, m)``; refused for a domain too large to build it."""
        if self.size > MATRIX_LIMIT:
            raise TooLargeError(
                f"the transition matrix of {self.size} values is not built"
                f" (the limit is {MATRIX_LIMIT})",
                hint="use expected(), inverse() or lump(), which do not need it",
            )
        return self.expected(np.eye(self.size))

    @abstractmethod
    def expected(self, counts: ArrayLike) -> Array:
        """``counts @ T``: expected published counts of original ones."""

    @abstractmethod
    def inverse(self, function: ArrayLike) -> Array:
        """``T^-1 g``: what to add up over published values instead of g over original ones."""

    @property
    @abstractmethod
    def gamma(self) -> float:
        """Amplification ``max_j max_i,k T[i,j] / T[k,j]``; infinite where T has a zero."""

    @property
    def epsilon(self) -> float:
        """Local differential privacy of one published value, ``ln gamma``."""
        return math.log(self.gamma)

    def signature(self, cells: Cells) -> Array | None:
        """Describe where each value's mass goes, as far as lumping ``cells`` cares.

        Shape ``(m, d)``; two values of one cell may stay together when their rows agree.
        None says that every partition is lumpable, as it is where the chance of being kept is
        the same for all values.
        """
        return None

    @abstractmethod
    def _lumped(self, cells: Cells) -> Channel:
        """Build the channel between cells that are known to be lumpable."""

    def lump(self, cells: Cells) -> Channel:
        """Exact channel between cells; ``refine`` the cells first if they are not lumpable.

        >>> from privsql.channels.mechanisms import Uniform
        >>> Uniform(0.5, 4).lump(Cells.of([0, 1, 1, 1])).matrix
        array([[0.625, 0.375],
               [0.125, 0.875]])
        """
        if refine(cells, self).count != cells.count:
            raise ChannelError(
                f"{cells.count} cells of {with_article(self.mechanism)} column mix values that are"
                " perturbed differently, so no exact channel between them exists",
                hint="refine the cells first and add the refined ones up afterwards",
            )
        return self._lumped(cells)

    def to_dict(self) -> dict[str, Any]:
        """Mechanism and parameters that JSON can hold; ``channel_from_dict`` reads it back."""
        given = {name: getattr(self, name) for name in self.parameters}
        arrays = {n: each.tolist() for n, each in given.items() if isinstance(each, np.ndarray)}
        return {"mechanism": self.mechanism, **given, **arrays}

    def __eq__(self, other: object) -> bool:
        """Two channels are equal when they are described by the same data."""
        return isinstance(other, Channel) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        """Agree with ``==``."""
        return hash((self.mechanism, self.size))


def channel_from_dict(data: Mapping[str, Any]) -> Channel:
    """Read a channel back from the plain data that ``to_dict`` gave.

    >>> channel_from_dict({"mechanism": "uniform", "retention": 0.2, "size": 3})
    Uniform(retention=0.2, values=3)
    >>> channel_from_dict({"mechanism": "uniform", "size": 3})
    Traceback (most recent call last):
        ...
    privsql.errors.ChannelError: ERROR 22023 [channel]: a uniform channel needs "retention"
    """
    if not isinstance(data, Mapping):
        raise ChannelError("a channel is described by a table of names and values")
    name = data.get("mechanism")
    kind: Any = Channel._known.get(name) if isinstance(name, str) else None
    if kind is None:
        raise ChannelError(
            "a channel needs the name of its mechanism",
            hint=f"choose one of {', '.join(sorted(Channel._known))}",
        )
    try:
        given = {**kind.optional, **data}
        channel: Channel = kind(**{name: given[name] for name in kind.parameters})
    except KeyError as missing:
        raise ChannelError(f'{with_article(str(name))} channel needs "{missing.args[0]}"') from None
    unknown = [str(key) for key in data if key not in channel.to_dict()]
    if unknown:
        raise ChannelError(
            f"{with_article(str(name))} channel has no parameter {', '.join(map(repr, unknown))}"
        )
    return channel


def amplification(matrix: Array) -> float:
    """``gamma = max_j max_i,k T[i,j] / T[k,j]`` of a matrix; infinite with a zero in T.

    A column of zeros, a value that is never published, breaches nothing.

    >>> round(amplification(np.array([[0.75, 0.25], [0.25, 0.75]])), 9)
    3.0
    """
    most, least = matrix.max(axis=0), matrix.min(axis=0)
    used = most > 0
    ratio = np.divide(most, least, out=np.full(len(most), np.inf), where=least > 0)
    return float(ratio[used].max())


def gamma_of_rho(rho1: float, rho2: float) -> float:
    """Amplification below which there is no (rho1, rho2) breach.

        gamma = rho2 (1-rho1) / (rho1 (1-rho2))

    A prior of at most rho1 then never becomes a posterior above rho2, nor one of at least
    rho2 a posterior below rho1.

    >>> round(gamma_of_rho(0.1, 0.25), 9)
    3.0
    """
    low, high = checked_number(rho1, "rho1"), checked_number(rho2, "rho2")
    if not 0 < low < high < 1:
        raise ChannelError("rho needs 0 < rho1 < rho2 < 1")
    return high * (1 - low) / (low * (1 - high))


def checked_retention(value: object, name: str = "retention") -> float:
    """Return a retention probability as a float, or refuse it."""
    number = checked_number(value, name)
    if number == 0:
        raise ChannelError(
            f"{name} 0 keeps nothing: no count can be reconstructed",
            hint=f"choose a {name} above 0",
        )
    if not 0 < number <= 1:
        raise ChannelError(f"{name} must be above 0 and at most 1")
    if number < 1 / CONDITION_LIMIT:
        raise ChannelError(f"{name} is too small to reconstruct anything from")
    return number


def checked_number(value: object, name: str) -> float:
    """Return a finite float, or refuse anything else (True included)."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ChannelError(f"{name} must be a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ChannelError(f"{name} must be a finite number")
    return number


def checked_size(value: object, name: str = "the size of a domain", least: int = 1) -> int:
    """Return a number of values, or refuse it."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ChannelError(f"{name} must be a whole number of at least {least}")
    return int(value)


def as_floats(values: object, refusal: str, error: type[Error] = ChannelError) -> Array:
    """Return numbers as an array, or refuse what is none in these words."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        # Not chained: numpy's message quotes the value.
        raise error(refusal) from None


def checked_array(value: object, name: str, dimensions: int) -> Array:
    """Return a read-only array of probabilities, or refuse it."""
    array = as_floats(value, f"{name} must hold numbers, in rows of one length").copy()
    if array.ndim != dimensions or array.size == 0:
        raise ChannelError(f"{name} must have {dimensions} dimension(s) and not be empty")
    if not np.isfinite(array).all():
        raise ChannelError(f"{name} must hold finite numbers")
    if (array < 0).any() or (array > 1).any():
        raise ChannelError(f"{name} must hold probabilities, between 0 and 1")
    array.setflags(write=False)
    return array


def on_domain(values: ArrayLike, size: int) -> Array:
    """Return a function on the domain, or refuse one of another length."""
    array = as_floats(values, "a function on the domain must be numbers")
    if array.ndim == 0 or array.shape[-1] != size:
        found = array.shape[-1] if array.ndim else "none"
        raise ChannelError(f"expected one number for each of {size} values, found {found}")
    return array
