"""Attacks on the count of one group, and the error that they reach under given limits.

    padding      the group and k rows of another one, as few as are admitted
    partner      the group and all of another one, the smallest that is admitted
    complement   all rows, and all rows but the group and k others, as few as are admitted
    chain        nested sets that grow by as many rows, the group within every second one
    part         rows of the group below its median cost, and k rows of another

Whoever knows the rate of all other rows subtracts what they add and is left with their noise.  With
c = P 1_g scaled to a sum of n_g over the group, P the projection on the span of the answers:

    error / error of the direct question = |c| / sqrt(n_g) = 1 / sqrt(|P 1_g|^2 / n_g)

which is measured here on draws of the perturbation, and beside it stands the figure of theory,
1 / sqrt(total(g)) (for a part, 1 / sqrt of its own share).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privsql.policy.account import Account, Limits, Part
from privsql.policy.functions import Functions
from tests.policy.dashboards.people import People

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
RETENTION = 0.5


@dataclass(frozen=True)
class Reached:
    """What is known of a group after an attack."""

    total: float  # share of the target that the answers determine
    ratio: float  # error over the direct question's, on draws
    answers: int
    refused: int

    @property
    def theory(self) -> float:
        return float(1 / np.sqrt(self.total)) if self.total > 0 else float("inf")


class Target:
    """One group under attack."""

    def __init__(self, people: People, group: int, limits: Limits, seed: int, draws: int) -> None:
        self.people = people
        self.limits = limits
        self.rng = np.random.default_rng([17, seed])
        self.draws = draws
        of_row = people.atoms.groups[people.atom]
        self.own = of_row == group
        sizes = np.bincount(people.atoms.groups, people.atoms.rows)
        self.others = [g for g in np.argsort(sizes, kind="stable") if g != group and sizes[g] > 0]
        # Rows of other groups in an order that a condition on measures can cut: day by day.
        day = people.values("visited").astype("datetime64[D]").astype(np.int64)
        order = np.lexsort((people.values("cost"), day))
        self.rest = order[~self.own[order]]
        self.of_row = of_row

    # -- sets of rows --------------------------------------------------------------------

    def some(self, count: int, after: int = 0) -> Bools:
        """So many rows of other groups."""
        made = np.zeros(self.own.size, dtype=np.bool_)
        made[self.rest[after : after + count]] = True
        return made

    def fewest(self, admitted: Callable[[int], bool]) -> int:
        """The smallest number with which a question is admitted; a larger one always is."""
        low, high = -1, 1
        while not admitted(high):
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if admitted(middle) else (middle, high)
        return high

    # -- attacks -------------------------------------------------------------------------

    def padding(self) -> Reached:
        return self._padded(self.own, [])

    def part(self) -> Reached:
        cost = self.people.values("cost")
        return self._padded(self.own & (cost < np.median(cost[self.own])), [])

    def complement(self) -> Reached:
        every = np.ones_like(self.own)
        return self._padded(self.own, [every], every)

    def partner(self) -> Reached:
        tried: list[int] = []

        def sets(number: int) -> list[Bools]:
            return [self.own | (self.of_row == self.others[min(number, len(self.others) - 1)])]

        def admitted(number: int) -> bool:
            tried.append(number)
            return self._asked(sets(number)) is not None

        fewest = self.fewest(admitted)
        return self._reached(self.own, sets(fewest), len(tried))

    def chain(self) -> Reached:
        """B1, g + B2, B3, g + B4, ...: each set holds the one before it."""
        step = int(self.own.sum())
        account = Account(self.people.functions(), self.limits)
        taken: list[Bools] = []
        refused = 0
        for i in range(1, 25):
            wanted = self.some(i * step) | (self.own & (i % 2 == 0))
            if self._ask(account, wanted):
                taken.append(wanted)
            else:
                refused += 1
        return self._reached(self.own, taken, refused)

    def _padded(
        self, target: Bools, before: Sequence[Bools], whole: Bools | None = None
    ) -> Reached:
        def sets(count: int) -> list[Bools]:
            wanted = target | self.some(count)
            return [*before, wanted if whole is None else whole & ~wanted]

        tried: list[int] = []

        def admitted(count: int) -> bool:
            tried.append(count)
            return self._asked(sets(count)) is not None

        fewest = self.fewest(admitted)
        return self._reached(target, sets(fewest), len(tried))

    # -- asking --------------------------------------------------------------------------

    def _ask(self, account: Account, wanted: Bools) -> bool:
        functions: Functions = account._state.groups.functions
        atoms = np.unique(self.people.atom[wanted])
        part = Part(functions.add(wanted), atoms, np.ones(atoms.size))
        proposal = account.propose([[part]])
        account.commit(proposal)
        return bool(proposal.admission.admitted[0])

    def _asked(self, wanted: Sequence[Bools]) -> list[Bools] | None:
        """The sets, if all of them are admitted one after the other by a fresh account."""
        account = Account(self.people.functions(), self.limits)
        return list(wanted) if all(self._ask(account, each) for each in wanted) else None

    # -- what is known then --------------------------------------------------------------

    def _reached(self, target: Bools, sets: Sequence[Bools], refused: int) -> Reached:
        V = np.array(sets, dtype=np.float64)
        one = target.astype(np.float64)
        share, *_ = np.linalg.lstsq(V @ V.T, V @ one, rcond=None)
        c = share @ V
        total = float(c @ one / one.sum())
        c = c / total if total > 0 else c
        return Reached(total, self._ratio(c, one), len(sets), refused)

    def _ratio(self, c: Floats, one: Floats) -> float:
        """Errors of two weighted sums, on the same draws of the perturbation."""
        used = np.abs(c) > 1e-9 * np.abs(c).max()
        both = np.array([c[used], one[used]])
        squares = np.zeros(2)
        for _ in range(self.draws):
            # A column of two values, one of them in 30 of 100 rows.
            truth = self.rng.random(both.shape[1]) < 0.3
            kept = self.rng.random(truth.size) < RETENTION
            published = np.where(kept, truth, self.rng.random(truth.size) < 0.5)
            estimate = (published - (1 - RETENTION) / 2) / RETENTION
            squares += (both @ (estimate - truth)) ** 2
        return float(np.sqrt(squares[0] / squares[1]))


ATTACKS: dict[str, Callable[[Target], Reached]] = {
    "padding": Target.padding,
    "partner": Target.partner,
    "complement": Target.complement,
    "chain": Target.chain,
    "part": Target.part,
}
