"""psycopg2: client-side parameters, named cursors, COPY."""

import io

import psycopg2
import psycopg2.extras
from report import ROWS, check, dbapi, failed, summed, version

version(psycopg2.__version__.split()[0])
psycopg2.extras.register_uuid()


def code(problem):
    return problem.pgcode


@check("password")
def _():
    try:
        psycopg2.connect("", password="wrong")
    except psycopg2.OperationalError as problem:
        return "password authentication failed" in str(problem)


con = dbapi(lambda: psycopg2.connect(""), code)
cursor = con.cursor()


@check("tables")
def _():
    cursor.execute(
        "select tablename, tableowner = 'nobody' from pg_tables where schemaname = 'public'"
    )
    return cursor.fetchall()


@check("columns")
def _():
    cursor.execute("select * from sales limit 0")
    return [list(column) for column in cursor.description]


@check("table of a column")
def _():
    cursor.execute("select qty, amount + 1 from sales limit 0")
    first, second = cursor.description
    cursor.execute("select %s = 'sales'::regclass::oid", [first.table_oid])
    return [cursor.fetchone()[0], first.table_column, second.table_oid, second.table_column]


@check("statements")
def _():
    cursor.execute("select 1; select count(*) from sales")
    return cursor.fetchall()


@check("cursor")
def _():
    with con.cursor("nm") as named:
        named.itersize = 100
        named.execute(ROWS)
        return summed(named)


@check("copy")
def _():
    target = io.StringIO()
    cursor.copy_expert(f"copy ({ROWS}) to stdout", target)
    return summed(line.split("\t") for line in target.getvalue().splitlines())


@check("cancel")
def _():
    con.rollback()
    cursor.execute("set statement_timeout = 300")
    state = failed(lambda: cursor.execute("select pg_sleep(20)"), code)
    con.rollback()
    return state


@check("rows by name")
def _():
    with con.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as named:
        named.execute("select region, max(ts) as last from sales group by 1 order by 1")
        return [dict(row) for row in named.fetchall()]
