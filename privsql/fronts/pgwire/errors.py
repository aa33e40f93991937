"""Errors of the protocol, and every error as the fields of an ErrorResponse.

SQLSTATEs are PostgreSQL's own: drivers decide by them whether to reconnect, to retry or to ask
for a password.  The stable code of our errors is the DETAIL, because programs that cannot tell a
personal group from a mistake by SQLSTATE can by that.
"""

from __future__ import annotations

from privsql.errors import Error, Notice, NotSupportedError, OperationalError, ProgrammingError


class ProtocolError(OperationalError):
    """A message that PostgreSQL's protocol does not have; the connection ends."""

    code = "protocol"
    sqlstate = "08P01"


class BindError(ProgrammingError):
    """Values or formats that do not fit a statement; the connection goes on."""

    code = "bind"
    sqlstate = "08P01"


class CountError(BindError):
    """EXECUTE with too few or too many values."""

    sqlstate = "42601"


class UnknownParameterError(BindError):
    """A parameter in a statement that is not prepared, so that nobody can give its value."""

    sqlstate = "42P02"


class RefusedError(OperationalError):
    """The way of logging in is refused."""

    code = "authorization"
    sqlstate = "28000"


class PasswordError(RefusedError):
    """The password is wrong, or the user does not exist: the message is the same."""

    code = "password"
    sqlstate = "28P01"


class UnknownDatabaseError(OperationalError):
    """There is no such database, or not for this user."""

    code = "database"
    sqlstate = "3D000"


class BusyError(OperationalError):
    """There are as many connections as there may be."""

    code = "connections"
    sqlstate = "53300"


class ShutdownError(OperationalError):
    """The server stops."""

    code = "shutdown"
    sqlstate = "57P01"


class IdleError(OperationalError):
    """The connection was idle for too long."""

    code = "idle"
    sqlstate = "57P05"


class AbortedError(ProgrammingError):
    """A transaction that has failed answers nothing more."""

    code = "transaction"
    sqlstate = "25P02"


class NoTransactionError(ProgrammingError):
    """The command needs a transaction."""

    code = "transaction"
    sqlstate = "25P01"


class UnknownStatementError(ProgrammingError):
    """No prepared statement has this name."""

    code = "statement"
    sqlstate = "26000"


class TakenStatementError(ProgrammingError):
    """A prepared statement of this name exists."""

    code = "statement"
    sqlstate = "42P05"


class UnknownCursorError(ProgrammingError):
    """No cursor or portal has this name."""

    code = "cursor"
    sqlstate = "34000"


class TakenCursorError(ProgrammingError):
    """A cursor or portal of this name exists."""

    code = "cursor"
    sqlstate = "42P03"


class UnknownColumnError(ProgrammingError):
    """No relation of the catalog has such a column."""

    code = "unknown-name"
    sqlstate = "42703"


class UnknownFunctionError(ProgrammingError):
    """There is no such function."""

    code = "unknown-name"
    sqlstate = "42883"


class UnknownTypeError(ProgrammingError):
    """PREPARE names an unknown type."""

    code = "unknown-name"
    sqlstate = "42704"


class UnknownSettingError(ProgrammingError):
    """There is no such run-time parameter."""

    code = "setting"
    sqlstate = "42704"


class FixedSettingError(ProgrammingError):
    """A run-time parameter that cannot be changed."""

    code = "setting"
    sqlstate = "55P02"


class BadSettingError(ProgrammingError):
    """A value that a run-time parameter cannot have."""

    code = "setting"
    sqlstate = "22023"


class TextValueError(ProgrammingError):
    """The text of a parameter is not a value of its type."""

    code = "value"
    sqlstate = "22P02"


class BinaryValueError(ProgrammingError):
    """The bytes of a parameter are not a value of its type."""

    code = "value"
    sqlstate = "22P03"


class ChangedError(NotSupportedError):
    """The release was published again, and the answer no longer has the columns described."""

    code = "changed"


def error_fields(
    problem: Error, position: int | None = None, severity: str = "ERROR"
) -> dict[str, str]:
    """An error as the fields that clients know: severity, SQLSTATE, message, detail, hint, place.

    >>> from privsql.errors import DomainError
    >>> error_fields(DomainError("no such value", hint="look at the domain"), 7)["C"]
    '22023'
    """
    fields = _fields(severity, problem.sqlstate, problem.reason) | {"D": f"privsql: {problem.code}"}
    if problem.hint is not None:
        fields["H"] = problem.hint
    if position is not None:
        fields["P"] = str(position)
    return fields


def notice_fields(notice: Notice) -> dict[str, str]:
    """A notice as its fields; the code comes first, so that a person and a program see it."""
    return _fields("NOTICE", "00000", f"{notice.text} [{notice.code}]")


def warning_fields(text: str, sqlstate: str) -> dict[str, str]:
    """A warning, such as PostgreSQL gives for a COMMIT without a BEGIN."""
    return _fields("WARNING", sqlstate, text)


def _fields(severity: str, sqlstate: str, message: str) -> dict[str, str]:
    return {"S": severity, "V": severity, "C": sqlstate, "M": message}
