from __future__ import annotations

import threading
import time
from datetime import date, datetime
from datetime import time as clock
from pathlib import Path

import pytest

import privsql
from privsql.answer.kinds import describe
from privsql.answer.outcome import ResultColumn
from privsql.fronts.dbapi.connection import Connection

from .fake import FakeSession

BARS = "SELECT * FROM (VALUES ('eng', 100.0::DOUBLE), ('law', NULL)) t(job, est)"


@pytest.fixture
def session():
    return FakeSession()


@pytest.fixture
def con(session):
    with Connection(session) as con:
        yield con


def test_rows_are_fetched_once_and_in_order(con):
    cur = con.execute("SELECT i FROM range(5) t(i)")
    assert cur.rowcount == 5
    assert cur.fetchone() == (0,)
    assert cur.rownumber == 1
    assert cur.fetchmany(2) == [(1,), (2,)]
    assert list(cur) == [(3,), (4,)]
    assert cur.fetchall() == []
    assert cur.fetchone() is None


def test_parameters_go_to_the_session_bound_and_untouched(con, session):
    nasty = "'; DROP TABLE x; --"
    assert con.execute("SELECT ? AS a, ? AS b", [nasty, 3]).fetchall() == [(nasty, 3)]
    assert con.execute("SELECT $name AS a", {"name": nasty}).fetchone() == (nasty,)
    assert session.asked[0][:2] == ("SELECT ? AS a, ? AS b", [nasty, 3])


@pytest.mark.parametrize("wrong", ["x", b"x", 3, {1, 2}, (x for x in [1])])
def test_what_is_no_set_of_parameters_is_refused(con, session, wrong):
    for call in (con.execute, con.sql, con.explain, con.expand):
        with pytest.raises(
            privsql.ProgrammingError, match=r"sequence or a mapping.*\n.*\(value,\)"
        ):
            call("SELECT ?", wrong)
    assert session.asked == []


def test_bars_are_columns_when_asked_for(session):
    con = Connection(session)
    plain = con.execute(BARS)
    assert [d[0] for d in plain.description] == ["job", "est"]
    session_run = session.run
    session.run = lambda *a, **k: session_run(*a, **(k | {"error_bars": True}))
    cur = con.execute(BARS)
    assert [d[:2] for d in cur.description] == [
        ("job", "VARCHAR"),
        ("est", "DOUBLE"),
        ("est_stderr", "DOUBLE"),
        ("est_low", "DOUBLE"),
        ("est_high", "DOUBLE"),
        ("est_reliable", "BOOLEAN"),
    ]
    assert cur.fetchall() == [
        ("eng", 100.0, 5.0, 90.0, 110.0, True),
        ("law", None, None, None, None, None),
    ]


def test_options_of_sql_reach_the_session(con, session):
    answer = con.sql(BARS, error_bars=True, confidence_level=0.9)
    assert session.asked[-1][2] == {"error_bars": True, "confidence_level": 0.9}
    assert answer.columns[-1] == "est_reliable"
    assert answer.explain() == f"explained: {BARS} with None"


def test_explain_and_expand_pass_their_parameters(con):
    assert con.explain("SELECT ?", [1]) == "explained: SELECT ? with [1]"
    assert con.expand("SELECT ?", [1]) == ["expanded: SELECT ? with [1]"]


def test_several_statements_run_in_order_and_the_last_answers(con, session):
    cur = con.execute("SET a = 1; SELECT ';' AS x;")
    assert cur.fetchall() == [(";",)]
    assert [sql for sql, *_ in session.asked] == ["SET a = 1", "SELECT ';' AS x"]
    assert [n.code for n in cur.notices] == ["set", "fake"]
    with pytest.raises(privsql.ProgrammingError, match="2 statements at once"):
        con.execute("SELECT 1; SELECT ?", [1])
    with pytest.raises(privsql.ProgrammingError, match="no statement"):
        con.execute(" ; ")


def test_notices_are_of_the_last_statement(con):
    cur = con.cursor()
    assert cur.notices == ()
    cur.execute("SELECT 1")
    assert [n.code for n in cur.notices] == ["fake"]
    with pytest.raises(privsql.ProgrammingError):
        cur.execute("SELECT nonsense")
    assert cur.notices == ()
    assert cur.description is None
    with pytest.raises(privsql.ProgrammingError, match="no rows to fetch"):
        cur.fetchall()


def test_executemany_refuses_to_lose_rows(con, session):
    with pytest.raises(privsql.ProgrammingError, match="would be lost"):
        con.cursor().executemany("SELECT ?", [[1], [2]])
    assert len(session.asked) == 1
    cur = con.cursor().executemany("SET a = 1", [[], []])
    assert cur.rowcount == -1
    assert [n.code for n in cur.notices] == ["set", "set"]


def test_a_negative_size_is_refused(con):
    with pytest.raises(privsql.ProgrammingError, match="-1 rows"):
        con.execute("SELECT 1").fetchmany(-1)


