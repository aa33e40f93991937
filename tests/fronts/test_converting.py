"""Another format is a reason to convert, never to draw anew.

Most of today's formats are the first.  So these tests make them earlier ones: the number that
readers know is raised, and a step is entered for each kind of file.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from privsql.errors import Error, IntegrityError, InternalError, NotSupportedError, OperationalError
from privsql.fronts.cli import conversion as converting
from privsql.fronts.cli.conversion import convert, upgraded_release
from privsql.fronts.cli.main import main
from privsql.fronts.pgwire.auth import users
from privsql.policy import history, history_file
from privsql.publish import staging
from privsql.publish.append.append import append
from privsql.publish.keys import key as keys
from privsql.publish.keys import ledger
from privsql.release import manifest
from privsql.release.store import open_release, store_manifest, stored_manifest
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.fixtures.asking import LATER, answered, renamed, same
from tests.fixtures.test_fixtures import HERE, recorded, unpacked, upgraded


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    return unpacked(HERE / "v1", tmp_path / "files")


def release_step(path: Path) -> None:
    with upgraded_release(path) as (con, document):
        con.execute("CREATE TABLE privsql.added AS SELECT 1 AS x")
        document["policy"]["min_rows"] += 0


def text_step(before: str, after: str) -> Callable[[Path], None]:
    def step(path: Path) -> None:
        path.write_text(path.read_text().replace(before, after))

    return step


def ledger_step(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**line, "format": 2}) + "\n" for line in lines))


def history_step(path: Path, number: int = 2) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {number}")
        if number == 2:  # as if it were the current one
            connection.executescript(history_file.EXACT)
    connection.close()


FILES: dict[str, tuple[str, Callable[[Path], None], Callable[[Path], object]]] = {
    "release": ("guarded.duckdb", release_step, open_release),
    "key": ("clinic.key", text_step("version: 1", "version: 2"), keys.read_key),
    "ledger": (
        "clinic.key.ledger",
        ledger_step,
        lambda path: ledger.Ledger(path, "x").publications(),
    ),
    "history": ("history.sqlite", history_step, lambda path: history.History(path).close()),
    "users file": ("users.json", text_step('"version": 1', '"version": 2'), users.Users),
}


# Formats that have been raised since the fixtures were made.
CURRENT = {"history": 3}


def advance(patch: pytest.MonkeyPatch, number: int = 2) -> None:
    """Make the current format of everything a later one."""
    for module, name in (
        (manifest, "FORMAT"),
        (keys, "VERSION"),
        (ledger, "FORMAT"),
        (history_file, "VERSION"),
        (users, "VERSION"),
    ):
        patch.setattr(module, name, number)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version whose formats are all 2, with a step from 1."""
    advance(monkeypatch)
    for kind, (_, step, _) in FILES.items():
        monkeypatch.setitem(converting.STEPS, kind, {1: step})


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# -- the current format -------------------------------------------------------------------


@pytest.mark.parametrize("kind", FILES)
def test_a_current_file_is_left_alone(folder: Path, kind: str) -> None:
    path = folder / FILES[kind][0]
    number = CURRENT.get(kind, 1)
    if number > 1:
        convert(path)
    before = contents(folder)
    made = convert(path, folder / "new")
    assert (made.kind, made.before, made.after, made.backup) == (kind, number, number, None)
    assert f"nothing to convert: {path} is a {kind} of format {number}" in str(made)
    assert contents(folder) == before


def test_a_damaged_file_is_not_called_current(folder: Path) -> None:
    path = folder / "clinic.key"
    path.write_text(path.read_text().replace("id: ", "id: f"))
    with pytest.raises(keys.KeyFileError, match="damaged"):
        convert(path)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("clinic.toml", "no release, key, ledger, history or users file"),
        ("batch.csv", "no release, key, ledger, history or users file"),
        ("recorded.json", "no release, key, ledger, history or users file"),
        ("missing", "cannot open"),
        (".", "a folder, but not one of a release"),
    ],
)
def test_other_files_are_refused(folder: Path, name: str, words: str) -> None:
    with pytest.raises(OperationalError, match=words):
        convert(folder / name)


def test_a_database_that_is_no_history_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "x") as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    with pytest.raises(OperationalError, match="no history of privsql"):
        convert(tmp_path / "x")
    with duckdb.connect(str(tmp_path / "y")) as con:
        con.execute("CREATE TABLE t (x INT)")
    with pytest.raises(IntegrityError, match="not a release"):
        convert(tmp_path / "y")


