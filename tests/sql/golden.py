"""Golden cases: what each stage of a query says, in files that people read.

    -- a sensitive filter cannot run on perturbed rows
    ask:     SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP BY job
    bind:    keys job (public); where disease = 'flu'; COUNT(*) linear
    plan:    disease: disease = 'flu' -> 2 cells
    form:    states
    scan:    SELECT ...
    step:    q0_bases0: SELECT ...
    query:   SELECT ...
    answer:  job | n
    answer:  eng | 207.75 ± 23.9 [160, 255]

A line ``on:`` before the question names the release (``RELEASES``) and what is set for this
once: ``on: wards; form counts; estimator iterative``.  A cell of an answer is the estimate with
its standard error and interval, and a question mark where it is not called reliable.

``python -m tests.sql.golden`` writes the files anew; the test compares.  The lines ``answer``,
``notice`` and ``refuse`` are what an analyst gets: they stay as they are whatever becomes of the
stages, so the script keeps them and fails where they would change, unless it is told
``--answers``.  A new case is its title, ``on`` and ``ask``.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sqlglot import exp

import privsql
from privsql.errors import Error
from privsql.session.session import Session
from privsql.sql.nodes import sql
from privsql.sql.outer.compile import Compiler
from privsql.sql.parse.statement import statements
from privsql.sql.plan.planner import read_parameters
from privsql.sql.plan.query import Direct, Planned
from tests.oracle import releases as oracle
from tests.sql import clinic

CASES = Path(__file__).parent.parent / "cases"
WIDTH = 10
# What an analyst gets; the other lines are how.
SETTLED = ("answer", "notice", "refuse")
# Plans are numbered in the order in which a session makes them.
NUMBERED = re.compile(r"\bprivsql_q\d+_(?=\d)")

TABLES = {
    "sectors": pa.table({"job": ["eng", "law", "med"], "sector": ["works", "office", "works"]}),
    "illnesses": pa.table({"name": ["flu", "hiv", "none"], "severity": [1, 3, 0]}),
    "offices": pa.table({"job": ["eng", "eng", "law"], "city": ["north", "south", "north"]}),
}

# Columns of one release, each perturbed in another way, all of the same raw values.
WARDS = ("uniform", "replace", "finegrain", "matrix", "identity", "swap", "decoy")


@dataclass(frozen=True)
class Case:
    """One question, where and how it is asked, and what was said about it."""

    title: str
    ask: str
    said: str
    release: str = "clinic"
    form: str | None = None
    options: Mapping[str, object] = field(default_factory=dict)
    on: str = ""

    def lines(self, *names: str) -> list[str]:
        """What was said under these names."""
        return settled(self.said, names)


def settled(said: str, names: tuple[str, ...] = SETTLED) -> list[str]:
    """The lines of what was said that have one of these names."""
    return [line for line in said.split("\n") if line.split(":")[0] in names]


def cases(path: Path) -> Iterator[Case]:
    """Read the cases of a file."""
    for text in path.read_text(encoding="utf-8").strip().split("\n\n"):
        title, *lines = text.split("\n")
        on = ""
        if lines[0].startswith("on:"):
            on = lines.pop(0).removeprefix("on:").strip()
        ask = lines[0].removeprefix("ask:").strip()
        found = Case(title.removeprefix("-- "), ask, "\n".join(lines[1:]), on=on)
        yield _where(found, on)


def _where(case: Case, on: str) -> Case:
    if not on:
        return case
    release, *settings = on.split("; ")
    options: dict[str, object] = dict(each.split(" ", 1) for each in settings)
    form = options.pop("form", None)
    for name, value in options.items():
        options[name] = {"true": True, "false": False}.get(str(value), value)
        if name == "confidence_level":
            options[name] = float(str(value))
    return Case(case.title, case.ask, case.said, release, form and str(form), options, on)


# -- releases -----------------------------------------------------------------------------


def _clinic(folder: Path) -> Path:
    return clinic.publish(folder, 0.5)


def _guarded(folder: Path) -> Path:
    return clinic.publish(folder, 0.5, policy="refuse", least=10)


def _published(folder: Path, table: pa.Table, spec: str) -> Path:
    source, out = folder / "raw.parquet", folder / "out.duckdb"
    pq.write_table(table, source)
    (folder / "spec.toml").write_text(spec, encoding="utf-8")
    privsql.publish(str(source), out, spec=folder / "spec.toml", seed=2)
    return out


def _wards(folder: Path) -> Path:
    """Publish one column of raw values seven times, by seven mechanisms."""
    raw = oracle.clinic()
    table = raw.select(["job", "cost"])
    spec = oracle.spec("uniform", ["job", "cost"])
    for name in WARDS:
        table = table.append_column(name, raw.column("disease"))
        spec += f'[columns.{name}]\nrole = "sensitive"\ndomain = ["flu", "hiv", "none", "cold"]\n'
        spec += f"{oracle.MECHANISMS[name]}\n"
    return _published(folder, table, spec)


def _folded(folder: Path) -> Path:
    """Publish so few columns that equal rows are stored once."""
    table = oracle.clinic().select(["job", "disease", "smoker"])
    return _published(folder, table, oracle.spec("uniform", table.column_names))


def _weighed(folder: Path) -> Path:
    """Publish with reconstruction privacy: groups are cut down and rows weighted."""
    table = oracle.clinic()
    spec = oracle.spec("sps", table.column_names) + 'scaling = "weight"\n'
    return _published(folder, table, spec)


RELEASES: dict[str, Callable[[Path], Path]] = {
    "clinic": _clinic,
    "folded": _folded,
    "guarded": _guarded,
    "wards": _wards,
    "weighed": _weighed,
}


class Sessions:
    """One session for each release, opened when a case first asks for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, Session] = {}

    def __getitem__(self, name: str) -> Session:
        """The session about a release, published if it was not before."""
        if name not in self._open:
            folder = self._folder / name
            folder.mkdir()
            self._open[name] = Session(RELEASES[name](folder), tables=TABLES)
        return self._open[name]

    def close(self) -> None:
        """Close all of them."""
        for session in self._open.values():
            session.close()


