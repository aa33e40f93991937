"""What is wrong in a spec is said with its place and a way out, all of it at once."""
# ruff: noqa: E501, SIM905 - one mistake a line reads best

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsql.release.spec import SpecError, parse_spec, read_spec, refuse_undecided
from tests.release.test_spec import BASE, GOOD, UNIFORM, column_of


def mistakes_of(text):
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    assert str(caught.value).startswith("ERROR 42601 [spec]: ")
    return caught.value.mistakes


def the_mistake(text):
    mistakes = mistakes_of(text)
    assert len(mistakes) == 1, mistakes
    return mistakes[0].shown("spec.toml")


RIGHT = 'retention = 0.5\ndomain = ["a", "b"]\n'

# fmt: off
MISTAKES = [
    # the release
    ('[columns.x]\nrole = "sensitive"\nmechanism = "uniform"\n' + RIGHT, "spec.toml: there is no [release]"),
    (UNIFORM.replace('"t"', '""') + RIGHT, "spec.toml:2 [release] table: must not be empty"),
    (UNIFORM.replace('"t"', "5") + RIGHT, "spec.toml:2 [release] table: must be text, not a number"),
    (UNIFORM.replace('"t"', '"my table"') + RIGHT, "[release] table: must be a name of letters"),
    (UNIFORM.replace('"t"', '"privsql_x"') + RIGHT, "not begin with privsql_"),
    (UNIFORM.replace('table = "t"\n', "") + RIGHT, "spec.toml:1 [release]: needs table"),
    (UNIFORM.replace("table", "tabel") + 'table = "t"\n' + RIGHT, None),
    ("release = 5\n" + '[columns.x]\nrole = "sensitive"\nmechanism = "uniform"\n' + RIGHT, "spec.toml:1 release: must be a table, not a number"),
    # the columns
    ('[release]\ntable = "t"\n', "spec.toml: no column is given"),
    ('[release]\ntable = "t"\n[columns.x]\nrole = "drop"\n', "spec.toml:3 [columns]: no column is sensitive"),
    ('[release]\ntable = "t"\n[columns]\n', "spec.toml:3 [columns]: no column is sensitive"),
    (UNIFORM + RIGHT + "[columns.y]\n", "spec.toml:8 [columns.y]: needs a role (one of"),
    (UNIFORM + RIGHT + '[columns.y]\nrole = "privat"\n', 'spec.toml:9 [columns.y] role: must be one of "drop", "public", "sensitive", not "privat"'),
    (UNIFORM + RIGHT + '[columns.X]\nrole = "drop"\n', 'spec.toml:8 [columns.X]: repeats "x"'),
    (UNIFORM + RIGHT + '[columns.""]\nrole = "drop"\n', 'spec.toml:8 [columns.""]: a column needs a name'),
    (UNIFORM + RIGHT + '[columns.privsql_weight]\nrole = "drop"\n', "none that begins with privsql_"),
    (UNIFORM + RIGHT + '[columns]\ny = "drop"\n', "spec.toml:9 [columns] y: must be a table, not text ([columns.y] and below it role = ...)"),
    (UNIFORM + RIGHT + '[columns.y]\nrole = "public"\nretention = 0.2\n', "spec.toml:10 [columns.y] retention: belongs to a sensitive column, and this one is public"),
    (UNIFORM + RIGHT + '[columns.y]\nrole = "drop"\ngrouping = true\n', "grouping: belongs to a public column, and this one is drop"),
    (UNIFORM + RIGHT + "grouping = true\n", "grouping: belongs to a public column, and this one is sensitive"),
    (UNIFORM + RIGHT + '[columns.y]\nrole = "public"\ngrouping = "false"\n', "must be true or false, not \"false\" (write it as false, without quotes)"),
    (UNIFORM + RIGHT + "retension = 0.4\n", 'spec.toml:8 [columns.x] retension: unknown key (did you mean "retention"?)'),
    (BASE + RIGHT, "spec.toml:3 [columns.x]: a sensitive column needs a mechanism"),
    (BASE + 'mechanism = "unifrom"\n' + RIGHT, 'not "unifrom" (did you mean "uniform"?)'),
    # the domain
    (UNIFORM + "retention = 0.5\n", "spec.toml:3 [columns.x]: a sensitive column needs a domain"),
    (UNIFORM + "retention = 0.5\ndomain = []\n", "spec.toml:7 [columns.x] domain: a categorical domain lists"),
    (UNIFORM + 'retention = 0.5\ndomain = ["a", 1]\n', "values of one kind, not integer, text"),
    (UNIFORM + 'retention = 0.5\ndomain = ["a", "a"]\n', "1 of the 2 categories are repeated"),
    (UNIFORM + "retention = 0.5\ndomain = [0.5, nan]\n", "domain: a float cannot be a category (a number must be finite)"),
    (UNIFORM + "retention = 0.5\ndomain = [0.5, 0.5]\n", "1 of the 2 categories are repeated"),
    (UNIFORM + 'retention = 0.5\ndomain = [0.5, "a"]\n', "values of one kind, not real, text"),
    (UNIFORM + 'retention = 0.5\ndomain = "observd"\n', 'not "observd"'),
    (UNIFORM + "retention = 0.5\ndomain = 5\n", 'must be a list, a range or "observed", not a number'),
    (UNIFORM + "retention = 0.5\ndomain = {}\n", "a range needs lower and upper"),
    (UNIFORM + "retention = 0.5\ndomain = { lower = 1 }\n", "a range needs lower and upper"),
    (UNIFORM + "retention = 0.5\ndomain = { lower = 0, upper = 9, stp = 1 }\n", 'spec.toml:7 [columns.x.domain] stp: unknown key (did you mean "step"?)'),
    (UNIFORM + "retention = 0.5\ndomain = { lower = 0, upper = 10, step = 3 }\n", "(the nearest that fit: 9 and 12)"),
    (UNIFORM + "retention = 0.5\ndomain = { lower = 9, upper = 0 }\n", "lower bound of a grid lies above"),
    (UNIFORM + 'retention = 0.5\ndomain = { lower = 2024-01-01, upper = 2024-12-01, step = "1 fortnight" }\n', "a step of time is a whole number and a unit"),
    (UNIFORM + 'retention = 0.5\ndomain = ["a", "b"]\nnullable = 1\n', "nullable: must be true or false, not 1"),
    # retention, epsilon, rho
    (UNIFORM + 'domain = ["a", "b"]\n', "uniform needs one of retention, epsilon, rho"),
    (UNIFORM + RIGHT + "epsilon = 1\n", "spec.toml:8 [columns.x] epsilon: retention is given already"),
    *[
        (UNIFORM + f'domain = ["a", "b"]\nretention = {value}\n', f"spec.toml:7 [columns.x] retention: {what}")
        for value, what in [
            ("0", "0 keeps nothing"),
            ("-1", "must be above 0 and at most 1"),
            ("2", "must be above 0 and at most 1"),
            ("nan", "must be a finite number"),
            ("inf", "must be a finite number"),
            ("true", "must be a number"),
            ('"0.5"', "must be a number"),
            ("[0.5]", "must be a number"),
            ("1e-300", "is too small"),
        ]
    ],
    *[
        (UNIFORM + f'domain = ["a", "b"]\nepsilon = {value}\n', f"epsilon: {what}")
        for value, what in [
            ("0", "must be above 0"),
            ("-1", "must be above 0"),
            ("31", "must be above 0 and at most 30"),
            ("nan", "must be a finite number"),
            ('"1"', "must be a number"),
            ("6", "epsilon is 6.00: above 5 published values reveal originals (epsilon = 5 or less, or accept"),
        ]
    ],
    *[
        (UNIFORM + f'domain = ["a", "b"]\nrho = {value}\n', f"rho: {what}")
        for value, what in [
            ("0.5", "must be a pair"),
            ("[0.1]", "must be a pair"),
            ("[0.5, 0.1]", "needs 0 < rho1 < rho2 < 1"),
            ("[0, 0.1]", "needs 0 < rho1 < rho2 < 1"),
            ('["a", 0.1]', "rho1 must be a number"),
            ("[1e-320, 0.9999999999999999]", "rho1 and rho2 are too close"),
            ("[0.01, 0.99]", "epsilon is 9.19"),
        ]
    ],
    (BASE + 'mechanism = "swap"\nepsilon = 1\n' + RIGHT, 'epsilon: does not belong to mechanism "swap" (it is for uniform or replace)'),
    (UNIFORM + RIGHT + "group_size = 3\n", 'spec.toml:8 [columns.x] group_size: does not belong to mechanism "uniform" (it is for decoy)'),
    # epsilon above 5
    (UNIFORM + "retention = 1\ndomain = [1, 2]\n", "retention: epsilon is infinite: above 5 published values reveal originals (retention = 0.986 or less would do for 2 values, or accept"),
    (UNIFORM + 'retention = 1\ndomain = "observed"\n', "(choose a retention below 1, or accept it with accept_epsilon = true)"),
    (BASE + 'mechanism = "swap"\nretention = 1\ndomain = "observed"\n', "epsilon is infinite"),
    (UNIFORM + "retention = 0.6\ndomain = { lower = 0, upper = 120 }\n", "epsilon is 5.21: above 5 published values reveal originals (retention = 0.549 or less would do for 121 values, or step = 2 at this retention, or"),
    (UNIFORM + "retention = 0.6\ndomain = { lower = 0, upper = 127 }\n", "or step = 2 with upper = 128 at this retention"),
    (UNIFORM + 'retention = 0.6\ndomain = { lower = 2024-01-01, upper = 2024-12-30, step = "1 day" }\n', 'or step = "4 days" at'),
    (UNIFORM + "retention = 0.2\ndomain = { lower = 0.0, upper = 1000.0, step = 0.01 }\n", "or step = 2.00 at"),
    (BASE + 'mechanism = "replace"\nreplacing = [0.0, 1.0]\n' + RIGHT, "give every value a replacement probability above 0"),
    (BASE + 'mechanism = "replace"\nreplacing = [0.0, 1.0]\nepsilon = 1\ndomain = [1, 2]\n', "epsilon: retention 0 keeps nothing"),
    (BASE + 'mechanism = "matrix"\nmatrix = [[1.0, 0.0], [0.5, 0.5]]\ndomain = [1, 2]\n', "spec.toml:6 [columns.x] matrix: epsilon is infinite"),
    (BASE + 'mechanism = "finegrain"\nrho = [0.01, 0.99]\ndomain = [1, 2]\n', "rho: epsilon is 9.19"),
    # per value
    (BASE + 'mechanism = "replace"\n' + RIGHT, "replace needs replacing"),
    (BASE + 'mechanism = "replace"\nreplacing = [0.5]\n' + RIGHT, "replacing: has 1 entries for 2 values"),
    (BASE + 'mechanism = "replace"\nreplacing = [0.5, 0.6]\n' + RIGHT, "replacing: must sum to 1, and sums to 1.1"),
    (BASE + 'mechanism = "replace"\nreplacing = [0.5, "x"]\n' + RIGHT, 'must be a probability between 0 and 1, not "x"'),
    (BASE + 'mechanism = "replace"\nreplacing = 1\n' + RIGHT, "must be a list in domain order or a table, not a number"),
    (BASE + 'mechanism = "replace"\n' + RIGHT + "[columns.x.replacing]\na = 1.0\n", 'spec.toml:8 [columns.x] replacing: lacks "b"'),
    (BASE + 'mechanism = "replace"\n' + RIGHT + "[columns.x.replacing]\na = 0.5\nb = 0.5\nc = 0\n", "spec.toml:11 [columns.x.replacing] c: unknown key"),
    (BASE + 'mechanism = "replace"\nretention = 0.1\nreplacing = {}\ndomain = { lower = 0, upper = 9 }\n', "write a list in domain order"),
    (BASE + 'mechanism = "replace"\nretention = 0.1\nreplacing = [1.0]\ndomain = "observed"\n', "needs a domain that is listed, not observed"),
    (BASE + 'mechanism = "matrix"\ndomain = [1, 2]\n', "matrix needs matrix"),
    (BASE + 'mechanism = "matrix"\nmatrix = [[1.0]]\ndomain = [1, 2]\n', "has 1 entries for 2 values"),
    (BASE + 'mechanism = "matrix"\nmatrix = [[1.0], [0.5, 0.5]]\ndomain = [1, 2]\n', "matrix must hold numbers, in rows of one length"),
    (BASE + 'mechanism = "matrix"\nmatrix = [[0.5, 0.5], [0.5, 0.5]]\ndomain = [1, 2]\n', "the matrix is singular"),
    (BASE + 'mechanism = "matrix"\nmatrix = [1, 2]\ndomain = [1, 2]\n', None),
    (BASE + 'mechanism = "finegrain"\ndomain = [1, 2]\n', "needs either rho or theta"),
    (BASE + 'mechanism = "finegrain"\nrho = [0.1, 0.2]\ntheta = 3\ndomain = [1, 2]\n', "needs either rho or theta"),
    (BASE + 'mechanism = "finegrain"\nrho = [[0.1, 0.2]]\ndomain = [1, 2]\n', "has 1 entries for 2 values"),
    (BASE + 'mechanism = "finegrain"\ntheta = 1\ndomain = [1, 2]\n', "theta: must be a number above 1, not 1"),
    (BASE + 'mechanism = "finegrain"\ntheta = 2\nfloor = 1\ndomain = [1, 2]\n', "floor: must lie in 0 to below 1"),
    (BASE + 'mechanism = "finegrain"\ntheta = 2\nsides = "up"\ndomain = [1, 2]\n', 'sides: must be one of "both", "upward"'),
    (BASE + 'mechanism = "finegrain"\ntheta = 2\nprior = "rew"\ndomain = [1, 2]\n', 'did you mean "raw"?'),
    (BASE + 'mechanism = "finegrain"\ntheta = 2\nprior = [1]\ndomain = [1, 2]\n', "prior: has 1 entries for 2 values"),
    (BASE + 'mechanism = "finegrain"\nrho = [0.1, 0.2]\ndomain = { lower = 0, upper = 9999999999 }\n', "finegrain takes at most 1048576 values"),
    (BASE + 'mechanism = "decoy"\ndomain = [1, 2]\n', "decoy needs group_size"),
    (BASE + 'mechanism = "decoy"\ngroup_size = 1\ndomain = [1, 2]\n', "must be a whole number of at least 2, not 1"),
    (BASE + 'mechanism = "decoy"\ngroup_size = 2.0\ndomain = [1, 2]\n', "must be a whole number"),
    (BASE + 'mechanism = "decoy"\ngroup_size = 3\ndomain = [1, 2]\n', "is above the number of values, 2"),
    (BASE + 'mechanism = "decoy"\ngroup_size = 2\npartition = "anatomie"\ndomain = [1, 2]\n', 'did you mean "anatomy"?'),
    # the rest
    *[
        (UNIFORM + RIGHT + f"[groups]\n{line}\n", what)
        for line, what in [
            ("significance = 1", "spec.toml:9 [groups] significance: must lie above 0 and below 1, not 1"),
            ('merge = "chi"', 'did you mean "chi2"?'),
            ('from = "row"', 'did you mean "raw"?'),
            ('df = "m-2"', 'df: must be one of "m-1", "m"'),
            ("minimum = -1", "minimum: must be a whole number of at least 0"),
            ("minimum = true", "minimum: must be a whole number of at least 0, not true"),
            ("lambda = 1", "lambda: unknown key (known here"),
        ]
    ],
    *[
        (UNIFORM + RIGHT + f"[protect.reconstruction]\n{lines}\n", what)
        for lines, what in [
            ("lambda = 0\ndelta = 0.3", "spec.toml:9 [protect.reconstruction] lambda: must be a number above 0, not 0"),
            ("lambda = 1\ndelta = 1", "delta: must lie above 0 and below 1"),
            ("delta = 0.1", "[protect.reconstruction]: needs lambda"),
            ('lambda = 1\ndelta = 0.1\ncap = "two"', 'cap: must be one of "grid", "one", "exact"'),
        ]
    ],
    (UNIFORM + RIGHT + "[protect]\n", "[protect]: holds nothing"),
    (BASE + 'mechanism = "swap"\n' + RIGHT + "[protect.reconstruction]\nlambda = 1\ndelta = 0.5\n", "spec.toml:5 [columns.x] mechanism: is incompatible with [protect.reconstruction]"),
    *[
        (UNIFORM + RIGHT + f"[policy]\n{line}\n", what)
        for line, what in [
            ('personal_groups = "refused"', 'did you mean "refuse"?'),
            ("min_rows = 1.5", "min_rows: must be a whole number of at least 0, not 1.5"),
            ("differences = false", 'must be one of "check", "ignore", not false'),
            ('rows = "none"', 'rows: must be one of "deny", "allow"'),
        ]
    ],
    (UNIFORM + RIGHT + "[polcy]\n", 'spec.toml:8 polcy: unknown table (did you mean "policy"?)'),
    ('unit = "row"\n' + UNIFORM + RIGHT, "spec.toml:1 unit: unknown key (it belongs to [release])"),
    *[
        (f'[release]\ntable = "t"\n{lines}\n[columns.x]\nrole = "sensitive"\nmechanism = "uniform"\n' + RIGHT, what)
        for lines, what in [
            ("source = 5", "source: must be a path or a list of paths"),
            ("source = []", "source: must be a path or a list of paths"),
            ('source_table = "t"', "source_table: needs a source"),
            ('source = "a.duckdb::t"\nsource_table = "t"', "source_table: needs a source"),
            ('sources = [["a"], ["b"]]', "sources: needs join beside it"),
            ('join = "id"', "join: needs sources beside it"),
            ('sources = [["a"]]\njoin = "id"', "at least two parts"),
            ('source = "a"\nsources = [["a"], ["b"]]\njoin = "id"', "source is given already"),
            ('unit = "x"', 'unit: "x" identifies a person, and its role is sensitive (write role = "drop" in [columns.x])'),
            ('unit = ""', "unit: must not be empty"),
            ("key = 3", "key: must be text"),
        ]
    ],
    # no TOML at all
    (UNIFORM + "retention = \n", "spec.toml:6: Invalid value"),
    (UNIFORM + RIGHT + "[release]\n", "spec.toml:8: Cannot declare"),
    (UNIFORM + 'x = "abc', "spec.toml:6: "),
    ("a = " + "1" * 5000, "a number has too many digits"),
    ("a = " + "[" * 5000, "nest too deeply"),
]
# fmt: on


