"""Every attack of tests/attacks, through every front.

Whatever was refused, the error says no more than the statement did, and the session goes on.
"""

from __future__ import annotations

import itertools
import os
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import privsql
from privsql.errors import Error
from privsql.policy.history import History
from privsql.policy.journal import Journal
from privsql.policy.limits import Limits
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.policy.attacks import FRONTS, Ask, Attack, Front, Local, Seen, Step, attacks
from tests.policy.journals import read
from tests.sizes import SOAK
from tests.specs import measure, public, sensitive, spec
from tests.sql.clinic import publish

ATTACKS = attacks()

# Towns whose rows tell the same are one personal group: north, south, east and an isle of one.
WARDS = """
    SELECT town, shift, pay, CASE WHEN chance < rate THEN 'flu' ELSE 'none' END AS ill
    FROM (SELECT CASE WHEN i = 0 THEN 'isle'
                      ELSE (['n1', 'n2', 's1', 's2', 'e1'])[1 + (i % 5)::INTEGER] END AS town,
                 (['day', 'night'])[1 + (hash(i + 5) % 2)::INTEGER] AS shift,
                 (10 + hash(i * 3) % 20)::INTEGER AS pay,
                 (hash(i * 7) % 1000) / 1000 AS chance,
                 CASE WHEN i % 5 < 2 THEN 0.1 WHEN i % 5 < 4 THEN 0.45 ELSE 0.75 END
                 + CASE WHEN hash(i + 5) % 2 = 0 THEN 0.2 ELSE 0 END AS rate
          FROM range(3001) AS r(i))
"""

WARDS_SPEC = spec(
    "wards",
    public("town"),
    public("shift"),
    measure("pay"),
    sensitive("ill", 0.8, ["flu", "none"], accept_epsilon=True),
    more="""
[groups]
minimum = 20
[policy]
personal_groups = "refuse"
min_rows = 10
""",
)

TABLES = {
    "places": pa.table({"job": ["eng", "law", "med"], "floor": [1, 2, 3]}),
    "several": pa.table({"job": ["eng", "eng", "law"], "w": [1, 2, 3]}),
}
# A sum over everybody in public columns: always answered, and always the same.
AFTER = {
    "clinic": ("SELECT COUNT(*) FROM patients", 4000),
    "wards": ("SELECT COUNT(*) FROM wards", 3001),
}
# Words of our own that no error may show, unless the statement has them.
INNER = ("privsql_q", "privsql_group", "privsql_rows", "_scan", "_mask", "_atoms", "Traceback")
# Columns that are keys in the attacks: what is NULL there was not refused.
KEYS = {"job", "gender", "favourite", "disease", "town", "shift", "floor", "k"}


def wards(folder: Path) -> Path:
    """Publish the towns: some public values are merged, and a group has one row."""
    source, release = folder / "wards.parquet", folder / "wards.duckdb"
    with duckdb.connect() as con:
        con.sql(WARDS).write_parquet(str(source))
    (folder / "wards.toml").write_text(WARDS_SPEC, encoding="utf-8")
    privsql.publish(str(source), release, spec=folder / "wards.toml", seed=5)
    return release


class Place:
    """A release under attack: sessions of each mode, and what is public about it."""

    def __init__(self, path: Path, name: str, log: Path) -> None:
        self.path, self.name = path, name
        self.history, self.journal = History(None), Journal(log)
        self.standing = {mode: self.opened(mode, "standing") for mode in ("embedded", "served")}
        with duckdb.connect(str(path), read_only=True) as con:
            table = AFTER[name][0].split()[-1]
            described = con.execute(f"DESCRIBE {table}").fetchall()
            texts = [
                row[0]
                for column, kind, *_ in described
                if kind == "VARCHAR"
                for row in con.execute(f"SELECT DISTINCT {column} FROM {table}").fetchall()
            ]
        self.values = sorted({text for text in texts if text is not None})

    def opened(self, mode: str, user: str) -> Session:
        """A session of this user's."""
        served = Served(user, self.history, self.journal) if mode == "served" else None
        return Session(self.path, tables=TABLES, limits=Limits(seconds=10), served=served)

    @contextmanager
    def sessions(self, attack: Attack, mode: str) -> Iterator[Callable[[str], Session]]:
        """The session of each user of a sequence; new ones only where a past would tell."""
        made: dict[str, Session] = {}
        number = next(USERS)

        def session_of(user: str) -> Session:
            if mode == "embedded" or attack.leaves_nothing:
                return self.standing[mode]
            if user not in made:
                made[user] = self.opened(mode, f"{number} {user}")
            return made[user]

        yield session_of
        for session in made.values():
            session.close()

    def close(self) -> None:
        """Let go of it."""
        for session in self.standing.values():
            session.close()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    folder = tmp_path_factory.mktemp("attacked")
    made = {
        "clinic": Place(publish(folder, 0.5, policy="refuse", least=10), "clinic", folder / "log"),
        "wards": Place(wards(folder), "wards", folder / "log of wards"),
    }
    yield made
    for place in made.values():
        place.close()


USERS = itertools.count()


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_attack(places: dict[str, Place], attack: Attack) -> None:
    """Fronts share a user: what was answered is answered again, what was refused stays so.

    Statements that need no scan go through every front.  Of the others, ``Session.run`` answers
    those that are embedded, and the fronts upon it take turns at those that are served; `make soak`
    and ALL_FRONTS=1 let each of them have all.
    """
    place = places[attack.release]
    cheap = attack.leaves_nothing and attack.file == "guard"
    every = cheap or SOAK or bool(os.environ.get("ALL_FRONTS"))
    for mode in attack.modes:
        fronts = FRONTS if every else turn(attack, mode)
        with place.sessions(attack, mode) as session_of:
            for name, make in fronts.items():
                way = Local(make, session_of)
                for step in attack.steps:
                    way.begin(step.user)
                    got = decided(way, place, step)
                    assert got == wanted(step), f"{name}, {mode}: {step.sql}"
                goes_on(way, place)