# -- what is said -------------------------------------------------------------------------


def said(session: Session, case: Case) -> str:
    """What each stage says and what comes of it, or which stage refused and how."""
    stage = "parse"
    lines: list[tuple[str, str]] = []
    session.form = case.form
    try:
        (statement,) = statements(case.ask)
        stage = "answer"
        with _seen(session) as plans:
            try:
                outcome = session.run(case.ask, **case.options)
            finally:
                if plans:
                    lines += _stages(plans[0])
                elif statement.kind == "query":
                    stage = "plan" if _binds(session, case) else "bind"
        lines += [("answer", " | ".join(row)) for row in _rows(outcome)][:WIDTH]
        lines += [("notice", notice.code) for notice in outcome.notices]
    except Error as problem:
        lines.append(("refuse", f"{stage} [{problem.code}]"))
        lines.append(("reason", problem.reason))
    finally:
        session.form = None
    return "\n".join(f"{name + ':':<8} {text}".rstrip() for name, text in lines)


@contextmanager
def _seen(session: Session) -> Iterator[list[Planned]]:
    """The plans that a session makes meanwhile; the first is that of the statement."""
    plans: list[Planned] = []
    plan = session._planning.plan

    def kept(*given: Any) -> Planned:
        plans.append(plan(*given))
        return plans[-1]

    # Plans are remembered with what they have in memory, and here each is wanted anew.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session._planning, "plan", kept)
        patch.setattr(session._loading, "known", lambda key: None)
        patch.setattr(session._loading, "remember", lambda key, planned: None)
        yield plans


def _binds(session: Session, case: Case) -> bool:
    """Whether a question that was refused was so after it had been bound."""
    (statement,) = statements(case.ask)
    assert statement.tree is not None
    try:
        tree = statement.tree.copy()
        read_parameters(tree, None)
        Compiler(session.catalog, statement.text).compile(tree)
    except Error:
        return False
    return True


