"""A count must be what SQL says of the domain's own values: DuckDB is asked."""

import random
from datetime import date, datetime, timedelta
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from privsql.channels import Categorical, Domain, Grid, Interval

PREDICATES = {
    "c < ?": lambda a, b: Interval.below(a),
    "c <= ?": lambda a, b: Interval.at_most(a),
    "c > ?": lambda a, b: Interval.above(a),
    "c >= ?": lambda a, b: Interval.at_least(a),
    "c BETWEEN ? AND ?": Interval.between,
    "c > ? AND c < ?": Interval.open,
    "c >= ? AND c < ?": lambda a, b: Interval(a, b, high_closed=False),
    "c <> ?": lambda a, b: [Interval.below(a), Interval.above(a)],
    "c = ?": lambda a, b: [a],
    "c IN (?, ?)": lambda a, b: [a, b],
    "c < ? OR c > ? OR c IS NULL": lambda a, b: [Interval.below(a), Interval.above(b), None],
}


def a_number(rng):
    value = rng.randint(-150, 1500)
    return rng.choice([value, value / 100, value / 10, Decimal(value).scaleb(-2)])


def a_time(rng):
    moment = datetime(2020, 1, 1) + timedelta(minutes=30 * rng.randint(-50, 1000))
    return rng.choice([moment, moment.date()])


CASES: list[tuple[Domain, object]] = [
    (Grid.of(-1, 14, nullable=True), a_number),
    (Grid.of(-3, 12, 5), a_number),
    (Grid.of(Decimal("-1"), Decimal("14"), Decimal("0.1"), nullable=True), a_number),
    (Grid.of(-1.0, 14.0, 0.1, nullable=True), a_number),
    (Grid.of(0.05, 12.55, 0.25), a_number),
    (Grid.of(date(2020, 1, 1), date(2020, 1, 20), nullable=True), a_time),
    (Grid.of(datetime(2020, 1, 1), datetime(2020, 1, 20), "90 minutes", nullable=True), a_time),
    (Categorical((7, 3, -1, 12), nullable=True), a_number),
    (Categorical((Decimal("7.1"), Decimal("3"), Decimal("0.25"))), a_number),
    (Categorical((date(2020, 1, 9), date(2020, 1, 3)), nullable=True), a_time),
]


@pytest.mark.parametrize(
    ("domain", "draw"), CASES, ids=lambda case: getattr(case, "__name__", str(case)[:50])
)
def test_duckdb_counts_the_same(domain, draw):
    rng = random.Random(7)
    connection = duckdb.connect()
    connection.register("domain", pa.table({"c": domain.values()}))
    found = set()
    for predicate, make in PREDICATES.items():
        for _ in range(12):
            low, high = draw(rng), draw(rng)
            if rng.random() < 0.5:
                # Half of the bounds are values of the domain, where open and closed differ.
                low = domain.value_at(rng.randrange(domain.points))
            parameters = [low, high][: predicate.count("?")]
            query = f"SELECT count(*) FROM domain WHERE {predicate}"
            (truth,) = connection.execute(query, parameters).fetchone()
            assert domain.count(make(low, high)) == truth, (predicate, parameters)
            found.add(truth)
    assert len(found) > 2  # the bounds were not all beside the domain
