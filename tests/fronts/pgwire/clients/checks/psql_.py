"""psql: its backslash commands, variables, formats, \\gdesc, \\copy, cursors, an interrupt."""

import os
import signal
import subprocess
import time

from report import ERRORS, ESTIMATE, ROW, ROWS, SELECT, check, version

version(subprocess.run(["psql", "-V"], capture_output=True, text=True).stdout.split()[2])
COMMAND = ["psql", "-X", "-A", "-t", "-q"]


def said(text, *more, **variables):
    done = subprocess.run(
        [*COMMAND, *more], input=text, capture_output=True, text=True, timeout=60,
        env={**os.environ, **variables},
    )  # fmt: skip
    # Notices qualify answers of a release; PostgreSQL has none.
    problems = [line for line in done.stderr.splitlines() if line and "NOTICE:" not in line]
    return [*done.stdout.splitlines(), *problems]


def state(text):
    return said(f"{text};\n\\echo :LAST_ERROR_SQLSTATE\n")[0]


check("password")(
    lambda: any("password authentication failed" in line for line in said("", PGPASSWORD="wrong"))
)
check("connect")(lambda: said("select current_user, current_database();"))
check("select")(lambda: said(f"{SELECT};"))
check("types")(lambda: said(f"{ROW} \\gdesc\n{ROW};\n"))
check("tables")(lambda: [line.rsplit("|", 1)[0] for line in said("\\dt\n")])
check("columns")(lambda: said("\\d sales\n"))
check("lists")(
    lambda: [
        bool(said(f"{command}\n"))
        for command in ("\\l", "\\dn", "\\du", "\\df count", "\\dT int4", "\\dp")
    ]
)
check("views")(lambda: [said(f"{command}\n") for command in ("\\dv", "\\ds", "\\di", "\\dm")])
check("variables")(
    lambda: said("\\set region north\nselect count(*) from sales where region = :'region';\n")
)
check("bound")(
    lambda: said(
        "prepare one(text, int) as select count(*) from sales where region=$1 and qty=$2;\nexecute one('north', 3);\n"
    )
)
check("in")(
    lambda: said(
        "prepare two(int, int) as select count(*) from sales where qty in ($1,$2);\nexecute two(1, 2);\n"
    )
)
check("nulls")(lambda: said("\\pset null NULL\nselect note from sales where id = 4;\n"))
check("gset")(lambda: said("select count(*) as n from sales \\gset\n\\echo :n\n"))
check("crosstab")(
    lambda: said(
        "select region, active, count(*) from sales group by 1, 2 order by 1, 2 \\crosstabview\n"
    )
)
check("formats")(lambda: [said(f"{SELECT};", *options) for options in (["--csv"], ["-H"], ["-x"])])
check("statements")(lambda: said("select 1\\; select count(*) from sales;\n"))
check("errors")(lambda: [state(text) for text in ERRORS])
check("transaction")(
    lambda: said(
        "begin;\nselect nosuch from sales;\n\\echo :LAST_ERROR_SQLSTATE\nselect 1;\n\\echo :LAST_ERROR_SQLSTATE\nrollback;\nselect 2;\n"
    )[:3]
)
check("cursor")(lambda: len(said(f"\\set FETCH_COUNT 200\n{ROWS};\n")))
check("copy")(
    lambda: [len(said(f"\\copy ({ROWS}) to stdout {form}\n")) for form in ("", "csv header")]
)


@check("cancel")
def _():
    process = subprocess.Popen(
        [*COMMAND, "-v", "VERBOSITY=sqlstate", "-c", "select pg_sleep(20)"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    time.sleep(2)  # until the statement is under way
    process.send_signal(signal.SIGINT)
    return "57014" in process.communicate(timeout=30)[1]


check("estimate")(lambda: said(f"{ESTIMATE};")[0])
