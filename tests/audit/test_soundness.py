"""Where an audit must not say that something holds: each case against a slow computation."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.audit.criteria.amplification import reconstructible_rows, s_limit_many, s_limit_sets
from privsql.audit.criteria.columns import audit_column, relative_errors
from privsql.audit.criteria.expected import rows_for_share, share_half_width
from privsql.audit.criteria.findings import Thresholds
from privsql.audit.criteria.trials import exact_of
from privsql.audit.criteria.verdicts import findings
from privsql.audit.groups import effective_rows
from privsql.audit.job import audit
from privsql.channels import FineGrain, Grid, Matrix, Replace, Uniform
from privsql.channels.caps import cap_of, chances
from privsql.release.store import open_release
from tests.audit.conftest import SPEC
from tests.audit.test_job import GRID, LISTED, MECHANISMS, slow_groups


def verdict(report, subject, criterion):
    """The first finding of a subject about a criterion."""
    return next(f for f in report.findings if (f.subject, f.criterion) == (subject, criterion))


def test_a_block_of_combinations_breaks_where_no_single_one_does():
    """Ten values of a column by one of another, at retentions of .01: OLAP thm 5 by brute force."""
    p, masses = 0.01, (1e-3, 6e-5)  # of one value of each column
    share = 0.006  # of each of the ten combinations
    ratio = share / math.prod(masses)
    single = s_limit_many([p, p], 0.1, 0.95, masses)
    assert ratio < single
    inside = (p + (1 - p) * 10 * masses[0]) * (p + (1 - p) * masses[1])
    # Everybody else has neither value: what is published comes from replacements.
    outside = (1 - p) * 10 * masses[0] * (1 - p) * masses[1]
    prior = 10 * share
    posterior = prior * inside / (prior * inside + (1 - prior) * outside)
    assert prior <= 0.1
    assert posterior >= 0.95
    assert ratio > s_limit_sets([p, p], 0.1, 0.95)


@pytest.mark.parametrize("retentions", [(0.2, 0.2), (0.5, 0.1), (0.1, 0.3, 0.2)])
def test_below_the_limit_of_sets_none_of_any_shape_breaks(retentions):
    rho1, rho2 = 0.1, 0.8
    limit = s_limit_sets(retentions, rho1, rho2)
    rng = np.random.default_rng(3)
    p = np.array(retentions)
    masses = 10 ** rng.uniform(-4, 0, (20_000, len(p)))
    masses[:, 0][: len(masses) // 2] = 1.0  # many with a column left open
    prior = np.minimum(limit * (1 - 1e-9) * masses.prod(axis=1), rho1)
    inside = (p + (1 - p) * masses).prod(axis=1)
    outside = ((1 - p) * masses).prod(axis=1)
    posterior = prior * inside / (prior * inside + (1 - prior) * outside)
    assert posterior.max() < rho2
    assert posterior.max() > 0.97 * rho2  # and it is no looser than that
    assert s_limit_sets([0.9, 0.9], 0.5, 0.6) == pytest.approx(0.6 * 0.5 / 0.4 * 0.01)


def test_sets_that_a_theorem_leaves_open_are_open(clinic):
    report = audit(clinic / "plain.duckdb", clinic / "people.parquet")
    assert verdict(report, "release", "(s, rho1, rho2)").verdict == "holds"
    for observed, expected in ((report.joint.limit * 0.9, "open"), (report.joint.limit, "fails")):
        joint = replace(report.joint, observed=observed, most=observed)
        assert joint.most > joint.limit_sets
        found = findings(replace(report, joint=joint))
        assert next(f for f in found if f.criterion == "(s, rho1, rho2)").verdict == expected


def test_combinations_of_rounded_values_are_counted_together(tmp_path):
    rng = np.random.default_rng(2)
    size = rng.choice([0.0, 1.0, 2.0, 7.0], 2_000, p=[0.4, 0.3, 0.24, 0.06])
    ill = np.where(size == 7, "hiv", rng.choice(["flu", "none"], 2_000))
    raw = size + rng.choice([-0.3, -0.1, 0.1, 0.3], 2_000)
    table = pa.table({"city": ["a"] * 2_000, "ill": ill, "size": np.maximum(raw, 0)})
    pq.write_table(table, tmp_path / "raw.parquet")
    (tmp_path / "s.toml").write_text(
        '[release]\ntable = "t"\n[columns.city]\nrole = "public"\n'
        '[columns.ill]\nrole = "sensitive"\nmechanism = "uniform"\nretention = 0.3\n'
        'domain = ["hiv", "flu", "none"]\n'
        '[columns.size]\nrole = "sensitive"\nmechanism = "uniform"\nretention = 0.3\n'
        'domain = { lower = 0, upper = 9, step = 1 }\n[groups]\nmerge = "none"\n'
    )
    privsql.publish(
        str(tmp_path / "raw.parquet"), tmp_path / "r.duckdb", spec=tmp_path / "s.toml", seed=1
    )
    joint = audit(tmp_path / "r.duckdb", tmp_path / "raw.parquet").joint
    pairs = Counter(zip(ill.tolist(), size.tolist(), strict=True))
    rare = [count / 2_000 for count in pairs.values() if count <= 200]
    assert joint.most == joint.observed == pytest.approx(max(rare) * 30)


def test_columns_that_hold_may_not_hold_together(clinic):
    """A second column that follows from the first multiplies gamma."""
    asked = {"rho1": 0.1, "rho2": 0.6}
    report = audit(clinic / "plain.duckdb", **asked)
    ill, age = (verdict(report, name, "rho1-rho2") for name in ("ill", "age"))
    together = verdict(report, "release", "rho1-rho2")
    assert (ill.verdict, age.verdict, together.verdict) == ("holds", "holds", "fails")
    # By brute force: age 0 is held by who has the flu and by nobody else; both are published.
    flu, zero = 0.5 + 0.5 / 3, 0.3 + 0.7 / 20
    belief = 0.1 * flu * zero / (0.1 * flu * zero + 0.9 * (0.5 / 3) * (0.7 / 20))
    assert belief > 0.6
    assert f"at most {belief:.3g}" in together.text
    assert "privsql advise SPEC --rho 0.1 0.6" in together.advice
    assert verdict(audit(clinic / "plain.duckdb"), "release", "rho1-rho2").verdict == "holds"


def test_the_epsilon_of_those_who_changed_decides(clinic):
    report = audit(clinic / "plain.duckdb")
    assert report.findings[0].verdict == "holds"
    for states, changed, expected in ((1, math.inf, "holds"), (2, 4.9, "holds"), (3, 9.0, "fails")):
        privacy = replace(report.privacy, publications=states, states=states, changed=changed)
        found = findings(replace(report, privacy=privacy))
        assert found[0].verdict == expected
        assert (", 9 after changes" in found[0].text) is (changed == 9)
        assert next(f for f in found if f.criterion == "rho1-rho2").verdict == expected


def test_what_estimates_say_of_s_is_left_open(clinic):
    sources = (None, clinic / "people.parquet")
    alone, known = (audit(clinic / "plain.duckdb", raw) for raw in sources)
    for name in ("ill", "age"):
        assert verdict(known, name, "(s, rho1, rho2)").verdict == "holds"
    # No share up to .1 of 3 or 20 values can be 17 or 42 times what chance gives.
    assert [column.s_most for column in alone.columns] == pytest.approx([0.3, 2.0])
    assert verdict(alone, "age", "(s, rho1, rho2)").verdict == "holds"
    # Where s is not told, only that bound can say so.
    for most, expected in ((2.0, "holds"), (None, "open")):
        age = replace(alone.columns[1], s_observed=None, s_most=most)
        told = findings(replace(alone, columns=(age,)))
        (found,) = (f for f in told if (f.subject, f.criterion) == ("age", "(s, rho1, rho2)"))
        assert found.verdict == expected
    strict = {"rho1": 0.5, "rho2": 0.6}  # limits of .25 and .58, and s up to 1.5 and 10
    alone, known = (audit(clinic / "plain.duckdb", raw, **strict) for raw in sources)
    found = verdict(alone, "age", "(s, rho1, rho2)")
    assert (found.verdict, "these are estimates" in found.text) == ("open", True)
    assert verdict(known, "age", "(s, rho1, rho2)").verdict == "fails"
    assert verdict(alone, "release", "(s, rho1, rho2)").verdict == "open"
    assert not alone.holds


def test_duplicates_are_held_against_what_is_asked(clinic, publish):
    """Trials follow from the release's lambda and delta, never from those that are asked."""
    spec = MECHANISMS.format(
        ill=f'mechanism = "uniform"\nretention = 0.5\n{LISTED}', age="role = 1"
    ).replace('role = "sensitive"\nrole = 1', 'role = "drop"')
    spec += (
        "[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n"
        'from = "raw"\ncap = "exact"\nscaling = "duplicate"\n'
    )
    path = publish("duplicated", spec)
    own = audit(path, clinic / "people.parquet")
    assert own.groups[0].violating == (0, 0)
    caps = {
        values.total(): cap_of(max(values.values()) / values.total(), 0.5, 0.5 / 3, 0.3, 0.3)
        for values in slow_groups(clinic, "ill").values()
    }
    for rows, trials in zip(own.groups[0].rows, own.groups[0].trials, strict=True):
        assert trials == min(rows, math.floor(caps[rows]))
    strict = audit(path, clinic / "people.parquet", relative_error=0.3, probability=0.9)
    assert strict.groups[0].trials.tolist() == own.groups[0].trials.tolist()
    assert strict.groups[0].violating[0] > 0
    assert verdict(strict, "ill", "(lambda, delta)").verdict == "fails"
    alone = audit(path, relative_error=0.3, probability=0.9)
    assert verdict(alone, "ill", "(lambda, delta)").verdict == "open"
    easy = audit(path, clinic / "people.parquet", error=0.9, miss=0.9)
    found = verdict(easy, "ill", "(n, eps, delta)")
    assert (found.verdict, "is not known" in found.text) == ("note", True)


