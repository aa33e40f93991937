"""Parameters, inputs and mistakes."""

from __future__ import annotations

from contextlib import closing
from datetime import date, datetime

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import privsql
from privsql.learn import DecisionTreeClassifier, NaiveBayes
from privsql.learn.features import Condition, Feature
from privsql.session.session import Session
from tests.learn.made import DOMAINS, people, release

BOTH = [DecisionTreeClassifier, NaiveBayes]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return release(tmp_path_factory.mktemp("use"), people(3000), sensitive=DOMAINS, retention=1)


@pytest.fixture(scope="module")
def fitted(path):
    return DecisionTreeClassifier(max_depth=2, cuts=4).fit(path, target="state")


def test_every_form_of_original_values_gives_the_same(fitted, path):
    columns = people(50, seed=8)
    expected = fitted.predict_proba(columns)
    assert expected.shape == (50, 3)
    frame = pd.DataFrame(columns)
    frame["job"] = frame["job"].astype("category")
    upper = {name.upper(): list(column) for name, column in columns.items()}
    for given in (frame, pa.table(columns), upper):
        assert (fitted.predict_proba(given) == expected).all()
    assert fitted.predict(columns).tolist() == fitted.classes_[expected.argmax(axis=1)].tolist()
    with closing(Session(path)) as held:
        again = DecisionTreeClassifier(max_depth=2, cuts=4).fit(held, target="STATE")
    assert (again.predict_proba(columns) == expected).all()


def test_conditions_on_null_and_times():
    values = [1, None, float("nan"), 3, pd.NA, pd.NaT]
    at_most = Condition("x", "<=", 2)
    assert at_most.mask(values).tolist() == [True, False, False, False, False, False]
    assert at_most.other().mask(values).tolist() == [False, True, True, True, True, True]
    null = Condition("x", "=", None)
    assert null.sql() == ('"x" IS NULL', [])
    assert null.other().sql() == ('"x" IS NOT NULL', [])
    assert null.mask(values).tolist() == [False, True, True, False, True, True]
    assert str(null.other()) == "x <> NULL"
    day = Condition("d", "<=", date(2024, 5, 1))
    moments = [datetime(2024, 5, 1, 13), pd.Timestamp("2024-05-02"), date(2024, 4, 1), None]
    assert day.mask(moments).tolist() == [True, False, True, False]
    assert Feature("x", (2, 5)).bucket([2, 3, 6, None]) == [0, 1, 2, 2]
    assert Condition('a"b', "=", "x").sql() == ('("a""b" = ?) IS TRUE', ["x"])


def test_null_is_a_category_and_no_class(tmp_path):
    rng = np.random.default_rng(2)
    job = rng.choice(["a", "b"], 4000).astype(object)
    job[::4] = None
    state = np.where(job == None, "ill", "well").astype(object)  # noqa: E711
    state[:100] = None
    columns = {"job": job.tolist(), "state": state.tolist(), "city": ["n", "s"] * 2000}
    domains = {"job": ["a", "b"], "state": ["ill", "well"]}
    path = release(tmp_path, columns, sensitive=domains, retention=1)
    tree = DecisionTreeClassifier(max_depth=1).fit(path, target="state")
    assert str(tree.tree_.split.condition) == "job = NULL"
    assert tree.tree_.counts == (975, 2925)
    assert tree.predict({"job": ["a", None], "city": ["n", "n"]}).tolist() == ["well", "ill"]
    model = NaiveBayes().fit(path, target="state")
    assert model.predict({"job": ["a", None], "city": ["n", "n"]}).tolist() == ["well", "ill"]


def test_dates_and_truths(tmp_path):
    days = [date(2024, 1, 1 + i % 28) for i in range(3000)]
    columns = {"day": days, "late": [day.day > 12 for day in days], "x": ["a", "b"] * 1500}
    path = release(tmp_path, columns, sensitive={"x": ["a", "b"]}, retention=0.5)
    tree = DecisionTreeClassifier(max_depth=2).fit(path, target="late", features=["day"])
    assert tree.predict({"day": [date(2024, 1, 2), date(2024, 1, 25)]}).tolist() == [False, True]
    frame = pd.DataFrame({"day": pd.to_datetime(days[:40]), "late": columns["late"][:40]})
    assert tree.score(frame) > 0.9


def test_parameters():
    tree = DecisionTreeClassifier(criterion="entropy", min_rows=20)
    assert tree.get_params() == {
        "criterion": "entropy",
        "max_depth": 5,
        "min_rows": 20,
        "confidence": 0.95,
        "cuts": 8,
    }
    assert tree.set_params(max_depth=2) is tree
    assert tree.max_depth == 2
    with pytest.raises(privsql.ProgrammingError, match="no parameter depth"):
        tree.set_params(max_depth=4, depth=3)
    assert tree.max_depth == 2
    assert DecisionTreeClassifier(**tree.get_params()).get_params() == tree.get_params()
    shown = "NaiveBayes(alpha=2, estimator='inversion', cuts=8, shrink=True)"
    assert repr(NaiveBayes(alpha=2)) == shown


