"""Every option of a spec, end to end: mechanisms, types, groups, protection."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.errors import Error
from privsql.publish.keys.key import new_key
from privsql.release.names import GROUP, WEIGHT
from privsql.release.spec import parse_spec
from tests import specs
from tests.publish.test_job import left_behind, publish, rows

ROWS = 4_000
SHARES = (0.35, 0.3, 0.2, 0.15)


def values_of(kind: str) -> list[object]:
    """Four values of a kind, as Python has them."""
    day, hour = dt.date(2024, 2, 27), dt.datetime(2024, 2, 29, 22)
    return {
        "text": ["a", "b'", 'c "d"', "é"],
        "integer": [-1, 0, 1, 2],
        "real": [0.1, 0.2, 0.3, 0.4],
        "decimal": [Decimal("0.10"), Decimal("0.15"), Decimal("0.20"), Decimal("0.25")],
        "date": [day + dt.timedelta(days=i) for i in range(4)],
        "timestamp": [hour + dt.timedelta(hours=i) for i in range(4)],
        "boolean": [False, True],
    }[kind]


TYPES = {
    "text": ("VARCHAR", """["a", "b'", 'c "d"', "é"]"""),
    "integer": ("SMALLINT", "{ lower = -1, upper = 2 }"),
    "real": ("DOUBLE", "{ lower = 0.1, upper = 0.4, step = 0.1 }"),
    "decimal": ("DECIMAL(6,2)", "{ lower = 0.10, upper = 0.25, step = 0.05 }"),
    "date": ("DATE", "{ lower = 2024-02-27, upper = 2024-03-01 }"),
    "timestamp": (
        "TIMESTAMP",
        "{ lower = 2024-02-29T22:00:00, upper = 2024-03-01T01:00:00, step = '1 hour' }",
    ),
    "boolean": ("BOOLEAN", "[false, true]"),
}
LISTED = "[0.4, 0.3, 0.2, 0.1]"
MATRIX = "[[0.7,0.1,0.1,0.1],[0.1,0.6,0.2,0.1],[0.1,0.2,0.6,0.1],[0.2,0.1,0.1,0.6]]"
MECHANISMS = {
    "uniform": "retention = 0.4",
    "uniform by epsilon": "epsilon = 1.5",
    "uniform by rho": "rho = [0.1, 0.3]",
    "replace": f"retention = 0.4\nreplacing = {LISTED}",
    "matrix": f"matrix = {MATRIX}",
    "finegrain rho": "rho = [0.1, 0.4]",
    "finegrain each": "rho = [[0.1, 0.4], [0.1, 0.5], [0.2, 0.4], [0.1, 0.3]]\nfloor = 0.05",
    "finegrain theta": "theta = 2.5",
    "finegrain prior": f"theta = 2\nprior = {LISTED}",
    "finegrain raw": 'theta = 2\nprior = "raw"',
    "finegrain upward": 'rho = [0.1, 0.4]\nsides = "upward"',
    "identity": "retention = 0.4",
    "swap": "retention = 0.4",
    "decoy": "group_size = 2",
    "decoy anatomy": 'group_size = 2\npartition = "anatomy"',
}
WHOLE = ("identity", "swap", "decoy")


def sensitive(kind: str, mechanism: str, *, nullable: bool = False, name: str = "s") -> str:
    domain = TYPES[kind][1]
    extra = "nullable = true\n" if nullable else ""
    return (
        f'[columns.{name}]\nrole = "sensitive"\nmechanism = "{mechanism.split()[0]}"\n'
        f"domain = {domain}\n{extra}{MECHANISMS[mechanism]}\n"
    )


def spec_of(*columns: str, more: str = "") -> str:
    return "\n".join(['[release]\ntable = "t"\n', *columns, more])


PUBLIC = '[columns.p]\nrole = "public"\n'


def write(place: Path, kind: str, *, nulls: bool = False) -> dict[object, int]:
    """A source p, s; returns how often each value of s occurs."""
    values = values_of(kind)
    if nulls:
        values = [*values[:-1], None] if len(values) > 2 else [*values, None]
    rng = np.random.default_rng(5)
    shares = np.array(SHARES[: len(values)]) / sum(SHARES[: len(values)])
    if len(values) == 2:
        shares = np.array([0.5, 0.5])
    drawn = rng.choice(len(values), ROWS, p=shares)
    taken = [values[i] for i in drawn]
    given = pa.table({"p": rng.choice(["x", "y", "z"], ROWS), "s": pa.array(taken)})
    with duckdb.connect(str(place / "raw.duckdb")) as con:
        con.register("given", given)
        con.execute(f"CREATE OR REPLACE TABLE raw AS SELECT p, s::{TYPES[kind][0]} AS s FROM given")
        con.unregister("given")
    return {value: taken.count(value) for value in values}


def published(place: Path, column: str = "s") -> dict[object, int]:
    manifest = privsql.release.open(place / "out.duckdb").manifest
    count = "sum(privsql_multiplicity)::INT" if manifest.multiplicity else "count(*)"
    return dict(rows(place, f"SELECT {column}, {count} FROM t GROUP BY ALL"))


def go(place: Path, spec: str, **options):
    report = publish(place, spec, source=str(place / "raw.duckdb"), **options)
    manifest = privsql.release.open(place / "out.duckdb").manifest
    assert manifest == report.manifest
    assert type(manifest).from_json(manifest.to_json()) == manifest
    assert left_behind(place) == ["out.duckdb"]
    return report


def check_frequencies(found: dict[object, int], truth: dict[object, int], column) -> None:
    """Every value lies in the domain, and as often as the channel says."""
    domain, channel = column.domain, column.channel
    counts, raw = np.zeros(domain.size), np.zeros(domain.size)
    for into, given in ((counts, found), (raw, truth)):
        # Exactly in the domain, not only near to it.
        listed = domain.values().cast(pa.array(list(given)).type).to_pylist()
        assert set(given) <= set(listed)
        for value, count in given.items():
            into[listed.index(value)] += count
    expected = channel.expected(raw)
    total = raw.sum()
    assert abs(counts.sum() - total) <= 1  # a decoy group that was not full
    spread = np.sqrt(np.maximum(expected * (1 - expected / total), 1))
    assert (np.abs(counts - expected) <= 5 * spread + 1).all(), (counts, expected)


CASES = [
    (kind, mechanism, nulls)
    for kind in TYPES
    for mechanism in MECHANISMS
    for nulls in (False, True)
    # Every mechanism on text, and the different ways to see a column on every type.
    if kind == "text" or (mechanism in ("uniform", "swap") and nulls) or mechanism == "replace"
    if not (kind == "boolean" and mechanism not in ("uniform", "swap"))
    # These have four entries, and NULL would be a fifth.
    if not (nulls and ("0.4, 0.3" in MECHANISMS[mechanism] or "[[" in MECHANISMS[mechanism]))
    if not (nulls and "decoy" in mechanism and kind == "boolean")
]


# Text has every mechanism; of the other types every second one is for `make soak`.
OTHERS = [case for case in CASES if case[0] != "text"][1::2]


@pytest.mark.parametrize(
    ("kind", "mechanism", "nulls"),
    [pytest.param(*case, marks=pytest.mark.soak) if case in OTHERS else case for case in CASES],
)
def test_mechanisms_follow_their_channels(tmp_path, monkeypatch, kind, mechanism, nulls):
    monkeypatch.setattr("privsql.publish.perturb.decoy.SIMULATED_ROWS", 1 << 18)
    truth = write(tmp_path, kind, nulls=nulls)
    report = go(tmp_path, spec_of(PUBLIC, sensitive(kind, mechanism, nullable=nulls)))
    (column,) = report.manifest.sensitive
    assert column.type == TYPES[kind][0]
    assert column.mechanism == mechanism.split()[0]
    assert (None in column.domain.values().to_pylist()) == nulls
    found = published(tmp_path)
    check_frequencies(found, truth, column)
    if mechanism == "swap":
        assert found == truth
    raw = report.manifest.privacy.raw
    if mechanism.split()[0] in WHOLE:
        assert raw == (f"{column.mechanism} on s draws from the data itself",)
    elif mechanism == "finegrain raw":
        assert raw == ("the retentions of s follow from raw frequencies",)
    else:
        assert raw == ()
        assert report.manifest.privacy.epsilon == pytest.approx(column.channel.epsilon)
    assert math.isinf(report.manifest.privacy.epsilon) == bool(raw)


def test_a_replacing_distribution_by_value(tmp_path):
    truth = write(tmp_path, "integer")
    listed = 'domain = [-1, 0, 1, 2]\nretention = 0.4\nreplacing = {"-1"=0.4, 0=0.3, 1=0.2, 2=0.1}'
    text = '[columns.s]\nrole = "sensitive"\nmechanism = "replace"\n' + listed
    report = go(tmp_path, spec_of(PUBLIC, text))
    (column,) = report.manifest.sensitive
    np.testing.assert_allclose(column.channel.matrix[0], [0.64, 0.18, 0.12, 0.06])
    check_frequencies(published(tmp_path), truth, column)


@pytest.mark.parametrize("kind", [k for k in TYPES if k not in ("real", "timestamp")])
@pytest.mark.parametrize("nulls", [True, False])
def test_observed_domains(tmp_path, kind, nulls):
    truth = write(tmp_path, kind, nulls=nulls)
    spec = spec_of(PUBLIC, sensitive(kind, "uniform").replace(TYPES[kind][1], '"observed"'))
    report = go(tmp_path, spec)
    (column,) = report.manifest.sensitive
    assert column.type == TYPES[kind][0]
    assert set(column.domain.values().to_pylist()) == set(truth)
    assert report.manifest.privacy.raw == ("the domain of s was observed",)
    assert any("taken from the data" in warning for warning in report.warnings)
    check_frequencies(published(tmp_path), truth, column)


@pytest.mark.parametrize("kind", ["real", "timestamp"])
def test_domains_that_cannot_be_observed(tmp_path, kind):
    write(tmp_path, kind)
    spec = spec_of(PUBLIC, sensitive(kind, "uniform").replace(TYPES[kind][1], '"observed"'))
    try:
        go(tmp_path, spec)
    except Error as problem:
        text = str(problem)
        assert left_behind(tmp_path) == []
        for raw in ("0.3", "2024"):
            assert raw not in text
    else:
        assert set(published(tmp_path)) <= set(values_of(kind))


# --- groups ------------------------------------------------------------------------


def grouped(place: Path) -> None:
    """Jobs a, b are alike, and so are c, d and f, g; e is rare; ages say nothing."""
    rng = np.random.default_rng(3)
    job = rng.choice(list("abcdefg"), 6_000, p=[0.15, 0.15, 0.2, 0.19, 0.01, 0.15, 0.15])
    share = {"a": 0.05, "b": 0.05, "f": 0.5, "g": 0.5}
    sick = rng.random(6_000) < [share.get(each, 0.95) for each in job]
    table = pa.table({"job": job, "city": rng.choice(["m", "n"], 6_000), "s": sick})
    pq.write_table(table, place / "raw.parquet")


GROUPED = specs.spec(
    "t", specs.public("job"), specs.public("city"), specs.sensitive("s", 0.6, [False, True])
)


def labels(place: Path, column: str) -> dict[str, int]:
    return dict(rows(place, f'SELECT value, label FROM privsql."values of {column}"'))


@pytest.mark.parametrize("source", ["published", "raw"])
def test_groups_merge_values_that_look_alike(tmp_path, source):
    grouped(tmp_path)
    manifest = publish(
        tmp_path, GROUPED + f'[groups]\nsignificance = 0.001\nfrom = "{source}"\n'
    ).manifest
    job = labels(tmp_path, "job")
    assert job["a"] == job["b"] != job["c"] == job["d"]
    assert len(set(labels(tmp_path, "city").values())) == 1
    assert manifest.groups.source == source
    raw = ("public values were merged by raw frequencies",) if source == "raw" else ()
    assert manifest.privacy.raw == raw
    assert math.isinf(manifest.privacy.epsilon) == (source == "raw")
    assert privsql.release.open(tmp_path / "out.duckdb").manifest == manifest


def test_groups_that_are_not_merged(tmp_path):
    grouped(tmp_path)
    manifest = publish(tmp_path, GROUPED + '[groups]\nmerge = "none"\nfrom = "raw"\n').manifest
    assert sorted(labels(tmp_path, "job").values()) == [0, 1, 2, 3, 4, 5, 6]
    assert manifest.groups.merge == "none"
    assert manifest.groups.count == rows(tmp_path, "SELECT count(*) FROM privsql.tuples")[0][0]
    assert manifest.privacy.raw == ()  # nothing was merged, so nothing raw was looked at


@pytest.mark.parametrize("more", ['df = "m"', "minimum = 100", "significance = 0.001"])
def test_options_of_merging(tmp_path, more):
    grouped(tmp_path)
    manifest = publish(tmp_path, GROUPED + f"[groups]\n{more}\n").manifest
    key, value = more.split(" = ")
    assert str(getattr(manifest.groups, key)) == value.strip('"')
    job = labels(tmp_path, "job")
    assert job["a"] == job["b"] != job["c"] == job["d"]
    if key == "minimum":
        assert rows(tmp_path, "SELECT count(*) < 100 FROM t WHERE job = 'e'") == [(True,)]


# --- reconstruction ----------------------------------------------------------------


@pytest.mark.parametrize("cap", ["grid", "one", "exact"])
@pytest.mark.parametrize("scaling", ["weight", "duplicate"])
@pytest.mark.parametrize("source", ["published", "raw"])
def test_reconstruction_privacy(tmp_path, cap, scaling, source):
    grouped(tmp_path)
    more = f'cap = "{cap}"\nscaling = "{scaling}"\nfrom = "{source}"\n'
    spec = GROUPED + f"[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n{more}"
    report = publish(tmp_path, spec)
    manifest = privsql.release.open(tmp_path / "out.duckdb").manifest
    assert manifest == report.manifest
    kept = (manifest.protection.cap, manifest.protection.scaling, manifest.protection.source)
    assert kept == (cap, scaling, source)
    raw = ["group caps were computed from raw frequencies"] * (source == "raw")
    raw += ["rows were sampled by their raw values"] * (scaling == "duplicate")
    assert list(manifest.privacy.raw) == raw
    assert math.isinf(manifest.privacy.epsilon) == bool(raw)
    assert any("cap = exact" in warning for warning in report.warnings) == (cap == "exact")
    assert manifest.weighted == (scaling == "weight")
    times = "privsql_multiplicity" if manifest.multiplicity else "1"
    weight = WEIGHT if manifest.weighted else "1"
    found = rows(
        tmp_path,
        f"SELECT t.{GROUP}, sum({times} * {weight}), sum({times}) FROM t JOIN privsql.tuples t"
        f" USING (job, city) GROUP BY ALL".replace("FROM t JOIN", "FROM main.t AS r JOIN"),
    )
    truth = dict(
        rows(tmp_path, f"SELECT {GROUP}, sum(privsql_rows) FROM privsql.tuples GROUP BY ALL")
    )
    assert sum(truth.values()) == 6_000
    if scaling == "weight":
        assert any(count < truth[group] for group, _, count in found)
        for group, total, _ in found:
            assert total == pytest.approx(truth[group])
    else:
        assert sum(total for _, total, _ in found) == pytest.approx(6_000, rel=0.15)
        assert manifest.multiplicity  # copies there are


# --- shapes of tables --------------------------------------------------------------


def test_several_sensitive_columns_are_independent(tmp_path):
    kinds = ["text", "integer", "real", "decimal", "date", "timestamp", "boolean"]
    rng = np.random.default_rng(4)
    drawn = rng.integers(2, size=ROWS)
    given = pa.table({k: pa.array([values_of(k)[i] for i in drawn]) for k in kinds})
    with duckdb.connect(str(tmp_path / "raw.duckdb")) as con:
        con.register("given", given)
        cast = ", ".join(f"{k}::{TYPES[k][0]} AS {k}" for k in kinds)
        con.execute(f"CREATE TABLE raw AS SELECT {cast} FROM given")
        con.unregister("given")
    report = go(tmp_path, spec_of(*(sensitive(k, "uniform", name=k) for k in kinds)))
    columns = report.manifest.sensitive
    assert [c.type for c in columns] == [TYPES[k][0] for k in kinds]
    assert report.manifest.privacy.epsilon == pytest.approx(sum(c.channel.epsilon for c in columns))
    for kind, column in zip(kinds, columns, strict=True):
        truth = {values_of(kind)[i]: int((drawn == i).sum()) for i in range(2)}
        found = published(tmp_path, kind)
        check_frequencies(found, truth, column)
    # Kept in both columns: .4^2 of the rows, and by chance 1/16 and so on; equal draws
    # would keep .4 of them.
    one, two = values_of("text"), values_of("integer")
    pairs = rows(tmp_path, "SELECT text, integer FROM t")
    same = sum(one.index(a) == two.index(b) for a, b in pairs) / len(pairs)
    chance = 0.4**2 + (1 - 0.4**2) / 4
    assert same == pytest.approx(chance, abs=5 * math.sqrt(0.25 / len(pairs)))


def test_without_a_public_column(tmp_path):
    truth = write(tmp_path, "text")
    spec = spec_of(PUBLIC.replace("public", "drop"), sensitive("text", "uniform"))
    report = go(tmp_path, spec)
    assert report.manifest.groups.count == 1
    assert report.manifest.groups.columns == ()
    assert rows(tmp_path, "SELECT * FROM privsql.tuples") == [(0, ROWS)]
    check_frequencies(published(tmp_path), truth, report.manifest.sensitive[0])


def test_without_a_public_column_groups_are_cut_down_all_the_same(tmp_path):
    write(tmp_path, "text")
    spec = spec_of(PUBLIC.replace("public", "drop"), sensitive("text", "uniform"))
    report = go(tmp_path, spec + "\n[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n")
    times = "privsql_multiplicity" if report.manifest.multiplicity else "1"
    ((weight, kept),) = rows(tmp_path, f"SELECT sum({times} * {WEIGHT}), sum({times}) FROM t")
    assert weight == pytest.approx(ROWS)
    assert kept < ROWS


@pytest.mark.parametrize("more", ["", "[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n"])
@pytest.mark.parametrize("limit", [0, 10**6])
def test_public_columns_with_nulls(tmp_path, monkeypatch, limit, more):
    monkeypatch.setattr("privsql.publish.groups.numbering.SMALL", limit)
    rng = np.random.default_rng(9)
    given = {
        "p": [None if v == 2 else "xy"[v] for v in rng.integers(3, size=ROWS)],
        "q": [None if v == 2 else int(v) for v in rng.integers(3, size=ROWS)],
        "s": rng.choice(["a", "é"], ROWS),
    }
    pq.write_table(pa.table(given), tmp_path / "raw.parquet")
    spec = spec_of(PUBLIC, PUBLIC.replace(".p", ".q"), sensitive("text", "uniform"), more=more)
    report = publish(tmp_path, spec)
    truth: dict[object, int] = {}
    for pair in zip(given["p"], given["q"], strict=True):
        truth[pair] = truth.get(pair, 0) + 1
    assert len(truth) == 9
    tuples = rows(tmp_path, "SELECT p, q, privsql_rows FROM privsql.tuples")
    assert {(p, q): n for p, q, n in tuples} == truth
    times = "privsql_multiplicity" if report.manifest.multiplicity else "1"
    if more:
        times += f" * {WEIGHT}"
    found = rows(tmp_path, f"SELECT p, q, sum({times}) FROM t GROUP BY ALL")
    if not more:
        assert {(p, q): n for p, q, n in found} == truth
    assert sum(n for _, _, n in found) == pytest.approx(ROWS)
    assert set(labels(tmp_path, "p")) == {"x", "y", None}


def test_one_distinct_public_value(tmp_path):
    given = pa.table({"p": ["x"] * 500, "s": ["a", "é"] * 250})
    pq.write_table(given, tmp_path / "raw.parquet")
    report = publish(tmp_path, spec_of(PUBLIC, sensitive("text", "uniform")))
    assert report.manifest.groups.count == 1
    assert labels(tmp_path, "p") == {"x": 0}


def test_a_unit_with_several_rows(tmp_path):
    """The same value of the same person is drawn once; another value is drawn anew."""
    given = pa.table(
        {
            "id": [i for i in range(1_000) for _ in range(3)],
            "p": [str(i) for i in range(1_000) for _ in range(3)],
            "s": ["a", "a", "é"] * 1_000,
        }
    )
    pq.write_table(given, tmp_path / "raw.parquet")
    spec = spec_of(PUBLIC + "grouping = false\n", sensitive("text", "uniform"))
    spec = spec.replace('table = "t"', 'table = "t"\nunit = "id"')
    report = publish(tmp_path, spec)
    assert report.manifest.privacy.unit == "person"
    assert report.manifest.privacy.rows_per_unit == 3
    assert math.isinf(report.manifest.privacy.epsilon)
    assert math.isinf(report.manifest.privacy.changed)
    assert [w for w in report.warnings if "(at most 3)" in w]
    times = "privsql_multiplicity" if report.manifest.multiplicity else "1"
    per_person = rows(
        tmp_path,
        f"SELECT max(n) FROM (SELECT p, s, sum({times}) n FROM t GROUP BY ALL) GROUP BY p",
    )
    assert len(per_person) == 1_000
    # The two equal rows stay equal, so no person publishes three different values.
    assert all(most >= 2 for (most,) in per_person)
    assert any(most == 2 for (most,) in per_person)


def test_a_ledger_withdraws_the_epsilon_of_persons_with_several_rows(tmp_path):
    """Of the publication with several rows, and of later ones of the same persons."""
    new_key(tmp_path / "k.key")
    spec = spec_of(PUBLIC + "grouping = false\n", sensitive("text", "uniform"))
    spec = spec.replace('table = "t"', 'table = "t"\nunit = "id"\nkey = "k.key"')
    found = []
    for rows_each in (1, 13, 1):
        ids = [i for i in range(50) for _ in range(rows_each)]
        given = pa.table({"id": ids, "p": [str(i) for i in ids], "s": ["a"] * len(ids)})
        pq.write_table(given, tmp_path / "raw.parquet")
        found.append(publish(tmp_path, spec, force=True, seed=None))
    one, several, later = (report.manifest.privacy for report in found)
    assert (one.rows_per_unit, math.isfinite(one.epsilon)) == (1, True)
    assert "No epsilon" not in one.statement()
    for privacy in (several, later):
        # Not thirteen: how many rows somebody has is nobody's business.
        assert (privacy.rows_per_unit, privacy.epsilon, privacy.raw) == (20, math.inf, ())
        assert privacy.statement().startswith("No epsilon for this release: some persons have")
    assert "ledger: no epsilon: a person has up to 20 rows" in str(found[1])
    assert "ledger: no epsilon: a person has up to 20 rows" in str(found[2])
    assert [w for w in found[1].warnings if "(at most 13)" in w]
    assert not [w for w in found[2].warnings if "several rows" in w]


# --- what became of the groups ------------------------------------------------------


def workers(folder: Path) -> Path:
    """Three jobs that differ in their illnesses, and three that are like these."""
    rng = np.random.default_rng(12)
    job = rng.integers(0, 6, 6_000)
    ill = rng.random(6_000) < np.array([0.2, 0.5, 0.8])[job % 3]
    jobs, ills = np.array(list("abcdef"))[job], np.where(ill, "yes", "no")
    pq.write_table(pa.table({"job": jobs, "ill": ills}), folder / "raw.parquet")
    return folder / "raw.parquet"


def test_the_report_says_what_became_of_public_values(tmp_path):
    spec = (
        '[release]\ntable = "t"\n[columns.job]\nrole = "public"\n'
        '[columns.ill]\nrole = "sensitive"\nmechanism = "uniform"\nretention = {kept}\n'
        'domain = ["yes", "no"]\n[groups]\nsignificance = 0.001\n{more}'
    )
    source = str(workers(tmp_path))

    def published(kept: float, more: str = ""):
        wanted = parse_spec(spec.format(kept=kept, more=more))
        return privsql.publish(source, tmp_path / "r.duckdb", spec=wanted, seed=1, force=True)

    merged = published(0.6)
    assert "personal groups: 3, merged using published values; public values: job 6 -> 3" in str(
        merged
    )
    assert not any("merged" in warning for warning in merged.warnings)
    apart = published(0.03)
    assert apart.manifest.groups.count == 6
    assert apart.manifest.groups.merge == "none"
    assert "personal groups: 6, not merged (see the warning); public values: job 6" in str(apart)
    assert "not merged: no public column would keep two values" in apart.warnings[-2]
    assert "at retention 0.03 the test has about the power of 0.0009" in str(apart)
    assert 'from = "raw"' in apart.warnings[-1]
    raw = published(0.03, 'from = "raw"\n')
    assert "personal groups: 3, merged using raw values" in str(raw)
    assert math.isinf(raw.manifest.privacy.epsilon)
    none = published(0.6, 'merge = "none"\n')
    assert "personal groups: 6; public values: job 6" in str(none)
