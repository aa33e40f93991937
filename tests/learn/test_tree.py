"""Trees: what they find, where they stop, what they refuse to look at."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import privsql
from privsql.learn import DecisionTreeClassifier
from privsql.learn.counts import Counts, opened
from privsql.learn.features import Condition
from tests.learn.made import DOMAINS, people, release
from tests.learn.slow import cut_points, grown, shape
from tests.sizes import sized

REFUSE = 'personal_groups = "refuse"\nmin_rows = 10'


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Everything as it is: retention 1."""
    return release(tmp_path_factory.mktemp("plain"), people(), sensitive=DOMAINS, retention=1)


@pytest.fixture(scope="module")
def perturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("perturbed")
    return release(folder, people(40_000), sensitive=DOMAINS, retention=0.6)


def as_rows(columns):
    listed = [np.asarray(column).tolist() for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*listed, strict=True)]


@pytest.mark.parametrize(("criterion", "depth"), [("gini", 2), ("entropy", 1)])
def test_without_perturbation_it_is_the_tree_of_the_rows(plain, criterion, depth):
    tree = DecisionTreeClassifier(criterion=criterion, max_depth=depth, min_rows=100, cuts=6)
    tree.fit(plain, target="state")
    rows = as_rows(people())
    cuts = cut_points([row["age"] for row in rows], 6)
    # The columns in the order of the release: public ones first.
    features = {"city": None, "job": None, "age": cuts}
    slow = grown(rows, "state", features, criterion=criterion, depth=depth, min_rows=100)
    assert list(tree.feature_names_in_) == list(features)
    assert shape(tree.tree_) == slow
    # Shares of the leaves, through predict_proba.
    probabilities = tree.predict_proba(people())
    for row, found in list(zip(rows, probabilities, strict=True))[:200]:
        counts = np.array(leaf_of(slow, row), dtype=float)
        assert found == pytest.approx(counts / counts.sum())


def leaf_of(node, row):
    while len(node) > 1:
        column, operator, value = node[1].split(" ")
        left = row[column] <= int(value) if operator == "<=" else row[column] == value
        node = node[2] if left else node[3]
    return node[0]


def test_it_finds_what_is_there(perturbed):
    tree = DecisionTreeClassifier(max_depth=2, cuts=4).fit(perturbed, target="state")
    columns = people(40_000)
    truth = {"all": Counter(columns["state"].tolist())}
    for count, half, name in zip(tree.tree_.counts, tree.tree_.half, tree.classes_, strict=True):
        assert abs(count - truth["all"][name]) < 2.5 * half  # about 5 standard errors
        assert half > 0
    found = set(conditions(tree.tree_))
    assert {"job", "age"} <= {condition.column for condition in found}
    assert str(tree.tree_.split.condition) == "job = b"
    # New people of the same kind: as good as the part of the rule that two splits can say.
    fresh = people(5000, seed=77)
    rule = np.where((fresh["job"] == "b") & (fresh["age"] > 30), "ill", "well")
    assert tree.score(fresh) > float(np.mean(rule == fresh["state"])) - 0.02
    assert tree.score(fresh) > float(np.mean(fresh["state"] == "well")) + 0.08
    assert tree.score(fresh, fresh["state"]) == tree.score(fresh)


def conditions(node):
    if node.split is not None:
        yield node.split.condition
        yield from conditions(node.left)
        yield from conditions(node.right)


def test_noise_is_not_split(tmp_path):
    """A target that depends on nothing gives one leaf; a tree at 95% may err.

    More than 3 of 12, or 2 of 6, do so with a chance of 0.2%.
    """
    rng = np.random.default_rng(1)
    columns = {"job": rng.choice(["a", "b", "c"], 6000), "age": rng.integers(0, 20, 6000)}
    domains = {"job": ["a", "b", "c"], "age": (0, 19)}
    targets = [f"state {i}" for i in range(sized(6, 12))]
    for target in targets:
        columns[target] = rng.choice(["ill", "well"], 6000, p=[0.3, 0.7])
        domains[target] = ["ill", "well"]
    path = release(tmp_path, columns, sensitive=domains, retention=0.4)
    split = 0
    with privsql.connect(path) as con:
        for target in targets:
            tree = DecisionTreeClassifier(max_depth=1, cuts=3)
            tree.fit(con, target=target, features=["job", "age"])
            split += tree.tree_.split is not None
            assert tree.tree_.split or tree.tree_.stop == "no split exceeds noise"
    assert split <= sized(2, 3)