@pytest.mark.parametrize(
    ("kind", "parameters", "words"),
    [
        (DecisionTreeClassifier, {"criterion": "best"}, "criterion"),
        (DecisionTreeClassifier, {"max_depth": -1}, "max_depth is a whole number"),
        (DecisionTreeClassifier, {"max_depth": 1.5}, "max_depth is a whole number"),
        (DecisionTreeClassifier, {"min_rows": 0}, "min_rows"),
        (DecisionTreeClassifier, {"confidence": 1}, "confidence"),
        (DecisionTreeClassifier, {"confidence": float("nan")}, "confidence"),
        (DecisionTreeClassifier, {"cuts": True}, "cuts"),
        (NaiveBayes, {"alpha": 0}, "alpha"),
        (NaiveBayes, {"estimator": "em"}, "estimator"),
        (NaiveBayes, {"cuts": "8"}, "cuts"),
    ],
)
def test_wrong_parameters(path, kind, parameters, words):
    with pytest.raises(privsql.ProgrammingError, match=words) as found:
        kind(**parameters).fit(path, target="state")
    assert found.value.hint


@pytest.mark.parametrize("kind", BOTH)
def test_mistakes_in_fit(kind, path, tmp_path):
    con = privsql.connect(path)
    for given, words in [
        ({"target": "nothing"}, "no column nothing"),
        ({"target": 3}, "no column 3"),
        ({"target": "state", "features": ["job", "jobs"]}, "no column jobs"),
        ({"target": "state", "features": "job"}, "list of columns"),
        ({"target": "state", "features": []}, "no feature"),
        ({"target": "state", "features": ["job", "State"]}, "among the features"),
        ({"target": "state", "features": ["job", "JOB"]}, "named twice"),
        ({"target": "age"}, "too many for classes"),
        ({"target": "state", "table": "others"}, "no table others"),
    ]:
        with pytest.raises(privsql.ProgrammingError, match=words) as found:
            kind().fit(con, **given)
        assert found.value.hint
    with pytest.raises(privsql.ProgrammingError, match="cannot learn from a DataFrame"):
        kind().fit(pd.DataFrame(people(10)), target="state")
    with pytest.raises(privsql.Error):
        kind().fit(tmp_path / "absent.duckdb", target="state")
    con.close()
    with pytest.raises(privsql.InterfaceError):
        kind().fit(con, target="state")


def test_a_domain_without_quantiles(tmp_path):
    columns = {"pay": list(range(200)), "state": ["ill", "well"] * 100}
    domains = {"pay": (0, 2_999_999), "state": ["ill", "well"]}
    path = release(tmp_path, columns, sensitive=domains)
    with pytest.raises(privsql.NotSupportedError, match="domain of pay is too large") as found:
        NaiveBayes().fit(path, target="state")
    assert "leave it out" in found.value.hint


def test_mistakes_in_predict(fitted):
    with pytest.raises(privsql.ProgrammingError, match="not fitted"):
        NaiveBayes().predict({"job": ["a"]})
    with pytest.raises(privsql.ProgrammingError, match="not fitted"):
        DecisionTreeClassifier().to_text()
    with pytest.raises(privsql.ProgrammingError, match="no column age"):
        fitted.predict({"job": ["a"], "city": ["north"]})
    with pytest.raises(privsql.ProgrammingError, match="different lengths"):
        fitted.predict({"job": ["a"], "city": ["north"], "age": [1, 2]})
    with pytest.raises(privsql.ProgrammingError, match="one value, not a list"):
        fitted.predict({"job": "a", "city": ["north"], "age": [1]})
    with pytest.raises(privsql.ProgrammingError, match="cannot predict from a list"):
        fitted.predict([1, 2])
    with pytest.raises(privsql.DataError, match="cannot be compared") as found:
        Condition("age", "<=", 3).mask(["secret"])
    assert "secret" not in str(found.value)
    row = {"job": ["a"], "city": ["north"], "age": [1]}
    with pytest.raises(privsql.ProgrammingError, match="1 rows and 2 classes"):
        fitted.score(row, ["ill", "well"])
    nobody = {"job": [], "city": [], "age": []}
    assert fitted.predict(nobody).tolist() == []
    with pytest.raises(privsql.ProgrammingError, match="no rows to score"):
        fitted.score(nobody, [])


def test_a_failed_fit_changes_nothing(fitted, path):
    before = fitted.to_text()
    with pytest.raises(privsql.Error):
        fitted.fit(path, target="nothing")
    assert fitted.to_text() == before
