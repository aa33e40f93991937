"""DuckDB's errors as errors of privsql.

What DuckDB says at run time quotes the values it stumbled over (``Could not convert string
'...'``), and rows of a release are not to be told by way of errors.  So its text passes
only where it is about the statement (parser, binder and catalog, first line), or is one of
our own kernels', which quote nothing: numbers that a kernel cannot use are the statement's
mistake, a call that it refuses is ours.  Everything else gets the reason of its kind.
"""

from __future__ import annotations

import duckdb

from privsql.errors import (
    DataError,
    Error,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    too_deep,
    with_article,
)


class CanceledError(OperationalError, code="canceled", sqlstate="57014"):
    """The statement was canceled."""


class TimedOutError(OperationalError, code="timeout", sqlstate="57014"):
    """The statement exceeded its time limit."""


class OutOfMemoryError(OperationalError, code="memory", sqlstate="53200"):
    """The statement exceeded its memory limit."""


# What our own kernels raise (``udfs.errors``), as DuckDB quotes it.
KERNEL, INPUT = "KernelError: ", "InputError: "

# About the statement and nothing else; the first line says it, the rest guesses at names.
# What DuckDB says of a scalar sub-query with several rows.
SEVERAL = "More than one row returned by a subquery"

_TOLD = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)

# In this order: the first that fits.
_KINDS: tuple[tuple[type[Exception], type[Error], str, str], ...] = (
    (
        duckdb.OutOfMemoryException,
        OutOfMemoryError,
        "the statement needs more memory than it may use",
        "group by fewer or coarser values, or raise the memory limit",
    ),
    (
        MemoryError,
        OutOfMemoryError,
        "the statement needs more memory than there is",
        "group by fewer or coarser values",
    ),
    (
        duckdb.ConversionException,
        DataError,
        "a value cannot be converted to the type that the statement asks for",
        "use TRY_CAST, which gives NULL where a value does not fit",
    ),
    (
        duckdb.OutOfRangeException,
        DataError,
        "a number is too large or too small for its type, or for a function",
        "cast it to DOUBLE or HUGEINT first",
    ),
    (
        duckdb.PermissionException,
        ProgrammingError,
        "files and other databases cannot be reached from a statement",
        "give public tables to the connection when you open it",
    ),
    (
        duckdb.NotImplementedException,
        NotSupportedError,
        "the statement or one of its parameters is of a kind that DuckDB cannot take",
        "use numbers, strings, dates and lists of them",
    ),
    (
        duckdb.InvalidInputException,
        DataError,
        "a function was given a value that it does not accept",
        "leave such rows out with a condition, or use the function's TRY form",
    ),
    (
        duckdb.IOException,
        OperationalError,
        "the file of the release could not be read",
        "was it moved or damaged while it was open? open it again",
    ),
    (
        duckdb.InternalError,
        InternalError,
        "DuckDB failed to run the statement",
        "open the release again, and report the statement as a bug",
    ),
    (
        duckdb.DataError,
        DataError,
        "the statement failed on a value that it cannot take",
        "leave such rows out with a condition",
    ),
    (
        duckdb.Error,
        ProgrammingError,
        "DuckDB cannot run the statement as it stands",
        "leave parts of it out to see which one is the cause",
    ),
)


def translated(problem: Exception) -> Error:
    r"""The error of privsql for one of DuckDB's; raise it ``from None``.

    >>> print(translated(duckdb.ConversionException("Could not convert string 'Ann' to INT32")))
    ERROR 22023 [data]: a value cannot be converted to the type that the statement asks for
    HINT: use TRY_CAST, which gives NULL where a value does not fit
    >>> print(translated(duckdb.BinderException('Binder Error: no column "x"\nDid you mean y?')))
    ERROR 42000 [programming]: no column "x"
    """
    if isinstance(problem, Error):
        return problem
    text = str(problem)
    if isinstance(problem, duckdb.InvalidInputException) and INPUT in text:
        return DataError(text.split(INPUT, 1)[1].splitlines()[0])
    if isinstance(problem, duckdb.InvalidInputException) and SEVERAL in text:
        return DataError(
            "a sub-query that stands for one value has several rows",
            hint="let it give one row: aggregate, or add ORDER BY ... LIMIT 1",
        )
    if isinstance(problem, duckdb.InvalidInputException) and KERNEL in text:
        # No statement of a user's makes such a call: we did.
        return InternalError(
            f"the reconstruction failed: {text.split(KERNEL, 1)[1].splitlines()[0]}",
            hint="please report the statement as a bug",
        )
    if isinstance(problem, _TOLD) and "Max expression depth" in text:
        return too_deep()
    if isinstance(problem, _TOLD):
        return ProgrammingError(text.splitlines()[0].split(" Error: ", 1)[-1])
    for kind, ours, reason, hint in _KINDS:
        if isinstance(problem, kind):
            return ours(reason, hint=hint)
    if isinstance(problem, TypeError | ValueError | OverflowError):
        # What Python objects to while texts, parameters and tables are handed over.
        return ProgrammingError("the statement, a parameter or a table cannot be understood")
    return InternalError(
        f"running the statement failed with {with_article(type(problem).__name__)}",
        hint="please report the statement as a bug",
    )
