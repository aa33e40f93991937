"""Recoding: what is published is what DuckDB makes of the raw table, whoever reads it."""
# ruff: noqa: E501 - one case a line reads best

from __future__ import annotations

import shutil
from contextlib import closing
from datetime import date, datetime, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import privsql
from privsql.errors import DataError, NotSupportedError
from privsql.fronts.cli.main import main
from privsql.publish.append.local import perturb_file
from privsql.publish.checks import open_for
from privsql.publish.keys.randomness import Seeded
from privsql.publish.recode import bin_labels
from privsql.publish.report import Moved, Notes
from privsql.release.reading import SpecError
from privsql.release.spec import parse_spec
from privsql.session.session import Session
from tests.sizes import sized

ROWS = 600

PLAIN = 'role = "sensitive"\nmechanism = "uniform"\nretention = 1.0\naccept_epsilon = true\n'


def raw(seed: int = 3) -> pa.Table:
    rng = np.random.default_rng(seed)
    day = [date(2019, 11, 3) + timedelta(days=int(d)) for d in rng.integers(0, 900, ROWS)]
    at = [datetime(2021, 1, 1) + timedelta(minutes=int(m)) for m in rng.integers(0, 90_000, ROWS)]
    town = rng.choice(
        ["Graz", "Linz", "Wels", "Steyr", "Enns"], ROWS, p=[0.5, 0.3, 0.1, 0.07, 0.03]
    )
    return pa.table(
        {
            "age": pa.array(rng.integers(-3, 99, ROWS), pa.int32(), mask=rng.random(ROWS) < 0.05),
            "day": pa.array(day),
            "seen": pa.array(at),
            "town": pa.array(town, mask=rng.random(ROWS) < 0.05),
            "post": [f"{code:05d}" for code in rng.integers(1000, 9999, ROWS)],
            "size": pa.array(rng.integers(0, 40, ROWS) / 8),
            "paid": pa.array([Decimal(int(each)) / 100 for each in rng.integers(0, 9, ROWS)]),
            "score": pa.array(rng.choice([1.0, 2.5, 0.1], ROWS)),
            "word": pa.array(
                rng.choice(["flu", "cold", "rare", "odd"], ROWS, p=[0.6, 0.36, 0.035, 0.005])
            ),
            "id": pa.array(np.arange(ROWS)),
        }
    )


def spec_of(**columns: str) -> str:
    """A spec in which all columns are dropped but these."""
    lines = [
        '[release]\ntable = "t"\nsource = "raw.parquet"\n[policy]\npersonal_groups = "allow"\nmin_rows = 0\n'
    ]
    kept = {"word": PLAIN_WORD} | columns
    lines += [f"[columns.{name}]\n{kept.get(name, DROPPED)}\n" for name in raw().column_names]
    return "".join(lines)


DROPPED = 'role = "drop"\n'
PLAIN_WORD = PLAIN + 'domain = ["flu", "cold", "rare", "odd"]\n'
PUBLIC = 'role = "public"\n'


@pytest.fixture
def here(tmp_path):
    pq.write_table(raw(), tmp_path / "raw.parquet")
    return tmp_path


def published(here, text, **options):
    (here / "spec.toml").write_text(text)
    return privsql.publish(
        None, here / "r.duckdb", spec=here / "spec.toml", force=True, seed=1, **options
    )


def asked(here, question):
    """The same question to the release and to the raw table, which is called t as well."""
    with closing(Session(here / "r.duckdb")) as session:
        return session.run(question).table.to_pylist()


def truth(here, question, recoded):
    with duckdb.connect() as con:
        con.execute(
            f"CREATE TABLE t AS SELECT {recoded} FROM read_parquet('{here / 'raw.parquet'}')"
        )
        return con.execute(question).to_arrow_table().to_pylist()


def same(here, question, recoded):
    found = [
        {key: round(value, 6) if isinstance(value, float) else value for key, value in row.items()}
        for row in asked(here, question)
        if row["n"] or "GROUP BY" not in question  # groups of other words are there as well
    ]
    wanted = truth(here, question, recoded)
    names = list(wanted[0])
    assert [{name: row[name] for name in names} for row in found] == wanted
    assert wanted


