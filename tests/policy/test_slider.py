"""A dashboard with a slider on a measure is answered in full, and an attack on it is not."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.fronts.demo.questions import SPEC_TEXT
from privsql.fronts.demo.recipe import clinic
from privsql.policy.history import History
from privsql.policy.personal import PersonalGroup
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.sizes import SOAK, sized

PANELS = (
    "SELECT disease, COUNT(*) FROM patients WHERE cost < {x} GROUP BY disease",
    # An average tells three sums of each cell, which few rows do not bear.
    f"SELECT district, {'AVG(cost)' if SOAK else 'COUNT(*)'} FROM patients"
    " WHERE disease = 'asthma' AND cost < {x} GROUP BY 1",
    "SELECT COUNT(*) FROM patients WHERE smoker = 'yes' AND cost < {x}",
)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("slider")
    rows = clinic(sized(15_000, 300_000), np.random.default_rng(1))
    pq.write_table(rows, folder / "clinic.parquet")
    (folder / "clinic.toml").write_text(SPEC_TEXT, encoding="utf-8")
    made = folder / "clinic.duckdb"
    privsql.publish(str(folder / "clinic.parquet"), made, spec=folder / "clinic.toml", seed=3)
    return made


def test_three_panels_and_a_slider_are_answered(release: Path) -> None:
    session = Session(release, served=Served("ann", History(None)))
    cells = 0
    for x in [10_000, *range(50, 1_000, 50)]:
        for panel in PANELS:
            outcome = session.run(panel.format(x=x))
            assert not outcome.personal.refused, (x, panel)
            cells += outcome.table.num_rows
    assert cells > 250
    # The same rows without one personal group.
    with pytest.raises(PersonalGroup) as problem:
        session.run(f"{PANELS[2].format(x=500)} AND NOT ({one_group(release)})")
    assert problem.value.code == "difference"
    session.close()


def one_group(release: Path) -> str:
    """A condition that one personal group satisfies, of a good hundred people or less."""
    with duckdb.connect(str(release), read_only=True) as connection:
        found = connection.execute(
            "SELECT sex, age, district, job FROM privsql.tuples WHERE privsql_group = ("
            " SELECT privsql_group FROM privsql.tuples GROUP BY ALL"
            " ORDER BY sum(privsql_rows) DESC LIMIT 1 OFFSET 20)"
        ).fetchall()
    tuples = ", ".join(f"('{sex}', {age}, '{place}', '{job}')" for sex, age, place, job in found)
    return f"(sex, age, district, job) IN ({tuples})"