def turn(attack: Attack, mode: str) -> dict[str, Callable[[Session], Ask]]:
    """The session where it is embedded, and one of the fronts upon it where it is served."""
    above = [name for name in FRONTS if name != "session"]
    chosen = above[ATTACKS.index(attack) % len(above)] if mode == "served" else "session"
    return {chosen: FRONTS[chosen]}


def wanted(step: Step) -> str:
    """What is expected, as ``decided`` writes it."""
    expected = step.expected
    if expected.kind == "empty":
        return f"empty {expected.refused} shown {expected.shown}"
    return f"{expected.kind} {expected.code}".strip()


def decided(way: Front, place: Place, step: Step) -> str:
    """What became of a statement; and that it says no more than that."""
    try:
        seen = way.ask(step.sql, step.parameters)
    except Error as problem:
        silent(problem, place, step)
        refused = problem.sqlstate in ("0A000", "42501") or problem.code == "too-large"
        return f"{'refused' if refused else 'error'} {problem.code}"
    if seen.kind == "set":
        return "set"
    discreet(seen)
    number = _number(seen)
    if not number:
        return "answered"
    hidden = [
        value
        for row in seen.rows
        for name, value in zip(seen.columns, row, strict=True)
        if value is None and name not in KEYS
    ]
    return f"empty {number} shown {len(hidden)}"


def _number(seen: Seen) -> int:
    """Cells that were refused: what the notices say, and the answer itself where it tells."""
    said = [n.text for n in seen.notices if n.code in ("personal-group", "difference")]
    number = sum(int(text.split()[0]) for text in said)
    assert seen.personal is None or seen.personal.refused == number
    return number


def silent(problem: Error, place: Place, step: Step) -> None:
    """An error names nothing that the statement did not."""
    text, asked = f"{problem.reason}\n{problem.hint or ''}", f"{step.sql} {step.parameters}"
    assert problem.code != "internal"
    assert problem.hint or problem.place or problem.code in ("syntax", "programming")
    for word in INNER:
        assert word not in text or word in asked, text
    for value in place.values:
        # Names of columns may be like values: "none" of them is quoted.
        assert f"'{value}'" not in text or value in asked, text
    known = set(re.findall(r"\d+", asked)) | {"10", "100", "500", "1000", "10000", "2000000"}
    assert set(re.findall(r"\d+", text)) <= known, text


def discreet(seen: Seen) -> None:
    """A value that is gone takes its error along, and no hidden column is shown."""
    assert not [name for name in seen.columns if name.startswith("privsql_") and "(" not in name]
    for i, bars in seen.bars.items():
        gone = [row[i] is None for row in seen.rows]
        for name in ("stderr", "low", "high"):
            shown = bars.column(name).to_pylist()
            # What has no rows has no error: 0.
            assert not any(g and s for g, s in zip(gone, shown, strict=True))


def goes_on(way: Front, place: Place) -> None:
    """The same front answers the next statement."""
    sql, rows = AFTER[place.name]
    assert way.ask(sql).rows[0][0] == rows


@pytest.mark.parametrize("front", FRONTS)
def test_a_second_statement_is_no_way_in(places: dict[str, Place], front: str) -> None:
    way = Local(FRONTS[front], lambda _: places["clinic"].standing["served"])
    way.begin("")
    for text in ("SELECT 1; DROP TABLE patients", "SELECT 1; SELECT * FROM patients; SELECT 2"):
        with pytest.raises(Error) as problem:
            way.ask(text)
        assert problem.value.code in ("programming", "unsupported", "rows")
    goes_on(way, places["clinic"])


# -- the suite itself ---------------------------------------------------------------------


def test_there_are_enough_attacks_of_every_kind() -> None:
    statements = [step for attack in ATTACKS for step in attack.steps]
    kinds = Counter(step.expected.kind for step in statements)
    assert len({step.sql for step in statements}) >= 220
    assert min(kinds["refused"], kinds["empty"], kinds["answered"], kinds["error"]) >= 15
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names)


def test_groups_of_the_towns_are_merged(places: dict[str, Place]) -> None:
    """Attacks on merged groups mean something only if values were merged."""
    with privsql.release.open(places["wards"].path).connection() as con:
        found = con.execute(
            "SELECT privsql_group, count(*), sum(privsql_rows) FROM privsql.tuples GROUP BY 1"
        ).fetchall()
    assert sorted(atoms for _, atoms, _ in found) == [1, 1, 1, 2, 2, 2, 2]
    assert min(rows for *_, rows in found) == 1


def test_the_log_has_every_decision_and_no_value(tmp_path: Path) -> None:
    path = wards(tmp_path)
    journal = Journal(tmp_path / "log")
    session = Session(path, served=Served("ann", History(None), journal))
    with pytest.raises(Error):
        session.run(
            "SELECT COUNT(*) FROM wards WHERE ill = 'flu' AND town = 'e1' AND shift = 'day'"
        )
    outcome = session.run("SELECT COUNT(*) AS n FROM wards WHERE ill = 'flu'")
    session.close()
    shown = [outcome.table.column(0)[0].as_py(), *outcome.bars[0].to_pylist()[0].values()]
    text = (tmp_path / "log").read_text(encoding="utf-8")
    assert not any(str(value) in text for value in shown if value is not True)
    entries = list(read(tmp_path / "log"))
    assert [entry.decision for entry in entries] == ["refused", "answered"]
