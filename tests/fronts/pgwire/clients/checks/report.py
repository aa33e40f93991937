"""What every program prints: one JSON line for each check, and the checks that DB-API drivers share."""

import datetime
import decimal
import json
import os
import uuid

SELECT = "select region, count(*) from sales group by region order by region"
ROW = "select id, amount, price, day, ts, member, active, note, region from sales where id = 7"
ROWS = "select id, region, amount, day from sales order by id"
ESTIMATE = "select count(*) from sales where illness = 'flu'"
ERRORS = ["select nosuch from sales", "select 1 from nosuch", "selec 1", "select nosuch(1)"]
ERRORS += ["select 'x'::int"]
# One value of every common type, with the column that has it.
VALUES = {
    "region": "north",
    "qty": 3,
    "amount": 7.5,
    "price": decimal.Decimal("7.25"),
    "day": datetime.date(2024, 1, 8),
    "ts": datetime.datetime(2024, 1, 1, 12, 7),
    "member": uuid.UUID("00000000-0000-4000-8000-000000000007"),
    "active": True,
}


def check(name):
    """Runs a function and prints what it gives, or how it failed."""

    def run(function):
        try:
            line = {"check": name, "value": function()}
        except Exception as problem:  # whatever a driver raises is the result of the check
            line = {"check": name, "error": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(line, default=str), flush=True)
        return function

    return run


def version(text):
    print(json.dumps({"version": str(text)}), flush=True)


def typed(row):
    """Values of a row with their Python types."""
    return [[type(value).__name__, str(value)] for value in row]


def variables():
    """Host, port, user, password and database."""
    names = ("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE")
    return [os.environ[name] for name in names]


def failed(action, code):
    """The SQLSTATE of what an action raises."""
    try:
        action()
    except Exception as problem:
        return code(problem)
    return "no error"


def dbapi(connect, code, mark="%s", array="= any(%s)", values=VALUES):
    """The checks of a driver with DB-API's cursors; ``code`` takes the SQLSTATE out of an error."""
    con = connect()
    cursor = con.cursor()

    def rows(text, *values):
        cursor.execute(text, *([list(values)] if values else []))
        return [list(row) for row in cursor.fetchall()]

    def state(text):
        try:
            return failed(lambda: rows(text), code)
        finally:
            con.rollback()

    check("connect")(lambda: rows("select current_user, current_database()")[0])
    check("select")(lambda: rows(SELECT))
    check("types")(lambda: [typed(rows(ROW)[0]), [column[0] for column in cursor.description]])
    check("parameters")(
        lambda: {
            name: rows(f"select count(*) from sales where {name} = {mark}", value)[0][0]
            for name, value in values.items()
        }
    )
    two = f"select count(*) from sales where qty in ({mark},{mark})"
    check("in")(lambda: rows(two, 1, 2)[0][0])
    if array:
        check("any")(
            lambda: [
                rows(f"select count(*) from sales where qty {array}", [1, 2])[0][0],
                rows(f"select count(*) from sales where region {array}", ["north"])[0][0],
            ]
        )
    check("nulls")(
        lambda: [
            rows("select note from sales where id = 4")[0],
            rows("select count(note), count(*) from sales")[0],
            rows(f"select count(*) from sales where note = {mark}", None)[0],
        ]
    )
    check("errors")(lambda: [state(text) for text in ERRORS])
    check("transaction")(lambda: _transaction(con, rows, code))
    check("estimate")(lambda: rows(ESTIMATE)[0][0])
    con.rollback()
    return con


def _transaction(con, rows, code):
    con.rollback()
    before = rows(SELECT)
    inside = failed(lambda: rows("select nosuch from sales"), code)
    aborted = failed(lambda: rows("select 1"), code)
    con.rollback()
    after = rows(SELECT)
    con.commit()
    return [before == after, inside, aborted]


def summed(rows):
    """How many rows, and what the first column adds up to."""
    rows = list(rows)
    return [len(rows), sum(int(row[0]) for row in rows)]
