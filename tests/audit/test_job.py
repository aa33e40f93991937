"""Audits of whole releases, against slow counts of the raw table."""

from __future__ import annotations

import gzip
import math
from collections import Counter
from functools import partial

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from examples.papers.formulas import exact_tail
from privsql.audit.criteria.amplification import s_limit_many
from privsql.audit.criteria.trials import group_cap
from privsql.audit.job import audit
from privsql.errors import Error, ProgrammingError
from privsql.publish.perturb.decoy import decoy_channel
from privsql.release.store import open_release
from tests.audit.conftest import SPEC


def rows_of(clinic):
    return pq.read_table(clinic / "people.parquet").to_pylist()


def slow_groups(clinic, name):
    """Values of each personal group (public values are not merged)."""
    groups: dict = {}
    for row in rows_of(clinic):
        groups.setdefault((row["city"], row["n"]), Counter())[row[name]] += 1
    return groups


@pytest.mark.parametrize(("name", "p", "m"), [("ill", 0.5, 3), ("age", 0.3, 20)])
def test_violations_are_those_of_a_slow_count(clinic, name, p, m):
    for error, delta in ((0.3, 0.3), (0.5, 0.1)):
        report = audit(
            clinic / "plain.duckdb",
            clinic / "people.parquet",
            relative_error=error,
            probability=delta,
        )
        found = next(each for each in report.groups if each.column == name)
        groups = slow_groups(clinic, name)
        broken = []
        for values in groups.values():
            size = values.total()
            cap = float(group_cap(max(values.values()) / size, p, m, error, delta))
            if size > cap:
                broken.append(size)
        assert found.groups == len(groups) == 8
        assert found.violating == found.least == found.most == (len(broken), sum(broken))
        assert found.v_g == len(broken) / 8
        assert found.v_r == sum(broken) / 4_000
    assert 0 < len(broken) < 8  # the fixture tells groups apart


def test_tails_are_of_the_groups_worst_off(clinic):
    report = audit(clinic / "plain.duckdb", clinic / "people.parquet")
    found = report.groups[0]
    excess = [tail.trials / tail.cap for tail in found.tails]
    assert excess == sorted(excess, reverse=True)
    sizes = {values.total(): values for values in slow_groups(clinic, "ill").values()}
    for tail in found.tails:
        most = max(sizes[tail.rows].values())
        assert tail.frequency == pytest.approx(most / tail.rows)
        wanted = exact_tail(tail.rows, most / tail.rows, 0.5, 3, 0.3)
        assert (tail.exact.lower, tail.exact.upper) == pytest.approx((wanted.lower, wanted.upper))
        assert tail.exact.lower <= tail.chernoff.lower


def test_tails_shown_are_limited_and_it_is_said(clinic, monkeypatch):
    monkeypatch.setattr("privsql.audit.groups.TAILS", 3)
    report = audit(clinic / "plain.duckdb", clinic / "people.parquet")
    assert len(report.groups[0].tails) == 3
    assert "tails are computed for these 3 of 8 groups" in str(report)


def test_sources_of_any_kind_are_one(clinic):
    reports = [
        audit(clinic / "plain.duckdb", source).to_dict()
        for source in (
            clinic / "people.parquet",
            str(clinic / "people.csv"),
            f"{clinic / 'people.duckdb'}::raw_people",
            [str(clinic / "people.duckdb")],
        )
    ]
    assert reports[0] == reports[1] == reports[2] == reports[3]


def test_without_raw_data_the_truth_is_between_the_bounds(clinic):
    for error in (0.3, 0.6):
        alone = audit(clinic / "plain.duckdb", relative_error=error)
        known = audit(clinic / "plain.duckdb", clinic / "people.parquet", relative_error=error)
        assert not alone.known
        assert known.known
        for guess, truth in zip(alone.groups, known.groups, strict=True):
            assert guess.least <= truth.violating <= guess.most
            assert guess.least <= guess.violating <= guess.most
        assert "reconstructed from the release" in alone.summary()
        assert "raw table" in known.summary()


def test_observed_s_and_posteriors(clinic, publish):
    report = audit(clinic / "plain.duckdb", clinic / "people.parquet", rho1=0.2)
    values = Counter(row["age"] for row in rows_of(clinic))
    shares = np.array([values[i] / 4_000 for i in range(20)])
    age = report.columns[1]
    rare = shares[shares <= 0.2]
    assert age.s_observed == pytest.approx(rare.max() * 20)
    assert age.s_limit == pytest.approx((0.95 - 0.2) * 0.7 / (0.05 * 0.3))
    kept = 0.3 + 0.7 / 20
    assert age.posterior == pytest.approx((rare * kept / (0.3 * rare + 0.7 / 20)).max())
    assert age.record_utility == pytest.approx(kept)
    # From the release alone the same, nearly.
    alone = audit(publish("repeatable", SPEC, seed=1), rho1=0.3).columns[1]
    assert alone.s_observed == pytest.approx(shares[shares <= 0.3].max() * 20, rel=0.2)


