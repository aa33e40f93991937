"""Starter specs: evidence held against counting, roles, domains, coarse levels, widths."""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from collections import Counter
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import privsql
from privsql.fronts.cli.commands import publish as commands
from privsql.fronts.cli.main import main
from privsql.publish.source import open_source
from privsql.publish.starter import coarsen, drafted, evidence, starter
from privsql.publish.starter.budget import EPSILON, shared
from privsql.publish.starter.domains import ENOUGH, rounded_range
from privsql.publish.starter.words import meanings
from privsql.release.spec import parse_spec
from tests.publish.test_job import left_behind


def saved(folder: Path, columns: dict[str, object] | pa.Table, name: str = "raw.parquet") -> str:
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, folder / name)
    return str(folder / name)


def columns_of(text: str) -> dict[str, dict[str, object]]:
    return tomllib.loads(text)["columns"]


def roles_of(text: str) -> dict[str, object]:
    return {name: column["role"] for name, column in columns_of(text).items()}


# --- a table with everything ----------------------------------------------------------


def people(count: int = 300) -> pa.Table:
    rng = np.random.default_rng(2)
    start = dt.date(1950, 1, 1)

    def holes(values: list[object]) -> list[object]:
        return [None if i % 7 == 0 else v for i, v in enumerate(values)]

    return pa.table(
        {
            "person_id": [f"P-{i:05d}" for i in range(count)],
            "Name": [f"Ann {i % 40}" for i in range(count)],
            "E-Mail": [f"p{i}@example.org" for i in range(count)],
            "email": [f"q{i % 9}@example.org" for i in range(count)],
            "token": [f"t{i:x}" for i in range(count)],
            "born": [start + dt.timedelta(days=int(d)) for d in rng.integers(0, 9_000, count)],
            "smoker": rng.random(count) < 0.3,
            "city": holes(rng.choice(["m", "n", 'o "p"'], count).tolist()),
            "weight": rng.normal(70, 10, count),
            "disease": holes(rng.choice(["flu", "hiv", 'no "ne"'], count).tolist()),
            "hiv": rng.random(count) < 0.1,
            "diagnosed": [start + dt.timedelta(days=int(d)) for d in rng.integers(0, 900, count)],
            "medicated at": [
                dt.datetime(2024, 1, 1) + dt.timedelta(minutes=int(d))
                for d in rng.integers(0, 5_000, count)
            ],
            "income": pa.array(
                holes([Decimal(int(v)) / 100 for v in rng.integers(0, 9_999, count)]),
                pa.decimal128(8, 2),
            ),
            "score": rng.normal(0, 3, count),
            "grade": rng.integers(1, 6, count),
        }
    )


@pytest.mark.parametrize("kind", ["parquet", "csv", "duckdb"])
def test_a_starter_spec_publishes_as_it_is(tmp_path, kind):
    table = people()
    saved(tmp_path, table)
    if kind != "parquet":
        with duckdb.connect(str(tmp_path / "raw.duckdb")) as con:
            con.register("given", table)
            con.execute("CREATE TABLE people AS FROM given")
            con.unregister("given")
            con.execute("COPY people TO '" + str(tmp_path / "raw.csv") + "'")
    text = starter(str(tmp_path / f"raw.{kind}"))
    roles = roles_of(text)
    for name in ("person_id", "Name", "E-Mail", "email", "token"):
        assert roles[name] == "drop", name
    assert {name for name, role in roles.items() if role == "sensitive"} == {
        "smoker", "weight", "disease", "hiv", "diagnosed", "medicated at", "income", "score",
        "grade",
    }  # fmt: skip
    assert {name for name, role in roles.items() if role == "public"} == {"born", "city"}
    assert parse_spec(text).unit == "person_id"
    (tmp_path / "spec.toml").write_text(text)
    report = privsql.publish(None, tmp_path / "out.duckdb", spec=tmp_path / "spec.toml", seed=3)
    assert report.rows == 300
    assert left_behind(tmp_path) == ["out.duckdb"]
    data = (tmp_path / "out.duckdb").read_bytes()
    assert b"@example.org" not in data
    assert b"P-000" not in data