@pytest.mark.parametrize(("text", "what"), MISTAKES)
def test_each_mistake_alone(text, what):
    if what is None:
        assert mistakes_of(text)
    else:
        assert what in the_mistake(text)


def test_accepted_epsilon():
    for lines in (
        'mechanism = "uniform"\nretention = 1\ndomain = [1, 2]\n',
        'mechanism = "uniform"\nepsilon = 8\ndomain = [1, 2]\n',
        'mechanism = "swap"\nretention = 1\ndomain = "observed"\n',
    ):
        assert column_of(lines + "accept_epsilon = true\n").accept_epsilon


@pytest.mark.parametrize(("upper", "retention"), [(120, 0.6), (127, 0.6), (10**9, 0.01), (7, 0.98)])
def test_the_advice_for_a_grid_works(upper, retention):
    text = UNIFORM + "retention = {}\ndomain = {{ lower = 0, upper = {}, step = {} }}\n"
    advice = mistakes_of(text.format(retention, upper, 1))[0].suggestion
    smaller = advice.split("retention = ")[1].split()[0]
    parse_spec(text.format(smaller, upper, 1))
    step = advice.split("step = ")[1].split()[0]
    end = advice.split("upper = ")[1].split()[0] if "upper" in advice else upper
    coarse = parse_spec(text.format(retention, end, step)).column("x")
    assert coarse.channel().epsilon <= 5


