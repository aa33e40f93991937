"""psycopg2: client-side parameters, named cursors, COPY, transactions."""

import io
import json
import os

import psycopg2

found = {}
con = psycopg2.connect(os.environ["WIRE_DSN"])
cur = con.cursor()
cur.execute("select region, count(*) from sales group by 1 order by 1")
found["groups"] = cur.fetchall()
cur.execute("select count(*) from sales where region = %s", ["north"])
found["names"] = [column.name for column in cur.description]
found["count"] = cur.fetchone()[0]
named = con.cursor("nm")
named.itersize = 2
named.execute("select qty, count(*) from sales group by 1 order by 1")
found["cursor"] = len(list(named))
target = io.StringIO()
cur.copy_expert("copy (select region, count(*) from sales group by 1 order by 1) to stdout", target)
found["copy"] = [line.split("\t") for line in target.getvalue().splitlines()]
try:
    cur.execute("select nosuch from sales")
except psycopg2.Error as problem:
    found["error"] = problem.pgcode
con.rollback()
con.close()
print(json.dumps(found))
