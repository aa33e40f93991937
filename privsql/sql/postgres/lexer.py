r"""The lexer of PostgreSQL's dialect: strings, quoted names, comments, semicolons.

sqlglot's parser reads queries; this reads everything around them, so that a statement ends where
PostgreSQL says it does.  The words are those of sqlglot's tokenizer without its keywords: comments
nest, ``E'..'`` knows backslashes and ``'..'`` does not (``standard_conforming_strings`` is on),
``$tag$..$tag$`` has no escapes at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]

from privsql.errors import Place
from privsql.sql.parse.lexing import signs, tokens_of
from privsql.sql.parse.statement import SyntaxMistake
from privsql.sql.postgres.commands import Command

# Kinds of words.
NAME = "name"  # unquoted
QUOTED = "quoted"  # "a name"
STRING = "string"
NUMBER = "number"
PARAMETER = "parameter"
SIGN = "sign"

_KINDS = {TokenType.VAR: NAME, TokenType.IDENTIFIER: QUOTED, TokenType.NUMBER: NUMBER}
_OPENING = re.compile(r"[eE]?(?<!')'(?!')|(?<!\")\"(?!\")|/\*|\$\w*\$")  # not a doubled quote
# Places that are looked at for the beginning of what does not end.
_TRIED = 20


class _Words(Postgres):
    """PostgreSQL without keywords, so that each sign and each name is a word of its own."""

    class Tokenizer(Postgres.Tokenizer):
        KEYWORDS: ClassVar[dict[str, TokenType]] = {}
        HEREDOC_STRINGS: ClassVar[list[str | tuple[str, str]]] = []
        SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = signs(Postgres.Tokenizer)
        COMMANDS: ClassVar[set[TokenType]] = set()


_DIALECT = _Words()


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
    >>> [(word.kind, word.value) for word in words("$1 .5")]
    [('parameter', '1'), ('number', '.5')]
    """
    before: Word | None = None  # a sign that a number may belong to
    for token in _tokens(text):
        word = _word(token, text)
        if before is not None and word.kind == NUMBER and before.stop == word.start:
            kind, sign = (PARAMETER, "") if before.value == "$" else (NUMBER, ".")
            word = Word(kind, sign + word.value, before.start, word.stop)
        elif before is not None:
            yield before
        before = word if word.kind == SIGN and word.value in "$." else None
        if before is None:
            yield word
    if before is not None:
        yield before


def _word(token: Token, text: str) -> Word:
    kind = _KINDS.get(token.token_type, SIGN)
    if token.token_type.name.endswith("STRING"):
        kind = STRING
    start, stop = token.start, token.end + 1
    # Also 0x1F, which sqlglot takes for a string.
    if text[start].isdigit() and (kind != NUMBER or re.match(r"\w", text[stop : stop + 1])):
        raise mistake("a number goes on as a word", text, start, stop + 1)
    return Word(kind, token.text.lower() if kind == NAME else token.text, start, stop)


def _tokens(text: str) -> list[Token]:
    try:
        return tokens_of(text, _DIALECT)
    except TokenError:
        # It says nothing of where: before what does not end all can be read.
        openings = [match.start() for match in _OPENING.finditer(text)]
        for at in islice(reversed(openings), _TRIED):
            try:
                tokens_of(text[:at], _DIALECT)
            except TokenError:
                continue
            raise mistake("a quote or a comment is not closed", text, at, at + 1) from None
        raise mistake("a quote or a comment is not closed", text, 0, 1) from None


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


# Reads some words of a text as a statement of its own.
Inner = Callable[[str, Sequence[Word]], Command]


class Reading:
    """The words of one statement and how far they are read; ``inner`` reads a query inside."""

    def __init__(self, text: str, given: Sequence[Word], inner: Inner) -> None:
        self._text = text
        self._words = list(given)
        self._at = 1
        self._inner = inner

    def _peek(self, ahead: int = 0) -> Word | None:
        at = self._at + ahead
        return self._words[at] if at < len(self._words) else None

    def _says(self, *wanted: str) -> bool:
        """Whether these keywords follow; if so, they are passed."""
        for ahead, word in enumerate(wanted):
            found = self._peek(ahead)
            if found is None or not found.says(word):
                return False
        self._at += len(wanted)
        return True

    def _sign(self, sign: str) -> bool:
        found = self._peek()
        if found is None or found.kind != SIGN or found.value != sign:
            return False
        self._at += 1
        return True

    def _next(self, what: str, *kinds: str) -> Word:
        found = self._peek()
        if found is None or (kinds and found.kind not in kinds):
            raise self._wrong(f"{what} is missing")
        self._at += 1
        return found

    def _name(self, what: str) -> str:
        return self._next(what, NAME, QUOTED).value

    def _must(self, keyword: str) -> None:
        if not self._says(keyword):
            raise self._wrong(f"{keyword.upper()} is missing")

    def _last_name(self, what: str) -> str:
        """The name that the statement ends with."""
        name = self._name(f"the name of {what}")
        self._end()
        return name

    def _end(self) -> None:
        if self._peek() is not None:
            raise self._wrong("there is more text after the end of the statement")

    def _wrong(self, reason: str) -> SyntaxMistake:
        word = self._peek() or self._words[-1]
        return mistake(reason, self._text, word.start, word.stop)

    def _rest(self) -> list[Word]:
        rest, self._at = self._words[self._at :], len(self._words)
        if not rest:
            raise self._wrong("a query is missing")
        return rest

    def _number(self) -> int | None:
        at = self._at
        sign = -1 if self._sign("-") else 1
        found = self._peek()
        if found is None or found.kind != NUMBER or not found.value.isdigit():
            self._at = at
            return None
        self._at += 1
        return sign * int(found.value)

    def _listed(self) -> tuple[str, ...]:
        """The text of each part of ``(a, b)``; none where no parenthesis follows."""
        if not self._sign("("):
            return ()
        depth, parts, start = 1, [], self._next("a value").start
        self._at -= 1
        while True:
            word = self._next("a closing parenthesis")
            if word.kind != SIGN:
                continue
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(word.value, 0)
            if depth == 0 or (depth == 1 and word.value == ","):
                parts.append(self._text[start : word.start].strip())
                start = word.stop
            if depth == 0:
                return tuple(parts)