def test_few_trials_in_a_large_group_are_worth_little():
    """OLAP theorem 1 by the number of trials fails after a cut; by their worth it holds."""
    rng = np.random.default_rng(4)
    rows, trials, p, delta = np.array([9_000.0, 1_000.0]), np.array([30, 1_000]), 0.5, 0.05
    worth = effective_rows(rows, trials.astype(float))
    assert worth == pytest.approx(10_000**2 / (9_000**2 / 30 + 1_000**2 / 1_000))
    assert effective_rows(rows, rows) == pytest.approx(10_000)
    seen = rng.binomial(trials[:, None], 0.5, (2, 20_000)) / trials[:, None]  # m = 2, f = .5
    errors = np.abs((rows / rows.sum()) @ ((seen - 0.25) / p) - 0.5)
    needed = reconstructible_rows(0.5, delta, p) * 0.5**2
    assert (errors > math.sqrt(needed / trials.sum())).mean() > 2 * delta
    assert (errors > math.sqrt(needed / worth)).mean() <= delta


def test_a_release_cut_down_says_what_its_rows_are_worth(clinic, publish):
    path = publish("worth", SPEC + '[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\ncap="one"')
    report = audit(path, clinic / "people.parquet")
    sizes, trials = report.groups[0].rows, report.groups[0].trials
    worth = 4_000**2 / sum(n * n / t for n, t in zip(sizes, trials, strict=True))
    assert worth < report.trials / 1.5
    assert report.effective == report.to_dict()["effective"] == pytest.approx(worth)
    # An error that the rows would give by their number, and do not by their worth.
    z, deviation = 0.6744897501960817, math.sqrt((2 / 3) * (1 / 3)) / 0.5
    error = z * deviation / math.sqrt(0.9 * report.trials)
    found = verdict(audit(path, error=error, miss=0.5), "ill", "(n, eps, delta)")
    assert found.verdict == "weak"
    assert f"worth {math.floor(worth):,} rows of equal weight" in found.text
    # A figure of utility decides nothing of privacy.
    assert all(f.verdict != "fails" for f in report.findings if f.criterion == "(n, eps, delta)")


