"""The spec: what is right is read as it was meant."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta

import pytest

from privsql.channels import Categorical, Grid, Replace, Uniform
from privsql.errors import OperationalError, ProgrammingError
from privsql.release.columns import FineGrainSpec
from privsql.release.reading import lines_of
from privsql.release.recoding import Recoding
from privsql.release.spec import (
    ColumnSpec,
    GroupsSpec,
    Mistake,
    PolicySpec,
    ProtectSpec,
    SpecError,
    check_source_columns,
    parse_spec,
    read_spec,
    with_domain,
)

# The example of the design's surface page, word for word.
GOOD = """\
[release]
table  = "patients"
source = "patients.parquet"            # CSV, Parquet, or table in a DuckDB file; the command line can override it
unit   = "patient_id"                  # the person; dropped. Default "row": one row a person, and it says so
key    = "clinic.key"                  # from `privsql key new`: the same key repeats the same draws. Without one: a one-off, and it says so

[columns.name]
role = "drop"                          # never leaves
[columns.gender]
role = "public"
[columns.job]
role = "public"
[columns.cost]
role = "public"
grouping = false                       # a measure: it does not tell personal groups apart
[columns.disease]
role = "sensitive"
mechanism = "uniform"                  # uniform | replace | identity | swap | finegrain | matrix | decoy
retention = 0.2
# accept_epsilon = true                # needed where the column's epsilon is above 5, so also for retention 1
domain = ["flu", "hiv", "none"]        # or "observed": taken from the data, with a warning
[columns.age]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = { lower = 0, upper = 120, step = 1 }    # the grid; numbers, dates and timestamps alike (step = "1 day")

