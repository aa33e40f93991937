"""One key, several publications: what repeats, what must not, and what the ledger counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.channels import Uniform
from privsql.publish.keys.key import new_key, read_key
from privsql.publish.keys.ledger import LedgerError
from tests import specs

SPEC = specs.spec(
    "people",
    specs.drop("id"),
    specs.measure("place"),
    specs.sensitive("ill", 0.4, ["flu", "hiv", "none"]),
    specs.sensitive("age", 0.5, specs.grid(0, 99)),
    unit="id",
    key="p.key",
)
ILL, AGE = Uniform(0.4, 3).epsilon, Uniform(0.5, 100).epsilon
ROWS = 5_000


def people(**changes) -> pa.Table:
    """Persons who can be found again in a release by their place."""
    rng = np.random.default_rng(1)
    columns = {
        "id": np.arange(ROWS),
        "place": np.arange(ROWS),
        "ill": rng.choice(["flu", "hiv", "none"], ROWS),
        "age": rng.integers(0, 100, ROWS),
    }
    return pa.table(columns | changes)


@pytest.fixture
def place(tmp_path):
    new_key(tmp_path / "p.key")
    return tmp_path


def publish(place: Path, table: pa.Table, spec: str = SPEC, **options):
    pq.write_table(table, place / "raw.parquet")
    (place / "spec.toml").write_text(spec)
    source, out = str(place / "raw.parquet"), place / "out.duckdb"
    return privsql.publish(source, out, spec=place / "spec.toml", force=True, **options)


def published(place: Path, column: str) -> np.ndarray:
    """A column of the release in the order of places, which are raw rows."""
    with privsql.release.open(place / "out.duckdb").connection() as con:
        found = con.execute(f"SELECT {column} FROM people ORDER BY place").fetchall()
    return np.array([value for (value,) in found])


# --- a source that changes


def changed_ill() -> np.ndarray:
    ill = people()["ill"].to_numpy(zero_copy_only=False).copy()
    ill[17] = "hiv" if ill[17] == "flu" else "flu"
    return ill


def test_whoever_changed_every_time_has_a_figure_of_their_own(place):
    mixed = np.random.default_rng(0).permutation(ROWS)
    later = people(ill=changed_ill())
    first = publish(place, people()).manifest.privacy
    assert (first.states, first.epsilon) == (1, pytest.approx(ILL + AGE))
    assert first.changed == pytest.approx(ILL + AGE)
    same = publish(place, people().take(mixed))
    assert (same.manifest.privacy.states, same.manifest.privacy.publications) == (1, 2)
    assert "the source changed" not in str(same)
    report = publish(place, later)
    found = report.manifest.privacy
    assert (found.states, found.publications) == (2, 3)
    assert found.epsilon == pytest.approx(ILL + AGE)
    # Only the illness of one person changed: nobody's age was drawn for twice.
    assert found.changed == pytest.approx(2 * ILL + AGE)
    assert "2 different states" in str(report)
    assert f"the promise is {2 * ILL + AGE:.4g} to a person" in found.statement()
    assert privsql.release.open(place / "out.duckdb").manifest.privacy == found
    for again in (later.take(mixed), people()):
        assert publish(place, again).manifest.privacy.changed == found.changed


def test_a_table_that_grows_is_published_again_without_a_question(place):
    for rows, states in ((3000, 1), (4000, 2), (ROWS, 3), (4000, 3)):
        privacy = publish(place, people().slice(0, rows)).manifest.privacy
        assert privacy.states == states
        assert privacy.epsilon == pytest.approx(ILL + AGE)
        assert privacy.changed == pytest.approx(states * (ILL + AGE))


def test_the_ledger_tells_nothing_of_the_source_but_its_changes(place):
    publish(place, people())
    publish(place, people(ill=changed_ill()))
    lines = read_key(place / "p.key").ledger().publications()
    ill, age = ([line.columns[name].state for line in lines] for name in ("ill", "age"))
    assert ill[0] != ill[1]
    assert age[0] == age[1] != ill[0]
    (place / "p.key").unlink()
    (place / "p.key.ledger").unlink()
    new_key(place / "p.key")
    publish(place, people())
    (line,) = read_key(place / "p.key").ledger().publications()
    assert line.columns["ill"].state not in ill, "under another key the same state looks new"


def test_without_a_key_there_is_one_state(place):
    privacy = publish(place, people(), SPEC.replace('key = "p.key"\n', "")).manifest.privacy
    assert (privacy.states, privacy.changed) == (1, privacy.epsilon)


def test_what_has_no_epsilon_has_none_for_changes(place):
    swap = SPEC.replace(
        'mechanism = "uniform"\nretention = 0.4', 'mechanism = "swap"\nretention = 0.4'
    )
    publish(place, people(), swap)
    privacy = publish(place, people(), swap, accept_loss=True).manifest.privacy
    assert privacy.changed == privacy.epsilon == np.inf


# --- rows as persons


def agreement(shares: np.ndarray) -> tuple[float, float]:
    """How often two independent draws agree, and five standard deviations of that."""
    expected = float((shares**2).sum())
    return expected, 5 * np.sqrt(expected * (1 - expected) / ROWS)


def test_row_k_of_a_changed_source_does_not_share_its_draws(place):
    """Draws that depend on the place alone would let two tables' row k be compared."""
    spec = SPEC.replace('unit = "id"\n', "")
    ill = np.full(ROWS, "flu")
    costs = np.arange(ROWS)
    publish(place, people(ill=ill), spec)
    first = published(place, "ill")
    publish(place, people(ill=ill), spec)
    assert (published(place, "ill") == first).all(), "the same source repeats its draws"
    changed = people(ill=ill, id=costs[::-1].copy())  # a column that is dropped
    with pytest.raises(LedgerError, match="changed source"):
        publish(place, changed, spec)
    publish(place, changed, spec, accept_loss=True)
    expected, spread = agreement(Uniform(0.4, 3).matrix[0])
    assert abs((published(place, "ill") == first).mean() - expected) < spread