CONNECTION_CALLS = {
    "cursor": (),
    "execute": ("SELECT 1",),
    "sql": ("SELECT 1",),
    "explain": ("SELECT 1",),
    "expand": ("SELECT 1",),
    "interrupt": (),
    "commit": (),
    "rollback": (),
    "__enter__": (),
}
CURSOR_CALLS = {
    "execute": ("SELECT 1",),
    "executemany": ("SELECT 1", []),
    "fetchone": (),
    "fetchmany": (),
    "fetchall": (),
    "__next__": (),
    "setinputsizes": ([],),
    "setoutputsize": (1,),
    "__enter__": (),
}


@pytest.mark.parametrize("name", CONNECTION_CALLS)
def test_a_closed_connection_says_so(con, session, name):
    con.close()
    assert session.closed
    with pytest.raises(privsql.InterfaceError, match="connection is closed"):
        getattr(con, name)(*CONNECTION_CALLS[name])


@pytest.mark.parametrize("name", CURSOR_CALLS)
@pytest.mark.parametrize("which", ["cursor", "connection"])
def test_a_closed_cursor_says_so(con, name, which):
    cur = con.execute("SELECT 1")
    (cur if which == "cursor" else con).close()
    with pytest.raises(privsql.InterfaceError, match=f"the {which} is closed"):
        getattr(cur, name)(*CURSOR_CALLS[name])


def test_contexts_close(session):
    with Connection(session) as con:
        with con.cursor() as cur:
            cur.execute("SELECT 1")
        with pytest.raises(privsql.InterfaceError):
            cur.fetchall()
    assert session.closed


def test_threads_share_a_connection_and_take_turns(con, session):
    failed = []

    def ask(i: int) -> None:
        for _ in range(10):
            got = con.execute("SELECT sum(x)::INTEGER + ? FROM range(50000) t(x)", [i]).fetchone()
            if got != (1249975000 + i,):
                failed.append(got)

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert len(session.asked) == 60
    assert session.most_at_once == 1


def waiting(con, session) -> tuple[threading.Thread, list[BaseException]]:
    """A thread in which a statement runs until it is interrupted."""
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            con.execute("WAIT")
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not session.asked:
        time.sleep(0.001)
    return thread, errors


@pytest.mark.parametrize("stop", ["interrupt", "close"])
def test_what_runs_can_be_stopped_from_another_thread(con, session, stop):
    thread, errors = waiting(con, session)
    getattr(con, stop)()
    thread.join(timeout=30)
    assert not thread.is_alive()
    assert errors == []
    assert session.closed == (stop == "close")


def test_description_knows_decimals():
    assert describe(ResultColumn("x", "DECIMAL(18,3)")) == (
        *("x", "DECIMAL(18,3)", None, None),
        *(18, 3, None),
    )


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("STRING", "VARCHAR"),
        ("STRING", "ENUM('a', 'b')"),
        ("STRING", "UUID"),
        ("NUMBER", "BIGINT"),
        ("NUMBER", "DOUBLE"),
        ("NUMBER", "HUGEINT"),
        ("NUMBER", "DECIMAL(18,3)"),
        ("NUMBER", "BOOLEAN"),
        ("DATETIME", "DATE"),
        ("DATETIME", "TIMESTAMP WITH TIME ZONE"),
        ("DATETIME", "TIMESTAMP_NS"),
        ("BINARY", "BLOB"),
        (None, "INTEGER[]"),
        (None, "STRUCT(a INTEGER)"),
        (None, "DECIMAL(18,3)[]"),
    ],
)
def test_a_type_code_is_of_one_kind(kind, code):
    kinds = ["STRING", "NUMBER", "DATETIME", "BINARY", "ROWID"]
    objects = {name: getattr(privsql, name) for name in kinds}
    assert [name for name in kinds if code == objects[name]] == [kind] * (kind is not None)
    assert [name for name in kinds if code != objects[name]] == [n for n in kinds if n != kind]


def test_ticks_are_local_time():
    ticks = time.mktime((2002, 12, 25, 13, 45, 30, 0, 0, -1))
    assert privsql.DateFromTicks(ticks) == date(2002, 12, 25) == privsql.Date(2002, 12, 25)
    assert privsql.TimeFromTicks(ticks) == clock(13, 45, 30) == privsql.Time(13, 45, 30)
    assert privsql.TimestampFromTicks(ticks) == datetime(2002, 12, 25, 13, 45, 30)
    assert privsql.Binary(b"x") == b"x"


def test_connect_opens_a_session_with_its_settings(monkeypatch, session):
    import sys
    from types import ModuleType

    made = []

    def opened(*arguments, **options):
        made.append((arguments, options))
        return session

    module = ModuleType("privsql.session.session")
    module.Session = opened
    monkeypatch.setitem(sys.modules, module.__name__, module)
    con = privsql.connect("clinic.duckdb", tables={"t": 1}, confidence_level=0.9)
    assert isinstance(con, privsql.Connection)
    assert made == [((Path("clinic.duckdb"),), {"tables": {"t": 1}, "confidence_level": 0.9})]
