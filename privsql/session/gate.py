"""The disclosure check between scan and reconstruction: which cells may be answered.

    engine ── ranges ──> groups and rows behind each cell ── judge ──> personal, or few
           ── sets ────> the same cells as vectors: weights of public tuples, functions of rows
                         ── account ──> what answers would give away together

Nothing is reconstructed before it has spoken.  Behind a server a user's answers are held against
all earlier ones.  Elsewhere the aggregates of one statement are held against each other: whoever
holds the file can read every published row of it anyway.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from privsql.answer.outcome import Personal
from privsql.engines import Memory, ScanEngine
from privsql.errors import Notice, NotSupportedError
from privsql.policy.journal import Journal
from privsql.policy.personal import Verdict, count, floats, judge, notices, warnings
from privsql.policy.public_rows import PublicRows
from privsql.release.manifest import Policy
from privsql.sql.catalog import Catalog
from privsql.sql.plan.planner import (
    Behind,
    BlockPlan,
    CellSet,
    Printed,
    content_scan,
    rows_scan,
    tuples_scan,
)
from privsql.sql.reconstruct.columns import (
    GROUP_BITS,
    GROUP_HIGH,
    GROUP_LOW,
    GROUP_ROWS,
    GROUP_SQUARES,
    GROUP_SUM,
    GROUPING,
    INFORMATIVE,
    KEY,
    REFUSED,
    SECRET,
    VECTOR,
)

if TYPE_CHECKING:  # sparse matrices, which only accounts need
    from privsql.policy.account import Account, Standing
    from privsql.policy.base import Asked, Base
    from privsql.policy.functions import Atoms
    from privsql.policy.history import Admitted, History
    from privsql.policy.served_table import ServedTable
    from privsql.policy.sketch.vectors import Space
    from privsql.policy.within.statement import Statement

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
    alone: bool = False  # answers were compared within the statement only

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


def together(served: Served | None, policy: Policy) -> bool:
    """Whether the answers of one statement are compared with each other alone."""
    return served is None and policy.differences == "check" and policy.personal_groups != "allow"


@dataclass(frozen=True)
class About:
    """The release of a session, as accounts of its answers need it."""

    release: str  # its identity
    catalog: Catalog
    policy: Policy
    total: int
    tables: Mapping[str, pa.Table]  # public tables that may be joined
    memory: str  # limit of a database


@dataclass(eq=False)
class Gate:
    """Judges the blocks of one session's statements."""

    engine: ScanEngine
    evaluate: Evaluate
    about: About
    served: Served | None
    # The scan of the rows' secret numbers, where there are measures; True asks for the numbers of
    # histories of format 1.
    secrets: Callable[[bool], Printed] | None
    _spaces: dict[bool, Space] = field(default_factory=dict)
    _formers: tuple[bool, ...] | None = None
    _alone: Statement | None = None  # of the statement under way, where nothing else is kept
    _bases: dict[bool, Base] = field(default_factory=dict)  # by whether rows take part
    _measured: bool = False
    _reserving: tuple[Account, list[list[Asked]]] | None = None

    @property
    def policy(self) -> Policy:
        """The release's."""
        return self.about.policy

    def begin(self, behind: Sequence[Behind | None]) -> None:
        """A new statement: its answers are held against each other where that may matter."""
        self._alone = None
        blocks = [each for each in behind if each is not None]
        combine = len(blocks) > 1 or any(not each.alone for each in blocks)
        if combine and together(self.served, self.policy):
            from privsql.policy.account import Limits
            from privsql.policy.within.statement import Statement

            texts = [text for b in blocks for each in b.sets() for text in each.texts.values()]
            base = self._base(any(text is not None for text in texts))
            leverage = self.policy.leverage
            self._alone = Statement(base, Limits(leverage.any, leverage.total))

    @property
    def rounded(self) -> bool:
        """Whether digits below a hundredth of the standard error are cut off."""
        return self.served is not None and self.policy.personal_groups == "refuse"

    def decide(self, plan: BlockPlan, behind: Behind, scanned: pa.Table) -> Decision:
        """Judge the cells of a block whose scan is loaded; what is admitted is remembered."""
        found = self.ranges(plan, behind, scanned)
        verdict = judge(found, behind.bases, self.policy, self.about.total)
        more: tuple[Notice, ...] = ()
        if accounted(self.served, self.policy) or self._alone is not None:
            verdict, more = self._compared(plan, behind, found, verdict)
        number = sum(cells.size for cells in verdict.personal.values())
        summary = Personal(
            self.policy.personal_groups,
            number,
            count(verdict.personal),
            count(verdict.few),
            count(verdict.close),
            count(verdict.refused),
        )
        alone = self._alone is not None
        said = (*notices(verdict, self.policy, _labels(found), alone=alone), *more)
        logged = self.served is not None and self.served.journal is not None
        return Decision(verdict, found, said, summary, _digest(found) if logged else "", alone)

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
        found = self._with_values(plan, behind, found)
        verdict = judge(found, behind.bases, policy, self.about.total)
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
        return self._with_values(plan, behind, self._ranges(plan, behind, scanned))

    def _with_values(self, plan: BlockPlan, behind: Behind, found: pa.Table) -> pa.Table:
        """Those behind the values of distinct counts as well."""
        if behind.values is None:
            return found
        values = self.engine.scan(*behind.values.ranges.both)
        tables = {f"{plan.prefix}_judged": found, f"{plan.prefix}_judged_values": values}
        return self.evaluate(behind.values.beside, tables)

    def _ranges(self, plan: BlockPlan, behind: Behind, scanned: pa.Table) -> pa.Table:
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
    ) -> tuple[Verdict, tuple[Notice, ...]]:
        """Compare the remaining cells with each other, and with earlier answers of the user."""
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
        close = {i: np.zeros(order.size, dtype=np.bool_) for i in behind.bases}
        self._sketched(plan, behind, verdict, order, numbered, close)
        # What one account turns away need not weigh on the next.
        refused = {i: cells | close[i] for i, cells in verdict.refused.items()}
        base = self._base(True) if self._alone is None else self._bases[self._measured]
        vectors = [Vectors(self, plan, each, numbered, base) for each in behind.sets()]
        cells: dict[tuple[int, ...], list[Asked]] = {}
        owners: dict[tuple[int, ...], list[tuple[int, int]]] = {}
        names = INFORMATIVE.within(found.column_names)
        known = {name: found.column(name).to_pylist() for name in names}
        for n in range(order.size):
            for i, those in behind.vectors.items():
                if refused[i][order[n]]:
                    continue
                told = [v for v in those if _told(known, behind.told[i][v], int(order[n]))]
                mine = [asked for each in vectors for v in told for asked in each.of(n, v)]
                if mine:
                    name = tuple(map(id, mine))
                    cells[name] = mine
                    owners.setdefault(name, []).append((i, int(order[n])))
        admitted, cap, said = self._admitted(list(cells.values()), base)
        for name, yes in zip(cells, admitted, strict=True):
            for i, cell in owners[name]:
                close[i][cell] |= not yes
        return verdict.with_close(close, self.policy, cap), said

    def _admitted(
        self, cells: list[list[Asked]], base: Base
    ) -> tuple[Sequence[bool], str | None, tuple[Notice, ...]]:
        """Which cells the account admits, and the cap that it met; they are in it then."""
        if self._alone is not None:
            return self._alone.admit(cells), None, ()
        served, table = self._account
        if self._reserving is not None:
            account, reserved = self._reserving
            base.prepare((a for cell in cells for a in cell), base.key)
            asked = [[part for part in (base.part(a, base.key) for a in cell) if part is not None]
                     for cell in cells]  # fmt: skip
            proposal = account.propose(asked)
            account.commit(proposal)
            reserved += cells
            return proposal.admission.admitted.tolist(), proposal.admission.cap, ()
        made: Admitted = served.history.check(served.user, table, cells)
        said = tuple(warnings(made.cap, made.before.share, made.after.share))
        return made.cells.tolist(), made.cap, said

    def standing(self) -> Standing:
        """How close the user's answers are to the limits."""
        if not accounted(self.served, self.policy):
            raise NotSupportedError(
                "no account of answers is kept here",
                hint="`privsql serve` keeps one where the policy is to check differences",
            )
        served, table = self._account
        return served.history.standing(served.user, table)

    @contextmanager
    def reserving(self) -> Iterator[None]:
        """Meanwhile answers are judged with each other alone, and become reserved."""
        if not accounted(self.served, self.policy):
            yield
            return
        from privsql.policy.account import Account

        served, table = self._account
        serving = table.serving
        account = Account(table.base.functions, serving.limits, serving.caps)
        self._reserving = account, []
        try:
            yield
            served.history.reserve(table, self._reserving[1])
        finally:
            self._reserving = None

    # -- bases ----------------------------------------------------------------------------

    @property
    def _account(self) -> tuple[Keeping, ServedTable]:
        """Who asks, and the table that is served."""
        from privsql.policy.account import Limits
        from privsql.policy.served_table import Serving

        served = self.served
        if served is None or served.history is None:
            raise AssertionError("differences with earlier answers are a server's")
        leverage = self.policy.leverage
        serving = Serving(
            self.about.catalog.table,
            self.about.release,
            self._state,
            lambda: self._public(True),
            self._database,
            Limits(leverage.any, leverage.total),
        )
        return Keeping(served.user, served.history), served.history.table(serving)

    def _base(self, measured: bool) -> Base:
        """What vectors are over; ``measured`` says whether functions of rows take part."""
        if accounted(self.served, self.policy):
            return self._account[1].base
        from privsql.policy.base import Base

        self._measured = measured or True in self._bases
        if self._measured not in self._bases:
            public = self._public(self._measured)
            self._bases[self._measured] = Base("", public, self._database)
        return self._bases[self._measured]

    def _database(self) -> Memory:
        made = Memory(memory_limit=self.about.memory)
        for name, table in self.about.tables.items():
            made.load(name, table)
        return made

    def _public(self, measured: bool) -> PublicRows:
        """The public rows of the release; without ``measured`` the tuples alone."""
        catalog = self.about.catalog
        tuples = self.engine.read(tuples_scan(catalog).sql)
        rows = None
        if measured and catalog.measures:
            rows = self.engine.read(rows_scan(catalog).sql)
        types = {name: kind for name, kind in catalog.columns if name not in catalog.sensitive}
        return PublicRows(types, catalog.grouping, tuples, rows)

    @cached_property
    def _state(self) -> str:
        """A name for the public rows: another publication of the same ones may have another."""
        content = self.engine.read(content_scan(self.about.catalog).sql).column(0)[0].as_py()
        tuples = self._coordinates_of_tuples().digest
        text = f"{self.about.release} {tuples} {content}"
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def close(self) -> None:
        """Let go of rows."""
        for base in self._bases.values():
            base.close()

    # -- histories of formats 1 and 2 ------------------------------------------------------

    def _sketched(
        self,
        plan: BlockPlan,
        behind: Behind,
        verdict: Verdict,
        order: Ints,
        numbered: pa.Table,
        close: Mapping[int, NDArray[np.bool_]],
    ) -> None:
        """Mark cells that are too close to answers in a history of an earlier format."""
        served = self.served
        if served is None or served.history is None or behind.former is None:
            return
        for former in self._earlier(served.history, served.user):
            from privsql.policy.sketch.vectors import cells_of

            scans = behind.former(former)
            atoms = self.engine.scan(*scans.atoms.both)
            tables = {f"{plan.prefix}_atoms": atoms, f"{plan.prefix}_cells": numbered}
            vectors = self.evaluate(scans.matched, tables)
            space = self._coordinates(former)
            refused = {i: cells | close[i] for i, cells in verdict.refused.items()}
            cells, owners = cells_of(vectors, behind.vectors, refused, order, space)
            account, release = served.history.account_of(served.user), self.about.release
            admission = served.history.sketched.check(account, release, space.atoms, cells)
            for (i, cell), admitted in zip(owners, admission.admitted, strict=True):
                close[i][cell] |= not admitted

    def _earlier(self, history: History, user: str) -> tuple[bool, ...]:
        """The coordinates of earlier formats in which the user was answered: True is format 1's."""
        account, release = history.account_of(user), self.about.release
        if self._formers is None:
            self._formers = ()
            if history.sketched.holds(account, release):
                # Which coordinates they are does not depend on the numbers themselves.
                now = self._coordinates(False)
                spaces = {True: replace(now, former=True), False: now}
                if self.secrets is None:
                    del spaces[True]
                self._formers = tuple(
                    former
                    for former, space in spaces.items()
                    if history.sketched.holds(account, release, space.atoms)
                )
        return self._formers

    def _coordinates_of_tuples(self) -> Atoms:
        from privsql.policy.functions import Atoms

        found = self.engine.scan(TUPLES)
        rows = found.column("rows").to_numpy().astype(np.int64)
        return Atoms(rows, found.column("groups").to_numpy().astype(np.int64))

    def _coordinates(self, former: bool) -> Space:
        """Made when first needed: it takes a scan where there are public measures."""
        from privsql.policy.sketch.vectors import Space

        if former not in self._spaces:
            atoms = self._coordinates_of_tuples()
            secrets = None
            if self.secrets is not None:
                scan = self.secrets(former)
                sums = self.engine.scan(scan.sql, scan.parameters)
                secrets = np.zeros((sums.num_columns - 1, atoms.rows.size))
                at = sums.column("atom").to_numpy().astype(np.int64)
                for b in range(len(secrets)):
                    secrets[b, at] = sums.column(SECRET(b)).to_numpy()
            self._spaces[former] = Space(atoms.rows, atoms.groups, secrets, former)
        return self._spaces[former]


