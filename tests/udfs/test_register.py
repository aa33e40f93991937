from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading

import duckdb
import numpy as np
import pytest

from udfs.errors import KernelError
from udfs.functions import FUNCTIONS, TALLY
from udfs.intervals import critical, fieller_interval, score_interval, wald_interval
from udfs.invert import invert
from udfs.kron import Kron, retention_factor
from udfs.mle import maximum_likelihood
from udfs.register import register

HALF = "[[[0.75, 0.25], [0.25, 0.75]]]"


@pytest.fixture
def con():
    with duckdb.connect() as connection:
        register(connection)
        yield connection


def one(connection, expression: str):
    return connection.execute(f"SELECT {expression}").fetchone()[0]


def message(connection, expression: str) -> str:
    with pytest.raises(duckdb.Error) as caught:
        one(connection, expression)
    return str(caught.value)


# --- the functions give what the kernels give --------------------------------------


@pytest.fixture(scope="module")
def case():
    factors = [retention_factor(0.5, [0.7, 0.3]), retention_factor(0.3, [0.6, 0.4])]
    counts = np.random.default_rng(5).integers(0, 60, size=(5000, 4)).astype(float)
    return factors, counts


def table(connection, counts):
    connection.execute("CREATE TABLE t (i INTEGER, y DOUBLE[])")
    connection.executemany(
        "INSERT INTO t VALUES (?, ?)", [[i, row.tolist()] for i, row in enumerate(counts[:50])]
    )
    # More than one of DuckDB's vectors of 2,048 rows.
    connection.execute("INSERT INTO t SELECT i + 50 * r, y FROM t, range(1, 100) s(r)")


def test_intervals_equal_the_kernels_argument_by_argument(con):
    for rows in (2.0, 500.0):
        found = one(con, f"privsql_wald_interval(100.0, 25.0, {rows}, 2.0)")
        assert (found["low"], found["high"]) == pytest.approx((90.0, 110.0))
        assert found["reliable"] is bool(wald_interval(100.0, 25.0, rows, 2.0).reliable)
        found = one(con, f"privsql_fieller_interval(10.0, 100.0, 4.0, 1.0, 25.0, {rows}, 2.0)")
        direct = fieller_interval(10.0, 100.0, (4.0, 1.0, 25.0), rows, 2.0)
        assert (found["low"], found["high"]) == pytest.approx(
            (float(direct.low), float(direct.high))
        )
        assert found["reliable"] is bool(direct.reliable)
    reliable = [
        one(con, f"privsql_wald_interval(100.0, 25.0, {rows}, 2.0)")["reliable"]
        for rows in (2.0, 500.0)
    ]
    assert reliable == [False, True]


def test_inversion_and_likelihood_equal_the_kernels(con, case):
    factors, counts = case
    table(con, counts)
    text = str([factor.tolist() for factor in factors])
    rows = con.execute(
        f"SELECT privsql_invert(y, {text}), privsql_likelihood(y, {text}) FROM t ORDER BY i"
    ).fetchall()
    y, kron = np.tile(counts[:50], (100, 1)), Kron(factors)
    np.testing.assert_allclose([row[0] for row in rows], invert(y, kron))
    direct = maximum_likelihood(y, kron)
    np.testing.assert_allclose([row[1]["estimate"] for row in rows], direct.estimate, atol=1e-6)
    assert all(row[1]["converged"] for row in rows)
    assert max(row[1]["gap"] for row in rows) <= 1e-8
    assert {row[1]["rounds"] == 0 for row in rows} == {True, False}


def test_factors_may_differ_from_row_to_row_in_size_and_number(con):
    rows = con.execute(
        """
        SELECT privsql_invert(
            CASE i % 3 WHEN 0 THEN [45, 55] WHEN 1 THEN [10, 20, 30, 40] ELSE [7] END,
            CASE i % 3 WHEN 0 THEN [[[0.75, 0.25], [0.25, 0.75]]]
                       WHEN 1 THEN [[[1, 0], [0, 1]], [[0.75, 0.25], [0.25, 0.75]]]
                       ELSE [] END)
        FROM range(6) s(i)
        """
    ).fetchall()
    expected = [
        [40, 60],
        invert(
            [10, 20, 30, 40], Kron([np.eye(2), Kron([[[0.75, 0.25], [0.25, 0.75]]]).factors[0]])
        ).tolist(),
        [7],
    ]
    assert [row[0] for row in rows] == [pytest.approx(e) for e in expected * 2]


