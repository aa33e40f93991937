"""What a program gets from an answer."""

from __future__ import annotations

import sys
import uuid
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from privsql.answer.export import MissingExtraError, load
from privsql.answer.outcome import Outcome, ResultColumn
from privsql.answer.result import Answer
from privsql.errors import NotSupportedError, OperationalError, ProgrammingError

from .outcomes import counts, outcome

WITH_BARS = [
    *("job", "cost"),
    *("n", "n_stderr", "n_low", "n_high", "n_reliable"),
    *("share", "share_stderr", "share_low", "share_high", "share_reliable"),
]


def test_without_bars_a_program_gets_what_it_asked_for():
    answer = Answer(counts())
    names = ["job", "cost", "n", "share"]
    assert answer.columns == names
    assert list(answer.df().columns) == names
    assert answer.arrow().schema.names == names
    assert answer.pl().columns == names
    assert answer.fetchall()[0] == ("eng", 12, 1402.31, 0.31234)
    assert list(answer) == answer.fetchall()
    assert len(answer) == 3
    assert not answer.personal


def test_bars_follow_their_estimate_when_asked_for():
    answer = Answer(counts(error_bars=True))
    assert answer.columns == WITH_BARS
    assert list(answer.df().columns) == WITH_BARS
    assert answer.arrow().schema.names == WITH_BARS
    assert answer.pl().columns == WITH_BARS
    assert answer.fetchall()[1] == (
        *("law", 700),
        *(30.0, 5.0, 20.0, 40.0, True),
        *(0.02, pytest.approx(0.0055), 0.009, 0.031, True),
    )
    assert answer.fetchall()[2][2:7] == (None, None, None, None, None)


def test_a_data_frame_holds_numbers_not_objects():
    frame = Answer(counts()).df()
    assert frame["cost"].dtype == np.float64
    assert frame["cost"].tolist()[:2] == [12.0, 700.0]
    assert frame["n"].isna().tolist() == [False, False, True]


def test_estimates_are_one_row_a_cell():
    for asked in (counts(), counts(error_bars=True)):
        found = Answer(asked).estimates
        assert list(found.columns) == [
            *("row", "column", "estimate", "stderr", "low", "high", "reliable"),
            *("job", "cost"),
        ]
        assert found["row"].tolist() == [0, 0, 1, 1, 2, 2]
        assert found["column"].tolist() == ["n", "share"] * 3
        law = found[(found["job"] == "law") & (found["column"] == "n")].iloc[0]
        assert law[["estimate", "stderr", "low", "high"]].tolist() == [30.0, 5.0, 20.0, 40.0]
        assert law["reliable"] is np.True_ or law["reliable"] is True
        assert found["reliable"].isna().tolist() == [False] * 4 + [True, True]


def test_no_estimates_is_an_empty_frame_with_the_same_columns():
    exact = Outcome("rows", (ResultColumn("low", "BIGINT"),), pa.table({"low": [1]}))
    found = Answer(exact).estimates
    assert len(found) == 0
    assert list(found.columns)[:3] == ["row", "column", "estimate"]
    assert list(found.columns)[-1] == "low_1"


def test_columns_of_one_name_are_told_apart():
    twice = Outcome(
        "rows",
        (ResultColumn("n", "DOUBLE", estimate=True), ResultColumn("n", "BIGINT")),
        pa.Table.from_arrays([pa.array([1.5]), pa.array([2])], names=["n", "n"]),
    )
    answer = Answer(twice)
    assert answer.columns == ["n", "n"]
    assert list(answer.df().columns) == answer.pl().columns == ["n", "n_1"]
    assert answer.fetchall() == [(1.5, 2)]
    assert answer.estimates["n"].tolist() == [2]


def test_python_values_are_those_of_duckdbs_own_driver():
    query = """
        SELECT 170141183460469231731687303715::HUGEINT AS a, 1.50::DECIMAL(9, 2) AS b,
               '4598235e-88be-4e8c-98fd-c4f397075e72'::UUID AS c,
               INTERVAL '1 month 2 days 3 seconds' AS d,
               TIMESTAMP_NS '2020-01-01 00:00:00.000001999' AS e, MAP {'x': 1} AS f,
               'u'::ENUM ('u', 'v') AS g, DATE '2020-02-03' AS h, [1, 2] AS i, {'x': 1} AS j,
               'x'::BLOB AS k, TRUE AS l, TIME '01:02:03' AS m
        UNION ALL BY NAME SELECT NULL::HUGEINT AS a
    """
    con = duckdb.connect()
    relation = con.sql(query)
    columns = tuple(
        ResultColumn(name, str(kind))
        for name, kind in zip(relation.columns, relation.types, strict=True)
    )
    got = Answer(Outcome("rows", columns, relation.to_arrow_table())).fetchall()
    assert got == duckdb.connect().execute(query).fetchall()
    assert [type(value) for value in got[0][:6]] == [
        *(int, Decimal, uuid.UUID, timedelta),
        *(datetime, dict),
    ]
    assert got[1] == (None,) * 13


