"""One column, published with each mechanism, and the same query on each release.

Run it with ``python examples/02_every_mechanism.py``.
"""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import privsql

VALUES = ("asthma", "diabetes", "flu", "hiv", "none")
SHARES = (0.15, 0.17, 0.19, 0.14, 0.35)
DOMAIN = f"domain = {list(VALUES)}"

# What a spec says below [columns.disease], role and domain apart.
MECHANISMS = {
    "uniform": 'mechanism = "uniform"\nretention = 0.4',
    "uniform, by epsilon": 'mechanism = "uniform"\nepsilon = 1.0',
    "replace": 'mechanism = "replace"\nretention = 0.4\nreplacing = [0.1, 0.2, 0.2, 0.1, 0.4]',
    "finegrain": (
        'mechanism = "finegrain"\n'
        "[columns.disease.rho]\n"
        "asthma = [0.2, 0.6]\ndiabetes = [0.2, 0.6]\nflu = [0.2, 0.8]\n"
        "hiv = [0.05, 0.15]\nnone = [0.2, 0.8]"
    ),
    "matrix": (
        'mechanism = "matrix"\n'
        "matrix = [[0.6, 0.1, 0.1, 0.1, 0.1], [0.1, 0.6, 0.1, 0.1, 0.1], [0.1, 0.1, 0.6, 0.1, 0.1],"
        " [0.1, 0.1, 0.1, 0.5, 0.2], [0.1, 0.1, 0.1, 0.2, 0.5]]"
    ),
    "identity": 'mechanism = "identity"\nretention = 0.4',
    "swap": 'mechanism = "swap"\nretention = 0.4',
    "decoy": 'mechanism = "decoy"\ngroup_size = 2',
}


def spec(name: str) -> str:
    head, *table = MECHANISMS[name].split("\n[", 1)
    below = f"[{table[0]}" if table else ""
    return (
        '[release]\ntable = "patients"\nsource = "raw.parquet"\n'
        '[columns.town]\nrole = "public"\n'
        f'[columns.disease]\nrole = "sensitive"\n{head}\n{DOMAIN}\n{below}\n'
    )


def main() -> None:
    rng = np.random.default_rng(7)
    town = rng.choice(["north", "south", "west"], 60_000)
    disease = rng.choice(VALUES, 60_000, p=SHARES)
    raw = pa.table({"town": town, "disease": disease})
    hit = pc.and_(
        pc.equal(raw["disease"], "flu"), pc.is_in(raw["town"], pa.array(["north", "west"]))
    )
    truth = pc.sum(hit).as_py()
    question = "SELECT COUNT(*) AS n FROM patients WHERE disease = 'flu' AND town <> 'south'"
    print(f"{question}\ntruth: {truth}\n")
    print(f"{'mechanism':<22}{'estimate':>10}{'95% interval':>20}   privacy statement")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        pq.write_table(raw, folder / "raw.parquet")
        for i, name in enumerate(MECHANISMS):
            (folder / "spec.toml").write_text(spec(name))
            release = folder / f"{i}.duckdb"
            report = privsql.publish(None, release, spec=folder / "spec.toml")
            epsilon = report.manifest.privacy.epsilon
            told = f"epsilon {epsilon:.2f}" if math.isfinite(epsilon) else "no epsilon"
            with privsql.connect(str(release)) as con:
                ((n, _, low, high, _),) = con.sql(question, error_bars=True)
            interval = f"[{low:.0f}, {high:.0f}]"
            print(f"{name:<22}{n:>10.0f}{interval:>20}   {told}")


if __name__ == "__main__":
    main()