def test_many_mistakes_at_once_in_the_order_of_their_lines():
    text = (
        GOOD.replace('role = "drop"', 'rol = "drop"')
        .replace("retention = 0.2", "retention = 2")
        .replace("step = 1 }", "step = 7 }")
        .replace("significance = 0.05", "significance = 5")
        .replace("delta = 0.3", "delta = 3")
        .replace('rows = "deny"', 'rows = "denied"')
    )
    mistakes = mistakes_of(text)
    assert [mistake.line for mistake in mistakes] == [7, 8, 19, 26, 30, 34, 39]
    assert [mistake.place for mistake in mistakes] == [
        "[columns.name]",
        "[columns.name] rol",
        "[columns.disease] retention",
        "[columns.age] domain",
        "[groups] significance",
        "[protect.reconstruction] delta",
        "[policy] rows",
    ]


def test_mistakes_of_a_column_without_a_role_are_found_too():
    text = (
        '[release]\ntable = "t"\n[columns.x]\nmechanism = "uniform"\nretention = 3\ndomain = []\n'
    )
    assert [m.line for m in mistakes_of(text)] == [3, 5, 6]


def test_long_lists_of_mistakes_are_cut_in_the_text_only():
    text = UNIFORM + RIGHT + "".join(f"[columns.c{i}]\n" for i in range(250))
    with pytest.raises(SpecError, match="and 150 more") as caught:
        parse_spec(text)
    assert len(caught.value.mistakes) == 250


