"""asyncpg: binary everywhere, prepared statements, cursors, COPY, introspection of types."""

import asyncio
import io
import json

import asyncpg
from report import (
    ERRORS,
    ESTIMATE,
    ROW,
    ROWS,
    SELECT,
    VALUES,
    summed,
    typed,
    version,
)  # fmt: skip

version(asyncpg.__version__)


async def check(name, action):
    try:
        line = {"check": name, "value": await action()}
    except Exception as problem:
        line = {"check": name, "error": f"{type(problem).__name__}: {problem}"}
    print(json.dumps(line, default=str), flush=True)


async def state(action):
    try:
        await action
    except asyncpg.PostgresError as problem:
        return problem.sqlstate
    except TimeoutError:
        return "timeout"
    return "no error"


async def main():
    con = await asyncpg.connect()
    lists = lambda rows: [list(row.values()) for row in rows]  # noqa: E731

    async def types():
        row = await con.fetchrow(ROW)
        return [typed(row.values()), list(row.keys())]

    async def parameters():
        text = "select count(*) from sales where {} = $1"
        return {name: await con.fetchval(text.format(name), v) for name, v in VALUES.items()}

    async def columns():
        statement = await con.prepare("select * from sales")
        return [[a.name, a.type.name, a.type.oid] for a in statement.get_attributes()]

    async def parameter_types():
        text = "select count(*) from sales where qty=$1 and day<$2 and member=$3 and price>$4"
        statement = await con.prepare(text)
        return [kind.name for kind in statement.get_parameters()]

    async def arrays():
        some = "select count(*) from sales where qty = any($1)"
        none = "select count(*) from sales where region <> all($1)"
        return [await con.fetchval(some, [1, 2]), await con.fetchval(none, ["north"])]

    async def transaction():
        async with con.transaction():
            before = lists(await con.fetch(SELECT))
        try:
            async with con.transaction():
                await con.fetch("select nosuch from sales")
        except asyncpg.PostgresError as problem:
            return [before == lists(await con.fetch(SELECT)), problem.sqlstate]

    async def cursor():
        async with con.transaction():
            return summed([row async for row in con.cursor(ROWS, prefetch=100)])

    async def copy():
        target = io.BytesIO()
        said = await con.copy_from_query(ROWS, output=target, format="csv")
        return [said, target.getvalue().count(b"\n")]

    async def introspection():
        kinds = await con._introspect_types([1007, 2205], 10)
        await con.reset()
        return len(kinds) > 0

    async def statements():
        return await con.execute("select 1; select count(*) from sales")

    async def nulls():
        text = "select note from sales where id = 4"
        return [await con.fetchval(text), await con.fetchval("select count(note) from sales")]

    await check("password", lambda: state(asyncpg.connect(password="wrong")))
    await check("connect", lambda: con.fetchval("select current_user"))
    await check("select", lambda: _listed(con, SELECT))
    await check("types", types)
    await check("parameters", parameters)
    await check("parameter types", parameter_types)
    await check("in", lambda: con.fetchval("select count(*) from sales where qty in ($1,$2)", 1, 2))
    await check("any", arrays)
    await check("nulls", nulls)
    await check(
        "tables",
        lambda: _listed(con, "select tablename from pg_tables where schemaname = 'public'"),
    )
    await check("columns", columns)
    await check("statements", statements)
    await check("introspection", introspection)
    await check("errors", lambda: _all(state(con.fetch(text)) for text in ERRORS))
    await check("transaction", transaction)
    await check("cursor", cursor)
    await check("copy", copy)
    await check("cancel", lambda: state(con.fetch("select pg_sleep(20)", timeout=0.5)))
    await check("after the cancel", lambda: con.fetchval("select count(*) from sales"))
    await check("estimate", lambda: con.fetchval(ESTIMATE))
    await con.close()


async def _listed(con, text):
    return [list(row.values()) for row in await con.fetch(text)]


async def _all(each):
    return [await one for one in each]


asyncio.run(main())
