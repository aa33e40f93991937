"""Reads the attacks of tests/attacks and asks them through a front.

A file is a list of sequences, each of them a trick with what must become of it:

    let one = job = 'eng' AND gender = 'F'      words for {one}, from here to the end of the file

    # a total against its parts                 a sequence begins: a user without a past
    on: clinic                                  release (clinic where nothing is said)
    as: served                                  served, embedded, or both (where nothing is said)
    ask: SELECT ...                             lines that begin with a blank go on
    with: ["eng"]                               parameters as JSON
    expect: answered

What may be expected:

    answered                  rows, and no cell of them refused
    refused CODE              an error that says no: personal-group, difference, unsupported, ...
    empty N [shown M]         N cells refused; M values of the answer are NULL (N where not said)
    error CODE                an error that says that the statement is wrong
    set                       a setting was changed

``user: NAME`` before an ``ask`` lets somebody else ask it.  What stands before the first sequence
holds for all of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from privsql.answer.outcome import Outcome, Personal
from privsql.errors import Notice
from privsql.fronts.dbapi.connection import Connection
from privsql.session.session import Session

FOLDER = Path(__file__).parents[1] / "attacks"
FIELDS = ("on", "as", "user", "ask", "with", "expect")
MODES = {"served": ("served",), "embedded": ("embedded",), "both": ("embedded", "served")}


@dataclass(frozen=True)
class Expected:
    """What must become of a statement."""

    kind: str
    code: str = ""
    refused: int = 0
    shown: int = 0

    @classmethod
    def of(cls, text: str) -> Expected:
        """Read it.

        >>> Expected.of("empty 3 shown 6")
        Expected(kind='empty', code='', refused=3, shown=6)
        """
        words = text.split()
        match words:
            case [("answered" | "set") as kind]:
                return cls(kind)
            case [("refused" | "error") as kind, code]:
                return cls(kind, code)
            case ["empty", number]:
                return cls("empty", "", int(number), int(number))
            case ["empty", number, "shown", shown]:
                return cls("empty", "", int(number), int(shown))
        raise ValueError(f"{text!r} is no decision")


@dataclass(frozen=True)
class Step:
    """One statement of a sequence."""

    sql: str
    expected: Expected
    parameters: Any = None
    user: str = ""


@dataclass(frozen=True)
class Attack:
    """A sequence of statements by users without a past."""

    file: str
    trick: str
    release: str
    modes: tuple[str, ...]
    steps: tuple[Step, ...]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.file}: {self.trick}"

    @property
    def leaves_nothing(self) -> bool:
        """Whether none of it is answered, so that nobody's past changes."""
        return all(step.expected.kind in ("refused", "error", "set") for step in self.steps)


def attacks() -> list[Attack]:
    """All of them, in the order of files and lines."""
    return [each for path in sorted(FOLDER.glob("*.txt")) for each in read(path)]


def read(path: Path) -> Iterator[Attack]:
    """The attacks of one file; a line that nobody would read is an error."""
    words: dict[str, str] = {}
    common = {"on": "clinic", "as": "both"}
    trick, fields, steps = "", common, list[Step]()
    for key, value in (*_lines(path), ("#", "")):
        if key == "let":
            name, _, meaning = value.partition(" = ")
            words[name] = _filled(meaning, words)
        elif key == "#":
            if "ask" in fields:
                raise ValueError(f"{path.name}: nothing is expected of {fields['ask']!r}")
            if steps:
                yield Attack(path.stem, trick, fields["on"], MODES[fields["as"]], tuple(steps))
            elif trick:
                raise ValueError(f"{path.name}: nothing is asked in {trick!r}")
            trick, fields, steps = value, dict(common), []
        elif key == "expect":
            given = json.loads(fields.pop("with")) if "with" in fields else None
            sql = _filled(fields.pop("ask"), words)
            steps.append(Step(sql, Expected.of(value), given, fields.get("user", "")))
        else:
            if key == "ask" and "ask" in fields:
                raise ValueError(f"{path.name}: nothing is expected of {fields['ask']!r}")
            fields[key] = value


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    key, parts = "", list[str]()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith((" ", "\t")) and key:
            parts.append(line.strip())
            continue
        if key:
            yield key, " ".join(parts)
        key, parts = "", []
        if not line.strip() or line.startswith("--"):
            continue
        if line.startswith("let "):
            key, value = "let", line[4:]
        elif line.startswith("# "):
            key, value = "#", line[2:]
        else:
            key, _, value = line.partition(":")
            if key not in FIELDS:
                raise ValueError(f"{path.name}:{number}: {line!r} is no line of an attack")
        parts = [value.strip()]
    if key:
        yield key, " ".join(parts)


