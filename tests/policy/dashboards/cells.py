"""Cells of a statement as vectors over rows, evaluated apart from the planner.

    v(row) = alpha(atom) f(row)        alpha: public keys and conditions; f: those with measures

Which vectors a cell tells, and which cells are refused whatever was asked before, follows the
rules of the disclosure check: sums of weights and of their squares; one personal group; few rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsql.policy.account import Account, Part
from privsql.policy.functions import Expressed, Function, Functions
from tests.policy.dashboards.people import People
from tests.policy.dashboards.statements import Aggregate, Statement, is_measured, is_sensitive

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
MIN_ROWS = 10


@dataclass(frozen=True)
class Cell:
    """One aggregate of one combination of public keys."""

    key: tuple[object, ...]
    rows: float
    parts: tuple[Part, ...]
    personal: bool
    few: bool
    times: int  # cells that sensitive keys divide it into


@dataclass(frozen=True)
class _Measured:
    """A function of measures, and by atom how many rows it has, their sum and their squares."""

    function: Function | Expressed
    rows: Floats
    sums: Floats
    squares: Floats


@dataclass
class Tally:
    """What became of cells."""

    cells: int = 0
    personal: int = 0  # about one group, or about few rows, by themselves
    close: int = 0  # together with earlier answers
    cap: str = ""  # that was met: then some are refused because no more can be held

    @property
    def refused(self) -> int:
        return self.personal + self.close


class Cells:
    """Cells of statements over one release."""

    def __init__(self, people: People, functions: Functions) -> None:
        self.people = people
        self.functions = functions
        self._measured: dict[tuple[str, ...], _Measured] = {}

    def of(self, statement: Statement) -> list[list[Cell]]:
        """Sensitive cells, large ones first, the aggregates of each together."""
        public = [key for key in statement.keys if not is_measured(key) and not is_sensitive(key)]
        measured = [key for key in statement.keys if is_measured(key)]
        found = []
        for value, conditions in self._combined(measured):
            for key, chosen in self._groups(public):
                made = [
                    self._cell(statement, aggregate, conditions, chosen, (*value, *key))
                    for aggregate in statement.aggregates
                    if statement.tells(aggregate)
                ]
                if made and self._rows(statement.where, conditions, chosen) > 0:
                    found.append(made)
        found.sort(key=lambda made: -max(cell.rows for cell in made))
        return found

    # -- keys ----------------------------------------------------------------------------

    def _combined(
        self, keys: Sequence[str]
    ) -> Iterator[tuple[tuple[object, ...], tuple[str, ...]]]:
        """Values of keys with measures, as conditions."""
        if not keys:
            yield (), ()
            return
        (key,) = keys
        for value in np.unique(self.people.values(key)):
            shown = value.item() if hasattr(value, "item") else value
            text = str(value) if np.issubdtype(type(value), np.number) else f"'{value}'"
            yield (shown,), (f"({key}) = {text}",)

    def _groups(self, keys: Sequence[str]) -> Iterator[tuple[tuple[object, ...], Bools]]:
        """Values of public keys, with the atoms that have them."""
        size = self.people.atoms.rows.size
        columns = [self.people.values(key) for key in keys]
        if not columns:
            yield (), np.ones(size, dtype=np.bool_)
            return
        rows = list(zip(*(column.tolist() for column in columns), strict=True))
        for value in sorted(set(rows)):
            yield value, np.array([row == value for row in rows])

    # -- one cell ------------------------------------------------------------------------

    def _public(self, conditions: Sequence[str], chosen: Bools) -> Bools:
        for text in conditions:
            if not is_sensitive(text) and not is_measured(text):
                chosen = chosen & self.people.values(text).astype(np.bool_)
        return chosen

    def _rows(self, conditions: Sequence[str], more: Sequence[str], chosen: Bools) -> float:
        of = self._function((*conditions, *more), "1")
        return float(of.rows[self._public(conditions, chosen)].sum())

    def _cell(
        self,
        statement: Statement,
        aggregate: Aggregate,
        more: Sequence[str],
        chosen: Bools,
        key: tuple[object, ...],
    ) -> Cell:
        conditions = (*statement.where, *aggregate.where, *more)
        atoms = np.flatnonzero(self._public(conditions, chosen))
        parts, rows, heavy = [], 0.0, False
        groups = np.empty(0, dtype=np.int64)
        for weight in aggregate.told:
            of = self._function(conditions, weight)
            alpha = np.ones(atoms.size)
            if not is_measured(weight):
                alpha = alpha * np.asarray(self.people.values(weight), dtype=np.float64)[atoms]
            some = (of.rows[atoms] > 0) & (alpha != 0)
            if not some.any():
                continue
            parts.append(Part(of.function, atoms[some], alpha[some]))
            if "*" in weight:  # squares are told by its error alone, and are not judged
                continue
            rows = max(rows, float(of.rows[atoms[some]].sum()))
            groups = np.union1d(groups, self.people.atoms.groups[atoms[some]])
            if weight != "1":
                total = float((alpha * of.sums[atoms])[some].sum())
                square = float((alpha**2 * of.squares[atoms])[some].sum())
                heavy |= total < np.sqrt(MIN_ROWS * square)
        every = rows == self.people.atoms.rows.sum()
        return Cell(
            key,
            rows,
            tuple(parts),
            groups.size == 1 and not every,
            (0 < rows < MIN_ROWS and not every) or heavy,
            statement.classes,
        )

    def _function(self, conditions: Sequence[str], weight: str) -> _Measured:
        """The function of conditions and a weight that have measures; the constant, if none has."""
        texts = sorted(text for text in set(conditions) if is_measured(text))
        name = (*texts, weight if is_measured(weight) else "1")
        if name not in self._measured:
            self._measured[name] = self._made(texts, weight)
        return self._measured[name]

    def _made(self, texts: Sequence[str], weight: str) -> _Measured:
        people = self.people
        if not texts and not is_measured(weight):
            rows = people.atoms.rows.astype(np.float64)
            return _Measured(self.functions[0], rows, rows, rows)
        chosen = np.ones(people.atom.size, dtype=np.bool_)
        for text in texts:
            chosen &= people.values(text).astype(np.bool_)
        values: Bools | Floats = chosen
        if is_measured(weight):
            values = np.where(chosen, people.values(weight).astype(np.float64), 0.0)
        size = people.atoms.rows.size
        numbers = values.astype(np.float64)
        return _Measured(
            self.functions.add(values),
            np.bincount(people.atom, numbers != 0, size),
            np.bincount(people.atom, numbers, size),
            np.bincount(people.atom, numbers * numbers, size),
        )


def asked(account: Account, cells: Sequence[Sequence[Cell]], tally: Tally) -> None:
    """One statement: what may be judged alone is, the rest goes to the account."""
    rest = []
    for cell in (each for made in cells for each in made):
        tally.cells += cell.times
        if cell.personal or cell.few:
            tally.personal += cell.times
        elif cell.parts:
            rest.append(cell)
    proposal = account.propose([cell.parts for cell in rest])
    account.commit(proposal)
    tally.cap = tally.cap or proposal.admission.cap or ""
    for cell, admitted in zip(rest, proposal.admission.admitted, strict=True):
        tally.close += 0 if admitted else cell.times