LABEL = """CASE WHEN age < 0 THEN '<00' WHEN age < 5 THEN '00-04' WHEN age < 18 THEN '05-17'
WHEN age < 65 THEN '18-64' WHEN age >= 65 THEN '65+' END AS age"""

PUBLIC_CASES = {
    "bins": ("age", "bins = [0, 5, 18, 65]", LABEL),
    "bins of days": (
        "day",
        "bins = [2020-01-01, 2021-01-01]",
        "CASE WHEN day < '2020-01-01' THEN '<2020-01-01' WHEN day < '2021-01-01'"
        " THEN '2020-01-01 to 2020-12-31' ELSE '2021-01-01+' END AS day",
    ),
    "bins of reals": (
        "size",
        "bins = [1, 2.5]",
        "CASE WHEN size < 1 THEN '<1' WHEN size < 2.5 THEN '1 to <2.5' ELSE '2.5+' END AS size",
    ),
    "bins of decimals": (
        "paid",
        "bins = [0.03, 0.05]",
        "CASE WHEN paid < 0.03 THEN '<0.03' WHEN paid < 0.05 THEN '0.03 to <0.05'"
        " ELSE '0.05+' END AS paid",
    ),
    "top": (
        "town",
        "top = 2",
        "CASE WHEN town IN ('Graz', 'Linz') OR town IS NULL THEN town ELSE 'other' END AS town",
    ),
    "map": (
        "town",
        'map = { Graz = "S", Linz = "O" }',
        "CASE town WHEN 'Graz' THEN 'S' WHEN 'Linz' THEN 'O' ELSE town END AS town",
    ),
    "map_other": (
        "town",
        'map = { Graz = "S" }\nmap_other = "else"',
        "CASE WHEN town IS NULL THEN NULL WHEN town = 'Graz' THEN 'S' ELSE 'else' END AS town",
    ),
    "map and top": (
        "town",
        'map = { Wels = "Linz" }\ntop = 1',
        "CASE WHEN town = 'Graz' OR town IS NULL THEN town ELSE 'other' END AS town",
    ),
    **{
        f"cut to {unit}": ("day", f'cut = "{unit}"', f"date_trunc('{unit}', day)::DATE AS day")
        for unit in ("year", "quarter", "month", "week", "day")
    },
    "cut to hour": ("seen", 'cut = "hour"', "date_trunc('hour', seen) AS seen"),
    "cut a code": ("post", "cut = 2", "post[:2] AS post"),
    "cast": ("age", 'cast = "DOUBLE"', "age::DOUBLE AS age"),
    "cast and bins": (
        "age",
        'cast = "DOUBLE"\nbins = [18]',
        "CASE WHEN age < 18 THEN '<18' WHEN age >= 18 THEN '18+' END AS age",
    ),
}


@pytest.mark.parametrize("case", PUBLIC_CASES)
def test_a_public_column_is_recoded_as_duckdb_says(here, case):
    name, keys, recoded = PUBLIC_CASES[case]
    report = published(here, spec_of(**{name: PUBLIC + keys + "\n"}))
    question = (
        f"SELECT {name}, COUNT(*) AS n FROM t WHERE word = 'flu' GROUP BY {name} ORDER BY {name}"
    )
    same(here, question, f"{recoded}, word")
    assert report.manifest.privacy.raw == ()


def test_types_follow_from_recoding(here):
    report = published(
        here,
        spec_of(
            age=PUBLIC + "bins = [18]\n", day=PUBLIC + 'cut = "month"\n', size=PUBLIC + "top = 3\n"
        ),
    )
    assert {c.name: c.type for c in report.manifest.public} == {
        "age": "VARCHAR",
        "day": "DATE",
        "size": "VARCHAR",
    }


@given(st.lists(st.integers(0, 300), min_size=1, max_size=8, unique=True).map(sorted))
def test_labels_of_whole_numbers_are_different_and_sorted(edges):
    below, *labels = bin_labels(edges, "integer")
    assert labels == sorted(set(labels))
    assert below.startswith("<")
    assert below not in labels


