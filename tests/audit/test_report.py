"""What a report looks like: text, JSON, tables, a page; and the command that writes them."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import click
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import privsql
from privsql.audit.criteria.expected import half_width, half_width_conditions
from privsql.audit.criteria.findings import Finding
from privsql.audit.criteria.verdicts import findings
from privsql.audit.job import audit
from privsql.audit.report.charts import Axis, Line, axis_of, chart
from privsql.audit.report.page import page
from privsql.errors import OperationalError
from privsql.fronts.cli.commands.audit import audit as command
from privsql.fronts.cli.main import Commands
from privsql.release.spec import parse_spec
from tests.audit.conftest import SPEC
from tests.specs import public, sensitive, spec


@pytest.fixture(scope="module")
def known(clinic):
    return audit(clinic / "plain.duckdb", clinic / "people.parquet")


@pytest.fixture(scope="module")
def alone(clinic):
    return audit(clinic / "plain.duckdb")


def test_text(known, alone):
    for report in (known, alone):
        text = str(report)
        assert text.startswith(report.summary())
        assert max(map(len, text.splitlines())) <= 200
        for criterion in ("epsilon", "rho1-rho2", "(s, rho1, rho2)", "(n, eps, delta)",
                          "(lambda, delta)", "tails", "raw data", "ratios"):  # fmt: skip
            assert f"{criterion}: " in text
        assert "Upward a prior of 0.1" in text
        assert "downward 0.95" in text
    first, figures, appendix = re.split("\nFIGURES\n|\nAPPENDIX: CRITERIA\n", str(known))
    assert first.strip() == known.summary()
    # The first page answers, and no theorem stands before the appendix.
    assert first.startswith("May this release go out?\n  No, not as it is: cost nearly determines")
    assert re.findall(r"^(RED|AMBER|GREEN) ", first, re.M) == ["RED", "GREEN", "GREEN"]
    assert "change: drop cost" in first
    for words in ("v_g", "Chernoff", "rho1", "lambda"):
        assert words not in first + figures
    assert re.search(r"10 to 99 +\d+ +[\d,]+ +[\d.]+%", figures)
    assert re.search(r"\d+ of 8 groups violate it", appendix)
    assert "change: [protect.reconstruction]" in appendix


def test_lights(known, clinic, publish):
    """What turns each of them amber or red, and that utility never does."""
    dropped = replace(known, links=())
    assert dropped.front.answer == "yes"
    assert dropped.front.sentence == "Yes: nothing that was checked speaks against it."
    unique = replace(known.uniqueness, alone=200)
    for alone, colour in ((200, "amber"), (401, "red")):
        report = replace(dropped, uniqueness=replace(unique, alone=alone))
        report = replace(report, findings=findings(report))
        light = report.front.lights[0]
        assert (light.colour, light.why) == (
            colour, f"{alone / 40:.3g}% of the rows are alone in their public values",
        )  # fmt: skip
        assert any("make cost" in change for change in light.change)

    def sensitive(**changes):
        report = replace(dropped, privacy=replace(known.privacy, **changes))
        return replace(report, findings=findings(report)).front.lights[1]

    assert sensitive().colour == "green"
    assert sensitive(epsilon=6.0).colour == "red"
    assert "above the limit of 5" in sensitive(epsilon=6.0).text
    assert sensitive(seeded=True).colour == "red"
    assert sensitive(epsilon=math.inf).colour == "red"
    assert sensitive(epsilon=math.inf, raw=("x",)).colour == "amber"
    # Four rows of 3.65 each lose more than any release may.
    assert sensitive(epsilon=math.inf, rows_per_unit=4).colour == "red"
    assert sensitive(epsilon=math.inf, rows_per_unit=4).why == "no epsilon is promised"
    allowed = replace(dropped, policy=replace(known.policy, personal_groups="allow"))
    assert allowed.front.lights[2].colour == "amber"
    assert allowed.front.answer == "if"
    # However wide the intervals are.
    wide = replace(known.columns[0], reached_error=0.9)
    vague = replace(dropped, columns=(wide, known.columns[1]))
    vague = replace(vague, findings=findings(vague))
    assert any(f.verdict == "weak" for f in vague.findings)
    assert vague.front.lights[2].colour == "green"


def test_a_promise_that_is_not_kept_is_red(clinic, publish):
    protect = '[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\ncap = "one"\n'
    report = audit(publish("promised", SPEC + protect), clinic / "people.parquet")
    assert report.front.lights[2].colour == "green"
    group = replace(report.groups[0], violating=(2, 100))
    broken = replace(report, groups=(group, *report.groups[1:]))
    broken = replace(broken, findings=findings(broken))
    assert broken.front.lights[2].colour == "red"


def test_json(known, alone):
    for report in (known, alone):
        document = json.loads(report.to_json(), parse_constant=pytest.fail)
        assert document["rows"] == 4_000
        assert [column["name"] for column in document["columns"]] == ["ill", "age"]
        assert len(document["groups"][0]["tails"]) <= 10
        assert document["findings"][0]["criterion"] == "epsilon"
        assert document["front"]["answer"] == report.front.answer
        colours = [light["colour"] for light in document["front"]["lights"]]
        assert colours[0] in ("red", "amber")  # from the release alone it may not be certain
        assert colours[1:] == ["green", "green"]
        assert document["uniqueness"]["alone"] == report.uniqueness.alone
        assert {link["public"] for link in document["links"]} == {"city", "n", "cost"}
    assert json.loads(known.to_json())["frequencies"] == "raw"
    assert json.loads(alone.to_json())["frequencies"] == "reconstructed"


def test_tables(known, tmp_path):
    path = tmp_path / "audit.duckdb"
    known.write_tables(path)
    with duckdb.connect(str(path), read_only=True) as con:
        groups = con.execute(
            "SELECT count(*), sum(rows), sum(violates::INT), count(exact_lower)"
            " FROM privsql.audit_groups WHERE column_name = 'ill'"
        ).fetchone()
        assert groups == (8, 4_000, known.groups[0].violating[0], len(known.groups[0].tails))
        gamma = con.execute("SELECT gamma FROM privsql.audit_columns WHERE name = 'ill'").fetchone()
        assert gamma[0] == pytest.approx(4)
        assert con.execute("SELECT count(*) FROM privsql.audit_values").fetchone() == (23,)
        found = con.execute("SELECT count(*) FROM privsql.audit_findings").fetchone()
        assert found == (len(known.findings),)
    with pytest.raises(OperationalError, match="exists already"):
        known.write_tables(path)


class Page(HTMLParser):
    """Tags that are open, and every attribute that could fetch something."""

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.fetched = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.fetched += [v for k, v in attributes if k in ("src", "href", "data", "action")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_page_is_whole_and_needs_no_network(known, tmp_path):
    known.html(tmp_path / "audit.html")
    text = (tmp_path / "audit.html").read_text()
    seen = Page()
    seen.feed(text)
    assert seen.open == []
    assert seen.fetched == []
    assert "script" not in seen.seen
    assert not re.search(r"https?:|url\(|@import|nan", text)
    # Uniqueness, width by count and by conditions, caps, tails and utility of both columns.
    assert seen.seen.count("svg") == 8
    assert text.count("<polyline") >= 6
    with pytest.raises(OperationalError, match="exists already"):
        known.html(tmp_path / "audit.html")
    known.html(tmp_path / "audit.html", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["audit.html"]


def test_pictures_of_odd_figures():
    assert "nan" not in chart([Line("a", ((1, 2), (2, float("inf"))))], Axis(1, 2, False, "x"),
                              axis_of([2.0], "y", log=True))  # fmt: skip
    axis = axis_of([0.03, 20.0], "y", log=True)
    assert (axis.low, axis.high) == (0.01, 100)
    assert axis.ticks() == pytest.approx([0.01, 0.1, 1, 10, 100])
    assert axis_of([0.0, 0.9], "y").ticks()[-1] <= 0.9 + 1e-9


def test_widths_by_conditions_begin_with_the_width_of_one():
    one = half_width(600, 2_000, 0.3, 0.25)
    assert half_width_conditions(1, 2_000, 0.3, 0.25, 0.3) == pytest.approx(one)
    widths = [half_width_conditions(k, 2_000, 0.3) for k in range(1, 6)]
    assert widths == sorted(widths)


def test_widths_of_two_conditions_by_simulation():
    rng = np.random.default_rng(9)
    n, p, b = 400, 0.5, 0.3
    states = np.array([[1, 1]] * 100 + [[1, 0]] * 100 + [[0, 1]] * 100 + [[0, 0]] * 100)
    shape = (4_000, n, 2)
    drawn = np.where(rng.random(shape) < p, states, rng.random(shape) < b)
    estimates = ((drawn - (1 - p) * b) / p).prod(axis=2).sum(axis=1)
    assert estimates.mean() == pytest.approx(100, abs=5 * estimates.std() / 4_000**0.5)
    found = half_width_conditions(2, n, p, b, 0.5)
    assert found == pytest.approx(1.96 * estimates.std(), rel=0.06)


def test_a_page_shows_words_and_never_runs_them(known):
    odd = Finding("<b>", "<i>", "note", "<script>alert(1)</script>", "<img src=x>")
    text = page(replace(known, table="<u>", findings=(odd,)))
    seen = Page()
    seen.feed(text)
    assert not {"b", "i", "u", "script", "img"} & set(seen.seen)


# -- the command -----------------------------------------------------------------------------


def run(*arguments):
    main = Commands(name="privsql", commands={"audit": command})
    return CliRunner().invoke(main, ["audit", *map(str, arguments)])


def test_command(clinic, tmp_path):
    done = run(
        *(clinic / "plain.duckdb", "--raw", clinic / "people.csv"),
        *("--html", tmp_path / "a.html", "--tables", tmp_path / "a.duckdb"),
    )
    assert done.exit_code == 0, done.output
    assert "of 8 groups violate it" in done.stdout
    assert (tmp_path / "a.html").exists()
    assert (tmp_path / "a.duckdb").exists()
    done = run(clinic / "plain.duckdb", "--json", "-o", tmp_path / "a.json", "--rho", 0.2, 0.5)
    assert done.exit_code == 0, done.output
    assert done.stdout == ""
    document = json.loads((tmp_path / "a.json").read_text())
    assert document["thresholds"]["rho2"] == 0.5
    done = run(clinic / "plain.duckdb", "--json", "--lambda", 0.5, "--delta", 0.1)
    assert json.loads(done.stdout)["thresholds"]["relative_error"] == 0.5


def test_command_refuses(clinic, tmp_path):
    release = tmp_path / "r.duckdb"
    release.write_bytes((clinic / "plain.duckdb").read_bytes())
    (tmp_path / "there.html").write_text("mine")
    for arguments, words in (
        ((tmp_path / "none.duckdb",), "there is no release"),
        ((release, "--raw", tmp_path / "none.csv"), "there is no file"),
        ((release, "--html", tmp_path / "there.html"), "exists already"),
        ((release, "-o", tmp_path / "no" / "a.txt"), "there is no folder"),
        ((release, "-o", tmp_path), "is a folder"),
        ((release, "--tables", release, "--force"), "would be overwritten"),
        ((release, "--html", tmp_path / "x", "-o", tmp_path / "x"), "have the same name"),
        ((release, "--delta", 2), "must lie strictly between 0 and 1"),
    ):
        done = run(*arguments)
        assert done.exit_code == 1, arguments
        assert words in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    assert (tmp_path / "there.html").read_text() == "mine"
    assert release.read_bytes() == (clinic / "plain.duckdb").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.duckdb", "there.html"]


def test_every_option_is_explained():
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help


def test_an_observed_domain_is_to_be_confirmed(tmp_path):
    pq.write_table(pa.table({"a": ["x"] * 60, "s": ["u", "v", "w"] * 20}), tmp_path / "r.parquet")
    text = spec("t", public("a"), sensitive("s", 0.5, ["u", "v", "w"], observed=True))
    privsql.publish(str(tmp_path / "r.parquet"), tmp_path / "r.duckdb", spec=parse_spec(text))
    light = audit(tmp_path / "r.duckdb").front.lights[1]
    assert light.colour == "amber"
    assert light.change == (
        "list every value that is possible as the domain, and delete observed = true",
    )
