"""Roles by rule: what identifies is dropped, and what no rule knows is left to the publisher.

Rules are asked in order, and the first that has an answer gives it:

    nothing to tell    no value, or one value in all rows                         drop
    personal           the name says so, or values look like addresses, numbers   drop
    free text          long, or of many words                                     drop
    ids                nearly unique, or an id by name that repeats               drop, unit
    sensitive          health, money, opinion, behaviour by name                  sensitive
    dates              by type or shape                                           public, coarse
    known              age, sex, place, trait by name                             public, coarse
    all else                                                                      decide
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from privsql.publish.starter.evidence import Facts
from privsql.publish.starter.words import SENSITIVE, meanings, of_a_person

PERSONAL_SHAPES = (
    "an e-mail address",
    "a web address",
    "a network address",
    "a UUID",
    "an account number",
    "a telephone number",
)
# An id by name that repeats has at least so many values, of the rows at least this share.
REPEATED_VALUES, REPEATED_SHARE = 20, 0.005

MEASURE = 'role = "sensitive" with a domain { lower, upper, step }, or "public" with bins'


@dataclass(frozen=True)
class Verdict:
    """The role of a column, and why."""

    role: str
    why: str
    kind: str = ""  # of a public column: birth, age, postcode, date, year or category
    unit: int = 0  # what speaks for it as the unit; 0 is nothing

    def __str__(self) -> str:
        """The verdict in a line."""
        return f"{self.role}: {self.why}"


Rule = Callable[[Facts, frozenset[str]], Verdict | None]


def classified(columns: Sequence[Facts]) -> tuple[Verdict, ...]:
    """The verdict on every column."""
    return tuple(_verdict(column) for column in columns)


def unit_of(columns: Sequence[Facts], verdicts: Sequence[Verdict]) -> int | None:
    """The place of the column that says whose row it is, or None."""
    best = max(range(len(columns)), key=lambda i: verdicts[i].unit, default=None)
    return best if best is not None and verdicts[best].unit else None


def _verdict(column: Facts) -> Verdict:
    said = meanings(column.name)
    for rule in RULES:
        verdict = rule(column, said)
        if verdict is not None:
            return verdict
    return _undecided(column, said)


def _nothing(column: Facts, _: frozenset[str]) -> Verdict | None:
    if column.rows == 0:
        return Verdict("decide", "the source has no rows to guess from")
    if column.stated == 0:
        return Verdict("drop", "it has no value in any row")
    if column.plain and column.distinct == 1 and column.rows > 1 and not column.missing:
        return Verdict("drop", "it has one value in all rows, which tells that value of everybody")
    return None


def _personal(column: Facts, said: frozenset[str]) -> Verdict | None:
    if "personal" in said and not said & {"place", "postcode"}:
        # It repeats, so it is of no use to tell persons apart.
        unit = 1 if column.unique and of_a_person(column.name) else 0
        return Verdict("drop", "its name is that of something that identifies people", unit=unit)
    if column.type == "UUID":
        return Verdict("drop", "a UUID identifies", unit=1 if column.unique else 0)
    if column.shape in PERSONAL_SHAPES:
        return Verdict("drop", f"its values look like {column.shape}")
    return None


def _free(column: Facts, _: frozenset[str]) -> Verdict | None:
    if column.text and column.free:
        return Verdict("drop", "free text, in which people are named or described")
    return None


def _ids(column: Facts, said: frozenset[str]) -> Verdict | None:
    if not (column.text or column.whole) or said & {"birth", "age", "postcode"}:
        return None
    dated = column.shape in ("an ISO date", "a local date")
    named = "id" in said
    told = bool(said & set(SENSITIVE)) and column.number
    if column.unique and not dated and (named or not told):
        why = "a code or a number" if named or column.whole else "text"
        return Verdict(
            "drop",
            f"{why} that nearly every row has for itself: it identifies",
            unit=2 if named and of_a_person(column.name) else 0,
        )
    least = max(REPEATED_VALUES, REPEATED_SHARE * column.stated)
    other = said - {"id"}
    if named and not other and column.distinct >= least:
        rows = column.stated / column.distinct
        why = f"an id that repeats: {rows:.1f} rows for each value, at most {column.most:,}"
        return Verdict("drop", why, unit=3 if of_a_person(column.name) else 0)
    return None


def _sensitive(column: Facts, said: frozenset[str]) -> Verdict | None:
    about = [kind for kind in SENSITIVE if kind in said]
    if not about or not column.plain:
        return None
    if column.shape == "a local date":
        return Verdict("decide", LOCAL.format("sensitive with a step"))
    if column.text and column.counts is None:
        return Verdict("decide", f"its name says {about[0]}, and it has too many values to list")
    return Verdict("sensitive", f"its name says {about[0]}")


LOCAL = (
    "a date that is written as text; write it as a date (2024-12-31) in the source, then it can be"
    " {}"
)


def _dates(column: Facts, said: frozenset[str]) -> Verdict | None:
    kind = "birth" if "birth" in said else "date"
    why = "others may know the date; published no finer than this"
    if column.dated or column.shape == "an ISO date":
        return Verdict("public", why, kind)
    if column.shape == "a local date":
        return Verdict("decide", LOCAL.format('public with cut = "year"'))
    return None


def _known(column: Facts, said: frozenset[str]) -> Verdict | None:
    if "doubtful" in said:
        why = "others may see it of a person, who may not want it told: public or sensitive"
        return Verdict("decide", why)
    numbers = column.number and not isinstance(column.low, bool)
    if numbers and said & {"birth", "time"}:
        return Verdict("public", "others may know the year", "year")
    if numbers and "age" in said:
        return Verdict("public", "others may know the age", "age")
    if "postcode" in said and (column.text or column.whole):
        return Verdict("public", "others know where a person lives", "postcode")
    if said & {"sex", "place", "trait", "age", "time", "birth"} and not _measure(column):
        return Verdict("public", "others may know it of a person", "category")
    return None


def _measure(column: Facts) -> bool:
    return not (column.text or column.whole or column.type == "BOOLEAN")


RULES: tuple[Rule, ...] = (_nothing, _personal, _free, _ids, _sensitive, _dates, _known)


def _undecided(column: Facts, said: frozenset[str]) -> Verdict:
    if not column.plain:
        return Verdict("decide", "a type that cannot be judged: drop it, or cast it in the source")
    if column.number and not column.whole and column.distinct > 50:
        return Verdict("decide", f"a measure, whose exact values may identify: {MEASURE}")
    if column.distinct > max(REPEATED_VALUES, 0.05 * column.stated):
        rows = column.stated / column.distinct
        return Verdict(
            "decide",
            f"many values, {rows:.1f} rows for each: if it is an id, drop it or make it the unit",
        )
    if "id" in said:
        return Verdict("decide", "a code: public if others know what it says of a person")
    return Verdict(
        "decide", "public if others know it of a person anyway, sensitive if people would mind"
    )
