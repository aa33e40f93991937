"""The disclosure check between scan and reconstruction: which cells may be answered.

    engine ── ranges ──> groups and rows behind each cell ── judge ──> personal, or few
           ── atoms ───> the same cells as vectors over public tuples
                         ── history ──> what earlier answers of this user would give away with them

Nothing is reconstructed before it has spoken.  Differences are kept account of only behind a
server: whoever holds the file can read every published row of it anyway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsql.answer.outcome import Personal
from privsql.engines import Embedded
from privsql.errors import Notice
from privsql.policy.journal import Journal
from privsql.policy.personal import Verdict, count, floats, judge, notices
from privsql.release.manifest import Policy
from privsql.sql.plan.planner import Behind, BlockPlan, Printed
from privsql.sql.reconstruct.columns import (
    GROUP_BITS,
    GROUP_HIGH,
    GROUP_LOW,
    GROUP_ROWS,
    GROUP_SQUARES,
    GROUP_SUM,
    GROUPING,
    KEY,
    REFUSED,
    SECRET,
)

if TYPE_CHECKING:  # sparse matrices, which only a server's accounts need
    from privsql.policy.history import History
    from privsql.policy.vectors import Space

TUPLES = "SELECT privsql_rows AS rows, privsql_group AS groups FROM privsql.tuples ORDER BY rowid"

Evaluate = Callable[[Printed, Mapping[str, pa.Table]], pa.Table]
Ints = NDArray[np.int64]
RANGES = (KEY, GROUP_LOW, GROUP_HIGH, GROUP_ROWS, GROUP_SUM, GROUP_SQUARES)


@dataclass(frozen=True)
class Served:
    """What a server adds to a session: who asks, what was answered before, and the log."""

    user: str
    history: History | None = None
    journal: Journal | None = None


@dataclass(frozen=True)
class Decision:
    """The decision about one block."""

    verdict: Verdict
    cells: pa.Table  # keys of the cells that were judged
    notices: tuple[Notice, ...]
    personal: Personal
    digest: str  # names the groups behind the block, for the log

    @property
    def mask(self) -> pa.Table:
        """The keys of all cells, and which aggregates of each are hidden."""
        made = _keys(self.cells)
        for i, hidden in self.verdict.refused.items():
            made = made.append_column(REFUSED(i), pa.array(hidden))
        return made


def accounted(served: Served | None, policy: Policy) -> bool:
    """Whether a user's answers are compared with earlier ones."""
    return (
        served is not None
        and served.history is not None
        and policy.differences == "check"
        and policy.personal_groups != "allow"
    )


def open_to_all(policy: Policy) -> bool:
    """Whether everything may be answered."""
    return policy.personal_groups == "allow" and not policy.min_rows


