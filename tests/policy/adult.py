"""How many cells of ADULT the policy refuses: ``python -m tests.policy.adult``.

A check that nobody can live with will be turned off.  Here are all one-, two- and three-way
tables over the four public columns, crossed with income:

    personal     cells of a table of its own that the personal check refuses
    fresh user   cells that are refused of one who asks for this table alone
    one user     cells that are refused of one who asks for all tables, small ones first

once by the values of the columns, and once by what they were merged into: a table by values cuts
merged groups into pieces, each of which is about one group.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import privsql
from privsql.answer.outcome import Personal
from privsql.policy.history import History
from privsql.session.gate import Served
from privsql.session.session import Session
from tests.publish.test_adult import publish

PUBLIC = ("education", "occupation", "race", "sex")


@dataclass(frozen=True)
class Line:
    """One table: its cells, and how many of them are refused."""

    columns: tuple[str, ...]
    cells: int
    personal: int
    fresh: int
    later: int


def report(folder: Path, merged: bool, most: int = 3) -> list[Line]:
    """Ask for every table of up to ``most`` columns three times."""
    path = folder / "a.duckdb"
    tables = _merged(path)

    def opened(user: str | None) -> Session:
        served = None if user is None else Served(user, History(None))
        return Session(path, tables=tables, served=served)

    embedded, one = opened(None), opened("one")
    lines = []
    for size in range(1, most + 1):
        for columns in itertools.combinations(PUBLIC, size):
            fresh = opened("new")
            found = [_asked(session, columns, merged) for session in (embedded, fresh, one)]
            fresh.close()
            lines.append(Line(columns, found[0].cells, *(each.refused for each in found)))
    for session in (embedded, one):
        session.close()
    return lines


def _merged(path: Path) -> dict[str, pa.Table]:
    """What the values of each column merged into, as public tables to join with."""
    with privsql.release.open(path).connection() as con:
        return {
            f"of_{name}": con.table(f'privsql."values of {name}"').to_arrow_table()
            for name in PUBLIC
        }


def _asked(session: Session, columns: Sequence[str], merged: bool) -> Personal:
    keys, source = ", ".join(columns), "adult"
    if merged:
        keys = ", ".join(f"of_{name}.label" for name in columns)
        source += "".join(f" JOIN of_{c} ON adult.{c} = of_{c}.value" for c in columns)
    sql = f"SELECT {keys}, COUNT(*) AS n FROM {source} WHERE income = '>50K' GROUP BY {keys}"
    return session.run(sql).personal


def main() -> None:
    """Print the tables."""
    with tempfile.TemporaryDirectory() as folder:
        publish(Path(folder), source="raw", seed=1)
        for merged in (False, True):
            _show("by merged values" if merged else "by values", report(Path(folder), merged))


def _show(title: str, lines: Sequence[Line]) -> None:
    print(f"\n{title:36}{'cells':>8}{'personal':>10}{'fresh user':>12}{'one user':>10}")
    for line in lines:
        print(_printed(" x ".join(line.columns), [line]))
    for size in (1, 2, 3):
        print(_printed(f"all of {size}", [each for each in lines if len(each.columns) == size]))
    print(_printed("all of 1 and 2", [each for each in lines if len(each.columns) < 3]))
    print(_printed("all", lines))


def _printed(name: str, lines: Sequence[Line]) -> str:
    sums = [sum(getattr(x, n) for x in lines) for n in ("cells", "personal", "fresh", "later")]
    return f"{name:36}{sums[0]:8}{sums[1]:10}{sums[2]:12}{sums[3]:10}"


if __name__ == "__main__":
    main()
