r"""TOML reading that reports all mistakes at once, with their lines.

tomllib gives plain values and forgets where they stood.  ``lines_of`` finds the lines
again, a ``Report`` collects what is wrong, and a ``Section`` is one table of the text that
is asked for its keys one by one: a wrong one is noted, and reading goes on.

>>> report, top = opened("[release]\ntable = 5\ntabel = 'x'\n", "spec.toml")
>>> release = top.table("release")
>>> release.text("table")
>>> release.unknown(["table", "source"])
>>> report.raise_if_any()
Traceback (most recent call last):
privsql.release.reading.SpecError: ERROR 42601 [spec]: 2 mistakes in spec.toml
spec.toml:2 [release] table: must be text, not a number
spec.toml:3 [release] tabel: unknown key (did you mean "table"?)
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, time
from difflib import get_close_matches
from typing import TypeVar

from privsql.errors import Error, ProgrammingError, how_many

T = TypeVar("T")
Path = tuple[str, ...]

# Longer lists of mistakes are cut in the text; ``SpecError.mistakes`` has them all.
SHOWN = 100

BARE = re.compile(r"[A-Za-z0-9_-]+")
DOTTED = re.compile(r"\s*[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\s*")
TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'"
    r"|\#[^\n]*"
    r"|[\[\]{}=\n]"
    r"|[^\[\]{}=\n\"'\#]+",
    re.DOTALL,
)


# What no spec needs, and what a parser would work on for hours.
MOST_CHARACTERS = 1 << 24
MOST_PARTS = 32


@dataclass(frozen=True)
class Mistake:
    """One mistake: where it stands, what is wrong, what to write instead."""

    place: str
    line: int | None
    what: str
    suggestion: str | None = None

    def shown(self, name: str) -> str:
        """Print it as a line.

        >>> Mistake("[release] unit", 4, "no such column", 'did you mean "id"?').shown("a.toml")
        'a.toml:4 [release] unit: no such column (did you mean "id"?)'
        """
        where = name if self.line is None else f"{name}:{self.line}"
        where += f" {self.place}" if self.place else ""
        return f"{where}: {self.what}" + (f" ({self.suggestion})" if self.suggestion else "")


class SpecError(ProgrammingError):
    """The spec is wrong; ``mistakes`` lists everything that is, in the order of its lines."""

    code = "spec"
    sqlstate = "42601"

    def __init__(
        self, mistakes: Iterable[Mistake], *, name: str = "spec.toml", said: str | None = None
    ) -> None:
        self.mistakes = tuple(sorted(mistakes, key=lambda each: each.line or 10**9))
        self.name = name
        count = len(self.mistakes)
        lines = [said or f"{how_many(count, 'mistake')} in {name}"]
        lines += [mistake.shown(name) for mistake in self.mistakes[:SHOWN]]
        if count > SHOWN:
            lines.append(f"and {count - SHOWN} more")
        super().__init__("\n".join(lines))


def quoted(value: object) -> str:
    r"""Show a value that the publisher wrote, cut short and on one line.

    >>> print(quoted("a\nb"), quoted(True), quoted(0.5), quoted({}), quoted("x" * 50))
    "a\nb" true 0.5 a table "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    if isinstance(value, str):
        return json.dumps(value if len(value) <= 45 else value[:42] + "...", ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**18):
        return str(value)
    if isinstance(value, date | time):
        return value.isoformat()
    return a_kind(value)


def listed(values: Iterable[object], limit: int = 8) -> str:
    """Show several values, the first of them if there are many.

    >>> listed(range(12))
    '0, 1, 2, 3, 4, 5, 6, 7 and 4 more'
    """
    given = list(values)
    text = ", ".join(quoted(value) for value in given[:limit])
    return text + (f" and {len(given) - limit} more" if len(given) > limit else "")


def a_kind(value: object) -> str:
    """Name the kind of a TOML value."""
    kinds: tuple[tuple[type, str], ...] = (
        (bool, "true or false"),
        (str, "text"),
        (int, "a number"),
        (float, "a number"),
        (list, "a list"),
        (dict, "a table"),
        (date, "a date"),
    )
    return next((kind for python, kind in kinds if isinstance(value, python)), "a time")


def place_of(path: Path, key: str | None = None) -> str:
    """Name a table, or a key of it, as TOML would write it.

    >>> place_of(("columns", "blood type"), "retention")
    '[columns."blood type"] retention'
    """
    table = f"[{'.'.join(map(_key_text, path))}]" if path else ""
    return f"{table} {'' if key is None else _key_text(key)}".strip()


def _key_text(name: str) -> str:
    return name if BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """Ask whether the closest of the known words was meant.

    >>> did_you_mean("Retension", ["role", "retention"])
    'did you mean "retention"?'
    """
    by_lower = {each.lower(): each for each in known}
    close = get_close_matches(word.lower(), by_lower, n=1)
    return f"did you mean {quoted(by_lower[close[0]])}?" if close else None