[groups]
merge = "chi2"                         # or "none"
significance = 0.05
from = "published"                     # or "raw", the papers' way: costs the release its epsilon
[protect.reconstruction]               # SPS
lambda = 0.3
delta = 0.3
[policy]
personal_groups = "refuse"             # refuse | flag | allow; with [protect.reconstruction] the default is flag
min_rows = 10                          # sensitive answers over fewer rows are refused (0: off)
differences = "check"                  # behind serve; or "ignore"
rows = "deny"                          # allow: SELECT of published rows
"""  # noqa: E501

BASE = """\
[release]
table = "t"
[columns.x]
role = "sensitive"
"""
UNIFORM = BASE + 'mechanism = "uniform"\n'


def dropped(spec) -> list[str]:
    return [column.name for column in spec.columns if column.role == "drop"]


def column_of(text, name="x"):
    return parse_spec(BASE + text).column(name)


def the_mistake(text):
    with pytest.raises(SpecError) as caught:
        parse_spec(text)
    (mistake,) = caught.value.mistakes
    return mistake.shown("spec.toml")


def test_the_example_of_the_surface_page():
    spec = parse_spec(GOOD)
    assert (spec.table, spec.source, spec.unit, spec.key) == (
        "patients",
        ("patients.parquet",),
        "patient_id",
        "clinic.key",
    )
    assert [c.name for c in spec.sensitive] == ["disease", "age"]
    assert [c.name for c in spec.public] == ["gender", "job", "cost"]
    assert dropped(spec) == ["name", "patient_id"]
    assert [c.grouping for c in spec.public] == [True, True, False]
    assert spec.column("DISEASE") == ColumnSpec(
        "disease",
        "sensitive",
        mechanism="uniform",
        retention=0.2,
        domain=Categorical(("flu", "hiv", "none")),
    )
    assert spec.column("age").domain == Grid.of(0, 120)
    assert spec.column("age").channel() == Uniform(0.5, 121)
    assert spec.groups == GroupsSpec()
    assert spec.protect == ProtectSpec(0.3, 0.3)
    assert spec.policy == PolicySpec("refuse", 10, "check", "deny")
    check_source_columns(spec, ["Name", "gender", "job", "cost", "disease", "age", "PATIENT_ID"])


def test_defaults():
    spec = parse_spec(UNIFORM + 'retention = 0.5\ndomain = ["a", "b"]\n')
    assert (spec.source, spec.unit, spec.key, spec.join, spec.protect) == (
        (),
        "row",
        None,
        None,
        None,
    )
    assert spec.policy == PolicySpec()
    assert not dropped(spec)
    guarded = parse_spec(
        UNIFORM + 'retention = 0.5\ndomain = ["a", "b"]\n'
        "[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\n"
    )
    assert guarded.policy.personal_groups == "flag"


def test_unknown_column_asked_of_a_spec():
    with pytest.raises(ProgrammingError, match='did you mean "disease"'):
        parse_spec(GOOD).column("diseas")


@pytest.mark.parametrize(
    ("text", "domain"),
    [
        ("[true, false]", Categorical((True, False))),
        ("[1, 2, 3]", Categorical((1, 2, 3))),
        ("[2024-01-01, 2024-02-01]", Categorical((date(2024, 1, 1), date(2024, 2, 1)))),
        ('{ values = ["a", "b"], nullable = true }', Categorical(("a", "b"), nullable=True)),
        ('["a", "b"]\nnullable = true', Categorical(("a", "b"), nullable=True)),
        ("{ lower = 0, upper = 9, nullable = true }", Grid.of(0, 9, nullable=True)),
        ("{ lower = 0, upper = 1.0, step = 0.1 }", Grid.of(0.0, 1.0, 0.1)),
        (
            '{ lower = 2024-01-01, upper = 2024-01-29, step = "1 week" }',
            Grid.of(date(2024, 1, 1), date(2024, 1, 29), "1 week"),
        ),
        (
            '{ lower = 2024-01-01T00:00:00, upper = 2024-01-02T00:00:00, step = "1 hour" }',
            Grid.of(datetime(2024, 1, 1), datetime(2024, 1, 2), timedelta(hours=1)),
        ),
    ],
)
def test_domains(text, domain):
    column = column_of(f'mechanism = "uniform"\nretention = 0.1\ndomain = {text}\n')
    assert column.domain == domain
    assert column.nullable == domain.nullable
    assert not column.observed


@pytest.mark.parametrize("text", ['"observed"', '{ values = "observed" }'])
def test_observed_domains_wait(text):
    column = column_of(f'mechanism = "uniform"\nepsilon = 1\nnullable = true\ndomain = {text}\n')
    assert column.observed
    assert column.nullable
    assert (column.domain, column.retention, column.wanted_epsilon) == (None, None, 1.0)
    done = with_domain(column, Categorical(("a", "b"), nullable=True))
    assert done.conversion == "epsilon = 1 over 3 values is retention 0.364"
    assert done.retention == Uniform.from_epsilon(1.0, 3).retention
    assert (done.wanted_epsilon, done.observed) == (None, True)


def test_observed_domain_that_is_too_small_or_too_large():
    decoy = column_of('mechanism = "decoy"\ngroup_size = 5\ndomain = "observed"\n')
    with pytest.raises(SpecError, match="group_size: is above the number of values, 2"):
        with_domain(decoy, Categorical(("a", "b")))
    uniform = column_of('mechanism = "uniform"\nretention = 0.9\ndomain = "observed"\n')
    with pytest.raises(SpecError, match=r"spec.toml:3 .*epsilon is 6.8"):
        with_domain(uniform, Grid.of(0, 99))


@pytest.mark.parametrize("size", [2, 3, 50])
@pytest.mark.parametrize("epsilon", [0.01, 1, 5])
def test_epsilon_becomes_the_largest_retention(size, epsilon):
    column = column_of(
        f'mechanism = "uniform"\nepsilon = {epsilon}\ndomain = {{ lower = 1, upper = {size} }}\n'
    )
    assert column.retention == pytest.approx(Uniform.from_epsilon(epsilon, size).retention)
    assert column.channel().epsilon == pytest.approx(epsilon)


def test_rho_becomes_the_largest_retention():
    column = column_of('mechanism = "uniform"\nrho = [0.1, 0.25]\ndomain = ["a", "b", "c"]\n')
    assert column.retention == pytest.approx(Uniform.from_rho(0.1, 0.25, 3).retention)
    assert column.conversion == "rho = [0.1, 0.25] over 3 values is retention 0.4"
    for name in ("identity", "swap"):
        column = column_of(f'mechanism = "{name}"\nrho = [0.1, 0.55]\ndomain = "observed"\n')
        assert column.retention == pytest.approx(0.5)  # rho1 = (rho2 - p)/(1 - p)
        assert column.conversion == "rho = [0.1, 0.55] is retention 0.5"


@pytest.mark.parametrize(
    "replacing",
    ["replacing = [0.2, 0.3, 0.5]", "[columns.x.replacing]\nb = 0.3\nNULL = 0.5\na = 0.2"],
)
def test_replace_takes_a_list_or_a_table(replacing):
    column = column_of(
        'mechanism = "replace"\nepsilon = 2\ndomain = ["a", "b"]\nnullable = true\n' + replacing
    )
    assert column.replacing == (0.2, 0.3, 0.5)
    assert column.channel().epsilon == pytest.approx(2)
    assert column.channel() == Replace(column.retention, [0.2, 0.3, 0.5])


def test_tables_by_value_of_other_kinds():
    column = column_of(
        'mechanism = "replace"\nretention = 0.2\ndomain = [true, false]\n'
        "replacing = { false = 0.4, true = 0.6 }\n"
    )
    assert column.replacing == (0.6, 0.4)
    column = column_of(
        'mechanism = "replace"\nretention = 0.2\ndomain = [2024-01-01, 2024-02-01]\n'
        "replacing = { 2024-01-01 = 0.4, 2024-02-01 = 0.6 }\n"
    )
    assert column.replacing == (0.4, 0.6)


def test_matrix():
    column = column_of(
        'mechanism = "matrix"\ndomain = ["a", "b"]\nmatrix = [[0.75, 0.25], [0.25, 0.75]]\n'
    )
    assert column.matrix == ((0.75, 0.25), (0.25, 0.75))
    assert column.channel().gamma == pytest.approx(3)


def test_finegrain():
    domain = 'mechanism = "finegrain"\ndomain = ["a", "b"]\n'
    assert column_of(domain + "rho = [0.1, 0.25]\n").finegrain == FineGrainSpec(
        rho=((0.1, 0.25), (0.1, 0.25))
    )
    column = column_of(
        domain
        + 'sides = "upward"\nfloor = 0\nprior = { b = 0.25, a = 0.75 }\n'
        + "[columns.x.rho]\nb = [0.1, 0.2]\na = [0.3, 0.6]\n"
    )
    assert column.finegrain == FineGrainSpec(
        rho=((0.3, 0.6), (0.1, 0.2)),
        sides="upward",
        floor=0.0,
        prior=(0.75, 0.25),
        prior_from="given",
    )
    column = column_of(domain + 'theta = 3\nprior = "raw"\n')
    assert column.finegrain == FineGrainSpec(theta=3.0, prior_from="raw")
    waits = column_of('mechanism = "finegrain"\ndomain = "observed"\nrho = [0.1, 0.25]\n')
    assert waits.finegrain.rho == ((0.1, 0.25),)
    done = with_domain(waits, Categorical(("a", "b", "c")))
    assert done.finegrain.rho == ((0.1, 0.25),) * 3


def test_decoy_groups_protect_policy():
    spec = parse_spec(
        BASE
        + 'mechanism = "decoy"\ngroup_size = 2\npartition = "anatomy"\ndomain = ["a", "b", "c"]\n'
        '[groups]\nmerge = "none"\nsignificance = 0.01\nfrom = "raw"\ndf = "m"\nminimum = 30\n'
        '[policy]\npersonal_groups = "allow"\nmin_rows = 0\ndifferences = "ignore"\n'
        'rows = "allow"\n'
    )
    assert (spec.column("x").group_size, spec.column("x").partition) == (2, "anatomy")
    assert spec.groups == GroupsSpec("none", 0.01, "raw", "m", 30)
    assert spec.policy == PolicySpec("allow", 0, "ignore", "allow")
    spec = parse_spec(
        UNIFORM + "retention = 0.5\ndomain = [1, 2]\n[protect.reconstruction]\nlambda = 0.3\n"
        'delta = 0.2\ncap = "exact"\nscaling = "duplicate"\nfrom = "raw"\n'
    )
    assert spec.protect == ProtectSpec(0.3, 0.2, "exact", "duplicate", "raw")


def release(text):
    return parse_spec(
        f'[release]\ntable = "t"\n{text}\n[columns.x]\nrole = "sensitive"\nmechanism = "uniform"\n'
        "retention = 0.5\ndomain = [1, 2]\n"
    )


def test_sources():
    assert release('source = ["a.csv", "b/*.csv"]').source == ("a.csv", "b/*.csv")
    assert release('source = "a.duckdb"\nsource_table = "raw t"').source == ("a.duckdb::raw t",)
    assert release('source = "a.duckdb::t"').source == ("a.duckdb::t",)
    spec = release('sources = [["a1.csv", "a2.csv"], "b.csv"]\njoin = "id"')
    assert spec.sources_joined == (("a1.csv", "a2.csv"), ("b.csv",))
    assert spec.source == ()
    assert dropped(spec) == ["id"]


@pytest.mark.parametrize("name", ["weird name", 'a "quoted" one', "select", "a.b", "größe", "#=[]"])
def test_any_column_name(name):
    key = '"' + name.replace('"', '\\"') + '"'
    good = f'mechanism = "uniform"\nretention = 0.5\ndomain = [1, 2]\n[columns.{key}]\n'
    spec = parse_spec(BASE + good + 'role = "public"\n')
    assert spec.column(name).role == "public"
    check_source_columns(spec, ["x", name])
    mistake = the_mistake(BASE + good + 'role = "pubic"\n')
    assert mistake.startswith("spec.toml:9 [columns.")


def test_names_that_differ_in_the_case_of_other_letters_are_two():
    spec = parse_spec(
        UNIFORM + 'retention = 0.5\ndomain = [1, 2]\n[columns."É"]\nrole = "drop"\n'
        '[columns."é"]\nrole = "drop"\n'
    )
    assert len(spec.columns) == 3


def test_source_columns():
    spec = parse_spec(GOOD)
    with pytest.raises(SpecError) as caught:
        check_source_columns(spec, ["name", "gender", "jobs", "cost", "age", "disease", "zip code"])
    assert caught.value.mistakes == (
        Mistake("[release] unit", 4, 'the source has no column "patient_id"'),
        Mistake("[columns.job]", 11, 'the source has no column "job"', 'did you mean "jobs"?'),
        Mistake(
            "[columns.jobs]",
            None,
            "this column of the source has no role",
            'add [columns.jobs] with role = "drop" or "public" or "sensitive"',
        ),
        Mistake(
            '[columns."zip code"]',
            None,
            "this column of the source has no role",
            'add [columns."zip code"] with role = "drop" or "public" or "sensitive"',
        ),
    )


def test_ten_thousand_columns():
    wide = "".join(f'[columns."c {i}"]\nrole = "public"\n' for i in range(10_000))
    spec = parse_spec(UNIFORM + "retention = 0.5\ndomain = [1, 2]\n" + wide)
    assert len(spec.public) == 10_000
    check_source_columns(spec, ["x", *(f"C {i}" for i in range(10_000))])
    with pytest.raises(SpecError) as caught:
        check_source_columns(replace(spec, columns=spec.sensitive), [c.name for c in spec.columns])
    assert len(caught.value.mistakes) == 10_000


def test_files(tmp_path):
    path = tmp_path / "clinic.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    spec = read_spec(path)
    assert spec == parse_spec(GOOD)
    assert spec.name == "clinic.toml"
    path.write_bytes(b"[release]\ntable = '\xff'\n")
    with pytest.raises(SpecError, match=r"clinic\.toml:2: is not UTF-8"):
        read_spec(str(path))
    for missing in (tmp_path / "no.toml", tmp_path, "a\0b"):
        with pytest.raises(OperationalError, match="cannot be read"):
            read_spec(missing)


def test_lines_are_found_in_odd_texts():
    text = "\n".join(
        [
            "# [no]",
            "a.b = 1 # c = 2",
            'd = """',
            "e = 5",
            '"""',
            "[ x . 'y z' ]  # [w]",
            "f = [ 1, # ]",
            "  2 ]",
            '"g = h" = { i = 1 }',
            "[[k]]",
            "l = '#'",
            "m = 2",
        ]
    )
    assert lines_of(text) == {
        ("a",): 2,
        ("a", "b"): 2,
        ("d",): 3,
        ("x",): 6,
        ("x", "y z"): 6,
        ("x", "y z", "f"): 7,
        ("x", "y z", "g = h"): 9,
        ("k",): 10,
        ("k", "l"): 11,
        ("k", "m"): 12,
    }