VARIED = GOOD + "\n".join(
    [
        "[columns.r]",
        'role = "sensitive"',
        'mechanism = "replace"',
        "epsilon = 1",
        "domain = { values = [1, 2], nullable = true }",
        "replacing = { 1 = 0.25, 2 = 0.25, NULL = 0.5 }",
        "[columns.f]",
        'role = "sensitive"',
        'mechanism = "finegrain"',
        "rho = [[0.1, 0.25], [0.2, 0.4]]",
        'prior = "raw"',
        "domain = [true, false]",
        "[columns.m]",
        'role = "sensitive"',
        'mechanism = "matrix"',
        "matrix = [[0.75, 0.25], [0.25, 0.75]]",
        'domain = ["a", "b"]',
        "",
    ]
)
VALUES = st.sampled_from(
    "0 1 -1 2 0.5 nan inf true false '' 'x' 'raw' 'observed' [] [1] [0.1,0.2] [[]] [[0.1,0.2]] {}"
    " {lower=0} {lower=0,upper=1} {lower=[],upper={}} {values=[]} {values={}} 1979-05-27"
    " 07:32:00 1979-05-27T07:32:00Z 1e308 9223372036854775808 ['a',1] [nan] [[nan]] {a=1}".split()
)


@st.composite
def mutated(draw):
    lines = VARIED.splitlines()
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(lines) - 1))
        kind = draw(st.sampled_from(["delete", "value", "key", "copy", "text"]))
        key, _, value = lines[at].partition("=")
        if kind == "delete" and len(lines) > 1:
            del lines[at]
        elif kind == "value":
            lines[at] = f"{key}= {draw(VALUES)}"
        elif kind == "key":
            other = lines[draw(st.integers(0, len(lines) - 1))].partition("=")[0]
            lines[at] = f"{other}={value}" if value else other
        elif kind == "copy":
            lines.insert(draw(st.integers(0, len(lines))), lines[at])
        elif kind == "text":
            lines[at] = draw(st.text(max_size=20))
    return "\n".join(lines)