def test_intervals_equal_the_kernels(con):
    bounds = score_interval(55, 100, Kron([[[0.75, 0.25], [0.25, 0.75]]]), critical(0.95))
    found = one(con, f"privsql_score_interval(55, 100, {HALF}, privsql_critical(0.95, 1))")
    assert found == {
        "low": pytest.approx(bounds.low),
        "high": pytest.approx(bounds.high),
        "reliable": True,
    }
    assert one(con, "privsql_wald_interval(10, 4, 25, 2)") == {
        "low": 6,
        "high": 14,
        "reliable": True,
    }
    assert one(con, "privsql_wald_interval(10, -4, 25, 2)") == {
        "low": None,
        "high": None,
        "reliable": False,
    }
    fieller = one(con, "privsql_fieller_interval(40, 100, 25, 0, 0, 25, 2)")
    assert fieller == {"low": pytest.approx(0.3), "high": pytest.approx(0.5), "reliable": True}
    # Positions are SQL's, from one, so that they index the list of values.
    value = one(
        con,
        "['a','b','c','d'][privsql_quantile_interval([-30,-5,12,50],[16,25,25,0],[50,50,50,50],1.96).estimate]",
    )
    assert value == "c"


ARGUMENTS = {
    "DOUBLE[]": "[45, 55]",
    "DOUBLE[][][]": HALF,
    "DOUBLE": "0.5",
    "INTEGER": "9",
    "BIGINT": "9",
    "BIGINT[]": "[0, 1]",
    "VARCHAR": "'cont'",
    f"{TALLY}[]": f"[privsql_tally([4, 5], [4, 5], [4, 5], [0, 1], 0.5, 2, {HALF})]",
}


# Of a function whose arguments belong together.
TOGETHER = {
    "privsql_cells": [
        *("[[0, 1, 0]]", "[0, 0, 1]", "2", "[[60, 40, 5]]", "[[0, 1]]", "[[0, 1]]", "[[[]]]"),
        *("[[0, 0, 0]]", "[[0, 0, 0, 0, 0]]", "[0]", "[[0.5, 0.5]]", "[]", HALF),
    ]
}


def arguments(function):
    """Something to call a function with."""
    kinds = function.parameters.values()
    return TOGETHER.get(function.name) or [ARGUMENTS[kind] for kind in kinds]


def test_every_function_runs_and_null_gives_null(con):
    for function in FUNCTIONS:
        given = arguments(function)
        assert one(con, f"{function.name}({', '.join(given)})") is not None
        for position, kind in enumerate(function.parameters.values()):
            holes = [*given]
            holes[position] = f"NULL::{kind}"
            assert one(con, f"{function.name}({', '.join(holes)})") is None


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_rows_that_all_have_a_null_somewhere_are_all_null(con, function):
    """Then DuckDB calls with no rows at all."""
    given = [*arguments(function)]
    given[0] = f"if(i % 2 = 0, NULL, {given[0]})"
    given[-1] = f"if(i % 2 = 1, NULL, {given[-1]})"
    rows = con.execute(f"SELECT {function.name}({', '.join(given)}) FROM range(9) s(i)").fetchall()
    assert rows == [(None,)] * 9


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("score_interval", ["55", "100", HALF, "2"]),
        ("wald_interval", ["10", "4", "25", "2"]),
        ("fieller_interval", ["40", "100", "25", "0", "36", "25", "2"]),
        ("constrain", ["3", "-2", "12", "0", "100"]),
    ],
)
def test_a_null_among_other_rows_spoils_only_its_own(con, name, arguments):
    """A group without rows has NULL estimates, in any argument and beside other groups."""
    expected = one(con, f"privsql_{name}({', '.join(arguments)}).low")
    assert expected is not None
    for holes in [{k} for k in range(len(arguments))] + [set(range(len(arguments)))]:
        given = [
            f"if(i % 3 = {k % 3}, NULL, {a})" if k in holes else a for k, a in enumerate(arguments)
        ]
        query = f"SELECT i, privsql_{name}({', '.join(given)}) AS b FROM range(5000) s(i)"
        rows = con.execute(f"SELECT i, b.low, b.high FROM ({query}) ORDER BY i").fetchall()
        gone = {k % 3 for k in holes}
        for i, low, high in rows:
            assert (low is None, high is None) == (i % 3 in gone,) * 2
            assert low is None or low == expected