def test_a_starter_spec_of_a_table_with_odd_columns(tmp_path):
    with duckdb.connect(str(tmp_path / "raw.duckdb")) as con:
        con.execute(
            "CREATE TABLE t AS SELECT [i] AS l, {'a': i} AS \"s t\", 'x'::BLOB AS b,"
            ' NULL::INTEGER AS disease, NULL::VARCHAR AS diagnosis, i AS "a.b",'
            " i * 0.5::DOUBLE AS salary, 'a' || i % 3 AS religion, '12:30'::TIME AS at,"
            " uuid() AS u, '2024-01-05 12:00:00+00'::TIMESTAMPTZ + i * INTERVAL 1 DAY AS seen,"
            " 'NaN'::DOUBLE AS cost,"
            " 'one' AS vote, 'q\n[columns.x]' AS opinion, i % 2 AS \"line\n# break\","
            " CASE WHEN i < 50 THEN 'infinity' ELSE '2024-01-01' END::DATE AS tested"
            " FROM range(100) r(i)"
        )
    text = starter(str(tmp_path / "raw.duckdb"))
    roles = roles_of(text)
    assert {c.name for c in parse_spec(text).columns} == set(roles)
    assert roles == {
        "l": "decide", "s t": "decide", "b": "decide", "disease": "drop", "diagnosis": "drop",
        "a.b": "drop", "salary": "sensitive", "religion": "sensitive", "at": "decide", "u": "drop",
        "seen": "public", "cost": "drop", "vote": "drop", "opinion": "drop",
        "line\n# break": "decide", "tested": "public",
    }  # fmt: skip


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_a_starter_spec_of_hardly_a_row(tmp_path, rows):
    text = starter(saved(tmp_path, people().slice(1, rows)))
    assert len(parse_spec(text).columns) == 16
    assert "public" not in roles_of(text).values() or rows == 0


