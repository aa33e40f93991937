"""Publishing end to end: what a release holds, and what it must never hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.channels import Uniform
from privsql.errors import DataError, Error, IntegrityError, OperationalError
from privsql.publish.keys.key import new_key
from privsql.publish.keys.ledger import LedgerError
from privsql.release.names import GROUP, MULTIPLICITY, WEIGHT
from privsql.release.reading import SpecError
from tests import programs, specs

SPEC = specs.spec(
    "patients",
    specs.drop("patient_id"),
    specs.drop("name"),
    specs.public("gender"),
    specs.public("job"),
    specs.measure("cost"),
    specs.sensitive("disease", 0.4, ["flu", "hiv", "none"]),
    specs.sensitive("age", 0.5, specs.grid(0, 99)),
    unit="patient_id",
)


def clinic(rows: int = 20_000, seed: int = 1) -> pa.Table:
    rng = np.random.default_rng(seed)
    gender = rng.choice(["F", "M"], rows)
    job = rng.choice(["eng", "law", "art", "doc"], rows)
    sick = np.where(job == "doc", 0.5, np.where(gender == "F", 0.25, 0.1))
    disease = np.where(rng.random(rows) < sick, "flu", "none")
    disease[rng.random(rows) < 0.02] = "hiv"
    return pa.table(
        {
            "patient_id": np.arange(rows) + 1000,
            "name": [f"person {i}" for i in range(rows)],
            "gender": gender,
            "job": job,
            "cost": rng.integers(0, 500, rows),
            "disease": disease,
            "age": rng.integers(20, 90, rows),
        }
    )


@pytest.fixture
def place(tmp_path):
    pq.write_table(clinic(), tmp_path / "raw.parquet")
    return tmp_path


def publish(place: Path, spec: str = SPEC, out: str = "out.duckdb", **options):
    (place / "spec.toml").write_text(spec)
    options = {"seed": 7} | options
    source = options.pop("source", str(place / "raw.parquet"))
    return privsql.publish(source, f"{place}/{out}", spec=place / "spec.toml", **options)


def rows(place: Path, query: str, out: str = "out.duckdb"):
    with privsql.release.open(place / out).connection() as con:
        return con.execute(query).fetchall()


def left_behind(place: Path) -> list[str]:
    known = {"raw.parquet", "spec.toml", "raw.csv", "raw.duckdb", "p.key", "p.key.ledger"}
    return sorted(p.name for p in place.iterdir() if p.name not in known)


# --- what is in it -----------------------------------------------------------------


def test_a_release_holds_published_rows_and_says_how_they_were_made(place):
    report = publish(place)
    release = privsql.release.open(place / "out.duckdb")
    manifest = release.manifest
    assert report.rows == 20_000
    assert [c.name for c in manifest.public] == ["gender", "job", "cost"]
    assert [c.name for c in manifest.sensitive] == ["disease", "age"]
    assert manifest.sensitive[0].channel == Uniform(0.4, 3)
    total = Uniform(0.4, 3).epsilon + Uniform(0.5, 100).epsilon
    assert manifest.privacy.epsilon == pytest.approx(total)
    assert rows(place, "SELECT count(*) FROM patients") == [(20_000,)]
    names = [
        r[0]
        for r in rows(place, "SELECT column_name FROM duckdb_columns() WHERE table_name='patients'")
    ]
    # cost is a public measure, so rows carry the number of their group.
    assert names == ["gender", "job", "cost", "disease", "age", GROUP]
    assert left_behind(place) == ["out.duckdb"]


def test_public_columns_are_untouched_and_sensitive_ones_follow_their_channel(place):
    publish(place)
    raw = clinic()
    expected = sorted(zip(*(raw[c].to_pylist() for c in ("gender", "job", "cost")), strict=True))
    assert sorted(rows(place, "SELECT gender, job, cost FROM patients")) == expected
    published = dict(rows(place, "SELECT disease, count(*) FROM patients GROUP BY ALL"))
    counts = [raw["disease"].to_pylist().count(v) for v in ("flu", "hiv", "none")]
    wanted = Uniform(0.4, 3).expected(counts)
    spread = 5 * np.sqrt(20_000 * 0.25)
    np.testing.assert_allclose([published[v] for v in ("flu", "hiv", "none")], wanted, atol=spread)


def test_nothing_raw_is_in_the_file(place):
    publish(place)
    data = (place / "out.duckdb").read_bytes()
    for secret in (b"person 7", b"patient_id", b"raw.parquet", b"seed"):
        assert secret not in data.replace(b'"seeded"', b"")


def test_order_of_rows_is_a_function_of_the_published_content(place):
    publish(place)
    table = rows(place, "SELECT gender, job, cost, disease, age FROM patients")
    assert table == sorted(table)


def test_a_source_sorted_by_disease_gives_the_same_release(place):
    publish(place, out="a.duckdb")
    pq.write_table(clinic().sort_by("disease"), place / "raw.parquet")
    publish(place, out="b.duckdb")
    query = "SELECT gender, job, cost, disease, age FROM patients"
    assert rows(place, query, "a.duckdb") == rows(place, query, "b.duckdb")


def test_equal_rows_are_stored_once_when_that_pays(place):
    spec = SPEC.replace(
        '[columns.cost]\nrole = "public"\ngrouping = false', '[columns.cost]\nrole = "drop"'
    )
    spec = spec.replace(
        'role = "sensitive"\nmechanism = "uniform"\nretention = 0.5\n'
        "domain = { lower = 0, upper = 99, step = 1 }",
        'role = "drop"',
    )
    report = publish(place, spec)
    assert report.manifest.multiplicity
    assert report.manifest.rows <= 24
    stored = rows(place, f"SELECT sum({MULTIPLICITY}) FROM patients")
    assert stored == [(20_000,)]


@pytest.mark.parametrize("limit", [0, 10**6])
@pytest.mark.parametrize("measured", [False, True])
def test_groups_and_tuples_agree_with_the_rows(place, monkeypatch, limit, measured):
    """Rows carry their group's number where tuples are many, or there are public measures."""
    monkeypatch.setattr("privsql.publish.groups.numbering.SMALL", limit)
    without = SPEC.replace('role = "public"\ngrouping = false', 'role = "drop"')
    assert without != SPEC
    manifest = publish(place, SPEC if measured else without).manifest
    assert manifest.groups.columns == ("gender", "job")
    per_tuple = rows(place, "SELECT gender, job, privsql_rows FROM privsql.tuples ORDER BY ALL")
    many = "sum(privsql_multiplicity)" if manifest.multiplicity else "count(*)"
    counted = rows(place, f"SELECT gender, job, {many} FROM patients GROUP BY ALL ORDER BY ALL")
    assert per_tuple == counted
    groups = rows(place, f"SELECT count(DISTINCT {GROUP}) FROM privsql.tuples")
    assert groups == [(manifest.groups.count,)]
    assert manifest.grouped == (limit == 0 or measured)
    if manifest.grouped:
        mismatched = rows(
            place,
            "SELECT count(*) FROM patients p JOIN privsql.tuples t USING (gender, job)"
            f" WHERE p.{GROUP} <> t.{GROUP}",
        )
        assert mismatched == [(0,)]


