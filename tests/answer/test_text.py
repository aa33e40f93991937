"""What a reader sees: the table, its error bars, and the lines that explain them."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from privsql.answer.cells import estimate, exact
from privsql.answer.outcome import Notice, Outcome, ResultColumn
from privsql.answer.result import Answer
from privsql.answer.text import text

from .outcomes import counts, outcome


def test_a_table_with_error_bars():
    assert str(Answer(counts())).splitlines() == [
        " job  | cost | n           | share",
        "------+------+-------------+---------------",
        " eng  |   12 | 1,402 ± 348 | 0.312 ± 0.011",
        " law  |  700 |    30 ±  10 | 0.020 ± 0.011",
        " None | NULL |  NULL       |   0.5 ±     ?",
        "3 rows; estimates by inversion, errors at 95%",
        "±: half of the 95% interval",
        "± ?: no standard error is available for this value",
    ]


def test_the_mark_of_an_unreliable_cell_is_explained():
    lines = text(outcome([5.0, 6.0], low=[1.0, 2.0], high=[9.0, 10.0], reliable=[True, False]))
    assert " 5.0 ± 4.0\n 6.0 ± 4.0 ?\n" in lines
    assert "? at the end: unreliable" in lines
    fine = text(outcome([5.0], low=[1.0], high=[9.0], reliable=[True]))
    assert "unreliable" not in fine


def test_an_exact_answer_is_plain():
    exact_one = Outcome("rows", (ResultColumn("n", "BIGINT"),), pa.table({"n": [3]}))
    assert str(Answer(exact_one)) == " n\n---\n 3\n1 row; exact"


def test_level_and_notices_are_told():
    shown = text(replace(counts(), level=0.999, notices=(Notice("x", "line\nbreak"),)))
    assert "errors at 99.9%" in shown
    assert shown.endswith("NOTICE [x]: line\\nbreak")


def test_a_long_answer_shows_its_ends_and_says_how_long_it_is():
    long = Outcome("rows", (ResultColumn("i", "BIGINT"),), pa.table({"i": range(12345)}))
    lines = str(Answer(long)).splitlines()
    assert lines[-1] == "12,345 rows, 40 shown; exact"
    assert [line.strip() for line in (lines[2], lines[21], lines[22], lines[23], lines[42])] == [
        *("0", "19", "..."),
        *("12325", "12344"),
    ]
    assert "rows, 3 shown" in text(long, max_rows=3)
    assert "shown" not in text(long.__class__("rows", long.columns, long.table.slice(0, 40)))


@pytest.mark.parametrize("width", [30, 60, 100])
def test_a_wide_answer_fits_and_says_what_is_missing(width):
    names = [f"column_{i}" for i in range(30)]
    wide = Outcome(
        "rows",
        tuple(ResultColumn(name, "BIGINT") for name in names),
        pa.table({name: [i] for i, name in enumerate(names)}),
    )
    lines = text(wide, max_width=width).splitlines()
    assert max(map(len, lines[:3])) <= width
    shown = [name.strip() for name in lines[0].split("|")]
    assert shown[0] == "column_0"
    assert shown[-1] == "column_29"
    assert shown.count("...") == 1
    assert lines[3].startswith(f"30 columns, {len(shown) - 1} shown")
    assert "shown" not in text(wide, max_width=1000)


def test_a_wide_table_is_not_cut_where_it_just_fits():
    two = Outcome(
        "rows",
        (ResultColumn("aaaa", "BIGINT"), ResultColumn("b", "BIGINT"), ResultColumn("c", "BIGINT")),
        pa.table({"aaaa": [1], "b": [2], "c": [3]}),
    )
    width = len("------+---+---")
    assert "..." not in text(two, max_width=width)
    assert " ... " in text(two, max_width=width - 1)


def test_long_words_are_cut_and_long_intervals_are_not():
    words = Outcome("rows", (ResultColumn("w", "VARCHAR"),), pa.table({"w": ["x" * 500]}))
    assert text(words).splitlines()[2] == " " + "x" * 37 + "..."
    big = outcome([1e14], low=[-123456789012345.0], high=[987654321098765.0])
    assert "[-123,456,789,012,345, 987,654,321,098,765]" in text(big)


@given(st.lists(st.text(max_size=60), min_size=1, max_size=4), st.text(min_size=1, max_size=10))
def test_whatever_the_values_are_the_columns_line_up(words, name):
    both = Outcome(
        "rows",
        (ResultColumn(name, "VARCHAR"), ResultColumn("n", "BIGINT")),
        pa.table([pa.array(words), pa.array([1] * len(words))], names=["a", "b"]),
    )
    lines = text(both, max_width=200).split("\n")[: 2 + len(words)]
    assert all(line.isprintable() for line in lines)
    bar = lines[1].index("+")
    assert {cell_len(line[: line.rindex("|")]) for line in (lines[0], *lines[2:])} == {bar}


def test_a_statement_without_rows_and_an_explanation():
    done = Outcome("set", (), pa.table({}))
    assert str(Answer(done)) == "done"
    told = Outcome(
        "explain", (ResultColumn("x", "VARCHAR"),), pa.table({"x": ["a", "  " + "b" * 99]})
    )
    assert str(Answer(told)) == "a\n  " + "b" * 99
    assert Answer(told).explain() == str(Answer(told))


# -- cells -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        ((1402.31, 1054.2, 1750.4, True), "1,402 ± 348"),
        ((1402.31, 1402.31, 1402.31, True), "1,402.31 ± 0"),
        ((-0.001, -0.5, 0.5, True), "0.00 ± 0.50"),
        ((9.96, 0.0, 19.92, True), "10.0 ± 10.0"),
        ((123456789.4, 123456780.0, 123456799.0, True), "123,456,789.4 ± 9.5"),
        ((1e20, 0.9e20, 1.1e20, True), "1e+20 ± 1e+19"),
        ((3.0, 0.0, 20.0, True), "3 [0, 20]"),
        ((3.0, None, 20.0, None), "3 [?, 20]"),
        ((3.0, float("-inf"), float("inf"), True), "3 [-inf, inf]"),
        ((float("nan"), 1.0, 2.0, None), "nan [1, 2]"),
        (("flu", None, None, None), "flu ± ?"),
        ((None, None, None, None), "NULL"),
        ((2.0, None, None, False), "2 ± ? ?"),
    ],
)
def test_estimates_as_text(cell, shown):
    assert str(estimate(*cell)) == shown


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e6))
def test_what_is_shown_is_near_what_is_meant(value, half):
    shown = str(estimate(value, value - half, value + half, True)).replace(",", "")
    value_shown, half_shown = map(float, shown.split(" ± "))
    assert abs(half_shown - half) <= 0.06 * half + 1e-5 * abs(value) * 1e-9
    assert abs(value_shown - value) <= 0.06 * half


def test_exact_values_are_not_rounded():
    assert str(exact(0.1234567890123)) == "0.1234567890123"
    assert str(exact("a\tb")) == "a\\tb"


# -- HTML ------------------------------------------------------------------------------------


class Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.words: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.words.append(data)


def test_html_escapes_names_values_and_notices():
    evil = "<script>alert('x')</script>&amp;"
    told = Outcome(
        "rows",
        (ResultColumn(evil, "VARCHAR"),),
        pa.table({evil: [evil]}),
        notices=(Notice("x", evil),),
    )
    for one in (told, replace(told, kind="explain"), replace(told, columns=(), kind="set")):
        page = Answer(one)._repr_html_()
        reader = Reader()
        reader.feed(page)
        assert "script" not in reader.tags
        assert any(evil in word for word in reader.words)


def test_html_holds_the_same_cells_as_the_text():
    reader = Reader()
    reader.feed(Answer(counts())._repr_html_())
    assert {"table", "th", "td"} <= reader.tags
    for word in ("job", "eng", "1,402 ", "± 348", "± ?", "±: half of the 95% interval"):
        assert word in reader.words
    long = outcome(list(range(100)), low=[0.0] * 100, high=[1.0] * 100)
    assert Answer(long)._repr_html_().count("<tr>") == 1 + 40 + 1


def test_bars_that_are_missing_are_unknown_not_zero():
    none = Outcome(
        "rows", (ResultColumn("n", "DOUBLE", estimate=True),), pa.table({"n": [1.5]}), bars={}
    )
    assert " 1.5 ± ?" in text(none)


def test_an_answer_without_rows_prints() -> None:
    outcome = Outcome(
        "rows", (ResultColumn("x", "INTEGER"),), pa.table({"x": pa.array([], pa.int32())})
    )
    assert "0 rows" in text(outcome)
