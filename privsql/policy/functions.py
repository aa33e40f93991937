"""Measure functions of one release: exact coordinates for what tells rows of one tuple apart.

An answer is a weight for each row.  Public columns that make atoms weigh whole atoms, measures
(cost, a date) weigh the rows within them, so

    v(row) = alpha(atom) f(row)         f a measure function: condition x weight x key

and a release has far fewer functions than answers.  Each is kept once for all users, as packed
bits (indicators) or doubles, with its coordinates F in an orthonormal basis, within each atom, of
all functions so far:

    <v, v'> = sum over atoms of alpha alpha' <f, f'>_a
            = sum over coordinates of (alpha F) (alpha' F')

so vectors over coordinates are as good as vectors over rows, and much shorter.  Function k brings
at most one new coordinate an atom, where its residual is not zero and older functions are; so
coordinates are appended and nothing that refers to them is ever rewritten:

    coordinates   0 .. C_0 | .. C_1 | ... | .. C_k        F_k is an array of length C_k

Function 0 is the constant 1, with coordinate sqrt(n_a) in atom a.

Numbers.  Inner products of indicators are integers, hence exact.  Coordinates follow by forward
substitution; where the residual is a small part of the function (``NEAR``), the atom is done
again on its rows against explicit orthonormal vectors, which are kept where they could not be
found again accurately (``KEEP``).  A residual that is neither noise nor large enough for its
direction to be known (``FAINT``) makes the function faint in that atom: nothing may be answered
there that uses it.  (reconstruction, 8)
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from privsql.errors import DataError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]

EPSILON = float(np.finfo(np.float64).eps)
MOST_BYTES = 512 * 2**20
# Answers that agree but for a millionth, one after another, make rounding errors as large as one
# likes.  So no more than MOST is ever taken for rounding, and a direction has to be known to a
# share KNOWN of its length; otherwise a group could hide in what is put down to rounding.
MOST, KNOWN = 1e-9, 1e-3
# Squares of residuals, as shares of the function's own square within the atom.
NEAR, KEEP = 1e-3, 1e-3
# Lengths of residuals within an atom: noise, as a share of all lengths that were added up, and
# what is too faint, as a share of the function's own.
NOTHING, FAINT = 64 * EPSILON, 1e-7
# Values this far below the largest are lost in its square.
TINY = 1e-100
# Sums of products of doubles over so many rows are not left to one running sum.
LONG = 1_024


@dataclass(frozen=True)
class Atoms:
    """Distinct public tuples: how many rows each has, and the personal group it lies in."""

    rows: Ints
    groups: Ints
    kind: str = ""  # of coordinates, where equal counts do not make them the same

    def __post_init__(self) -> None:
        """Refuse arrays that do not describe tuples."""
        if self.rows.shape != self.groups.shape or self.rows.ndim != 1 or not self.rows.size:
            raise DataError("atoms need one row count and one group number each")
        if int(self.rows.min()) < 1:
            raise DataError("an atom without rows is not a public tuple of the table")

    @property
    def digest(self) -> str:
        """Names this state of the table: vectors over other atoms mean something else."""
        head = np.array([self.rows.size], dtype="<i8")
        parts = (head, self.rows.astype("<i8"), self.groups.astype("<i8"))
        text = b"".join(part.tobytes() for part in parts) + self.kind.encode()
        return hashlib.sha256(text).hexdigest()


@dataclass(frozen=True)
class Expressed:
    """A function in coordinates: what is known of it already, and what would be new."""

    known: Floats  # along the coordinates so far
    fresh: Floats  # per atom, the length of the residual: a new coordinate, or 0
    faint: Bools  # per atom, whether the residual is too faint to have a direction
    kept: dict[int, Longer]  # atoms whose orthonormal vectors must be explicit


@dataclass(frozen=True)
class Longer:
    """Orthonormal vectors over the rows of an atom, and one more that is new."""

    Q: Floats
    T: Floats  # coordinates of the functions that made them, a triangle
    q: Floats
    t: Floats


class Explicit:
    """Orthonormal vectors over the rows of an atom, with room for more."""

    def __init__(self, Q: Floats, T: Floats) -> None:
        self.count = len(Q)
        self._Q, self._T = Q, T

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._Q.nbytes + self._T.nbytes

    @property
    def parts(self) -> tuple[Floats, Floats]:
        """The vectors, and the triangle."""
        return self._Q[: self.count], self._T[: self.count, : self.count]

    def push(self, q: Floats, t: Floats) -> None:
        """One more."""
        n = self.count
        if n == len(self._Q):
            Q, T = self.parts
            room = n + max(4, n // 4)
            self._Q, self._T = np.zeros((room, Q.shape[1])), np.zeros((room, room))
            self._Q[:n], self._T[:n, :n] = Q, T
        self._Q[n], self._T[n, : n + 1] = q, t
        self.count += 1


@dataclass(frozen=True)
class Function:
    """A stored function: its coordinates, and the atoms where it may not be used."""

    number: int
    coordinates: Floats
    faint: Bools | None  # None where it may be used everywhere


class Functions:
    """The functions of one release, shared by all accounts; only ever appended to.

    ``atoms`` are the distinct public tuples.  Rows are given atom by atom, in the order of
    ``atoms``: ``lengths`` says how many stored rows each has and ``times`` how many rows of the
    table each of those stands for; without them a stored row is a row.
    """

    def __init__(
        self,
        atoms: Atoms,
        lengths: Ints | None = None,
        times: Floats | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.atoms = atoms
        self.most_bytes = most_bytes
        self._rows = _Rows(atoms, lengths, times)
        self._values: list[Bytes | Floats] = []
        self._numbers: dict[bytes, int] = {}
        self._explicit: dict[int, Explicit] = {}
        self._lock = threading.RLock()
        size = atoms.rows.size
        self.where = np.arange(size, dtype=np.int64)  # atom of each coordinate
        self._offsets = [0]  # where the coordinates that function k brought begin
        root = np.sqrt(atoms.rows.astype(np.float64))
        self._functions = [Function(0, root, None)]

    # -- what there is -------------------------------------------------------------------

    def __len__(self) -> int:
        """How many functions there are, the constant included."""
        return len(self._functions)

    def __getitem__(self, number: int) -> Function:
        """A function by its number."""
        return self._functions[number]

    @property
    def width(self) -> int:
        """How many coordinates there are."""
        return int(self.where.size)

    @property
    def held(self) -> int:
        """Bytes held, other than indices."""
        arrays: list[Bytes | Floats] = [*self._values]
        arrays += [function.coordinates for function in self._functions]
        explicit = sum(each.nbytes for each in self._explicit.values())
        return explicit + sum(each.nbytes for each in arrays)

    # -- a new one -----------------------------------------------------------------------

    def add(self, values: Bools | NDArray[np.floating]) -> Function | Expressed:
        """The function with these values; ``Expressed`` where the cap on memory is reached.

        A function that is there already, or a power of two times it, is not stored again.
        """
        with self._lock:
            scaled = self._rows.scaled(values)
            name = hashlib.blake2b(scaled.tobytes(), digest_size=16).digest()
            self._start()
            if name in self._numbers:
                return self._functions[self._numbers[name]]
            stored = self._rows.stored(scaled)
            found = self._express(scaled, stored)
            new = np.flatnonzero(found.fresh)
            more = stored.nbytes + 8 * (found.known.size + new.size)
            more += sum(
                each.q.nbytes + (0 if a in self._explicit else each.Q.nbytes + each.T.nbytes)
                for a, each in found.kept.items()
            )
            if self.held + more > self.most_bytes:
                return found
            self._numbers[name] = len(self._functions)
            return self._append(stored, found, new)

    def _append(self, stored: Bytes | Floats, found: Expressed, new: Ints) -> Function:
        self._values.append(stored)
        self._offsets.append(self.width)
        for a, each in found.kept.items():
            self._explicit.setdefault(a, Explicit(each.Q, each.T)).push(each.q, each.t)
        self.where = np.concatenate([self.where, new])
        coordinates = np.concatenate([found.known, found.fresh[new]])
        faint = found.faint if found.faint.any() else None
        self._functions.append(Function(len(self._functions), coordinates, faint))
        return self._functions[-1]

    def _start(self) -> None:
        """Rows of the constant, when a second function comes."""
        if not self._values:
            ones = self._rows.scaled(np.ones(self._rows.count, dtype=np.bool_))
            self._values.append(self._rows.stored(ones))
            self._numbers[hashlib.blake2b(ones.tobytes(), digest_size=16).digest()] = 0

    # -- coordinates ---------------------------------------------------------------------

    def _express(self, scaled: Bools | Floats, stored: Bytes | Floats) -> Expressed:
        atoms = self.atoms.rows.size
        square = self._rows.products(stored, stored)
        known = self._substituted(stored)
        left = square - np.bincount(self.where, known * known, atoms)
        again = left < NEAR * square
        again[list(self._explicit)] = True
        if scaled.dtype != np.bool_:
            again |= self._rows.lengths > LONG
        again &= square > 0
        fresh = np.sqrt(np.where(again | (square == 0), 0.0, np.maximum(left, 0.0)))
        faint = self._rows.tiny(scaled)
        kept: dict[int, Longer] = {}
        order = np.argsort(self.where, kind="stable") if again.any() else np.empty(0, np.int64)
        bounds = np.searchsorted(self.where[order], [np.arange(atoms), np.arange(1, atoms + 1)])
        for a in np.flatnonzero(again) if order.size else ():
            mine = order[bounds[0][a] : bounds[1][a]]
            rest, Q, T, added = self._on_rows(int(a), mine, scaled, known)
            length, norm = float(np.sqrt(square[a])), float(np.linalg.norm(rest))
            noise = NOTHING * max(length, added)
            if norm <= min(noise, MOST * length) or len(Q) == rest.size:
                continue
            if norm < FAINT * length:
                faint[a] = True
                continue
            fresh[a] = norm
            if norm * norm < KEEP * length * length or int(a) in self._explicit:
                kept[int(a)] = Longer(Q, T, rest / norm, np.append(known[mine], norm))
        return Expressed(known, fresh, faint, kept)

    def _substituted(self, stored: Bytes | Floats) -> Floats:
        """Coordinates by forward substitution: function j fixes those that it brought."""
        known = np.zeros(self.width)
        for j, function in enumerate(self._functions):
            low, F = self._offsets[j], function.coordinates
            own = self.where[low : F.size]
            if own.size == 0:
                continue
            inner = self._rows.products(stored, self._values[j])
            inner -= np.bincount(self.where[:low], F[:low] * known[:low], inner.size)
            known[low : F.size] = inner[own] / F[low:]
        return known

    def _on_rows(
        self, a: int, mine: Ints, scaled: Bools | Floats, known: Floats
    ) -> tuple[Floats, Floats, Floats, float]:
        """One atom, against orthonormal vectors over its rows: what is left, the vectors, T.

        Coordinates ``known`` are put right in place.  The number is the length of all that has
        to be added up to make the function of earlier ones: rounding is in proportion to it.
        """
        root = self._rows.roots(a)
        rest = scaled[self._rows.of(a)] * root
        held = self._explicit.get(a)
        Q, T = self._orthonormal(a, mine, root) if held is None else held.parts
        known[mine] = 0.0
        for _ in range(3):
            along = Q @ rest
            rest = rest - along @ Q
            known[mine] += along
        shares = linalg.solve_triangular(T.T, known[mine], lower=False, check_finite=False)
        return rest, Q, T, float(np.abs(shares) @ np.linalg.norm(T, axis=1))

    def _orthonormal(self, a: int, mine: Ints, root: Floats) -> tuple[Floats, Floats]:
        """The functions that brought an atom's coordinates, made orthonormal by those."""
        makers = np.searchsorted(self._offsets, mine, side="right") - 1
        T = np.zeros((mine.size, mine.size))
        for i, j in enumerate(makers):
            T[i, : i + 1] = self._functions[j].coordinates[mine[: i + 1]]
        B = np.array([self._rows.part(self._values[j], a) for j in makers]) * root
        Q = np.asarray(linalg.solve_triangular(T, B, lower=True, check_finite=False))
        return Q, T