def test_domains_are_listed(place):
    publish(place)
    assert rows(place, 'SELECT * FROM privsql."domain of disease" ORDER BY code') == [
        (0, "flu"),
        (1, "hiv"),
        (2, "none"),
    ]


# --- protection --------------------------------------------------------------------


def test_sps_caps_groups_and_weights_add_up(place):
    spec = SPEC + "\n[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n"
    report = publish(place, spec)
    assert report.manifest.weighted
    assert report.manifest.policy.personal_groups == "flag"
    sizes = rows(
        place,
        f"SELECT t.{GROUP}, count(*), sum({WEIGHT}) FROM patients JOIN privsql.tuples t"
        " USING (gender, job) GROUP BY ALL",
    )
    truth = dict(rows(place, f"SELECT {GROUP}, sum(privsql_rows) FROM privsql.tuples GROUP BY ALL"))
    assert any(kept < truth[group] for group, kept, _ in sizes)
    for group, _, weight in sizes:
        assert weight == pytest.approx(truth[group])


@pytest.mark.parametrize("mechanism", ["identity", "swap", "decoy"])
def test_mechanisms_that_see_the_whole_column(place, mechanism):
    more = "group_size = 2" if mechanism == "decoy" else "retention = 0.4"
    spec = SPEC.replace(
        'mechanism = "uniform"\nretention = 0.4', f'mechanism = "{mechanism}"\n{more}'
    )
    if mechanism == "decoy":
        table = clinic()
        balanced = np.random.default_rng(3).choice(["flu", "hiv", "none"], len(table))
        pq.write_table(table.set_column(5, "disease", pa.array(balanced)), place / "raw.parquet")
    report = publish(place, spec)
    assert report.manifest.privacy.raw
    assert "No epsilon" in report.manifest.privacy.statement() or report.manifest.privacy.seeded
    assert report.rows in (20_000, 19_999)
    if mechanism == "swap":
        published = dict(rows(place, "SELECT disease, count(*) FROM patients GROUP BY ALL"))
        truth = clinic()["disease"].to_pylist()
        assert published == {v: truth.count(v) for v in set(truth)}


