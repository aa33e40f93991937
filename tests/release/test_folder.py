"""A release as a folder of Parquet: the same rows and answers, whole or refused by name."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import duckdb
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from privsql.errors import Error, IntegrityError, OperationalError
from privsql.fronts.cli.conversion import convert
from privsql.publish.append.append import append
from privsql.publish.append.local import perturb_file
from privsql.publish.keys.randomness import Seeded
from privsql.release import folder as folders
from privsql.release.folder import MANIFEST, read_index
from privsql.release.shapes import as_file, as_folder
from privsql.release.spec import parse_spec
from privsql.release.store import open_release
from privsql.session.session import Session
from tests.fixtures.asking import answered
from tests.fronts.pgwire.conftest import serving
from tests.oracle.forms import Tally, compare_exact, question
from tests.oracle.running import published
from tests.oracle.tables import World
from tests.publish.test_types import NESTED, SCALARS, source_of
from tests.release.test_store import SPEC
from tests.sizes import sized

ROWS = 3000
QUESTIONS = (
    "SELECT COUNT(*) AS n FROM t WHERE ill = 'a'",
    "SELECT x, AVG(age) AS a FROM t GROUP BY x ORDER BY x",
    "SELECT ill, SUM(y) AS s FROM t WHERE age > 3 GROUP BY ill ORDER BY ill",
    "SELECT x, COUNT(*) AS n FROM t GROUP BY x ORDER BY x",
)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file, and the folder that was made of it."""
    place = tmp_path_factory.mktemp("shapes")
    rows = {
        "x": [i % 7 for i in range(ROWS)],
        "y": list(range(ROWS)),
        "ill": ["a"] * ROWS,
        "age": [i % 10 for i in range(ROWS)],
    }
    pq.write_table(pa.table(rows), place / "raw.parquet")
    privsql.publish(str(place / "raw.parquet"), place / "r.duckdb", spec=parse_spec(SPEC), seed=1)
    convert(place / "r.duckdb", f"{place}/r/")
    return place / "r.duckdb", place / "r"


@pytest.fixture
def own(both: tuple[Path, Path], tmp_path: Path) -> Path:
    """A folder for one test alone."""
    return Path(shutil.copytree(both[1], tmp_path / "r"))


def test_answers_are_those_of_the_file(both: tuple[Path, Path]) -> None:
    sessions = [Session(place) for place in both]
    for ask in QUESTIONS:
        one, two = (answered(session, ask) for session in sessions)
        assert one == two
    for session in sessions:
        session.close()
    assert open_release(both[0]).identity == open_release(both[1]).identity


def test_an_audit_of_either_shape_finds_the_same(both: tuple[Path, Path]) -> None:
    raw = both[0].with_name("raw.parquet")
    for given in (None, raw):
        one, two = (" ".join(str(privsql.audit(place, raw=given)).split()) for place in both)
        assert one.replace("r.duckdb", "r") == two.replace("r.duckdb", "r")


def test_anything_reads_it(both: tuple[Path, Path]) -> None:
    _, folder = both
    assert len(pq.read_table(folder / "rows")) == ROWS
    document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    assert json.loads(document["manifest"])["rows"] == ROWS
    # Nothing but what the manifest names, and itself.
    named = {each["file"] for each in document["parts"]} | {MANIFEST}
    assert {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()} == named


