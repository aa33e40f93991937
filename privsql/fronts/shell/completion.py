r"""Tab completion, from the text before the cursor and the release's manifest.

    \...                           commands, and tables after \d and \d+
    SET SHOW RESET OPTIONS (       settings, and what each can be
    '... after a comparison        values of a sensitive column: its domain is public
    FROM, JOIN                     tables
    name.                          columns of that table
    elsewhere                      columns of the tables that are named, functions, keywords

Values of public columns are not offered: they are read from rows, not from the manifest.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, takewhile

from privsql.channels import Domain
from privsql.fronts.shell import vocabulary
from privsql.fronts.shell.describe import Told
from privsql.fronts.shell.input import Word, meaningful, words
from privsql.release.names import quoted

MOST = 200  # offers at once
LARGEST = 10_000  # values of a domain that are looked through

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*", re.IGNORECASE)
_COMPARING = frozenset(
    {"=", "==", "<>", "!=", "<", ">", "<=", ">=", "in", "like", "ilike", "not", "between", "is"}
    | {"distinct", "from", "similar", "to", "glob"}
)
_BETWEEN = frozenset({",", "(", "and"})
_BEFORE_TABLES = ("from", "join")
_AFTER_TABLES = frozenset(
    {"where", "group", "having", "order", "limit", "on", "using", "join", "left", "inner"}
    | {"qualify", "union", "except", "intersect"}
)


@dataclass(frozen=True)
class Offer:
    """A completion: what takes the place of the last ``replaces`` characters."""

    text: str
    replaces: int
    kind: str  # command | setting | value | table | column | function | keyword


def offers(before: str, after: str, told: Told, commands: Sequence[str] = ()) -> list[Offer]:
    """What may stand at the cursor, the most specific first."""
    line = before.rpartition("\n")[2].lstrip()
    if line.startswith("\\"):
        return [*_commands(line, told, commands)]
    found = words(before)
    start = max((i + 1 for i, word in enumerate(found) if word.kind == "end"), default=0)
    found = found[start:]
    if found and found[-1].kind == "comment" and (found[-1].open or found[-1].text[:2] == "--"):
        return []
    said = [word for word in found if word.kind not in ("space", "comment")]
    rest = list(takewhile(lambda word: word.kind != "end", meaningful(after)))
    if said and said[-1].open:
        inside = said.pop()
        if inside.kind == "name":
            typed = inside.text[1:]
            names = [*_columns([*said, *rest], told), *told.tables]
            return _matching(typed, names, "column", len(inside.text), quote=True)
        return _in_string(said, inside, after, told)
    touched = said and said[-1].stop == len(before) and said[-1].kind == "word"
    typed = said.pop().text if touched else ""
    settings = _settings(said, typed)
    if settings is not None:
        return settings
    if said and said[-1].text == "." and said[-1].stop == len(before) - len(typed):
        columns = _columns_of([*said, *rest], told, said[-2].plain if len(said) > 1 else "")
        return _matching(typed, columns, "column")
    if _wants_table(said):
        return _matching(typed, told.tables, "table")
    if not said:
        return _matching(typed, vocabulary.BEGINNINGS, "keyword")
    return [
        *_matching(typed, _columns([*said, *rest], told), "column"),
        *_matching(typed, vocabulary.FUNCTIONS, "function"),
        *_matching(typed, vocabulary.KEYWORDS, "keyword"),
        *_matching(typed, told.tables, "table"),
    ][:MOST]


def _matching(
    typed: str,
    names: Iterable[str],
    kind: str,
    replaces: int | None = None,
    quote: bool = False,
) -> list[Offer]:
    """Names that begin with what was typed, whatever its case."""
    length = len(typed) if replaces is None else replaces
    found = _beginning(typed, names)
    return [Offer(_spelled(name, typed, kind, quote), length, kind) for name in found]


def _beginning(typed: str, names: Iterable[str]) -> list[str]:
    wanted = typed.casefold()
    return [name for name in dict.fromkeys(names) if name.casefold().startswith(wanted)][:MOST]


def _spelled(name: str, typed: str, kind: str, quote: bool) -> str:
    """Names as the release spells them, our words in the case that is being typed."""
    if kind in ("column", "table"):
        return quoted(name) if quote or not _PLAIN.fullmatch(name) else name
    if kind == "function":
        return (name.upper() if typed[:1].isupper() else name) + "("
    if kind == "keyword":
        return name.lower() if typed[:1].islower() else name
    return name


# -- commands and settings -----------------------------------------------------------------


def _commands(line: str, told: Told, commands: Sequence[str]) -> Iterator[Offer]:
    command, space, rest = line.partition(" ")
    if not space:
        yield from _matching(line, commands, "command")
    elif command in ("\\d", "\\d+"):
        yield from _matching(rest.lstrip(), told.tables, "table")
    elif command == "\\x":
        yield from _matching(rest.lstrip(), ("on", "off", "auto"), "setting")


def _settings(said: Sequence[Word], typed: str) -> list[Offer] | None:
    """Settings and their values, where one is being set; None elsewhere."""
    plain = [word.plain for word in said]
    if "options" in plain and plain[:1] == ["select"]:
        at = len(plain) - plain[::-1].index("options")
        if plain[at : at + 1] == ["("] and ")" not in plain[at:]:
            return _assigned(plain[at + 1 :], typed, short=True)
    if plain and plain[0] in ("set", "show", "reset"):
        return _assigned(plain[1:], typed, short=False)
    return None


def _assigned(plain: Sequence[str], typed: str, short: bool) -> list[Offer]:
    """After ``name =`` the values of a setting, else the names."""
    text = "".join(plain).rpartition(",")[2]
    name, equals, _ = text.partition("=")
    if equals or text.endswith("to"):
        name = name.removesuffix("to")
        full = name if name.startswith("privsql.") else f"privsql.{name}"
        return _matching(typed, vocabulary.CHOICES.get(full, ()), "setting")
    if short:
        return _matching(typed, vocabulary.SHORT, "setting")
    # The prefix "privsql." is part of the name, and two words for the reader of words.
    return _matching(text + typed, vocabulary.SETTINGS, "setting")


# -- values --------------------------------------------------------------------------------


def _in_string(said: Sequence[Word], inside: Word, after: str, told: Told) -> list[Offer]:
    """Values of the sensitive column that the string is compared with."""
    if inside.text[0] != "'":
        return []
    typed = inside.text[1:].replace("''", "'")
    plain = [word.plain for word in said]
    if plain[:2] == ["set", "privsql"] or "options" in plain:
        name = "".join(plain).rpartition(",")[2]
        values = vocabulary.CHOICES["privsql.estimator"] if "estimator" in name else ()
        choices: Sequence[str] = [each.strip("'") for each in values]
    else:
        column = _compared(said)
        sensitive = None if column is None else told.catalog.column(column)
        known = told.catalog.sensitive.get(sensitive or "")
        choices = () if known is None else domain_values(known.domain)
    close = "" if after.startswith("'") else "'"
    return [
        Offer("'" + value.replace("'", "''") + close, len(inside.text), "value")
        for value in _beginning(typed, choices)
    ]


def _compared(said: Sequence[Word]) -> str | None:
    """The column on the other side of the comparison that ends here."""
    comparing = False
    for word in reversed(said):
        if word.plain in _COMPARING:
            comparing = True
        elif word.kind in ("word", "name") and word.plain not in _BETWEEN:
            return word.plain if comparing else None
        elif word.kind not in ("string", "number") and word.plain not in _BETWEEN:
            return None
    return None


@lru_cache(maxsize=64)
def domain_values(domain: Domain) -> tuple[str, ...]:
    """The values of a public domain as text; none where there are too many to look through.

    >>> from privsql.channels import Grid
    >>> domain_values(Grid.of(0, 3))
    ('0', '1', '2', '3')
    """
    if domain.points > LARGEST:
        return ()
    values = (str(domain.value_at(i)) for i in range(domain.points))
    return tuple(value for value in values if value.isprintable())


# -- tables and columns --------------------------------------------------------------------


def _wants_table(said: Sequence[Word]) -> bool:
    """Whether a table's name is to come: after FROM, JOIN, and the commas of FROM."""
    for i, word in enumerate(reversed(said)):
        if word.plain in _BEFORE_TABLES and word.kind == "word":
            # IS DISTINCT FROM, EXTRACT(year FROM ...) are no FROM of tables.
            earlier = [each.plain for each in said[: len(said) - 1 - i]]
            extracting = "extract" in earlier[-3:] or earlier[-1:] == ["distinct"]
            return not extracting and (i == 0 or said[-1].text == ",")
        if word.plain in _AFTER_TABLES or word.text in "()":
            return False
    return False


def _named(said: Sequence[Word], told: Told) -> dict[str, str]:
    """Tables that the statement names so far, by name and by alias."""
    known = {name.casefold(): name for name in told.tables}
    found: dict[str, str] = {}
    for i, (before, word) in enumerate(pairwise(said), 2):
        if word.plain in known and (before.plain in _BEFORE_TABLES or before.text == ","):
            found[word.plain] = known[word.plain]
            rest = [each for each in said[i : i + 2] if each.plain != "as"]
            if rest and rest[0].kind in ("word", "name") and rest[0].plain not in _AFTER_TABLES:
                found[rest[0].plain] = known[word.plain]
    return found


def _columns(said: Sequence[Word], told: Told) -> list[str]:
    """Columns of the tables that are named, of all where none is."""
    tables = dict.fromkeys(_named(said, told).values()) or dict.fromkeys(told.tables)
    return [column for name in tables for column, _ in told.tables[name]]


def _columns_of(said: Sequence[Word], told: Told, qualifier: str) -> list[str]:
    """Columns of the table or alias before the point."""
    known = {name.casefold(): name for name in told.tables} | _named(said, told)
    table = known.get(qualifier)
    return [] if table is None else [name for name, _ in told.tables[table]]