def test_fine_grain_by_rho(place):
    spec = SPEC.replace(
        'mechanism = "uniform"\nretention = 0.4',
        'mechanism = "finegrain"\nrho = [[0.2, 0.5], [0.05, 0.3], [0.3, 0.7]]\nfloor = 0.05',
    )
    report = publish(place, spec)
    channel = report.manifest.sensitive[0].channel
    assert channel.mechanism == "finegrain"
    assert channel.retentions.min() >= 0.05


# --- keys --------------------------------------------------------------------------


def keyed(place: Path) -> str:
    new_key(place / "p.key")
    return SPEC.replace('unit = "patient_id"', f'unit = "patient_id"\nkey = "{place / "p.key"}"')


def test_one_key_repeats_its_draws_and_the_ledger_knows(place):
    spec = keyed(place)
    publish(place, spec, out="a.duckdb", seed=None)
    shuffled = clinic().take(np.random.default_rng(0).permutation(20_000))
    pq.write_table(shuffled, place / "raw.parquet")
    report = publish(place, spec, out="b.duckdb", seed=None)
    query = "SELECT gender, job, cost, disease, age FROM patients"
    assert rows(place, query, "a.duckdb") == rows(place, query, "b.duckdb")
    assert report.manifest.privacy.publications == 2
    assert report.manifest.privacy.epsilon == pytest.approx(
        Uniform(0.4, 3).epsilon + Uniform(0.5, 100).epsilon
    )


def test_another_retention_is_refused_unless_the_loss_is_accepted(place):
    spec = keyed(place)
    publish(place, spec, out="a.duckdb", seed=None)
    other = spec.replace("retention = 0.4", "retention = 0.3")
    with pytest.raises(LedgerError, match="published before"):
        publish(place, other, out="b.duckdb", seed=None)
    assert not (place / "b.duckdb").exists()
    report = publish(place, other, out="b.duckdb", seed=None, accept_loss=True)
    total = Uniform(0.4, 3).epsilon + Uniform(0.3, 3).epsilon + Uniform(0.5, 100).epsilon
    assert report.manifest.privacy.epsilon == pytest.approx(total)


def test_without_a_key_every_publication_draws_afresh_and_says_so(place):
    report = publish(place, out="a.duckdb", seed=None)
    publish(place, out="b.duckdb", seed=None)
    query = "SELECT disease, age FROM patients"
    assert rows(place, query, "a.duckdb") != rows(place, query, "b.duckdb")
    assert any("no key" in warning for warning in report.warnings)


def test_a_seed_is_marked_unsafe(place):
    report = publish(place)
    assert report.manifest.privacy.seeded
    assert any("UNSAFE" in warning for warning in report.warnings)


# --- sources -----------------------------------------------------------------------