def test_rows_are_those_of_the_file_in_any_number_of_parts(
    both: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts depend on the rows alone: a folder made of a folder has the same digests."""
    monkeypatch.setattr(folders, "PART_ROWS", 700)
    as_folder(both[0], tmp_path / "many")
    assert len(read_index(tmp_path / "many").of("t")) == 5
    as_folder(tmp_path / "many", tmp_path / "again")
    assert read_index(tmp_path / "again") == read_index(tmp_path / "many")
    as_file(tmp_path / "again", tmp_path / "back.duckdb")
    for made in (tmp_path / "many", tmp_path / "back.duckdb"):
        assert rows_of(made) == rows_of(both[0])
    with open_release(tmp_path / "many").connection() as con:
        numbers = con.execute("SELECT count(DISTINCT rowid) FROM t").fetchall()
    assert numbers == [(ROWS,)]
    sessions = [Session(place) for place in (both[0], tmp_path / "many")]
    for ask in QUESTIONS:
        one, two = (answered(session, ask) for session in sessions)
        assert one == two
    for session in sessions:
        session.close()


def rows_of(release: Path) -> list[tuple[object, ...]]:
    with open_release(release).connection() as con:
        return con.execute("SELECT x, y, ill, age FROM t ORDER BY ALL").fetchall()


def rows_as_text(release: Path, columns: int) -> list[tuple[object, ...]]:
    listed = ", ".join(f"x{i}::VARCHAR" for i in range(columns))
    with open_release(release).connection() as con:
        return sorted(con.execute(f"SELECT {listed} FROM t").fetchall(), key=str)


@pytest.mark.parametrize("types", [SCALARS, NESTED], ids=["scalar", "nested"])
def test_every_type_comes_back_as_it_was(tmp_path: Path, types: dict[str, list[str]]) -> None:
    source = source_of(tmp_path, types, "duckdb")
    columns = "".join(
        f'[columns.x{i}]\nrole = "public"\ngrouping = false\naccept_unique = true\n'
        for i in range(len(types))
    )
    spec = f'[release]\ntable = "t"\n{columns}[columns.illness]\nrole = "sensitive"\n'
    spec += 'mechanism = "uniform"\nretention = 0.5\ndomain = ["flu", "none"]\n'
    made = tmp_path / "r.duckdb"
    privsql.publish(f"{source}::raw", made, spec=parse_spec(spec), seed=1)
    convert(made, f"{tmp_path}/r/")
    assert open_release(made).manifest == open_release(tmp_path / "r").manifest
    convert(tmp_path / "r", tmp_path / "back.duckdb")
    expected = rows_as_text(made, len(types))
    assert rows_as_text(tmp_path / "r", len(types)) == expected
    assert rows_as_text(tmp_path / "back.duckdb", len(types)) == expected


# -- damage -------------------------------------------------------------------------------------


def files(folder: Path) -> list[Path]:
    return [folder / part.file for part in read_index(folder).parts]


@pytest.mark.parametrize("whole", [True, False])
def test_a_file_that_is_lost_or_changed_is_named(
    own: Path, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not whole:  # as a large folder: sizes and ends
        monkeypatch.setattr(folders, "HASHED", 0)
    for path in files(own):
        kept = path.read_bytes()
        for changed, said in (
            (None, "is missing"),
            (kept[:-1], "was cut short"),
            (kept[:-9] + bytes([kept[-9] ^ 1]) + kept[-8:], "is not the file that was published"),
            (kept + b"\x00", "is not the file that was published"),
        ):
            path.unlink()
            if changed is not None:
                path.write_bytes(changed)
            with pytest.raises(IntegrityError, match=said) as refused:
                Session(own)
            assert path.name in str(refused.value)
            path.write_bytes(kept)
    Session(own).close()


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d.update(layout=2),
        lambda d: d.update(layout="x"),
        lambda d: d.pop("parts"),
        lambda d: d.update(manifest=d["manifest"] + " "),
        lambda d: d["parts"][0].update(file="../r.duckdb"),
        lambda d: d["parts"][0].update(file="/etc/passwd"),
        lambda d: d["parts"].pop(),
        lambda d: d["parts"][0].update(table="privsql.other"),
        lambda d: d["columns"].pop(),
        lambda d: d.update(columns=[["x", "nothing"]]),
        lambda d: d["parts"][0].pop("rows"),
        lambda d: d.clear(),
    ],
)
def test_an_edited_index_is_refused(own: Path, edit: object) -> None:
    document = json.loads((own / MANIFEST).read_text(encoding="utf-8"))
    assert callable(edit)
    edit(document)
    (own / MANIFEST).write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(Error) as refused:
        Session(own)
    assert isinstance(refused.value, IntegrityError)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff", b'{"layout": 1}'])
def test_what_is_no_index_is_refused(own: Path, text: bytes) -> None:
    (own / MANIFEST).write_bytes(text)
    with pytest.raises(IntegrityError):
        open_release(own)


def test_a_folder_of_something_else_is_no_release(tmp_path: Path) -> None:
    with pytest.raises(OperationalError, match="not one of a release"):
        open_release(tmp_path)


def test_no_other_file_can_be_read(both: tuple[Path, Path], tmp_path: Path) -> None:
    """A connection to a folder opens its parts and nothing else."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with (
        open_release(both[1]).connection() as con,
        pytest.raises(duckdb.PermissionException),
    ):
        con.execute("SELECT * FROM read_parquet($1)", [str(tmp_path / "other.parquet")])


# -- writing ------------------------------------------------------------------------------------


def publish(place: Path, target: str, seed: int, **options: object) -> None:
    rows = {"x": [1] * 500, "y": list(range(500)), "ill": ["a"] * 500, "age": [3] * 500}
    pq.write_table(pa.table(rows), place / "raw.parquet")
    privsql.publish(str(place / "raw.parquet"), target, spec=parse_spec(SPEC), seed=seed, **options)