@settings(max_examples=400, deadline=None)
@given(mutated())
def test_a_mutated_spec_is_read_or_refused(text):
    refused = None
    try:
        spec = parse_spec(text)
    except SpecError as error:
        refused = error
    if refused is not None:
        assert refused.mistakes
        lines = [mistake.line for mistake in refused.mistakes if mistake.line is not None]
        assert lines == sorted(lines)
        assert all(1 <= line <= text.count("\n") + 1 for line in lines)
        assert str(refused)
        return
    assert spec.table
    assert spec.sensitive
    for column in spec.sensitive:
        channel = column.channel()
        if channel is not None and not column.accept_epsilon:
            assert channel.epsilon <= 5 + 1e-6
        assert column.retention is None or 0 < column.retention <= 1


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_any_text_is_read_or_refused(text):
    with pytest.raises(SpecError):
        parse_spec(text)


def test_groups_are_not_capped_over_more_values_than_can_be_counted():
    """It would take all memory before it took any row."""
    text = (
        '[release]\ntable = "t"\n[columns.income]\nrole = "sensitive"\nmechanism = "uniform"\n'
        "retention = 0.0000001\ndomain = { lower = 0, upper = 2_000_000 }\n"
        "[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n"
    )
    with pytest.raises(SpecError, match="takes at most 1048576 values"):
        parse_spec(text)
    assert parse_spec(text.partition("[protect")[0]).sensitive


