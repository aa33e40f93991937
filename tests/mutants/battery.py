"""What a mutant has to get through: questions with known answers, oracles, tests.

Stages in order, and the first failure ends it:

    numbers     questions of every kind through every scan form, bars and all, as recorded from
                the code as it is (:func:`record`)
    kernels     the kernels' own tests, for a mutant of ``udfs``
    oracle      generated queries at retention 1 against DuckDB, and at .5 as recorded
    tests       the tests of the module's package

Releases are published once, before anything is changed.
"""

from __future__ import annotations

import contextlib
import io
import math
import pickle
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Nothing of ours is imported up here: a mutant's module has to be imported changed.

FORMS = (None, "states", "axes", "conjunctions", "counts", "weights")
VARIANTS = ("uniform", "mixed", "matrices", "whole", "sampled", "compacted")
EXACT = ("plain", "sparse", "compacted")
ROWS = 400
SEED = 14
QUERIES = 10  # generated, at retention 1
NOISY = 12  # generated, below

QUESTIONS = Path(__file__).with_name("questions.txt")

# The likelihood and other levels, where the estimator has a part.
OTHERS = (
    ("SELECT disease, COUNT(*), AVG(cost) FROM visits GROUP BY disease", "iterative", 0.95, False),
    ("SELECT smoker, work, COUNT(*) FROM visits GROUP BY 1, 2", "iterative", 0.9, False),
    ("SELECT work, COUNT(*) FROM visits GROUP BY work", "auto", 0.5, True),
    ("SELECT sex, AVG(cost), SUM(age) FROM visits WHERE smoker GROUP BY sex", "auto", 0.999, True),
)  # fmt: skip


@dataclass(frozen=True)
class Question:
    """Something to ask a release through a form."""

    variant: str
    form: str | None
    sql: str
    parameters: Any = None
    estimator: str = "auto"
    level: float = 0.95
    simultaneous: bool = False


def questions() -> Iterator[Question]:
    """The hand-picked ones: two forms on the release that suits them all, and another release."""
    texts = QUESTIONS.read_text(encoding="utf-8").splitlines()
    others = (
        *(("matrices", None), ("sampled", "weights"), ("whole", None), ("compacted", "weights")),
        ("mixed", None),
    )
    for i, text in enumerate(texts):
        for form in (FORMS[1 + i % 3], FORMS[4 + i % 2]):
            yield Question("uniform", form, text)
        variant, chosen = others[i % len(others)]
        yield Question(variant, chosen, text)
    for text, estimator, level, together in OTHERS:
        for variant in ("mixed", "matrices", "sampled"):
            yield Question(variant, None, text, None, estimator, level, together)


def generated() -> Iterator[Question]:
    from tests.oracle.generator import generate

    rng = random.Random(SEED)
    for i in range(NOISY):
        sql, parameters = generate(rng).printed()
        yield Question(VARIANTS[i % len(VARIANTS)], FORMS[i % len(FORMS)], sql, parameters)


def answer(session: Any, at: Question) -> Any:
    """What is said: columns and bars as lists, or the error's type."""
    from privsql.errors import Error

    session.form = at.form
    try:
        outcome = session.run(
            at.sql,
            at.parameters,
            error_bars=True,
            estimator=at.estimator,
            confidence_level=at.level,
            simultaneous=at.simultaneous,
        )
    except Error as problem:
        return type(problem).__name__
    values = [column.to_pylist() for column in outcome.table.columns]
    bars = {i: table.to_pydict() for i, table in outcome.bars.items()}
    columns = [(column.name, column.type, column.estimate) for column in outcome.columns]
    return columns, values, bars, sorted(notice.code for notice in outcome.notices)


def alike(one: Any, two: Any, near: float = 1e-9) -> bool:
    """Whether two answers are the same up to rounding, place by place."""
    if isinstance(one, float) and isinstance(two, float):
        if math.isnan(one) or math.isnan(two):
            return math.isnan(one) and math.isnan(two)
        return one == two or abs(one - two) <= near * max(abs(one), abs(two), 1.0)
    if isinstance(one, dict) and isinstance(two, dict):
        return one.keys() == two.keys() and all(alike(one[k], two[k], near) for k in one)
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(
            alike(a, b, near) for a, b in zip(one, two, strict=True)
        )
    return bool(one == two)