def test_an_epsilon_of_the_release_is_shared_out():
    text = '[release]\ntable = "t"\nepsilon = 3\n'
    two = [f'[columns.{n}]\nrole = "sensitive"\nmechanism = "uniform"\n' for n in "xy"]
    listed = 'domain = ["a", "b", "c"]\n'
    spec = parse_spec(text + two[0] + listed + two[1] + listed)
    assert spec.epsilon == 3
    for column in spec.sensitive:
        assert column.channel().epsilon == pytest.approx(1.5)
        assert column.conversion == (
            "epsilon = 1.5 (half of the release's 3) over 3 values is retention 0.537"
        )
    spec = parse_spec(text + two[0] + listed + two[1] + listed + "epsilon = 1\n")
    assert [c.channel().epsilon for c in spec.sensitive] == pytest.approx([2, 1])
    assert "(all of what others leave of the release's 3)" in spec.column("x").conversion
    # An observed domain gets its share when it is known.
    spec = parse_spec(text + two[0] + 'domain = "observed"\n' + two[1] + listed)
    assert spec.column("x").wanted_epsilon == 1.5
    known = with_domain(spec.column("x"), Categorical(("a", "b")))
    assert known.channel().epsilon == pytest.approx(1.5)
    assert known.conversion.startswith("epsilon = 1.5 (half of the release's 3) over 2 values")


