"""A served table with the states that users were answered over: what accounts of it are over.

    current    the public rows that are served now
    earlier    those that answers in the history are over; each lies within the current ones (rows
               were appended, or nothing changed), or rows have left since

Answers over rows that have left are judged in several accounts, and the worst decides: over the
current rows, over those of the earlier state, and over all rows of both together, where
the difference of a total before and after is what has left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from privsql.policy.account import Caps, Limits
from privsql.policy.base import Asked, Base, Database, Within
from privsql.policy.public_rows import PublicRows

Cell = Sequence[Asked]


@dataclass(frozen=True)
class Serving:
    """What is served: a table's name, its state, and how its public rows are read."""

    name: str
    release: str  # the identity of the release, which formats 1 and 2 have instead of a name
    state: str  # names the public rows
    rows: Callable[[], PublicRows]
    make: Callable[[], Database]  # an empty database
    limits: Limits = field(default_factory=Limits)
    caps: Caps = field(default_factory=Caps)


class Renamed(Exception):  # noqa: N818 - becomes an error of the history
    """An earlier state has a public column that there is no more."""


class ServedTable:
    """The bases of a table's accounts, shared by all users."""

    def __init__(self, serving: Serving, earlier: Mapping[str, Callable[[], PublicRows]]) -> None:
        self.serving = serving
        self.earlier = {key: each for key, each in earlier.items() if key != serving.state}
        self.reserved: tuple[Cell, ...] = ()
        self._lock = threading.RLock()
        self._bases: dict[frozenset[str], tuple[Base, ...]] = {}
        self._loaded: dict[str, PublicRows] = {}

    @property
    def key(self) -> tuple[str, str]:
        """Its name and state."""
        return self.serving.name, self.serving.state

    def load(self, serving: Serving) -> bool:
        """Read the rows that are served now, by whoever asks first; whether it was this one."""
        if "public" in self.__dict__:
            return False
        with self._lock:
            if "public" in self.__dict__:
                return False
            # Whoever tried before may be gone, and the release that it read with it.
            self.serving = serving
            return bool(self.public.counts.size)

    @cached_property
    def public(self) -> PublicRows:
        """The rows that are served now."""
        return self.serving.rows()

    def _rows(self, state: str) -> PublicRows:
        if state == self.serving.state:
            return self.public
        if state not in self._loaded:
            self._loaded[state] = self.earlier[state]()
        return self._loaded[state]

    @property
    def base(self) -> Base:
        """What the current account of a user is over."""
        with self._lock:
            return self._current

    @cached_property
    def _current(self) -> Base:
        return self._made(self.serving.state, self.public)

    def _made(self, key: str, public: PublicRows) -> Base:
        """A base with all states placed in it."""
        made = Base(key, public, self.serving.make)
        others = [self.serving.state, *self.earlier]
        for state in others:
            if state != key:
                origin, counts = made.compare(self._rows(state))
                if counts is not None and bool((counts == public.times).all()):
                    counts = None  # the same rows: what was asked then is as if asked now
                    made.whole.add(state)
                made.within[state] = Within(origin, counts)
        return made

    def stale(self, states: Sequence[str]) -> frozenset[str]:
        """Those of some states whose rows have not all stayed."""
        base = self.base
        found = set()
        for state in states:
            if state == self.serving.state:
                continue
            if not set(self._rows(state).columns) <= set(self.public.columns):
                raise Renamed
            if base.within[state].counts is None and state not in base.whole:
                found.add(state)
        return frozenset(found)

    def bases(self, states: Sequence[str]) -> tuple[Base, ...]:
        """What the accounts of a user are over who was answered over these states."""
        with self._lock:
            stale = self.stale(states)
            if not stale:
                return (self._current,)
            if stale not in self._bases:
                self._bases[stale] = (self._current, *self._beside(stale))
            return self._bases[stale]

    def _beside(self, stale: frozenset[str]) -> list[Base]:
        """The bases of rows that have left."""
        made: list[Base] = []
        together = self.public
        for state in sorted(stale):
            rows = self._rows(state)
            if set(rows.columns) != set(self.public.columns):
                continue  # a column is new: what it tells apart was one row then
            made.append(self._made(state, rows))
            together = Base("", together, self.serving.make).united(rows)
        if not made:
            return []
        return [*made, self._made(f"all rows with {sorted(stale)}", together)]

    def close(self) -> None:
        """Let go of all rows."""
        with self._lock:
            held = [each for some in self._bases.values() for each in some]
            if "_current" in self.__dict__:
                held.append(self._current)
            for each in held:
                each.close()
