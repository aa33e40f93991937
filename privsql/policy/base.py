"""Row functions evaluated on the public rows of one state of a table.

A *base* is what an account's vectors are over: the public rows of a state (``public_rows``), the
functions of them that any user's answers needed so far (``functions``), and how earlier states of
the table lie in it:

    contained    every row of the earlier state is one of the base's, by its public values.  An
                 answer of that time is f x [row was there]: which rows those are among equal ones
                 makes no difference.  So what was appended since is told apart.
    otherwise    rows have left: the text is evaluated on the base's rows as they are

Texts are those of ``sql.disclosure.row_functions``, run in a database that has these rows alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from privsql.errors import Error
from privsql.policy.account import Part
from privsql.policy.functions import Atoms, Bools, Expressed, Floats, Function, Functions, Ints
from privsql.policy.personal import floats
from privsql.policy.public_rows import TIMES, PublicRows, ints
from privsql.sql.plan.planner import (
    classes_scan,
    common_scan,
    function_scan,
    functions_scan,
    has_keys,
)
from privsql.sql.reconstruct.columns import HIDDEN, KEY

Values = Bools | Floats
Name = tuple[str | None, str]  # text and key of a function

ROW, VALUE, VALUES, MEMBERS = "row", "value", "row_values", "row_numbers"
STORED, FIRST, SECOND, NUMBER = "privsql_kept", "privsql_first", "privsql_second", "privsql_number"
# Bits of an indicator are cheaper than doubles as long as rows are so many times as many.
REPEATED = 8
# Results of scans that are kept for the next step of the same question.
RECENT = 4
# Functions whose values are computed together.
TOGETHER = 8


class Database(Protocol):
    """An in-memory database."""

    def load(self, name: str, table: pa.Table) -> None:
        """Copy a table in."""

    def forget(self, *names: str) -> None:
        """Drop tables."""

    def run(self, sql: str, parameters: Any = ...) -> pa.Table:
        """Run one SELECT."""

    def close(self) -> None:
        """Close it."""


@dataclass(frozen=True)
class Asked:
    """One vector of an answer: weights by public tuple, times a row function.

    ``text`` None is the constant function; ``key`` names a class of a function with keys.
    """

    text: str | None
    key: str
    atoms: Ints
    weights: Floats


@dataclass(frozen=True)
class Within:
    """How an earlier state lies in a base."""

    origin: Ints | None  # tuple of the state for each of the base, -1 for none; None: the same
    counts: Ints | None  # rows of the state among equal rows of the base; None: as they are now


class Unusable(Exception):  # noqa: N818 - no error: the cell that needs it is refused
    """A function with values that are no numbers."""


@dataclass
class Base:
    """Functions over the public rows of a state."""

    key: str
    public: PublicRows
    make: Callable[[], Database]
    within: dict[str, Within] = field(default_factory=dict)  # by key of other states
    whole: set[str] = field(default_factory=set)  # states that have exactly these rows

    def __post_init__(self) -> None:
        """Begin without functions."""
        self._known: dict[tuple[str, str, str], Function | None] = {}
        self._classes: dict[str, tuple[pa.Table, tuple[str, ...]]] = {}
        self._scans: dict[str, pa.Table] = {}
        self._lock = threading.RLock()
        self._open: Database | None = None

    def close(self) -> None:
        """Let go of the rows."""
        with self._lock:
            if self._open is not None:
                self._open.close()
                self._open = None

    # -- rows ----------------------------------------------------------------------------

    @cached_property
    def _segments(self) -> tuple[Ints, Ints, Ints]:
        """Runs of equal rows that no state tells apart: distinct row, last rank, number of rows."""
        times = self.public.times
        cuts = [each.counts for each in self.within.values() if each.counts is not None]
        if not cuts:
            return np.arange(times.size), times, times
        ends = np.sort(np.stack([*cuts, times]), axis=0)
        sizes = np.diff(ends, axis=0, prepend=0)
        row, at = np.nonzero(sizes.T > 0)
        return row, ends[at, row], sizes[at, row]

    @cached_property
    def _repeated(self) -> bool:
        """Whether rows are stored as often as they are there."""
        _, _, sizes = self._segments
        return int(sizes.sum()) <= REPEATED * sizes.size

    @cached_property
    def _stored(self) -> tuple[Ints, Ints]:
        """Distinct row and rank of each row that functions are stored for."""
        row, last, sizes = self._segments
        if not self._repeated:
            return row, last
        start = np.repeat(np.cumsum(sizes) - sizes, sizes)
        rank = np.arange(int(sizes.sum())) - start + np.repeat(last - sizes, sizes) + 1
        return np.repeat(row, sizes), rank

    @cached_property
    def functions(self) -> Functions:
        """The functions that were needed so far."""
        public = self.public
        atoms = Atoms(public.counts, public.groups)
        row, _ = self._stored
        lengths = np.bincount(public.atom[row], minlength=public.counts.size)
        times = None if self._repeated else self._segments[2].astype(np.float64)
        return Functions(atoms, lengths, times)

    # -- functions -----------------------------------------------------------------------

    @property
    def _database(self) -> Database:
        with self._lock:
            if self._open is None:
                self._open = self.make()
                # Weights of distinct counts are shared by the rows of a value, each as often as
                # it is there.
                times = pa.array(self.public.times)
                self._open.load(STORED, self.public.table().append_column(TIMES, times))
            return self._open

    def classes(self, text: str) -> tuple[pa.Table, tuple[str, ...]]:
        """The classes of a function with keys: their keys, and a name of each."""
        with self._lock:
            known = self._classes.get(text)
        if known is None:
            self._scanned(text)
            known = self._classes[text]
        return known

    def _scanned(self, text: str) -> pa.Table:
        """Rows and values of a function, or of every class of it."""
        with self._lock:
            found = self._scans.get(text)
        if found is not None:
            return found
        keyed = has_keys(text)
        write = classes_scan if keyed else function_scan
        printed = write(text, STORED, self.public.types)
        found = self._database.run(*printed.both)
        with self._lock:
            if keyed:
                keys = found.select(
                    [n for n in found.column_names if KEY.within([n]) or HIDDEN.within([n])]
                )
                numbered = keys.append_column("class", pa.array(np.arange(keys.num_rows)))
                self._classes[text] = numbered, tuple(_name(row) for row in _rows(keys))
            while len(self._scans) >= RECENT:
                del self._scans[next(iter(self._scans))]
            self._scans[text] = found
        return found

    def prepare(
        self,
        asked: Iterable[Asked],
        state: str,
        evaluated: Mapping[str, Values | None] | None = None,
    ) -> None:
        """Functions that are new, with as few scans as may be; ``part`` finds them then."""
        evaluated = evaluated or {}
        texts = dict.fromkeys(each.text for each in asked if each.text is not None and not each.key)
        with self._lock:
            new = [text for text in texts if self._name(text, "", state) not in self._known]
        for low in range(0, len(new), TOGETHER):
            some = new[low : low + TOGETHER]
            found = {text: evaluated[text] for text in some if text in evaluated}
            try:
                found |= self._together([text for text in some if text not in found])
            except Error:
                continue  # whichever it is that cannot be evaluated says so by itself
            for text in some:
                if text in found:
                    self.function(text, "", state, found)

    def evaluated(self, names: Iterable[Name]) -> dict[Name, Values | None]:
        """Values by distinct row of functions, by text and key."""
        wanted = list(names)
        found = self._together([text for text, key in wanted if text is not None and not key])
        made: dict[Name, Values | None] = {}
        for text, key in wanted:
            if text is None:
                made[text, key] = np.ones(self.public.times.size, dtype=np.bool_)
            elif key:
                made[text, key] = self._values(text, key)
            elif text in found:
                made[text, key] = found[text]
            else:
                raise Unusable
        return made

    def renew(self) -> None:
        """Forget all functions."""
        with self._lock:
            self.__dict__.pop("functions", None)
            self._known.clear()

    def _together(self, texts: Sequence[str]) -> dict[str, Values | None]:
        """Values of several functions without keys, those that are numbers."""
        made: dict[str, Values | None] = {}
        for printed, some in functions_scan(texts, STORED, self.public.types):
            found = self._database.run(*printed.both)
            row = ints(found, ROW)
            for n, text in enumerate(some):
                weight = floats(found, f"{VALUE}_{n}")
                if bool(np.isfinite(weight).all()):
                    made[text] = self._by_row(row, weight)
        return made

    def _name(self, text: str | None, key: str, state: str) -> tuple[str, str, str]:
        """What a function is known by: of all rows, it is the same for all states."""
        member = self.within.get(state)
        counts = None if member is None else member.counts
        return text or "", key, state if counts is not None else ""

    def function(
        self,
        text: str | None,
        key: str,
        state: str,
        evaluated: Mapping[str, Values | None] | None = None,
    ) -> Function | Expressed | None:
        """A row function on the rows of a state within the base; None if it is 0 everywhere.

        Values that are ``evaluated`` already need no scan.
        """
        member = self.within.get(state)
        counts = None if member is None else member.counts
        if text is None and counts is None:
            return self.functions[0]
        name = self._name(text, key, state)
        with self._lock:
            if name in self._known:
                return self._known[name]
        row, rank = self._stored
        made = None
        if text is not None:
            made = self._values(text, key) if evaluated is None else evaluated[text]
        if text is not None and made is None:
            return None
        values = np.ones(row.size, dtype=np.bool_) if made is None else made[row]
        if counts is not None:
            inside = rank <= counts[row]
            values = inside if made is None else values * inside
        if not bool(values.any()):
            found: Function | Expressed | None = None
        else:
            found = self.functions.add(values)
        if not isinstance(found, Expressed):
            with self._lock:
                self._known[name] = found
        return found

    def _values(self, text: str, key: str) -> Values | None:
        """Values of a function by distinct row; None if it is 0 everywhere."""
        found = self._scanned(text)
        if key:
            _, names = self.classes(text)
            if key not in names:
                return None
            at = names.index(key)
            lists = {ROW: found.column(MEMBERS)[at], VALUE: found.column(VALUES)[at]}
            found = pa.table({name: each.values for name, each in lists.items()})
        row, weight = ints(found, ROW), floats(found, VALUE)
        if not bool(np.isfinite(weight).all()):
            raise Unusable
        return self._by_row(row, weight)

    def _by_row(self, row: Ints, weight: Floats) -> Values:
        if bool((weight == 1).all()):
            inside = np.zeros(self.public.times.size, dtype=np.bool_)
            inside[row] = True
            return inside
        made = np.zeros(self.public.times.size)
        made[row] = weight
        return made

    def part(self, asked: Asked, state: str) -> Part | None:
        """A vector of an answer over a state, as one over the base; None if it is 0.

        A function that has no numbers for values makes a part that no account admits.
        """
        origin = None if state == self.key else self.within[state].origin
        atoms, weights = asked.atoms, asked.weights
        if origin is not None:
            size = max(int(origin.max(initial=-1)), int(atoms.max(initial=-1))) + 2
            dense = np.zeros(size)
            dense[atoms] = weights
            dense[-1] = 0.0  # origin -1: a tuple that was not there
            mapped = dense[origin]
            atoms = np.flatnonzero(mapped)
            weights = mapped[atoms]
        try:
            function = self.function(asked.text, asked.key, state)
        except Unusable:
            return Part(self.functions[0], atoms, np.full(atoms.size, np.nan))
        return None if function is None else Part(function, atoms, weights)

    # -- other states --------------------------------------------------------------------

    def compare(self, other: PublicRows) -> tuple[Ints, Ints | None]:
        """Tuples of another state for each of ours (-1: none), and its rows among equal ones.

        The second is None where rows of it are not here, or public columns differ.
        """
        ours = self.public
        common = [name for name in other.grouping if name in ours.grouping]
        origin = np.full(ours.counts.size, -1, dtype=np.int64)
        mine, theirs = self._pairs(ours.tuples, other.tuples, common)
        origin[mine[theirs >= 0]] = theirs[theirs >= 0]
        if set(ours.columns) != set(other.columns) or common != list(ours.grouping):
            return origin, None
        row, match = self._pairs(other.table(), ours.table(), ours.columns)
        if bool((match < 0).any()):
            return origin, None
        counts = np.zeros(ours.times.size, dtype=np.int64)
        counts[match] = other.times[row]
        return origin, None if bool((counts > ours.times).any()) else counts

    def _pairs(self, one: pa.Table, two: pa.Table, columns: Sequence[str]) -> tuple[Ints, Ints]:
        """Numbers of the rows of one table, and of the equal row of another (-1: none)."""
        database = self._database
        numbered = {FIRST: _numbered(one, columns), SECOND: _numbered(two, columns)}
        with self._lock:
            for name, each in numbered.items():
                database.load(name, each)
            try:
                printed = common_scan(columns, (NUMBER, NUMBER), FIRST, SECOND)
                found = database.run(*printed.both)
            finally:
                database.forget(FIRST, SECOND)
        first = np.asarray(found.column("one").to_numpy()).astype(np.int64)
        second = np.nan_to_num(floats(found, "two"), nan=-1).astype(np.int64)
        return first, second

    def united(self, other: PublicRows) -> PublicRows:
        """Our rows and those of another state: equal ones as often as they are in either."""
        ours = self.public
        first, match = self._pairs(other.table(), ours.table(), ours.columns)
        back, tuples = self._pairs(other.tuples, ours.tuples, ours.grouping)
        of_tuple = np.full(other.counts.size, -1, dtype=np.int64)
        of_tuple[back] = tuples
        new = np.flatnonzero(of_tuple < 0)
        of_tuple[new] = ours.counts.size + np.arange(new.size)
        groups = _groups(ours.groups, other.groups, of_tuple, new)
        times = ours.times.copy()
        known = match >= 0
        np.maximum.at(times, match[known], other.times[first[known]])
        more = first[~known]
        atom = np.concatenate([ours.atom, of_tuple[other.atom[more]]])
        times = np.concatenate([times, other.times[more]])
        counts = np.bincount(atom, times, ours.counts.size + new.size).astype(np.int64)
        return _public(ours, other, new, more, atom, times, counts, groups)


def _groups(ours: Ints, theirs: Ints, of_tuple: Ints, new: Ints) -> Ints:
    """Personal groups of our tuples and of new ones: that of a tuple of theirs that we have."""
    known = np.setdiff1d(np.arange(theirs.size), new)
    ours_of = dict(zip(theirs[known].tolist(), ours[of_tuple[known]].tolist(), strict=True))
    first = int(ours.max(initial=0)) + 1
    fresh: dict[int, int] = {}
    made = [
        ours_of[g] if g in ours_of else fresh.setdefault(g, first + len(fresh))
        for g in theirs[new].tolist()
    ]
    return np.concatenate([ours, np.array(made, dtype=np.int64)])


def _public(
    ours: PublicRows,
    other: PublicRows,
    new: Ints,
    more: Ints,
    atom: Ints,
    times: Ints,
    counts: Ints,
    groups: Ints,
) -> PublicRows:
    """Public rows of two states together."""
    names = list(ours.grouping)
    first, second = ours.tuples.select(names), other.tuples.select(names).take(new)
    tuples = pa.concat_tables([first, second.cast(first.schema)]) if names else pa.table({})
    tuples = tuples.append_column("privsql_rows", pa.array(counts))
    tuples = tuples.append_column("privsql_group", pa.array(groups))
    if ours.rows is None or other.rows is None:
        return PublicRows(ours.types, ours.grouping, tuples, None)
    measures = [n for n in ours.columns if n not in ours.grouping]
    left, right = ours.rows.select(measures), other.rows.select(measures).take(more)
    rows = pa.concat_tables([left, right.cast(left.schema)])
    rows = rows.append_column("privsql_atom", pa.array(atom))
    rows = rows.append_column("privsql_times", pa.array(times))
    return PublicRows(ours.types, ours.grouping, tuples, rows.take(np.argsort(atom, kind="stable")))


def _numbered(table: pa.Table, columns: Sequence[str]) -> pa.Table:
    number = pa.array(np.arange(table.num_rows))
    return table.select(list(columns)).append_column(NUMBER, number)


def _rows(table: pa.Table) -> list[Mapping[str, object]]:
    return list(table.to_pylist())


def _name(row: Mapping[str, object]) -> str:
    """A class by its keys, so that it is found again in another state."""
    return repr(tuple(0.0 if isinstance(v, float) and v == 0 else v for v in row.values()))
