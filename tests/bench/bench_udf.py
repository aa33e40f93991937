"""What it costs to call a kernel from SQL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.func import PythonUDFType

from tests.bench.ratio import Case
from udfs.invert import invert
from udfs.kron import Kron, retention_factor
from udfs.mle import maximum_likelihood
from udfs.register import register

GROUPS = 100_000


@contextmanager
def cases() -> Iterator[list[Case]]:
    rng = np.random.default_rng(1)
    with duckdb.connect() as con:
        con.execute("SET threads = 1")
        register(con)
        con.create_function(
            "empty",
            lambda y, factors: y,
            ["DOUBLE[]", "DOUBLE[][][]"],
            "DOUBLE[]",
            type=PythonUDFType.ARROW,
        )
        found = []
        for k in (2, 5):
            factors = [retention_factor(0.5, [0.6, 0.4])] * k
            kron = Kron(factors)
            shares = rng.dirichlet(np.full(kron.size, 0.7), size=GROUPS)
            rows = rng.integers(40, 1000, size=GROUPS)
            counts = np.floor(kron.rows(shares * rows[:, None])) + rng.poisson(3, shares.shape)
            flat = pa.array(counts.ravel())
            offsets = pa.array(np.arange(GROUPS + 1) * kron.size, type=pa.int32())
            con.register("lists", pa.table({"y": pa.ListArray.from_arrays(offsets, flat)}))
            con.execute(f"CREATE TABLE y{k} AS SELECT * FROM lists")
            text = str([factor.tolist() for factor in factors])
            ours = _ask(con, f"SELECT sum(privsql_invert(y, {text})[1]) FROM y{k}")
            name = f"UDF invert, {GROUPS:,} lists, k = {k}, to"
            if k == 5:
                bare = lambda counts=counts, kron=kron: invert(counts, kron)  # noqa: E731
                found.append(Case(f"{name} the bare kernel", ours, bare, limit=10))
            else:
                # Four numbers a list: the kernel is one small product, and what DuckDB takes
                # to hand lists to any Python function is tens of times that.
                empty = _ask(con, f"SELECT sum(empty(y, {text})[1]) FROM y{k}")
                found.append(Case(f"{name} a UDF that does nothing", ours, empty, limit=3))
                found.append(
                    Case(
                        f"UDF likelihood, {GROUPS:,} lists, k = {k}, to the bare kernel",
                        _ask(con, f"SELECT sum(privsql_likelihood(y, {text}).gap) FROM y{k}"),
                        lambda counts=counts, kron=kron: maximum_likelihood(counts, kron),
                        limit=10,
                    )
                )
        yield found


def _ask(con, query):
    return lambda: con.execute(query).fetchall()