@dataclass(eq=False)
class Gate:
    """Judges the blocks of one session's statements."""

    engine: Embedded
    evaluate: Evaluate
    policy: Policy
    total: int
    release: str
    served: Served | None
    # The scan of the rows' secret numbers, where there are measures; True asks for the numbers of
    # histories of format 1.
    secrets: Callable[[bool], Printed] | None
    _spaces: dict[bool, Space] = field(default_factory=dict)
    _has_former: bool | None = None

    @property
    def rounded(self) -> bool:
        """Whether digits below a hundredth of the standard error are cut off."""
        return self.served is not None and self.policy.personal_groups == "refuse"

    def decide(self, plan: BlockPlan, behind: Behind, scanned: pa.Table) -> Decision:
        """Judge the cells of a block whose scan is loaded; what is admitted is remembered."""
        found = self.ranges(plan, behind, scanned)
        verdict = judge(found, behind.bases, self.policy, self.total)
        if accounted(self.served, self.policy):
            verdict = self._compared(plan, behind, found, verdict)
        number = sum(cells.size for cells in verdict.personal.values())
        summary = Personal(
            self.policy.personal_groups,
            number,
            count(verdict.personal),
            count(verdict.few),
            count(verdict.close),
            count(verdict.refused),
        )
        said = tuple(notices(verdict, self.policy, _labels(found)))
        logged = self.served is not None and self.served.journal is not None
        return Decision(verdict, found, said, summary, _digest(found) if logged else "")

    def foreseen(self, plan: BlockPlan, behind: Behind | None) -> str:
        """The policy's decision on a block, in words.  Nothing is answered or recorded."""
        policy = self.policy
        if open_to_all(self.policy):
            return "allow: no group is treated as personal"
        if behind is None:
            return (
                "no sensitive value is revealed, or only totals of all rows, so no group is"
                " personal"
            )
        found = self.engine.scan(behind.ranges.sql, behind.ranges.parameters)
        if behind.together is not None:
            # Hidden columns are in the ranges; the states want them from the block's own scan.
            tables = {f"{plan.prefix}_members": found, f"{plan.prefix}_scan": found, **plan.tables}
            found = self.evaluate(behind.together, tables)
        verdict = judge(found, behind.bases, policy, self.total)
        cells = sum(each.size for each in verdict.personal.values())
        parts = [
            f"{count(verdict.personal)} of {cells} cells are about one personal group",
            f"{count(verdict.few)} about fewer than {policy.min_rows} rows",
            f"{count(verdict.refused)} would not be answered",
        ]
        more = (
            "; checked against your earlier answers as well"
            if accounted(self.served, self.policy)
            else ""
        )
        return f"{policy.personal_groups}: {', '.join(parts)}{more}"

    def ranges(self, plan: BlockPlan, behind: Behind, scanned: pa.Table) -> pa.Table:
        """The personal groups behind each cell, for each base of aggregates."""
        if behind.gathered is not None:
            if plan.moments:  # no states, so a row for each cell
                return _of_cells(scanned)
            return self.evaluate(behind.gathered, {})
        members = self.engine.scan(behind.ranges.sql, behind.ranges.parameters)
        if behind.together is None:
            return members
        return self.evaluate(behind.together, {f"{plan.prefix}_members": members})

    # -- differences ----------------------------------------------------------------------

    def _compared(
        self, plan: BlockPlan, behind: Behind, found: pa.Table, verdict: Verdict
    ) -> Verdict:
        """Compare the remaining cells with the user's earlier answers."""
        served = self.served
        if served is None or served.history is None:
            raise AssertionError("differences are checked by a server only")
        rows = np.maximum.reduce(
            [
                np.nan_to_num(floats(found, GROUP_ROWS(k)))
                for those in behind.bases.values()
                for k in those
            ]
        )
        # Large cells first: if one of two has to go it is the smaller one.
        order = np.argsort(-rows, kind="stable")
        place = np.empty(order.size, dtype=np.int64)
        place[order] = np.arange(order.size)
        numbered = _keys(found).append_column("cell", pa.array(place))
        from privsql.policy.vectors import cells_of

        close = {i: np.zeros(order.size, dtype=np.bool_) for i in behind.bases}
        for former in (True, False) if self._formerly(served) else (False,):
            scan = behind.former() if former and behind.former else behind.atoms
            atoms = self.engine.scan(scan.sql, scan.parameters)
            tables = {f"{plan.prefix}_atoms": atoms, f"{plan.prefix}_cells": numbered}
            vectors = self.evaluate(behind.matched, tables)
            space = self._coordinates(former)
            # What the first account turns away need not weigh on the second.
            refused = {i: cells | close[i] for i, cells in verdict.refused.items()}
            cells, owners = cells_of(vectors, behind.vectors, refused, order, space)
            admission = served.history.check(served.user, self.release, space.atoms, cells)
            for (i, cell), admitted in zip(owners, admission.admitted, strict=True):
                close[i][cell] |= not admitted
        return verdict.with_close(close, self.policy)

    def _formerly(self, served: Served) -> bool:
        """Whether the user has answers in the coordinates of histories of format 1."""
        if self._has_former is None:
            # Which coordinates they are does not depend on the numbers themselves.
            earlier = replace(self._coordinates(), former=True).atoms
            self._has_former = (
                self.secrets is not None
                and served.history is not None
                and served.history.holds(served.user, self.release, earlier)
            )
        return self._has_former

    def _coordinates(self, former: bool = False) -> Space:
        """Made when first needed: it takes a scan where there are public measures."""
        from privsql.policy.vectors import Space

        if former not in self._spaces:
            found = self.engine.scan(TUPLES)
            rows = found.column("rows").to_numpy().astype(np.int64)
            groups = found.column("groups").to_numpy().astype(np.int64)
            secrets = None
            if self.secrets is not None:
                scan = self.secrets(former)
                sums = self.engine.scan(scan.sql, scan.parameters)
                secrets = np.zeros((sums.num_columns - 1, rows.size))
                at = sums.column("atom").to_numpy().astype(np.int64)
                for b in range(len(secrets)):
                    secrets[b, at] = sums.column(SECRET(b)).to_numpy()
            self._spaces[former] = Space(rows, groups, secrets, former)
        return self._spaces[former]


def _labels(found: pa.Table) -> Callable[[int], str] | None:
    """How a notice names a cell: by its keys; an answer without keys needs no name."""
    keys = KEY.within(found.column_names)
    if not keys:
        return None
    return lambda row: ", ".join(str(found.column(name)[row].as_py()) for name in keys)


def _of_cells(scanned: pa.Table) -> pa.Table:
    """A scan's keys and ranges; all of its keys are in use."""
    names = scanned.column_names
    found = scanned.select([n for n in names if any(family.within([n]) for family in RANGES)])
    for name in names:
        s = GROUP_BITS.number(name)
        if s is not None:
            # Bits that some group number has, and those that some lack (see ``disclosure``).
            bits = scanned.column(name)
            known = np.asarray(bits.is_valid())
            filled = pc.fill_null(bits, pa.scalar(0, bits.type))
            packed = np.asarray(filled.to_numpy(), dtype=np.uint64)
            high, low = packed >> np.uint64(32), ~packed & np.uint64(2**32 - 1)
            for family, values in ((GROUP_LOW, low), (GROUP_HIGH, high)):
                shown = pa.array(values.astype(np.float64), mask=~known)
                found = found.append_column(family(s), shown)
    nothing = pa.array(np.zeros(found.num_rows, dtype=np.int64))
    for name in names:
        i = KEY.number(name)
        if i is not None:
            found = found.append_column(GROUPING(i), nothing)
    return found


def _keys(cells: pa.Table) -> pa.Table:
    """What tells cells apart: their keys, and which of those are in use."""
    names = cells.column_names
    return cells.select([*KEY.within(names), *GROUPING.within(names)])


def _digest(found: pa.Table) -> str:
    """A name for the groups behind a block: public, and short enough for a log."""
    made = hashlib.sha256()
    for name in found.column_names:
        if any(family.within([name]) for family in (GROUP_LOW, GROUP_HIGH, GROUP_ROWS)):
            made.update(name.encode())
            values = np.nan_to_num(floats(found, name), nan=-1)
            made.update(np.sort(values).tobytes())
    return made.hexdigest()[:16]