@pytest.mark.parametrize(("m", "p", "n"), [(2, 0.5, 400), (3, 0.4, 2_000), (20, 0.3, 150)])
def test_the_interval_of_a_share_is_the_exact_one(m, p, n):
    """By simulation at every f: covered as asked, nowhere much wider than needed."""
    rng, miss, draws = np.random.default_rng(m), 0.1, 40_000
    half = share_half_width(n, p, [1 / m], miss)
    t0 = (1 - p) / m
    missed = []
    for f in np.linspace(0, 1, 11):
        held = round(f * n)
        seen = rng.binomial(held, p + t0, draws) + rng.binomial(n - held, t0, draws)
        errors = np.abs((seen / n - t0) / p - held / n)
        missed.append((errors > half + 1e-9).mean())
    assert max(missed) <= miss + 4 * math.sqrt(miss / draws)
    assert max(missed) > miss / 2  # discrete, so not all of it
    # The theorem's bound is several times as wide.
    loose = math.sqrt(reconstructible_rows(0.5, miss, p) * 0.5**2 / n)
    assert 3 * half < loose
    needed = rows_for_share(p, [1 / m], half, miss)
    assert needed == pytest.approx(n, rel=0.15)


def test_the_interval_of_a_share_where_rows_stand_for_more():
    rng, p, n, total, draws = np.random.default_rng(8), 0.5, 300, 3_000, 40_000
    half = share_half_width(n, p, [0.25], 0.05, total)
    missed = []
    for f in (0.0, 0.3, 0.5, 0.7, 1.0):
        held = rng.hypergeometric(round(f * total), total - round(f * total), n, draws)
        seen = rng.binomial(held, p + 0.125) + rng.binomial(n - held, 0.125)
        missed.append((np.abs((seen / n - 0.125) / p - f) > half).mean())
    assert max(missed) == pytest.approx(0.05, abs=0.01)
    assert share_half_width(0, p, [0.25], 0.05) == math.inf


