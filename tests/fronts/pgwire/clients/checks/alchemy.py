"""SQLAlchemy 2 over psycopg: reflection, expressions, streams, transactions, pandas."""

import os

import pandas
import sqlalchemy as sa
from report import (
    ERRORS,
    ESTIMATE,
    ROW,
    ROWS,
    SELECT,
    VALUES,
    check,
    failed,
    summed,
    typed,
    version,
)

version(sa.__version__)
URL = os.environ["WIRE_URL"].replace("postgresql:", "postgresql+psycopg:")
engine = sa.create_engine(URL)


def code(problem):
    return problem.orig.sqlstate or "password authentication failed" in str(problem)


def rows(text, **values):
    with engine.connect() as con:
        return [list(row) for row in con.execute(sa.text(text), values)]


wrong = sa.create_engine(URL.replace(os.environ["PGPASSWORD"], "wrong"))
check("password")(lambda: failed(wrong.connect, code))
check("connect")(lambda: rows("select current_user, current_database()"))
check("select")(lambda: rows(SELECT))
check("types")(lambda: typed(rows(ROW)[0]))
inspector = sa.inspect(engine)
table = sa.Table("sales", sa.MetaData())


@check("tables")
def _():
    return [inspector.get_table_names(), inspector.get_view_names(), inspector.has_table("nosuch")]


@check("columns")
def _():
    table.metadata.reflect(engine)
    found = [[c["name"], str(c["type"]), c["nullable"]] for c in inspector.get_columns("sales")]
    keys = [inspector.get_foreign_keys("sales"), inspector.get_indexes("sales")]
    return [found, keys, inspector.get_pk_constraint("sales")["constrained_columns"]]


sales = sa.Table("sales", sa.MetaData(), autoload_with=engine)


def scalar(statement):
    with engine.connect() as con:
        return con.execute(statement).scalar()


@check("parameters")
def _():
    asked = sa.select(sa.func.count()).select_from(sales)
    return {name: scalar(asked.where(sales.c[name] == v)) for name, v in VALUES.items()}


counted = sa.select(sa.func.count()).select_from(sales)
check("in")(lambda: scalar(counted.where(sales.c.qty.in_([1, 2]))))
check("any")(
    lambda: scalar(
        counted.where(sales.c.qty == sa.any_(sa.literal([1, 2], sa.ARRAY(sa.BigInteger))))
    )
)
check("nulls")(
    lambda: [
        scalar(counted.where(sales.c.note.is_(None))),
        rows("select note from sales where id = 4"),
    ]
)


@check("expressions")
def _():
    month = sa.func.date_trunc("month", sales.c.ts)
    cheap = sa.case((sales.c.price < 10, "cheap"), else_="dear")
    asked = sa.select(
        month, cheap, sa.func.sum(sales.c.price), sa.cast(sa.func.avg(sales.c.amount), sa.Float)
    )
    with engine.connect() as con:
        return [
            list(row) for row in con.execute(asked.group_by(month, cheap).order_by(month, cheap))
        ]


check("errors")(lambda: [failed(lambda text=text: rows(text), code) for text in ERRORS])


@check("transaction")
def _():
    with engine.connect() as con:
        inside = failed(lambda: con.execute(sa.text("select nosuch from sales")), code)
        aborted = failed(lambda: con.execute(sa.text("select 1")), code)
        con.rollback()
        with con.begin_nested():
            again = con.execute(counted).scalar()
        return [inside, aborted, again]


@check("cursor")
def _():
    with engine.connect().execution_options(stream_results=True, max_row_buffer=200) as con:
        return summed(con.execute(sa.text(ROWS)))


@check("pandas")
def _():
    frame = pandas.read_sql(SELECT, engine)
    chunks = [len(part) for part in pandas.read_sql(ROWS, engine, chunksize=1000)]
    return [frame.to_dict("list"), [str(kind) for kind in frame.dtypes], chunks]


check("estimate")(lambda: scalar(sa.text(ESTIMATE)))
engine.dispose()
