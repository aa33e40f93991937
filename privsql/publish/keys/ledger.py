"""The ledger of a key: publications under it, and the privacy loss of persons.

``clinic.key.ledger`` has one line of JSON for each publication.  The same column with the
same parameters repeats the same draws, and a second look at them shows nothing new: its loss
counts once.  Any other parameters, another unit or another key for the same persons are new
draws, and losses add:

    epsilon(column) = sum of epsilon over the different draws of that column

That holds for a person whose value stayed the same.  A draw is a function of the value as
well, so a value that changed is drawn anew.  Each line therefore names the state of the source
by a keyed digest (``fingerprint``), and whoever changed between all of them lost

    changed(column) = sum of epsilon times the number of states over the different draws

Publishing again what did not change is no new state.

Where a person has several rows, each of them loses that much, and since draws of equal values
repeat, rows that can be linked show whether their values were equal, which no epsilon bounds.
Such a publication has no epsilon; its line says how many rows a person has at most, and

    most(column) = sum of epsilon times these rows over the different draws

is told beside it.  Otherwise the ledger holds no value, no count and nothing of the key but its
name.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from privsql.errors import IntegrityError, OperationalError, ProgrammingError
from privsql.files import sync_folder
from privsql.publish.staging import open_locked
from privsql.release.formats import check_format

# Of a line, which says it from the second format on.
FORMAT = 1

# Where a row is a person, a person is a place in one source.
ROW = "row"

# What a line is about: a release, or rows that a client perturbed itself.
PUBLISH, PERTURB = "publish", "perturb"


class LedgerError(ProgrammingError):
    """A publication would add to the privacy loss of persons."""

    code = "ledger"
    sqlstate = "42501"


@dataclass(frozen=True)
class Loss:
    """One publication of one column: its perturbation and its privacy loss."""

    mechanism: str
    parameters: str  # retention.digest: the channel and the domain
    epsilon: float
    state: str = ""  # digest of who had which value (see fingerprint), where it is known

    def __post_init__(self) -> None:
        """Refuse what would make the sum of losses smaller, or no number."""
        if not self.epsilon >= 0:
            raise ValueError("a loss is a number of at least 0, or infinite")


@dataclass(frozen=True)
class Publication:
    """One line of the ledger.

    ``source`` names the files of the source (a digest); it matters where a row is a person,
    since only an unchanged source has every person at the same place.  Rows that stream out are
    entered before the first of them leaves, when their state is not known: that line is not
    ``complete``, and a later one of the same ``release`` takes its place.
    """

    time: str
    table: str
    release: str
    unit: str
    columns: Mapping[str, Loss]
    key_id: str
    source: str = ""
    kind: str = PUBLISH
    complete: bool = True
    rows_per_unit: int = 1  # no person has more rows in it

    def draws(self, column: str) -> tuple[str, ...]:
        """What the draws of a column are a function of; equal draws are looked at once."""
        loss, table = self.columns[column], self.table.casefold()
        place = (table, self.source) if self.unit == ROW else ()
        return (self.key_id, self.unit.casefold(), loss.mechanism, loss.parameters, *place)

    def state(self, column: str) -> str:
        """State of the source for a column; an unknown one may be any, so it is one of its own.

        Where a row is a person, the source is part of the draws already.
        """
        known = self.columns[column].state
        return "" if self.unit == ROW else known or f"unknown, release {self.release}"

    def shares_persons(self, other: Publication) -> bool:
        """Whether two publications may be about the same persons: one table, or one unit."""
        same_unit = self.unit.casefold() == other.unit.casefold() and self.unit != ROW
        return same_unit or self.table.casefold() == other.table.casefold()

    def to_json(self) -> str:
        """Write the line; JSON has no infinity, so epsilons are text."""
        columns = {
            name: {**vars(c), "epsilon": repr(c.epsilon)} for name, c in self.columns.items()
        }
        document = {**vars(self), "columns": columns}
        if self.rows_per_unit == 1:  # as lines were written before there was the field
            del document["rows_per_unit"]
        return json.dumps(document, sort_keys=True)

    @classmethod
    def from_json(cls, line: str, where: Path | str = "LEDGER") -> Publication:
        """Read a line of the file ``where``; ValueError, TypeError or KeyError if it is none."""
        data: dict[str, Any] = json.loads(line)
        check_format(int(data.pop("format", 1)), FORMAT, "the ledger", where=where)
        losses = {
            name: Loss(**{**loss, "epsilon": float(loss["epsilon"])})
            for name, loss in dict(data["columns"]).items()
        }
        if not int(data.get("rows_per_unit", 1)) >= 1:
            raise ValueError("a person has at least one row")
        return cls(**{**data, "columns": losses})


@dataclass(frozen=True)
class Accounting:
    """The privacy loss of persons after the publication that was checked.

    Infinity is what a column without an epsilon costs.
    """

    publications: int
    columns: Mapping[str, float]  # every column published of these persons, now or before
    changed: Mapping[str, float]  # the same for a person whose value changed every time
    states: int  # of the source, where one column was published most often by the same draws
    rows_per_unit: int = 1  # in the publication where a person has most; the losses are of all

    @property
    def epsilon(self) -> float:
        """Total over all columns, for a person whose values never changed.

        Infinite where a person has several rows: how much these lose together is told by
        ``columns``, but no epsilon covers which of them have equal values.
        """
        return sum(self.columns.values()) if self.rows_per_unit == 1 else math.inf

    @property
    def worst(self) -> float:
        """Total over all columns, for a person whose values changed every time."""
        return sum(self.changed.values()) if self.rows_per_unit == 1 else math.inf

    def __str__(self) -> str:
        """Format in one line."""
        times = "first publication" if self.publications == 1 else f"{self.publications} in all"
        if self.rows_per_unit > 1:
            return (
                f"no epsilon: a person has up to {self.rows_per_unit:,} rows, which lose up to"
                f" {sum(self.columns.values()):.4g} together ({_listed(self.columns)}); {times}"
            )
        return f"epsilon {self.epsilon:.4g} ({_listed(self.columns)}); {times}"

    def change(self) -> str | None:
        """What a changed source adds, if it changed."""
        if self.states == 1:
            return None
        if self.rows_per_unit > 1:
            return (
                f"the source changed: {self.states} different states of it under this key, and the"
                " changes may be visible"
            )
        return (
            f"the source changed: {self.states} different states of it under this key; epsilon up"
            f" to {self.worst:.4g} ({_listed(self.changed)}) for a person whose values changed"
            " every time, and the changes may be visible"
        )


def _listed(losses: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {loss:.4g}" for name, loss in losses.items())


@dataclass
class _Looks:
    """The draws of a column with the same parameters: what each costs, and from which states."""

    epsilon: float = 0.0
    rows: int = 1  # of a person, at most
    states: set[str] = field(default_factory=set)


def settled(lines: Iterable[Publication]) -> list[Publication]:
    """Publications, each once: what was entered before its end gives way to what came of it."""
    lines = list(lines)
    done = {line.release for line in lines if line.complete}
    return [line for line in lines if line.complete or line.release not in done]


class Ledger:
    """The publications under a key, one line of JSON each, only ever added to."""

    def __init__(self, path: str | Path, key_id: str) -> None:
        self.path = Path(path)
        self.key_id = key_id
        self._held: int | None = None

    @contextmanager
    def locked(self, *, wait: bool = False) -> Iterator[None]:
        """Lock the ledger against other publishers from the check to the record."""
        with self._open(exclusive=True, wait=wait) as descriptor:
            self._held = descriptor
            try:
                yield
            finally:
                self._held = None

    def publications(self) -> list[Publication]:
        """Read all lines; an incomplete last line is not a publication."""
        if self._held is None and not self.path.exists():
            return []
        with self._open(exclusive=False) as descriptor:
            return self._read(descriptor)[0]

    def check(
        self,
        table: str,
        unit: str,
        columns: Mapping[str, Loss],
        *,
        release: str = "",
        source: str = "",
        accept_loss: bool = False,
        rows_per_unit: int = 1,
    ) -> Accounting:
        """Account for a publication that is about to be made; nothing is written.

        New draws of a column that these persons had published before are refused unless
        ``accept_loss``, and then their epsilons add.
        """
        planned = Publication(
            *("", table, release, unit, dict(columns), self.key_id, source),
            rows_per_unit=rows_per_unit,
        )
        lines = settled([*self.publications(), planned])
        before = [each for each in lines if each is not planned and each.shares_persons(planned)]
        draws: dict[str, dict[tuple[str, ...], _Looks]] = {}
        names: dict[str, str] = {}
        added: list[str] = []  # columns published before with other draws
        for entry in [*before, planned]:
            for name, loss in entry.columns.items():
                known = draws.setdefault(name.casefold(), {})
                if entry is planned and known and entry.draws(name) not in known:
                    added.append(name)
                seen = known.setdefault(entry.draws(name), _Looks())
                seen.epsilon = max(loss.epsilon, seen.epsilon)
                seen.rows = max(entry.rows_per_unit, seen.rows)
                seen.states.add(entry.state(name))
                names[name.casefold()] = name
        if added and not accept_loss:
            raise LedgerError(
                f"{', '.join(added)} of the same persons was published before with other"
                " parameters, another unit, another key or from a changed source: fresh draws"
                " add to the privacy loss of each person",
                hint="publish with the earlier parameters, or accept the loss with --accept-loss;"
                " use another key for other persons",
            )
        looks = {names[name]: list(known.values()) for name, known in draws.items()}
        return Accounting(
            publications=len(before) + 1,
            columns={name: sum(each.epsilon * each.rows for each in looks[name]) for name in looks},
            changed={
                name: sum(each.epsilon * each.rows * len(each.states) for each in looks[name])
                for name in looks
            },
            states=max((len(each.states) for known in looks.values() for each in known), default=1),
            rows_per_unit=max(each.rows_per_unit for each in [*before, planned]),
        )

    def record(
        self,
        table: str,
        unit: str,
        columns: Mapping[str, Loss],
        release: str,
        *,
        source: str = "",
        kind: str = PUBLISH,
        complete: bool = True,
        rows_per_unit: int = 1,
    ) -> Publication:
        """Add a publication that was made, and return once it is on the disk."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = Publication(
            *(now, table, release, unit, dict(columns), self.key_id, source, kind, complete),
            rows_per_unit=rows_per_unit,
        )
        with self._open(exclusive=True) as descriptor:
            end, whole = self._read(descriptor)[1:]
            line = f"{'' if whole else chr(10)}{entry.to_json()}\n".encode()
            try:
                os.ftruncate(descriptor, end)  # what is left of a line that was never finished
                os.lseek(descriptor, end, os.SEEK_SET)
                while line:
                    line = line[os.write(descriptor, line) :]
                os.fsync(descriptor)
            except OSError as error:
                raise self._unusable(error) from None
        sync_folder(self.path)
        return entry

    @contextmanager
    def _open(self, *, exclusive: bool, wait: bool = True) -> Iterator[int]:
        if self._held is not None:
            yield self._held
            return
        flags = os.O_RDWR | os.O_CREAT if exclusive else os.O_RDONLY
        try:
            descriptor = open_locked(self.path, flags, shared=not exclusive, wait=wait)
        except BlockingIOError:
            raise OperationalError(
                "another publication under this key is running", hint="wait until it has ended"
            ) from None
        except OSError as error:
            raise self._unusable(error) from None
        try:
            yield descriptor
        finally:
            os.close(descriptor)  # which also gives the lock back

    def _unusable(self, error: OSError) -> OperationalError:
        return OperationalError(f"the ledger {self.path} cannot be used: {error.strerror}")

    def _read(self, descriptor: int) -> tuple[list[Publication], int, bool]:
        """Publications, where the last of them ends, and whether it ends with its line."""
        entries, end, whole = [], 0, True
        with open(descriptor, "rb", closefd=False) as file:
            file.seek(0)
            for number, line in enumerate(file, start=1):
                whole = line.endswith(b"\n")
                try:
                    entries.append(Publication.from_json(line.decode(), self.path))
                except (ValueError, TypeError, KeyError, AttributeError):
                    if not whole:
                        return entries, end, True
                    raise IntegrityError(
                        f"line {number} of the ledger {self.path} is damaged",
                        hint="restore it from a backup: losses cannot be counted without it",
                    ) from None
                end += len(line)
        return entries, end, whole
