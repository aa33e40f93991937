"""Errors of the protocol, and every error as the fields of an ErrorResponse.

SQLSTATEs are PostgreSQL's own: drivers decide by them whether to reconnect, to retry or to ask
for a password.  The stable code of our errors is the DETAIL, because programs that cannot tell a
personal group from a mistake by SQLSTATE can by that.  Names and values in a message may be
anybody's, and psql shows messages as they are: control characters are escaped here.
"""

from __future__ import annotations

import re

from privsql.errors import (
    Error,
    Notice,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    printable,
)
from privsql.sql.nodes import Unsupported


class ProtocolError(OperationalError, code="protocol", sqlstate="08P01"):
    """A message that PostgreSQL's protocol does not have; the connection ends."""


class BindError(ProgrammingError, code="bind", sqlstate="08P01"):
    """Values or formats that do not fit a statement; the connection goes on."""


class CountError(BindError, sqlstate="42601"):
    """EXECUTE with too few or too many values."""


class UnknownParameterError(BindError, sqlstate="42P02"):
    """A parameter in a statement that is not prepared, so that nobody can give its value."""


class RefusedError(OperationalError, code="authorization", sqlstate="28000"):
    """The way of logging in is refused."""


class PasswordError(RefusedError, code="password", sqlstate="28P01"):
    """The password is wrong, or the user does not exist: the message is the same."""


class UnknownDatabaseError(OperationalError, code="database", sqlstate="3D000"):
    """There is no such database, or not for this user."""


class BusyError(OperationalError, code="connections", sqlstate="53300"):
    """There are as many connections as there may be."""


class ShutdownError(OperationalError, code="shutdown", sqlstate="57P01"):
    """The server stops."""


class IdleError(OperationalError, code="idle", sqlstate="57P05"):
    """The connection was idle for too long."""


class AbortedError(ProgrammingError, code="transaction", sqlstate="25P02"):
    """A transaction that has failed answers nothing more."""


class NoTransactionError(ProgrammingError, code="transaction", sqlstate="25P01"):
    """The command needs a transaction."""


class UnknownStatementError(ProgrammingError, code="statement", sqlstate="26000"):
    """No prepared statement has this name."""


class TakenStatementError(ProgrammingError, code="statement", sqlstate="42P05"):
    """A prepared statement of this name exists."""


class UnknownCursorError(ProgrammingError, code="cursor", sqlstate="34000"):
    """No cursor or portal has this name."""


class TakenCursorError(ProgrammingError, code="cursor", sqlstate="42P03"):
    """A cursor or portal of this name exists."""


class UnknownColumnError(ProgrammingError, code="unknown-name", sqlstate="42703"):
    """No relation of the catalog has such a column."""


class UnknownFunctionError(ProgrammingError, code="unknown-name", sqlstate="42883"):
    """There is no such function."""


class UnknownTypeError(ProgrammingError, code="unknown-name", sqlstate="42704"):
    """PREPARE names an unknown type."""


class UnknownSettingError(ProgrammingError, code="setting", sqlstate="42704"):
    """There is no such run-time parameter."""


class FixedSettingError(ProgrammingError, code="setting", sqlstate="55P02"):
    """A run-time parameter that cannot be changed."""


class BadSettingError(ProgrammingError, code="setting", sqlstate="22023"):
    """A value that a run-time parameter cannot have."""


class ReadOnlyError(Unsupported, sqlstate="25006"):
    """A statement that would change something."""


class TextValueError(ProgrammingError, code="value", sqlstate="22P02"):
    """The text of a parameter is not a value of its type."""


class BinaryValueError(ProgrammingError, code="value", sqlstate="22P03"):
    """The bytes of a parameter are not a value of its type."""


class ChangedError(NotSupportedError, code="changed"):
    """The release was published again, and the answer no longer has the columns described."""


# What a statement got wrong, by the words of it, where the kind of error tells no more than that.
_STATES = (
    (r"must appear in the GROUP BY|cannot contain aggregates|calls cannot be nested", "42803"),
    (r"(?i)aggregate functions? (calls )?(is|are) not allowed", "42803"),
    (r"(?i)cannot contain window|window functions? (is|are) not allowed", "42P20"),
    (r"Function with name \S+ does not exist|^No function matches", "42883"),
    (r"^Cannot compare values of type|^No operator matches", "42883"),
    (r"^Type with name", "42704"),
    (r"^the type \S+ is not known here", "42704"),
    (r"^(Table with name|Referenced table)|^relation ", "42P01"),
    (r'^Referenced column|does not have a column named|^column "', "42703"),
    (r"^Ambiguous reference", "42702"),
    (r"^Duplicate alias", "42712"),
    (r"term out of range", "42P10"),
    (r"same number of result columns", "42601"),
    (r"^LIMIT/OFFSET cannot be negative", "2201W"),
    (r"^a value cannot be converted to the type", "22P02"),
    (r"^a number is too large or too small", "22003"),
)
_COARSE = ("42000", "22023", "0A000", "42703")  # of errors that are looked at more closely


def state_of(problem: Error) -> str:
    """PostgreSQL's SQLSTATE for an error.

    >>> state_of(ProgrammingError('column "a" must appear in the GROUP BY clause'))
    '42803'
    """
    if problem.sqlstate in _COARSE:
        for pattern, state in _STATES:
            if re.search(pattern, problem.reason):
                return state
    return problem.sqlstate


def error_fields(
    problem: Error, position: int | None = None, severity: str = "ERROR"
) -> dict[str, str]:
    """An error as the fields that clients know: severity, SQLSTATE, message, detail, hint, place.

    >>> from privsql.errors import DomainError
    >>> error_fields(DomainError("no such value", hint="look at the domain"), 7)["C"]
    '22023'
    """
    fields = _fields(severity, state_of(problem), problem.reason) | {
        "D": f"privsql: {problem.code}"
    }
    if problem.hint is not None:
        fields["H"] = printable(problem.hint, keep="\n\t")
    if position is not None:
        fields["P"] = str(position)
    return fields


def notice_fields(notice: Notice) -> dict[str, str]:
    """A notice as its fields; the code comes first, so that a person and a program see it."""
    return _fields("NOTICE", "00000", printable(f"{notice.text} [{notice.code}]"))


def warning_fields(text: str, sqlstate: str) -> dict[str, str]:
    """A warning, such as PostgreSQL gives for a COMMIT without a BEGIN."""
    return _fields("WARNING", sqlstate, text)


def _fields(severity: str, sqlstate: str, message: str) -> dict[str, str]:
    shown = printable(message, keep="\n\t")
    return {"S": severity, "V": severity, "C": sqlstate, "M": shown}
