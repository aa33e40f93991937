"""psycopg 3: bound parameters, types, server-side cursors, pipelines, COPY, errors."""

import json
import os

import psycopg

found = {}
with psycopg.connect(os.environ["WIRE_DSN"], autocommit=True) as con:
    found["groups"] = con.execute(
        "select region, count(*) from sales group by 1 order by 1"
    ).fetchall()
    cursor = con.execute("select count(*) from sales where region = %s", ["north"])
    found["count"] = cursor.fetchone()[0]
    found["names"] = [column.name for column in cursor.description]
    for binary in (False, True):
        with con.cursor(binary=binary) as cur:
            cur.execute("select count(*), max(ts) from sales where qty >= %s", [0])
            found[f"binary {binary}"] = [str(each) for each in cur.fetchone()]
    with con.transaction(), con.cursor(name="nm") as cur:
        cur.itersize = 2
        cur.execute("select qty, count(*) from sales group by 1 order by 1")
        found["cursor"] = len(cur.fetchall())
    with con.pipeline():
        first = con.execute("select 1")
        second = con.execute("select count(*) from sales")
        found["pipeline"] = [first.fetchone()[0], second.fetchone()[0]]
    with con.cursor().copy(
        "copy (select region, count(*) from sales group by 1 order by 1) to stdout"
    ) as copy:
        found["copy"] = [list(row) for row in copy.rows()]
    try:
        con.execute("select nosuch from sales")
    except psycopg.Error as problem:
        found["error"] = problem.sqlstate
    try:
        con.execute("select * from sales")
    except psycopg.Error as problem:
        found["rows"] = problem.sqlstate
print(json.dumps(found))
