"""Random queries of the oracle's grammar, and mutations that try to isolate a personal group.

Two releases of one table, perturbed anew: their public columns are equal, their sensitive ones
are not.  Whatever the gate decides must be the same for both, since it depends on public columns
alone; and a query that is cut down to the rows of one group must have the same answer to the
last digit, since nothing of it may depend on a published value.

Counts and averages under plain public conditions are recomputed on the published table: a cell
that was answered has rows of two groups at least, and as many as the release asks for.

FUZZ_SECONDS=600 fuzzes for that long.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.errors import Error
from privsql.policy.history import History
from privsql.policy.limits import Limits
from privsql.policy.personal import PersonalGroup
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.oracle.generator import generate
from tests.oracle.tables import COLUMNS, dimensions, raw_rows, spec
from tests.sizes import sized

SECONDS = float(os.environ.get("FUZZ_SECONDS", sized("3", "120")))  # of CPU, for each of the two
SEED = int(os.environ.get("FUZZ_SEED", "5"))
ROWS, LEAST = 500, 5
GROUPING = tuple(c.name for c in COLUMNS if not c.sensitive and c.key)
HIDDEN = re.compile(r"privsql_(group|weight|multiplicity|rows|q\d)")
FROM = re.compile(r"\bFROM visits\b(?:\s+(?:AS\s+)?(t|v|visits)\b)?")


@dataclass(frozen=True)
class Got:
    """What came of a statement, as far as it can be compared."""

    code: str  # of the error, or empty
    text: str
    refused: int = 0
    rows: tuple[tuple[str, ...], ...] = ()
    bars: tuple[str, ...] = ()


class World:
    """One release with a session behind a server, and DuckDB on its published rows."""

    def __init__(self, folder: Path, seed: int) -> None:
        source, self.path = folder / "visits.parquet", folder / f"{seed}.duckdb"
        pq.write_table(raw_rows(ROWS, 11), source)
        text = spec("plain").replace("retention = 1", "retention = 0.5")
        text = text.replace('personal_groups = "allow"', 'personal_groups = "refuse"')
        text = text.replace("min_rows = 0", f"min_rows = {LEAST}")
        (folder / "spec.toml").write_text(f'{text}[groups]\nmerge = "none"\n', encoding="utf-8")
        privsql.publish(str(source), self.path, spec=folder / "spec.toml", seed=seed)
        self.session = self.opened()

    def opened(self) -> Session:
        """A session of somebody without a past."""
        served = Served("ann", History(None))
        return Session(self.path, tables=dimensions(), limits=Limits(seconds=20), served=served)

    def ask(self, sql: str, parameters: Any = None) -> Got:
        """Answer, or an error of ours; anything else fails the test."""
        try:
            outcome = self.session.run(sql, parameters)
        except Error as problem:
            return Got(problem.code, str(problem))
        lists = [column.to_pylist() for column in outcome.table.columns]
        rows = tuple(sorted(tuple(map(repr, row)) for row in zip(*lists, strict=True)))
        bars = tuple(sorted(repr(row) for bar in outcome.bars.values() for row in bar.to_pylist()))
        said = " ".join([*outcome.table.column_names, *map(str, outcome.notices)])
        return Got("", said, outcome.personal.refused, rows, bars)


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, World]]:
    folder = tmp_path_factory.mktemp("fuzz")
    pair = World(folder, 1), World(folder, 2)
    yield pair
    for world in pair:
        world.session.close()


def one_group(rng: random.Random, world: World) -> str:
    """A condition that holds for the rows of one personal group."""
    with duckdb.connect(str(world.path), read_only=True) as con:
        groups = con.table("privsql.tuples").select(*GROUPING).order("ALL").fetchall()
    parts = []
    for name, value in zip(GROUPING, rng.choice(groups), strict=True):
        shown = "NULL" if value is None else repr(value)
        parts.append(f"{name} IS NOT DISTINCT FROM {shown}")
    return " AND ".join(parts)


def isolated(sql: str, condition: str) -> str:
    """The same about fewer rows."""

    def smaller(found: re.Match[str]) -> str:
        return f"FROM (SELECT * FROM visits WHERE {condition}) AS {found[1] or 'visits'}"

    return FROM.sub(smaller, sql)


def test_decisions_and_answers_do_not_depend_on_one_groups_values(
    worlds: tuple[World, World],
) -> None:
    rng, begun, seen = random.Random(SEED), time.process_time(), Counter[str]()
    one, other = worlds
    # What must be seen does not depend on how fast the machine is today.
    while time.process_time() - begun < SECONDS or not (
        seen["whole"] and seen["answered"] and seen["personal-group"] + seen["cells refused"]
    ):
        sql, parameters = generate(rng).printed()
        kind = rng.choice(("isolated", "isolated", "whole"))
        if kind == "isolated":
            sql = isolated(sql, one_group(rng, one))
        first, second = one.ask(sql, parameters), other.ask(sql, parameters)
        for got in (first, second):
            assert not HIDDEN.search(got.text), sql
            assert got.code != "internal", sql
        assert (first.code, first.refused) == (second.code, second.refused), sql
        if kind == "isolated":
            assert (first.rows, first.bars) == (second.rows, second.bars), sql
        seen[kind] += 1
        seen[first.code or "answered"] += 1
        seen["cells refused"] += first.refused
    assert seen["answered"]
    assert seen["personal-group"] + seen["cells refused"] > 0


# -- plain conditions, recomputed -----------------------------------------------------------


@dataclass(frozen=True)
class Plain:
    """An aggregate under a sensitive condition, public conditions and public keys."""

    keys: tuple[str, ...]
    value: str
    where: tuple[str, ...]

    @property
    def sql(self) -> str:
        """The question."""
        tail = f" GROUP BY {', '.join(self.keys)}" if self.keys else ""
        where = " AND ".join(["smoker", *self.where])
        return f"SELECT {', '.join([*self.keys, self.value])} AS v FROM visits WHERE {where}{tail}"

    @property
    def behind(self) -> str:
        """Groups and rows of each cell, on the published table itself."""
        same = " AND ".join(f"visits.{c} IS NOT DISTINCT FROM u.{c}" for c in GROUPING)
        shown = [*(f"visits.{k}" for k in self.keys), "count(DISTINCT u.privsql_group)", "count(*)"]
        where = " AND ".join(["TRUE", *(f"({w})" for w in self.where)])
        rows = f"(SELECT * FROM visits WHERE {where}) AS visits"
        tail = f" GROUP BY {', '.join(f'visits.{k}' for k in self.keys)}" if self.keys else ""
        return f"SELECT {', '.join(shown)} FROM {rows} JOIN privsql.tuples AS u ON {same}{tail}"


def plain(rng: random.Random) -> Plain:
    """Narrow conditions: most cells are small."""
    columns = {c.name: c for c in COLUMNS}
    where = []
    for name in rng.sample((*GROUPING, "cost"), rng.randint(1, 4)):
        value = repr(rng.choice(columns[name].samples))
        shapes = ["{} = {}", "{} IN ({})", "{} BETWEEN {} AND {}", "NOT ({} <> {})", "{} <= {}"]
        shape = rng.choice(shapes)
        where.append(shape.format(name, *[value] * (shape.count("{}") - 1)))
    keys = tuple(rng.sample(GROUPING, rng.randint(0, 3)))
    value = rng.choice(("COUNT(*)", "AVG(price)", "SUM(cost)", "MEDIAN(age)"))
    return Plain(keys, value, tuple(where))


def test_what_is_answered_is_about_several_groups(worlds: tuple[World, World]) -> None:
    rng, begun, seen = random.Random(SEED + 1), time.process_time(), Counter[str]()
    world = worlds[0]
    session = world.opened()
    with duckdb.connect(str(world.path), read_only=True) as con:
        while time.process_time() - begun < SECONDS or not seen["answered"]:
            query = plain(rng)
            behind = {row[:-2]: row[-2:] for row in con.execute(query.behind).fetchall()}
            try:
                rows = session.run(query.sql).table.to_pylist()
            except PersonalGroup as problem:
                seen[problem.code] += 1
                continue
            for row in rows:
                groups, number = behind.get(tuple(row[k] for k in query.keys), (0, 0))
                if row["v"] is not None and number:
                    assert groups > 1, query.sql
                    assert number >= LEAST, query.sql
                    seen["answered"] += 1
                else:
                    seen["empty"] += 1
    session.close()
    assert seen["empty"] + seen["personal-group"]
