"""Groups that could exist under a condition: DuckDB's groups on the raw table are all among them.

Random keys, conditions and sources of the oracle's grammar, without an aggregate; at retention 1
and below it.  Where no sensitive column decides, the groups are DuckDB's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from privsql.session.session import Session
from tests.oracle.expressions import Expressions
from tests.oracle.nodes import Node, clause, items, node, text, touches
from tests.oracle.perturbed import perturbed_world
from tests.oracle.running import LIMITS, published
from tests.oracle.sources import Source, source, where_of
from tests.oracle.tables import World
from tests.sizes import sized

SEED = 2041
QUERIES = sized(40, 3_000)


@dataclass(frozen=True)
class Listing:
    """A query for groups alone, and whether sensitive columns decide about them."""

    sql: str
    sensitive: bool


def listing(rng: random.Random) -> Listing:
    at: Source = source(rng, sensitive=rng.choice((1, 1, 2)), public=rng.randint(1, 3))
    expressions = Expressions(rng, at.columns, parameters=False)
    keys: dict[str, Node] = {}
    for _ in range(rng.choice((1, 1, 2))):
        key, name, _ = expressions.key()
        keys.setdefault(name, key)
    condition = expressions.condition(2)
    where = where_of(at, condition, "where") or clause("")
    shown = [node("item", key, f" AS k{i}") for i, key in enumerate(keys.values())]
    distinct = rng.random() < 0.5
    head: tuple[str | Node, ...] = (
        "SELECT DISTINCT " if distinct else "SELECT ",
        items("s", shown),
    )
    tail = () if distinct else (" GROUP BY ", items("keys", list(keys.values())))
    whole = node("query", *at.before(), *head, " FROM ", at.node, where, *tail)
    return Listing(text(whole), any(map(touches, (condition, *keys.values(), *at.filters))))


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[World, Session]]]:
    folder = tmp_path_factory.mktemp("listing")
    with published(folder, SEED, ("sparse", "compacted")) as exact:
        noisy = [perturbed_world(folder, name, SEED) for name in ("mixed",)]
        found = [(w, Session(w.release, tables=w.tables)) for w in (*exact, *noisy)]
        yield found
        for world, session in found:
            session.close()
            if world in noisy:
                world.raw.close()


def test_groups_of_the_raw_table_are_among_those_that_could_exist(
    worlds: list[tuple[World, Session]],
) -> None:
    rng, told = random.Random(SEED), 0
    for i in range(QUERIES):
        asked, (world, session) = listing(rng), worlds[i % len(worlds)]
        raw = set(world.raw.execute(asked.sql).fetchall())
        try:
            outcome = session.run(asked.sql)
        except LIMITS:
            continue
        rows = list(zip(*(each.to_pylist() for each in outcome.table.columns), strict=True))
        assert raw <= set(rows), asked.sql
        assert len(set(rows)) == len(rows), asked.sql
        assert not outcome.bars
        said = "domain" in {notice.code for notice in outcome.notices}
        told += said
        if not asked.sensitive:
            assert raw == set(rows), asked.sql
            assert not said, asked.sql
        elif raw != set(rows):
            assert said, asked.sql
    assert told > QUERIES / 4
