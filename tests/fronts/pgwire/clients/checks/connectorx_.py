"""connectorx: frames by COPY BINARY, by CSV and by cursors, and in partitions."""

import os

import connectorx
from report import ERRORS, ESTIMATE, ROW, ROWS, SELECT, check, failed, version

version(connectorx.__version__)
URL = os.environ["WIRE_URL"]


def frame(text, **more):
    return connectorx.read_sql(URL, text, **more)


check("select")(lambda: frame(SELECT).to_dict("list"))
for protocol in ("binary", "csv", "cursor"):

    @check(f"types, {protocol}")
    def _(protocol=protocol):
        found = frame(ROW, protocol=protocol)
        return [[str(kind) for kind in found.dtypes], found.astype(str).to_dict("list")]

    @check(f"rows, {protocol}")
    def _(protocol=protocol):
        found = frame(ROWS, protocol=protocol)
        return [len(found), int(found["id"].sum())]


check("partitions")(lambda: len(frame(ROWS.split(" order")[0], partition_on="id", partition_num=3)))
check("arrow")(lambda: str(frame(ROWS, return_type="arrow").schema))
check("nulls")(lambda: frame("select id, note from sales where id = 4").astype(str).to_dict("list"))
check("failures")(
    lambda: [failed(lambda text=text: frame(text), lambda _: "error") for text in ERRORS]
)
check("estimate")(lambda: float(frame(ESTIMATE).iloc[0, 0]))
