"""ADBC: Arrow by COPY BINARY, objects of the catalog, schemas of tables."""

import os

import adbc_driver_postgresql
import adbc_driver_postgresql.dbapi as adbc
from report import ERRORS, ESTIMATE, ROW, ROWS, SELECT, check, failed, variables, version

version(adbc_driver_postgresql.__version__)
URL = os.environ["WIRE_URL"]


def code(problem):
    state = getattr(problem, "sqlstate", None)
    return state or "password authentication failed" in str(problem)


check("password")(lambda: failed(lambda: adbc.connect(URL.replace(variables()[3], "wrong")), code))
con = adbc.connect(URL)
cursor = con.cursor()


def arrow(text, values=None):
    cursor.execute(text, values)
    return cursor.fetch_arrow_table()


def lists(table):
    return [list(row.values()) for row in table.to_pylist()]


check("connect")(lambda: lists(arrow("select current_user, current_database()")))
check("select")(lambda: lists(arrow(SELECT)))
check("types")(lambda: [str(arrow(ROW).schema.remove_metadata()), lists(arrow(ROW))])
check("in")(lambda: lists(arrow("select count(*) from sales where qty in ($1,$2)", (1, 2))))
check("parameters")(
    lambda: {
        name: lists(arrow(f"select count(*) from sales where {name} = $1", (value,)))
        for name, value in {"region": "north", "qty": 3, "amount": 7.5, "active": True}.items()
    }
)
check("any")(lambda: lists(arrow("select count(*) from sales where qty = any($1)", ([1, 2],))))
check("nulls")(lambda: lists(arrow("select id, note from sales where id in (4, 5) order by id")))


@check("tables")
def _():
    found = con.adbc_get_objects(depth="tables", db_schema_filter="public", catalog_filter="sales")
    return found.read_all().to_pylist()


@check("columns")
def _():
    found = con.adbc_get_objects(
        depth="all", db_schema_filter="public", table_name_filter="sales", catalog_filter="sales"
    )
    schemas = found.read_all().to_pylist()[0]["catalog_db_schemas"]
    columns = schemas[0]["db_schema_tables"][0]["table_columns"]
    # Its statement has no ORDER BY.
    return sorted([c["ordinal_position"], c["column_name"]] for c in columns)


check("schema")(
    lambda: str(con.adbc_get_table_schema("sales", db_schema_filter="public").remove_metadata())
)
check("table types")(lambda: sorted(con.adbc_get_table_types()))
check("cursor")(lambda: [arrow(ROWS).num_rows, sum(arrow(ROWS)["id"].to_pylist())])


def state(text):
    try:
        return failed(lambda: arrow(text), code)
    finally:
        con.rollback()


check("errors")(lambda: [state(text) for text in ERRORS])


@check("transaction")
def _():
    inside = failed(lambda: arrow("select nosuch from sales"), code)
    aborted = failed(lambda: arrow("select 1"), code)
    con.rollback()
    return [inside, aborted, lists(arrow("select 1"))]


check("estimate")(lambda: lists(arrow(ESTIMATE))[0][0])
cursor.close()
con.close()
