"""pgbench: scripts of its own over each protocol, several clients, latencies by statement."""

import re
import subprocess
import tempfile
from pathlib import Path

from report import check, version

BENCH = "/usr/lib/postgresql/15/bin/pgbench"
version(subprocess.run([BENCH, "-V"], capture_output=True, text=True).stdout.split()[2])
SCRIPT = """\\set qty random(0, 6)
begin;
select count(*) from sales where qty = :qty and region in ('north', 'south');
select region, count(*) as n from sales where qty = :qty group by region order by region limit 1 \\gset
select :n + 1;
end;
"""


def ran(*options):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.sql"
        path.write_text(SCRIPT)
        done = subprocess.run(
            [BENCH, "-n", "-f", str(path), *options], capture_output=True, text=True, timeout=150
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-400:])
    return [
        re.search(r"actually processed: (\S+)", done.stdout)[1],
        re.search(r"failed transactions: (\S+)", done.stdout)[1],
    ]


for mode in ("simple", "extended", "prepared"):
    check(mode)(lambda mode=mode: ran("-M", mode, "-t", "5"))
check("clients")(lambda: ran("-c", "4", "-j", "2", "-t", "5", "-M", "prepared"))
check("a connection each")(lambda: ran("-C", "-t", "3"))
check("latencies")(lambda: ran("-t", "3", "-r"))
