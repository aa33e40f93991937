"""Formats: each kind of file that privsql writes has a number, and a reader knows one of them.

    release   ``format`` in the manifest            key       ``version:`` in the file
    ledger    ``format`` in a line, 1 without it    history   SQLite's ``user_version``
    users     ``version`` in the document

A number changes only where an earlier reader would misread the file.  A file of an earlier format
is upgraded by ``privsql convert`` (``fronts.cli.conversion``), one of a later format needs a
later version of privsql; neither is a reason to publish again, which draws anew.
"""

from __future__ import annotations

import shlex
from pathlib import Path

from privsql.errors import Error, IntegrityError

# Of what a file says about who made it, as much as fits a message.
LONGEST_NAME = 60


def check_format(
    found: int,
    known: int,
    what: str,
    *,
    where: Path | str = "FILE",
    software: object = None,
    error: type[Error] = IntegrityError,
) -> None:
    """Refuse a file of another format than the one that is known, and say how to go on.

    ``where`` is the file, or a word for it where no path should be told; ``software`` is the
    version that made it, if the file says so.

    >>> check_format(1, 1, "the key")
    >>> check_format(1, 2, "the key", where="clinic.key")
    Traceback (most recent call last):
        ...
    privsql.errors.IntegrityError: ERROR XX001 [integrity]: the key has format 1, this version of
    privsql reads format 2
    HINT: upgrade it, which draws nothing anew: privsql convert clinic.key
    """
    if found == known:
        return
    hint = f"upgrade it, which draws nothing anew: privsql convert {shlex.quote(str(where))}"
    if found > known:
        named = software if isinstance(software, str) and software.isprintable() else ""
        maker = named[:LONGEST_NAME] or "a later version of privsql"
        hint = f"it was made by {maker}; use that version, or one after it"
    raise error(
        f"{what} has format {found}, this version of privsql reads format {known}", hint=hint
    )
