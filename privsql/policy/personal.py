"""Personal groups: refusal of answers about people who share all public attributes.

    refuse   a single answer is an error; in a GROUP BY the cell is NULL, and a notice says so
    flag     the value stays, and a notice says which cells are personal
    allow    nothing is said

A sensitive answer over fewer than ``min_rows`` rows is refused as well.  The whole table is
never personal, and an empty selection is no person's.  (reconstruction, 8)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsql.errors import Notice, NotSupportedError, how_many
from privsql.release.manifest import Policy
from privsql.sql.reconstruct.columns import (
    GROUP_HIGH,
    GROUP_LOW,
    GROUP_ROWS,
    GROUP_SQUARES,
    GROUP_SUM,
)

Bools = NDArray[np.bool_]

# Cells that one notice names.
MOST_NAMED = 5


class PersonalGroup(NotSupportedError, code="personal-group", sqlstate="42501"):  # noqa: N818
    """The query selects one personal group, or too few rows."""


class TooClose(PersonalGroup, code="difference"):
    """Earlier answers and this one together are about one personal group."""


@dataclass(frozen=True)
class Verdict:
    """Cells of a block that may not be shown: one array per aggregate, over the scan's rows."""

    personal: Mapping[int, Bools]
    few: Mapping[int, Bools]
    close: Mapping[int, Bools]  # personal together with earlier answers
    refused: Mapping[int, Bools]
    cap: str | None = None  # that was met: some cells cannot be compared with earlier answers

    def with_close(
        self, close: Mapping[int, Bools], policy: Policy, cap: str | None = None
    ) -> Verdict:
        """The same with cells that earlier answers would reveal, or that a cap stops."""
        refused = dict(self.refused)
        if policy.personal_groups == "refuse":
            refused = {i: cells | close[i] for i, cells in self.refused.items()}
        return replace(self, close=close, refused=refused, cap=cap)


def judge(
    cells: pa.Table, bases: Mapping[int, Sequence[int]], policy: Policy, total: int
) -> Verdict:
    """Decide for every cell, from the smallest and largest group number behind it.

    ``cells`` has ``lo<k>``, ``hi<k>`` and ``n<k>`` for each base of an aggregate: the groups and
    the number of rows whose sensitive values it tells something of; ``y<k>`` and ``z<k>`` are the
    sums of their weights and of the squares, where rows weigh differently.
    """
    personal, few, close = (
        {i: np.zeros(cells.num_rows, dtype=np.bool_) for i in bases} for _ in range(3)
    )
    for i, those in bases.items():
        for k in those:
            rows = np.nan_to_num(floats(cells, GROUP_ROWS(k))).astype(np.int64)
            low, high = floats(cells, GROUP_LOW(k)), floats(cells, GROUP_HIGH(k))
            some = (rows > 0) & (rows < total)
            personal[i] |= some & (low == high)
            few[i] |= some & (rows < policy.min_rows)
            if GROUP_SUM(k) in cells.column_names:
                # Where rows weigh differently a sum may be about few of them.
                sums, squares = floats(cells, GROUP_SUM(k)), floats(cells, GROUP_SQUARES(k))
                # Rooted, or large weights overflow; what is no number is no proof of many.
                with np.errstate(all="ignore"):
                    many = sums / np.sqrt(squares) >= np.sqrt(policy.min_rows)
                few[i] |= (rows > 0) & ~many
    refused = few
    if policy.personal_groups == "refuse":
        refused = {i: few[i] | personal[i] for i in bases}
    return Verdict(personal, few, close, refused)


def floats(cells: pa.Table, name: str) -> NDArray[np.float64]:
    """A column as numbers, NaN for NULL: a cell without rows."""
    return np.asarray(cells.column(name).cast(pa.float64()).to_numpy(), dtype=np.float64)