def test_what_is_exact_is_worth_infinitely_many_rows(con):
    wald = one(con, "privsql_wald_interval(10, 4, 'inf'::DOUBLE, 2)")
    assert wald == {"low": 6, "high": 14, "reliable": True}
    fieller = one(con, "privsql_fieller_interval(40, 100, 25, 0, 0, 'inf'::DOUBLE, 2)")
    assert fieller == {"low": pytest.approx(0.3), "high": pytest.approx(0.5), "reliable": True}
    few = one(con, "privsql_wald_interval(10, 4, 5, 2)")
    assert few == {"low": 6, "high": 14, "reliable": False}


def test_a_quantile_without_parts_is_null(con):
    for tallies in ("[]", f"[NULL::{TALLY}]", f"NULL::{TALLY}[]"):
        found = one(con, f"{quantile(tallies=tallies)}.lower")
        assert found is None
    rows = con.execute(
        f"SELECT {quantile(tallies=f'if(i % 2 = 0, [], [{tally()}, NULL])')}.low FROM range(4) s(i)"
    ).fetchall()
    assert rows == [(None,), (0,), (None,), (0,)]


def test_an_empty_table_gives_no_rows(con):
    query = f"SELECT privsql_likelihood([i, 1], {HALF}) FROM range(0) s(i)"
    assert con.execute(query).fetchall() == []


# --- wrong calls are told in words -------------------------------------------------


def tally(positions: str = "[0, 1]", q: str = "0.5", size: str = "2") -> str:
    counts = "[45, 55], [45, 55], [45, 55]"
    return f"privsql_tally({counts}, {positions}, {q}, {size}, {HALF})"


def quantile(q: str = "0.5", kind: str = "'cont'", z: str = "2", tallies: str = "") -> str:
    return f"privsql_quantile({tallies or f'[{tally()}]'}, {q}, {kind}, {z})"


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        (
            f"privsql_invert([1, 2, 3], {HALF})",
            "observed has a list of 3 where the factors have 2 states",
        ),
        (f"privsql_invert([1, NULL], {HALF})", "observed must not hold NULL"),
        ("privsql_invert([1, 2], [[[0.5, NULL], [0.5, 0.5]]])", "factors must not hold NULL"),
        ("privsql_invert([1, 2], [NULL])", "factors must not hold NULL"),
        ("privsql_invert([1, 2], [[[0.5, 0.5], [0.5, 0.5]]])", "factor 1 is singular"),
        ("privsql_invert([1, 2], [[[0.5, 0.6], [0.5, 0.5]]])", "does not sum to one"),
        ("privsql_invert([1, 2], [[[1, 0]]])", "square matrix"),
        (f"privsql_likelihood([-1, 2], {HALF})", "not negative"),
        (f"privsql_estimate([1, 2], [1], {HALF})", "function has a list of 1"),
        ("privsql_critical(1.5, 1)", "confidence level"),
        ("privsql_quantile_interval([1], [1, 2], [1], 2)", "equally long"),
        ("privsql_quantile_interval([1, 2], [1, 2], [1], 2)", "equally long"),
        ("privsql_quantile_interval([], [], [], 2)", "empty list"),
        (f"privsql_invert(['nan'::DOUBLE, 1], {HALF})", "observed must be finite"),
        (f"privsql_score_interval('nan'::DOUBLE, 10, {HALF}, 2)", "hits must be finite"),
        (f"privsql_score_interval(50, 10, {HALF}, 2)", "between 0 and the number of rows"),
        (f"privsql_score_interval(5, 10, {HALF}, -2)", "critical value"),
        ("privsql_wald_interval(10, 4, 25, 0)", "critical value"),
        (f"privsql_em([5, 55], {HALF}, -1, 10)", "cannot be negative"),
        ("privsql_score_interval(1, 2, [[[1, 0, 0], [0, 1, 0], [0, 0, 1]]], 2)", "two states"),
        ("privsql_invert([1, 2])", "No function matches"),
        (f"privsql_invert(DATE '2020-01-01', {HALF})", "No function matches"),
        ("privsql_dense([0, 2], [1, 1], 2)", "a state must lie between 0 and size - 1"),
        ("privsql_dense([-1], [1], 2)", "a state must lie between 0 and size - 1"),
        ("privsql_dense([0, 1], [1], 2)", "states and amounts must be equally long"),
        ("privsql_dense([0, NULL], [1, 2], 2)", "states must not hold NULL"),
        (tally(q="1.5"), "between 0 and 1"),
        (tally("[0]"), "positions has a list of 1"),
        (tally("[0, -2]"), "or -1"),
        (tally("[0, 2]"), "below the number of positions"),
        (tally(size="0"), "at least one position"),
        (quantile(kind="'mode'"), "'disc' or 'cont'"),
        (quantile(q="1.5"), "between 0 and 1"),
        (quantile(q="0.4"), "same q"),
        (quantile(z="0"), "critical value"),
        (quantile(tallies=f"[{tally()}, {tally(size='3')}]"), "equally long"),
        (quantile(tallies=f"[struct_update({tally()}, total := [1.0])]"), "equally long"),
        (quantile(tallies=f"[struct_update({tally()}, total := [1.0, NULL])]"), "hold NULL"),
        (quantile(tallies=f"[struct_update({tally()}, total := NULL)]"), "must not be NULL"),
        (quantile(tallies=f"[struct_update({tally()}, certain := NULL)]"), "must not be NULL"),
        ("privsql_wald_interval(1, 2, 'nan'::DOUBLE, 2)", "effective_rows must be numbers"),
        (
            "privsql_fieller_interval(1, 2, 3, 0, 3, 'nan'::DOUBLE, 2)",
            "effective_rows must be numbers",
        ),
        ("privsql_wald_interval('inf'::DOUBLE, 2, 30, 2)", "estimate must be finite"),
        ("privsql_constrain(1, 0, 2, 5, 4)", "ends below where it begins"),
        ("privsql_constrain(1, 0, 2, 'nan'::DOUBLE, 4)", "floor must be numbers"),
        ("privsql_nothing(1)", "does not exist"),
    ],
)
def test_a_wrong_call_fails_with_a_readable_message(con, expression, words):
    assert words in message(con, expression)
    # and the connection goes on
    assert one(con, "1") == 1


