"""SQLAlchemy 2 with a driver: reflection, expressions, pandas."""

import json
import os
import sys

import pandas
import sqlalchemy as sa

found = {}
engine = sa.create_engine(os.environ["WIRE_URL"].replace("postgresql", f"postgresql+{sys.argv[1]}"))
inspector = sa.inspect(engine)
found["tables"] = inspector.get_table_names()
found["views"] = inspector.get_view_names()
found["schemas"] = inspector.get_schema_names()
found["columns"] = [[c["name"], str(c["type"])] for c in inspector.get_columns("sales")]
found["comments"] = [c["comment"].split(":")[0] for c in inspector.get_columns("sales")]
found["keys"] = [inspector.get_pk_constraint("sales")["constrained_columns"]]
found["keys"] += [inspector.get_foreign_keys("sales"), inspector.get_indexes("sales")]
table = sa.Table("sales", sa.MetaData(), autoload_with=engine)
with engine.connect() as con:
    counted = sa.select(table.c.region, sa.func.count()).group_by(table.c.region)
    found["groups"] = [list(row) for row in con.execute(counted.order_by(table.c.region))]
    asked = sa.text("select count(*) from sales where region = :region")
    found["count"] = con.execute(asked, {"region": "north"}).scalar()
    frame = pandas.read_sql("select region, count(*) n from sales group by 1 order by 1", con)
    found["frame"] = frame.to_dict("list")
print(json.dumps(found))
