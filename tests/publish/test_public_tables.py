"""Public tables of a release: published with a verified key, kept, and joined in every front."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import privsql
from privsql.errors import DataError, ProgrammingError
from privsql.fronts.cli.main import main
from privsql.publish.append.append import append
from privsql.publish.append.local import perturb_file
from privsql.publish.keys.randomness import Seeded
from privsql.publish.perturb.draws import spec_beside
from privsql.release.reading import SpecError
from privsql.release.shapes import as_file, as_folder
from privsql.release.spec import parse_spec
from privsql.release.store import open_release
from privsql.session.session import Session
from tests.fronts.pgwire.conftest import serving
from tests.sql.clinic import SPEC, publish, raw

TRADES = "code,trade,since\neng,engineering,2001-02-03\nlaw,law,2002-03-04\nmed,medicine,\n"
MORE = '[tables.trades]\nsource = "trades.csv"\nkey = "CODE"\n'
JOINED = (
    "SELECT trade, COUNT(*) AS n FROM patients JOIN trades ON patients.job = trades.code"
    " WHERE disease = 'flu' GROUP BY trade ORDER BY trade"
)


def published(folder: Path, retention: float, policy: str = "allow") -> Path:
    (folder / "trades.csv").write_text(TRADES, encoding="utf-8")
    return publish(folder, retention, policy=policy, more=MORE)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return published(tmp_path_factory.mktemp("tables"), 1.0)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Without a public table."""
    return publish(tmp_path_factory.mktemp("bare"), 1.0)


def test_a_release_brings_its_public_tables(release: Path) -> None:
    (table,) = open_release(release).manifest.tables
    assert (table.name, table.key, table.rows) == ("trades", "code", 3)
    assert [(c.name, c.type) for c in table.columns] == [
        ("code", "VARCHAR"),
        ("trade", "VARCHAR"),
        ("since", "DATE"),
    ]
    with raw() as truth, privsql.connect(release) as con:
        truth.from_arrow(_trades()).create("trades")
        expected = truth.execute(JOINED).fetchall()
        assert [(t, round(n)) for t, n in con.execute(JOINED).fetchall()] == expected
        told = con.execute("DESCRIBE trades").fetchall()
        assert told[0] == ("code", "VARCHAR", "NO", "UNI", None, None)
        assert con.execute("SHOW TABLES").fetchall() == [("patients",), ("trades",)]
        assert con.execute("SUMMARIZE trades").fetchall()[0][0] == "code"


def _trades() -> pa.Table:
    return pa.table({"code": ["eng", "law", "med"], "trade": ["engineering", "law", "medicine"]})


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("code,x\na,1\na,2\nb,3\nb,4\n,5\n", "1 NULL and 2 duplicates in 5 rows"),
        ("code,x\nsecret,1\nsecret,2\n", "1 duplicate in 2 rows"),
        ("name,x\na,1\n", "no column 'CODE'"),
        ("code,privsql_x\na,1\n", "begins with privsql_"),
    ],
)
def test_a_key_that_is_none_is_refused_without_a_value(
    tmp_path: Path, rows: str, words: str
) -> None:
    (tmp_path / "trades.csv").write_text(rows, encoding="utf-8")
    with pytest.raises(DataError, match=words) as refused:
        publish(tmp_path, 1.0, more=MORE)
    assert "secret" not in str(refused.value)
    assert not list(tmp_path.glob("*.duckdb"))


@pytest.mark.parametrize(
    ("tables", "words"),
    [
        ('[tables.Patients]\nsource="a.csv"\nkey="k"', "has the name of the published table"),
        ('[tables.a]\nsource="a.csv"\nkey="k"\n[tables.A]\nsource="a.csv"\nkey="k"', "another"),
        ('[tables.privsql_a]\nsource="a.csv"\nkey="k"', "must be a name"),
        ('[tables.a]\nsource="a.csv"', "needs key"),
        ('[tables.a]\nkey="a"\nsrc="a.csv"', "needs source"),
        ("[tables]\na = 5", "must be a table"),
    ],
)
def test_mistakes_in_tables_are_listed(tables: str, words: str) -> None:
    text = SPEC.format(source="x.csv", p=0.5, policy="allow", least=0)
    with pytest.raises(SpecError, match=words):
        parse_spec(text + tables)


