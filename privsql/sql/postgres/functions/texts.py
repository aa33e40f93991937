"""``format('%I.%I', schema, name)``: its directives joined with ``||``.

    %s  the text of a value, nothing for NULL    %I  a name, quoted where it needs to be
    %L  a literal, NULL for NULL                 %%  one percent sign

``%2$s`` is the second value; a width pads with blanks on the left, or on the right after ``-``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from sqlglot import exp

from privsql.sql.expressions import call
from privsql.sql.nodes import cast, chained

_DIRECTIVE = re.compile(r"%(?:(?P<number>\d+)\$)?(?P<left>-)?(?P<width>\d+)?(?P<kind>[sIL])|%%")

# Writes a name as SQL wants it.
Quoted = Callable[[exp.Expr], exp.Expr]


def formatted(pattern: str, values: Sequence[exp.Expr], name: Quoted | None) -> exp.Expr | None:
    """The text of a pattern; None where it is not understood or has too few values.

    ``name`` writes an identifier; without it ``%I`` is not known.

    >>> from sqlglot import exp
    >>> formatted("%s: %L", [exp.column("a"), exp.column("b")], None).sql("duckdb")[:50]
    "(COALESCE(CAST(a AS TEXT), '') || ': ' || COALESCE"
    """
    parts: list[exp.Expr] = []
    at = used = 0
    for match in _DIRECTIVE.finditer(pattern):
        literal = pattern[at : match.start()] + ("%" if match[0] == "%%" else "")
        at = match.end()
        if literal:
            parts.append(exp.Literal.string(literal))
        if match[0] == "%%":
            continue
        used = int(match["number"] or used + 1)
        made = _written(match["kind"], values[used - 1], name) if used <= len(values) else None
        if made is None or used == 0:
            return None
        if match["width"]:
            made = _padded(made, int(match["width"]), "rpad" if match["left"] else "lpad")
        parts.append(made)
    rest = pattern[at:]
    if "%" in _DIRECTIVE.sub("", pattern):
        return None
    parts += [exp.Literal.string(rest)] if rest or not parts else []
    return parts[0] if len(parts) == 1 else exp.Paren(this=chained(exp.DPipe, parts))


def _written(kind: str, value: exp.Expr, name: Quoted | None) -> exp.Expr | None:
    text = cast(value.copy(), "VARCHAR")
    if kind == "I":
        return None if name is None else name(text)
    if kind == "s":
        return exp.Coalesce(this=text, expressions=[exp.Literal.string("")])
    quote = exp.Literal.string("'")
    doubled = call("replace", text, quote.copy(), exp.Literal.string("''"))
    literal = chained(exp.DPipe, [quote, doubled, quote.copy()])
    return exp.Coalesce(this=literal, expressions=[exp.Literal.string("NULL")])


def _padded(text: exp.Expr, width: int, side: str) -> exp.Expr:
    """At least so wide: a longer text stays whole, which lpad() alone would cut."""
    wide = exp.Greatest(this=call("length", text.copy()), expressions=[exp.Literal.number(width)])
    return call(side, text, cast(wide, "INTEGER"), exp.Literal.string(" "))
