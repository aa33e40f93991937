"""Who is alone by public values, and what tells a sensitive column, against brute force."""

from __future__ import annotations

import random
from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.audit.job import audit
from privsql.audit.links import AGREEING, Pairs, agreed, estimated, neighbours, shares_told
from privsql.audit.uniqueness import CLASSES, uniqueness
from privsql.channels import Replace, Uniform
from tests.sizes import sized

SENSITIVE = (
    '[columns.s]\nrole = "sensitive"\nmechanism = "uniform"\nretention = 0.5\n'
    'domain = ["a", "b", "c"]\n'
)


def table(rng: random.Random) -> tuple[list[str], list[tuple[object, ...]]]:
    """A small random table with NULLs, and columns of few or of many values."""
    names = [f'p "{i}"' for i in range(rng.randint(1, 4))]
    sizes = [rng.choice([1, 2, 5, 400]) for _ in names]
    rows = [
        tuple(None if rng.random() < 0.1 else rng.randrange(size) for size in sizes)
        for _ in range(rng.randint(1, 120))
    ]
    return names, rows


def slow(names, rows):
    """The same figures, counted in plain Python."""
    counts = Counter(rows)
    classes = []
    for low, high in CLASSES:
        inside = [n for n in counts.values() if n >= low and (high is None or n <= high)]
        classes.append((len(inside), sum(inside)))
    columns = {}
    for i, name in enumerate(names):
        by = Counter(row[i] for row in rows)
        rest = Counter(row[:i] + row[i + 1 :] for row in rows)
        columns[name] = (
            len(by),
            sum(n == 1 for n in by.values()),
            sum(n == 1 for n in rest.values()),
        )
    return sum(n == 1 for n in counts.values()), len(counts), classes, columns


def agree(found, names, rows):
    alone, different, classes, columns = slow(names, rows)
    assert (found.rows, found.alone, found.combinations) == (len(rows), alone, different)
    assert found.share == alone / len(rows)
    assert [(each.combinations, each.rows) for each in found.classes] == classes
    got = {each.name: (each.values, each.alone, each.without) for each in found.columns}
    if not alone:  # nobody is alone by fewer columns either
        assert all(rest[2] == 0 for rest in columns.values())
    assert got == columns
    without = [each.without for each in found.columns]
    assert without == sorted(without)


@pytest.mark.parametrize("seed", range(sized(25, 300)))
def test_counts_are_those_of_brute_force(seed):
    names, rows = table(random.Random(seed))
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    given = pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})
    with duckdb.connect() as con:
        con.from_arrow(given).create("t")
        agree(uniqueness(con, "t", names), names, rows)
        # Equal rows stored once, with how many they are.
        by = ", ".join(f'"{name.replace(chr(34), chr(34) * 2)}"' for name in names)
        con.execute(f"CREATE TABLE c AS SELECT {by}, count(*) AS times FROM t GROUP BY ALL")
        agree(uniqueness(con, "c", names, "times"), names, rows)


def published(tmp_path, columns, spec, *, more=""):
    pq.write_table(pa.table(columns), tmp_path / "raw.parquet")
    (tmp_path / "s.toml").write_text(f'[release]\ntable = "t"\n{spec}{SENSITIVE}{more}')
    privsql.publish(
        str(tmp_path / "raw.parquet"), tmp_path / "r.duckdb", spec=tmp_path / "s.toml", force=True
    )
    return tmp_path / "r.duckdb"


@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize("few", [False, True])
def test_releases_of_every_layout(tmp_path, measure, few):
    """Distinct tuples, compacted rows, rows with measures: each counts as the raw table does."""
    rng = random.Random(7)
    n = 600
    rows = [
        (rng.choice(["x", "y", None]), rng.randrange(3 if few else 300), rng.choice([1.5, None]))
        for _ in range(n)
    ]
    names = ["city", "code", "cost"]
    columns = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    columns["s"] = [rng.choice("abc") for _ in range(n)]
    spec = "".join(f'[columns.{name}]\nrole = "public"\n' for name in names)
    spec += "grouping = false\n" * measure
    path = published(tmp_path, columns, spec)
    assert privsql.release.open(path).manifest.multiplicity == few
    for raw in (None, tmp_path / "raw.parquet"):
        agree(audit(path, raw).uniqueness, names, rows)
    groups = Counter(row[: 2 if measure else 3] for row in rows)
    unmerged = published(tmp_path, columns, spec, more='[groups]\nmerge = "none"\n')
    found = audit(unmerged)
    assert found.alone_in_group == sum(size == 1 for size in groups.values())


