r"""Tokens of a text: what begins with ``$`` is a parameter or a dollar quote.

sqlglot takes whatever stands between two ``$`` for the tag of a quote unless there is a space in
it, so ``IN ($1,$2)`` would be a quote that never ends.  A tag is a name or nothing: ``$$it's$$``
and ``$q$it's$q$`` are quotes, ``$1,$`` and ``$a,$`` begin with a parameter.

The dialects here know ``$`` as a sign alone.  Where a text has quotes, plain strings of the same
length stand in for them while it is read, so that places stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, Tokenizer, TokenType  # type: ignore[attr-defined]

_OPENING = re.compile(r"\$(?:[^\W\d]\w*)?\$")
_PIECE = re.compile(
    r"""--[^\n]* | (?P<comment>/\*) | "(?:[^"]|"")*" | (?<!\w)[eE]'(?:[^'\\]|\\.|'')*'
    | '(?:[^']|'')*' | \w[\w$]* | (?P<quote>\$(?:[^\W\d]\w*)?\$)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"/\*|\*/")

# Keywords that name a column where they follow AS and the name ends there.
_CLAUSES = frozenset(
    {TokenType.SELECT, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.ORDER_BY}
    | {TokenType.HAVING, TokenType.LIMIT, TokenType.UNION, TokenType.INTO, TokenType.WITH}
    | {TokenType.ON, TokenType.USING, TokenType.JOIN, TokenType.AND, TokenType.OR, TokenType.NOT}
    | {TokenType.IN, TokenType.DISTINCT, TokenType.CASE, TokenType.WHEN, TokenType.THEN}
    | {TokenType.ELSE, TokenType.END, TokenType.FETCH, TokenType.EXCEPT, TokenType.INTERSECT}
    | {TokenType.FOR, TokenType.TABLE, TokenType.VALUES, TokenType.CREATE, TokenType.WINDOW}
    | {TokenType.LATERAL, TokenType.GRANT, TokenType.TRUE, TokenType.FALSE, TokenType.NULL}
    | {TokenType.ALL, TokenType.ANY, TokenType.SOME}
)
_AFTER_NAME = frozenset(
    {TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN, TokenType.SEMICOLON, TokenType.UNION}
    | {TokenType.ORDER_BY, TokenType.WHERE, TokenType.LIMIT, TokenType.GROUP_BY}
)


def signs(tokenizer: type[Tokenizer]) -> dict[str, TokenType]:
    """The signs of a tokenizer without dollar quotes: ``$`` stands before a parameter."""
    return {**tokenizer.SINGLE_TOKENS, "$": TokenType.PARAMETER}


class DuckDBText(DuckDB):
    """DuckDB's dialect for :func:`tokens_of`."""

    class Tokenizer(DuckDB.Tokenizer):
        """Without dollar quotes."""

        HEREDOC_STRINGS: ClassVar[list[str | tuple[str, str]]] = []
        SINGLE_TOKENS: ClassVar[dict[str, TokenType]] = signs(DuckDB.Tokenizer)


DUCKDB = DuckDBText()


def tokens_of(text: str, dialect: Dialect = DUCKDB) -> list[Token]:
    """The tokens of a text in a dialect that has no dollar quotes itself.

    >>> [token.text for token in tokens_of("x IN ($1,$2,$a,$b)")][3:9]
    ['$', '1', ',', '$', '2', ',']
    >>> [token.text for token in tokens_of("f($$it's$$,$1,$q$ $$ $q$,'$$')")]
    ['f', '(', "it's", ',', '$', '1', ',', ' $$ ', ',', '$$', ')']
    """
    if _OPENING.search(text) is None:
        return _named(dialect.tokenize(text))
    quotes = {start: (stop, body) for start, stop, body in _quotes(text)}
    plain = list(text)
    for start, (stop, _) in quotes.items():
        inside = (each if each == "\n" else "x" for each in plain[start + 1 : stop - 1])
        plain[start:stop] = ["'", *inside, "'"]
    return _named(
        [
            _quoted(token, quotes[token.start][1]) if token.start in quotes else token
            for token in dialect.tokenize("".join(plain))
        ]
    )


def parsed(text: str) -> exp.Expr:
    """The tree of one statement in DuckDB's dialect; errors are sqlglot's."""
    tree = DUCKDB.parser().parse(tokens_of(text), text)[0]
    if tree is None:
        raise TokenError("there is no statement")
    return tree


def _named(tokens: list[Token]) -> list[Token]:
    """Words after AS as names, where they would begin a clause: ``count(*) AS select``."""
    for at, before in enumerate(tokens[:-1], 1):
        if before.token_type is not TokenType.ALIAS or tokens[at].token_type not in _CLAUSES:
            continue
        if at + 1 == len(tokens) or tokens[at + 1].token_type in _AFTER_NAME:
            tokens[at] = changed(tokens[at], TokenType.IDENTIFIER, tokens[at].text.lower())
    return tokens


def _quoted(token: Token, body: str) -> Token:
    return changed(token, TokenType.HEREDOC_STRING, body)


def changed(token: Token, kind: TokenType, text: str) -> Token:
    """Another token in the place of one."""
    return Token(kind, text, token.line, token.col, token.start, token.end, token.comments)


def _quotes(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each dollar quote begins and ends, and what is in it."""
    at = 0
    while (match := _PIECE.search(text, at)) is not None:
        at = match.end()
        if match["comment"]:
            at = _after_comment(text, at)
        elif match["quote"]:
            close = text.find(match["quote"], at)
            if close < 0:
                raise TokenError("a quote is not closed")
            body, at = text[at:close], close + len(match["quote"])
            yield match.start(), at, body


def _after_comment(text: str, at: int) -> int:
    """The end of a comment that begins before ``at``; comments nest."""
    depth = 1
    for match in _COMMENT.finditer(text, at):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    return len(text)
