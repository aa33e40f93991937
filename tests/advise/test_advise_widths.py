"""Advice from interval widths: pilots predict what publishing then gives, and leave nothing."""

from __future__ import annotations

import builtins
import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import privsql
from privsql.advise.job import advise
from privsql.advise.pilots import Pilots
from privsql.errors import Error
from privsql.fronts.cli.commands.advise import advise as command
from privsql.fronts.cli.main import Commands
from privsql.publish.keys.key import new_key
from privsql.publish.perturb.draws import spec_beside
from tests import specs

FLU = "SELECT COUNT(*) AS n FROM patients WHERE illness = 'flu'"
CITIES = "SELECT city, COUNT(*) AS n FROM patients WHERE illness = 'flu' GROUP BY city"
YOUNG = "SELECT COUNT(*) AS n FROM patients WHERE illness = 'flu' AND age < 50"
AGE = "SELECT AVG(age) AS a FROM patients"

SPEC = specs.spec(
    "patients",
    specs.public("city"),
    specs.public("sex"),
    specs.sensitive("illness", 0.5, ["flu", "cold", "none"]),
    specs.sensitive("age", 0.5, specs.grid(0, 99, 3)),
    source="rows.parquet",
    unit="id",
    key="clinic.key",
)


def make(folder: Path, rows: int, text: str = SPEC) -> Path:
    rng = np.random.default_rng(7)
    table = pa.table(
        {
            "id": np.arange(rows),
            "city": rng.choice(["north", "south", "west"], rows, p=[0.5, 0.3, 0.2]),
            "sex": rng.choice(["F", "M"], rows),
            "illness": rng.choice(["flu", "cold", "none"], rows, p=[0.25, 0.15, 0.6]),
            "age": rng.integers(7, 31, rows) * 3,
        }
    )
    pq.write_table(table, folder / "rows.parquet")
    (folder / "spec.toml").write_text(text)
    new_key(folder / "clinic.key")
    return folder / "spec.toml"


@pytest.fixture
def own_tmp(tmp_path, monkeypatch):
    """A temporary folder of the test's own, in which leftovers would show."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def published(spec_path, out, retention, columns, queries, times):
    """Each query's ± as publishing at a retention gives it, the mean over some times."""
    spec = replace(spec_beside(spec_path), key=None)
    spec = replace(
        spec,
        columns=tuple(
            replace(c, retention=retention, accept_epsilon=True) if c.name in columns else c
            for c in spec.columns
        ),
    )
    widths = []
    for seed in range(9000, 9000 + times):
        privsql.publish(None, out, spec=spec, seed=seed, force=True)
        with privsql.connect(out) as con:
            answers = [con.sql(sql).estimates for sql in queries]
        widths.append([float((each["high"] - each["low"]).max()) / 2 for each in answers])
    return [fmean(each) for each in zip(*widths, strict=True)]