def folded(name: str) -> str:
    """Bring names that DuckDB takes for the same to one form: it ignores the case of ASCII."""
    return "".join(c.lower() if c.isascii() else c for c in name)


def lines_of(text: str) -> dict[Path, int]:
    r"""Find the line on which each table and each key of a valid TOML text begins.

    Keys inside inline tables are not found: their table's line has to do.

    >>> lines_of("[a]\nx = '''\ny = 1\n'''\n[a.'b c']\nd.e = [\n1,\n]\n")
    {('a',): 1, ('a', 'x'): 2, ('a', 'b c'): 5, ('a', 'b c', 'd'): 6, ('a', 'b c', 'd', 'e'): 6}
    """
    found: dict[Path, int] = {}
    table: Path = ()
    head, keyed, depth, line, start = "", False, 0, 1, 1

    def note(base: Path, path: Path) -> Path:
        for stop in range(1, len(path) + 1):
            found.setdefault(base + path[:stop], start)
        return base + path

    for match in TOKEN.finditer(text + "\n"):
        part = match[0]
        if not head.strip():
            start = line
        depth += (part in ("[", "{")) - (part in ("]", "}"))
        if part == "\n" and depth <= 0:
            if head.lstrip().startswith("["):
                table = note((), _path(head))
            head, keyed, depth = "", False, 0
        elif part == "=" and depth == 0 and not keyed:
            note(table, _path(f"{head}= 0" if not DOTTED.fullmatch(head) else head))
            keyed = True
        elif not keyed and not part.startswith("#"):
            head += part
        line += part.count("\n")
    return found


def _long_key(text: str) -> int | None:
    r"""The line of a key with too many parts, found without parsing.

    >>> _long_key("a = 1\nb" + ".c" * 40 + " = 1"), _long_key("a = [1.5, 2.5, '...']")
    (2, None)
    """
    dots, line = 0, 1
    for match in TOKEN.finditer(text):
        part = match[0]
        if part in ("[", "]", "{", "}", "=", "\n"):
            dots = 0
        elif part[0] not in "\"'#":
            first, *others = part.split(",")
            dots = max(dots + first.count("."), *(each.count(".") for each in others), 0)
            if dots >= MOST_PARTS:
                return line
            if others:
                dots = others[-1].count(".")
        line += part.count("\n")
    return None


def _path(source: str) -> Path:
    """The names in a header, or in a statement that sets a key."""
    if DOTTED.fullmatch(source):
        return tuple(source.strip().split("."))
    path: list[str] = []
    try:
        inside: object = tomllib.loads(source)
    except (ValueError, RecursionError):  # not reached for valid TOML
        return ()
    while isinstance(inside, dict | list) and inside:
        if isinstance(inside, list):
            inside = inside[0]
        else:
            name, inside = next(iter(inside.items()))
            path.append(name)
    return tuple(path)


