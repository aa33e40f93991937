"""Values that do not fit the spec: all columns at once, by row, before anything is written."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import privsql
from privsql.errors import DataError
from privsql.fronts.cli.main import main
from privsql.publish import misfits as misfits_module
from privsql.publish.misfits import misfits
from privsql.publish.source import open_source
from privsql.release.spec import parse_spec

SPEC = """
[release]
table = "t"
unit = "id"
[columns.id]
role = "drop"
[columns.age]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = { lower = 0, upper = 8, step = 2 }
nullable = true
[columns.ill]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = ["flu", "cold"]
[columns.bmi]
role = "sensitive"
mechanism = "uniform"
retention = 0.5
domain = { lower = 0.0, upper = 9.0, step = 0.5 }
[columns.born]
role = "sensitive"
mechanism = "uniform"
retention = 0.2
domain = { lower = 2000-01-01, upper = 2000-12-31, step = "1 day" }
"""

HEADER = "id,age,ill,bmi,born\n"
GOOD = "{},3,flu,1.5,2000-02-03\n"


def lines(*bad: str, rows: int = 10) -> str:
    return HEADER + "".join(GOOD.format(i) for i in range(rows)) + "".join(f"{b}\n" for b in bad)


def refused(place, text: str, spec: str = SPEC, **options) -> str:
    (place / "rows.csv").write_text(text)
    before = sorted(path.name for path in place.iterdir())
    with pytest.raises(DataError) as caught:
        privsql.publish(
            str(place / "rows.csv"), place / "r.duckdb", spec=parse_spec(spec), seed=1, **options
        )
    assert sorted(path.name for path in place.iterdir()) == before
    return str(caught.value)


BAD = [
    "11,77,plague,1.5,2000-02-03",
    ",3,flu,nan,2000-02-03",
    "13,-5,flu,55.5,1999-02-03",
    "14,77,,inf,2000-02-03",
]


def test_all_columns_are_told_at_once_without_values(tmp_path):
    text = refused(tmp_path, lines(*BAD))
    assert text.splitlines() == [
        "ERROR 22023 [data]: 5 columns have values that do not fit the spec, of 14 rows",
        "  column age: 3 values lie outside the range 0 to 8 (rows 11, 13, 14); widen the range, or"
        " write clip = true to move them to its ends",
        "  column ill: 1 value lies outside the list of 2 values (row 11); add them to the list, or"
        ' write other = "..." with a word of it',
        "  column ill: 1 value is NULL (row 14); write nullable = true, or fill them in the source",
        "  column bmi: 1 value lies outside the range 0.0 to 9.0 (row 13); widen the range, or"
        " write clip = true to move them to its ends",
        "  column bmi: 2 values are not finite numbers (rows 12, 14); make them NULL in the source"
        " and write nullable = true, or drop their rows",
        "  column born: 1 value lies outside the range 2000-01-01 to 2000-12-31 (row 13); widen the"
        " range, or write clip = true to move them to its ends",
        "  column id: 1 row has no unit: the column that identifies the person is NULL (row 12);"
        " drop these rows, or give each its own identifier",
        "HINT: change the spec or the source; nothing was written; --show-values shows values that"
        " do not fit",
    ]


def test_values_are_shown_to_who_asks_for_them(tmp_path):
    text = refused(tmp_path, lines(*BAD), show_values=True)
    assert "    from -5 to 77; such as 77, -5\n" in text
    assert "    from 'plague' to 'plague'; such as 'plague'\n" in text
    assert "    from 1999-02-03 to 1999-02-03; such as 1999-02-03\n" in text
    assert "--show-values" not in text


def test_values_cannot_command_a_terminal_and_are_short(tmp_path):
    bad = "11,3,\x1b[2J" + "x" * 100 + ",1.5,2000-02-03"
    text = refused(tmp_path, lines(bad), show_values=True)
    assert "\x1b" not in text
    assert "'?[2J" + "x" * 36 + "...'" in text


def test_text_among_numbers_is_told_by_its_rows(tmp_path):
    text = refused(tmp_path, lines("11,old,flu,1.5,2000-02-03", "12,3,flu,1.5,soon"))
    assert "column age: 1 value is text that cannot be read as numbers (row 11)" in text
    assert "column born: 1 value is text that cannot be read as dates (row 12)" in text
    assert "soon" not in text


def test_numbers_that_are_text_ask_for_a_cast(tmp_path):
    table = pa.table({"id": [1, 2], "age": ["3", "4"], "ill": ["flu"] * 2, "bmi": [1.5] * 2})
    table = table.append_column("born", pa.array([11_000, 11_001], pa.date32()))
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(DataError, match=r'column age: it is text.*write cast = "BIGINT"'):
        privsql.publish(
            str(tmp_path / "rows.parquet"), tmp_path / "r.duckdb", spec=parse_spec(SPEC), seed=1
        )


def test_a_type_that_no_domain_has(tmp_path):
    table = pa.table({"id": [1, 2], "age": [True, False], "ill": ["flu"] * 2, "bmi": [1.5] * 2})
    table = table.append_column("born", pa.array([11_000, 11_001], pa.date32()))
    pq.write_table(table, tmp_path / "rows.parquet")
    with pytest.raises(
        DataError, match="column age: a column of type bool does not fit an integer"
    ):
        privsql.publish(
            str(tmp_path / "rows.parquet"), tmp_path / "r.duckdb", spec=parse_spec(SPEC), seed=1
        )


CAST = SPEC.replace(
    "domain = { lower = 0, upper = 8", 'cast = "INTEGER"\ndomain = { lower = 0, upper = 8'
)
CAST += """[columns.pay]
role = "public"
grouping = false
cast = "DECIMAL(8, 1)"
"""


def test_casts_that_fail_are_told_with_everything_else(tmp_path):
    """Of sensitive and public columns; a value that was lost in a cast is no NULL."""
    spec = CAST.replace("nullable = true\n", "")
    bad = [
        "11,3.5,plague,1.5,2000-02-03,1.25",
        "12,77,flu,1.5,2000-02-03,1",
        "13,,flu,1,1999-01-01,x",
    ]
    rows = [GOOD.format(i).strip() + ",0.5" for i in range(10)]
    text = "\n".join([HEADER.strip() + ",pay", *rows, *bad, ""])
    said = refused(tmp_path, text, spec)
    assert said.splitlines()[1:-1] == [
        "  column age: 1 value cannot be cast to INTEGER (row 11); cast to a type that holds them,"
        " or clean the source first",
        "  column age: 1 value lies outside the range 0 to 8 (row 12); widen the range, or write"
        " clip = true to move them to its ends",
        "  column age: 1 value is NULL (row 13); write nullable = true, or fill them in the source",
        "  column ill: 1 value lies outside the list of 2 values (row 11); add them to the list, or"
        ' write other = "..." with a word of it',
        "  column born: 1 value lies outside the range 2000-01-01 to 2000-12-31 (row 13); widen the"
        " range, or write clip = true to move them to its ends",
        "  column pay: 2 values cannot be cast to DECIMAL(8,1) (rows 11, 13); cast to a type that"
        " holds them, or clean the source first",
    ]
    shown = refused(tmp_path, text, spec, show_values=True)
    assert "    from 3.5 to 3.5; such as 3.5\n" in shown
    assert "    from '1.25' to 'x'; such as '1.25', 'x'\n" in shown


# More rows than the types of a CSV file are guessed from.
MANY = 21_000


def test_a_type_that_later_rows_do_not_have_is_a_misfit_of_each_column(tmp_path):
    spec = (
        SPEC
        + """[columns.town]