def test_rows_that_were_sampled_are_counted_as_all(tmp_path):
    """Numbers of distinct public values are of all rows, also where groups were cut down."""
    rng = random.Random(3)
    rows = [("x",)] * 3_000 + [(f"rare {i % 40}",) for i in range(60)]
    columns = {"city": [row[0] for row in rows], "s": [rng.choice("abc") for _ in rows]}
    protect = '[groups]\nmerge = "none"\n[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n'
    path = published(tmp_path, columns, '[columns.city]\nrole = "public"\n', more=protect)
    assert privsql.release.open(path).manifest.weighted
    found = audit(path).uniqueness
    agree(found, ["city"], rows)
    assert not found.sampled
    columns["cost"] = list(range(len(rows)))
    measured = '[columns.city]\nrole = "public"\n[columns.cost]\nrole="public"\ngrouping=false\n'
    path = published(tmp_path, columns, measured, more=protect)
    alone = audit(path)
    assert alone.uniqueness.sampled
    assert "among rows that were sampled" in str(alone.findings)
    assert not audit(path, tmp_path / "raw.parquet").uniqueness.sampled


def test_an_identifier_is_named_and_stops_the_release(tmp_path):
    rng = random.Random(1)
    columns = {
        "number": list(range(500)),
        "city": [rng.choice("xy") for _ in range(500)],
        "s": [rng.choice("abc") for _ in range(500)],
    }
    spec = '[columns.number]\nrole = "public"\ngrouping = false\n[columns.city]\nrole = "public"\n'
    report = audit(published(tmp_path, columns, spec))
    assert report.uniqueness.identifying == ("number",)
    assert report.uniqueness.columns[0].name == "number"
    front = report.front
    assert (front.answer, next(light.colour for light in front.lights)) == ("no", "red")
    assert "number identifies nearly every person" in front.lights[0].text
    assert any("drop number" in change for change in front.lights[0].change)
    (finding,) = (f for f in report.findings if f.criterion == "uniqueness")
    assert finding.verdict == "fails"
    assert any(f.criterion == "l-diversity" for f in report.findings)


def test_no_public_column_at_all(tmp_path):
    report = audit(published(tmp_path, {"s": ["a", "b", "c"] * 50}, ""))
    assert (report.uniqueness.rows, report.uniqueness.combinations) == (150, 1)
    assert report.front.lights[0].colour == "green"
    assert report.links == ()


# -- public columns that tell a sensitive one ------------------------------------------------


def slow_pairs(places, codes):
    """Agreement, and the share that others' most frequent value gets right; row by row."""
    rows = list(zip(places, codes, strict=True))
    equal = [
        sum(c == d for j, (q, d) in enumerate(rows) if q == p and j != i)
        / sum(q == p for j, (q, _) in enumerate(rows) if j != i)
        for i, (p, c) in enumerate(rows)
        if sum(q == p for q, _ in rows) > 1
    ]
    most = Counter(codes).most_common(1)[0][1] / len(codes)
    right = 0.0
    for i, (p, c) in enumerate(rows):
        others = Counter(d for j, (q, d) in enumerate(rows) if q == p and j != i)
        if not others:
            right += most
        else:
            (first, n), *rest = others.most_common()
            right += first == c and (not rest or rest[0][1] < n)
    return (sum(equal) / len(equal) if equal else 0.0), most, right / len(rows)


def pairs_of(places, codes):
    counted = Counter(zip(places, codes, strict=True))
    keys = sorted(counted)
    return Pairs(
        np.array([k[0] for k in keys]),
        np.array([k[1] for k in keys]),
        np.array([float(counted[k]) for k in keys]),
    )


@pytest.mark.parametrize("seed", range(sized(20, 200)))
def test_what_a_column_tells_by_brute_force(seed):
    rng = random.Random(seed)
    n, values = rng.randint(5, 90), rng.choice([2, 10, 60])
    given = [rng.randrange(values) for _ in range(n)]
    places = [sorted(set(given)).index(p) for p in given]
    codes = [p % 3 if rng.random() < 0.7 else rng.randrange(4) for p in places]
    pairs = pairs_of(places, codes)
    agreement, most, right = slow_pairs(places, codes)
    assert agreed(pairs)[0] == pytest.approx(agreement)
    assert agreed(pairs)[1] == pytest.approx(slow_pairs([0] * n, codes)[0])
    assert shares_told(pairs) == pytest.approx((most, right))


