"""polars: frames through connectorx, ADBC and SQLAlchemy."""

import os

import polars
import sqlalchemy as sa
from report import ERRORS, ESTIMATE, ROW, ROWS, SELECT, check, failed, version

version(polars.__version__)
URL = os.environ["WIRE_URL"]
engine = sa.create_engine(URL.replace("postgresql:", "postgresql+psycopg:"))


def shown(frame):
    return [[str(kind) for kind in frame.dtypes], frame.columns, frame.rows()]


for name in ("connectorx", "adbc"):

    def read(text, name=name):
        return polars.read_database_uri(text, URL, engine=name)

    check(f"select, {name}")(lambda read=read: read(SELECT).rows())
    check(f"types, {name}")(lambda read=read: shown(read(ROW)))
    check(f"rows, {name}")(lambda read=read: [read(ROWS).height, read(ROWS)["id"].sum()])
    check(f"errors, {name}")(
        lambda read=read: [
            failed(lambda text=text: read(text), lambda _: "error") for text in ERRORS
        ]
    )
    check(f"estimate, {name}")(lambda read=read: read(ESTIMATE).item())
check("select")(lambda: polars.read_database(SELECT, engine).rows())
check("types")(lambda: shown(polars.read_database(ROW, engine)))
check("parameters")(
    lambda: polars.read_database(
        sa.text("select count(*) from sales where qty in (:a,:b)"),
        engine, execute_options={"parameters": {"a": 1, "b": 2}},
    ).rows()
)  # fmt: skip
check("batches")(
    lambda: [
        part.height
        for part in polars.read_database(ROWS, engine, iter_batches=True, batch_size=1000)
    ]
)
engine.dispose()