def test_matrices_of_equal_entries_and_other_shapes_are_told_apart(con):
    """The same sixteen ones and zeros, as one factor of four cells or as four of two."""
    two, four = [[1, 0], [0, 1]], np.eye(4).tolist()
    for factors, states in (([four], 4), ([two, two, two, two], 16), ([four], 4)):
        y = list(range(states))
        assert one(con, f"privsql_invert({y}, {factors})") == y


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("privsql_dense([0], [1], i)", "size"),
        (tally(q="i / 10"), "q"),
        (tally(size="i + 1"), "size"),
        (quantile(q="i / 10"), "q"),
        (quantile(kind="if(i = 1, 'disc', 'cont')"), "kind"),
    ],
)
def test_what_describes_the_query_must_not_vary(con, expression, name):
    with pytest.raises(duckdb.Error, match=f"{name} must be the same in every row"):
        con.execute(f"SELECT {expression} FROM range(1, 3) s(i)").fetchall()


def test_dense_vectors_from_the_states_that_were_seen(con):
    assert one(con, "privsql_dense([3, 0, 3], [1.5, 2, 1], 5)") == [2, 0, 0, 2.5, 0]
    assert one(con, "privsql_dense([]::BIGINT[], []::DOUBLE[], 3)") == [0, 0, 0]
    assert one(con, "privsql_dense([]::BIGINT[], []::DOUBLE[], 0)") == []
    rows = con.execute(
        "SELECT r, privsql_dense(list(s), list(n), 20) FROM (SELECT i % 3000 AS r,"
        " i * i % 20 AS s, count(*)::DOUBLE AS n FROM range(60000) t(i) GROUP BY ALL) GROUP BY r"
    ).fetchall()
    assert len(rows) == 3000
    for row, vector in rows:
        states = [i * i % 20 for i in range(row, 60000, 3000)]
        assert vector == [states.count(s) for s in range(20)]


