"""asyncpg: binary everywhere, prepared statements, cursors, introspection of types, reset."""

import asyncio
import json
import os

import asyncpg


async def main() -> None:
    found = {}
    con = await asyncpg.connect(os.environ["WIRE_URL"])
    rows = await con.fetch("select region, count(*) from sales group by 1 order by 1")
    found["groups"] = [list(row.values()) for row in rows]
    statement = await con.prepare("select count(*) from sales where region = $1")
    found["names"] = [attribute.name for attribute in statement.get_attributes()]
    found["count"] = await statement.fetchval("north")
    async with con.transaction():
        cursor = con.cursor("select qty, count(*) from sales group by 1 order by 1", prefetch=2)
        found["cursor"] = len([row async for row in cursor])
    found["array"] = await con.fetchval("select array[1,2]")
    found["types"] = await con.fetchval(
        "select typname from pg_type where oid = any($1::oid[])", [23]
    )
    await con._introspect_types([1007, 2205], 10)
    await con.reset()
    try:
        await con.fetch("select nosuch from sales")
    except asyncpg.PostgresError as problem:
        found["error"] = problem.sqlstate
    await con.close()
    print(json.dumps(found))


asyncio.run(main())