def test_csv_parquet_and_duckdb_give_the_same_release(place):
    publish(place, out="a.duckdb")
    with duckdb.connect(str(place / "raw.duckdb")) as con:
        con.execute("CREATE TABLE people AS FROM read_parquet(?)", [str(place / "raw.parquet")])
        con.execute("COPY people TO '" + str(place / "raw.csv") + "'")
    publish(place, out="b.duckdb", source=str(place / "raw.csv"))
    publish(place, out="c.duckdb", source=str(place / "raw.duckdb") + "::people")
    query = "SELECT * FROM patients"
    first = rows(place, query, "a.duckdb")
    assert rows(place, query, "b.duckdb") == first
    assert rows(place, query, "c.duckdb") == first


def test_several_files_publish_as_one(place):
    table = clinic()
    pq.write_table(table.slice(0, 5_000), place / "part-1.parquet")
    pq.write_table(table.slice(5_000), place / "part-2.parquet")
    publish(place, out="a.duckdb")
    publish(place, out="b.duckdb", source=str(place / "part-*.parquet"))
    query = "SELECT * FROM patients"
    assert rows(place, query, "a.duckdb") == rows(place, query, "b.duckdb")


def test_nulls_are_a_value_where_the_domain_has_them(place):
    table = clinic()
    holes = [None if i % 10 == 0 else v for i, v in enumerate(table["disease"].to_pylist())]
    pq.write_table(table.set_column(5, "disease", pa.array(holes)), place / "raw.parquet")
    with pytest.raises(DataError, match="disease: 2,000 values are NULL"):
        publish(place)
    nullable = SPEC.replace(
        'domain = ["flu", "hiv", "none"]',
        'domain = { values = ["flu", "hiv", "none"], nullable = true }',
    )
    publish(place, nullable)
    (share,) = rows(place, "SELECT avg((disease IS NULL)::INT) FROM patients")[0]
    assert share == pytest.approx(0.4 * 0.1 + 0.6 / 4, abs=0.02)


# --- what goes wrong leaves nothing ------------------------------------------------


def broken(place: Path, case: str):
    table, spec, options = clinic(200), SPEC, {}
    if case == "missing file":
        options["source"] = str(place / "nowhere.parquet")
    elif case == "empty table":
        table = table.slice(0, 0)
    elif case == "unknown column":
        spec = SPEC + '[columns.nope]\nrole = "drop"\n'
    elif case == "column without a role":
        table = table.append_column("extra", pa.array(range(200)))
    elif case == "outside the domain":
        table = table.set_column(6, "age", pa.array([150] * 200))
    elif case == "all NULL":
        table = table.set_column(5, "disease", pa.array([None] * 200, pa.string()))
    elif case == "not a parquet file":
        (place / "bad.parquet").write_bytes(b"this is no parquet file at all")
        options["source"] = str(place / "bad.parquet")
    elif case == "not utf-8":
        (place / "bad.csv").write_bytes(
            b"patient_id,name,gender,job,cost,disease,age\n1,\xff\xfe,F,a,1,flu,3\n"
        )
        options["source"] = str(place / "bad.csv")
    elif case == "mixed types":
        text = "patient_id,name,gender,job,cost,disease,age\n"
        text += "".join(f"{i},n,F,eng,1,flu,30\n" for i in range(30_000)) + "1,n,F,eng,1,flu,zzz\n"
        (place / "bad.csv").write_text(text)
        options["source"] = str(place / "bad.csv")
    elif case == "wrong kind":
        (place / "bad.xlsx").write_bytes(b"PK")
        options["source"] = str(place / "bad.xlsx")
    elif case == "reserved name":
        table = table.append_column("privsql_group", pa.array(range(200)))
        spec = SPEC + '[columns.privsql_group]\nrole = "drop"\n'
    elif case == "text where numbers are":
        table = table.set_column(6, "age", pa.array(["x"] * 200))
    elif case == "no such folder":
        options["out"] = "nowhere/out.duckdb"
    elif case == "missing key":
        spec = SPEC.replace('unit = "patient_id"', 'unit = "patient_id"\nkey = "nowhere.key"')
        options["seed"] = None
    elif case == "NULL unit":
        table = table.set_column(0, "patient_id", pa.array([None] * 200, pa.int64()))
    else:
        spec = SPEC.replace("retention = 0.4", f"retention = {case}")
    pq.write_table(table, place / "raw.parquet")
    return spec, options