# -- an earlier one -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.usefixtures("later")
def test_an_earlier_format_is_refused_and_the_way_on_is_named(folder: Path, kind: str) -> None:
    name, _, opened = FILES[kind]
    with pytest.raises(Error, match="has format 1, this version of privsql reads format 2") as seen:
        opened(folder / name)
    assert "privsql convert" in str(seen.value)
    assert "publish" not in str(seen.value)


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.usefixtures("later")
def test_a_file_is_replaced_in_one_step_and_kept(folder: Path, kind: str) -> None:
    name, _, opened = FILES[kind]
    path, before = folder / name, contents(folder)
    mode = path.stat().st_mode
    made = convert(path)
    assert str(made) == (
        f"converted {path}: {kind}, format 1 to 2; the file before is {path}.format1"
    )
    opened(path)
    assert path.stat().st_mode == mode
    after = contents(folder)
    assert after.pop(f"{name}.format1") == before[name]
    assert after.pop(name) != before.pop(name)
    assert after == before  # and nothing is left beside it
    assert "nothing to convert" in str(convert(path))


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.usefixtures("later")
def test_another_name_leaves_the_original_as_it_is(folder: Path, kind: str) -> None:
    name, _, opened = FILES[kind]
    before = contents(folder)
    made = convert(folder / name, folder / "new")
    assert made.backup is None
    opened(folder / "new")
    after = contents(folder)
    assert after.pop("new") != before[name]
    assert after == before
    with pytest.raises(OperationalError, match="exists already"):
        convert(folder / name, folder / "new")
    convert(folder / name, folder / "new", force=True)
    with pytest.raises(OperationalError, match="is what is converted"):
        convert(folder / name, folder / name, force=True)


@pytest.mark.usefixtures("later")
def test_a_copy_that_is_there_is_not_overwritten(folder: Path) -> None:
    (folder / "guarded.duckdb.format1").write_text("kept")
    before = contents(folder)
    with pytest.raises(OperationalError, match=r"format1 exists already"):
        convert(folder / "guarded.duckdb")
    assert contents(folder) == before


@pytest.mark.usefixtures("later")
def test_a_converted_release_gives_equal_answers(folder: Path) -> None:
    path = folder / "guarded.duckdb"
    convert(path)
    session = Session(path)
    for before in recorded(folder)["guarded"]:
        now = json.loads(json.dumps(answered(session, before["ask"])))
        assert same(renamed(before), now) == []
    session.close()


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_history_knows_a_converted_release(folder: Path, forgotten: bool) -> None:
    """A conversion must not let a user subtract answers from before and after it."""
    convert(folder / "guarded.duckdb")
    convert(folder / "history.sqlite")
    if forgotten:  # what would come of it if the release were known by its new manifest
        edit(folder / "guarded.duckdb", identity="")
    with history.History(folder / "history.sqlite") as kept:
        session = Session(folder / "guarded.duckdb", served=Served("ann", kept))
        now = [answered(session, question).get("refused") for question in LATER]
        session.close()
    before = recorded(folder)["server"]["other" if forgotten else "later"]
    assert now == [each.get("refused") for each in before]


@pytest.mark.usefixtures("later")
def test_all_fixtures_are_upgraded_before_they_are_asked(folder: Path) -> None:
    """When a format's number is raised, the tests of the earlier fixtures go on by themselves."""
    upgraded(folder)
    for name, _, opened in FILES.values():
        opened(folder / name)
    releases = sorted(folder.glob("*.duckdb"))
    assert len(releases) > 5
    assert {stored_manifest(path)[0]["format"] for path in releases} == {2}


def edit(path: Path, **changes: object) -> None:
    document, _ = stored_manifest(path)
    document |= changes
    with duckdb.connect(str(path)) as con:
        store_manifest(con, json.dumps(document))


def test_rows_that_are_added_make_another_release_of_it(folder: Path) -> None:
    path = folder / "keyed.duckdb"
    edit(path, identity="abc")
    assert open_release(path).identity == "abc"
    append(path, folder / "batch.csv")
    assert open_release(path).manifest.identity == ""
    assert len(open_release(path).identity) == 64


def test_steps_follow_each_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advance(monkeypatch, 3)
    path, identity = folder / "guarded.duckdb", stored_manifest(folder / "guarded.duckdb")[1]
    steps = {1: release_step, 2: text_step("", "")}
    monkeypatch.setitem(converting.STEPS, "release", {1: release_step})
    with pytest.raises(NotSupportedError, match="no upgrade from format 1 of a release to 3"):
        convert(path)

    def second(made: Path) -> None:
        with upgraded_release(made) as (con, _):
            con.execute("DROP TABLE privsql.added")

    monkeypatch.setitem(converting.STEPS, "release", steps | {2: second})
    made = convert(path)
    assert (made.before, made.after) == (1, 3)
    # The manifest of format 1 is what histories know, however many steps there were.
    assert open_release(path).identity == identity


# -- whole or not at all ------------------------------------------------------------------


def fails(path: Path) -> None:
    path.write_bytes(b"half")
    raise OperationalError("the step failed")


def stays(path: Path) -> None:
    """Do nothing, and do not say the new number."""


def draws(path: Path) -> None:
    with upgraded_release(path) as (con, _):
        con.execute("UPDATE patients SET disease = 'flu' WHERE rowid = 1")


