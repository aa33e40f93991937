r"""The lexer of PostgreSQL's dialect: strings, quoted names, comments, semicolons.

sqlglot reads queries; this reads everything around them, so that a statement ends where
PostgreSQL says it does.  Comments nest, ``E'..'`` knows backslashes and ``'..'`` does not
(``standard_conforming_strings`` is on), ``$tag$..$tag$`` has no escapes at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from privsql.errors import Place
from privsql.sql.parse import SyntaxMistake

# Kinds of words.
NAME = "name"  # unquoted
QUOTED = "quoted"  # "a name"
STRING = "string"
NUMBER = "number"
PARAMETER = "parameter"
SIGN = "sign"

_WORD = re.compile(r"[^\W\d][\w$]*")
_NUMBER = re.compile(r"(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_JUNK = re.compile(r"\w")
_PARAMETER = re.compile(r"\$\d+")
_DOLLAR = re.compile(r"\$([^\W\d]\w*)?\$")
_SPACE = re.compile(r"\s+")
_COMMENT = re.compile(r"/\*|\*/")
_ESCAPE = re.compile(
    r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL
)
_NAMED = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a text; ``value`` is what it means: folded, unquoted, unescaped."""

    kind: str
    value: str
    start: int
    stop: int

    def says(self, *words: str) -> bool:
        """Whether it is one of these keywords."""
        return self.kind == NAME and self.value in words


def words(text: str) -> Iterator[Word]:
    r"""The words of a text.

    >>> [word.value for word in words("SELECT E'a\\'b', $$it's$$ /* /* ; */ */ FROM \"T\"; --x")]
    ['select', "a'b", ',', "it's", 'from', 'T', ';']
    """
    at = 0
    while at < len(text):
        if match := _SPACE.match(text, at):
            at = match.end()
            continue
        if text.startswith("--", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
            continue
        if text.startswith("/*", at):
            at = _after_comment(text, at)
            continue
        word = _word(text, at)
        yield word
        at = word.stop


def split(text: str) -> list[list[Word]]:
    """The words of each statement; an empty one is left out."""
    found: list[list[Word]] = [[]]
    for word in words(text):
        if word.kind == SIGN and word.value == ";":
            found.append([])
        else:
            found[-1].append(word)
    return [part for part in found if part]


def mistake(
    reason: str, text: str, start: int, stop: int, hint: str | None = None
) -> SyntaxMistake:
    """A syntax error at a place of the text."""
    return SyntaxMistake(reason, hint=hint, place=Place(text, start, max(stop, start + 1)))


def _word(text: str, at: int) -> Word:
    char = text[at]
    if char == "'":
        return _string(text, at, at)
    if char in "eE" and text.startswith("'", at + 1):
        return _escaped(text, at)
    if char == '"':
        stop = _closing(text, at, '"')
        return Word(QUOTED, text[at + 1 : stop - 1].replace('""', '"'), at, stop)
    if char == "$":
        if match := _PARAMETER.match(text, at):
            return Word(PARAMETER, match[0][1:], at, match.end())
        if match := _DOLLAR.match(text, at):
            end = text.find(match[0], match.end())
            if end < 0:
                raise mistake("a dollar-quoted string is not closed", text, at, match.end())
            return Word(STRING, text[match.end() : end], at, end + len(match[0]))
    if match := _NUMBER.match(text, at):
        if _JUNK.match(text, match.end()):
            raise mistake("letters follow a number", text, at, match.end() + 1)
        return Word(NUMBER, match[0], at, match.end())
    if match := _WORD.match(text, at):
        return Word(NAME, match[0].lower(), at, match.end())
    return Word(SIGN, char, at, at + 1)


def _closing(text: str, at: int, quote: str) -> int:
    """The position after the quote that closes the one at ``at``; a doubled one stays inside."""
    end = at + 1
    while True:
        end = text.find(quote, end)
        if end < 0:
            raise mistake("a quote is not closed", text, at, at + 1)
        if not text.startswith(quote, end + 1):
            return end + 1
        end += 2


def _string(text: str, start: int, at: int) -> Word:
    stop = _closing(text, at, "'")
    return Word(STRING, text[at + 1 : stop - 1].replace("''", "'"), start, stop)


def _escaped(text: str, at: int) -> Word:
    end = at + 2
    while end < len(text):
        if text[end] == "\\":
            end += 2
        elif text[end] != "'":
            end += 1
        elif text.startswith("'", end + 1):
            end += 2
        else:
            return Word(STRING, unescaped(text[at + 2 : end].replace("''", "'")), at, end + 1)
    raise mistake("a quote is not closed", text, at, at + 2)


def unescaped(body: str) -> str:
    r"""What the inside of ``E'..'`` means.

    >>> unescaped(r"a\tb\x41\u00e9\101\'")
    "a\tbAéA'"
    """

    def meant(match: re.Match[str]) -> str:
        for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
            if match[group]:
                return chr(int(match[group], base))
        return _NAMED.get(match[5], match[5])

    return _ESCAPE.sub(meant, body)


def _after_comment(text: str, at: int) -> int:
    depth = 0
    for match in _COMMENT.finditer(text, at):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    raise mistake("a comment is not closed", text, at, at + 2)