CASES = [
    "missing file",
    "empty table",
    "unknown column",
    "column without a role",
    "outside the domain",
    "all NULL",
    "not a parquet file",
    "not utf-8",
    "mixed types",
    "wrong kind",
    "reserved name",
    "text where numbers are",
    "no such folder",
    "missing key",
    "NULL unit",
    "0",
    "-1",
    "2",
    "nan",
    "1",
    '"a"',
    "true",
]


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_told_and_leaves_nothing(place, case):
    spec, options = broken(place, case)
    before = left_behind(place)
    with pytest.raises(Error) as caught:
        publish(place, spec, **options)
    text = str(caught.value)
    assert text.startswith("ERROR ") or isinstance(caught.value, SpecError)
    for value in ("150", "person 7", "zzz"):
        assert value not in text
    assert left_behind(place) == before


def test_one_row_is_a_table(place):
    pq.write_table(clinic(1), place / "raw.parquet")
    assert publish(place).rows == 1


def test_weird_names_are_names(place):
    table = clinic(500).rename_columns(
        ["patient_id", "name", 'a "b".c', "select", "cost", "sick.ness", "age"]
    )
    pq.write_table(table, place / "raw.parquet")
    spec = SPEC.replace("[columns.gender]", "[columns.'a \"b\".c']").replace(
        "[columns.job]", "[columns.select]"
    )
    spec = spec.replace("[columns.disease]", '[columns."sick.ness"]')
    publish(place, spec)
    found = rows(
        place, 'SELECT count("a ""b"".c"), count("select"), count("sick.ness") FROM patients'
    )
    assert found == [(500, 500, 500)]


def test_an_existing_release_is_kept_unless_forced(place):
    publish(place)
    before = (place / "out.duckdb").read_bytes()
    with pytest.raises(OperationalError, match="exists already"):
        publish(place, seed=8)
    assert (place / "out.duckdb").read_bytes() == before
    publish(place, seed=8, force=True)
    assert (place / "out.duckdb").read_bytes() != before


