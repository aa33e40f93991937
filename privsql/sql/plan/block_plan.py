"""The plan of one block: its scan and its reconstruction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from privsql.sql.bind.block import Block
from privsql.sql.parameters import Printed
from privsql.sql.plan.states import States
from privsql.sql.reconstruct.axiswise import First
from privsql.sql.reconstruct.sums import Step
from privsql.sql.scan.forms import MOMENTS


@dataclass(frozen=True)
class BlockPlan:
    """One block: what to scan, what to load beside it, how to reconstruct."""

    prefix: str
    block: Block
    scan: Printed
    beside: Printed | None = None  # a second scan, for exact aggregates that need their own
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()
    states: States | None = None
    pairs: tuple[tuple[int, int], ...] = ()  # aggregates whose covariances it has
    classes: tuple[tuple[int, int], ...] = ()  # and those with totals over cells
    informative: tuple[bool, ...] | None = None  # pieces that are no constants, where known
    # Bases whose personal groups the scan brings itself, and whether their rows have weights.
    watched: Mapping[int, bool] = field(default_factory=dict)
    # Whether any cell may have too few effective rows by the scan's bounds, so that states must
    # tell: queries that are asked in turn, while they say yes.
    doubtful: tuple[Printed, ...] = ()
    told: int = 0  # states that a cell would have then
    score_intervals: frozenset[int] = frozenset()  # aggregates that have one
    able: tuple[str, ...] = ()  # other forms of the same kind of scan
    values: Mapping[str, Printed] = field(default_factory=dict)  # scans of distinct counts
    many: int = 1  # cells that sensitive keys make of a group of public ones, at the most
    first: First | None = None  # the cells that are wanted, where that is not all of them
    form: str = ""  # of the scan (see ``forms``); none where nothing is estimated

    @property
    def grouped(self) -> bool:
        """Whether the block has a row for each group."""
        return self.block.grouped

    @property
    def estimated(self) -> bool:
        """Whether anything in it is reconstructed."""
        return self.states is not None

    @property
    def moments(self) -> bool:
        """Whether the scan adds up inverted rows itself, and brings no states."""
        return self.form in MOMENTS