role = "public"
[columns.day]
role = "public"
cut = "year"
"""
    )
    names = HEADER.strip() + ",town,day"
    rows = [f"{GOOD.format(i).strip()},{i % 7},2000-02-03" for i in range(MANY)]
    bad = ["x,old,plague,much,soon,A1,never", "98,77,flu,1.5,2000-02-03,2,2000-12-31"]
    said = refused(tmp_path, "\n".join([names, *rows, *bad, ""]), spec)
    lines = said.splitlines()[1:-1]
    assert [line.partition(";")[0] for line in lines] == [
        "  column age: 1 value cannot be read as BIGINT, the type of its first rows (row 21,001)",
        "  column age: 1 value lies outside the range 0 to 8 (row 21,002)",
        "  column ill: 1 value lies outside the list of 2 values (row 21,001)",
        "  column bmi: 1 value cannot be read as DOUBLE, the type of its first rows (row 21,001)",
        "  column born: 1 value cannot be read as DATE, the type of its first rows (row 21,001)",
        "  column town: 1 value cannot be read as BIGINT, the type of its first rows (row 21,001)",
        "  column day: 1 value cannot be read as DATE, the type of its first rows (row 21,001)",
        "  column id: 1 value cannot be read as BIGINT, the type of its first rows (row 21,001)",
    ]
    assert lines[5].endswith('or write cast = "VARCHAR" to read the column as text')
    assert lines[6].endswith("; correct these in the source")
    assert not any(word in said for word in ("old", "much", "soon", "A1", "never"))
    # What the message says helps.
    mended = "\n".join([names, *rows, bad[1].replace("98,77", "98,7").replace(",2,", ",A1,"), ""])
    (tmp_path / "rows.csv").write_text(mended)
    told = spec.replace("[columns.town]\n", '[columns.town]\ncast = "VARCHAR"\n')
    out = tmp_path / "r.duckdb"
    assert (
        privsql.publish(str(tmp_path / "rows.csv"), out, spec=parse_spec(told), seed=1).rows
        == len(rows) + 1
    )


def test_days_may_be_written_in_a_way_of_their_own(tmp_path):
    spec = """[release]