def test_the_error_of_a_contrast_is_that_of_the_rows(tmp_path):
    """Against ``sum(G^2 - H)`` over the published rows, G = T^-1 g, H = T^-1 g^2."""
    columns = people(3000)
    path = release(tmp_path, columns, sensitive=DOMAINS, retention=0.5)
    share, pi = 0.37, 0.21
    with opened(path) as session:
        rows = session.run("SELECT job, age, city, state FROM people").table.to_pylist()
        counts = Counts(session, "state")
        conditions = (Condition("age", "<=", 30, rest=True), Condition("city", "=", "south"))
        (found,) = counts.contrasts(
            conditions, [(Condition("job", "=", "b"), share)], [(1, pi), (2, 0.5)]
        )

    def inverse(size):
        return np.linalg.inv(0.5 * np.eye(size) + 0.5 / size)

    jobs, states = ["a", "b", "c"], ["hurt", "ill", "well"]
    for k, (state, of) in enumerate([("ill", pi), ("well", 0.5)]):
        left = np.array([job == "b" for job in jobs]) - share
        hit = np.array([each == state for each in states]) - of
        old = np.arange(60) > 30
        g = left[:, None, None] * hit[None, :, None] * old[None, None, :]
        inverted = [
            np.einsum("ai,bj,ck,ijk->abc", inverse(3), inverse(3), inverse(60), each)
            for each in (g, g**2)
        ]
        total = 0.0
        for row in rows:
            if row["city"] == "south":
                at = jobs.index(row["job"]), states.index(row["state"]), row["age"]
                total += inverted[0][at] ** 2 - inverted[1][at]
        assert found[k] == pytest.approx(np.sqrt(total), rel=1e-9)


def test_one_personal_group_is_not_looked_at(tmp_path):
    rng = np.random.default_rng(3)
    city, sex = rng.choice(["north", "south"], 20_000), rng.choice(["F", "M"], 20_000)
    ill = rng.random(20_000) < np.where(city == "north", 0.8, 0.2) + 0.15 * (sex == "F")
    columns = {"city": city, "sex": sex, "state": np.where(ill, "ill", "well")}
    domains = {"state": ["ill", "well"]}
    path = release(tmp_path, columns, sensitive=domains, policy=REFUSE)
    tree = DecisionTreeClassifier(max_depth=2).fit(path, target="state")
    assert str(tree.tree_.split.condition) == "city = north"
    for side in (tree.tree_.left, tree.tree_.right):
        assert side.split is None
        assert side.silent == 1
        assert "left out: not answered, a side is one personal group" in tree.to_text()
    # The same where the policy lets everything through.
    other = release(tmp_path, columns, sensitive=domains, name="open")
    tree = DecisionTreeClassifier(max_depth=2).fit(other, target="state")
    assert {c.column for c in conditions(tree.tree_)} == {"city", "sex"}
    assert "left out" not in tree.to_text()


def test_a_side_that_is_one_personal_group_is_no_side(tmp_path):
    """Three cities, one side of a split is one group although the other is not."""
    rng = np.random.default_rng(4)
    city = rng.choice(["north", "south", "west"], 20_000)
    ill = rng.random(20_000) < np.where(city == "north", 0.9, 0.1)
    columns = {"city": city, "state": np.where(ill, "ill", "well")}
    path = release(tmp_path, columns, sensitive={"state": ["ill", "well"]}, policy=REFUSE)
    tree = DecisionTreeClassifier().fit(path, target="state")
    assert tree.tree_.split is None
    assert tree.tree_.silent == 3


def test_public_columns_alone_are_exact(tmp_path):
    columns = {**people(2000), "spare": np.tile(["x", "y"], 1000)}
    path = release(tmp_path, columns, sensitive={"spare": ["x", "y"]})
    tree = DecisionTreeClassifier(max_depth=2, cuts=4).fit(
        path, target="state", features=["job", "AGE"]
    )
    assert tree.tree_.half == (0, 0, 0)
    rows = as_rows(people(2000))
    features = {"job": None, "age": cut_points([row["age"] for row in rows], 4)}
    slow = grown(rows, "state", features, criterion="gini", depth=2, min_rows=50)
    assert shape(tree.tree_) == slow


def test_the_text(plain):
    with privsql.connect(plain) as con:
        tree = DecisionTreeClassifier(max_depth=1, min_rows=100, cuts=4)
        assert str(tree) == repr(tree)
        text = str(tree.fit(con, target="state", features=["job"], table="PEOPLE"))
        assert con.sql("SELECT 1").fetchall() == [(1,)]  # still open
    truth = Counter(people()["state"].tolist())
    first, left, right, last = text.split("\n")
    assert first == (
        f"all rows: hurt {truth['hurt']} ± 0 | ill {truth['ill']} ± 0 | well {truth['well']} ± 0"
    )
    assert left.startswith("├─ job = b: hurt ")
    assert right.startswith("└─ job <> b: hurt ")
    assert right.endswith("-> well (maximum depth)")
    assert last == "state from reconstructed counts; ±: half of the 95% interval"