def test_explain_asks_back_or_says_whom_to_ask():
    said = Answer(counts(), lambda verbose: "all of it" if verbose else "so")
    assert (said.explain(), said.explain(verbose=True)) == ("so", "all of it")
    table = replace(counts(), kind="explain")  # EXPLAIN as a table is no text by itself
    assert Answer(table, lambda verbose: "so").explain() == "so"
    with pytest.raises(NotSupportedError, match=r"con\.explain"):
        Answer(counts()).explain()


# -- plot ------------------------------------------------------------------------------------


@pytest.fixture
def plt():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    yield plt
    plt.close("all")


def whiskers(ax) -> list[tuple[float, float]]:
    """Both ends of every whisker that is drawn."""
    segments = [
        segment
        for container in ax.containers
        if container.__class__.__name__ == "ErrorbarContainer"
        for lines in container.lines[2]
        for segment in lines.get_segments()
    ]
    drawn = [s for s in segments if len(s) and not np.isnan(s).any()]
    return [(segment[0][1], segment[1][1]) for segment in drawn]


def test_a_plot_has_bars_and_whiskers_from_low_to_high(plt):
    ax = Answer(outcome([5.0, 3.0, None], [1.0, 2.5, None], [9.0, 8.0, None])).plot()
    assert [bar.get_height() for bar in ax.patches][:2] == [5.0, 3.0]
    assert whiskers(ax) == [(1.0, 9.0), (2.5, 8.0)]
    assert ax.get_ylabel() == "n"
    ax.figure.canvas.draw()


@pytest.mark.parametrize(("width", "rotation"), [(12, 0), (2, 45)])
def test_labels_are_turned_where_they_would_meet(plt, width, rotation):
    ax = plt.subplots(figsize=(width, 2))[1]
    Answer(counts()).plot(ax)
    assert {label.get_rotation() for label in ax.get_xticklabels()} == {rotation}


def test_a_plot_labels_rows_by_their_keys_and_takes_dollars_for_dollars(plt):
    costly = replace(
        counts(), table=counts().table.set_column(0, "job", pa.array(["$\\bad$", "$x_{", "c"]))
    )
    ax = Answer(costly).plot(plt.subplots()[1])
    ax.figure.canvas.draw()
    assert [label.get_text() for label in ax.get_xticklabels()] == [
        "$\\bad$, 12",
        "$x_{, 700",
        "c, NULL",
    ]
    assert [word.get_text() for word in ax.get_legend().get_texts()] == ["n", "share"]
    assert len(ax.patches) == 6


def test_unreliable_bars_are_hatched(plt):
    ax = Answer(outcome([5.0, 3.0], [1.0, 2.0], [9.0, 8.0], [True, False])).plot()
    assert [bar.get_hatch() for bar in ax.patches] == [None, "//"]


def test_exact_numbers_are_drawn_without_whiskers(plt):
    exact = Outcome(
        "rows",
        (ResultColumn("job", "VARCHAR"), ResultColumn("n", "BIGINT")),
        pa.table({"job": ["a", "b"], "n": [1, 2]}),
    )
    ax = Answer(exact).plot()
    assert [bar.get_height() for bar in ax.patches] == [1, 2]
    assert whiskers(ax) == []
    words = Outcome("rows", (ResultColumn("job", "VARCHAR"),), pa.table({"job": ["a"]}))
    with pytest.raises(ProgrammingError, match="no numeric column"):
        Answer(words).plot()


# -- extras ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "extra", "call"), [("matplotlib", "plot", "plot"), ("polars", "polars", "pl")]
)
def test_a_missing_extra_is_named(monkeypatch, package, extra, call):
    for name in [n for n in sys.modules if n.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)

    class Hidden:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == package:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(sys, "meta_path", [Hidden(), *sys.meta_path])
    with pytest.raises(MissingExtraError, match=rf"pip install 'privsql\[{extra}\]'") as caught:
        getattr(Answer(counts()), call)()
    assert isinstance(caught.value, OperationalError)
    assert package in caught.value.reason


def test_a_broken_package_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_extra.py").write_text("import surely_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="surely_not_there"):
        load("broken_extra", extra="plot", asked="plot()")


def test_frames_keep_dates():
    when = Outcome(
        "rows",
        (ResultColumn("d", "DATE"),),
        pa.table({"d": pa.array([datetime(2020, 1, 2).date()], pa.date32())}),
    )
    assert pd.api.types.is_datetime64_any_dtype(Answer(when).df()["d"])
