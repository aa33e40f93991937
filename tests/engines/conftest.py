from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import privsql
from tests.specs import measure, public, sensitive, spec

SPEC = spec(
    "patients", public("job"), measure("note"), sensitive("disease", 0.4, ["flu", "hiv", "none"])
)

# A value of the data, never to be quoted.
SECRET = "Rumpelstiltskin"


def make(folder, out="clinic.duckdb", rows=3000, **options):
    """Publish a small release in a folder."""
    rng = np.random.default_rng(1)
    raw = pa.table(
        {
            "job": rng.choice(["eng", "law"], rows),
            # All different, or equal rows are stored once.
            "note": [f"{SECRET} {i}" for i in range(rows)],
            "disease": rng.choice(["flu", "hiv", "none"], rows),
        }
    )
    pq.write_table(raw, folder / "raw.parquet")
    (folder / "spec.toml").write_text(SPEC)
    options = {"seed": 7} | options
    privsql.publish(str(folder / "raw.parquet"), folder / out, spec=folder / "spec.toml", **options)
    return folder / out


@pytest.fixture(scope="session")
def clinic(tmp_path_factory):
    """A release that tests only read."""
    return make(tmp_path_factory.mktemp("clinic"))
