"""The page of an audit as people see it: on a phone, in the dark, on paper, without network."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from privsql.audit.criteria.findings import ValueAudit
from privsql.audit.job import audit
from privsql.audit.report.charts import Axis, Line, axis_of, bars, chart, key
from privsql.audit.report.page import page
from privsql.audit.report.style import DARK, LIGHT
from tests.audit.browser import BROWSER, measure

ODD = "a very long name of a value that no axis has room for, and <b>markup</b> in it"


@pytest.fixture(scope="module")
def known(clinic):
    return audit(clinic / "plain.duckdb", clinic / "people.parquet")


@pytest.fixture(scope="module")
def pages(clinic, known):
    """Reports with and without raw data, and one with names and numbers of every length."""
    columns = tuple(
        replace(
            column,
            name=f"{column.name} in a column with a name of sixty letters or even more{i}",
            per_value=tuple(
                ValueAudit(k, 2, 2, 0.5, 0.1, 10.0 ** (k % 9 - 4), f"{ODD} {k}") for k in range(40)
            ),
        )
        for i, column in enumerate(known.columns * 3)
    )
    odd = replace(known, columns=columns, table="t" * 80, effective=4e9, rows=4_000_000_000)
    return {"raw": page(known), "alone": page(audit(clinic / "plain.duckdb")), "odd": page(odd)}


def test_the_page_works_anywhere(pages):
    for text in pages.values():
        assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in text
        assert '<meta name="color-scheme" content="light dark">' in text
        assert "@media print" in text
        assert "@media (prefers-color-scheme: dark)" in text
        assert not re.search(r"https?:|//|url\(|@import|<script|<link|<img", text)


def test_colours_have_both_schemes_and_enough_contrast():
    def tones(style):
        return dict(re.findall(r"--(\w+): (#\w{6})", style))

    def light(tone):
        parts = [int(tone[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(a, b):
        high, low = sorted((light(a), light(b)), reverse=True)
        return (high + 0.05) / (low + 0.05)

    assert tones(LIGHT).keys() == tones(DARK).keys()
    for scheme in (tones(LIGHT), tones(DARK)):
        for name in ("ink", "soft", "green", "amber", "red"):
            for under in ("back", "card"):
                assert contrast(scheme[name], scheme[under]) >= 4.5, name
        for i in range(6):
            assert contrast(scheme[f"c{i}"], scheme["back"]) >= 3, i


class Words(HTMLParser):
    """Words of headings and of pictures, in order."""

    def __init__(self):
        super().__init__()
        self.inside, self.headings, self.pictures = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag == "svg":
            self.pictures.append([])
        if tag not in ("meta", "br"):
            self.inside.append(tag)

    def handle_endtag(self, tag):
        self.inside.pop()

    def handle_data(self, data):
        if "svg" in self.inside and "title" not in self.inside:
            self.pictures[-1].append(data)
        elif {"h2", "h3"} & set(self.inside):
            self.headings.append(data)


def test_labels_are_names(pages, known):
    words = Words()
    words.feed(pages["raw"])
    labels = {label for picture in words.pictures for label in picture}
    assert {"flu", "cold", "none", "0", "19"} <= labels  # values of both columns, by name
    assert {"Rows that have the value", "Conditions", "Share of the rows"} <= labels
    assert "f" not in labels
    assert '<ul class="key"><li><span class="swatch c0"></span>ill</li>' in pages["raw"]


def test_the_first_page_comes_first_and_theorems_last(pages, known):
    words = Words()
    words.feed(pages["raw"])
    order = ["Public columns", "Sensitive values", "What analysts can learn", "What to change",
             "Figures", "Appendix: criteria", "Groups most at risk"]  # fmt: skip
    places = [words.headings.index(name) for name in order]
    assert places == sorted(places)
    text = pages["raw"]
    assert text.index("May this release go out?") < text.index(known.front.sentence)
    assert "s_g" not in text[: text.index("Appendix")]
    assert "Chernoff" not in text[: text.index("Appendix")]
    assert text.count('<li class="light ') == 3


def test_a_picture_holds_odd_figures():
    steep = chart([Line("a", ((1, 2), (2, float("inf"))))], Axis(1, 2, False, "x"),
                  axis_of([2.0], "y", log=True))  # fmt: skip
    assert "nan" not in steep
    assert "inf" not in steep
    assert "&lt;b&gt;" in bars(["<b>"], [float("inf")], "v")
    assert ">none<" in bars(["<b>"], [float("inf")], "v")
    assert "&lt;b&gt;" in key([Line("<b>", ())])
    long = bars([ODD], [0.25], "v")
    assert ">25%<" in long
    assert "<b>" not in long
    assert Axis(0, 1, True, "x").text(10_000) == "10k"
    assert Axis(0.01, 10, True, "x", percent=True).text(10) == "1,000%"
    assert ">&gt;1,000%<" in bars(["a"], [4e14], "v")


@pytest.mark.soak
@pytest.mark.skipif(BROWSER is None, reason="there is no chromium here")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", ["raw", "alone", "odd"])
def test_in_a_browser_nothing_overflows_or_overlaps(pages, name, width, dark, tmp_path):
    found = measure(pages[name], width, tmp_path, dark=dark)
    assert found["texts"] > 50
    assert found["client"] == width
    assert found["scroll"] <= found["client"]
    assert found["wide"] == []
    assert found["overlap"] == []
    assert found["outside"] == []
    assert found["onLine"] == []
    assert (found["back"] == "rgb(20, 23, 27)") is dark


@pytest.mark.soak
@pytest.mark.skipif(BROWSER is None, reason="there is no chromium here")
def test_the_browser_sees_what_is_wrong(known, tmp_path):
    wrong = page(known).replace("</body>", '<div style="width: 500px">x</div></body>')
    wrong = wrong.replace('class="ink middle"', 'class="ink end" textLength="120"')
    found = measure(wrong, 360, tmp_path, dark=False)
    assert found["scroll"] > found["client"]
    assert found["wide"]
    assert found["overlap"]