table = "t"
[columns.day]
role = "sensitive"
mechanism = "uniform"
retention = 0.2
domain = { lower = 2000-01-01, upper = 2000-12-31, step = "1 day" }
"""
    rows = [f"{1 + i % 28:02d}.02.2000" for i in range(MANY)]
    said = refused(
        tmp_path, "\n".join(["day", *rows, "soon", "31.12.2000", "31.12.1999", ""]), spec
    )
    assert [line.partition(";")[0] for line in said.splitlines()[1:-1]] == [
        "  column day: 1 value cannot be read as DATE, the type of its first rows (row 21,001)",
        "  column day: 1 value lies outside the range 2000-01-01 to 2000-12-31 (row 21,003)",
    ]


def test_what_passes_is_what_publishing_takes(tmp_path):
    """Random values around the ends of a grid: found here if and only if codes has none."""
    rng = np.random.default_rng(5)
    age = pa.array(rng.integers(-4, 13, 3000), pa.int32())
    bmi = pa.array(np.round(rng.uniform(-1, 10, 3000), 2))
    table = pa.table({"id": range(3000), "age": age, "ill": ["flu"] * 3000, "bmi": bmi})
    table = table.append_column("born", pa.array([11_000] * 3000, pa.date32()))
    pacsv.write_csv(table, tmp_path / "rows.csv")
    spec = parse_spec(SPEC)
    source = open_source([str(tmp_path / "rows.csv")], text=spec.words)
    found = {each.column: each for each in misfits(source, spec).misfits}
    source.close()
    for name, values in (("age", age), ("bmi", bmi)):
        outside = []
        for i, value in enumerate(values.to_pylist()):
            try:
                spec.column(name).domain.codes([value])
            except DataError:
                outside.append(i + 1)
        assert 0 < len(outside) < 3000
        assert found[name].count == len(outside)
        assert found[name].rows == tuple(outside[:5])
    assert set(found) == {"age", "bmi"}


def test_rows_are_counted_through_all_batches_and_files(tmp_path, monkeypatch):
    monkeypatch.setattr("privsql.publish.source.BATCH", 2048)
    for part in (1, 2):
        text = lines(*["77,77,flu,1.5,2000-02-03"] * (part == 2), rows=5000)
        (tmp_path / f"part{part}.csv").write_text(text)
    source = open_source([str(tmp_path / "part*.csv")])
    checked = misfits(source, parse_spec(SPEC))
    source.close()
    assert checked.rows == 10_001
    (only,) = checked.misfits
    assert (only.count, only.rows) == (1, (10_001,))


def test_the_command_shows_values_only_where_asked(tmp_path):
    (tmp_path / "spec.toml").write_text(SPEC)
    (tmp_path / "rows.csv").write_text(lines("11,3,plague,1.5,2000-02-03"))
    command = ["publish", str(tmp_path / "spec.toml"), "--source", str(tmp_path / "rows.csv")]
    command += ["-o", str(tmp_path / "r.duckdb")]
    for more, shown in (([], False), (["--show-values"], True)):
        done = CliRunner().invoke(main, [*command, *more])
        assert done.exit_code == 1
        assert "column ill: 1 value lies outside the list of 2 values (row 11)" in done.stderr
        assert ("plague" in done.stderr) == shown
    assert not (tmp_path / "r.duckdb").exists()


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        ("{ lower = 0, upper = 8, step = 2 }", pa.array([0, 3, 8, None], pa.int32())),
        ("{ lower = 0, upper = 8, step = 2 }", pa.array([0, 9, 3], pa.uint8())),
        ("{ lower = 0, upper = 8, step = 2 }", pa.array([0, -2, 3], pa.int64())),
        ("{ lower = 0.0, upper = 9.0, step = 0.5 }", pa.array([0.1, 9.2, -0.2], pa.float64())),
        ("{ lower = 0.0, upper = 9.0, step = 0.5 }", pa.array([0.1, 9.3], pa.float64())),
        ("{ lower = 0.0, upper = 9.0, step = 0.5 }", pa.array([1.0, np.nan, 2.0], pa.float64())),
        ("{ lower = 0.0, upper = 9.0, step = 0.5 }", pa.array([1.0, -np.inf], pa.float32())),
        ("{ lower = 2000-01-01, upper = 2000-12-31, step = '1 month' }", pa.array([10957, 11322],
                                                                                 pa.date32())),
        ("{ lower = 2000-01-01, upper = 2000-12-31, step = '1 month' }", pa.array([10956, 11322],
                                                                                 pa.date32())),
        ("{ lower = 0, upper = 8 }", pa.array([None, None], pa.int32())),
        ("{ lower = 0, upper = 8 }", pa.array([], pa.int32())),
        ("['flu', 'cold']", pa.array(["flu", "gout"])),
    ],
)  # fmt: skip
@pytest.mark.parametrize("nullable", [True, False])
def test_the_ends_of_a_column_tell_what_a_pass_over_its_values_finds(
    tmp_path, domain, values, nullable, monkeypatch
):
    spec = parse_spec(
        '[release]\ntable = "t"\n[columns.x]\nrole = "sensitive"\nmechanism = "uniform"\n'
        f"retention = 0.5\ndomain = {domain}\nnullable = {str(nullable).lower()}\n"
        '[columns.age]\nrole = "sensitive"\nmechanism = "uniform"\nretention = 0.5\n'
        "domain = { lower = 0, upper = 9 }\n"
    )
    table = pa.table({"x": values, "age": pa.array([1] * len(values), pa.int32())})
    pq.write_table(table, tmp_path / "rows.parquet")
    source = open_source([str(tmp_path / "rows.parquet")])
    quick = misfits(source, spec, before=3)
    monkeypatch.setattr(misfits_module, "_unsettled", lambda source, looks: (None, looks))
    whole = misfits(source, spec, before=3)
    assert quick == whole
    assert whole.rows == len(values)
