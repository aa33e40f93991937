"""Commands: statements of PostgreSQL's dialect as the server handles them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from privsql.errors import NotSupportedError, Place, ProgrammingError


class MixedTables(NotSupportedError, code="mixed-tables"):  # noqa: N818 - says what is the matter
    """A statement that reads published tables and the catalog at once."""


class UnknownRelation(ProgrammingError, code="unknown-name", sqlstate="42P01"):  # noqa: N818
    """A table does not exist, or the user may not query it."""


class NotTranslated(NotSupportedError, code="dialect"):  # noqa: N818 - says what is the matter
    """A construct of PostgreSQL's dialect that is not supported."""


@dataclass(frozen=True)
class Command:
    """One statement.

    ``kind`` is what is to be done with it:

        query        published tables: ``text`` is for a session
        catalog      pg_catalog, information_schema or their functions: ``text`` is for a Catalog
        constant     no table at all: ``text`` is for a Catalog too
        set reset show                         ``name``, ``value``, ``local``
        begin commit rollback savepoint release    ``name`` is a savepoint's
        declare fetch move close               ``name`` is the cursor's; ``inner`` its query;
                                               ``direction`` and ``count`` (None: all) of a fetch
        prepare execute deallocate             ``name``; ``inner`` or ``arguments``
        copy                                   ``inner``, ``options``
        discard listen empty other             ``name`` is the word; "other" is not served

    ``origins`` are told where a column is one of a table's; ``*`` stands for all of its columns.
    ``text`` is DuckDB's dialect with ``$1`` kept.  ``names`` are the columns as PostgreSQL names
    them, or None where only the tables know (a star).
    """

    kind: str
    text: str = ""
    names: tuple[str, ...] | None = None
    tables: tuple[str, ...] = ()
    parameters: int = 0  # the highest $n
    original: str = ""  # the statement as it was written
    start: int = 0  # where it begins in all that was sent
    tag: str = ""  # what a server says when it is done, without the number of rows
    name: str = ""
    value: str | None = None
    local: bool = False
    inner: Command | None = None
    arguments: tuple[str, ...] = ()
    direction: str = "forward"  # or backward, absolute, relative
    count: int | None = 1
    hold: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[tuple[str, str, bool], ...] = ()  # what set_config() sets: name, value, local
    origins: tuple[tuple[str, str] | None, ...] = ()  # table and column that each column is of
    clocks: tuple[str, ...] = ()  # DuckDB's types of the times that are bound after the parameters

    @property
    def returns_rows(self) -> bool:
        """Whether there are rows to describe."""
        return self.kind in ("query", "catalog", "constant", "show", "fetch")

    def placed(self, place: Place | None) -> int | None:
        """Where in ``original`` a place of ``text`` is, counted from 0.

        The two differ in spelling, so a word is looked for: the same one, as many-eth of its
        kind.  None where there is no such word.

        >>> made = Command("query", text='SELECT COUNT(*) FROM t WHERE agee > 3',
        ...     original="select count(*) from public.t where agee>3")
        >>> made.original[made.placed(Place(made.text, 29, 33)):]
        'agee>3'
        """
        if place is None or place.text != self.text:
            return None
        word = self.text[place.start : place.stop].split("(")[0].strip().strip('"')
        match = re.search(r"[^\W\d]\w*", word)
        if match is None:
            return None
        pattern = re.compile(rf"(?<!\w){re.escape(match[0])}(?!\w)", re.IGNORECASE)
        before = sum(1 for _ in pattern.finditer(self.text, 0, place.start))
        found = [each.start() for each in pattern.finditer(self.original)]
        return found[min(before, len(found) - 1)] if found else None
