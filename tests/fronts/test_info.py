r"""`privsql info` and ``\d+``: what a release is, from what is public."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import privsql
from privsql.fronts.cli.main import main
from privsql.fronts.shell.info import SHOWN, WORDS, info_of
from privsql.release.columns import MECHANISMS
from privsql.release.store import open_release
from tests.fronts.shell.test_script import piped
from tests.sql.clinic import publish

ODD = "\x1b[31m\x07\n\x9b\u202e"


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(tmp_path_factory.mktemp("clinic"), 0.5, policy="refuse", least=10)


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["info", *map(str, words)])


def test_ten_lines_say_what_it_is(release):
    done = run(release)
    assert (done.exit_code, done.stderr) == (0, "")
    manifest = open_release(release).manifest
    lines = done.stdout.splitlines()
    assert len(lines) <= 10
    assert lines[0].startswith(f"{release.name}: table patients, {manifest.rows:,} rows")
    assert f"made on {manifest.created} by privsql {privsql.__version__}, format 1" in lines[1]
    for column in manifest.public:
        assert f"{column.name} {column.type}" in done.stdout
    for column in manifest.sensitive:
        (line,) = [one for one in lines if one.startswith(f"sensitive: {column.name} ")]
        assert f"{column.mechanism}, epsilon {column.epsilon:.4g}" in line
        assert "kept with probability" in line
    assert f"promise: {manifest.privacy.statement()}" in lines
    assert (
        lines[-1] == "policy: personal groups: refuse; at least 10 rows behind a sensitive answer"
    )


def test_the_document_has_what_the_page_says(release):
    found = json.loads(run(release, "--json").stdout)
    page = (Path(__file__).parents[2] / "docs" / "manifest.md").read_text()
    table = page.partition("| field of `info --json`")[2].partition("\n\n")[0]
    for name in found:
        assert f"`{name}`" in table, name
    manifest = open_release(release).manifest
    assert found["rows"] == manifest.rows
    assert found["bytes"] == release.stat().st_size
    assert found["privacy"]["statement"] == manifest.privacy.statement()
    by_name = {column["name"]: column for column in found["columns"]}
    assert [*by_name] == [c.name for c in (*manifest.public, *manifest.sensitive)]
    for column in manifest.sensitive:
        told = by_name[column.name]
        assert told["role"] == "sensitive"
        assert told["domain"] == column.domain.to_dict()
        assert told["values"] == column.domain.size
        for name in told:
            assert f"`{name}`" in table, name
    for column in manifest.public:
        assert set(by_name[column.name]) == {"name", "type", "grouping", "role"}


def test_it_reads_no_published_row(release):
    """The published table is asked for nothing once the release is open."""
    opened = open_release(release)
    asked = []

    class Watched:
        def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
            self._connection = connection

        def table(self, name: str) -> duckdb.DuckDBPyRelation:
            asked.append(name)
            return self._connection.table(name)

    class Opened:
        path, manifest = opened.path, opened.manifest

        @contextmanager
        def connection(self):
            with opened.connection() as connection:
                yield Watched(connection)

    info_of(Opened())
    assert asked == ['privsql."tuples"']


def test_the_shell_says_the_same(release):
    done = piped("\\d+\n", release)
    assert (done.code, done.err) == (0, "")
    assert done.out == run(release).stdout
    assert "disease" in piped("\\d+ patients\n", release).out


def test_every_mechanism_has_words():
    assert set(WORDS) == set(MECHANISMS)


def made(folder: Path, names: list[str]) -> Path:
    rng = np.random.default_rng(3)
    columns = {name: rng.choice(["a", "b"], 400) for name in names}
    spec = '[release]\ntable = "t"\n[columns.city]\nrole = "public"\n'
    for name in names:
        spec += (
            f"[columns.{json.dumps(name)}]\nrole = 'sensitive'\nmechanism = 'uniform'\n"
            "retention = 0.5\ndomain = ['a', 'b']\n"
        )
    (folder / "spec.toml").write_text(spec)
    table = pa.table({"city": rng.choice(["x", "y"], 400), **columns})
    pq.write_table(table, folder / "t.parquet")
    source = str(folder / "t.parquet")
    privsql.publish(source, folder / "t.duckdb", spec=folder / "spec.toml", seed=1)
    return folder / "t.duckdb"


def test_many_columns_stay_in_few_lines(tmp_path):
    names = [f"answer{n}" for n in range(20)]
    lines = run(made(tmp_path, names)).stdout.splitlines()
    assert len(lines) <= 11
    told = [line for line in lines if line.startswith("sensitive: ")]
    assert len(told) == SHOWN
    assert told[-1] == f"sensitive: 15 more: {', '.join(names[5:])}"


def test_names_cannot_steer_a_terminal(tmp_path):
    path = made(tmp_path, [f"odd{ODD}"])
    for done in (run(path), run(path, "--json")):
        assert done.exit_code == 0
        assert all(line.isprintable() for line in done.stdout.splitlines())
    assert "odd\\x1b[31m\\x07\\n\\x9b\\u202e" in run(path).stdout
    assert json.loads(run(path, "--json").stdout)["columns"][-1]["name"] == f"odd{ODD}"


def test_what_is_no_release_is_refused(tmp_path):
    (tmp_path / "x.duckdb").write_text("no")
    done = run(tmp_path / "x.duckdb")
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr.startswith("ERROR ")