def test_inverse_of_a_function_adds_up_to_the_estimate(con):
    assert one(con, f"privsql_inverse([0, 1], {HALF})") == pytest.approx([-0.5, 1.5])
    direct = one(con, f"privsql_estimate([45, 55], [2, 7], {HALF})")
    summed = one(con, f"list_dot_product([45, 55]::DOUBLE[], privsql_inverse([2, 7], {HALF}))")
    assert summed == pytest.approx(direct)


def test_weights_of_one_part_give_its_effective_rows(con):
    call = f"([45, 55], [80, 90], [0, 1], {HALF})"
    parts = one(con, f"privsql_weights{call}")
    assert parts["second"] ** 2 / parts["fourth"] == pytest.approx(
        one(con, f"privsql_effective_rows{call}")
    )
    known = one(con, f"privsql_weights([45, 55], [80, 90], [1, 1], {HALF})")
    assert known == {"second": 0, "fourth": 0}


def test_bounds_of_a_constrained_estimate(con):
    assert one(con, "privsql_constrain(0, -90, -10, 0, 1000)") == {"low": 0, "high": 40}
    assert one(con, "privsql_constrain(3, -2, 12, 0, 'inf'::DOUBLE)") == {"low": 0, "high": 12}
    assert one(con, "privsql_constrain(30, -2, 12, 0, 100)") == {"low": 0, "high": 30}


def test_parameters_of_em_must_not_vary(con):
    query = f"SELECT privsql_em([5, 55], {HALF}, i * 1e-8, 10) FROM range(1, 3) s(i)"
    with pytest.raises(duckdb.Error, match="tolerance must be the same in every row"):
        con.execute(query).fetchall()


# --- registration ------------------------------------------------------------------


def test_registering_again_changes_nothing(con):
    for _ in range(3):
        register(con)
    register(con.cursor())
    assert one(con, f"privsql_invert([45, 55], {HALF})") == [40, 60]


def test_a_fresh_database_is_not_searched_for_functions_of_other_people(monkeypatch):
    monkeypatch.setattr("udfs.register._present", lambda connection: 1 / 0)
    with duckdb.connect() as con:
        register(con, fresh=True)
        assert one(con, f"privsql_invert([45, 55], {HALF})") == [40, 60]
        with pytest.raises(ZeroDivisionError):
            register(con)


def test_cursors_and_other_connections_see_the_functions(tmp_path):
    path = str(tmp_path / "a.duckdb")
    with duckdb.connect(path) as first, duckdb.connect(path) as second:
        register(first)
        assert one(first.cursor(), f"privsql_invert([45, 55], {HALF})") == [40, 60]
        assert one(second, f"privsql_invert([45, 55], {HALF})") == [40, 60]
        register(second)


def test_registrations_vanish_on_reopening_and_come_back(tmp_path):
    path = str(tmp_path / "a.duckdb")
    with duckdb.connect(path) as con:
        register(con)
    with duckdb.connect(path) as con:
        assert "privsql_invert" in message(con, f"privsql_invert([1, 2], {HALF})")
        register(con)
        assert one(con, f"privsql_invert([45, 55], {HALF})") == [40, 60]


def test_a_read_only_database_takes_them_too(tmp_path):
    path = str(tmp_path / "a.duckdb")
    duckdb.connect(path).close()
    with duckdb.connect(path, read_only=True) as con:
        register(con)
        assert one(con, f"privsql_invert([45, 55], {HALF})") == [40, 60]


def test_a_rolled_back_registration_can_be_repeated():
    with duckdb.connect() as con:
        con.begin()
        register(con)
        con.rollback()
        register(con)
        assert one(con, f"privsql_invert([45, 55], {HALF})") == [40, 60]


def test_someone_elses_function_of_the_same_name_is_refused_and_nothing_is_registered():
    with duckdb.connect() as con:
        con.create_function("privsql_em", lambda x: x, ["INTEGER"], "INTEGER")
        with pytest.raises(KernelError, match="another function privsql_em"):
            register(con)
        assert "does not exist" in message(con, f"privsql_invert([1, 2], {HALF})")


def test_a_closed_connection_is_duckdbs_own_error():
    con = duckdb.connect()
    con.close()
    with pytest.raises(duckdb.ConnectionException):
        register(con)