UNI = 'mechanism = "uniform"\n'
PUBLIC = 'retention = 0.5\ndomain = [1, 2]\n[columns.y]\nrole = "public"\n'


def test_numbers_can_be_listed_however_they_are_written():
    assert column_of(UNI + "retention = 0.5\ndomain = [1.0, 2.0]\n").domain == Categorical((1, 2))
    spec = column_of(UNI + "retention = 0.5\ndomain = [1, 2.5]\n")
    assert spec.domain == Categorical((1.0, 2.5))
    long = column_of(UNI + "retention = 0.5\ndomain = [9007199254740993, 2.0]\n")
    assert long.domain == Categorical((9007199254740993, 2))
    assert spec.domain.kind == "real"


def test_recoding_is_read():
    def recoding(text):
        return column_of(
            'mechanism = "uniform"\n'
            + 'retention = 0.5\ndomain = [1, 2]\n[columns.y]\nrole = "public"\n'
            + text,
            "y",
        )

    assert recoding("bins = [0, 18, 30.5]\n").recoding == Recoding(bins=(0, 18, 30.5))
    assert recoding("bins = [2024-01-01]\n").recoding == Recoding(bins=(date(2024, 1, 1),))
    assert recoding('cut = "month"\n').recoding == Recoding(cut="month")
    assert recoding("cut = 2\n").recoding == Recoding(cut=2)
    assert recoding('cast = "int"\n').recoding == Recoding(cast="INTEGER")
    assert recoding('cast = "decimal(10,2)"\ntop = 3\n').recoding == Recoding(
        cast="DECIMAL(10,2)", top=3
    )
    both = recoding('top = 3\nmap = { a = "x" }\nmap_other = "y"\naccept_unique = true\n')
    assert both.recoding == Recoding(mapping=(("a", "x"),), map_other="y", top=3)
    assert both.accept_unique
    column = column_of(
        'mechanism = "uniform"\n'
        + "retention = 0.2\ndomain = { lower = 0, upper = 9 }\nclip = true\n"
    )
    assert column.recoding.clip
    assert not column.observed
    column = column_of(
        'mechanism = "uniform"\n'
        + 'retention = 0.2\ndomain = ["a", "b"]\nother = "b"\nobserved = true\n'
    )
    assert (column.recoding.other, column.observed) == ("b", True)