def test_what_stands_in_a_release_is_verified(release: Path, tmp_path: Path) -> None:
    changed = tmp_path / "changed.duckdb"
    changed.write_bytes(release.read_bytes())
    with duckdb.connect(str(changed)) as con:
        con.execute("DELETE FROM trades WHERE code = 'eng'")
    with pytest.raises(privsql.IntegrityError, match="not those that its manifest"):
        open_release(changed)


def test_a_batch_that_is_appended_leaves_them(tmp_path: Path) -> None:
    target = published(tmp_path, 0.5)
    new, batch = tmp_path / "new.parquet", tmp_path / "batch.parquet"
    with raw() as connection:
        connection.sql("SELECT * FROM patients LIMIT 50").write_parquet(str(new))
    perturb_file(spec_beside(tmp_path / "clinic.toml"), new, batch, Seeded(5))
    append(target, batch)
    assert open_release(target).manifest.tables[0].rows == 3
    with privsql.connect(target) as con:
        assert len(con.execute(JOINED).fetchall()) == 3


def test_a_folder_brings_them_too(release: Path, tmp_path: Path) -> None:
    """Types that Parquet does not keep are what they were."""
    (tmp_path / "trades.csv").write_text(TRADES, encoding="utf-8")
    (tmp_path / "odd.json").write_text(
        '[{"k": 1, "at": "10:00:00", "u": "7b9e6d0e-0000-4000-8000-000000000001", "l": [1, 2]},'
        ' {"k": 2, "at": "11:30:00", "u": null, "l": null}]',
        encoding="utf-8",
    )
    more = MORE + '[tables.odd]\nsource = "odd.json"\nkey = "k"\n'
    file, folder = publish(tmp_path, 1.0, more=more), tmp_path / "clinic"
    again = tmp_path / "again.duckdb"
    as_folder(file, folder)
    as_file(folder, again)
    assert [t.name for t in open_release(folder).manifest.tables] == ["trades", "odd"]
    asked = "SELECT * FROM odd ORDER BY k"
    with privsql.connect(file) as one, privsql.connect(folder) as two, privsql.connect(again) as it:
        assert "TIME" in [kind for _, kind in (row[:2] for row in one.execute("DESCRIBE odd"))]
        for sql in (JOINED, asked, "DESCRIBE odd"):
            expected = one.execute(sql).fetchall()
            assert two.execute(sql).fetchall() == it.execute(sql).fetchall() == expected


def test_the_type_in_a_folder_is_no_sql(tmp_path: Path) -> None:
    folder = tmp_path / "clinic"
    as_folder(published(tmp_path, 1.0), folder)
    index = folder / "manifest.json"
    text = index.read_text(encoding="utf-8")
    evil = "VARCHAR) AS x, (SELECT content FROM read_text('/etc/hostname')"
    changed = text.replace('\\"type\\": \\"DATE\\"', f'\\"type\\": \\"{evil}\\"')
    assert changed != text
    index.write_text(changed, encoding="utf-8")
    with pytest.raises(privsql.IntegrityError):
        open_release(folder)


def test_names_that_clash_are_refused(release: Path) -> None:
    for name in ("patients", "TRADES", "privsql_x"):
        with pytest.raises(ProgrammingError, match="that name is taken"):
            Session(release, tables={name: _trades()})