def test_a_weak_figure_is_no_failure_of_privacy(clinic):
    report = audit(clinic / "plain.duckdb", clinic / "people.parquet", error=0.001)
    ill, age = (verdict(report, name, "(n, eps, delta)") for name in ("ill", "age"))
    assert (ill.verdict, age.verdict) == ("weak", "weak")
    useful = replace(report, findings=tuple(f for f in report.findings if f.verdict == "weak"))
    assert useful.holds
    column = report.columns[1]
    assert column.reached_error == pytest.approx(
        1.96 * math.sqrt(0.335 * 0.665 / 4_000) / 0.3, rel=0.03
    )
    wide = audit(clinic / "plain.duckdb", error=0.06)
    assert verdict(wide, "age", "(n, eps, delta)").verdict == "useful"


def test_the_error_of_rows_that_stand_for_more():
    rng = np.random.default_rng(5)
    shares, total, rows = np.array([0.5, 0.3, 0.2]), 1_000, 200
    for channel in (Uniform(0.4, 3), FineGrain([0.2, 0.7, 0.4])):
        drawn = rng.multivariate_hypergeometric((shares * total).astype(int), rows, 20_000)
        published = sum(
            rng.multinomial(drawn[:, i], channel.matrix[i]) for i in range(channel.size)
        )
        estimates = published @ np.linalg.inv(channel.matrix)
        found = relative_errors(channel, shares, rows, total)
        np.testing.assert_allclose(found, estimates.std(axis=0) / (rows * shares), rtol=0.04)


def test_a_matrix_that_turns_values_round_hides_nothing_by_that():
    turned = Matrix([[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]])
    straight = Matrix([[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]])
    for ours, same in zip(chances(turned), chances(straight), strict=True):
        np.testing.assert_allclose(ours, same)
    assert np.isfinite(cap_of(1.0, *chances(turned), 0.3, 0.3)).all()
    # Of two values the exact tail is that of the other one's count.
    kept, false = (float(each[0]) for each in chances(Matrix([[0.2, 0.8], [0.7, 0.3]])))
    assert (kept, false) == pytest.approx((0.5, 0.3))
    rng = np.random.default_rng(6)
    seen = rng.binomial(60, 0.8, 200_000) + rng.binomial(40, 0.3, 200_000)
    estimate = (seen / 100 - false) / kept
    found = exact_of(100, 60, kept, false, 0.2)
    assert found.lower == pytest.approx((estimate < 0.48 - 1e-9).mean(), abs=0.003)
    assert found.upper == pytest.approx((estimate > 0.72 + 1e-9).mean(), abs=0.003)


def test_values_that_are_not_listed_count_as_well(clinic):
    q = np.full(400, 1.0)
    q[-3:] = 1e-3
    column = replace(
        open_release(clinic / "plain.duckdb").manifest.sensitive[0],
        mechanism="replace",
        domain=Grid.of(0, 399),
        channel=Replace(0.05, q / q.sum()),
    )
    column = replace(column, epsilon=column.channel.epsilon)
    found = audit_column(column, 1_000, None, Thresholds())
    assert len(found.per_value) == 200
    assert found.broken == (3, 400)  # a belief in any value falls when a rare one is published
    assert max(value.up for value in found.per_value) < 171 < found.gamma