@dataclass(frozen=True)
class Keeping:
    """A user, and the history of answers."""

    user: str
    history: History


class Vectors:
    """The vectors of the cells of one grouping set."""

    def __init__(
        self, gate: Gate, plan: BlockPlan, cells: CellSet, numbered: pa.Table, base: Base
    ) -> None:
        self._texts, self._base = cells.texts, base
        names = {
            part: f"{plan.prefix}_{part}" for part in ("cells", "atoms", "combined", "classes")
        }
        atoms = gate.engine.scan(*cells.atoms.both)
        self._combination: dict[int, int] | None = None
        if cells.combined is not None and cells.matched is not None:
            combined = gate.evaluate(cells.combined, {names["cells"]: numbered})
            pairs = (combined.column(name).to_pylist() for name in ("cell", "combination"))
            self._combination = dict(zip(*pairs, strict=True))
            atoms = gate.evaluate(
                cells.matched, {names["atoms"]: atoms, names["combined"]: combined}
            )
        self._read(atoms)
        self._classes: dict[str, dict[int, list[str]]] = {}
        if cells.classed is not None:
            for text in {text for text in cells.texts.values() if text is not None}:
                known, keys = base.classes(text)
                tables = {names["cells"]: numbered, names["classes"]: known}
                found = gate.evaluate(cells.classed, tables)
                mine = self._classes.setdefault(text, {})
                for cell, each in zip(*(found.column(n).to_pylist() for n in ("cell", "class")),
                                      strict=True):  # fmt: skip
                    mine.setdefault(cell, []).append(keys[each])
        self._made: dict[tuple[int, int, int, str], Asked] = {}

    def _read(self, atoms: pa.Table) -> None:
        """Tuples and weights of each combination and way, for every vector."""
        atom = np.asarray(atoms.column("atom").to_numpy()).astype(np.int64)
        self._weights = {v: floats(atoms, VECTOR(v)) for v in self._texts}
        self._atom = atom
        self._spans: dict[int, list[tuple[int, int]]] = {}
        if self._combination is None:
            sort = np.argsort(atom, kind="stable")
            self._atom = atom[sort]
            self._weights = {v: each[sort] for v, each in self._weights.items()}
            self._spans[0] = [(0, atom.size)]
            return
        pair = np.stack(
            [
                np.asarray(atoms.column(n).to_numpy()).astype(np.int64)
                for n in ("combination", "way")
            ]
        )
        turns = np.flatnonzero(np.any(np.diff(pair, axis=1) != 0, axis=0)) + 1
        for low, high in pairwise([0, *turns.tolist(), atom.size]):
            if high > low:
                self._spans.setdefault(int(pair[0, low]), []).append((low, high))

    def of(self, cell: int, v: int) -> list[Asked]:
        """The vectors that a cell has of a weight: one for each hidden value."""
        combination = 0 if self._combination is None else self._combination.get(cell, -1)
        text = self._texts[v]
        keys = [""]
        if text is not None and text in self._classes:
            keys = self._classes[text].get(cell, [])
        spans = self._spans.get(combination, [])
        return [
            asked
            for way in range(len(spans))
            for key in keys
            if (asked := self._asked(combination, way, v, key)).atoms.size
        ]

    def _asked(self, combination: int, way: int, v: int, key: str) -> Asked:
        from privsql.policy.base import Asked

        name = (combination, way, v, key)
        if name not in self._made:
            low, high = self._spans[combination][way]
            weights = self._weights[v][low:high]
            some = weights != 0
            self._made[name] = Asked(self._texts[v], key, self._atom[low:high][some], weights[some])
        return self._made[name]


def _told(known: Mapping[str, Sequence[bool | None]], pieces: Sequence[int], cell: int) -> bool:
    """Whether one of some pieces is no constant in a cell, as far as that depends on it."""
    names = [INFORMATIVE(t) for t in pieces]
    return not known or any(known[name][cell] is not False for name in names)


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