def test_a_failure_half_way_keeps_the_old_release(place):
    publish(place)
    before = (place / "out.duckdb").read_bytes()

    def stop(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(place, seed=8, force=True, progress=stop)
    assert (place / "out.duckdb").read_bytes() == before
    assert left_behind(place) == ["out.duckdb"]


def test_a_second_publisher_is_kept_out(place):
    problems = []

    def second(rows):
        if not problems:
            with pytest.raises(OperationalError, match="another process") as caught:
                publish(place)
            problems.append(caught.value)

    publish(place, progress=second)
    assert len(problems) == 1
    assert left_behind(place) == ["out.duckdb"]


def test_what_a_crash_left_is_swept_away(place):
    left = place / ".out.duckdb.staging-dead"
    left.mkdir()
    (left / "release.duckdb").write_bytes(b"half")
    publish(place)
    assert left_behind(place) == ["out.duckdb"]


# --- opening -----------------------------------------------------------------------


def test_a_damaged_or_foreign_file_is_refused(place):
    publish(place)
    good = (place / "out.duckdb").read_bytes()
    (place / "cut.duckdb").write_bytes(good[: len(good) // 2])
    (place / "noise.duckdb").write_bytes(b"no database at all" * 100)
    duckdb.connect(str(place / "foreign.duckdb")).close()
    for name in ("cut", "noise", "foreign"):
        with pytest.raises(IntegrityError):
            privsql.release.open(place / f"{name}.duckdb")
    with pytest.raises(OperationalError, match="no release"):
        privsql.release.open(place / "nowhere.duckdb")


def test_a_release_that_was_changed_is_refused(place):
    publish(place)
    for change in (
        "DELETE FROM patients WHERE gender = 'F'",
        "UPDATE privsql.manifest SET document = replace(document, '0.4', '0.9')",
        "ALTER TABLE patients DROP COLUMN job",
        "DROP TABLE patients",
    ):
        (place / "changed.duckdb").write_bytes((place / "out.duckdb").read_bytes())
        with duckdb.connect(str(place / "changed.duckdb")) as con:
            con.execute(change)
        with pytest.raises(IntegrityError):
            privsql.release.open(place / "changed.duckdb")


def test_the_manifest_is_plain_json_and_reads_back(place):
    manifest = publish(place).manifest
    data = json.loads(manifest.to_json())
    assert data["table"] == "patients"
    assert type(manifest).from_json(manifest.to_json()) == manifest


# --- command line ------------------------------------------------------------------


def run(*arguments: str, place: Path):
    return programs.command(arguments, cwd=place, env=os.environ)


def test_the_commands(place):
    (place / "spec.toml").write_text(SPEC)
    made = run("key", "new", "p.key", place=place)
    assert made.returncode == 0, made.stderr
    done = run("publish", "spec.toml", "--source", "raw.parquet", "-o", "out.duckdb", place=place)
    assert done.returncode == 0, done.stderr
    assert "published 20,000 rows" in done.stdout
    again = run("publish", "spec.toml", "--source", "raw.parquet", "-o", "out.duckdb", place=place)
    assert again.returncode == 1
    assert "exists already" in again.stderr
    assert "Traceback" not in again.stderr
    usage = run("publish", place=place)
    assert usage.returncode == 2
    started = run("init", "raw.parquet", "-o", "new.toml", place=place)
    assert started.returncode == 0, started.stderr
    made = run("publish", "new.toml", "-o", "new.duckdb", place=place)
    assert made.returncode == 0, made.stderr


def test_perturb_and_append_from_the_command_line(tmp_path):
    from tests.publish.test_local import SPEC as LOCAL
    from tests.publish.test_local import rows as visits

    (tmp_path / "raw.csv").write_text(visits(500))
    (tmp_path / "more.csv").write_text(visits(50, start=1000))
    (tmp_path / "spec.toml").write_text(LOCAL)
    made = run("publish", "spec.toml", "--source", "raw.csv", "-o", "r.duckdb", place=tmp_path)
    assert made.returncode == 0, made.stderr
    agreed = ["--accept-public", "all"]
    done = run("perturb", "spec.toml", "-i", "more.csv", "-o", "batch.csv", *agreed, place=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "perturbed 50 rows" in done.stderr
    joined = run("append", "r.duckdb", "batch.csv", place=tmp_path)
    assert joined.returncode == 0, joined.stderr
    assert joined.stdout == "added 50 rows to r.duckdb\n"
    twice = run("append", "r.duckdb", "more.csv", place=tmp_path)
    assert twice.returncode == 1
    assert "not a complete batch" in twice.stderr


# DuckDB takes ``python -c`` for a prompt, and draws a bar where a query takes long.
LOUD = """
import privsql.publish.job as job
from privsql.publish import database
from privsql.publish.append import append as appending
from privsql.publish.source import open_source

loud = "SELECT current_setting('enable_progress_bar')"
seen = []
working = job.working

def watched(*arguments):
    connection = working(*arguments)
    seen.append(connection.execute(loud).fetchall()[0][0])
    return connection

job.working = watched
assert appending.working is working is database.working
job.publish("raw.parquet", "out.duckdb", spec="spec.toml", seed=1)
import duckdb
with duckdb.connect("rows.duckdb") as made:
    made.execute("CREATE TABLE patients AS FROM 'raw.parquet'")
for source in ("raw.parquet", "rows.duckdb::patients"):
    opened = open_source([source])
    seen.append(opened.connection.execute(loud).fetchall()[0][0])
    opened.close()
print(seen, duckdb.connect().execute(loud).fetchall())
"""


def test_no_bar_of_the_database_is_drawn_on_standard_output(place):
    (place / "spec.toml").write_text(SPEC)
    done = subprocess.run(
        [sys.executable, "-c", LOUD],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[False, False, False] [(True,)]\n"