ONE = f'mechanism = "uniform"\nretention = 0.5\n{LISTED}'


def test_a_channel_promises_nothing_where_the_release_does_not(clinic, publish):
    age = f'mechanism = "uniform"\nretention = 0.3\n{GRID}'
    path = publish("seeded", MECHANISMS.format(ill=ONE, age=age), seed=1)
    report = audit(path)
    assert verdict(report, "ill", "rho1-rho2").verdict == "note"
    total = math.log(4) + math.log(1 + 6 / 0.7)
    assert f"with fresh draws it would be epsilon {total:.4g}" in report.findings[0].text
    raw = MECHANISMS.format(ill=ONE, age=age).replace('"none"\n', '"chi2"\nfrom = "raw"\n')
    report = audit(publish("from_raw", raw))
    assert report.findings[0].verdict == "void"
    assert verdict(report, "ill", "rho1-rho2").verdict == "note"
    assert verdict(report, "release", "raw data").verdict == "note"


def test_a_column_that_is_kept_is_told_to_keep_less(publish):
    kept = ONE.replace("0.5", "1.0") + "accept_epsilon = true\n"
    age = f'mechanism = "uniform"\nretention = 0.3\n{GRID}'
    report = audit(publish("kept", MECHANISMS.format(ill=kept, age=age)))
    found = verdict(report, "ill", "rho1-rho2")
    assert (found.verdict, found.advice) == ("void", "a retention below 1")
    assert verdict(report, "release", "epsilon").verdict == "void"
    assert "retention below 1" in verdict(report, "release", "epsilon").advice


def test_several_rows_a_person(clinic, tmp_path):
    table = pq.read_table(clinic / "people.parquet")
    numbers = np.arange(len(table)) // 2
    pq.write_table(table.append_column("id", pa.array(numbers)), tmp_path / "raw.parquet")
    spec = SPEC.replace('table = "people"\n', 'table = "people"\nunit = "id"\n')
    (tmp_path / "s.toml").write_text(spec)
    privsql.publish(str(tmp_path / "raw.parquet"), tmp_path / "r.duckdb", spec=tmp_path / "s.toml")
    report = audit(tmp_path / "r.duckdb", tmp_path / "raw.parquet", error=0.9, miss=0.9)
    first = verdict(report, "release", "epsilon")
    assert (first.verdict, "one row per person" in first.advice) == ("void", True)
    total = sum(column.epsilon for column in report.columns)
    assert f"each loses {total:.4g}, up to {2 * total:.4g} together" in first.text
    found = verdict(report, "ill", "(n, eps, delta)")
    assert (found.verdict, "carry less information" in found.text) == ("note", True)
    assert verdict(report, "ill", "rho1-rho2").verdict == "note"
    assert "one row per person" in verdict(report, "ill", "(lambda, delta)").advice


def test_null_is_a_value_like_others(tmp_path):
    ill = ["flu"] * 150 + ["none"] * 700 + [None] * 150
    pq.write_table(pa.table({"city": [None, "a"] * 500, "ill": ill}), tmp_path / "raw.parquet")
    (tmp_path / "s.toml").write_text(
        '[release]\ntable = "t"\n[columns.city]\nrole = "public"\n'
        '[columns.ill]\nrole = "sensitive"\nmechanism = "uniform"\nretention = 0.5\n'
        'domain = ["flu", "none"]\nnullable = true\n[groups]\nmerge = "none"\n'
    )
    privsql.publish(str(tmp_path / "raw.parquet"), tmp_path / "r.duckdb", spec=tmp_path / "s.toml")
    report = audit(tmp_path / "r.duckdb", tmp_path / "raw.parquet", rho1=0.2)
    (column,) = report.columns
    assert column.values == 3
    assert sorted(value.share for value in column.per_value) == pytest.approx([0.15, 0.15, 0.7])
    assert column.s_observed == pytest.approx(0.45)
    assert report.groups[0].groups == 2
    assert report.groups[0].frequency.tolist() == pytest.approx([0.7, 0.7])
