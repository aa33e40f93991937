"""dbt: debug, catalog of sources, show, inline queries, tests of sources."""

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

from report import check, variables, version

host, port, user, password, database = variables()
DBT = str(Path(os.environ["CHECKS_HOME"]) / "bin" / "dbt")
PROFILE = {
    "checks": {
        "target": "wire",
        "outputs": {
            "wire": {
                "type": "postgres", "host": host, "port": int(port), "user": user,
                "password": password, "dbname": database, "schema": "public", "threads": 1,
            }
        },
    }
}  # fmt: skip
FILES = {
    "profiles.yml": json.dumps(PROFILE),
    "dbt_project.yml": json.dumps({"name": "checks", "version": "1.0", "profile": "checks"}),
    "models/sources.yml": json.dumps(
        {
            "version": 2,
            "sources": [
                {
                    "name": "wire", "schema": "public",
                    "tables": [
                        {
                            "name": "sales",
                            "columns": [
                                {"name": "region", "tests": ["not_null", {"accepted_values": {"values": ["north", "south"]}}]},
                                {"name": "qty", "tests": ["not_null"]},
                            ],
                        }
                    ],
                }
            ],
        }
    ),
    "models/regions.sql": "select region, count(*) as n from {{ source('wire', 'sales') }} group by region",
}  # fmt: skip
RELATIONS = """select
'{{ adapter.get_relation(database=target.database, schema='public', identifier='sales') }}' as relation,
'{{ adapter.get_columns_in_relation(source('wire', 'sales')) | map(attribute='data_type') | join(' ') }}' as columns,
'{{ adapter.check_schema_exists(target.database, 'public') }}' as known"""


def ran(folder, *words):
    done = subprocess.run(
        [DBT, "--no-use-colors", "--quiet", *words, "--project-dir", folder, "--profiles-dir", folder],
        capture_output=True, text=True, timeout=150, cwd=folder,
        env={**os.environ, "DBT_SEND_ANONYMOUS_USAGE_STATS": "0", "DO_NOT_TRACK": "1"},
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def shown(folder, text, *more):
    code, said = ran(
        folder, "show", *more, *([] if more else ["--inline", text]), "--output", "json"
    )
    found = re.search(r"\{.*\}", said, re.DOTALL)
    if code or not found:
        raise RuntimeError(said[-600:])
    return json.loads(found[0])["show"]


with tempfile.TemporaryDirectory() as folder:
    for name, text in FILES.items():
        path = Path(folder) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    done = subprocess.run([DBT, "--version"], capture_output=True, text=True, cwd=folder)
    version(re.search(r"installed: *(\S+)", done.stdout + done.stderr)[1])
    check("connect")(lambda: ran(folder, "debug", "--connection")[0])
    check("select")(
        lambda: shown(
            folder,
            "select region, count(*) as n from {{ source('wire', 'sales') }} group by 1 order by 1",
        )
    )
    check("relations")(lambda: shown(folder, RELATIONS))

    @check("catalog")
    def _():
        code, said = ran(folder, "docs", "generate", "--no-compile")
        if code:
            raise RuntimeError(said[-600:])
        found = json.loads((Path(folder) / "target" / "catalog.json").read_text())
        (table,) = found["sources"].values()
        return [[c["name"], c["type"], c["index"]] for c in table["columns"].values()]

    @check("tests of sources")
    def _():
        ran(folder, "test", "--select", "source:*")
        results = json.loads((Path(folder) / "target" / "run_results.json").read_text())["results"]
        return sorted(
            [each["unique_id"].split(".")[2], each["status"], each["message"]] for each in results
        )

    check("error")(lambda: ran(folder, "show", "--inline", "select nosuch from public.sales")[0])
    check("estimate")(
        lambda: shown(
            folder, "select count(*) as n from {{ source('wire', 'sales') }} where illness = 'flu'"
        )[0]["n"]
    )