@pytest.mark.parametrize(
    "channel", [Uniform(0.5, 3), Uniform(0.3, 3), Replace(0.4, np.array([0.6, 0.3, 0.1]))]
)
@pytest.mark.parametrize("size", [5, 400])
def test_the_agreement_is_reconstructed_without_bias(channel, size):
    """Over many draws: the mean is that of the original values, the stated error no smaller."""
    rng = np.random.default_rng(size)
    n, draws = 1_200, sized(400, 4_000)
    places = np.arange(n) // size
    codes = np.where(rng.random(n) < 0.8, places % 3, rng.integers(0, 3, n))
    truth = agreed(pairs_of(places.tolist(), codes.tolist()))[0]
    found, errors = [], []
    cumulative = channel.matrix.cumsum(axis=1)
    for _ in range(draws):
        seen = (rng.random(n)[:, None] > cumulative[codes]).sum(axis=1)
        table = np.zeros((places.max() + 1, 3))
        np.add.at(table, (places, seen), 1)
        at = np.nonzero(table)
        estimate, error = estimated(Pairs(at[0], at[1], table[at]), channel)
        found.append(estimate)
        errors.append(error)
    deviation = np.std(found)
    assert np.mean(found) == pytest.approx(truth, abs=4 * deviation / draws**0.5)
    assert deviation <= np.mean(errors) * 1.1
    assert np.mean(errors) < 3 * deviation  # a bound, and no useless one


def test_neighbours_are_put_together_where_hardly_any_two_rows_share():
    copy = pairs_of(range(1_000), [i // 100 for i in range(1_000)])
    assert neighbours(copy).sizes.min() == 5
    assert shares_told(neighbours(copy))[1] == pytest.approx(1)
    shared = pairs_of([i // 2 for i in range(10)], range(10))
    assert neighbours(shared) is shared


COLUMNS = ("same", "often", "fine", "other", "one")


def copied(tmp_path, rows):
    """A copy, one that is right in 97%, an amount it follows from, a stranger, a constant."""
    rng = np.random.default_rng(5)
    amount = rng.uniform(0, 3, rows)
    codes = amount.astype(int)
    often = np.where(rng.random(rows) < 0.97, codes, rng.integers(0, 3, rows))
    columns = {
        "same": codes * 10,
        "often": [f"v{c}" for c in often],
        "fine": amount,
        "other": rng.integers(0, 50, rows),
        "one": ["x"] * rows,
        "s": np.array(["a", "b", "c"])[codes],
    }
    spec = "".join(
        f'[columns.{name}]\nrole = "public"\n' + "grouping = false\n" * (name == "fine")
        for name in COLUMNS
    )
    return published(tmp_path, columns, spec)


def test_a_column_that_tells_a_sensitive_one_is_named(tmp_path):
    path = copied(tmp_path, 4_000)
    report = audit(path, tmp_path / "raw.parquet")
    verdicts = {link.public: link.verdict for link in report.links}
    assert verdicts == {"same": "tells", "often": "tells", "fine": "tells", "other": "free"}
    named = [f for f in report.findings if f.criterion == "public columns"]
    assert {f.verdict for f in named} == {"fails"}
    assert {f.text.split()[0] for f in named} == {"same", "often", "fine"}
    assert report.front.lights[0].colour == "red"
    assert "same nearly determines s" in report.front.lights[0].text


def test_from_the_release_alone_it_is_named_where_that_is_certain(tmp_path):
    path = copied(tmp_path, 40_000)
    verdicts = {link.public: link.verdict for link in audit(path).links}
    assert verdicts["other"] == "free"
    assert verdicts["same"] == verdicts["fine"] == "tells"
    few = copied(tmp_path, 300)
    report = audit(few)
    found = {link.public: link for link in report.links}
    assert found["same"].verdict == "open"
    assert found["same"].agreement + found["same"].error >= AGREEING
    told = [f for f in report.findings if f.criterion == "public columns"]
    assert [f.verdict for f in told] == ["open"]
    assert "--raw" in told[0].advice


def test_what_cannot_be_reconstructed_pair_by_pair_is_open(tmp_path):
    rng = random.Random(2)
    columns = {"p": [rng.choice("xyz") for _ in range(900)]}
    columns["s"] = [rng.choice("abc") for _ in range(900)]
    protect = '[groups]\nmerge = "none"\n[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n'
    path = published(tmp_path, columns, '[columns.p]\nrole = "public"\n', more=protect)
    assert [link.verdict for link in audit(path).links] == ["open"]
    assert [link.verdict for link in audit(path, tmp_path / "raw.parquet").links] == ["free"]


def test_a_rare_value_that_a_column_tells(tmp_path):
    """97% are right without the column, and all are with it."""
    ill = [i % 40 == 0 for i in range(2_000)]
    columns = {"drug": [str(x) for x in ill], "day": [i % 7 for i in range(2_000)]}
    columns["s"] = ["a" if x else "b" for x in ill]
    spec = '[columns.drug]\nrole = "public"\n[columns.day]\nrole = "public"\n'
    path = published(tmp_path, columns, spec)
    found = audit(path, tmp_path / "raw.parquet").links
    assert {link.public: link.verdict for link in found} == {"drug": "tells", "day": "free"}