def notices(
    verdict: Verdict,
    policy: Policy,
    label: Callable[[int], str] | None = None,
    *,
    alone: bool = False,
) -> list[Notice]:
    """Notices about cells that were hidden or are personal.

    ``label`` names a cell by its keys, for those that are answered all the same; ``alone`` says
    that only the answers of one statement were compared.
    """
    others = "other answers of the statement" if alone else "earlier answers"
    or_else = ", or cannot be compared with them" if verdict.cap else ""
    near = count({i: cells & verdict.refused[i] for i, cells in verdict.close.items()})
    hidden = count(verdict.refused) - near
    found = [
        (
            "personal-group",
            hidden,
            f"{how_many(hidden, 'cell is', 'cells are')} not answered: the rows behind"
            f" {'them' if hidden > 1 else 'it'} are one personal group, or fewer than"
            f" {policy.min_rows}",
        ),
        (
            "difference",
            near,
            f"{how_many(near, 'cell is', 'cells are')} not answered: together with {others}"
            f" {'they' if near > 1 else 'it'} would single out one personal group{or_else}",
        ),
    ]
    if policy.personal_groups == "flag":
        marked, together = count(verdict.personal), count(verdict.close)
        found += [
            (
                "personal-group",
                marked,
                f"{how_many(marked, 'cell is', 'cells are')} about one personal group"
                f"{_named(verdict.personal, label)}",
            ),
            (
                "difference",
                together,
                f"{how_many(together, 'cell')}, together with {others},"
                f" single{'' if together > 1 else 's'} out one personal group"
                f"{_named(verdict.close, label)}",
            ),
        ]
    return [Notice(code, text) for code, many, text in found if many]


# Shares of a limit from which on a user is told how close the account is.
NEAR = (0.8, 0.95)
CAPS = {
    "functions": "the server holds no more functions of measures for this table",
    "answers": "your account holds no more answers",
    "groups": "your account watches no more groups",
}


def warnings(cap: str | None, before: float, after: float) -> list[Notice]:
    """Notices about a cap that was met, and about shares of a limit before and after an answer."""
    found = []
    if cap is not None:
        text = f"{CAPS[cap]}: only what follows from earlier answers is answered"
        found.append(Notice("account-cap", text))
    if any(before < at <= after for at in NEAR):
        found.append(
            Notice(
                "account",
                f"your answers have reached {after:.0%} of what may be told about one"
                " personal group: some further questions will be refused; SHOW privsql.account"
                " says how close you are",
            )
        )
    return found


def size_class(rows: int) -> str:
    """The size of a group, as roughly as tells nothing of it.

    >>> size_class(7), size_class(40), size_class(0)
    ('1 to 9', '10 to 99', '')
    """
    if rows < 1:
        return ""
    low = 10 ** (len(str(rows)) - 1)
    return f"{low:,} to {10 * low - 1:,}"


def count(cells: Mapping[int, Bools]) -> int:
    """How many cells are marked, over all aggregates."""
    return sum(int(each.sum()) for each in cells.values())


def _named(cells: Mapping[int, Bools], label: Callable[[int], str] | None) -> str:
    """The first few of these cells by their keys."""
    if label is None:
        return ""
    rows = np.flatnonzero(np.logical_or.reduce(list(cells.values())))
    shown = [label(int(row)) for row in rows[:MOST_NAMED]]
    more = f" and {rows.size - len(shown)} more" if rows.size > len(shown) else ""
    return f": {'; '.join(shown)}{more}"


def refusal(
    verdict: Verdict, columns: list[str], policy: Policy, *, alone: bool = False
) -> PersonalGroup:
    """The error for a single answer; ``alone``: compared within one statement only."""
    named = ", ".join(columns)
    where = f"the conditions on {named} select" if columns else "the conditions select"
    hint = "drop or widen one of these conditions, or ask for a larger group."
    if count(verdict.personal):
        return PersonalGroup(f"{where} one personal group", hint=hint)
    if count(verdict.few):
        return PersonalGroup(f"{where} fewer than {policy.min_rows} rows", hint=hint)
    if alone:
        return TooClose(
            "the aggregates of this statement together would single out one personal group",
            hint="weigh rows alike, and let conditions differ by more than one personal group.",
        )
    if verdict.cap:
        return TooClose(
            "this would single out one personal group together with your earlier answers, or"
            f" cannot be compared with them: {CAPS[verdict.cap]}",
            hint="ask for what follows from earlier answers, such as a question that you asked.",
        )
    return TooClose(
        "together with your earlier answers this would single out one personal group",
        hint="ask for a group that differs from those before by more than one personal group.",
    )
