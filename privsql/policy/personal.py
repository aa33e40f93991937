"""Personal groups: an answer about one person's peers is an answer about that person.

    refuse   a single answer is an error; in a GROUP BY the cell is NULL, and a notice says so
    flag     the value stays, and a notice says which cells are personal
    allow    nothing is said

A sensitive answer over fewer than ``min_rows`` rows is refused as well.  The whole table is
never personal, and an empty selection is no person's.  (reconstruction, 8)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from privsql.errors import Notice, NotSupportedError
from privsql.release.manifest import Policy

Bools = NDArray[np.bool_]


class PersonalGroup(NotSupportedError):  # noqa: N818 - says what was asked for
    """The rows that were asked for are one personal group, or too few."""

    code = "personal-group"
    sqlstate = "42501"


@dataclass(frozen=True)
class Verdict:
    """Which cells of a block may not be shown: one array an aggregate, over the scan's rows."""

    personal: Mapping[int, Bools]
    few: Mapping[int, Bools]
    refused: Mapping[int, Bools]

    @property
    def any_refused(self) -> bool:
        """Whether anything has to be hidden."""
        return any(cells.any() for cells in self.refused.values())


def judge(
    scanned: pa.Table, selections: Mapping[int, Sequence[int]], policy: Policy, total: int
) -> Verdict:
    """Decide for every cell, from the smallest and largest group number behind it."""
    personal: dict[int, Bools] = {}
    few: dict[int, Bools] = {}
    refused: dict[int, Bools] = {}
    for aggregate, sums in selections.items():
        personal[aggregate] = np.zeros(scanned.num_rows, dtype=np.bool_)
        few[aggregate] = np.zeros(scanned.num_rows, dtype=np.bool_)
        # One sum over one group is enough: the others of a formula may be known.
        for s in sums:
            rows = np.asarray(scanned.column(f"n{s}").to_numpy(), dtype=np.int64)
            low = scanned.column(f"lo{s}").to_numpy()
            high = scanned.column(f"hi{s}").to_numpy()
            some = (rows > 0) & (rows < total)
            personal[aggregate] |= some & (low == high)
            few[aggregate] |= some & (rows < policy.min_rows)
        hidden = few[aggregate]
        if policy.personal_groups == "refuse":
            hidden = hidden | personal[aggregate]
        refused[aggregate] = hidden
    return Verdict(personal, few, refused)


def notices(verdict: Verdict, policy: Policy) -> list[Notice]:
    """What has to be said about cells that were hidden or are personal."""
    found = []
    hidden = sum(int(cells.sum()) for cells in verdict.refused.values())
    if hidden:
        found.append(
            Notice(
                "personal-group",
                f"{hidden} cell{'s are' if hidden > 1 else ' is'} not answered: the rows behind"
                f" {'them' if hidden > 1 else 'it'} are one personal group, or fewer than"
                f" {policy.min_rows}",
            )
        )
    marked = sum(int(cells.sum()) for cells in verdict.personal.values())
    if marked and policy.personal_groups == "flag":
        found.append(
            Notice(
                "personal-group",
                f"{marked} cell{'s are' if marked > 1 else ' is'} about one personal group",
            )
        )
    return found


def refusal(verdict: Verdict, columns: list[str], policy: Policy) -> PersonalGroup:
    """The error for a single answer."""
    named = ", ".join(columns)
    where = f"the conditions on {named} select" if columns else "the conditions select"
    if any(cells.any() for cells in verdict.personal.values()):
        return PersonalGroup(
            f"{where} one personal group",
            hint="drop or widen one of these conditions, or ask for a larger group.",
        )
    return PersonalGroup(
        f"{where} fewer than {policy.min_rows} rows",
        hint="drop or widen one of these conditions, or ask for a larger group.",
    )