def test_combinations_of_columns(clinic):
    report = audit(clinic / "plain.duckdb", clinic / "people.parquet")
    pairs = Counter((row["ill"], row["age"]) for row in rows_of(clinic))
    ratios = [n / 4_000 * 60 for n in pairs.values() if n / 4_000 <= 0.1]
    assert report.joint.observed == pytest.approx(max(ratios))
    assert report.joint.limit == pytest.approx(s_limit_many([0.5, 0.3], 0.1, 0.95, [1 / 3, 1 / 20]))
    assert report.joint.limit_small == pytest.approx(s_limit_many([0.5, 0.3], 0.1, 0.95))
    assert audit(clinic / "plain.duckdb").joint.observed is None


def test_epsilon_of_columns_and_release(clinic):
    report = audit(clinic / "plain.duckdb")
    ill, age = report.columns
    assert ill.gamma == pytest.approx(1 + 3 * 0.5 / 0.5)
    assert age.epsilon == pytest.approx(math.log(1 + 20 * 0.3 / 0.7))
    assert report.privacy.epsilon == pytest.approx(ill.epsilon + age.epsilon)
    (first, *_) = report.findings
    assert (first.subject, first.criterion, first.verdict) == ("release", "epsilon", "holds")
    assert f"{math.exp(report.privacy.epsilon):.4g}" in first.text  # gamma multiplies
    assert any(f.criterion == "raw data" and f.verdict == "holds" for f in report.findings)


def test_standard_errors_of_values_agree_with_simulation(clinic):
    """The error of each value's count, against published tables drawn anew."""
    from privsql.audit.criteria.columns import relative_errors
    from privsql.channels import FineGrain, Matrix, Uniform

    rng = np.random.default_rng(7)
    shares, n = np.array([0.5, 0.3, 0.2]), 1_000
    for channel in (
        Uniform(0.4, 3),
        FineGrain([0.2, 0.7, 0.4]),
        Matrix([[0.6, 0.2, 0.2], [0.1, 0.8, 0.1], [0.25, 0.25, 0.5]]),
    ):
        drawn = sum(
            rng.multinomial(round(n * share), row, 20_000)
            for share, row in zip(shares, channel.matrix, strict=True)
        )
        estimates = drawn @ np.linalg.inv(channel.matrix)
        found = relative_errors(channel, shares, n)
        np.testing.assert_allclose(found, estimates.std(axis=0) / (n * shares), rtol=0.04)


def test_a_release_cut_down_has_fewer_trials_and_no_violation(clinic, publish):
    spec = SPEC + '[protect.reconstruction]\nlambda = 0.4\ndelta = 0.2\ncap = "one"\n'
    path = publish("cut", spec)
    for raw in (None, clinic / "people.parquet"):
        report = audit(path, raw)
        assert (report.asked.relative_error, report.asked.probability) == (0.4, 0.2)
        assert report.trials < report.rows == 4_000
        assert all(group.most == (0, 0) for group in report.groups)
        assert "left after groups were cut down" in " ".join(str(report).split())
    with open_release(path).connection() as con:
        stored = con.execute("SELECT count(*) FROM people").fetchone()[0]
        grouped = con.execute(
            "SELECT count(*) FROM people WHERE city = 'a' AND n = 'x'"
        ).fetchone()[0]
    assert report.trials == stored  # rows are told apart by their cost: none is stored once
    assert max(report.groups[0].trials) == grouped
    # Held against more than it was protected by, it fails.
    strict = audit(path, clinic / "people.parquet", relative_error=0.6, probability=0.6)
    assert any(group.violating[0] for group in strict.groups)


MECHANISMS = """
[release]
table = "people"
[columns.city]
role = "public"
[columns.n]
role = "public"
[columns.cost]
role = "drop"
[columns.ill]
role = "sensitive"
{ill}
[columns.age]
role = "sensitive"
{age}
[groups]
merge = "none"
"""

LISTED = 'domain = ["flu", "cold", "none"]\n'
GRID = "domain = { lower = 0, upper = 19, step = 1 }\n"


