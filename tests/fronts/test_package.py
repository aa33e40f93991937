"""The package as a DB-API module: its names are there, and cost nothing until they are used."""

from __future__ import annotations

import subprocess
import sys

import pytest

import privsql
from privsql import errors

PEP_249 = [
    *("connect", "apilevel", "threadsafety", "paramstyle"),
    *("Warning", "Error", "InterfaceError", "DatabaseError", "DataError", "OperationalError"),
    *("IntegrityError", "InternalError", "ProgrammingError", "NotSupportedError"),
    *("Date", "Time", "Timestamp", "Binary"),
    *("DateFromTicks", "TimeFromTicks", "TimestampFromTicks"),
    *("STRING", "BINARY", "NUMBER", "DATETIME", "ROWID"),
]


@pytest.mark.parametrize("name", [*PEP_249, "Answer", "Connection", "Cursor", "publish"])
def test_a_public_name_is_there_and_completes(name):
    assert getattr(privsql, name) is not None
    assert name in dir(privsql)


def test_the_errors_are_those_that_are_raised():
    for name in PEP_249:
        if name.endswith("Error"):
            assert getattr(privsql, name) is getattr(errors, name)
            assert getattr(privsql.Connection, name) is getattr(errors, name)


def test_globals_of_the_module():
    assert (privsql.apilevel, privsql.threadsafety, privsql.paramstyle) == ("2.0", 2, "qmark")
    with pytest.raises(AttributeError, match="'nonsense'"):
        _ = privsql.nonsense


def test_importing_is_quick_and_errors_need_no_database():
    code = (
        "import sys, privsql; privsql.Error; privsql.apilevel\n"
        "heavy = {'duckdb', 'pyarrow', 'pandas', 'numpy', 'sqlglot', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
        "privsql.connect; print('pandas' in sys.modules, 'matplotlib' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\nFalse False\n", done.stderr
