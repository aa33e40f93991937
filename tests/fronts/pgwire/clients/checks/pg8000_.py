"""pg8000: a driver of Python alone, binary for nothing, parameters bound."""

import io

import pg8000.dbapi
import pg8000.native
from report import ROWS, check, dbapi, failed, summed, variables, version

host, port, user, password, database = variables()
version(pg8000.__version__)


def connect(password=password):
    return pg8000.dbapi.connect(
        user=user, host=host, port=int(port), password=password, database=database
    )


def code(problem):
    return problem.args[0]["C"]


check("password")(lambda: failed(lambda: connect("wrong"), code))
con = dbapi(connect, code)
cursor = con.cursor()


@check("tables")
def _():
    cursor.execute("select table_name from information_schema.tables where table_schema = 'public'")
    return cursor.fetchall()


@check("columns")
def _():
    cursor.execute("select * from sales limit 0")
    return [[column[0], column[1]] for column in cursor.description]


@check("statements")
def _():
    native = pg8000.native.Connection(user, host, database, int(port), password)
    found = native.run("select 1; select 2")
    kinds = native.run("select :a::int + 1, cast(:b as text)", a=1, b="x")
    native.close()
    return [found, kinds]


@check("copy")
def _():
    target = io.BytesIO()
    cursor.execute(f"copy ({ROWS}) to stdout", stream=target)
    return summed(line.split("\t") for line in target.getvalue().decode().splitlines())


@check("cursor")
def _():
    cursor.execute(f"declare nm cursor for {ROWS}")
    found = []
    while True:
        cursor.execute("fetch forward 500 from nm")
        part = cursor.fetchall()
        found += part
        if not part:
            return summed(found)


@check("cancel")
def _():
    con.rollback()
    cursor.execute("set statement_timeout = 300")
    state = failed(lambda: cursor.execute("select pg_sleep(20)"), code)
    con.rollback()
    return state
