"""psycopg 3: bound parameters, binary, server-side cursors, pipelines, COPY."""

import psycopg
from report import ESTIMATE, ROW, ROWS, check, dbapi, failed, summed, typed, version

version(psycopg.__version__)


def code(problem):
    return problem.sqlstate


@check("password")
def _():
    try:
        psycopg.connect(password="wrong")
    except psycopg.OperationalError as problem:
        return "password authentication failed" in str(problem)


con = dbapi(psycopg.connect, code)


@check("tables")
def _():
    text = "select table_schema, table_name, table_type from information_schema.tables"
    return con.execute(text + " where table_schema = 'public'").fetchall()


@check("columns")
def _():
    described = con.execute("select * from sales limit 0").description
    return [[c.name, c.type_display, c.type_code, c.precision, c.scale] for c in described]


@check("binary")
def _():
    with con.cursor(binary=True) as cursor:
        cursor.execute(ROW)
        return typed(cursor.fetchone())


@check("statements")
def _():
    cursor = con.execute("select 1; select 2; select count(*) from sales")
    found = [cursor.fetchone()[0]]
    while cursor.nextset():
        found.append(cursor.fetchone()[0])
    return found


@check("pipeline")
def _():
    with con.pipeline():
        asked = [con.execute("select %s::int", [n]) for n in range(3)]
        return [each.fetchone()[0] for each in asked]


@check("cursor")
def _():
    with con.transaction(), con.cursor(name="nm") as cursor:
        cursor.itersize = 100
        cursor.execute(ROWS)
        return summed(cursor)


@check("copy")
def _():
    found = []
    for form in ("text", "csv", "binary"):
        with con.cursor().copy(f"copy ({ROWS}) to stdout (format {form})") as copy:
            if form == "binary":
                copy.set_types(["int8", "text", "float8", "date"])
            if form == "csv":
                found.append(sum(bytes(data).count(b"\n") for data in copy))
            else:
                found.append(summed(copy.rows()))
    return found


@check("cancel")
def _():
    con.rollback()
    con.execute("set statement_timeout = 300")
    state = failed(lambda: con.execute("select pg_sleep(20)"), code)
    con.rollback()
    return state


@check("prepared")
def _():
    text = "select count(*) from sales where region = %s and qty < %s"
    return [con.execute(text, ["north", n], prepare=True).fetchone()[0] for n in range(4)]


check("estimate, binary")(lambda: con.cursor(binary=True).execute(ESTIMATE).fetchone()[0])