def test_predicted_widths_are_those_of_publishing(tmp_path, own_tmp):
    home = tmp_path / "home"
    home.mkdir()
    spec = make(home, 6000)
    before = {path.name: path.read_bytes() for path in home.iterdir()}
    queries = [(FLU, 200.0), (CITIES, 130.0), (YOUNG, 210.0), (AGE, 3.0)]
    found = advise(spec, queries=queries, draws=1, grid=(0.3,), seed=1)
    # Nothing changed beside the spec, no ledger was begun, and no pilot is left.
    assert {path.name: path.read_bytes() for path in home.iterdir()} == before
    assert list(own_tmp.iterdir()) == []

    numbers = found.numbers
    predicted = [each["width"] for each in numbers["queries"]]
    kept = numbers["retention"]
    asked = [sql for sql, _ in queries]
    got = published(spec, tmp_path / "r.duckdb", kept, ("illness", "age"), asked, 2)
    assert predicted == pytest.approx(got, rel=0.1)
    # The widest relative to what was wanted is just narrow enough: less privacy is not needed.
    assert max(w / each["wanted"] for w, each in zip(got, numbers["queries"], strict=True)) == (
        pytest.approx(1, abs=0.06)
    )

    assert f"[columns.age]\nretention = {kept:.3g}  # epsilon" in found.toml
    assert "WARNING: this was derived from raw rows" in str(found)
    advised = [row for row in found.tradeoff.rows if row.advised]
    assert [row.retention for row in advised] == [kept]
    assert advised[0].epsilon == pytest.approx(
        privsql.channels.Uniform(kept, 3).epsilon + privsql.channels.Uniform(kept, 34).epsilon
    )
    widths = [row.widths[0] for row in found.tradeoff.rows]
    assert widths == sorted(widths)  # less is kept further down
    json.dumps(found.to_dict(), allow_nan=False)
    found.plot(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_sample_predicts_all_rows(tmp_path, own_tmp):
    spec = make(tmp_path, 20_000)
    queries = [(FLU, 400.0), (AGE, 1.6)]
    found = advise(spec, queries=queries, draws=1, grid=(0.2,), seed=1, sample=5000)
    assert (found.numbers["rows"], found.numbers["sampled"]) == (20_000, 5000)
    assert "predicted from a sample of 5,000 of 20,000 rows" in str(found)
    predicted = [each["width"] for each in found.numbers["queries"]]
    kept = found.numbers["retention"]
    got = published(spec, tmp_path / "r.duckdb", kept, ("illness", "age"), [FLU, AGE], 2)
    assert predicted == pytest.approx(got, rel=0.1)
    assert list(own_tmp.iterdir()) == []


def test_relative_widths_are_shares_of_the_truth(tmp_path, own_tmp):
    spec = make(tmp_path, 6000)
    source = pq.read_table(tmp_path / "rows.parquet")
    truth = source.column("illness").to_pylist().count("flu")
    found = advise(
        spec, queries={FLU: 0.15}, relative=True, draws=1, grid=(0.2,), seed=3, columns="illness"
    )
    kept = found.numbers["retention"]
    (got,) = published(spec, tmp_path / "r.duckdb", kept, ("illness",), [FLU], 1)
    assert found.numbers["queries"][0]["width"] == pytest.approx(got / truth, rel=0.1)
    assert got / truth == pytest.approx(0.15, rel=0.1)
    assert "as in the spec: age" in str(found)
    assert "retention" not in found.toml.partition("[columns.age]")[2]
    assert list(own_tmp.iterdir()) == []


def test_what_sps_would_keep(tmp_path, own_tmp):
    spec = make(tmp_path, 6000)
    # Without a seed the key would be used, if it were not left out.
    advise(spec, relative_error=0.3, probability=0.3)
    advice = advise(spec, relative_error=0.3, probability=0.3, seed=4)
    found = advice.numbers
    (tmp_path / "spec.toml").write_text(SPEC + advice.toml)
    privsql.publish(None, tmp_path / "r.duckdb", spec=spec, seed=4)
    with privsql.release.open(tmp_path / "r.duckdb").connection() as con:
        columns = [row[0] for row in con.execute("DESCRIBE patients").fetchall()]
        count = "sum(privsql_multiplicity)" if "privsql_multiplicity" in columns else "count(*)"
        kept = int(con.execute(f"SELECT {count} FROM patients").fetchall()[0][0])
    assert (found["rows"], found["kept"]) == (6000, kept)
    assert kept < 6000
    assert not (tmp_path / "clinic.key.ledger").exists()
    assert list(own_tmp.iterdir()) == []


def refused(spec, words, **options):
    with pytest.raises(Error, match=words) as problem:
        advise(spec, **{"draws": 1, "grid": (0.3,), "seed": 5, **options})
    return problem.value


def test_queries_that_cannot_be_advised_on(tmp_path, own_tmp):
    spec = make(tmp_path, 2000)
    personal = f"{FLU} AND city = 'west' AND sex = 'F'"
    assert refused(spec, "query 1: .* personal group", queries={personal: 9.0}).place is not None
    assert refused(spec, "query 2: ", queries=[(FLU, 900.0), ("SELECT illness FRM p", 1.0)])
    # Says nothing of a sensitive column, but names one: it is exact.
    public = "SELECT COUNT(*) AS illness FROM patients"
    assert refused(spec, "query 1 has no estimates", queries={public: 9.0})
    problem = refused(spec, "query 1 cannot have ± 0.1: at retention 0.8", queries={AGE: 0.1})
    assert "accept_epsilon" in problem.hint
    problem = refused(spec, "cannot have ± 1: at retention 0.98", queries={FLU: 1.0})
    assert "accept_epsilon" not in problem.hint  # it is hardly a limit
    assert refused(spec, "no sensitive column", queries={"SELECT COUNT(*) FROM patients": 9.0})
    assert refused(spec, "above 0", queries={FLU: 0.0})
    assert refused(spec, "number", queries={FLU: "narrow"})
    assert refused(spec, "empty", queries={" ": 1.0})
    assert refused(spec, "city is public", queries={FLU: 90.0}, columns="city")
    assert refused(spec, "at least 1000", queries={FLU: 90.0}, sample=10)
    assert refused(spec, "draws", queries={FLU: 90.0}, draws=0)
    assert refused(spec, "curve", queries={FLU: 90.0}, grid=(2.0,))
    assert refused(spec, "no file", queries={FLU: 90.0}, source=str(tmp_path / "no.csv"))
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n")
    assert refused(spec, "mistakes", queries={FLU: 90.0}, source=str(other))
    spec.write_text(SPEC + "[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n")
    assert refused(spec, "do not scale with the number of rows", queries={FLU: 90.0}, sample=1500)
    assert list(own_tmp.iterdir()) == []
    assert not (tmp_path / "clinic.key.ledger").exists()


def test_a_width_that_does_not_go_with_the_rows_is_not_predicted(tmp_path, own_tmp, monkeypatch):
    spec = make(tmp_path, 4000)
    # As if the interval were as wide for a quarter of the rows.
    monkeypatch.setattr(Pilots, "_measured", lambda *_: [3.0])
    problem = refused(spec, "root of the sample size", queries={FLU: 90.0}, sample=2000)
    assert "--sample 0" in problem.hint
    assert list(own_tmp.iterdir()) == []


def test_pilots_are_gone_after_an_interruption(tmp_path, own_tmp, monkeypatch):
    spec = make(tmp_path, 2000)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("privsql.advise.pilots.read_width", interrupted)
    with pytest.raises(KeyboardInterrupt):
        advise(spec, queries={FLU: 90.0}, draws=1, grid=(), seed=1)
    assert list(own_tmp.iterdir()) == []


def test_the_command_with_and_without_a_picture(tmp_path, own_tmp, monkeypatch):
    spec = make(tmp_path, 2000)
    main = Commands("privsql", context_settings={"help_option_names": ["-h", "--help"]})
    main.add_command(command)
    monkeypatch.setitem(advise.__kwdefaults__, "grid", (0.3,))  # a short curve

    def run(*arguments):
        # No seed: the draws are the system's, and the spec's key must not be touched.
        return CliRunner().invoke(main, ["advise", *map(str, arguments), "--draws", "1"])

    found = run(spec, "--query", FLU, "--width", 1e9, "--json", "--plot", tmp_path / "c.svg")
    assert found.exit_code == 0, found.output
    told = json.loads(found.output)
    assert told["retention"] == 0.005  # as low as it goes
    assert [row["retention"] for row in told["curve"]] == [0.98, 0.3, 0.02, 0.01, 0.005]
    assert (tmp_path / "c.svg").stat().st_size > 1000
    assert not (tmp_path / "clinic.key.ledger").exists()
    assert list(own_tmp.iterdir()) == []

    real = builtins.__import__

    def without(name, *more):
        if name.split(".")[0] == "matplotlib":
            raise ModuleNotFoundError("none", name="matplotlib")
        return real(name, *more)

    monkeypatch.setattr("importlib.import_module", without)
    found = run(spec, "--query", FLU, "--width", 90, "--plot", tmp_path / "d.png")
    assert found.exit_code == 1
    assert "privsql[plot]" in found.output
    found = run(spec, "--query", FLU, "--width", 1)
    assert found.exit_code == 1
    assert found.output.startswith("ERROR 22023 [advise]: query 1 cannot have ± 1")
    assert math.isfinite(float(found.output.split("it is ± ")[1].split()[0]))


def test_words_in_a_csv_file_stay_words_in_a_sample(tmp_path):
    """DuckDB takes yes and no for truth values, and a sample is copied with its types."""
    (tmp_path / "raw.csv").write_text("sex,hiv\n" + "F,yes\nM,no\nM,no\n" * 800)
    (tmp_path / "spec.toml").write_text(
        '[release]\ntable = "t"\nsource = "raw.csv"\n[columns.sex]\nrole = "public"\n'
        '[columns.hiv]\nrole = "sensitive"\nmechanism = "uniform"\nretention = 0.5\n'
        'domain = ["no", "yes"]\n'
    )
    query = "SELECT COUNT(*) FROM t WHERE hiv = 'yes'"
    found = advise(
        tmp_path / "spec.toml", queries={query: 150}, sample=1600, draws=1, grid=(0.2,), seed=1
    )
    assert "[columns.hiv]" in found.toml