def test_a_starter_spec_names_its_source_from_where_it_lies(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    (tmp_path / "specs").mkdir()
    (tmp_path / "data" / "raw.csv").write_text("a,b\n" + "1,x\n2,y\n" * 30)
    monkeypatch.chdir(tmp_path)
    text = starter("data/raw.csv", Path("specs"))
    assert 'source = "../data/raw.csv"' in text
    assert 'source = "data/raw.csv"' in starter("data/raw.csv", Path())
    assert 'source = "data/raw.csv"' in starter("data/raw.csv")


def test_no_rare_value_and_no_end_of_an_id_is_written(tmp_path):
    rng = np.random.default_rng(5)
    ill = ["flu"] * 500 + ["cold"] * 480 + ["rare one"] * 9 + ["rare two"] * 11
    pay = rng.integers(20_003, 79_997, 1_000)
    path = saved(tmp_path, {"patient": np.arange(1_000) + 71_234, "disease": ill, "salary": pay})
    text = starter(path)
    for hidden in ("rare one", "71234", "72233", str(pay.min()), str(pay.max())):
        assert hidden not in text
    disease = columns_of(text)["disease"]
    assert disease["domain"] == ["cold", "flu", "rare two", "other"]
    assert (disease["other"], disease["observed"]) == ("other", True)
    assert "1 rarer value becomes it" in text


# --- evidence -------------------------------------------------------------------------


def facts_of(path: str) -> dict[str, evidence.Facts]:
    with closing(open_source([path])) as raw:
        return {each.name: each for each in evidence.gathered(raw)}


def test_evidence_is_what_counting_finds(tmp_path):
    rng = np.random.default_rng(9)
    n = 5_000
    columns = {
        "number": rng.integers(0, 40_000, n).tolist(),
        "word": rng.choice(["a", "b", "c"], n).tolist(),
        "real": [None if x < 0.1 else float(x) for x in rng.random(n)],
        "day": [dt.date(2000, 1, 1) + dt.timedelta(days=int(d)) for d in rng.integers(0, 99, n)],
    }
    found = facts_of(saved(tmp_path, columns))
    for name, values in columns.items():
        known = [value for value in values if value is not None]
        counts = Counter(known)
        facts = found[name]
        assert (facts.rows, facts.missing) == (n, n - len(known))
        assert (facts.low, facts.high) == (min(known), max(known))
        assert (facts.distinct, facts.most) == (len(counts), max(counts.values()))
        assert facts.alone == sum(many == 1 for many in counts.values()) / len(known)
        if facts.counts is not None:
            assert dict(facts.counts) == counts


def test_values_counted_by_a_share_of_their_hashes(tmp_path, monkeypatch):
    """Half of the rows have a value of their own, the others share theirs by four."""
    monkeypatch.setattr(evidence, "HASHED", 5_000)
    twice = [*range(40_000), *(np.repeat(np.arange(40_000, 50_000), 4)).tolist()]
    facts = facts_of(saved(tmp_path, {"number": twice, "id": np.arange(80_000)}))
    assert facts["number"].distinct == pytest.approx(50_000, rel=0.05)
    assert facts["number"].alone == pytest.approx(0.5, abs=0.03)
    assert facts["number"].most == 4
    assert facts["id"].unique
    assert not facts["number"].unique


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Krankenversicherungsnummer", "health"), ("Geburtsjahr", "birth"),
        ("date_of_birth", "birth"),
        ("fecha de nacimiento", "birth"), ("data_nascita", "birth"), ("Дата рождения", "birth"),
        ("Alter", "age"), ("ALTER", "age"), ("idade", "age"), ("возраст", "age"), ("年齢", "age"),
        ("ZIP-Code", "postcode"), ("Código Postal", "postcode"), ("PLZ", "postcode"),
        ("Wohnort", "place"), ("cidade", "place"), ("Région", "place"), ("город", "place"),
        ("sexo", "sex"), ("Geschlecht", "sex"), ("性别", "sex"), ("estado civil", "trait"),
        ("Téléphone portable", "personal"), ("firstName", "personal"), ("apellidos", "personal"),
        ("nom de famille", "personal"), ("Фамилия", "personal"), ("手机号", "personal"),
        ("e_mail", "personal"), ("SSN", "personal"), ("Passport No.", "personal"),
        ("customerID", "id"), ("Kunden-Nr", "id"), ("N° dossier", "id"), ("record_number", "id"),
        ("Monatsgehalt", "money"), ("renda_mensal", "money"), ("年収", "money"),
        ("TotalCost", "money"),
        ("Diagnose", "health"), ("doença", "health"), ("BMI", "health"), ("диагноз", "health"),
        ("Zufriedenheit", "opinion"), ("intention de vote", "opinion"), ("宗教", "opinion"),
        ("Straftaten", "behaviour"), ("screen_time_hours", "behaviour"),
    ],
)  # fmt: skip
def test_names_of_columns_in_the_languages_of_people(name, said):
    assert said in meanings(name)


@pytest.mark.parametrize("name", ["x", "c1", "value", "q17", "status", "colour_of_car", "col"])
def test_names_that_say_nothing_of_a_kind(name):
    assert not meanings(name) - {"doubtful"}