def _filled(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda m: words.get(m[1], m[0]), text)


# -- asking -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """What a front shows of an answer."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    notices: tuple[Notice, ...] = ()
    personal: Personal | None = None  # where the front tells
    bars: Mapping[int, pa.Table] = field(default_factory=dict)  # likewise
    kind: str = "rows"


class Front(Protocol):
    """A way to ask; one that has a server of its own needs no more than this."""

    def begin(self, user: str) -> None:
        """Ask as this user from now on."""

    def ask(self, sql: str, parameters: Any = None) -> Seen:
        """Answer, or raise an error of privsql's."""


Ask = Callable[[str, Any], Seen]


class Local:
    """A front in this process: something over the session of each user."""

    def __init__(
        self, make: Callable[[Session], Ask], session_of: Callable[[str], Session]
    ) -> None:
        self._make = make
        self._session_of = session_of
        self._asking: dict[str, Ask] = {}
        self._user = ""

    def begin(self, user: str) -> None:
        """Change who asks, where that makes a difference."""
        self._user = user
        if user not in self._asking:
            self._asking[user] = self._make(self._session_of(user))

    def ask(self, sql: str, parameters: Any = None) -> Seen:
        """Ask through it."""
        return self._asking[self._user](sql, parameters)


def by_session(session: Session) -> Ask:
    """Session.run."""

    def ask(sql: str, parameters: Any) -> Seen:
        return _seen(session.run(sql, parameters))

    return ask


def by_cursor(session: Session) -> Ask:
    """DB-API: a new cursor each time, with error bars as columns."""
    connection = Connection(session)

    def ask(sql: str, parameters: Any) -> Seen:
        with connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            names = tuple(str(d[0]) for d in cursor.description or ())
            kind = "rows" if cursor.description else "set"
            return Seen(names, tuple(cursor.fetchall() if names else ()), cursor.notices, kind=kind)

    return ask


def by_answer(session: Session) -> Ask:
    """``con.sql``, with all that an Answer shows of itself."""
    connection = Connection(session)

    def ask(sql: str, parameters: Any) -> Seen:
        answer = connection.sql(sql, parameters)
        outcome = answer.outcome
        if outcome.kind == "rows":
            str(answer)
            cells = answer.estimates
            errors = cells[cells["estimate"].isna()][["stderr", "low", "high"]]
            if errors.fillna(0).any(axis=None):  # what has no rows has no error: 0
                raise AssertionError("a hidden estimate shows its error")
        return Seen(
            tuple(answer.columns), tuple(answer.fetchall()), answer.notices, answer.personal,
            outcome.bars, outcome.kind,
        )  # fmt: skip

    return ask


FRONTS: Mapping[str, Callable[[Session], Ask]] = {
    "session": by_session,
    "dbapi": by_cursor,
    "answer": by_answer,
}


def _seen(outcome: Outcome) -> Seen:
    columns = tuple(outcome.table.column_names)
    lists = [column.to_pylist() for column in outcome.table.columns]
    rows = tuple(zip(*lists, strict=True)) if lists else ()
    return Seen(columns, rows, outcome.notices, outcome.personal, outcome.bars, outcome.kind)
