"""The census table of the papers, published."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

import privsql
from privsql.channels import Categorical, Uniform
from privsql.publish.groups.units import row_units
from privsql.publish.keys.key import new_key
from privsql.publish.keys.randomness import Keyed, SystemSource
from tests import census
from tests.publish.drawing import perturb

SPEC = """
[release]
table = "adult"
{key}
[columns.education]
role = "public"
[columns.occupation]
role = "public"
[columns.race]
role = "public"
[columns.sex]
role = "public"
[columns.income]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = ["<=50K", ">50K"]
[groups]
from = "{source}"
"""


def publish(folder: Path, *, source: str = "published", key: str = "", out="a.duckdb", **options):
    raw = folder / "adult.parquet"
    if not raw.exists():
        pq.write_table(census.rows(census.GROUPS), raw)
    (folder / "spec.toml").write_text(SPEC.format(source=source, key=key))
    return privsql.publish(str(raw), folder / out, spec=folder / "spec.toml", **options)


def test_raw_frequencies_merge_as_in_the_paper(tmp_path):
    report = publish(tmp_path, source="raw", seed=1)
    release = privsql.release.open(tmp_path / "a.duckdb")
    with release.connection() as con:
        sizes = [
            con.execute(f'SELECT count(DISTINCT label) FROM privsql."values of {name}"').fetchone()[
                0
            ]
            for name in ("education", "occupation", "race", "sex")
        ]
        groups = con.execute("SELECT count(DISTINCT privsql_group) FROM privsql.tuples").fetchone()[
            0
        ]
    assert sizes == [7, 4, 2, 2]
    assert groups == report.manifest.groups.count == 89
    assert any("Armed-Forces" in warning for warning in report.warnings)
    assert report.manifest.privacy.raw == ("public values were merged by raw frequencies",)


def test_one_key_publishes_the_same_values_twice(tmp_path):
    new_key(tmp_path / "p.key")
    tables = []
    for out in ("a.duckdb", "b.duckdb"):
        report = publish(tmp_path, key='key = "p.key"', out=out)
        with privsql.release.open(tmp_path / out).connection() as con:
            tables.append(con.execute("SELECT * FROM adult").fetchall())
    assert tables[0] == tables[1]
    assert report.manifest.privacy.publications == 2
    assert report.manifest.multiplicity


def test_averaging_ten_releases_gains_nothing_under_a_key_and_much_without():
    """The majority over ten publications of one person's income; ties count half."""
    domain, channel = Categorical(("<=50K", ">50K")), Uniform(0.5, 2)
    codes = domain.codes(census.rows(census.GROUPS)["income"])
    units = row_units(0, len(codes), "adult")

    def right(sources) -> float:
        votes = sum(perturb(codes, channel, s, units, "income", domain=domain) for s in sources)
        half = len(sources) / 2
        return float(((votes > half) == codes)[votes != half].mean())

    once = right([Keyed(bytes(32))])
    assert once == pytest.approx(0.75, abs=0.01)
    assert right([Keyed(bytes(32)) for _ in range(10)]) == once
    assert right([SystemSource() for _ in range(10)]) > 0.9