@pytest.mark.parametrize(
    ("columns", "roles"),
    [
        # Numbers and codes that identify, whatever they are called.
        ({"x": np.arange(500) * 7}, {"x": "drop"}),
        ({"x": [f"K{i:04d}7" for i in range(500)]}, {"x": "drop"}),
        # A few are missing or repeat.
        ({"x": [None if i % 50 == 0 else i - i % 40 // 39 for i in range(500)]}, {"x": "drop"}),
        # A measure is not an id, and not published either.
        ({"x": np.random.default_rng(1).normal(size=500)}, {"x": "decide"}),
        # Postcodes and places that nearly every row has for itself.
        ({"city": [f"house {i}" for i in range(500)]}, {"city": "drop"}),
        # An id that repeats, but not a person's.
        ({"school_key": np.repeat(np.arange(100), 5)}, {"school_key": "public"}),
        ({"order_ref": np.repeat(np.arange(100), 5)}, {"order_ref": "drop"}),
        # Dates as text.
        ({"x": [f"{d % 28 + 1}.{d % 12 + 1}.2024" for d in range(500)]}, {"x": "decide"}),
        # Numbers that look like telephone numbers.
        ({"x": [f"+33 1 4{i % 90:07d}" for i in range(500)]}, {"x": "drop"}),
    ],
)
def test_roles_of_single_columns(tmp_path, columns, roles):
    assert roles_of(starter(saved(tmp_path, columns))) == roles


def test_free_text_is_dropped_although_it_repeats(tmp_path):
    """Unique or not: the rule about text is another than that about codes."""
    said = [f"patient {i % 60} called about her knee and wants to come earlier" for i in range(300)]
    text = starter(saved(tmp_path, {"remarks": said, "sex": ["F", "M"] * 150}))
    assert columns_of(text)["remarks"]["role"] == "drop"
    assert "free text" in text


def test_an_id_that_repeats_is_the_unit(tmp_path):
    rows = np.repeat(np.arange(200), 3)
    columns = {
        "record_id": np.arange(600),
        "patient": rows + 5_000,
        "income": np.arange(600) % 37 * 1_000,
    }
    draft = drafted(saved(tmp_path, columns))
    spec = parse_spec(draft.text)
    assert (spec.unit, spec.column("patient").role) == ("patient", "drop")
    assert "GUESS: whose row it is, 3.0 rows each, at most 3" in draft.text
    assert "a person has several rows: the unit is patient, with up to 3 rows" in draft.summary()


# --- domains --------------------------------------------------------------------------


def test_ranges_are_round_and_leave_20_to_50_values():
    rng = np.random.default_rng(4)
    for _ in range(2_000):
        width = 10.0 ** rng.uniform(-6, 9)
        low = float(rng.normal(0, 1) * 10.0 ** rng.uniform(-6, 9))
        high = low + width
        lower, upper, step = rounded_range(low, high)
        assert 20 <= (upper - lower) / step + 1 <= 50
        assert float(lower) <= low
        assert float(upper) >= high
        assert Decimal(lower) % Decimal(step) == 0
        assert Decimal(step).normalize().as_tuple().digits in {(1,), (2,), (5,), (2, 5)}


def test_a_few_far_values_are_clipped(tmp_path):
    pay = [*np.random.default_rng(1).integers(1_000, 9_000, 2_000).tolist(), 5_000_000]
    column = columns_of(starter(saved(tmp_path, {"salary": pay})))["salary"]
    assert column["clip"] is True
    assert column["domain"]["upper"] <= 10_000


@pytest.mark.parametrize(
    ("days", "step"),
    [(20, "1 day"), (400, "1 month"), (2_500, "3 months"), (9_000, "1 year"), (40_000, "5 years")],
)
def test_dates_that_are_sensitive_have_at_most_50_steps(tmp_path, days, step):
    first = dt.date(1900, 3, 2)
    when = [first + dt.timedelta(days=i * days // 600) for i in range(600)]
    text = starter(saved(tmp_path, {"diagnosed": when}))
    domain = columns_of(text)["diagnosed"]["domain"]
    assert domain["step"] == step
    grid = parse_spec(text).column("diagnosed").domain
    assert 2 <= grid.size <= 50
    assert domain["lower"] <= when[0]
    assert when[-1] <= domain["upper"]


def test_the_end_of_a_short_range_is_no_value_of_one_person(tmp_path):
    visits = [*range(3, 12)] * 20 + [17]
    found = columns_of(starter(saved(tmp_path, {"visits": visits, "rating": [1, 2, 5] * 60 + [5]})))
    assert found["visits"]["domain"] == {"lower": 3, "upper": 20, "step": 1}
    assert found["rating"]["domain"] == {"lower": 1, "upper": 5, "step": 1}


def test_missing_values_make_a_column_nullable(tmp_path):
    columns = {"income": [None, *range(999)], "smoker": [None, *[True, False, True] * 333]}
    found = columns_of(starter(saved(tmp_path, columns)))
    assert found["income"]["nullable"] is True
    assert found["smoker"] == {
        "role": "sensitive", "mechanism": "uniform", "domain": [True, False], "nullable": True,
    }  # fmt: skip


def test_nothing_is_listed_that_too_few_rows_have(tmp_path):
    words = [f"illness {i // (ENOUGH - 1)}" for i in range(450)]
    text = starter(saved(tmp_path, {"disease": words}))
    assert roles_of(text) == {"disease": "decide"}
    assert "no value has 10 rows, so none can be listed" in text


# --- coarse levels --------------------------------------------------------------------


def alone(rows: list[tuple[object, ...]]) -> int:
    return sum(many == 1 for many in Counter(rows).values())


def test_rows_alone_are_counted_as_by_hand(tmp_path, monkeypatch):
    """Every combination of levels that the search tries, against a count in Python."""
    rng = np.random.default_rng(8)
    n = 700
    ages = rng.integers(0, 99, n).tolist()
    cities = [None if i % 9 == 0 else f"c{int(z) % 40}" for i, z in enumerate(rng.zipf(1.3, n))]
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=int(d)) for d in rng.integers(0, 900, n)]
    path = saved(tmp_path, {"age": ages, "city": cities, "visited": days})
    tried: list[tuple[coarsen.Levels, int]] = []
    whole = coarsen._Counts._counted

    def noted(self: coarsen._Counts, levels: coarsen.Levels) -> int:
        found = whole(self, levels)
        tried.append((levels, found))
        return found

    monkeypatch.setattr(coarsen._Counts, "_counted", noted)
    column = columns_of(starter(path))
    assert len(tried) >= 3
    common = [value for value, _ in sorted(
        Counter(c for c in cities if c).items(), key=lambda pair: (-pair[1], pair[0]))]  # fmt: skip

    def age(value: int, level: int) -> object:
        edges = [range(0, 91, 5), range(0, 91, 10), range(0, 91, 20), (0, 18, 65)][level]
        return sum(value >= edge for edge in edges)

    def city(value: str | None, level: int) -> object:
        kept = None if level == 0 else [20, 10, 5, 3][level - 1]
        return value if value is None or kept is None or value in common[:kept] else "other"

    def day(value: dt.date, level: int) -> object:
        parts = [(value.year, value.month), (value.year, (value.month - 1) // 3), (value.year,)]
        return parts[level] if level < 3 else value.year // 5

    for levels, found in tried:
        rows = [
            tuple(
                function(value, level)
                for function, value, level in zip((age, city, day), row, levels, strict=True)
                if level is not None
            )
            for row in zip(ages, cities, days, strict=True)
        ]
        assert found == alone(rows), levels
    assert {"age", "city", "visited"} == {n for n, c in column.items() if c["role"] == "public"}


def test_what_stays_alone_is_left_to_decide(tmp_path):
    """Twenty people in every way different: no column can be published."""
    rng = np.random.default_rng(3)
    n = 400
    columns: dict[str, object] = {
        name: rng.integers(0, 3, n) for name in ("county", "region", "country", "job", "married")
    }
    columns |= {f"{name}_edu": rng.integers(0, 3, n) for name in "abcd"}
    columns["sex"] = rng.choice(["f", "m"], n)
    draft = drafted(saved(tmp_path, columns))
    assert draft.alone <= coarsen.LIMIT
    roles = list(roles_of(draft.text).values())
    assert set(roles) == {"public", "decide"}
    assert "more than 1% of the rows are alone" in draft.text


def test_a_sample_of_very_many_rows_errs_on_the_safe_side(tmp_path, monkeypatch):
    monkeypatch.setattr(coarsen, "MANY", 2_000)
    n = 40_000
    columns = {"age": np.arange(n) % 80, "city": [f"c{i % 37}" for i in range(n)]}
    draft = drafted(saved(tmp_path, columns))
    assert draft.alone <= coarsen.LIMIT
    assert columns_of(draft.text)["age"].get("bins")


# --- budget ---------------------------------------------------------------------------


def test_the_width_that_init_tells_is_that_of_an_answer(tmp_path):
    rng = np.random.default_rng(6)
    n = 20_000
    table = {"disease": rng.choice(["a", "b", "c", "d"], n), "salary": rng.integers(0, 40_000, n)}
    draft = drafted(saved(tmp_path, table))
    (tmp_path / "spec.toml").write_text(draft.text)
    privsql.publish(None, tmp_path / "r.duckdb", spec=tmp_path / "spec.toml", seed=2)
    told = {share.name: share.error for share in draft.shares}
    asked = {"disease": "disease IN ('a', 'b')", "salary": "salary < 20000"}
    with privsql.connect(tmp_path / "r.duckdb") as con:
        for name, condition in asked.items():
            answer = con.sql(f"SELECT COUNT(*) AS x FROM published WHERE {condition}")
            (cell,) = answer.estimates.itertuples()
            half = (cell.high - cell.low) / 2 / n
            assert half == pytest.approx(told[name], rel=0.1), name


def test_twenty_sensitive_columns_are_too_many_for_one_budget(tmp_path):
    rng = np.random.default_rng(7)
    columns = {f"income_{i:02d}": rng.integers(0, 50_000, 2_000) for i in range(20)}
    draft = drafted(saved(tmp_path, columns))
    assert sum(share.epsilon for share in draft.shares) == pytest.approx(EPSILON)
    spec = parse_spec(draft.text)
    assert len(spec.sensitive) == 20
    for share, column in zip(draft.shares, spec.sensitive, strict=True):
        assert column.retention == pytest.approx(share.retention)
    warning = draft.summary()[-1]
    assert warning.startswith("WARNING: epsilon 3 is too thin a budget for income_00 (± ")
    assert "income_19" in warning
    one = drafted(saved(tmp_path, {"income": columns["income_00"]}, "one.parquet"))
    assert not any("WARNING" in line for line in one.summary())


def test_widths_fall_with_the_rows():
    few, many = (shared([("a", 10)], rows)[0] for rows in (1_000, 100_000))
    assert few.error == pytest.approx(10 * many.error)
    kept = few.retention
    assert few.error == pytest.approx(1.96 * math.sqrt((1 - kept**2) / 4_000) / kept)


# --- the command ----------------------------------------------------------------------


def test_init_says_what_it_guessed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, people())
    runner = CliRunner()
    done = runner.invoke(main, ["init", "raw.parquet", "-o", "spec.toml"])
    assert done.exit_code == 0
    said = done.stdout.splitlines()
    assert said[0] == "wrote spec.toml: check every line marked GUESS"
    assert said[1] == "  16 columns: 5 drop, 2 public, 9 sensitive"
    assert said[2].startswith("  public columns: 0.")
    assert "epsilon 3 shared by 9 columns): smoker " in said[3]
    shown = runner.invoke(main, ["init", "raw.parquet"])
    assert shown.stdout == Path("spec.toml").read_text()
    assert shown.stderr.splitlines() == said[1:]


def test_init_names_what_is_to_be_decided(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, {"status": ["a", "b"] * 50, "level": ["x", "y"] * 50})
    runner = CliRunner()
    done = runner.invoke(main, ["init", "raw.parquet", "-o", "spec.toml"])
    assert "  decide before you publish: status, level" in done.stdout.splitlines()
    assert '  no column looks sensitive: give at least one role = "sensitive"' in done.stdout
    refused = runner.invoke(main, ["publish", "spec.toml", "-o", "out.duckdb"])
    assert refused.exit_code == 1
    assert "status" in refused.stderr
    assert "level" in refused.stderr
    assert not Path("out.duckdb").exists()


def test_progress_is_told_where_it_takes_long(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, people())
    quiet = CliRunner().invoke(main, ["init", "raw.parquet", "-o", "a.toml"])
    assert quiet.stderr == ""
    monkeypatch.setattr(commands.Steps, "PATIENCE", 0.0)
    told = CliRunner().invoke(main, ["init", "raw.parquet", "-o", "b.toml"])
    assert [line.split("  ")[-1].split(":")[0] for line in told.stderr.splitlines()] == [
        "reading every row",
        "counting the values of 16 columns",
        "looking for values that one row has in 0 columns",
        "looking at a sample",
        "counting rows that are alone in their public columns",
    ]
