"""Starter specs of twelve tables: unedited, they publish nothing that identifies anybody.

The tables and this test were written before the classifier.  Each table is tried as CSV and as
Parquet, and once more with names of columns that say nothing.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.errors import Error
from privsql.publish.starter import starter
from tests.publish.starter_tables import NAMES, Sample, sample

KINDS = ("csv", "parquet", "nameless")
ALONE = 0.01


def written(folder: Path, name: str, kind: str) -> tuple[Path, Sample]:
    """A table in a file, and what is true of its columns under their names in it."""
    given = sample(name)
    if kind == "nameless":
        new = {old: f"c{i}" for i, old in enumerate(given.rows.column_names)}
        given = Sample(
            given.rows.rename_columns(list(new.values())),
            *(tuple(new[old] for old in each)
              for each in (given.identifying, given.known, given.sensitive)),
            unit=given.unit and new[given.unit],
        )  # fmt: skip
    path = folder / f"{name}.{'csv' if kind != 'parquet' else 'parquet'}"
    if kind == "parquet":
        pq.write_table(given.rows, path)
    else:
        pc.write_csv(given.rows, path)
    return path, given


def roles_in(text: str) -> dict[str, str]:
    return {name: column["role"] for name, column in tomllib.loads(text)["columns"].items()}


def in_the_clear(path: Path) -> list[tuple[object, ...]]:
    """Public values of a release, row by row: what anybody can look at."""
    release = privsql.release.open(path)
    names = [column.name for column in release.manifest.public]
    with release.connection() as con:
        table = con.table(release.manifest.table)
        times = "privsql_multiplicity" if release.manifest.multiplicity else "1"
        chosen = ", ".join([*(f'"{name}"' for name in names), f"{times}::INTEGER"])
        found = table.project(chosen).fetchall()
    return [tuple(row[:-1]) for row in found for _ in range(row[-1])]


def share_alone(rows: list[tuple[object, ...]]) -> float:
    """Share of the rows that no other row equals, by counting."""
    return sum(many == 1 for many in Counter(rows).values()) / len(rows)


@pytest.mark.parametrize("name", NAMES)
def test_the_tables_are_what_they_say(name):
    given = sample(name)
    assert 300 <= given.rows.num_rows <= 5_000
    named = (*given.identifying, *given.known, *given.sensitive)
    assert len(set(named)) == len(named) == given.rows.num_columns
    assert sample(name).rows.equals(given.rows)


def test_brute_force_sees_who_is_alone():
    assert share_alone([(1, "a"), (1, "a"), (2, "a"), (2, "b")]) == 0.5


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_an_unedited_starter_publishes_nothing_that_identifies(tmp_path, name, kind):
    path, given = written(tmp_path, name, kind)
    text = starter(str(path))
    roles = roles_in(text)
    assert list(roles) == given.rows.column_names
    assert {roles[column] for column in given.identifying} <= {"drop", "decide"}
    assert {roles[column] for column in given.sensitive} <= {"sensitive", "drop", "decide"}
    spec, out = tmp_path / "spec.toml", tmp_path / "out.duckdb"
    spec.write_text(text)
    if "decide" in roles.values():
        with pytest.raises(Error) as refused:
            privsql.publish(None, out, spec=spec, seed=1)
        assert not out.exists()
        for column, role in roles.items():
            assert (role == "decide") == (column in str(refused.value)), column
        spec.write_text(text.replace('role = "decide"', 'role = "drop"'))
        if "sensitive" not in roles.values():
            return
    privsql.publish(None, out, spec=spec, seed=1)
    assert share_alone(in_the_clear(out)) <= ALONE


@pytest.mark.parametrize("name", NAMES)
def test_nobody_with_several_rows_is_alone_either(tmp_path, name):
    """Rows of one person that are alone together point at that person too."""
    path, given = written(tmp_path, name, "csv")
    if given.unit is None:
        assert roles_in(starter(str(path)))  # one row a person: counted above
        return
    text = starter(str(path)).replace('role = "decide"', 'role = "drop"')
    assert tomllib.loads(text)["release"]["unit"] == given.unit
    # With the unit as a public column, the release tells whose row it is.
    clear = text.replace(f'unit = "{given.unit}"', 'unit = "row"')
    head, mark, tail = clear.partition(f"[columns.{given.unit}]")
    assert mark
    clear = head + mark + tail.replace('role = "drop"', 'role = "public"\naccept_unique = true', 1)
    (tmp_path / "spec.toml").write_text(clear)
    privsql.publish(None, tmp_path / "out.duckdb", spec=tmp_path / "spec.toml", seed=1)
    release = privsql.release.open(tmp_path / "out.duckdb")
    place = [column.name for column in release.manifest.public].index(given.unit)
    people: dict[tuple[object, ...], list[object]] = {}
    for row in in_the_clear(tmp_path / "out.duckdb"):
        people.setdefault((*row[:place], *row[place + 1 :]), []).append(row[place])
    alone = sum(len(who) for who in people.values() if len(set(who)) == 1)
    assert alone / given.rows.num_rows <= ALONE


@pytest.mark.parametrize("name", NAMES)
def test_from_a_csv_to_an_answer_in_three_commands_and_one_edit(tmp_path, monkeypatch, name):
    from click.testing import CliRunner

    from privsql.fronts.cli.main import main

    path, given = written(tmp_path, name, "csv")
    monkeypatch.chdir(tmp_path)
    runner = CliRunner()

    def command(*arguments: str) -> str:
        done = runner.invoke(main, list(arguments))
        assert done.exit_code == 0, done.output
        return done.stdout

    command("init", path.name, "-o", "spec.toml")
    text = Path("spec.toml").read_text()
    Path("spec.toml").write_text(text.replace('"decide"', '"drop"'))  # the edit
    command("publish", "spec.toml", "-o", "out.duckdb")
    column = next(c for c, role in roles_in(text).items() if role == "sensitive")
    asked = f'SELECT COUNT(*) AS n FROM published WHERE "{column}" IS NOT NULL'
    answer = command("query", "out.duckdb", asked, "--format", "csv")
    stated = given.rows.column(column)
    true = len(stated) - stated.null_count
    estimate = float(answer.splitlines()[1].split(",")[0])
    assert abs(estimate - true) <= 0.5 * true


def test_the_tables_hold_what_the_issue_asks_for():
    """Ids by number and code, panels, dates of both kinds, other alphabets, 95% unique values."""
    with duckdb.connect() as con:

        def distinct(name: str, column: str) -> float:
            con.register("given", sample(name).rows)
            count = con.table("given").aggregate(f'count(DISTINCT "{column}") / count(*)')
            return float(count.fetchall()[0][0])

        assert distinct("hospital", "patient_no") == 1
        assert distinct("insurance", "ref") == 1
        assert 0.25 <= distinct("panel", "pid") <= 0.34
        assert 0.94 <= distinct("wearable", "signal") <= 0.97
    assert pa.types.is_date(sample("hospital").rows.schema.field("birth_date").type)
    assert sample("einwohner").rows["Geburtsdatum"][0].as_py()[2] == "."