def test_swap_and_decoy(clinic, publish, monkeypatch):
    # The channel of decoys is simulated, and need not be precise here.
    quick = partial(decoy_channel, rounds=20)
    monkeypatch.setattr("privsql.publish.perturb.rows.decoy.decoy_channel", quick)
    ill = f'mechanism = "swap"\nretention = 0.2\n{LISTED}'
    age = f'mechanism = "decoy"\ngroup_size = 3\n{GRID}'
    report = audit(
        publish("swap", MECHANISMS.format(ill=ill, age=age)),
        clinic / "people.parquet",
        small_sum=0.5,
    )
    swap, decoy = report.columns
    assert swap.identity_limit == pytest.approx(0.9375)
    assert math.isinf(swap.epsilon)
    assert decoy.small_sum == pytest.approx(1 - 3 * (1 / 3) * (2 / 3) ** 2)
    assert decoy.large_sum == pytest.approx((1 - 1 / 3) / (0.09 * 0.05))
    assert decoy.large_sum_printed < 10 < decoy.large_sum_exact < decoy.large_sum
    assert [group.column for group in report.groups] == ["ill"]  # decoys are no trials
    verdicts = {(f.subject, f.criterion): f.verdict for f in report.findings}
    assert verdicts["release", "epsilon"] == "void"
    assert verdicts["ill", "rho1-rho2"] == verdicts["age", "rho1-rho2"] == "void"
    assert verdicts["ill", "identity/swap"] == "holds"
    assert verdicts["age", "(lambda, delta)"] == "note"  # said, not left out
    assert verdicts["age", "small sums"] == "holds"
    for wanted, advice in ((0.6, "groups of 7 or more would do"), (0.7, "no group size")):
        strict = audit(clinic / "swap.duckdb", small_sum=wanted).findings
        (small,) = (f for f in strict if f.criterion == "small sums")
        assert (small.verdict, advice in small.advice) == ("fails", True)
    assert not report.holds
    assert "swap on ill draws from the data itself" in report.summary()


def test_fine_grain_per_value(clinic, publish):
    ill = f'mechanism = "finegrain"\nsides = "upward"\n{LISTED}' + (
        "rho = [[0.1, 0.2], [0.1, 0.6], [0.1, 0.6]]\n"
    )
    age = f'mechanism = "uniform"\nepsilon = 1.0\n{GRID}'
    path = publish("fine", MECHANISMS.format(ill=ill, age=age))
    report = audit(path, clinic / "people.parquet", rho1=0.1, rho2=0.3)
    fine = next(f for f in report.findings if f.criterion == "fine-grain")
    channel = open_release(path).manifest.sensitive[0].channel
    matrix, allowed = channel.matrix, 0.3 * 0.9 / (0.1 * 0.7)
    up = [max(matrix[i, i] / matrix[k, i] for k in range(3) if k != i) for i in range(3)]
    down = [max(matrix[k, k] / matrix[i, k] for k in range(3) if k != i) for i in range(3)]
    assert [value.up for value in report.columns[0].per_value] == pytest.approx(up)
    assert [value.down for value in report.columns[0].per_value] == pytest.approx(down)
    broken = sum(u > allowed for u in up), sum(d > allowed for d in down)
    assert f"{broken[0]} break (0.1, 0.3) upward and {broken[1]} downward" in fine.text
    assert (fine.verdict == "fails") == bool(sum(broken))


def test_two_values_are_allowed_and_said(tmp_path):
    """Section 9.13: RECON assumes m > 2 and uses m = 2."""
    table = pa.table({"sex": ["F", "M"] * 500, "ill": ["yes", "no", "no", "no"] * 250})
    pq.write_table(table, tmp_path / "raw.parquet")
    spec = (
        '[release]\ntable = "t"\n[columns.sex]\nrole = "public"\n'
        '[columns.ill]\nrole = "sensitive"\n'
        'mechanism = "uniform"\nretention = 0.5\ndomain = ["yes", "no"]\n[groups]\nmerge = "none"\n'
    )
    (tmp_path / "s.toml").write_text(spec)
    privsql.publish(
        str(tmp_path / "raw.parquet"), tmp_path / "r.duckdb", spec=tmp_path / "s.toml", seed=1
    )
    report = privsql.audit(tmp_path / "r.duckdb", tmp_path / "raw.parquet")
    note = next(f for f in report.findings if f.criterion == "m = 2")
    assert note.verdict == "note"
    assert report.groups[0].groups == 2
    (first, *_) = report.findings
    assert first.verdict == "fails"  # drawn from a seed
    assert "seed" in first.text


def test_a_grid_of_a_billion_values_takes_no_memory(clinic, publish):
    ill = f'mechanism = "uniform"\nretention = 0.5\n{LISTED}'
    age = (
        'mechanism = "uniform"\nretention = 0.5\naccept_epsilon = true\n'
        "domain = { lower = 0, upper = 1000000000, step = 1 }\n"
    )
    path = publish("wide", MECHANISMS.format(ill=ill, age=age))
    for raw in (None, clinic / "people.parquet"):
        report = audit(path, raw)
        assert report.columns[1].values == 10**9 + 1
        assert report.columns[1].per_value == ()
        assert report.groups[1].groups == 8


