"""pyodbc with psqlODBC: SQLTables, SQLColumns, bound parameters, several results, timeout."""

import pyodbc
from report import ROWS, SELECT, VALUES, check, dbapi, failed, summed, variables, version

host, port, user, password, database = variables()
HEAD = f"Driver={{PostgreSQL Unicode}};Server={host};Port={port};Database={database};Uid={user}"


def connect(password=password, more=""):
    return pyodbc.connect(f"{HEAD};Pwd={password};{more}")


def code(problem):
    return problem.args[0]


check("password")(lambda: failed(lambda: connect("wrong"), code))
first = connect()
version(f"{pyodbc.version}, psqlODBC {first.getinfo(pyodbc.SQL_DRIVER_VER)}")
first.close()
# An ODBC parameter has no uuid and no array of its own.
values = {**VALUES, "member": str(VALUES["member"])}
con = dbapi(connect, code, mark="?", array=None, values=values)
cursor = con.cursor()
check("tables")(lambda: [list(row)[2:4] for row in cursor.tables(schema="public")])
check("columns")(lambda: [list(row)[2:11] for row in cursor.columns(table="sales")])
check("keys")(
    lambda: [
        len(cursor.primaryKeys("sales").fetchall()),
        len(cursor.statistics("sales").fetchall()),
    ]
)
check("types of the server")(lambda: sorted(row[0] for row in cursor.getTypeInfo())[:40])


@check("description")
def _():
    cursor.execute("select * from sales where id = 7")
    return [[c[0], c[1].__name__, c[3], c[4], c[5], c[6]] for c in cursor.description]


@check("statements")
def _():
    cursor.execute("select 1; select count(*) from sales")
    found = [cursor.fetchone()[0]]
    while cursor.nextset():
        found.append(cursor.fetchone()[0])
    return found


@check("cursor")
def _():
    cursor.execute(ROWS)
    return summed(iter(cursor.fetchone, None))


@check("declare and fetch")
def _():
    with connect(more="UseDeclareFetch=1;Fetch=200") as other:
        return summed(other.cursor().execute(ROWS))


@check("server-side prepare")
def _():
    with connect(more="UseServerSidePrepare=1") as other:
        asked = other.cursor()
        text = "select count(*) from sales where region = ? and qty in (?,?)"
        return [asked.execute(text, region, 1, 2).fetchval() for region in ("north", "south")]


@check("cancel")
def _():
    con.rollback()
    cursor.execute("set statement_timeout = 300")
    state = failed(lambda: cursor.execute("select pg_sleep(20)"), code)
    con.rollback()
    return state


check("again")(lambda: [list(row) for row in cursor.execute(SELECT)])