SHARED = '[release]\ntable = "t"\nepsilon = 3\n'
UNSTATED = '[columns.{}]\nrole = "sensitive"\nmechanism = "uniform"\ndomain = ["a", "b"]\n'


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("bins = 5", "bins: must be a list of numbers or dates (such as"),
        ("bins = []", "bins: must be a list of numbers or dates"),
        ("bins = [1, true]", "bins: must be a list of finite numbers, or of dates"),
        ("bins = [1, inf]", "bins: must be a list of finite numbers, or of dates"),
        ("bins = [1, 2024-01-01]", "bins: must be a list of finite numbers, or of dates"),
        ("bins = [1, 3, 3]", "bins: must rise from each to the next"),
        (
            'cut = "decade"',
            'cut: must be one of "year", "quarter", "month", "week", "day", "hour", or',
        ),
        ("cut = 0", "or a number of characters, not 0"),
        ("cut = true", "or a number of characters, not true"),
        ("top = 0", "top: must be a whole number of at least 1, not 0"),
        ("map = {}", "map: must be a table of values and what they become (such as"),
        ("map = 5", "what they become, not a number"),
        ("map = { a = 5 }", '[columns.y.map] a: must become text, not a number (write "5")'),
        ('map_other = "x"', "map_other: needs map beside it"),
        ('cast = "INTEGR"', 'cast: must be a DuckDB type, not "INTEGR" (such as INTEGER'),
        ('cast = "INTEGER[]"', 'cast: must be a DuckDB type, not "INTEGER[]"'),
        ('cast = "VARCHAR); DROP"', "cast: must be a DuckDB type"),
        ("cast = 5", "cast: must be text, not a number"),
        ("bins = [1]\ncut = 2", "cut: bins is given already (only map and top go together)"),
        ("bins = [1]\ntop = 2", "top: bins is given already"),
        ('accept_unique = "true"', "(write it as true, without quotes)"),
        ("clip = true", "clip: belongs to a sensitive column, and this one is public"),
        ('other = "x"', "other: belongs to a sensitive column, and this one is public"),
        ("observed = true", "observed: belongs to a sensitive column, and this one is public"),
    ],
)
def test_mistakes_in_recoding_a_public_column(text, what):
    whole = UNIFORM + RIGHT + '[columns.y]\nrole = "public"\n' + text + "\n"
    assert what in the_mistake(whole)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (
            RIGHT + "clip = true",
            "clip: moves values to the ends of a range, and this domain is none",
        ),
        ('retention = 0.5\ndomain = "observed"\nclip = true', "clip: moves values to the ends"),
        (RIGHT + 'other = "c"', 'other: "c" is not in the domain (add "c" to the list)'),
        (
            'retention = 0.2\ndomain = { lower = 0, upper = 9 }\nother = "c"',
            "other: is a word of a listed",
        ),
        (RIGHT + "observed = 1", "observed: must be true or false, not 1"),
        (RIGHT + "bins = [1, 2]", "bins: belongs to a public column, and this one is sensitive"),
        (RIGHT + "accept_unique = true", "accept_unique: belongs to a public column"),
        (
            RIGHT + '[columns.y]\nrole = "drop"\ncast = "DATE"',
            "cast: belongs to a column that is published",
        ),
    ],
)
def test_mistakes_in_recoding_a_sensitive_column(text, what):
    assert what in the_mistake(UNIFORM + text + "\n")