class _Rows:
    """Stored rows atom by atom; in bits, each atom is padded to whole bytes."""

    def __init__(self, atoms: Atoms, lengths: Ints | None, times: Floats | None) -> None:
        self.lengths = atoms.rows if lengths is None else lengths
        if self.lengths.shape != atoms.rows.shape or int(self.lengths.min()) < 1:
            raise DataError("each atom needs a number of stored rows")
        self.count = int(self.lengths.sum())
        if times is not None and times.size != self.count:
            raise DataError("each stored row needs a number of rows that it stands for")
        self._times = times
        sizes = (self.lengths + 7) // 8
        self._first = np.cumsum(self.lengths) - self.lengths
        self._bytes = np.cumsum(sizes) - sizes
        self._size = int(sizes.sum())

    @cached_property
    def _places(self) -> Ints:
        """The bit of each stored row."""
        shift = 8 * self._bytes - self._first
        return np.asarray(np.arange(self.count) + np.repeat(shift, self.lengths))

    @cached_property
    def _weights(self) -> Floats | None:
        """How often each stored row counts, in the order of bits."""
        return None if self._times is None else self._spread(self._times)

    def _spread(self, values: Floats) -> Floats:
        made = np.zeros(8 * self._size)
        made[self._places] = values
        return made

    def scaled(self, values: Bools | NDArray[np.floating]) -> Bools | Floats:
        """The values with their largest near 1, so that squares neither overflow nor vanish."""
        if values.shape != (self.count,):
            raise DataError("a function needs a value for each stored row")
        if values.dtype == np.bool_:
            return values.astype(np.bool_, copy=False)
        numbers = np.ascontiguousarray(values, dtype=np.float64)
        if not np.isfinite(numbers).all():
            raise DataError("a function needs finite values")
        made = np.ldexp(numbers, -int(np.frexp(np.abs(numbers).max(initial=0.0))[1]))
        ones = made == 0.5  # an indicator, scaled
        return ones if bool((ones | (made == 0)).all()) else made + 0.0

    def tiny(self, scaled: Bools | Floats) -> Bools:
        """Per atom, whether it has a value that is not zero and yet vanishes beside others."""
        if scaled.dtype == np.bool_:
            return np.zeros(self.lengths.size, dtype=np.bool_)
        size = np.abs(scaled)
        return np.asarray(np.logical_or.reduceat((size > 0) & (size < TINY), self._first))

    def stored(self, scaled: Bools | Floats) -> Bytes | Floats:
        """As it is kept: packed bits or doubles."""
        if scaled.dtype != np.bool_:
            return self._spread(scaled.astype(np.float64, copy=False))
        flags = np.zeros(8 * self._size, dtype=np.bool_)
        flags[self._places] = scaled
        return np.packbits(flags)

    def products(self, one: Bytes | Floats, two: Bytes | Floats) -> Floats:
        """Inner product of two stored functions within each atom."""
        if one.dtype == two.dtype == np.uint8 and self._times is None:
            both = np.bitwise_count(np.bitwise_and(one, two))
            return np.add.reduceat(both, self._bytes, dtype=np.int64).astype(np.float64)
        made = _unpacked(one) * _unpacked(two)
        if self._weights is not None:
            made = made * self._weights
        return np.asarray(np.add.reduceat(made, 8 * self._bytes, dtype=np.float64))

    def of(self, a: int) -> slice:
        """The stored rows of an atom."""
        return slice(int(self._first[a]), int(self._first[a] + self.lengths[a]))

    def part(self, stored: Bytes | Floats, a: int) -> NDArray[np.uint8] | Floats:
        """A stored function's values on the rows of an atom."""
        low, rows = int(self._bytes[a]), int(self.lengths[a])
        if stored.dtype == np.uint8:
            bits = stored[low : low + (rows + 7) // 8].astype(np.uint8, copy=False)
            return np.unpackbits(bits, count=rows)
        return stored[8 * low : 8 * low + rows]

    def roots(self, a: int) -> Floats:
        """Roots of how often the stored rows of an atom count."""
        if self._times is None:
            return np.ones(int(self.lengths[a]))
        return np.sqrt(self._times[self.of(a)])


def _unpacked(stored: Bytes | Floats) -> NDArray[np.uint8] | Floats:
    if stored.dtype == np.uint8:
        return np.unpackbits(stored.astype(np.uint8, copy=False))
    return stored