def test_row_k_of_another_table_does_not_share_its_draws(place):
    spec = SPEC.replace('unit = "id"\n', "")
    ill = np.full(ROWS, "flu")
    publish(place, people(ill=ill), spec)
    first = published(place, "ill")
    publish(place, people(ill=ill), spec.replace('table = "people"', 'table = "others"'))
    with privsql.release.open(place / "out.duckdb").connection() as con:
        other = con.execute("SELECT ill FROM others ORDER BY place").fetchall()
    expected, spread = agreement(Uniform(0.4, 3).matrix[0])
    assert abs((np.array(other)[:, 0] == first).mean() - expected) < spread


# --- the same values by other parameters


@pytest.mark.parametrize("mechanism", ["identity", "swap", "uniform"])
def test_another_retention_draws_independently(place, mechanism):
    """Were p = .2 to keep a part of what p = .5 kept, comparing the two would show who it is.

    A row that is equal in both releases was kept twice, nearly always: 100 ages seldom meet.
    Independent draws keep .5 of the rows that the other kept, as of any rows.
    """
    age = people()["age"].to_numpy()
    kept = {}
    for retention in (0.5, 0.2):
        spec = SPEC.replace(
            'mechanism = "uniform"\nretention = 0.5',
            f'mechanism = "{mechanism}"\nretention = {retention}',
        )
        publish(place, people(), spec, accept_loss=True)
        kept[retention] = published(place, "age") == age
    shares = {p: found.mean() for p, found in kept.items()}
    for retention, share in shares.items():
        assert abs(share - (retention + (1 - retention) / 100)) < 0.04
    twice = (kept[0.5] & kept[0.2]).mean()
    expected = shares[0.5] * shares[0.2]
    assert abs(twice - expected) < 5 * np.sqrt(expected * (1 - expected) / ROWS)
    assert abs(kept[0.5][kept[0.2]].mean() - shares[0.5]) < 0.09, "kept once says nothing of twice"