@pytest.mark.parametrize(
    ("columns", "what"),
    [
        (
            UNSTATED.format("x") + "epsilon = 3\n" + UNSTATED.format("y"),
            'spec.toml:3 [release] epsilon: the columns that state their own take 3 of 3, and "y" would have none (raise it, or lower theirs)',
        ),
        (
            UNSTATED.format("x") + "epsilon = 4\n",
            "[release] epsilon: the columns that state their own take 4 of 3 (raise",
        ),
        (
            UNSTATED.format("x").replace("uniform", "swap")
            + "retention = 0.5\n"
            + UNSTATED.format("y"),
            "[columns.x] mechanism: has no epsilon, so the release cannot keep to its own, 3",
        ),
        (
            UNSTATED.format("x") + "retention = 1\naccept_epsilon = true\n" + UNSTATED.format("y"),
            "[columns.x] mechanism: has no epsilon",
        ),
        (
            UNSTATED.format("x").replace('["a", "b"]', '"observed"') + "retention = 0.5\n",
            "[columns.x] mechanism: has an epsilon that the spec alone does not tell",
        ),
        (
            UNSTATED.format("x").replace("uniform", "finegrain") + "theta = 2\n",
            "[columns.x] mechanism: has an epsilon that the spec alone does not tell",
        ),
    ],
)
def test_mistakes_in_sharing_out_an_epsilon(columns, what):
    assert what in the_mistake(SHARED + columns)


