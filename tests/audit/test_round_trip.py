"""What is advised, published and audited holds: once for each guarantee."""

from __future__ import annotations

import math
import tomllib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.advise.curves import Curve, Found, Point
from privsql.advise.job import advise
from privsql.audit.job import audit
from privsql.publish.perturb.decoy import decoy_channel
from tests import specs

SPEC = specs.spec(
    "people",
    specs.public("city"),
    specs.sensitive("ill", 0.5, ["none", "flu", "cold", "tb", "hiv"]),
    specs.sensitive("drug", 0.5, ["d-none", "d-flu", "d-cold", "d-tb", "d-hiv"]),
    specs.drop("shoe"),
    more='[groups]\nmerge = "none"\n',
    source="raw.parquet",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Forty cities; the drug nearly follows from the illness; shoe sizes are spread evenly."""
    rng = np.random.default_rng(5)
    n = 8_000
    number = rng.integers(0, 40, n)
    # In most cities a value has a little more than half: an estimate may well be below 1/2.
    healthy = rng.random(n) < np.where(number < 10, 0.4, 0.57)
    others = rng.choice(["flu", "cold", "tb", "hiv"], n, p=[0.4, 0.4, 0.15, 0.05])
    ill = np.where(healthy, "none", others)
    drug = np.char.add("d-", np.where(rng.random(n) < 0.9, ill, "none"))
    made = tmp_path_factory.mktemp("round")
    table = {
        "city": np.char.mod("c%d", number),
        "ill": ill,
        "drug": drug,
        "shoe": np.arange(n) % 40,
    }
    pq.write_table(pa.table(table), made / "raw.parquet")
    (made / "spec.toml").write_text(SPEC)
    return made


def published(folder, advice, name="made"):
    """The spec with what is advised written into it, published."""
    text = SPEC
    for column, lines in tomllib.loads(advice.toml).get("columns", {}).items():
        before = f'[columns.{column}]\nrole = "sensitive"\nmechanism = "uniform"\nretention = '
        assert text.count(f"{before}0.5") == 1
        text = text.replace(f"{before}0.5", f"{before}{lines['retention']}")
    if "[protect" in advice.toml:
        text += advice.toml
    spec = folder / f"{name}.toml"
    spec.write_text(text)
    out = folder / f"{name}.duckdb"
    privsql.publish(None, out, spec=spec, force=True)
    return out


def kept(report, criterion):
    """Verdicts of all findings about a criterion that have one."""
    found = [f.verdict for f in report.findings if f.criterion == criterion and f.verdict != "note"]
    assert found
    return set(found)


@pytest.mark.parametrize("split", ["equal", "retention"])
def test_epsilon(folder, split):
    advice = advise(folder / "spec.toml", epsilon=1.5, split=split)
    report = audit(published(folder, advice), folder / "raw.parquet")
    assert 1.5 - 2e-3 < report.privacy.epsilon <= 1.5
    assert kept(report, "epsilon") == {"holds"}


def test_rho(folder):
    out = published(folder, advise(folder / "spec.toml", rho=(0.1, 0.4)))
    report = audit(out, folder / "raw.parquet", rho1=0.1, rho2=0.4)
    assert kept(report, "rho1-rho2") == {"holds"}
    assert 5.98 < math.exp(report.privacy.epsilon) <= 6
    # One retention of all that are advised is used up.
    assert kept(audit(out, rho1=0.1, rho2=0.398), "rho1-rho2") == {"holds", "fails"}


def test_s(folder):
    raw = folder / "raw.parquet"
    reached = audit(published(folder, advise(folder / "spec.toml", epsilon=1)), raw).joint.most
    out = published(folder, advise(folder / "spec.toml", s=(reached, 0.1, 0.5)))
    report = audit(out, raw, rho1=0.1, rho2=0.5)
    assert kept(report, "(s, rho1, rho2)") == {"holds"}
    assert reached < report.joint.limit_sets < 1.002 * reached


def test_lambda_and_delta(folder):
    """Of every group, whatever was drawn; by the default cap it fails in some."""
    raw = folder / "raw.parquet"
    advice = advise(folder / "spec.toml", relative_error=0.3, probability=0.3, seed=3)
    report = audit(published(folder, advice), raw)
    assert (report.asked.relative_error, report.asked.probability) == (0.3, 0.3)
    assert kept(report, "(lambda, delta)") == {"holds"}
    assert report.trials == advice.numbers["kept"] < 8_000
    spec = folder / "grid.toml"
    spec.write_text(SPEC + "[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n")
    privsql.publish(None, folder / "grid.duckdb", spec=spec, seed=3)
    assert "fails" in kept(audit(folder / "grid.duckdb", raw), "(lambda, delta)")
    caution = advise(spec, relative_error=0.3, probability=0.3, seed=3)
    assert tomllib.loads(caution.toml)["protect"]["reconstruction"]["cap"] == "grid"
    assert 'cap = "one" is sure' in str(caution)


def test_groups_of_so_many_people(folder):
    largest = 260
    advice = advise(folder / "spec.toml", relative_error=0.3, probability=0.3, people=largest)
    report = audit(published(folder, advice), folder / "raw.parquet")
    assert 200 < report.groups[0].rows.max() <= largest
    assert kept(report, "(lambda, delta)") == {"holds"}
    alone = audit(folder / "made.duckdb")
    assert kept(alone, "(lambda, delta)") == {"holds"}  # whatever the raw values are


def test_small_sums(folder, monkeypatch):
    monkeypatch.setattr(
        "privsql.publish.perturb.rows.decoy.decoy_channel",
        lambda *args, **options: decoy_channel(*args, **{**options, "rounds": 20}),
    )
    advice = advise(small_sum=0.6, error=0.3, alpha=3)
    (lines,) = tomllib.loads(advice.toml)["columns"].values()
    spec = folder / "decoy.toml"
    spec.write_text(
        f"""
[release]
table = "people"
source = "raw.parquet"
[columns.city]
role = "public"
[columns.ill]
role = "drop"
[columns.drug]
role = "drop"
[columns.shoe]
role = "sensitive"
mechanism = "{lines["mechanism"]}"
group_size = {lines["group_size"]}
domain = {{ lower = 0, upper = 39, step = 1 }}
[groups]
merge = "none"
"""
    )
    privsql.publish(None, folder / "decoy.duckdb", spec=spec)
    report = audit(folder / "decoy.duckdb", folder / "raw.parquet")
    assert kept(report, "small sums") == {"holds"}
    assert report.columns[0].small_sum == pytest.approx(advice.numbers["small_sum_privacy"])
    strict = audit(folder / "decoy.duckdb", small_sum=advice.numbers["small_sum_privacy"] + 1e-3)
    assert kept(strict, "small sums") == {"fails"}


def test_a_retention_at_the_limit_is_not_rounded_beyond_it(tmp_path, monkeypatch):
    """13 values: epsilon 5 at .91895, where three digits would say .919 and be refused."""
    rng = np.random.default_rng(1)
    pq.write_table(pa.table({"city": ["a", "b"] * 500, "shoe": rng.integers(0, 13, 1_000)}),
                   tmp_path / "raw.parquet")  # fmt: skip
    text = (
        '[release]\ntable = "people"\nsource = "raw.parquet"\n[columns.city]\nrole = "public"\n'
        '[columns.shoe]\nrole = "sensitive"\nmechanism = "uniform"\nretention = 0.5\n'
        "domain = { lower = 0, upper = 12, step = 1 }\n"
    )
    spec = tmp_path / "spec.toml"
    spec.write_text(text)

    def at_the_top(pilot, wanted, *, top, **_):
        curve = Curve((Point(top, (1.0,), 1),))
        return Found(top, (1.0,), curve, lowest=False)

    monkeypatch.setattr("privsql.advise.widths.search", at_the_top)
    query = "SELECT COUNT(*) FROM people WHERE shoe = 3"
    advice = advise(spec, queries={query: 1.0})
    lines = tomllib.loads(advice.toml)["columns"]["shoe"]
    assert lines == {"retention": pytest.approx(0.9189)}
    spec.write_text(text.replace("0.5", str(lines["retention"])))
    privsql.publish(None, tmp_path / "r.duckdb", spec=spec, seed=1)


def test_columns_that_are_not_advised_on_are_warned_of(folder):
    both = advise(folder / "spec.toml", rho=(0.1, 0.4))
    one = advise(folder / "spec.toml", rho=(0.1, 0.4), columns="ill")
    assert both.warnings == ()
    assert "covers ill only, not the release: drug add" in one.warnings[0]
