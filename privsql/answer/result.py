"""The return value of ``con.sql(...)``: an answer that prints itself with its error bars.

An :class:`Answer` is complete when it is made; nothing it does runs the query again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from privsql.answer import columns as seen
from privsql.answer.html import html
from privsql.answer.outcome import Notice, Outcome, Personal
from privsql.answer.table import ROWS
from privsql.answer.text import explanation, text
from privsql.answer.values import rows
from privsql.errors import NotSupportedError

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl
    import pyarrow as pa
    from matplotlib.axes import Axes


class Answer:
    """The rows of an answer and their errors, convertible to tables, data frames and plots.

    >>> import pyarrow as pa
    >>> from privsql.answer.outcome import ResultColumn
    >>> outcome = Outcome(
    ...     "rows",
    ...     (ResultColumn("illness", "VARCHAR"), ResultColumn("n", "DOUBLE", estimate=True)),
    ...     pa.table({"illness": ["flu", "none"], "n": [1402.31, 8597.69]}),
    ...     bars={1: pa.table({"stderr": [177.6, 177.6], "low": [1054.2, 8249.6],
    ...                        "high": [1750.4, 8945.8], "reliable": [True, True]})},
    ...     estimator="inversion",
    ... )
    >>> print(Answer(outcome))
     illness | n
    ---------+-------------
     flu     | 1,402 ± 348
     none    | 8,598 ± 348
    2 rows; estimates by inversion, errors at 95%
    ±: half of the 95% interval
    """

    def __init__(self, outcome: Outcome, explain: Callable[[bool], str] | None = None) -> None:
        self.outcome = outcome
        self._explain = explain

    # -- to read ---------------------------------------------------------------------

    def __str__(self) -> str:
        """A table with error bars, cut to what the terminal has room for."""
        return text(self.outcome)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html(self.outcome)

    def show(self, *, max_rows: int = ROWS, max_width: int | None = None) -> None:
        """Print more or less of the answer than ``print`` does."""
        print(text(self.outcome, max_rows, max_width))

    def explain(self, *, verbose: bool = False) -> str:
        """How the answer was made, in about ten lines; ``verbose``: with all cells and SQL."""
        if self.outcome.kind == "explain" and len(self.outcome.columns) == 1:
            return explanation(self.outcome)
        if self._explain is None:
            raise NotSupportedError(
                "this answer was made without its statement",
                hint="call con.explain(sql)",
            )
        return self._explain(verbose)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Bars with whiskers from low to high; needs the extra ``privsql[plot]``."""
        from privsql.answer.export import plot

        return plot(self.outcome, ax)

    # -- to compute with -------------------------------------------------------------

    @property
    def columns(self) -> list[str]:
        """Names of the columns, those of the error bars included when they were asked for."""
        return [column.name for column in seen.columns(self.outcome)]

    @property
    def notices(self) -> tuple[Notice, ...]:
        """What a reader of the answer must know."""
        return self.outcome.notices

    @property
    def personal(self) -> Personal:
        """How many cells are about one personal group, and how many were not answered."""
        return self.outcome.personal

    def __len__(self) -> int:
        """The number of rows."""
        return self.outcome.table.num_rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """The rows, as :meth:`fetchall` has them."""
        return iter(self.fetchall())

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows as tuples of Python objects; each call starts from the first."""
        return rows(seen.columns(self.outcome), seen.arrays(self.outcome))

    def arrow(self) -> pa.Table:
        """The answer as an Arrow table."""
        return seen.table(self.outcome)

    def df(self) -> pd.DataFrame:
        """The answer as a pandas data frame, typed as DuckDB types its own."""
        from privsql.answer.export import frame

        return frame(self.outcome)

    def pl(self) -> pl.DataFrame:
        """The answer as a polars data frame; needs the extra ``privsql[polars]``."""
        from privsql.answer.export import load

        frame: pl.DataFrame = load("polars", extra="polars", asked="pl()").from_arrow(self.arrow())
        return frame

    @property
    def estimates(self) -> pd.DataFrame:
        """Every estimated cell on a row of its own, whether or not bars were asked for.

        ``row`` counts as the index of :meth:`df` does and ``column`` names the estimate;
        then come ``estimate``, ``stderr``, ``low``, ``high``, ``reliable`` and the columns
        that are no estimates, which tell the rows apart.
        """
        from privsql.answer.export import estimates

        return estimates(self.outcome)
