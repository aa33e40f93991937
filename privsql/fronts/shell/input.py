"""Tokens of typed text, and the ends of its statements.

privsql's own parser wants statements that are whole.  While one is typed it is not, and Enter,
Tab and colours still have to know whether the cursor is in a string or a comment.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

# What a word ends with when it is not closed decides whether a statement can be.
_WORDS = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<comment>--[^\n]*|/\*.*?(?P<ended>\*/|\Z))
  | (?P<string>[eE]'(?:[^'\\]|\\.|'')*(?P<closed_e>'?)
             | '(?:[^']|'')*(?P<closed>'?)
             | \$(?P<tag>[A-Za-z_]*)\$.*?(?P<closed_d>\$(?P=tag)\$|\Z))
  | (?P<name>"(?:[^"]|"")*(?P<closed_n>"?))
  | (?P<number>\d[\w.]*)
  | (?P<word>\w+)
  | (?P<end>;)
  | (?P<sign><=|>=|<>|!=|==|\|\||::|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_CLOSINGS = ("ended", "closed_e", "closed", "closed_d", "closed_n")
LEAVING = ("quit", "exit")


@dataclass(frozen=True)
class Word:
    """A word of a text: ``text[start:stop]``."""

    kind: str  # space | comment | string | name | number | word | end | sign
    text: str
    start: int
    open: bool = False  # a string, a quoted name or a comment that does not end

    @property
    def stop(self) -> int:
        """Where the next word begins."""
        return self.start + len(self.text)

    @property
    def plain(self) -> str:
        """How it is compared with others: unquoted, and without case.

        >>> [word.plain for word in words('"A ""b" FROM')][::2]
        ['a "b', 'from']
        """
        text = self.text
        if self.kind == "name":
            text = text[1 : None if self.open else -1].replace('""', '"')
        return text.casefold()


def words(text: str) -> list[Word]:
    """All words of a text, blanks and comments among them.

    >>> [(word.kind, word.open) for word in words("a = 'b")][::2]
    [('word', False), ('sign', False), ('string', True)]
    """
    found = []
    for match in _WORDS.finditer(text):
        kind = str(match.lastgroup)
        if kind in _CLOSINGS or kind == "tag":
            kind = next(each for each in ("comment", "string", "name") if match[each] is not None)
        found.append(Word(kind, match[0], match.start(), "" in map(match.group, _CLOSINGS)))
    return found


def meaningful(text: str) -> list[Word]:
    """The words without blanks and comments."""
    return [word for word in words(text) if word.kind not in ("space", "comment")]


def split(text: str) -> tuple[list[str], str]:
    r"""Statements that have ended, each without its semicolon, and what comes after them.

    >>> split("SELECT ';' ; -- a;\nSELECT 2; SEL")
    (["SELECT ';'", 'SELECT 2'], 'SEL')
    """
    ended: list[str] = []
    first = last = None
    for word in meaningful(text):
        if word.kind == "end":
            if first is not None and last is not None:
                ended.append(text[first : last.stop])
            first = last = None
        else:
            first, last = word.start if first is None else first, word
    return ended, "" if first is None else text[first:].rstrip()


def command_of(text: str) -> tuple[str, str] | None:
    r"""A backslash command on the last line, and the statement that was begun before it.

    >>> command_of("SELECT 1\n  \\e")
    ('SELECT 1\n', '\\e')
    >>> command_of("SELECT '\n\\e")
    """
    at = text.rfind("\n", 0, len(text.rstrip())) + 1
    line = text[at:].strip()
    if not line.startswith("\\"):
        return None
    before = words(text[:at])
    if before and before[-1].open:  # the line is part of a string
        return None
    return text[:at], line


def complete(text: str) -> bool:
    r"""Whether Enter runs the text rather than beginning another line.

    >>> [complete(each) for each in ("", "SELECT 1", "SELECT 1; ", "SELECT ';", "\\d", "quit")]
    [True, False, True, False, True, True]
    """
    if command_of(text) is not None:
        return True
    every, found = words(text), meaningful(text)
    if not found or found[-1].kind == "end":
        return not (every and every[-1].open)
    return text.strip().casefold() in (*LEAVING, "help")
