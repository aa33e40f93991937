"""Clients perturb their own rows; batches join a release."""

from __future__ import annotations

import io

import numpy as np
import pytest

import privsql
from privsql.channels import Uniform
from privsql.errors import DataError, NotSupportedError
from privsql.publish.local import append, perturb_rows
from privsql.publish.randomness import Seeded
from privsql.release.names import GROUP, MULTIPLICITY
from privsql.release.spec import parse_spec

SPEC = """
[release]
table = "visits"
unit = "id"
[columns.id]
role = "drop"
[columns.city]
role = "public"
[columns.illness]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = ["flu", "cold", "none"]
[columns.age]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = { lower = 0, upper = 9, step = 1 }
"""


def rows(count: int, start: int = 0, cities=("north", "south")) -> str:
    rng = np.random.default_rng(start)
    lines = ["id,city,illness,age"]
    for i in range(start, start + count):
        sick = rng.choice(["flu", "cold", "none"], p=[0.6, 0.1, 0.3])
        lines.append(f"{i},{rng.choice(cities)},{sick},{rng.integers(0, 10)}")
    return "\n".join(lines) + "\n"


def batch(text: str, spec: str = SPEC, seed: int = 1) -> str:
    out = io.StringIO()
    perturb_rows(parse_spec(spec), io.StringIO(text), out, Seeded(seed))
    return out.getvalue()


@pytest.fixture
def release(tmp_path):
    (tmp_path / "raw.csv").write_text(rows(5000))
    (tmp_path / "spec.toml").write_text(SPEC)
    privsql.publish(
        str(tmp_path / "raw.csv"), tmp_path / "r.duckdb", spec=tmp_path / "spec.toml", seed=1
    )
    return tmp_path / "r.duckdb"


def ask(path, query):
    with privsql.release.open(path).connection() as con:
        return con.execute(query).fetchall()


def test_a_client_sees_no_table_and_drops_what_is_to_be_dropped():
    text = batch(rows(3000))
    lines = text.splitlines()
    assert lines[1] == "city,illness,age"
    assert len(lines) == 3000 + 3
    counts = [sum(f",{v}," in line for line in lines[2:-1]) for v in ("flu", "cold", "none")]
    wanted = Uniform(0.5, 3).expected(np.array([0.6, 0.1, 0.3]) * 3000)
    np.testing.assert_allclose(counts, wanted, atol=5 * np.sqrt(3000 / 4))


def test_a_batch_joins_a_release(release):
    before = ask(release, f"SELECT sum({MULTIPLICITY}) FROM visits")[0][0]
    path = release.with_name("batch.csv")
    path.write_text(batch(rows(700, start=10_000)))
    assert append(release, path) == 700
    assert ask(release, f"SELECT sum({MULTIPLICITY}) FROM visits")[0][0] == before + 700
    assert ask(release, "SELECT sum(privsql_rows) FROM privsql.tuples")[0][0] == before + 700
    table = ask(release, "SELECT city, illness, age FROM visits")
    assert table == sorted(table)
    assert sorted(p.name for p in release.parent.iterdir()) == [
        "batch.csv",
        "r.duckdb",
        "raw.csv",
        "spec.toml",
    ]


def test_a_new_public_value_gets_a_group_of_its_own(release):
    path = release.with_name("batch.csv")
    path.write_text(batch(rows(50, start=10_000, cities=("east",))))
    append(release, path)
    found = dict(ask(release, f"SELECT city, {GROUP} FROM privsql.tuples"))
    assert found["east"] not in {found["north"], found["south"]}


def test_publishing_and_gathering_batches_give_the_same_counts(release, tmp_path):
    """The same people, published at once or perturbed one by one with the same draws."""
    text = batch(rows(5000))
    published = ask(release, f"SELECT illness, sum({MULTIPLICITY}) FROM visits GROUP BY ALL")
    local = {
        v: sum(f",{v}," in line for line in text.splitlines()[2:-1])
        for v in ("flu", "cold", "none")
    }
    for value, count in published:
        assert abs(int(count) - local[value]) < 200


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.replace("flu", "cold", 1), "was changed"),
        (lambda t: t[: len(t) // 2], "not a whole batch"),
        (lambda t: t.replace("# privsql batch", "# another batch"), "not a whole batch"),
        (
            lambda t: batch(rows(10), SPEC.replace("retention = 0.5", "retention = 0.4")),
            "other rules",
        ),
        (lambda t: "", "not a whole batch"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_and_changes_nothing(release, change, words):
    before = release.read_bytes()
    path = release.with_name("batch.csv")
    path.write_text(change(batch(rows(100))))
    with pytest.raises(DataError, match=words):
        append(release, path)
    assert release.read_bytes() == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "id,city,illness,age\n1,x,flu\n",
        "id,city,illness,age\n1,x,plague,3\n",
        "id,city,illness,age\n1,x,flu,old\n",
        "id,city,illness,age\n1,x,flu,\n",
    ],
)
def test_rows_that_do_not_fit_are_told_without_their_values(text):
    with pytest.raises(DataError) as caught:
        batch(text)
    assert "plague" not in str(caught.value)
    assert "old" not in str(caught.value).replace("threshold", "")


def test_what_needs_the_whole_table_says_so():
    swapped = SPEC.replace(
        'mechanism = "uniform"\nretention = 0.5\ndomain = ["flu"',
        'mechanism = "swap"\nretention = 0.5\ndomain = ["flu"',
    )
    with pytest.raises(NotSupportedError, match="whole table"):
        batch(rows(10), swapped)
    protected = SPEC + "[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n"
    with pytest.raises(NotSupportedError, match="whole table"):
        batch(rows(10), protected)
