"""States by counting what is true together are the states by grouping."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import exp, parse_one

from privsql.sql.scan.conjunctions import conjunctions


@pytest.mark.parametrize("bits", [1, 2, 3, 4])
@pytest.mark.parametrize("keys", [(), ("k0",)])
def test_counts_make_the_states(bits: int, keys: tuple[str, ...]) -> None:
    names = [f"x{i}_0" for i in range(bits)]
    columns = ", ".join(
        f"hash(i * 7 + {i}) % {i + 2} = 0 AS {name}" for i, name in enumerate(names)
    )
    inner = parse_one(f"SELECT i % 3 AS k0, {columns} FROM range(2000) AS r(i)", dialect="duckdb")
    assert isinstance(inner, exp.Select)
    made = conjunctions(keys, names, inner.copy(), "s0").sql("duckdb")
    group = ", ".join((*keys, *names))
    plain = f"SELECT {group}, count(*) FROM ({inner.sql('duckdb')}) GROUP BY ALL"
    with duckdb.connect() as con:
        found = {row for row in con.execute(made).fetchall() if row[-1]}
        assert found == set(con.execute(plain).fetchall())
