"""Measure functions of one release: exact coordinates for what tells rows of one tuple apart.

An answer is a weight for each row.  Public columns that make atoms weigh whole atoms, measures
(cost, a date) weigh the rows within them, so

    v(row) = alpha(atom) f(row)         f a measure function: condition x weight x key

and a release has far fewer functions than answers.  Each is kept once for all users, by its
coordinates F in an orthonormal basis, within each atom, of all functions so far:

    <v, v'> = sum over atoms of alpha alpha' <f, f'>_a
            = sum over coordinates of (alpha F) (alpha' F')

so vectors over coordinates are as good as vectors over rows, and much shorter.  Function k brings
at most one new coordinate an atom, where its residual is not zero and older functions are; so
coordinates are appended and nothing that refers to them is ever rewritten:

    coordinates   0 .. C_0 | .. C_1 | ... | .. C_k        F_k is an array of length C_k

Function 0 is the constant 1, with coordinate sqrt(n_a) in atom a.

The basis is held as vectors Q over classes of rows that all functions so far treat alike
(``policy.within``): a few numbers an atom and function, not one a row.

Numbers.  A function is taken apart against Q twice, atom by atom.  What is left is rounding below
``NOTHING`` of the lengths that were added up.  A residual that is neither rounding nor large
enough for its direction to be known (``FAINT``) makes the function faint in that atom: nothing may
be answered there that uses it.  At the cap on memory a function is taken apart all the same and
not kept, so what lies in the span of earlier ones is still answered.  (reconstruction, 8)
"""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from privsql.errors import DataError
from privsql.policy.within.bases import Bases
from privsql.policy.within.classes import EPSILON, Bools, Classes, Floats, Ints

__all__ = [
    "EPSILON",
    "FAINT",
    "KNOWN",
    "MOST",
    "MOST_BYTES",
    "Atoms",
    "Bools",
    "Expressed",
    "Floats",
    "Function",
    "Functions",
    "Ints",
]