def _stages(planned: Planned) -> Iterator[tuple[str, str]]:
    """Block by block what was bound, planned, scanned and reconstructed, then what reads it."""
    if isinstance(planned, Direct):
        yield "query", planned.printed.sql
        return
    if not planned.plans:
        yield "query", planned.final.printed.sql
        return
    tree = planned.final._tree.copy()
    made = list(tree.ctes)
    steps = [(cte.alias, sql(cte.this)) for cte in made]
    for plan in planned.plans:
        yield "bind", _bound(plan.block)
        if plan.states is not None:
            yield "plan", _planned(plan.states)
            yield "form", plan.form
        yield "scan", plan.scan.sql
        if plan.beside is not None:
            yield "scan", plan.beside.sql
        for scan in plan.values.values():
            yield "scan", scan.sql
        for name, text in steps:
            if name.startswith(f"{plan.prefix}_"):
                yield "step", NUMBERED.sub("q", f"{name}: {text}")
    prefixes = tuple(f"{plan.prefix}_" for plan in planned.plans)
    theirs = [cte for cte in made if not cte.alias.startswith(prefixes)]
    tree.set("with_", exp.With(expressions=theirs) if theirs else None)
    yield "query", NUMBERED.sub("q", sql(tree))


def _rows(outcome: Any) -> Iterator[list[str]]:
    """The columns of an answer, and its rows with what is known about their error."""
    yield [column.name for column in outcome.columns]
    columns = []
    for i, column in enumerate(outcome.table.columns):
        texts = [_value(value) for value in column.to_pylist()]
        if i in outcome.bars:
            bars = outcome.bars[i].to_pylist()
            texts = [text + _bar(bar) for text, bar in zip(texts, bars, strict=True)]
        columns.append(texts)
    yield from map(list, zip(*columns, strict=True))


def _value(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _bar(bar: Mapping[str, Any]) -> str:
    def digits(value: float | None) -> str:
        return "-" if value is None else f"{value:.5g}"

    ends = f"[{digits(bar['low'])}, {digits(bar['high'])}]"
    return f" ± {digits(bar['stderr'])} {ends}{'' if bar['reliable'] else ' ?'}"


def _bound(block: Any) -> str:
    keys = [
        f"{_short(key.expression)} ({'sensitive' if key.sensitive else 'public'})"
        for key in block.keys
    ]
    found = [f"keys {', '.join(keys)}"] if keys else []
    guards = [_short(node) for node in block.guards]
    found += [f"public where {' and '.join(guards)}"] if guards else []
    ways = [
        " and ".join(_short(node) for node in (*branch.guards, *branch.truths))
        for branch in block.where
    ]
    found += [f"where {' or '.join(ways)}"] if any(ways) else []
    for aggregate in block.aggregates:
        found.append(f"{_short(aggregate.call.node)} {aggregate.kind}")
    return "; ".join(found)


def _planned(states: Any) -> str:
    axes = [
        f"{axis.column}: {', '.join(map(_short, axis.atoms))} -> {axis.count} cells"
        for axis in states.axes
    ]
    hidden = [_short(node) for node in states.hidden]
    return "; ".join(axes + ([f"hidden {', '.join(hidden)}"] if hidden else []))


def _short(node: exp.Expr) -> str:
    return sql(node).replace('"t".', "").replace('"', "")


# -- files --------------------------------------------------------------------------------


def write(sessions: Sessions, path: Path) -> tuple[str, list[str]]:
    """A file with everything said anew, and the titles of cases whose answers are others."""
    texts, changed = [], []
    for case in cases(path):
        told = said(sessions[case.release], case)
        if case.said and settled(told) != case.lines(*SETTLED):
            changed.append(case.title)
        where = f"on:      {case.on}\n" if case.on else ""
        texts.append(f"-- {case.title}\n{where}ask:     {case.ask}\n{told}")
    return "\n\n".join(texts) + "\n", changed


def main(arguments: list[str]) -> int:
    """Write all files anew; 1 where an answer would change and may not."""
    changed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        sessions = Sessions(Path(folder))
        for path in sorted(CASES.glob("*.txt")):
            text, other = write(sessions, path)
            changed += [f"{path.stem}: {title}" for title in other]
            if not other or "--answers" in arguments:
                path.write_text(text, encoding="utf-8")
        sessions.close()
    for each in changed:
        print(f"the answer is another: {each}")
    return int(bool(changed) and "--answers" not in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