@pytest.mark.parametrize("ending", ["csv", "parquet", "json", "csv.gz"])
def test_files_are_given_to_python_and_to_commands(bare: Path, tmp_path: Path, ending: str) -> None:
    release, file = bare, tmp_path / f"trades.{ending}"
    if ending == "parquet":
        pq.write_table(_trades(), file)
    else:
        with duckdb.connect() as con:
            rows = con.from_arrow(_trades())
            con.execute(f"COPY rows TO '{file}'")
            del rows
    with privsql.connect(release, tables={"trades": file}) as con:
        expected = con.execute(JOINED).fetchall()
    assert len(expected) == 3
    done = CliRunner().invoke(
        main, ["query", str(release), "--table", f"trades={file}", "--format", "csv", JOINED]
    )
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 4
    script = CliRunner().invoke(
        main, ["shell", str(release), "--table", f"trades={file}"], input=f"{JOINED};\n\\d\n"
    )
    assert "engineering" in script.output
    assert "public" in script.output
    told = CliRunner().invoke(main, ["explain", str(release), "--table", f"trades={file}", JOINED])
    assert "joined with trades (public)" in told.output


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--table", "trades"], "give NAME=FILE"),
        (["--table", "a=x.csv", "--table", "A=x.csv"], "two tables are called A"),
        (["--table", "a=x.xlsx"], "is no file of a public table"),
        (["--table", "a=missing.csv"], "there is no file"),
    ],
)
def test_options_that_name_no_table_are_refused(
    release: Path, given: list[str], words: str
) -> None:
    done = CliRunner().invoke(main, ["query", str(release), *given, "SELECT 1"])
    assert done.exit_code != 0
    assert words in done.output


def test_a_file_that_cannot_be_read_shows_none_of_it(release: Path, tmp_path: Path) -> None:
    file = tmp_path / "bad.parquet"
    file.write_text("secret")
    with pytest.raises(DataError, match="cannot be read") as refused:
        privsql.connect(release, tables={"a": file})
    assert "secret" not in str(refused.value)


def test_info_names_them(release: Path) -> None:
    shown = CliRunner().invoke(main, ["info", str(release)])
    assert "public tables: trades (3 rows, key code)" in shown.output


def test_the_policy_judges_conditions_on_them(tmp_path: Path) -> None:
    """One trade selects one job: with others it is one personal group."""
    with privsql.connect(published(tmp_path, 0.5, policy="refuse")) as con:
        with pytest.raises(privsql.Error, match="personal group") as refused:
            con.execute(
                "SELECT COUNT(*) FROM patients JOIN trades ON job = code WHERE trade = 'law'"
                " AND gender = 'F' AND favourite = 'hiv' AND disease = 'hiv'"
            )
        assert refused.value.code == "personal-group"


def test_a_server_shows_and_joins_them(release: Path, tmp_path: Path) -> None:
    psycopg = pytest.importorskip("psycopg")
    floors = pa.table({"name": ["eng", "law"], "floor": [1, 2]})
    with (
        serving([release], tmp_path, tables={"floors": floors}) as running,
        psycopg.connect(running.dsn(), autocommit=True) as con,
    ):
        listed = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        assert sorted(con.execute(listed).fetchall()) == [("floors",), ("patients",), ("trades",)]
        assert con.execute("SHOW TABLES").fetchall() == [("floors",), ("patients",), ("trades",)]
        with privsql.connect(release) as embedded:
            expected = embedded.execute(JOINED).fetchall()
        assert [(t, pytest.approx(n)) for t, n in con.execute(JOINED).fetchall()] == expected
        both = con.execute(
            "SELECT floor, COUNT(*) FROM patients JOIN trades ON job = code JOIN floors"
            " ON code = floors.name GROUP BY floor ORDER BY 1"
        ).fetchall()
        assert [row[0] for row in both] == [1, 2]
        assert con.execute("SELECT COUNT(*) FROM trades").fetchall() == [(3,)]
        assert con.execute("DESCRIBE trades").fetchall()[0][:2] == ("code", "VARCHAR")
        with pytest.raises(psycopg.Error, match="does not exist"):
            con.execute("SELECT * FROM nothing")
    with (
        pytest.raises(ProgrammingError, match="that name is taken"),
        serving([release], tmp_path, tables={"Trades": floors}),
    ):
        pass
