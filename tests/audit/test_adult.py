"""The census table of the papers."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import privsql
from privsql.audit.job import audit
from tests import census
from tests.publish.test_adult import SPEC

PUBLIC = ("education", "occupation", "race", "sex")


@pytest.fixture(scope="module")
def adult(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("adult")
    pq.write_table(census.rows(census.GROUPS), folder / "adult.parquet")
    return folder


def published(folder: Path, spec: str) -> Path:
    (folder / "spec.toml").write_text(spec)
    privsql.publish(
        str(folder / "adult.parquet"),
        folder / "r.duckdb",
        spec=folder / "spec.toml",
        seed=1,
        force=True,
    )
    return folder / "r.duckdb"


def test_the_group_of_the_papers_example(adult):
    """RECON 1: 501 white men of Prof-school, Prof-specialty, of whom 420 earn above 50K."""
    spec = SPEC.format(source="published", key="") + 'merge = "none"\n'
    path = published(adult, spec)
    found = audit(path, adult / "adult.parquet").groups[0]
    with privsql.release.open(path).connection() as con:
        (number,) = con.execute(
            "SELECT privsql_group FROM privsql.tuples WHERE education = 'Prof-school' AND"
            " occupation = 'Prof-specialty' AND race = 'White' AND sex = 'Male'"
        ).fetchone()
    at = found.number.tolist().index(number)
    assert found.rows[at] == 501
    assert found.frequency[at] == pytest.approx(420 / 501)
    assert found.trials[at] > found.cap[at]


def test_violations_of_generalised_groups(adult):
    """RECON 6: 16,14,5,2 values merge to 7,4,2,2; 89 groups are not empty.

    The paper says that over 85% of the groups and 99% of the records violate (.3, .3).
    """
    path = published(adult, SPEC.format(source="raw", key=""))
    with privsql.release.open(path).connection() as con:
        sizes = [
            con.execute(
                f'SELECT count(*), count(DISTINCT label) FROM privsql."values of {name}"'
            ).fetchone()
            for name in PUBLIC
        ]
    assert sizes == [(16, 7), (14, 4), (5, 2), (2, 2)]
    report = audit(path, adult / "adult.parquet")
    found = report.groups[0]
    assert (found.groups, found.people) == (89, 45_222)
    assert found.violating == (44, 44_228)
    assert report.privacy.raw == ("public values were merged by raw frequencies",)
    assert any(f.criterion == "m = 2" for f in report.findings)
