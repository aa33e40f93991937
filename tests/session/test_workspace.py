"""Tables of a statement: loaded once, replaced by others of their name, and none left behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from privsql.engines import Memory
from privsql.errors import Error
from privsql.session.executor import Workspace
from privsql.session.session import Session
from privsql.sql.parameters import Printed
from tests.sql.clinic import publish

ONE, TWO = pa.table({"n": [1]}), pa.table({"n": [2]})
ASKED = Printed("SELECT n FROM t")


class Counting(Memory):
    """An answering database that counts the tables it is given."""

    loads = 0
    broken = False

    def load_all(self, tables):
        self.loads += len(tables)
        super().load_all(tables)
        if self.broken:
            raise RuntimeError("canceled")


@pytest.fixture
def memory() -> Iterator[Counting]:
    made = Counting()
    yield made
    made.close()


def tables(memory: Memory) -> list[str]:
    found = memory.run("SELECT table_name AS t FROM duckdb_tables() WHERE NOT internal ORDER BY 1")
    return found.column("t").to_pylist()


def value(table: pa.Table) -> int:
    return table.column(0)[0].as_py()


def test_a_table_that_is_there_is_not_loaded_again_and_another_of_its_name_is(memory):
    space = Workspace(memory)
    assert value(space.prepared(ASKED, {"t": ONE})) == 1
    assert value(space.prepared(ASKED, {"t": ONE})) == 1
    assert memory.loads == 1
    assert value(space.prepared(ASKED, {"t": TWO})) == 2
    assert value(space.prepared(ASKED, {"t": ONE})) == 1
    assert memory.loads == 3


def test_what_is_evaluated_goes_and_what_was_prepared_stays(memory):
    space = Workspace(memory)
    space.prepared(ASKED, {"t": ONE})
    assert value(space.evaluated(ASKED, {"t": ONE, "u": TWO})) == 1
    assert tables(memory) == ["t"]
    space.clear()
    assert tables(memory) == []


def test_what_stays_for_later_statements_is_not_cleared(memory):
    space = Workspace(memory)
    space.load({"t": ONE, "u": TWO})
    space.leave("t")
    space.clear()
    assert tables(memory) == ["t"]


def test_a_load_that_was_broken_off_is_made_again_and_cleared(memory):
    space, memory.broken = Workspace(memory), True
    with pytest.raises(RuntimeError):
        space.load({"t": ONE})
    memory.broken = False
    assert space.load({"t": ONE}) == ["t"]
    memory.broken = True
    with pytest.raises(RuntimeError):
        space.evaluated(ASKED, {"u": ONE})
    space.clear()
    assert tables(memory) == []


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT job, COUNT(*) FROM patients WHERE disease = 'flu' GROUP BY job",
        "EXPLAIN RECONSTRUCTION SELECT AVG(age) FROM patients WHERE disease = 'flu'",
        "SELECT COUNT(*) + nothing FROM patients WHERE disease = 'flu'",
        "SELECT AVG(age) / error(disease) FROM patients WHERE disease = 'flu'",
    ],
)
def test_statements_leave_no_table_behind(tmp_path: Path, sql: str):
    session = Session(publish(tmp_path, 0.5))
    for _ in range(2):
        with contextlib.suppress(Error):
            session.run(sql)
    session.run("SELECT COUNT(*) FROM patients WHERE disease = 'hiv'", [])
    session._workspace.clear()
    kept = {f"{name}" for name in tables(session._memory) if not name.startswith("domain_")}
    standing = session._loading._standing
    assert all(any(name.startswith(prefix) for prefix in standing) for name in kept)
    session.close()