def test_a_share_above_the_limit_is_a_mistake_of_the_release():
    text = SHARED.replace("3", "12") + UNSTATED.format("x") + UNSTATED.format("y")
    shown = the_mistake(text)
    assert (
        "spec.toml:3 [release] epsilon: gives 2 columns 6 each: epsilon is 6.00: above 5" in shown
    )
    for value in ("0", "-1", "nan", '"3"', "true"):
        assert "epsilon: must be a number above 0" in the_mistake(
            SHARED.replace("3", value) + UNSTATED.format("x")
        )


def test_a_spec_that_is_still_to_be_decided_is_read_and_then_refused():
    text = (
        UNIFORM + RIGHT + '[columns.y]\nrole = "decide"\n[columns.z]\nrole = "decide"\nbins = [1]\n'
    )
    spec = parse_spec(text)
    assert [column.name for column in spec.undecided] == ["y", "z"]
    with pytest.raises(SpecError) as caught:
        refuse_undecided(spec)
    assert str(caught.value).splitlines() == [
        "ERROR 42601 [spec]: 2 columns are still to be decided in spec.toml",
        'spec.toml:8 [columns.y] role: is still to be decided (write "drop" or "public" or "sensitive")',
        'spec.toml:10 [columns.z] role: is still to be decided (write "drop" or "public" or "sensitive")',
    ]
    refuse_undecided(parse_spec(UNIFORM + RIGHT))
    assert parse_spec('[release]\ntable = "t"\n[columns.y]\nrole = "decide"\n').undecided


@pytest.mark.parametrize(
    "text",
    [
        "a" + ".a" * 30_000 + " = 1",
        "[a" + ".a" * 30_000 + "]",
        "[[a" + ". 'a' " * 30_000 + "]]",
        "x = { a" + '."a"' * 30_000 + " = 1 }",
        "x = [1, { b = 1, a" + ".a" * 30_000 + " = 1 }]",
    ],
)
def test_a_key_of_many_parts_is_refused_at_once(text):
    started = time.monotonic()
    shown = the_mistake(GOOD + text)
    assert time.monotonic() - started < 2
    assert "a key has more than 32 parts (the longest has four)" in shown
    assert shown.startswith(f"spec.toml:{GOOD.count(chr(10)) + 1}")


def test_a_text_that_is_no_spec_is_refused_by_its_size(tmp_path):
    big = tmp_path / "big.toml"
    big.write_text("# " + "x" * (1 << 24) + "\n")
    with pytest.raises(SpecError, match="has more than 16,777,216 characters"):
        read_spec(big)
    parse_spec(GOOD + "# " + "x." * 100_000)
    parse_spec(GOOD.replace('"flu"', '"' + "f." * 100 + '"'))
    domain = ", ".join(f"{i}.5" for i in range(200))
    parse_spec(UNIFORM + f"retention = 0.1\ndomain = [{domain}]\n")
