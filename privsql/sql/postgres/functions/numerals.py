"""``to_char`` of numbers: ``FM999,990.00`` and its kin.

    9   a digit, blank where the number is shorter      .  D   the decimal point
    0   a digit, zero where the number is shorter       ,  G   between thousands
    FM  no blanks, and no zeros after the point that only a 9 asks for
    S   the sign, on its side      MI   a minus behind      $ before and % behind stay

A number that is too long is ``###``, as in PostgreSQL.  The point and the comma are those of the
locale C.  Other letters (L, V, EEEE, RN, TH, PR) are not known here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp

from privsql.sql.expressions import call
from privsql.sql.nodes import cast, chained, when

_TEMPLATE = re.compile(
    r"(?P<fill>FM)?(?P<lead>[$ ]*)(?P<before>S|MI|PL)?(?P<money>[$]*)(?P<whole>[90,G]*)"
    r"(?:(?P<point>[.D])(?P<part>[90]*))?(?P<after>S|MI)?(?P<rest>[% ]*)",
    re.IGNORECASE,
)
_GROUPED = re.compile(r"[90]{0,3}(?:,[90]{3})*")


@dataclass(frozen=True)
class Template:
    """A template taken apart."""

    filled: bool  # with blanks, so that all numbers are of one length
    lead: str
    sign: str  # "" at the number, "S" and "MI" as they are called
    behind: bool  # the sign stands behind
    whole: str
    point: bool
    part: str
    rest: str

    @property
    def grouped(self) -> bool:
        """Whether thousands are set apart."""
        return "," in self.whole

    @property
    def digits(self) -> int:
        """Digits before the point."""
        return len(self.whole.replace(",", ""))

    @property
    def least(self) -> int:
        """Digits before the point that are written whatever they are."""
        digits = self.whole.replace(",", "")
        return len(digits) - digits.index("0") if "0" in digits else 0


def template(pattern: str) -> Template | None:
    """The parts of a template of numbers; None where it is none.

    >>> template("FM999,990.00").least, template("YYYY"), template("9,9")
    (1, None, None)
    """
    match = _TEMPLATE.fullmatch(pattern)
    if match is None or not re.search("[90]", pattern):
        return None
    whole = match["whole"].upper().replace("G", ",")
    before, after = (match["before"] or "").upper(), (match["after"] or "").upper()
    if (before and after) or before in ("MI", "PL") or not _GROUPED.fullmatch(whole):
        return None
    made = Template(
        match["fill"] is None,
        match["lead"] + match["money"],
        before or after,
        bool(after),
        whole,
        match["point"] is not None,
        match["part"] or "",
        match["rest"],
    )
    return None if made.grouped and made.least > 1 else made


def number_text(number: exp.Expr, given: Template) -> exp.Expr:
    """A number written by a template; the number is cast to DOUBLE, as DuckDB's format() wants."""
    text = exp.Literal.string
    rounded = call("round", number.copy(), exp.Literal.number(len(given.part)))
    size = call("abs", rounded)
    comma = "," if given.grouped else ""
    digits = call("format", text(f"{{:{comma}.{len(given.part)}f}}"), cast(size, "DOUBLE"))
    digits = _whole_part(digits, size, given)
    if not given.filled:
        digits = _short(digits, given)
    digits = exp.Paren(this=when(_fits(size, given), digits, _too_long(number, given)))
    signed = _signed(digits, exp.LT(this=rounded.copy(), expression=exp.Literal.number(0)), given)
    if given.filled:
        marks = len(given.whole) + given.point + len(given.part) + 1
        signed = call("lpad", signed, exp.Literal.number(marks), text(" "))
    around = [[text(each)] if each else [] for each in (given.lead, given.rest)]
    parts = [*around[0], signed, *around[1]]
    return parts[0] if len(parts) == 1 else exp.Paren(this=chained(exp.DPipe, parts))


def _whole_part(digits: exp.Expr, size: exp.Expr, given: Template) -> exp.Expr:
    """The digits before the point: none of 0 where only a 9 asks, zeros where a 0 does."""
    if given.least > 1:
        width = given.least + given.point * (1 + len(given.part))
        filled = call("lpad", digits, exp.Literal.number(width), exp.Literal.string("0"))
        longer = exp.GTE(this=call("length", digits.copy()), expression=exp.Literal.number(width))
        return exp.Paren(this=when(longer, digits.copy(), filled))
    if given.least == 0 and given.part:
        below: exp.Expr = exp.LT(this=size.copy(), expression=exp.Literal.number(1))
        if not given.filled:  # zero itself keeps its digit
            some = exp.GT(this=size.copy(), expression=exp.Literal.number(0))
            below = exp.And(this=below, expression=some)
        return exp.Paren(
            this=when(below, call("substr", digits, exp.Literal.number(2)), digits.copy())
        )
    if given.point and not given.part:
        return exp.Paren(this=exp.DPipe(this=digits, expression=exp.Literal.string(".")))
    return digits


def _short(digits: exp.Expr, given: Template) -> exp.Expr:
    """Without zeros at the end for which only a 9 stands."""
    free = len(given.part) - len(given.part.rstrip("9"))
    if not free:
        return digits
    pattern = exp.Literal.string(f"0{{1,{free}}}$")
    return call("regexp_replace", digits, pattern, exp.Literal.string(""))


def _signed(digits: exp.Expr, minus: exp.Expr, given: Template) -> exp.Expr:
    other = "+" if given.sign == "S" else " " if given.behind and given.filled else ""
    sign = exp.Paren(this=when(minus, exp.Literal.string("-"), exp.Literal.string(other)))
    pair = [digits, sign] if given.behind else [sign, digits]
    return exp.Paren(this=chained(exp.DPipe, pair))


def _fits(size: exp.Expr, given: Template) -> exp.Expr:
    return exp.LT(this=size.copy(), expression=exp.Literal.number(10**given.digits))


def _too_long(number: exp.Expr, given: Template) -> exp.Expr:
    """Signs for a number that is too long; NULL stays NULL."""
    told = re.sub("[90]", "#", given.whole) + ("." * given.point) + "#" * len(given.part)
    known = exp.Not(this=exp.Is(this=number.copy(), expression=exp.null()))
    return exp.Paren(this=when(known, exp.Literal.string(told)))
