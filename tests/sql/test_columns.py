"""One alphabet of columns: each word has one meaning, and nobody else makes or reads names."""

import re
from pathlib import Path

import privsql
from privsql.sql.reconstruct import columns

PACKAGE = Path(privsql.__file__).parent


def test_a_name_belongs_to_one_family():
    words = [family.word for family in columns.ALL]
    assert len(set(words)) == len(words)
    names = [family(*numbers) for family in columns.ALL for numbers in ((0,), (12,), (3, 4))]
    for name in names:
        owners = [family for family in columns.ALL if family.numbers(name) is not None]
        assert len(owners) == 1, name


def test_each_family_says_what_it_means():
    assert all(len(family.meaning.split()) >= 3 for family in columns.ALL)
    assert len({family.meaning for family in columns.ALL}) == len(columns.ALL)


def test_totals_come_first_and_aggregates_in_order():
    one, two = columns.AGGREGATE(1), columns.AGGREGATE(0)
    assert columns.covariance_of(one, two) == columns.COVARIANCE(0, 1)
    total = columns.TOTAL(3)
    assert columns.covariance_of(one, total) == columns.covariance_of(total, one)
    assert columns.effective_of(one) == columns.EFFECTIVE(1)
    assert columns.effective_of(total) not in {columns.EFFECTIVE(3), total}


def test_nobody_else_makes_or_reads_such_names():
    """No letter with a number behind it, and no meaning out of a name's first letter."""
    made = re.compile(r"""f"[a-z]{1,3}\{[^}]*\}(?:_\{[^}]*\})?"[,)\]]""")
    read = re.compile(r"""(?:name|alias)(?:\.startswith\("[a-z]"\)|\[0\] in|\[:?[12]:?\])""")
    words = "|".join(re.escape(family.word) for family in columns.ALL)
    spelled = re.compile(rf"""["'](?:{words})\d+(?:_\d+)*["']""")
    wrong = []
    for path in [*PACKAGE.glob("sql/**/*.py"), *PACKAGE.glob("fronts/*.py")]:
        if path.name == "columns.py" or "postgres" in str(path):
            continue
        for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if spelled.search(line) or read.search(line) or made.search(line):
                wrong.append(f"{path.name}:{n}: {line.strip()}")
    assert not wrong, "\n".join(wrong)


def test_the_sql_of_a_count_reads_in_words(tmp_path):
    from privsql.session.session import Session
    from tests.sql.clinic import publish

    session = Session(publish(tmp_path, 0.5))
    text = "SELECT job, COUNT(*) AS n FROM patients WHERE disease = 'flu' GROUP BY job"
    shown = str(session.run(f"EXPLAIN RECONSTRUCTION {text}").table.to_pylist())
    session.close()
    short = set(re.findall(r'AS \\?"([a-z]{1,2}\d*(?:_\d+)?)\\?"', shown))
    # What the analyst called it, the normal quantile, and the published table.
    assert not short - {"n", "z", "t"}, short
