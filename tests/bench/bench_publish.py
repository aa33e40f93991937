"""What publishing costs, next to a plain copy of the same data by DuckDB."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import privsql
from privsql.channels import Uniform
from privsql.publish.groups.units import row_units
from privsql.publish.keys.randomness import SystemSource
from tests.bench.ratio import Case
from tests.publish.drawing import perturb

ROWS = 5_000_000
MANY = 10_000_000

COLUMN = """
[columns.{name}]
role = "sensitive"
mechanism = "{mechanism}"
domain = {domain}
"""


@contextmanager
def cases() -> Iterator[list[Case]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yield [
            integers(folder),
            categories(folder),
            protected(folder),
            decoys(folder),
            one_column(),
        ]


def _case(folder: Path, name: str, table: pa.Table, spec: str, limit: float, rounds: int) -> Case:
    place = folder / name.replace(" ", "-").replace(",", "")
    place.mkdir()
    source, made, copied = (place / each for each in ("raw.parquet", "r.duckdb", "copy.parquet"))
    pq.write_table(table, source)
    (place / "spec.toml").write_text('[release]\ntable = "t"\n' + spec)

    def ours() -> None:
        privsql.publish(str(source), made, spec=place / "spec.toml", force=True)

    def copy() -> None:
        with duckdb.connect() as con:
            con.read_parquet(str(source)).write_parquet(str(copied))

    return Case(f"publish {name}, to a plain copy", ours, copy, limit, rounds=rounds, cpu=True)


def integers(folder: Path) -> Case:
    rng = np.random.default_rng(1)
    table = pa.table({f"c{i}": rng.integers(0, 100, ROWS).astype(np.int32) for i in range(4)})
    domain = "{ lower = 0, upper = 99, step = 1 }\nretention = 0.3"
    spec = "".join(
        COLUMN.format(name=f"c{i}", mechanism="uniform", domain=domain) for i in range(4)
    )
    return _case(folder, f"{ROWS:,} x 4 integers", table, spec, 4, 5)


def categories(folder: Path) -> Case:
    rng = np.random.default_rng(2)
    values = [f"value {i}" for i in range(12)]
    names = np.array(values)
    table = pa.table({f"c{i}": names[rng.integers(0, 12, ROWS)] for i in range(4)})
    spec = "".join(
        COLUMN.format(name=f"c{i}", mechanism="uniform", domain=f"{values}\nretention = 0.3")
        for i in range(4)
    )
    return _case(folder, f"{ROWS:,} x 4 categories", table, spec, 4, 5)


def _people(rows: int) -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "city": np.array([f"city {i}" for i in range(50)])[rng.integers(0, 50, rows)],
            "job": np.array([f"job {i}" for i in range(20)])[rng.integers(0, 20, rows)],
            "illness": np.array([f"illness {i}" for i in range(12)])[rng.integers(0, 12, rows)],
        }
    )


PUBLIC = '[columns.city]\nrole = "public"\n[columns.job]\nrole = "public"\n'
ILLNESSES = [f"illness {i}" for i in range(12)]


def protected(folder: Path) -> Case:
    spec = PUBLIC + COLUMN.format(
        name="illness", mechanism="uniform", domain=f"{ILLNESSES}\nretention = 0.3"
    )
    spec += '[groups]\nmerge = "none"\n[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n'
    return _case(folder, f"{MANY:,} rows with SPS", _people(MANY), spec, 8, 3)


def decoys(folder: Path) -> Case:
    spec = PUBLIC + COLUMN.format(
        name="illness", mechanism="decoy", domain=f"{ILLNESSES}\ngroup_size = 4"
    )
    spec += '[groups]\nmerge = "none"\n'
    return _case(folder, f"{MANY:,} rows with decoys", _people(MANY), spec, 8, 3)


def one_column() -> Case:
    """Randomised response user by user, as libraries for local privacy do it."""
    rng = np.random.default_rng(4)
    rows, size = 1_000_000, 50
    codes = rng.integers(0, size, rows)
    channel, units, source = Uniform(0.3, size), row_units(0, rows), SystemSource()
    few = codes[: rows // 100].tolist()
    peer, response = _peer(channel)

    def theirs() -> None:
        for value in few:
            response(value)

    return Case(
        f"perturb {rows:,} values: how much faster than user by user",
        lambda: perturb(codes, channel, source, units, "x"),
        theirs,
        limit=20,
        faster=True,
        times=100,
        rounds=5,
        note=f"{peer}, a hundredth of the users timed",
    )


def _peer(channel: Uniform) -> tuple[str, Callable[[int], object]]:
    """multi-freq-ldpy where it is installed, otherwise the same loop by hand."""
    try:
        from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
    except ImportError:
        domain = np.arange(channel.size)
        truthful = channel.retention + (1 - channel.retention) / channel.size

        def by_hand(value: int) -> object:
            if np.random.binomial(1, truthful) == 1:  # noqa: NPY002 - as libraries do
                return value
            return np.random.choice(domain[domain != value])  # noqa: NPY002

        return "a loop by hand", by_hand
    return "multi-freq-ldpy", lambda value: GRR_Client(value, channel.size, channel.epsilon)