def test_what_can_be_asked(clinic):
    with pytest.raises(ProgrammingError, match="has no parameter lamda"):
        audit(clinic / "plain.duckdb", lamda=0.3)
    for wrong in ({"relative_error": 0}, {"probability": 1}, {"alpha": 0}, {"rho1": 0.99}):
        with pytest.raises(Error):
            audit(clinic / "plain.duckdb", **wrong)


# -- what cannot be audited ----------------------------------------------------------------


def test_releases_that_are_none(clinic, tmp_path):
    (tmp_path / "text.duckdb").write_text("not a database")
    with duckdb.connect(str(tmp_path / "foreign.duckdb")) as con:
        con.execute("CREATE TABLE t AS SELECT 1 AS a")
    whole = (clinic / "plain.duckdb").read_bytes()
    (tmp_path / "cut.duckdb").write_bytes(whole[: len(whole) // 2])
    for path, words in (
        ("nowhere.duckdb", "there is no release"),
        ("", "is a folder"),
        ("text.duckdb", "cannot be read"),
        ("foreign.duckdb", "not a release"),
        ("cut.duckdb", "damaged|cut short|cannot be read"),
    ):
        with pytest.raises(Error, match=words):
            audit(tmp_path / path)


def altered(clinic, tmp_path, change):
    path = tmp_path / "raw.parquet"
    pq.write_table(change(pq.read_table(clinic / "people.parquet")), path)
    return path


def with_first(table, name, value):
    values = table.column(name).to_pylist()
    values[0] = value
    return table.set_column(table.schema.get_field_index(name), name, pa.array(values))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.drop_columns(["ill"]), "no column ill"),
        (lambda t: t.drop_columns(["cost"]), "no column cost"),
        (lambda t: t.slice(1), "3,999 rows, the release 4,000"),
        (lambda t: with_first(t, "city", "secret"), "combinations of city, n"),
        (lambda t: with_first(t, "ill", "secret"), "column ill does not fit the domain"),
        (lambda t: with_first(t, "age", 999), "column age does not fit the domain"),
        (
            lambda t: with_first(t, "n", {"x": "y", "y": "x"}[t.column("n")[0].as_py()]),
            "2 personal groups have different row counts",
        ),
        (
            lambda t: t.set_column(4, "age", pa.array(["old"] * len(t))),
            "column age does not fit the domain",
        ),
    ],
)
def test_raw_sources_of_another_table(clinic, tmp_path, change, words):
    with pytest.raises(Error, match=words) as problem:
        audit(clinic / "plain.duckdb", altered(clinic, tmp_path, change))
    assert "secret" not in str(problem.value)
    assert "999" not in str(problem.value).replace("3,999", "")
    assert problem.value.hint


@pytest.mark.parametrize("name", ["nowhere.csv", "bad.parquet", "bad.json", "two.duckdb", "*.pq"])
def test_raw_sources_that_cannot_be_read(clinic, tmp_path, name):
    (tmp_path / "bad.parquet").write_text("no parquet")
    (tmp_path / "bad.json").write_text("{}")
    with duckdb.connect(str(tmp_path / "two.duckdb")) as con:
        con.execute("CREATE TABLE a (x INT); CREATE TABLE b (x INT)")
    with pytest.raises(Error) as problem:
        audit(clinic / "plain.duckdb", tmp_path / name)
    assert "Traceback" not in str(problem.value)


def test_nothing_is_written(clinic):
    before = {path: path.stat().st_mtime_ns for path in clinic.iterdir()}
    audit(clinic / "plain.duckdb", clinic / "people.parquet")
    assert before == {path: path.stat().st_mtime_ns for path in clinic.iterdir()}


def test_a_csv_source_is_read_as_publishing_reads_it(tmp_path):
    """DuckDB takes yes and no for truth values, and 01 for a number."""
    (tmp_path / "raw.csv").write_text("sex,hiv,code\n" + "F,yes,01\nM,no,02\nM,yes,01\n" * 40)
    (tmp_path / "spec.toml").write_text(
        '[release]\ntable = "t"\nsource = "raw.csv"\n[columns.sex]\nrole = "public"\n'
        + "".join(
            f'[columns.{name}]\nrole = "sensitive"\nmechanism = "uniform"\nretention = 0.5\n'
            f"domain = {domain}\n"
            for name, domain in (("hiv", ["no", "yes"]), ("code", ["01", "02", "03"]))
        )
    )
    privsql.publish(None, tmp_path / "r.duckdb", spec=tmp_path / "spec.toml")
    with gzip.open(tmp_path / "raw.csv.gz", "wb") as packed:
        packed.write((tmp_path / "raw.csv").read_bytes())
    for name in ("raw.csv", "raw.csv.gz"):
        found = audit(tmp_path / "r.duckdb", tmp_path / name)
        assert [each.people for each in found.groups] == [120, 120]
