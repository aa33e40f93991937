"""Tables that a statement loads into the answering database, and their reuse."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from privsql.engines import MemoryEngine, ScanEngine
from privsql.engines.recent import Recent
from privsql.session.settings import Settings
from privsql.sql.outer.parts import Out
from privsql.sql.plan.planner import (
    BlockPlan,
    Printed,
    cells_of,
    check_cells,
    check_values,
    check_work,
)
from privsql.sql.plan.query import Answered, Planned
from privsql.sql.reconstruct.axiswise import FIRST
from privsql.sql.reconstruct.columns import GROUP_BITS, GROUP_ROWS, GROUP_SQUARES, GROUP_SUM, Family
from udfs.intervals import critical

# Plans that are kept, half a megabyte each and as much in the database, and bytes of a plan's own
# tables that stay with it.  Answers are remembered apart, so a plan is for those that are not.
REMEMBERED = 24
STANDING = 100_000


# A statement, the settings it was asked under, and the form of its scans where one is forced.
Key = tuple[str, Settings, str | None]


class Workspace:
    """Tables of the statement under way in the answering database, each loaded once.

    Planning evaluates expressions over the tables that the reconstruction reads afterwards.
    """

    def __init__(self, memory: MemoryEngine) -> None:
        self._memory = memory
        self._held: dict[str, pa.Table | None] = {}  # None: perhaps not all of it

    def load(self, tables: Mapping[str, pa.Table]) -> list[str]:
        """Load those that are not there yet; their names."""
        new = {name: table for name, table in tables.items() if self._held.get(name) is not table}
        if new:
            self._held |= dict.fromkeys(new)
            self._memory.load_all(new)
            self._held |= new
        return list(new)

    def forget(self, *names: str) -> None:
        """Drop tables, those that are there."""
        self._memory.forget(*names)
        self.leave(*names)

    def leave(self, *names: str) -> None:
        """Let tables stay for later statements; they are no more of this one."""
        for name in names:
            self._held.pop(name, None)

    def clear(self) -> None:
        """Drop what a statement that was only planned, or that failed, has left."""
        if self._held:
            self.forget(*self._held)

    def prepared(self, printed: Printed, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Run SQL over tables that the statement will need again."""
        self.load(tables)
        return self._memory.run(*printed.both)

    def evaluated(self, printed: Printed, tables: Mapping[str, pa.Table]) -> pa.Table:
        """Run SQL over tables that are there for this once."""
        new: list[str] = []
        try:
            new = self.load(tables)
            return self._memory.run(*printed.both)
        finally:
            if new:
                self.forget(*new)


class Loading:
    """Scans, and loads what they bring; keeps plans that may be asked for again."""

    def __init__(
        self, engine: ScanEngine, memory: MemoryEngine, workspace: Workspace, most: int
    ) -> None:
        self._engine = engine
        self._most = most  # cells of an answer
        self._memory = memory
        self._workspace = workspace
        self._plans: Recent[Key, Planned] = Recent(REMEMBERED)
        self._standing: set[str] = set()  # prefixes of plans whose tables stay in memory

    def known(self, key: Key | None) -> Planned | None:
        """The plan of a statement that was asked before."""
        return None if key is None else self._plans.get(key)

    def remember(self, key: Key, planned: Planned) -> None:
        """Keep a plan; the one that was used longest ago goes when there are too many."""
        for old in self._plans.put(key, planned):
            for plan in old.plans if isinstance(old, Answered) else ():
                if plan.prefix in self._standing:
                    self._standing.remove(plan.prefix)
                    self._memory.forget(f"{plan.prefix}_z", *plan.tables)

    def forget(self, planned: Answered, loaded: Sequence[str], staying: bool) -> None:
        """Drop what a query loaded; tables that belong to a remembered plan stay for next time."""
        kept: set[str] = set()
        if staying:
            for plan in planned.plans:
                own = {f"{plan.prefix}_z", *plan.tables}
                small = sum(each.nbytes for each in plan.tables.values()) <= STANDING
                if small and own <= set(loaded):
                    self._standing.add(plan.prefix)
                    kept |= own
        self._workspace.leave(*kept)
        self.drop([name for name in loaded if name not in kept])

    def drop(self, loaded: Sequence[str]) -> None:
        """Drop what was loaded."""
        if loaded:
            self._workspace.forget(*loaded)

    def all_cells(
        self, plan: BlockPlan, scanned: pa.Table, loaded: list[str], hidden: bool
    ) -> None:
        """Have all cells of a block made although only the first of them are wanted.

        Which are the first depends on what is hidden of them.  If estimates are only rounded, it
        depends on less than they can be told apart by, and cells that are too many stay unmade.
        """
        if plan.first is None:
            return
        fits = cells_of(plan, scanned) <= self._most
        if hidden and not fits:
            check_cells(plan, scanned, self._most)
        if fits:
            name = f"{plan.prefix}_{FIRST}"
            self._workspace.load({name: plan.first.table(wanted=False)})
            loaded.append(name)

    def load(
        self, plan: BlockPlan, loaded: list[str], settings: Settings, outs: Sequence[Out]
    ) -> pa.Table:
        """Scan a block, and load what its reconstruction reads."""
        scanned = self._engine.scan(*plan.scan.both)
        check_work(plan, scanned, self._most)
        tables = {f"{plan.prefix}_scan": scanned}
        if plan.first is not None:
            tables[f"{plan.prefix}_{FIRST}"] = plan.first.table()
        if plan.watched and plan.moments:
            # The gate reads the personal groups of such a scan itself; nobody else does.
            spare = [family(k) for k, heavy in plan.watched.items() for family in _families(heavy)]
            tables[f"{plan.prefix}_scan"] = scanned.drop_columns(spare)
        if plan.beside is not None:
            tables[f"{plan.prefix}_beside"] = self._engine.scan(*plan.beside.both)
        for name, scan in plan.values.items():
            tables[name] = self._engine.scan(*scan.both)
            check_values(plan, tables[name])
        cells = 1
        if settings.simultaneous:
            cells = max(1, scanned.num_rows) * max(1, sum(out.estimate for out in outs))
        if settings.simultaneous or plan.prefix not in self._standing:
            z = critical(settings.confidence_level, cells)
            tables[f"{plan.prefix}_z"] = pa.table({"z": pa.array([z])})
            tables |= plan.tables
        loaded += tables
        self._workspace.load(tables)
        return scanned


def _families(weighted: bool) -> tuple[Family, ...]:
    weights = (GROUP_SUM, GROUP_SQUARES) if weighted else ()
    return (GROUP_BITS, GROUP_ROWS, *weights)
