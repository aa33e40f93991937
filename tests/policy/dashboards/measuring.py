"""Limits on leverage against refused cells of dashboards and tables, and against attacks."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from privsql.fronts.demo import questions as demo
from privsql.fronts.demo.recipe import clinic
from privsql.policy.account import Account, Limits
from privsql.publish.job import publish
from tests.policy.dashboards.attempts import ATTACKS, Reached, Target
from tests.policy.dashboards.cells import Cells, Tally, asked
from tests.policy.dashboards.people import People
from tests.policy.dashboards.statements import Aggregate, Statement
from tests.publish import test_adult

# Loose ones first.
PAIRS = ((0.95, 0.9), (0.9, 0.9), (0.9, 0.8), (0.8, 0.8), (0.8, 0.7))
LIMITS = tuple(Limits(*pair) for pair in PAIRS)
# Rows of the clinic that is attacked, groups, draws: an error over another depends on none of them.
FEWER, GROUPS, DRAWS = 20_000, 5, 1_000
ADULT = ("education", "occupation", "race", "sex")


@dataclass(frozen=True)
class Board:
    """A dashboard under several limits."""

    name: str
    statements: int
    functions: int  # of measures, the constant included
    held: int  # bytes that these take
    tallies: tuple[Tally, ...]  # for each pair of limits


@contextmanager
def clinic_release(rows: int = demo.ROWS) -> Iterator[Path]:
    """The demo's release, or a smaller one by the same recipe; there every tuple is a group.

    Of all its rows every tuple is a group as well: no two values are alike in so many.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = clinic(rows, np.random.default_rng(demo.TABLE_SEED))
        pq.write_table(table, folder / demo.SOURCE)
        apart = '\n[groups]\nmerge = "none"\n' if rows < demo.ROWS else ""
        (folder / demo.SPEC).write_text(demo.SPEC_TEXT + apart, encoding="utf-8")
        made = folder / demo.RELEASE
        publish(None, made, spec=folder / demo.SPEC, seed=demo.PUBLISH_SEED)
        yield made


@contextmanager
def adult_release() -> Iterator[Path]:
    """The census table, its values merged as in the paper."""
    with tempfile.TemporaryDirectory() as name:
        test_adult.publish(Path(name), source="raw", seed=1)
        yield Path(name) / "a.duckdb"


def measured(
    name: str, people: People, statements: Sequence[Statement], limits: Sequence[Limits] = LIMITS
) -> Board:
    """One user without a past asks all statements in order, once for each pair of limits.

    Leverages only grow: where the lowest of all limits refuse nothing, none of the others do.
    """
    functions = people.functions()
    cells = Cells(people, functions)
    made = [cells.of(statement) for statement in statements]

    def tally(pair: Limits) -> Tally:
        account, counted = Account(functions, pair), Tally()
        for each in made:
            asked(account, each, counted)
        return counted

    lowest = Limits(min(pair.any for pair in limits), min(pair.total for pair in limits))
    first = tally(lowest)
    tallies = [first if first.close == 0 or pair == lowest else tally(pair) for pair in limits]
    return Board(name, len(statements), len(functions), functions.held, tuple(tallies))


def tables(labels: bool) -> list[Statement]:
    """All one-, two- and three-way tables of ADULT, small ones first."""
    names = [f"{name}_label" for name in ADULT] if labels else list(ADULT)
    count = (Aggregate(),)
    return [
        Statement(columns, count, ("income = '>50K'",), table="adult")
        for size in (1, 2, 3)
        for columns in itertools.combinations(names, size)
    ]


def attacked(
    people: People,
    limits: Limits,
    groups: int,
    draws: int,
    kinds: Iterable[str] = ATTACKS,
) -> dict[str, list[Reached]]:
    """Each attack on groups of many sizes, from the smallest of 20 rows on to the largest."""
    sizes = np.bincount(people.atoms.groups, people.atoms.rows)
    order = np.flatnonzero(sizes >= 20)[np.argsort(sizes[sizes >= 20], kind="stable")]
    chosen = order[np.linspace(0, order.size - 1, groups).astype(np.int64)]
    return {
        kind: [
            ATTACKS[kind](Target(people, int(g), limits, seed, draws))
            for seed, g in enumerate(chosen)
        ]
        for kind in kinds
    }


def printed(title: str, head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table as Markdown."""
    rows = [[title, *head], ["---"] + ["---:"] * len(head), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def costs(boards: Sequence[Board], limits: Sequence[Limits] = LIMITS) -> str:
    """Cells that are refused: by themselves, and by each pair of limits."""
    head = [
        "statements",
        "cells",
        "personal",
        *(f"{each.any:g} / {each.total:g}" for each in limits),
    ]
    lines = [
        [
            board.name,
            f"{board.statements:,}",
            f"{board.tallies[0].cells:,}",
            f"{board.tallies[0].personal:,}",
            *(
                f"{tally.close:,}" + (f" (cap on {tally.cap})" if tally.cap else "")
                for tally in board.tallies
            ),
        ]
        for board in boards
    ]
    return printed("cells refused at any / total", head, lines)


def errors(people: People, groups: int, draws: int, limits: Sequence[Limits] = LIMITS) -> str:
    """The least error of each attack, over groups: on draws, and by theory."""
    found = [attacked(people, each, groups, draws) for each in limits]
    head = [f"{each.any:g} / {each.total:g}" for each in limits]

    def told(reached: Sequence[Reached]) -> str:
        best = min(reached, key=lambda one: one.theory)
        return f"{best.ratio:.2f} ({best.theory:.2f})"

    lines = [[kind, *(told(each[kind]) for each in found)] for kind in ATTACKS]
    bound = [f"({1 / np.sqrt(each.total):.2f}, {1 / np.sqrt(each.any):.2f})" for each in limits]
    return printed("error of an attack", head, [*lines, ["1 / sqrt of total, any", *bound]])


def unprotected(people: People, limits: Sequence[Limits] = LIMITS) -> list[str]:
    """Groups with more than the limit's share of all rows, and their rows, for each pair."""
    found = [people.left_out(each.any) for each in limits]
    return [f"{each['groups']:,.0f} ({each['rows']:,.0f})" for each in found]


Say = Callable[[str], None]


def report(say: Say, boards: dict[str, Callable[[], list[Statement]]], rows: int) -> None:
    """Everything that docs/threat-model.md shows."""
    made = []
    with clinic_release(rows) as path:
        people = People.of(path)
    made += [measured(name, people, board()) for name, board in boards.items()]
    left = [[_size("the clinic", people), *unprotected(people)]]
    with clinic_release(FEWER) as path:
        attacks = errors(People.of(path), GROUPS, DRAWS)
    with adult_release() as path:
        for labels in (False, True):
            adult = People.of(path, labels)
            name = f"ADULT by {'merged ' if labels else ''}values"
            made.append(measured(name, adult, tables(labels)))
        left.append([_size("ADULT", adult), *unprotected(adult)])
    say(costs(made))
    say("")
    say(attacks)
    say("")
    head = [f"{each.any:g} / {each.total:g}" for each in LIMITS]
    say(printed("groups left out, and their rows", head, left))


def _size(name: str, people: People) -> str:
    found = people.left_out(1.0)
    of, largest = found["of groups"], found["largest"]
    return f"{name}: {of:,.0f} groups, the largest {largest:.1%} of {found['of rows']:,.0f} rows"