def test_many_threads_register_and_ask_at_once():
    problems: list[BaseException] = []

    def work(connection):
        try:
            register(connection)
            query = f"SELECT sum(privsql_invert([i, 10], {HALF})[1]) FROM range(10000) s(i)"
            assert connection.execute(query).fetchone()[0] == pytest.approx(74942500.0)
        except BaseException as problem:
            problems.append(problem)

    with duckdb.connect() as con:
        threads = [threading.Thread(target=work, args=(con.cursor(),)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []


# --- silence at exit ---------------------------------------------------------------

# Each starts with a function of the user's own that refers to the connection: with that,
# a connection that nobody closed in time is what DuckDB complains about.
SCRIPTS = {
    "never closed": "",
    "used and never closed": "con.execute(ask).fetchall()",
    "closed": "con.close()",
    "an error": "raise SystemExit('ended by an error')",
    "a traceback": "con.execute('SELECT nothing_here').fetchall()",
    "a kernel's error": "con.execute(ask.replace('[45, 55]', '[1]')).fetchall()",
    "a refused registration": "\n".join(
        [
            "other = duckdb.connect()",
            "other.create_function('privsql_em', lambda x: other and x, ['INTEGER'], 'INTEGER')",
            "register(other)",
        ]
    ),
    "cursors left open": "cursors = [con.cursor() for _ in 'abc']; [register(c) for c in cursors]",
    "registered on a cursor": "c = con.cursor(); register(c); del c",
    "a result left open": "left = con.execute(ask)",
    "a relation left open": "left = con.sql(ask)",
    "a cycle": "class Holder: pass\nh = Holder(); h.h, h.con = h, con",
    "default connection": "register(duckdb.default_connection()); duckdb.sql(ask).fetchall()",
    "a thread": (
        "import threading\n"
        "t = threading.Thread(target=lambda: con.cursor().execute(ask).fetchall()); t.start()"
    ),
    "interrupted": "import os, signal; os.kill(os.getpid(), signal.SIGINT)",
}
EXITS = {
    "an error": 1,
    "a traceback": 1,
    "a kernel's error": 1,
    "a refused registration": 1,
    "interrupted": -signal.SIGINT,
}


def script(body: str) -> str:
    head = f"""
    import duckdb
    from udfs.register import register
    con = duckdb.connect()
    register(con)
    ask = "SELECT privsql_invert([45, 55], {HALF})"
    con.create_function("f", lambda x: con and x, ["INTEGER"], "INTEGER")
    con.execute("SELECT f(1)").fetchall()
    """
    return textwrap.dedent(head) + body


# Each takes a process of its own; these few fail where nothing is closed in time.
OFTEN = ("used and never closed", "a traceback", "cursors left open", "a thread", "interrupted")


@pytest.mark.parametrize(
    "name",
    [name if name in OFTEN else pytest.param(name, marks=pytest.mark.soak) for name in SCRIPTS],
)
def test_no_script_ends_with_noise(name):
    done = subprocess.run(
        [sys.executable, "-c", script(SCRIPTS[name])], capture_output=True, text=True, timeout=120
    )
    assert "nanobind" not in done.stderr
    assert "leaked" not in done.stderr
    assert done.returncode == EXITS.get(name, 0)


@pytest.mark.parametrize(
    "name",
    [
        "interrupted",
        *(
            pytest.param(name, marks=pytest.mark.soak)
            for name in ("never closed", "an error", "a kernel's error")
        ),
    ],
)
def test_the_noise_is_real_without_us(name):
    """The scripts above can fail: where nothing closes in time DuckDB does complain."""
    body = "import atexit, udfs.register as r; atexit.unregister(r._close_all)\n" + SCRIPTS[name]
    done = subprocess.run(
        [sys.executable, "-c", script(body)], capture_output=True, text=True, timeout=120
    )
    assert "nanobind: leaked" in done.stderr


def test_ctrl_c_in_the_middle_of_a_kernel_ends_quietly():
    body = textwrap.dedent(
        """
        con.execute("SET threads = 1")  # see udfs.register
        print("ready", flush=True)
        con.execute('''
            SELECT sum(privsql_em([i, 1, 2, 3], [[[0.51, 0.49], [0.49, 0.51]],
                   [[0.51, 0.49], [0.49, 0.51]]], 1e-300, 1000).gap) FROM range(1, 100000) s(i)
        ''').fetchall()
        """
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script(body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(timeout=1)  # it is at work
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert child.returncode != 0
    assert "nanobind" not in errors
    assert "leaked" not in errors
