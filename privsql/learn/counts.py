"""Counts that a classifier queries: classes, by cells of one column, under conditions.

Every answer is a reconstruction by inversion, so cells add up and each carries its standard
error; a cell that the release refuses, because its rows are one personal group or too few, is NaN.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from privsql.errors import (
    DatabaseError,
    NotSupportedError,
    ProgrammingError,
    TooLargeError,
    with_article,
)
from privsql.learn.features import Condition, Feature
from privsql.learn.splits import Floats
from privsql.release.names import quoted
from privsql.session.session import Session

# Classes of a target; more is a quantity, not a class.
MOST_CLASSES = 50
# What the release says to a question that is about one personal group, or that past answers
# would make one.
REFUSED = ("personal-group", "difference")
TEXT = ("VARCHAR", "BOOLEAN", "ENUM", "UUID", "BLOB")


@contextmanager
def opened(source: object) -> Iterator[Session]:
    """A session on a path, of a connection, or as it is; what was opened here is closed."""
    if isinstance(source, str | PathLike):
        with closing(Session(Path(source))) as session:
            yield session
        return
    held = getattr(source, "_session", source)
    if not isinstance(held, Session):
        raise ProgrammingError(
            f"cannot learn from {with_article(type(source).__name__)}",
            hint="give the path of a release or what privsql.connect(path) returns;"
            " rows are never learnt from",
        )
    yield held


@dataclass(frozen=True)
class Tally:
    """Counts and half of their intervals: one row per class, one column per key."""

    keys: tuple[Any, ...]
    counts: Floats
    half: Floats


class Counts:
    """Counts of one target, queried from one release."""

    def __init__(
        self,
        session: Session,
        target: str,
        table: str | None = None,
        level: float = 0.95,
        estimator: str = "inversion",
    ) -> None:
        self._session = session
        catalog = session.catalog
        if table is not None and not catalog.is_published(table):
            raise ProgrammingError(
                f"the release has no table {table}", hint=f"its table is {catalog.table}"
            )
        self.table = catalog.table
        self.target = self.named(target)
        self.asked = 0
        self._options: dict[str, object] = {
            "estimator": estimator,
            "confidence_level": level,
            "simultaneous": False,
            "error_bars": False,
        }
        self.null = ""
        self.classes: tuple[Any, ...] = ()
        self._find_classes()

    # -- columns ------------------------------------------------------------------------

    def named(self, name: object) -> str:
        """A column as the release spells it."""
        found = self._session.catalog.column(name) if isinstance(name, str) else None
        if found is None:
            names = ", ".join(each for each, _ in self._session.catalog.columns)
            raise ProgrammingError(f"the release has no column {name}", hint=f"it has {names}")
        return found

    def feature(self, name: str, cuts: int) -> Feature:
        """A column as a feature; a range gets cuts at quantiles of its reconstructed values.

        ``quantile_disc(column, j / cuts)`` for j = 1, ..., cuts - 1, without doubles.  They are
        found once: nodes further down use the same.
        """
        column = self.named(name)
        kind = dict(self._session.catalog.columns)[column]
        sensitive = self._session.catalog.sensitive.get(column)
        unordered = (
            kind.startswith(TEXT) if sensitive is None else sensitive.domain.described_as != "grid"
        )
        if unordered:
            return Feature(column)
        wanted = ", ".join(
            f"quantile_disc({quoted(column)}, {j / cuts!r}) AS q{j}" for j in range(1, cuts)
        )
        text = f"SELECT {wanted} FROM {quoted(self.table)}"  # noqa: S608 - names are quoted
        try:
            (row,) = self._run(text, []).table.to_pylist()
        except TooLargeError:
            raise TooLargeError(
                f"the domain of {column} is too large to find its quantiles",
                hint="leave it out of the features, or publish it with a wider step",
            ) from None
        return Feature(column, tuple(sorted({cut for cut in row.values() if cut is not None})))

    def _find_classes(self) -> None:
        answer = self._run(
            f"SELECT {quoted(self.target)} AS class, COUNT(*) AS n"  # noqa: S608
            f" FROM {quoted(self.table)} GROUP BY class",
            [],
        ).table
        classes = answer.column("class").to_pylist()
        if None in classes:
            self.null = f"{quoted(self.target)} IS NOT NULL"
            classes.remove(None)
        if not classes:
            raise DatabaseError("the release has no rows", hint="publish some rows first")
        if len(classes) > MOST_CLASSES:
            raise ProgrammingError(
                f"the target {self.target} has {len(classes)} values, too many for classes",
                hint=f"choose a target with at most {MOST_CLASSES} values",
            )
        self.classes = tuple(sorted(classes))

    # -- questions ----------------------------------------------------------------------

    def by(self, feature: Feature | None, path: Sequence[Condition]) -> Tally:
        """Counts of the classes under a path, in each cell of a column where one is given."""
        key, first = ("", []) if feature is None else feature.key()
        cell, group = (f"{key} AS cell, ", ", cell") if key else ("", "")
        where, given = self._where(path)
        outcome = self._run(
            f"SELECT {cell}{quoted(self.target)} AS class, COUNT(*) AS n"  # noqa: S608
            f" FROM {quoted(self.table)}{where} GROUP BY class{group}",
            [*first, *given],
        )
        rows = [{"cell": 0, **row} for row in outcome.table.to_pylist()]
        keys = tuple(sorted({row["cell"] for row in rows}, key=_order))
        at = len(outcome.columns) - 1
        shape = (len(self.classes), len(keys))
        counts, half = np.zeros(shape), np.zeros(shape)
        bars = outcome.bars[at].to_pylist() if at in outcome.bars else [None] * len(rows)
        at_class = {value: k for k, value in enumerate(self.classes)}
        at_key = {value: b for b, value in enumerate(keys)}
        for row, bar in zip(rows, bars, strict=True):
            place = at_class[row["class"]], at_key[row["cell"]]
            counts[place] = _number(row["n"])
            if bar is not None:
                half[place] = (_number(bar["high"]) - _number(bar["low"])) / 2
        return Tally(keys, counts, half)

    def contrasts(
        self,
        path: Sequence[Condition],
        sides: Sequence[tuple[Condition, float]],
        shares: Sequence[tuple[int, float]],
    ) -> Floats | None:
        """Standard errors of ``d_k = sum (1[L] - lambda)(1[class k] - pi_k)`` over a path's rows.

        One row a side L with its share lambda, one column a class k with its share pi_k.  The
        error of d is that of a sum of one function of the row, so the query layer knows it.
        NaN where it is not to be had or not reliable; None where the release refuses.
        """
        texts: list[str] = []
        given: list[Any] = []
        for side, share in sides:
            condition, values = side.sql()
            for k, pi in shares:
                texts.append(
                    f"SUM((CASE WHEN {condition} THEN 1.0 ELSE 0.0 END - ?) * (CASE WHEN"
                    f" {quoted(self.target)} = ? THEN 1.0 ELSE 0.0 END - ?)) AS d{len(texts)}"
                )
                given += [*values, float(share), self.classes[k], float(pi)]
        where, more = self._where(path)
        text = f"SELECT {', '.join(texts)} FROM {quoted(self.table)}{where}"  # noqa: S608
        try:
            outcome = self._run(text, [*given, *more])
        except NotSupportedError as problem:
            if problem.code in REFUSED:
                return None
            raise
        found = np.zeros(len(texts))
        for i, bars in outcome.bars.items():
            (bar,) = bars.to_pylist()
            usable = bar["reliable"] or bar["stderr"] == 0
            found[i] = _number(bar["stderr"]) if usable else np.nan
        return found.reshape(len(sides), len(shares))

    def _where(self, path: Sequence[Condition]) -> tuple[str, list[Any]]:
        parts = [condition.sql() for condition in path]
        texts = [*([self.null] if self.null else []), *(text for text, _ in parts)]
        given = [value for _, values in parts for value in values]
        return (f" WHERE {' AND '.join(texts)}" if texts else ""), given

    def _run(self, sql: str, parameters: list[Any]) -> Any:
        self.asked += 1
        return self._session.run(sql, parameters, **self._options)


def undetermined() -> ProgrammingError:
    """The error for a release that does not give the counts of all classes."""
    return ProgrammingError(
        "the release does not determine how many rows each class has",
        hint="learn from a larger release",
    )


def _number(value: Any) -> float:
    return np.nan if value is None else float(value)


def _order(key: Any) -> tuple[bool, Any]:
    """NULL last."""
    return key is None, 0 if key is None else key