@dataclass
class Report:
    """The mistakes found so far in one text."""

    name: str
    lines: Mapping[Path, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def line(self, path: Path) -> int | None:
        """The line of a table or key, or of the nearest thing around it."""
        for stop in range(len(path), 0, -1):
            if path[:stop] in self.lines:
                return self.lines[path[:stop]]
        return None

    def add(self, path: Path, key: str | None, what: str, suggestion: str | None = None) -> None:
        """Note a mistake in a table, or in a key of it."""
        whole = path if key is None else (*path, key)
        self.mistakes.append(Mistake(place_of(path, key), self.line(whole), what, suggestion))

    def raise_if_any(self) -> None:
        """Raise all mistakes as one error."""
        if self.mistakes:
            raise SpecError(self.mistakes, name=self.name)


@dataclass(frozen=True)
class Section:
    """One table of the text; a key that is wrong is noted and then counts as missing."""

    report: Report
    path: Path
    data: Mapping[str, object]

    def __contains__(self, key: str) -> bool:
        """Whether the key is there, right or wrong."""
        return key in self.data

    def wrong(self, key: str | None, what: str, suggestion: str | None = None) -> None:
        """Note a mistake in the section, or in a key of it."""
        self.report.add(self.path, key, what, suggestion)

    def attempt(self, key: str, build: Callable[..., T], *given: object) -> T | None:
        """Build something of ours from what the key gives; what it refuses is a mistake."""
        try:
            return build(*given)
        except Error as error:
            self.wrong(key, error.reason.removeprefix(f"{key} "), error.hint)
            return None

    def unknown(self, known: Sequence[str], elsewhere: Mapping[str, str] | None = None) -> None:
        """Note each key that is not known; ``elsewhere`` says in which table it would be."""
        for key in self.data:
            if key not in known:
                home = (elsewhere or {}).get(key)
                hint = f"it belongs to {home}" if home else did_you_mean(key, known)
                kind = "table" if isinstance(self.data[key], dict) else "key"
                self.wrong(key, f"unknown {kind}", hint or f"known here: {listed(known)}")

    def table(self, key: str, example: str | None = None) -> Section | None:
        """The table under a key, or None where there is none."""
        value = self.data.get(key, {})
        if isinstance(value, dict):
            return Section(self.report, (*self.path, key), value) if key in self else None
        self.wrong(key, f"must be a table, not {a_kind(value)}", example)
        return None

    def text(self, key: str) -> str | None:
        """Text that is not empty."""
        if key not in self:
            return None
        value = self.data[key]
        if not isinstance(value, str):
            self.wrong(key, f"must be text, not {a_kind(value)}")
        elif not value.strip():
            self.wrong(key, "must not be empty")
        elif "\0" in value:
            self.wrong(key, "must not hold the character NUL")
        else:
            return value
        return None

    def choice(self, key: str, options: Sequence[str], default: str) -> str:
        """One of several words."""
        value = self.data.get(key, default)
        if isinstance(value, str) and (value in options or key not in self):
            return value
        near = did_you_mean(value, options) if isinstance(value, str) else None
        self.wrong(key, f"must be one of {listed(options)}, not {quoted(value)}", near)
        return default

    def flag(self, key: str, default: bool = False) -> bool:
        """True or false."""
        value = self.data.get(key, default)
        if isinstance(value, bool):
            return value
        meant = str(value).lower()
        near = f"write it as {meant}, without quotes" if meant in ("true", "false") else None
        self.wrong(key, f"must be true or false, not {quoted(value)}", near)
        return default

    def whole(self, key: str, least: int, default: int) -> int:
        """A whole number of at least ``least``."""
        value = self.data.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63:
            return value
        self.wrong(key, f"must be a whole number of at least {least}, not {quoted(value)}")
        return default

    def number(self, key: str, fits: Callable[[float], bool], rule: str) -> float | None:
        """A finite number that fits; NaN fits nothing."""
        if key not in self:
            return None
        value = self.data[key]
        number = as_number(value)
        if number is not None and fits(number):
            return number
        self.wrong(key, f"{rule}, not {quoted(value)}")
        return None

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts, none of them empty."""
        value = self.data.get(key, [])
        given = value if isinstance(value, list) else [None]
        found = tuple(each for each in given if isinstance(each, str) and each.strip())
        if len(found) < len(given):
            self.wrong(key, "must be a list of texts that are not empty")
        return found

    def share(self, key: str) -> float | None:
        """A number above 0 and below 1."""
        return self.number(key, lambda x: 0 < x < 1, "must lie above 0 and below 1")

    def each(
        self, key: str, size: int, labels: Sequence[str] | None, read: Callable[[object], T]
    ) -> tuple[T, ...] | None:
        """One entry for each of ``size`` things: a list in order, or a table by label."""
        given = self.data[key]
        found: list[T | None] = []
        if isinstance(given, list):
            if len(given) != size:
                self.wrong(key, f"has {len(given)} entries for {size} values")
                return None
            found = [self.attempt(key, read, value) for value in given]
        elif not isinstance(given, dict):
            self.wrong(key, f"must be a list in domain order or a table, not {a_kind(given)}")
        elif labels is None or len(set(labels)) < size:
            self.wrong(key, "cannot be a table by value here", "write a list in domain order")
        else:
            table = Section(self.report, (*self.path, key), given)
            table.unknown(labels)
            lacking = [label for label in labels if label not in given]
            if lacking:
                self.wrong(key, f"lacks {listed(lacking)}", "each value needs an entry")
                return None
            found = [table.attempt(label, read, given[label]) for label in labels]
        whole = tuple(entry for entry in found if entry is not None)
        return whole if len(whole) == size else None


def as_number(value: object) -> float | None:
    """A finite float, or None for what is no number (true is none)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < float("inf") else None


def opened(text: str, name: str) -> tuple[Report, Section]:
    """Parse the text; raises at once where it is no TOML."""
    if len(text) > MOST_CHARACTERS:
        what = f"has more than {MOST_CHARACTERS:,} characters"
        hint = "a spec is a page of text; was another file named?"
        raise SpecError([Mistake("", None, what, hint)], name=name)
    line = _long_key(text)
    if line is not None:
        what = f"a key has more than {MOST_PARTS} parts"
        raise SpecError([Mistake("", line, what, "the longest has four")], name=name)
    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise SpecError([Mistake("", None, "lists or tables nest too deeply")], name=name) from None
    except ValueError as error:
        # "Invalid value (at line 3, column 9)" or "... (at end of document)"
        message = str(error)
        found = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)", message)
        line = int(found[1]) if found and found[1] else text.count("\n") + 1 if found else None
        what = message[: found.start()] if found else "a number has too many digits"
        hint = "this is not valid TOML; text needs quotes, and a key may occur only once per table"
        raise SpecError([Mistake("", line, what, hint)], name=name) from None
    report = Report(name, lines_of(text))
    return report, Section(report, (), data)