# What functions may hold, all users together: this, or so many bytes for each stored row of a large
# table, whose measures alone take a third of it.
MOST_BYTES, MOST_A_ROW = 256 * 2**20, 128
# Answers that agree but for a millionth, one after another, make rounding errors as large as one
# likes.  So no more than MOST is ever taken for rounding, and a direction has to be known to a
# share KNOWN of its length; otherwise a group could hide in what is put down to rounding.
MOST, KNOWN = 1e-9, 1e-3
# Lengths of residuals within an atom: noise, as a share of all lengths that were added up, and
# what is too faint, as a share of the function's own.
NOTHING, FAINT = 64 * EPSILON, 1e-7
# Values this far below the largest are lost in its square.
TINY = 1e-100


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
        most_bytes: int | None = None,
    ) -> None:
        self.atoms = atoms
        self._rows = _Rows(atoms, lengths, times)
        usual = max(MOST_BYTES, MOST_A_ROW * self._rows.count)
        self.most_bytes = usual if most_bytes is None else most_bytes
        self._space: tuple[Classes, Bases] | None = None  # when a second function comes
        self._numbers: dict[bytes, int] = {}
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
        own = sum(each.coordinates.nbytes for each in self._functions)
        return own if self._space is None else own + sum(each.nbytes for each in self._space)

    # -- a new one -----------------------------------------------------------------------

    def add(self, values: Bools | NDArray[np.floating]) -> Function | Expressed:
        """The function with these values; ``Expressed`` where the cap on memory is reached.

        A function that is there already, or a power of two times it, is not stored again.
        """
        scaled, unit = self._rows.scaled(values)
        name = hashlib.blake2b(scaled.data, digest_size=16).digest()
        with self._lock:
            if self._space is None:
                self._space = (
                    Classes(self._rows.lengths, self._rows.times),
                    Bases(self._rows.lengths),
                )
                ones = np.ones(self._rows.count, dtype=np.bool_)
                self._numbers[hashlib.blake2b(ones.data, digest_size=16).digest()] = 0
            if name in self._numbers:
                return self._functions[self._numbers[name]]
            found = self._taken(scaled, unit, *self._space)
            if isinstance(found, Function):
                self._numbers[name] = found.number
            return found

    def _taken(
        self, scaled: Bools | Floats, unit: int, classes: Classes, bases: Bases
    ) -> Function | Expressed:
        inside: Bools = np.asarray(scaled != 0)
        j, ratio, more = 0, 1.0, False
        if scaled.dtype != np.bool_:
            j, ratio, more = classes.weight(scaled.astype(np.float64, copy=False), unit)
        mixed = classes.mixed(inside)
        full = self.held + self._needed(classes, bases, mixed, more) > self.most_bytes
        if full:  # what it says of known coordinates is found all the same, on a copy
            classes = classes.fork()
        before, parents = classes.size, classes.atom[mixed]
        cut = classes.cut(inside, mixed) if mixed.size else None
        if more:
            classes.extend(j, scaled / ratio, unit)
        g = classes.vector(j, inside) * ratio
        over, rest = g[:before], np.append(np.zeros(before), g[before:])
        if cut is not None:
            over, rest = cut.pulled(g, before)
        known, left = bases.apart(over, self.width)
        if cut is None:
            rest[:before] += left
        else:
            rest += cut.pushed(left, g.size)
        found = self._judged(classes, bases, scaled, known, g, rest)
        if full:
            return found
        new = np.flatnonzero(found.fresh)
        bases.widen(classes.owner, before)
        if cut is not None:
            bases.cut(cut, parents)
        bases.push(new, rest, found.fresh[new], self.width)
        self._offsets.append(self.width)
        self.where = np.concatenate([self.where, new])
        coordinates = np.concatenate([known, found.fresh[new]])
        faint = found.faint if found.faint.any() else None
        self._functions.append(Function(len(self._functions), coordinates, faint))
        return self._functions[-1]

    def _needed(self, classes: Classes, bases: Bases, mixed: Ints, more: bool) -> int:
        """Bytes that one more function may need, a little more rather than less."""
        atoms = self.atoms.rows.size
        each = classes.T.shape[2]
        coordinates = np.bincount(classes.atom[mixed], minlength=atoms) * each
        needed = 8 * (self.width + atoms)
        if more:
            coordinates += np.bincount(classes.atom, minlength=atoms)
            needed += 16 * classes.count
        return needed + bases.room(coordinates)

    def _judged(
        self,
        classes: Classes,
        bases: Bases,
        scaled: Bools | Floats,
        known: Floats,
        g: Floats,
        rest: Floats,
    ) -> Expressed:
        """What the residual is in each atom: nothing, a new direction, or too faint."""
        atoms = self.atoms.rows.size
        length = np.sqrt(np.bincount(classes.owner, g * g, atoms))
        norm = np.sqrt(np.bincount(classes.owner, rest * rest, atoms))
        faint = self._rows.tiny(scaled)
        # An atom with as many vectors as coordinates has no room for another.
        norm[bases.ranks >= np.bincount(classes.owner, minlength=atoms)] = 0.0
        norm[norm <= NOTHING * length] = 0.0
        # Beside ``length`` rounding is in proportion to all that is added up.
        doubtful = np.flatnonzero((norm > 0) & (norm < MOST * length))
        for a in doubtful.tolist():
            if norm[a] <= NOTHING * self._added(a, known):
                norm[a] = 0.0
        short = (norm > 0) & (norm < FAINT * length)
        return Expressed(known, np.where(short, 0.0, norm), faint | short)

    def _added(self, a: int, known: Floats) -> float:
        """The length of all that has to be added up to make a function of earlier ones."""
        mine = np.flatnonzero(self.where == a)
        makers = np.searchsorted(self._offsets, mine, side="right") - 1
        T = np.zeros((mine.size, mine.size))
        for i, j in enumerate(makers):
            T[i, : i + 1] = self._functions[j].coordinates[mine[: i + 1]]
        shares = linalg.solve_triangular(T.T, known[mine], lower=False, check_finite=False)
        return float(np.abs(shares) @ np.linalg.norm(T, axis=1))


class _Rows:
    """Stored rows atom by atom."""

    def __init__(self, atoms: Atoms, lengths: Ints | None, times: Floats | None) -> None:
        self.lengths = atoms.rows if lengths is None else lengths
        if self.lengths.shape != atoms.rows.shape or int(self.lengths.min()) < 1:
            raise DataError("each atom needs a number of stored rows")
        self.count = int(self.lengths.sum())
        if times is not None and times.size != self.count:
            raise DataError("each stored row needs a number of rows that it stands for")
        self.times = times
        self._first = np.cumsum(self.lengths) - self.lengths

    def scaled(self, values: Bools | NDArray[np.floating]) -> tuple[Bools | Floats, int]:
        """The values over a power of two, so that squares neither overflow nor vanish, and it."""
        if values.shape != (self.count,):
            raise DataError("a function needs a value for each stored row")
        if values.dtype == np.bool_:
            return np.ascontiguousarray(values, dtype=np.bool_), 0
        numbers = np.ascontiguousarray(values, dtype=np.float64)
        if not np.isfinite(numbers).all():
            raise DataError("a function needs finite values")
        unit = int(np.frexp(np.abs(numbers).max(initial=0.0))[1])
        made = np.ldexp(numbers, -unit)
        ones = made == 0.5  # an indicator, scaled
        return (ones if bool((ones | (made == 0)).all()) else made + 0.0), unit

    def tiny(self, scaled: Bools | Floats) -> Bools:
        """Per atom, whether it has a value that is not zero and yet vanishes beside others."""
        if scaled.dtype == np.bool_:
            return np.zeros(self.lengths.size, dtype=np.bool_)
        size = np.abs(scaled)
        return np.asarray(np.logical_or.reduceat((size > 0) & (size < TINY), self._first))
