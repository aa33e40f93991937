"""A token reader for statements other than queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from privsql.sql.parse import SyntaxMistake
from privsql.sql.postgres_command import Command
from privsql.sql.postgres_lexer import NAME, NUMBER, QUOTED, SIGN, Word, mistake

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

    def _listed(self) -> list[str]:
        """The text of each part of ``a, b)``; the parenthesis before it is passed already."""
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
                return parts
