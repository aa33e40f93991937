"""What Tab offers, held against a release; the keys themselves are in test_terminal."""

from __future__ import annotations

import time

import duckdb
import pytest

from privsql.channels import Categorical, Grid, Uniform
from privsql.fronts.shell import vocabulary
from privsql.fronts.shell.commands import COMMANDS
from privsql.fronts.shell.completion import MOST, offers
from privsql.fronts.shell.describe import Told
from privsql.session.session import Session
from privsql.sql.catalog import Catalog, Sensitive


@pytest.fixture(scope="module")
def session(release):
    opened = Session(release)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def told(session):
    return Told(session.release.manifest, session.catalog)


def offered(told: Told, text: str, kind: str | None = None) -> list[str]:
    """What is offered where ``|`` stands."""
    before, _, after = text.partition("|")
    found = offers(before, after, told, tuple(COMMANDS))
    return [each.text for each in found if kind in (None, each.kind)]


COLUMNS = ["job", "gender", "favourite", "cost", "disease", "age", "seen"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT count(*) FROM |", ["patients"]),
        ("SELECT count(*) FROM patients, |", ["patients"]),
        ("SELECT p.| FROM patients AS p", COLUMNS),
        ("SELECT nobody.|", []),
        ('SELECT "dis|', ['"disease"']),
        ("WHERE disease = '|", ["'flu'", "'hiv'", "'none'"]),
        ("WHERE p.disease <> '|'", ["'flu", "'hiv", "'none"]),
        ("WHERE DISEASE NOT IN ('flu', '|", ["'flu'", "'hiv'", "'none'"]),
        ("WHERE disease IS DISTINCT FROM '|", ["'flu'", "'hiv'", "'none'"]),
        ("WHERE disease = 'x|", []),
        ("WHERE age BETWEEN '11|", ["'11'", *(f"'{i}'" for i in range(110, 120))]),
        ("WHERE seen > '2024|", []),  # a year of seconds is not looked through
        ("WHERE job = '|", []),  # public values are rows' values
        ("WHERE favourite IN ('|", []),
        ("SELECT '|", []),
        ("SELECT disease, '|", []),
        ("SELECT 1 -- dis|", []),
        ("SELECT 1 /* dis|", []),
        ("SET |", list(vocabulary.SETTINGS)),
        ("set PRIVSQL.e|", ["privsql.estimator", "privsql.error_bars"]),
        ("SET privsql.error_bars = |", ["true", "false"]),
        ("SET privsql.error_bars TO t|", ["true"]),
        ("SHOW privsql.s|", ["privsql.simultaneous"]),
        ("SELECT WITH RECONSTRUCTION OPTIONS (estimator = 'i|", ["'inversion'", "'iterative'"]),
        ("SELECT WITH RECONSTRUCTION OPTIONS (error_bars = true, s|", ["simultaneous"]),
        ("|", list(vocabulary.BEGINNINGS)),
        ("SELECT 1; sel|", ["select"]),
        ("\\|", list(COMMANDS)),
        ("\\d |", ["patients"]),
        ("SELECT 1\n\\e|", ["\\e"]),
    ],
)
def test_offers(told, text, expected):
    assert offered(told, text) == expected


def test_columns_come_first_and_all_kinds_come(told):
    text = "SELECT | FROM patients"
    assert offered(told, text)[: len(COLUMNS)] == COLUMNS
    assert {"count(", "privsql_stderr(", "date_trunc("} <= set(offered(told, text, "function"))
    assert {"FROM", "WITH RECONSTRUCTION OPTIONS"} <= set(offered(told, text, "keyword"))
    assert offered(told, "SELECT COU|") == ["COUNT(", "COUNT_IF("]
    assert offered(told, "SELECT extract(year FROM se|", "column") == ["seen"]
    assert not [each for each in offered(told, text) if each.startswith("privsql_group")]


def test_odd_names_and_values_are_written_as_sql_reads_them():
    domain = Categorical(("it's", "a\x1b[31m", "b"))
    column = Sensitive("Odd name", "VARCHAR", "uniform", domain, Uniform(0.5, 3))
    catalog = Catalog("Odd table", (("Odd name", "VARCHAR"),), {"Odd name": column})
    odd = Told(None, catalog)  # type: ignore[arg-type]
    assert offered(odd, "SELECT o|", "column") == ['"Odd name"']
    assert offered(odd, "SELECT 1 FROM |") == ['"Odd table"']
    assert offered(odd, 'WHERE "odd name" = \'|') == ["'it''s'", "'b'"]
    assert offered(odd, "WHERE \"Odd name\" = 'it''|") == ["'it''s'"]


def test_large_domains_are_quick():
    words = Categorical(tuple(f"word {i}" for i in range(9_000)))
    seconds = Grid.of(0, 10**9)
    columns = (("word", "VARCHAR"), ("second", "BIGINT"))
    sensitive = {
        "word": Sensitive("word", "VARCHAR", "uniform", words, Uniform(0.5, words.size)),
        "second": Sensitive("second", "BIGINT", "uniform", seconds, Uniform(0.5, seconds.size)),
    }
    large = Told(None, Catalog("t", columns, sensitive))  # type: ignore[arg-type]
    begun = time.process_time()
    assert len(offered(large, "WHERE word = 'w|")) == MOST
    assert offered(large, "WHERE second = '1|") == []
    assert time.process_time() - begun < 1


def test_functions_that_are_offered_are_there(session):
    with duckdb.connect() as connection:
        rows = connection.execute(
            "SELECT DISTINCT function_name FROM duckdb_functions()"
        ).fetchall()
    # Words of the grammar that DuckDB's list of functions does not have.
    known = {name for (name,) in rows} | {"coalesce", "extract"}
    assert {*vocabulary.AGGREGATES, *vocabulary.SCALARS} <= known
    for name in vocabulary.OURS_NAMES:
        asked = f"SELECT count(*) AS n, {name}(n) AS x FROM patients WHERE disease = 'flu'"
        assert session.run(asked).table.num_rows == 1


def test_settings_that_are_offered_can_be_set(session):
    for name, choices in vocabulary.CHOICES.items():
        assert name in vocabulary.SETTINGS
        for choice in choices:
            session.run(f"SET {name} = {choice}")
        session.run(f"RESET {name}")
    assert vocabulary.CHOICES.keys() == set(vocabulary.SETTINGS)
