"""The errors that a user can cause, as one hierarchy, and helpers for their wording.

The family is PEP 249's, so that programs written against any database connection catch
what they expect.  Each error says what was asked, why it cannot be, and what to ask
instead; it carries a stable ``code`` for programs and a SQLSTATE for drivers.  No error
ever quotes a value of the data.

>>> print(ChannelError("retention 0 keeps nothing", hint="choose a retention above 0"))
ERROR 22023 [channel]: retention 0 keeps nothing
HINT: choose a retention above 0
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the statement: ``text[start:stop]``, shown with a caret."""

    text: str
    start: int
    stop: int

    def __str__(self) -> str:
        r"""Show the line that holds ``start`` with carets under the stretch.

        >>> print(Place("SELECT a\nFROM b", 14, 15))
        LINE 2: FROM b
                     ^
        """
        begin = self.text.rfind("\n", 0, self.start) + 1
        end = self.text.find("\n", self.start)
        line = self.text[begin : end if end >= 0 else len(self.text)]
        number = self.text.count("\n", 0, self.start) + 1
        label = f"LINE {number}: "
        at, stop = self.start - begin, min(self.stop - begin, len(line))
        if len(line) > LONGEST:
            # Of a line of a million characters the part that is meant, and what is around it.
            first = max(0, at - LONGEST // 4)
            line = line[first : first + LONGEST]
            label += "... " if first else ""
            at, stop = at - first, min(stop - first, len(line))
        # A tab must stay one, or the caret drifts on the reader's terminal.
        before, meant = (printable(each, keep="\t") for each in (line[:at], line[at:stop]))
        lead = "".join(c if c == "\t" else " " for c in before)
        shown = printable(line, keep="\t")
        return f"{label}{shown}\n{' ' * len(label)}{lead}{'^' * max(1, len(meant))}"


# Characters of a line that an error shows.
LONGEST = 400


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise ``KeyboardInterrupt`` where DuckDB saw Ctrl-C first and raises an error of its own."""
    try:
        yield
    except Exception as problem:
        if str(problem) == "Query interrupted" or type(problem).__name__ == "InterruptException":
            raise KeyboardInterrupt from None
        raise


@dataclass(frozen=True, slots=True)
class Notice:
    """A remark on an answer, with a stable code for programs."""

    code: str
    text: str

    def __str__(self) -> str:
        """Format with its code; control characters of a value that it names are escaped.

        >>> print(Notice("domain", "the values are those of the public domain"))
        NOTICE [domain]: the values are those of the public domain
        """
        return f"NOTICE [{self.code}]: {printable(self.text)}"


def how_many(count: int, one: str, several: str | None = None) -> str:
    """A number with its noun, and a verb where one follows, in agreement.

    >>> how_many(1, "row"), how_many(2000, "row"), how_many(1, "value lies", "values lie")
    ('1 row', '2,000 rows', '1 value lies')
    """
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def with_article(noun: str) -> str:
    """A noun after its indefinite article; of nouns in u- those met here begin with a consonant.

    >>> with_article("integer"), with_article("date"), with_article("uniform")
    ('an integer', 'a date', 'a uniform')
    """
    return f"{'an' if noun[:1].lower() in tuple('aeio') else 'a'} {noun}"


def printable(text: str, keep: str = "") -> str:
    r"""Text with control characters escaped: it stays on its line and cannot control a terminal.

    Names and values come from a file that somebody else wrote.  Characters that only change the
    direction or the look of others are escaped, too; those of ``keep`` stay.

    >>> print(printable("a\nb\x1b[31mred"))
    a\nb\x1b[31mred
    >>> print(printable("a\nb\u202e", keep="\n"))
    a
    b\u202e
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def wrapped(text: str, width: int | None, hang: str = "  ") -> str:
    """Lines broken between words at a width, what goes on indented below; None: as they are.

    >>> print(wrapped("HINT: ask for a larger group of people.", 24))
    HINT: ask for a larger
      group of people.
    """
    if width is None:
        return text
    lines = []
    for line in text.splitlines():
        lead = line[: len(line) - len(line.lstrip())]
        lines += textwrap.wrap(
            line,
            max(20, width),
            subsequent_indent=lead + hang,
            break_long_words=False,
            break_on_hyphens=False,
        ) or [""]
    return "\n".join(lines)


class Warning(Exception):  # noqa: N818 - the name is PEP 249's
    """Something important that is not an error (PEP 249)."""


class Error(Exception):
    """Root of all errors of privsql (PEP 249)."""

    code: ClassVar[str] = "error"
    sqlstate: ClassVar[str] = "XX000"

    def __init_subclass__(cls, *, code: str | None = None, sqlstate: str | None = None) -> None:
        """Give a kind of error its code and SQLSTATE; what is not given is its parent's."""
        super().__init_subclass__()
        cls.code, cls.sqlstate = code or cls.code, sqlstate or cls.sqlstate

    def __init__(self, reason: str, *, hint: str | None = None, place: Place | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self.place = place

    def __str__(self) -> str:
        """Format for programs and logs: SQLSTATE, code, reason, place in the text, hint."""
        return self._shown(f"ERROR {self.sqlstate} [{self.code}]: {self.reason}")

    def for_people(self) -> str:
        """Format for a terminal: the SQLSTATE after the message.

        >>> print(ChannelError("retention 0 keeps nothing").for_people())
        ERROR [channel]: retention 0 keeps nothing (SQLSTATE 22023)
        """
        first, newline, rest = self.reason.partition("\n")
        return self._shown(
            f"ERROR [{self.code}]: {first} (SQLSTATE {self.sqlstate}){newline}{rest}"
        )

    def _shown(self, head: str) -> str:
        # A name in a message may be anybody's; several mistakes stand on lines of their own.
        lines = [printable(head, keep="\n\t")]
        if self.place is not None:
            lines.append(str(self.place))
        if self.hint is not None:
            lines.append(printable(f"HINT: {self.hint}", keep="\n\t"))
        return "\n".join(lines)


class InterfaceError(Error, code="interface", sqlstate="08003"):
    """The connection was used wrongly, for example after it was closed."""


class DatabaseError(Error):
    """An error of the database or the release."""


class DataError(DatabaseError, code="data", sqlstate="22023"):
    """A value or a parameter is out of range."""


class OperationalError(DatabaseError, code="operational", sqlstate="58000"):
    """The system failed: a file, memory, a lock, a time limit."""


class IntegrityError(DatabaseError, code="integrity", sqlstate="XX001"):
    """Parts of a release contradict each other."""


class InternalError(DatabaseError, code="internal", sqlstate="XX000"):
    """A bug in privsql."""


class ProgrammingError(DatabaseError, code="programming", sqlstate="42000"):
    """The statement or the call is wrong."""


class NotSupportedError(DatabaseError, code="not-supported", sqlstate="0A000"):
    """The statement cannot be answered from perturbed rows."""


class DomainError(DataError, code="domain"):
    """A domain is badly described, or values lie outside of it."""


class ChannelError(DataError, code="channel"):
    """A channel's parameters do not describe a perturbation that can be reconstructed."""


class TooLargeError(NotSupportedError, code="too-large", sqlstate="54000"):
    """A domain, a matrix or a set of states is too large to build."""


def too_deep(
    reason: str = "the query nests too deeply, or chains too many operators",
) -> TooLargeError:
    """An error about a statement whose tree is too deep to work on."""
    return TooLargeError(
        reason, hint="write a long list of values as x IN (...), and ask in several statements"
    )
