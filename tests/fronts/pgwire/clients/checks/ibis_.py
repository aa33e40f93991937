"""ibis: tables and schemas, expressions compiled to SQL, its own SQL."""

import os

import ibis
from report import ERRORS, ROWS, SELECT, check, failed, version

version(ibis.__version__)
con = ibis.connect(os.environ["WIRE_URL"].replace("postgresql:", "postgres:"))


def said(problem):
    return getattr(problem, "sqlstate", None) or type(problem).__name__


wrong = (
    os.environ["WIRE_URL"]
    .replace("postgresql:", "postgres:")
    .replace(os.environ["PGPASSWORD"], "wrong")
)
check("password")(
    lambda: failed(
        lambda: ibis.connect(wrong), lambda p: "password authentication failed" in str(p)
    )
)
check("tables")(lambda: [con.list_tables(), con.current_database, con.current_catalog])
check("databases")(lambda: "public" in con.list_databases())
sales = con.table("sales")
check("columns")(lambda: {name: str(kind) for name, kind in sales.schema().items()})
check("select")(
    lambda: (
        sales.group_by("region").agg(n=sales.count()).order_by("region").to_pyarrow().to_pylist()
    )
)
check("types")(
    lambda: (
        sales.filter(sales.id == 7)
        .select("id", "amount", "price", "day", "ts", "active", "note")
        .to_pyarrow()
        .to_pylist()
    )
)
check("uuid")(lambda: str(sales.filter(sales.id == 7).member.execute()[0]))
check("in")(lambda: sales.filter(sales.qty.isin([1, 2])).count().execute())
check("nulls")(lambda: [sales.note.isnull().sum().execute(), sales.note.count().execute()])
check("parameters")(
    lambda: [
        sales.filter(sales.day >= ibis.date("2024-01-08")).count().execute(),
        sales.filter(sales.ts > ibis.timestamp("2024-01-01 12:30:00")).count().execute(),
        sales.filter(sales.price > 7.25).count().execute(),
        sales.filter(sales.note.like("n%")).count().execute(),
    ]
)
check("expressions")(
    lambda: sales.group_by(month=sales.ts.truncate("M"))
    .agg(total=sales.amount.sum(), last=sales.day.max(), kinds=sales.region.nunique())
    .to_pyarrow().to_pylist()
)  # fmt: skip
check("buckets")(
    lambda: sales.mutate(big=(sales.amount > 50).ifelse("big", "small"))
    .group_by("big").agg(n=ibis._.count()).order_by("big").to_pyarrow().to_pylist()
)  # fmt: skip
check("sql")(lambda: [list(row) for row in con.raw_sql(SELECT).fetchall()])
check("rows")(lambda: len(con.raw_sql(ROWS).fetchall()))
check("batches")(
    lambda: sum(part.num_rows for part in sales.select("id").to_pyarrow_batches(chunk_size=500))
)
check("errors")(lambda: [failed(lambda text=text: con.raw_sql(text), said) for text in ERRORS[:2]])
check("estimate")(lambda: float(sales.filter(sales.illness == "flu").count().execute()))
con.disconnect()