def same(one: Any, two: Any) -> bool:
    """Rows may come in another order where nothing orders them."""
    if isinstance(one, str) or isinstance(two, str):
        return bool(one == two)
    return alike(one, two) or alike(_rows(one), _rows(two))


def _rows(answered: Any) -> Any:
    columns, values, bars, codes = answered
    shown = [*values, *(column for i in sorted(bars) for column in bars[i].values())]

    def order(row: tuple[Any, ...]) -> list[str]:
        return [f"{value:.6g}" if isinstance(value, float) else repr(value) for value in row]

    return columns, sorted(zip(*shown, strict=True), key=order), codes


# --- before anything is changed ------------------------------------------------------------


def publish(folder: Path) -> None:
    """The releases, and the raw tables of those that keep everything."""
    from tests.oracle.perturbed import perturbed_world
    from tests.oracle.tables import world

    for i, variant in enumerate(VARIANTS):
        perturbed_world(folder, variant, SEED + i, ROWS).raw.close()
    for i, variant in enumerate(EXACT):
        world(folder, variant, SEED + i, rows=600).raw.close()


def record(folder: Path) -> None:
    """Answers of the code as it is."""
    with _sessions(folder) as sessions:
        for name, asked in (("numbers", questions()), ("oracle", generated())):
            found = [(each, answer(sessions(each), each)) for each in asked]
            (folder / f"{name}.pickle").write_bytes(pickle.dumps(found))


@contextlib.contextmanager
def _sessions(folder: Path) -> Iterator[Any]:
    """One session for each release and form."""
    from privsql.session.session import Session
    from tests.oracle.tables import dimensions

    made: dict[tuple[str, str | None], Any] = {}

    def session(at: Question) -> Any:
        key = (at.variant, at.form)
        if key not in made:
            path = folder / f"noisy-{at.variant}.duckdb"
            made[key] = Session(path, tables=dimensions())
        return made[key]

    try:
        yield session
    finally:
        for each in made.values():
            each.close()


# --- the stages ------------------------------------------------------------------------------


def numbers(folder: Path, name: str = "numbers") -> str:
    """The first recorded answer that is another now; empty where none is."""
    with _sessions(folder) as sessions:
        for at, known in pickle.loads((folder / f"{name}.pickle").read_bytes()):
            if not same(answer(sessions(at), at), known):
                return f"{at.variant}, {at.form}: {at.sql}"
    return ""


def oracle(folder: Path) -> str:
    """Generated queries at retention 1 against DuckDB, then those below as recorded."""
    import pyarrow.parquet as pq

    from tests.oracle.running import run
    from tests.oracle.sessions import Layer
    from tests.oracle.tables import World, dimensions, raw_connection

    worlds = []
    for variant in EXACT:
        raw = raw_connection(pq.read_table(folder / f"{variant}.parquet"))
        worlds.append(World(variant, folder / f"{variant}.duckdb", raw, dimensions()))
    pairs = []
    for i, each in enumerate(worlds):
        layer = Layer(each)
        layer.session.form = FORMS[1 + i % 5]
        pairs.append((each, layer))
    summary = run(pairs, QUERIES, SEED, shrunk=0, stop=1)
    if summary.failures:
        return str(summary.failures[0])
    return numbers(folder, "oracle")


def tests(files: Sequence[str], root: Path) -> str:
    """The first test that fails; empty where none does."""
    import pytest

    class Failed:
        names: list[str] = []  # noqa: RUF012

        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed:
                self.names.append(report.nodeid)

        def pytest_collectreport(self, report: Any) -> None:
            if report.failed:
                self.names.append(report.nodeid)

    found = Failed()
    options = ["-x", "-q", "-p", "no:cacheprovider", "--rootdir", str(root), "--no-header"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        code = pytest.main([*options, *(str(root / file) for file in files)], plugins=[found])
    if code == 0:
        return ""
    return found.names[0] if found.names else f"pytest ended with {int(code)}"