def test_publishing_again_replaces_a_folder_and_sweeps_it(tmp_path: Path) -> None:
    publish(tmp_path, f"{tmp_path}/r/", 1)
    first = {path.name for path in files(tmp_path / "r")}
    stays = tmp_path / "r" / "notes.txt"
    stays.write_text("of somebody else", encoding="utf-8")
    with pytest.raises(OperationalError, match="exists already"):
        publish(tmp_path, f"{tmp_path}/r/", 2)
    assert {path.name for path in files(tmp_path / "r")} == first
    publish(tmp_path, f"{tmp_path}/r", 2, force=True)  # without a slash: it is a folder
    assert open_release(tmp_path / "r").manifest.rows == 500
    kept = {p.name for p in (tmp_path / "r").rglob("*") if p.is_file()}
    assert kept == {path.name for path in files(tmp_path / "r")} | {MANIFEST, "notes.txt"}
    assert {p.name for p in tmp_path.iterdir()} == {"r", "raw.parquet"}


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(OperationalError, match="other files"):
        publish(tmp_path, f"{tmp_path}/r/", 1, force=True)
    assert os.listdir(tmp_path / "r") == ["thesis.txt"]


def test_a_crash_before_the_commit_leaves_the_old_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(tmp_path, f"{tmp_path}/r/", 1)
    before = rows_of(tmp_path / "r")
    replace = os.replace

    def failing(old: str | Path, new: str | Path) -> None:
        if Path(new) == tmp_path / "r" / MANIFEST:
            raise OSError(5, "Input/output error")
        replace(old, new)

    monkeypatch.setattr(folders.os, "replace", failing)
    with pytest.raises((OSError, Error)):
        publish(tmp_path, f"{tmp_path}/r/", 2, force=True)
    monkeypatch.undo()
    assert rows_of(tmp_path / "r") == before
    publish(tmp_path, f"{tmp_path}/r/", 3, force=True)
    assert {p.name for p in (tmp_path / "r").rglob("*") if p.is_file()} == {
        MANIFEST,
        *(path.name for path in files(tmp_path / "r")),
    }


def test_a_session_that_is_open_is_not_told_lies(tmp_path: Path) -> None:
    """Its parts are gone once the folder was replaced: an error, never rows of both."""
    publish(tmp_path, f"{tmp_path}/r/", 1)
    session = Session(tmp_path / "r")
    publish(tmp_path, f"{tmp_path}/r/", 2, force=True)
    with pytest.raises(OperationalError, match="was replaced since it was opened"):
        session.run("SELECT COUNT(*) FROM t WHERE ill = 'a'")
    session.close()


def test_a_batch_joins_a_folder(tmp_path: Path) -> None:
    publish(tmp_path, f"{tmp_path}/r/", 1)
    rows = {"x": [1] * 5, "y": list(range(5)), "ill": ["a"] * 5, "age": [3] * 5}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    batch = tmp_path / "batch.parquet"
    perturb_file(parse_spec(SPEC), tmp_path / "rows.parquet", batch, Seeded(2))
    assert append(tmp_path / "r", batch) == 5
    assert open_release(tmp_path / "r").manifest.rows == 505
    with pytest.raises(Error, match="in the release already"):
        append(tmp_path / "r", batch)


# -- every question of the oracle ---------------------------------------------------------------


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[World, Session]]]:
    place = tmp_path_factory.mktemp("worlds")
    with published(place, 77, ("plain", "sparse", "compacted")) as made:
        sessions = []
        for each in made:
            shape = place / f"{each.release.stem}-folder"
            as_folder(each.release, shape)
            sessions.append((each, Session(shape, tables=each.tables)))
        yield sessions
        for _, session in sessions:
            session.close()


def test_folders_give_duckdbs_answers_at_retention_one(
    worlds: list[tuple[World, Session]],
) -> None:
    rng, tally = random.Random(77), Tally()
    for turn in range(sized(45, 1000)):
        world, session = worlds[turn % len(worlds)]
        sql = question(rng, there=True)
        compare_exact(tally, session, sql, world.raw.execute(sql).fetchall())
    assert not tally.failures, str(tally)
    assert min(tally.answered.values()) > 0


# -- a server -----------------------------------------------------------------------------------


def test_a_folder_is_served_and_replaced_without_a_break(tmp_path: Path) -> None:
    publish(tmp_path, f"{tmp_path}/r/", 1)
    ask = "SELECT count(*) FROM t WHERE ill = 'a'"
    with (
        serving([tmp_path / "r"], tmp_path) as running,
        psycopg.connect(running.dsn(), autocommit=True) as connection,
    ):
        first = connection.execute(ask).fetchone()
        (version,) = running.house.versions().values()
        publish(tmp_path, f"{tmp_path}/r/", 2, force=True)
        # The parts of the old release are held until the new one is looked for.
        assert connection.execute("SELECT count(*) FROM t WHERE ill = 'b'").fetchone()
        assert connection.execute(ask).fetchone() == first
        assert running.refresh() == ["t"]
        assert connection.execute(ask).fetchone() != first
        assert not version.path.exists()
        (tmp_path / "r" / MANIFEST).write_bytes(b"{")
        assert running.refresh() == []
        assert connection.execute(ask).fetchone() is not None