def damages(path: Path) -> None:
    with upgraded_release(path) as (con, _):
        con.execute("DROP TABLE privsql.tuples")


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(
    ("step", "error"),
    [
        (fails, OperationalError),
        (stays, InternalError),
        (draws, InternalError),
        (damages, IntegrityError),
    ],
)
def test_a_step_that_goes_wrong_changes_nothing(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: Callable[[Path], None],
    error: type[Error],
) -> None:
    monkeypatch.setitem(converting.STEPS, "release", {1: step})
    before = contents(folder)
    for out in (None, folder / "new"):
        with pytest.raises(error):
            convert(folder / "guarded.duckdb", out)
        assert contents(folder) == before


@pytest.mark.usefixtures("later")
def test_a_file_that_cannot_be_replaced_keeps_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(converting, "commit", full)
    before = contents(folder)
    with pytest.raises(OperationalError, match="could not be written"):
        convert(folder / "guarded.duckdb")
    assert contents(folder) == before


@pytest.mark.usefixtures("later")
def test_a_history_in_use_is_not_converted(folder: Path) -> None:
    path = folder / "history.sqlite"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("PRAGMA user_version = 1")
    try:
        with pytest.raises(OperationalError, match="in use"):
            convert(path)
    finally:
        connection.rollback()
        connection.close()


@pytest.mark.usefixtures("later")
def test_a_ledger_that_is_published_under_is_not_converted(folder: Path) -> None:
    path = folder / "clinic.key.ledger"
    refused = pytest.raises(OperationalError, match="another publication")
    with ledger.Ledger(path, "x").locked(), refused:
        convert(path)
    convert(path)


def test_a_line_is_not_entered_in_a_ledger_that_was_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever waited for the lock of the old file must find the new one."""
    path = folder / "clinic.key.ledger"
    lock, replaced = staging.lock, []

    def waits(descriptor: int, **how: bool) -> None:
        lock(descriptor, **how)
        if not replaced:
            replaced.append(path.read_bytes())
            (folder / "other").write_bytes(replaced[0])
            (folder / "other").replace(path)

    kept = ledger.Ledger(path, "x")
    before = len(kept.publications())
    monkeypatch.setattr(staging, "lock", waits)
    kept.record("t", "person", {}, "r")
    assert replaced
    assert len(ledger.Ledger(path, "x").publications()) == before + 1


# -- a later one --------------------------------------------------------------------------


def newer(folder: Path) -> None:
    edit(folder / "guarded.duckdb", format=2, software="privsql 9.1")
    for kind in ("key", "ledger", "users file"):
        name, step, _ = FILES[kind]
        step(folder / name)
    history_step(folder / "history.sqlite", CURRENT["history"] + 1)


@pytest.mark.parametrize("kind", FILES)
def test_a_later_format_needs_a_later_version(folder: Path, kind: str) -> None:
    newer(folder)
    name, _, opened = FILES[kind]
    before = contents(folder)
    maker = "privsql 9.1" if kind == "release" else "a later version of privsql"
    number = CURRENT.get(kind, 1) + 1
    words = f"has format {number}, this version of privsql reads"
    for each in (opened, convert):
        with pytest.raises(Error, match=words) as seen:
            each(folder / name)
        assert f"it was made by {maker}; use that version" in str(seen.value)
        assert "privsql convert" not in str(seen.value)
    assert contents(folder) == before


@pytest.mark.parametrize("software", [None, 7, "privsql\n9", "x" * 5000])
def test_who_made_a_later_release_is_told_within_reason(folder: Path, software: object) -> None:
    edit(folder / "guarded.duckdb", format=2, software=software)
    with pytest.raises(IntegrityError) as seen:
        open_release(folder / "guarded.duckdb")
    assert len(str(seen.value)) < 300
    assert str(seen.value).count("\n") == 1


# -- command ------------------------------------------------------------------------------


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(main, ["convert", *map(str, arguments)])
    return done.exit_code, done.output


def test_the_command_says_that_there_is_nothing_to_do(folder: Path) -> None:
    code, said = run(folder / "guarded.duckdb")
    assert code == 0
    assert "is a release of format 1, which this version reads" in said


@pytest.mark.usefixtures("later")
def test_the_command_converts(folder: Path) -> None:
    assert run(folder / "guarded.duckdb", "-o", folder / "new.duckdb") == (
        0,
        f"converted {folder / 'new.duckdb'}: release, format 1 to 2\n",
    )
    code, said = run(folder / "guarded.duckdb", "-o", folder / "new.duckdb")
    assert code == 1
    assert "--force" in said
    code, said = run(folder / "guarded.duckdb")
    assert code == 0
    assert said.endswith("guarded.duckdb.format1\n")
    code, said = run(folder / "nothing.duckdb")
    assert code == 1
    assert "cannot open" in said
