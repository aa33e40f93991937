"""Clients perturb their own rows, so that no one ever holds the raw table.

The publisher writes a spec and makes a first release from a few rows of its own; each clinic
perturbs its rows by that spec on its own machine and sends the batch; the batches join the
release.  Run it with ``python examples/03_local_clients.py``.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np

import privsql
from privsql.publish.append.append import append
from privsql.publish.append.local import perturb

SPEC = """
[release]
table = "visits"
source = "clinic0.csv"

[columns.region]
role = "public"
[columns.sex]
role = "public"
[columns.hiv]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = ["no", "yes"]
"""


def rows_of(clinic: int, path: Path, rng: np.random.Generator) -> int:
    """The raw rows of one clinic, on its own disk; returns how many of them are positive."""
    positive = rng.random(4_000) < 0.02 + 0.02 * clinic
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["region", "sex", "hiv"])
        for i, value in enumerate(positive):
            out.writerow([f"region {i % 4}", "FM"[i % 2], "yes" if value else "no"])
    return int(positive.sum())


def main() -> None:
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        (folder / "spec.toml").write_text(SPEC)
        truth = rows_of(0, folder / "clinic0.csv", rng)
        release = folder / "visits.duckdb"
        privsql.publish(None, release, spec=folder / "spec.toml")
        for clinic in (1, 2, 3):
            raw, batch = folder / f"clinic{clinic}.csv", folder / f"batch{clinic}.csv"
            truth += rows_of(clinic, raw, rng)
            # On the clinic's machine, which agrees to what leaves as it is.
            count, _ = perturb(folder / "spec.toml", raw, batch, accept_public="all")
            raw.unlink()  # the raw rows stay there; only the batch travels
            added = append(release, batch)
            print(f"clinic {clinic}: {count} rows perturbed, {added} joined the release")
        with privsql.connect(str(release)) as con:
            print(con.sql("SELECT COUNT(*) AS rows FROM visits"))
            print(con.sql("SELECT COUNT(*) AS positive FROM visits WHERE hiv = 'yes'"))
        print(f"true count, which no one holds any more: {truth}")


if __name__ == "__main__":
    main()