@pytest.mark.parametrize(
    ("name", "keys", "reason"),
    [
        ("town", "bins = [1, 2]", "column town: bins are of numbers, and its type is VARCHAR"),
        ("age", "bins = [2020-01-01]", "column age: bins are of dates, and its type is INTEGER"),
        ("day", "bins = [5]", "column day: bins are of numbers, and its type is DATE"),
        ("age", 'cut = "month"', 'column age: cut = "month" is of dates, and its type is INTEGER'),
        ("day", 'cut = "hour"', 'column day: cut = "hour" is of times, and its type is DATE'),
        ("town", 'cast = "INTEGER"', "cannot be cast to INTEGER"),
        ("size", 'cast = "INTEGER"', "cannot be cast to INTEGER"),
        ("size", 'cast = "DECIMAL(5, 1)"', "cannot be cast to DECIMAL(5,1)"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(here, name, keys, reason):
    with pytest.raises(DataError) as caught:
        published(here, spec_of(**{name: PUBLIC + keys + "\n"}))
    assert reason in caught.value.reason
    assert caught.value.hint
    assert not (here / "r.duckdb").exists()


def test_a_number_that_is_written_with_a_point_is_cast(here):
    rows = "income,word\n" + "35000.0,flu\n20000.0,cold\n,flu\n" * 10
    (here / "raw.csv").write_text(rows)
    text = '[release]\ntable = "t"\nsource = "raw.csv"\n[policy]\nmin_rows = 0\npersonal_groups = "allow"\n'
    income = '[columns.income]\nrole = "public"\ncast = "INTEGER"\n'
    word = f'[columns.word]\n{PLAIN}domain = ["flu", "cold"]\n'
    report = published(here, text + income + word)
    assert [c.type for c in report.manifest.public] == ["INTEGER"]
    found = asked(here, "SELECT income, COUNT(*) AS n FROM t GROUP BY income ORDER BY income")
    assert [row["income"] for row in found] == [20000, 35000, None]
    (here / "raw.csv").write_text(rows + "1.5,flu\n")
    named = r"column income: 1 value cannot be cast to INTEGER \(row 31\)"
    with pytest.raises(DataError, match=named):
        published(here, text + income + word)


def test_codes_in_a_csv_file_keep_their_zeros(here):
    (here / "raw.csv").write_text("post,word\n" + "01234,flu\n01999,cold\n22000,flu\n" * 10)
    text = '[release]\ntable = "t"\nsource = "raw.csv"\n[policy]\nmin_rows = 0\npersonal_groups = "allow"\n'
    word = f'[columns.word]\n{PLAIN}domain = ["flu", "cold"]\n'
    published(here, text + '[columns.post]\nrole = "public"\ncut = 2\n' + word)
    found = asked(here, "SELECT post, COUNT(*) AS n FROM t GROUP BY post ORDER BY post")
    assert [(row["post"], row["n"]) for row in found] == [("01", 20), ("22", 10)]


SENSITIVE_CASES = {
    "clip": (
        "age",
        "domain = { lower = 10, upper = 60, step = 5 }\nnullable = true\nclip = true",
        "(CASE WHEN age < 7.5 THEN 10 WHEN age >= 62.5 THEN 60 ELSE floor(age / 5.0 + 0.5) * 5 END)::INT AS age",
        ["age > 30", "age = 10", "age IS NULL", "age BETWEEN 20 AND 60"],
    ),
    "clip reals": (
        "size",
        "domain = { lower = 1.0, upper = 3.0, step = 0.5 }\nclip = true",
        "least(greatest(floor(size * 2 + 0.5) / 2, 1), 3) AS size",
        ["size > 1", "size = 3", "size < 1.7"],
    ),
    "clip months": (
        "day",
        'domain = { lower = 2020-01-01, upper = 2021-06-30, step = "1 month" }\nclip = true',
        "least(greatest(date_trunc('month', day), '2020-01-01'), '2021-06-01')::DATE AS day",
        ["day = '2020-01-01'", "day >= '2021-06-01'", "day < '2020-03-15'"],
    ),
    "other": (
        "word",
        'domain = ["flu", "other"]\nother = "other"',
        "CASE word WHEN 'flu' THEN 'flu' ELSE 'other' END AS word",
        ["word = 'other'", "word <> 'other'"],
    ),
    "observed": (
        "word",
        'domain = "observed"',
        "CASE WHEN word IN ('flu', 'cold', 'rare') THEN word ELSE 'other' END AS word",
        ["word = 'rare'", "word = 'other'", "word IN ('flu', 'cold')"],
    ),
    "months": (
        "day",
        'domain = { lower = 2019-11-15, upper = 2022-12-31, step = "1 month" }',
        "date_trunc('month', day)::DATE AS day",
        [
            "day >= '2020-02-01' AND day < '2020-05-01'",
            "day = '2020-02-01'",
            "day > '2020-02-10'",
            "day BETWEEN '2020-01-31' AND '2020-03-01'",
            "year(day) = 2020",
            "day IN ('2020-02-01', '2020-02-02')",
        ],
    ),
    "years": (
        "day",
        'domain = { lower = 2019-01-01, upper = 2022-12-31, step = "1 year" }',
        "date_trunc('year', day)::DATE AS day",
        ["day >= '2020-01-01'", "day < '2021-01-01'", "day <> '2021-01-01'"],
    ),
    "quarters of moments": (
        "seen",
        'domain = { lower = 2021-01-01T00:00:00, upper = 2021-12-31T00:00:00, step = "3 months" }',
        "date_trunc('quarter', seen) AS seen",
        ["seen >= '2021-04-01'", "seen < TIMESTAMP '2021-03-31 12:00:00'", "seen = '2021-01-01'"],
    ),
    "reals": (
        "score",
        "domain = [0.1, 1, 2.5]",
        "score",
        [
            "score = 0.1",
            "score > 0.1",
            "score >= 1",
            "score IN (1, 2.5)",
            "score * 10 = 1",
            "score < 2.5e0",
        ],
    ),
    "whole numbers of reals": (
        "size",
        "domain = [0, 1, 2, 3, 4]",
        "size",
        ["size >= 2", "size = 3", "size < 1.5"],
    ),
    "reals of decimals": (
        "paid",
        "domain = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08]",
        "paid",
        ["paid = 0.03", "paid > 0.05", "paid BETWEEN 0.01 AND 0.02", "paid <= 0.055"],
    ),
}


@pytest.mark.parametrize("case", SENSITIVE_CASES)
def test_conditions_on_a_recoded_sensitive_column_are_exact(here, case):
    name, keys, recoded, conditions = SENSITIVE_CASES[case]
    if case.startswith("whole"):
        table = raw()
        whole = pa.array(np.floor(table["size"].to_numpy()))
        pq.write_table(
            table.set_column(table.column_names.index("size"), "size", whole), here / "raw.parquet"
        )
    report = published(here, spec_of(**{name: PLAIN + keys + "\n"}))
    for condition in conditions:
        same(here, f"SELECT COUNT(*) AS n FROM t WHERE {condition}", recoded)
    assert bool(report.manifest.privacy.raw) == (case == "observed")


def test_the_report_counts_what_was_brought_into_the_domain(here):
    ages = np.array([each for each in raw()["age"].to_pylist() if each is not None])
    report = published(
        here,
        spec_of(
            age=PLAIN
            + "domain = { lower = 10, upper = 60, step = 5 }\nnullable = true\nclip = true\n",
            word=PLAIN + 'domain = ["flu", "other"]\nother = "other"\n',
        ),
    )
    outside = int(((ages < 7.5) | (ages >= 62.5)).sum())
    unlisted = ROWS - raw()["word"].to_pylist().count("flu")
    assert report.clipped == (
        Moved("age", outside, len(ages), "moved to the ends of the grid 10..60"),
    )
    assert report.others == (Moved("word", unlisted, ROWS, "not listed, became 'other'"),)
    assert f"  age: {outside} of {len(ages)} values moved to the ends of the grid 10..60\n" in str(
        report
    )
    assert f"  word: {unlisted} of 600 values not listed, became 'other'\n" in str(report)
    run = CliRunner().invoke(
        main, ["publish", str(here / "spec.toml"), "-o", str(here / "x.duckdb"), "--seed", "1"]
    )
    assert (
        f"age: {outside} of {len(ages)} values moved to the ends of the grid 10..60" in run.output
    )


def test_not_a_number_is_not_clipped(here):
    table = raw()
    size = table["size"].to_pylist()
    size[0], size[1] = float("nan"), float("inf")
    pq.write_table(table.set_column(5, "size", pa.array(size)), here / "raw.parquet")
    with pytest.raises(DataError, match="column size: 1 value is not a finite number"):
        published(
            here,
            spec_of(
                size=PLAIN + "domain = { lower = 0.0, upper = 5.0, step = 0.5 }\nclip = true\n"
            ),
        )


def test_clip_in_a_type_that_does_not_hold_the_end(here):
    table = pa.table({"a": pa.array([-100, 5, 100] * 10, pa.int8()), "word": ["flu"] * 30})
    pq.write_table(table, here / "raw.parquet")
    text = f'{spec_of().split("[columns")[0]}[columns.word]\nrole = "public"\n[columns.a]\n'
    published(here, text + PLAIN + "domain = { lower = 0, upper = 120, step = 5 }\nclip = true\n")
    assert asked(here, "SELECT COUNT(*) AS n FROM t WHERE a = 0")[0]["n"] == 10


def test_bounds_that_were_moved_are_told(here):
    report = published(
        here,
        spec_of(
            day=PLAIN + 'domain = { lower = 2019-11-15, upper = 2022-12-31, step = "1 month" }\n'
        ),
    )
    assert (
        "  day: bounds 2019-11-15 to 2022-12-31 became 2019-11-01 to 2022-12-01, the nearest around them"
        " in steps of 1 month\n" in str(report)
    )
    rounded = {each.column: str(each) for each in report.rounded}
    assert rounded["day"].endswith("rounded to the grid 2019-11-01..2022-12-01 step 1 month")
    moved = sum(day.day != 1 for day in raw()["day"].to_pylist())
    assert f"{moved} of 600 values" in rounded["day"]
    with closing(Session(here / "r.duckdb")) as session:
        found = session.run("SELECT COUNT(*) AS n FROM t WHERE day > '2020-02-10'")
        said = " ".join(str(notice) for notice in found.notices)
        assert "day > '2020-02-10' was answered as day >= '2020-03-01'" in said
        assert session.run("EXPLAIN RECONSTRUCTION SELECT COUNT(*) FROM t WHERE day > '2020-02-10'")
    weeks = published(
        here,
        spec_of(
            day=PLAIN + 'domain = { lower = 2019-11-01, upper = 2022-12-31, step = "1 week" }\n'
        ),
    )
    assert "became 2019-11-01 to 2023-01-06, the nearest around them in steps of 1 week" in str(
        weeks
    )


def test_observed_domains(here):
    report = published(here, spec_of(word=PLAIN + 'domain = "observed"\n'))
    assert [c.domain.categories for c in report.manifest.sensitive] == [
        ("cold", "flu", "rare", "other")
    ]
    assert report.manifest.privacy.raw == ("the domain of word was observed",)
    for name in ("age", "day", "size"):
        with pytest.raises(DataError) as caught:
            published(here, spec_of(**{name: PLAIN + 'domain = "observed"\n'}))
        assert f"column {name}: " in caught.value.reason
        assert "fewer than 10 rows" in caught.value.reason
        assert "lower = 0" in caught.value.hint
    report = published(here, spec_of(score=PLAIN + 'domain = "observed"\n'))
    assert [c.domain.categories for c in report.manifest.sensitive if c.name == "score"] == [
        (0.1, 1.0, 2.5)
    ]
    with pytest.raises(DataError, match="all values have fewer than 10 rows"):
        published(here, spec_of(post=PLAIN + 'domain = "observed"\n'))


def test_a_list_that_nobody_confirmed_costs_epsilon(here):
    report = published(here, spec_of(word=PLAIN_WORD + "observed = true\n"))
    assert report.manifest.privacy.raw == ("the domain of word was observed",)
    assert any("delete observed = true once it holds" in each for each in report.warnings)
    assert published(here, spec_of()).manifest.privacy.raw == ()


def test_a_public_column_that_identifies_needs_consent(here):
    with pytest.raises(DataError) as caught:
        published(here, spec_of(id=PUBLIC, town=PUBLIC))
    assert (
        caught.value.reason
        == "nearly every row has a value of its own in id, which identifies people"
    )
    assert "accept_unique = true" in caught.value.hint
    assert not (here / "r.duckdb").exists()
    published(here, spec_of(id=PUBLIC + "accept_unique = true\n"))
    published(here, spec_of(id=PUBLIC + "grouping = false\n"))
    published(here, spec_of(id=PUBLIC + "bins = [0, 100, 300]\n"))
    published(here, spec_of(post=PUBLIC + "cut = 2\n"))


def test_a_column_of_a_few_shared_values_is_not_unique(here):
    near = list(range(ROWS))
    near[:60] = [1] * 60  # 90% are alone
    pq.write_table(raw().set_column(9, "id", pa.array(near)), here / "raw.parquet")
    published(here, spec_of(id=PUBLIC))


RECODED = spec_of(
    age=PUBLIC + "bins = [0, 18, 65]\n",
    town=PUBLIC + 'map = { Wels = "Linz" }\nmap_other = "else"\n',
    day=PLAIN.replace("retention = 1.0", "retention = 0.5")
    + 'domain = { lower = 2020-01-01, upper = 2021-06-30, step = "1 month" }\nclip = true\n',
    word=PLAIN + 'domain = ["flu", "other"]\nother = "other"\n',
)


def test_everybody_reads_the_same(here):
    published(here, RECODED)
    (here / "spec.toml").write_text(RECODED)
    spec = parse_spec(RECODED)
    source = open_for(spec, [str(here / "raw.parquet")]).source
    seen = source.relation.select("age", "town", "day", "word").order("ALL").fetchall()
    source.close()
    # audit
    found = privsql.audit(here / "r.duckdb", here / "raw.parquet", spec=here / "spec.toml")
    assert found.known
    with pytest.raises(DataError, match="does not match the release"):
        privsql.audit(here / "r.duckdb", here / "raw.parquet")
    # perturb, from Parquet and from CSV
    duckdb.sql(f"COPY (FROM read_parquet('{here / 'raw.parquet'}')) TO '{here / 'raw.csv'}'")
    local = parse_spec(RECODED.replace("retention = 0.5", "retention = 1.0"))
    for name in ("raw.parquet", "raw.csv"):
        notes = Notes()
        perturb_file(local, here / name, here / "batch.parquet", Seeded(1), notes=notes)
        batch = duckdb.sql(
            f"SELECT age, town, word FROM '{here / 'batch.parquet'}' ORDER BY ALL"
        ).fetchall()
        assert sorted(batch, key=str) == sorted(((a, t, w) for a, t, _, w in seen), key=str)
        assert [each.column for each in notes.clipped] == ["day"]
        assert [each.column for each in notes.others] == ["word"]


def test_advice_reads_the_recoded_table(here):
    (here / "spec.toml").write_text(RECODED)
    pq.write_table(pa.concat_tables([raw(seed) for seed in range(4)]), here / "raw.parquet")
    for sample in sized((2000,), (0, 2000)):
        advice = privsql.advise(
            here / "spec.toml",
            queries={"SELECT COUNT(*) FROM t WHERE day < '2020-06-01' AND age = '18-64'": 200.0},
            columns="day",
            sample=sample,
            draws=2,
            grid=(0.3, 0.6),
            seed=3,
        )
        assert "retention" in advice.toml


def test_a_client_does_not_know_the_most_frequent_values(here):
    spec = parse_spec(spec_of(town=PUBLIC + "top = 2\n"))
    with pytest.raises(NotSupportedError, match="town: the most frequent values"):
        perturb_file(spec, here / "raw.parquet", here / "b.csv", Seeded(1))


def test_what_is_undecided_goes_nowhere(here):
    text = spec_of(town='role = "decide"\n', age='role = "decide"\n')
    with pytest.raises(SpecError, match="2 columns are still to be decided"):
        published(here, text)
    shutil.copy(here / "spec.toml", here / "s.toml")
    for arguments in (
        ["publish", "s.toml", "-o", "r.duckdb"],
        ["perturb", "s.toml", "-i", "raw.parquet", "-o", "b.csv"],
        ["advise", "s.toml", "--epsilon", "1"],
    ):
        names = [str(here / each) if "." in each else each for each in arguments]
        run = CliRunner().invoke(main, names)
        assert run.exit_code == 1, run.output
        said = f"{run.output} {run.exception}"
        assert "[columns.age] role: is still to be decided" in said
        assert "[columns.town] role: is still to be decided" in said
    assert not (here / "r.duckdb").exists()
    assert not (here / "b.csv").exists()
