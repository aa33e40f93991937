"""pg8000: a driver of Python alone."""

import json
import os

import pg8000.dbapi

found = {}
con = pg8000.dbapi.connect(
    user="ana",
    host=os.environ["WIRE_HOST"],
    port=int(os.environ["WIRE_PORT"]),
    database=os.environ["WIRE_DATABASE"],
)
cur = con.cursor()
cur.execute("select region, count(*) from sales group by 1 order by 1")
found["groups"] = [list(row) for row in cur.fetchall()]
cur.execute("select count(*) from sales where region = %s", ("north",))
found["names"] = [column[0] for column in cur.description]
found["count"] = cur.fetchone()[0]
try:
    cur.execute("select nosuch from sales")
except pg8000.dbapi.DatabaseError as problem:
    found["error"] = problem.args[0]["C"]
con.rollback()
con.close()
print(json.dumps(found))
