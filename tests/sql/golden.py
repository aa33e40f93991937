"""Golden cases: what each stage of a query says, in files that people read.

    -- a sensitive filter cannot run on perturbed rows
    ask:     SELECT job, COUNT(*) FROM patients WHERE disease = 'flu' GROUP BY job
    bind:    keys job (public); where disease = 'flu' (sensitive); COUNT(*) estimated
    plan:    disease: disease = 'flu' -> 3 cells
    scan:    SELECT ...
    answer:  job | count_star() ...

``python -m tests.sql.golden`` writes the files anew; the test compares.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlglot import exp

from privsql.errors import Error
from privsql.fronts.session import Session
from privsql.sql.compile import Compiler
from privsql.sql.parse import statements
from privsql.sql.plan import PlanWriter, read_parameters
from privsql.sql.tree import sql
from tests.sql.clinic import publish

CASES = Path(__file__).parent.parent / "cases"
WIDTH = 10


@dataclass(frozen=True)
class Case:
    """One question and what was said about it."""

    title: str
    ask: str
    said: str


def cases(path: Path) -> Iterator[Case]:
    """Read the cases of a file."""
    for text in path.read_text(encoding="utf-8").strip().split("\n\n"):
        lines = text.split("\n")
        title = lines[0].removeprefix("-- ")
        ask = lines[1].removeprefix("ask:").strip()
        yield Case(title, ask, "\n".join(lines[2:]))


def said(session: Session, ask: str) -> str:
    """What bind, plan, emit and answer say, or who refused and how."""
    stage = "parse"
    lines: list[tuple[str, str]] = []
    try:
        (statement,) = statements(ask)
        if statement.tree is not None and statement.kind == "query":
            tree = statement.tree.copy()
            parameters = read_parameters(tree, None)
            stage = "bind"
            compiler = Compiler(session.catalog, statement.text)
            compiler.compile(tree)
            lines += [("bind", _bound(part.leaf.block)) for part in compiler.parts]
            stage = "plan"
            writer = PlanWriter(
                session.catalog,
                parameters,
                lambda printed: session._memory.run(printed.sql, printed.parameters),
                session._planning._domain,
            )
            for n, part in enumerate(compiler.parts):
                plan = writer.plan(part, f"q{n}")
                if plan.states is not None:
                    lines.append(("plan", _planned(plan.states)))
                lines.append(("scan", plan.scan.sql))
                if plan.beside is not None:
                    lines.append(("scan", plan.beside.sql))
        stage = "answer"
        outcome = session.run(ask)
        table = [[c.name for c in outcome.columns], *_rows(outcome.table.to_pylist())]
        lines += [("answer", " | ".join(row)) for row in table[:WIDTH]]
        lines += [("notice", notice.code) for notice in outcome.notices]
    except Error as problem:
        lines.append(("refuse", f"{stage}: [{problem.code}] {problem.reason}"))
    return "\n".join(f"{name + ':':<9}{text}" for name, text in lines)


def _rows(rows: list[dict[str, object]]) -> Iterator[list[str]]:
    for row in rows:
        yield [f"{v:.6g}" if isinstance(v, float) else str(v) for v in row.values()]


def _bound(block: object) -> str:
    found = []
    keys = [
        f"{_short(key.expression)} ({'sensitive' if key.sensitive else 'public'})"
        for key in block.keys  # type: ignore[attr-defined]
    ]
    found += [f"keys {', '.join(keys)}"] if keys else []
    guards = [_short(node) for node in block.guards]  # type: ignore[attr-defined]
    found += [f"public where {' and '.join(guards)}"] if guards else []
    ways = [
        " and ".join(_short(node) for node in (*branch.guards, *branch.truths))
        for branch in block.where  # type: ignore[attr-defined]
    ]
    found += [f"where {' or '.join(ways)}"] if any(ways) else []
    for aggregate in block.aggregates:  # type: ignore[attr-defined]
        found.append(f"{_short(aggregate.call.node)} {aggregate.kind}")
    return "; ".join(found)


def _planned(states: object) -> str:
    axes = [
        f"{axis.column}: {', '.join(map(_short, axis.atoms))} -> {axis.count} cells"
        for axis in states.axes  # type: ignore[attr-defined]
    ]
    hidden = [_short(node) for node in states.hidden]  # type: ignore[attr-defined]
    return "; ".join(axes + ([f"hidden {', '.join(hidden)}"] if hidden else []))


def _short(node: exp.Expr) -> str:
    return sql(node).replace('"t".', "").replace('"', "")


def write(session: Session, path: Path) -> str:
    """A file with everything said anew."""
    return (
        "\n\n".join(
            f"-- {case.title}\nask:     {case.ask}\n{said(session, case.ask)}"
            for case in cases(path)
        )
        + "\n"
    )


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        session = Session(publish(Path(folder), 0.5))
        for path in sorted(CASES.glob("*.txt")):
            path.write_text(write(session, path), encoding="utf-8")
        session.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
