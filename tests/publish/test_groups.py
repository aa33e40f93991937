from __future__ import annotations

import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, chi2_contingency

from privsql.channels import Uniform
from privsql.errors import DataError, TooLargeError
from privsql.publish.groups.chisquare import VALUES_LIMIT, linked, links_of
from privsql.publish.groups.merging import Merging, merge, personal_groups
from tests import census
from tests.publish.merging import merge_column

bins = st.integers(0, 60)
tables = st.integers(1, 6).flatmap(
    lambda m: st.lists(st.lists(bins, min_size=m, max_size=m), min_size=1, max_size=7)
)


def slow_link(left, right, *, significance, df, minimum, tests, pool):
    """The rule as section 7 says it, one pair at a time."""
    left, right = np.array(left, float), np.array(right, float)
    n, total = left.sum(), right.sum()
    if min(n, total) < max(1, minimum):
        return False
    used = left + right > 0
    left, right = left[used], right[used]
    if pool:
        expected = (left + right) * min(n, total) / (n + total)
        thin = expected < 5
        if thin.any() and not thin.all():
            left = np.append(left[~thin], left[thin].sum())
            right = np.append(right[~thin], right[thin].sum())
    if len(left) == 1:
        return True
    freedom = len(left) - (df == "m-1")
    statistic = chi2_contingency([left, right], correction=False).statistic
    return chi2.sf(statistic, freedom) >= significance / tests


@given(
    table=tables,
    significance=st.sampled_from([0.01, 0.05, 0.3]),
    df=st.sampled_from(["m-1", "m"]),
    minimum=st.sampled_from([0, 1, 40]),
    tests=st.integers(1, 3),
    pool=st.booleans(),
)
def test_linked_is_the_rule_pair_by_pair(table, **options):
    links = linked(table, **options)
    for i, left in enumerate(table):
        for j, right in enumerate(table):
            slow = i == j or slow_link(left, right, **options)
            assert links[i, j] == slow


def test_blocks_do_not_change_links(monkeypatch):
    table = np.random.default_rng(1).poisson(20, size=(37, 4))
    whole = linked(table, minimum=75)
    monkeypatch.setattr("privsql.publish.groups.chisquare.BLOCK", 50)
    np.testing.assert_array_equal(linked(table, minimum=75), whole)
    np.testing.assert_array_equal(whole, whole.T)
    assert not whole[table.sum(axis=1) < 75].sum(axis=1).max() > 1


@pytest.mark.parametrize("options", [{}, {"pool": False}, {"df": "m", "minimum": 30}])
def test_many_values_and_bins_are_the_rule_pair_by_pair(monkeypatch, options):
    """Rare and frequent values, sparse and full bins, over several blocks of both."""
    monkeypatch.setattr("privsql.publish.groups.chisquare.BLOCK", 64)
    monkeypatch.setattr("privsql.publish.groups.chisquare.WIDTH", 7)
    rng = np.random.default_rng(8)
    sizes = rng.permutation(np.geomspace(0.05, 60, 30))[:, None]
    table = rng.poisson(sizes * rng.dirichlet(np.ones(25), size=3)[rng.integers(3, size=30)] * 25)
    links = linked(table, **options)
    wanted = {"significance": 0.05, "df": "m-1", "minimum": 0, "tests": 1, "pool": True} | options
    slow = [[slow_link(left, right, **wanted) for right in table] for left in table]
    np.testing.assert_array_equal(links, np.array(slow) | np.eye(30, dtype=bool))
    assert 60 < links.sum() < 800


def test_a_column_of_too_many_values_is_left_as_it_is(monkeypatch):
    table = np.array([[50, 50], [52, 48], [90, 10], [10, 90]])
    tuples, rows = [[0, 1, 2, 3], [0, 1, 1, 0]], [100, 100, 100, 100]
    columns = {"job": [table], "sex": [[[90, 10], [10, 90]]]}
    assert merge(columns, tuples, rows).sizes == (3, 2)
    # Six pairs of two bins each.
    monkeypatch.setattr("privsql.publish.groups.chisquare.WORK_LIMIT", 11)
    merging = merge(columns, tuples, rows)
    assert merging.sizes == (4, 2)
    assert [warning.split(":")[0] for warning in merging.warnings] == [
        "values of job are not merged"
    ]
    assert not merging.fell_back


def test_what_would_take_long_is_not_begun():
    """All pairs of 1,500 values by 3,000 bins are 3.4 billion counts to compare."""
    table = np.full((1500, 3000), 100)
    start = time.process_time()
    merging = merge({"place": [table]}, [np.arange(1500)], np.full(1500, 1))
    assert time.process_time() - start < 5
    assert merging.sizes == (1500,)
    assert "1500 are too many" in merging.warnings[0]
    # And what is begun ends: half of the limit, where no bin is sparse.
    start = time.process_time()
    assert linked(np.full((420, 3000), 100)).all()
    assert time.process_time() - start < 10


@pytest.mark.parametrize("pool", [True, False])
@pytest.mark.parametrize("shape", [[0.5, 0.5], [0.1, 0.2, 0.3, 0.4], 1 / np.arange(1, 31)])
def test_equal_values_are_told_apart_in_one_of_twenty(pool, shape):
    shape = np.asarray(shape) / np.sum(shape)
    rng = np.random.default_rng(3)
    pairs = 1500
    rejected = sum(
        not linked(
            [rng.multinomial(3000, shape), rng.multinomial(700, shape)],
            pool=pool,
        )[0, 1]
        for _ in range(pairs)
    )
    assert abs(rejected / pairs - 0.05) < 4 * np.sqrt(0.05 * 0.95 / pairs)


def test_the_papers_degrees_of_freedom_link_more():
    rng = np.random.default_rng(4)
    table = rng.multinomial(2000, [0.5, 0.5], size=300)
    letter, sound = linked(table, df="m"), linked(table)
    assert (letter >= sound).all()
    assert letter.mean() > sound.mean() > 0.94
    # At m = 2 the paper's text rejects equal values in 1.4% of cases, not 5%.
    assert 1 - letter.mean() == pytest.approx(chi2.sf(chi2.isf(0.05, 2), 1), abs=0.01)


def test_different_values_are_not_linked():
    rng = np.random.default_rng(5)
    links = linked([rng.multinomial(2000, [p, 1 - p]) for p in (0.2, 0.3, 0.4)])
    np.testing.assert_array_equal(links, np.eye(3, dtype=bool))


def test_pooling():
    # 40 bins that expect a quarter of a row: Pearson's statistic is no chi-square there.
    usual = np.array([4000] + [10] * 40)
    other = np.array([100] + [1, 0, 0, 0] * 10)
    other[1] += 4
    assert not linked([usual, other], pool=False)[0, 1]
    assert linked([usual, other])[0, 1]
    # A few rows are still told from what they cannot come from.
    few = [3, 2]
    assert linked([few, [100, 9900], [60, 40]])[0].tolist() == [True, False, True]
    # One sparse bin alone stays as it is: with two bins pooling changes nothing.
    table = [[900, 100], [14, 0], [500, 500]]
    np.testing.assert_array_equal(linked(table), linked(table, pool=False))


def test_empty_bins_are_left_out():
    table = np.array([[50, 50], [40, 66], [30, 75]])
    padded = np.zeros((3, 9))
    padded[:, [2, 7]] = table
    for pool in (True, False):
        np.testing.assert_array_equal(linked(padded, pool=pool), linked(table, pool=pool))


def test_values_without_rows_and_below_the_minimum_stay_alone():
    table = np.array([[50, 50], [0, 0], [50, 50], [3, 3], [90, 10]])
    assert merge_column([table]).tolist() == [0, 1, 0, 0, 2]
    assert merge_column([table], minimum=7).tolist() == [0, 1, 0, 2, 3]
    assert merge_column([table], minimum=1000).tolist() == [0, 1, 2, 3, 4]


def test_components_chain():
    # 0 ~ 1 ~ 2, though 0 and 2 differ; 3 is on its own.
    table = [[500, 500], [530, 470], [560, 440], [900, 100]]
    links = linked(table)
    assert links[0, 1]
    assert links[1, 2]
    assert not links[0, 2]
    assert merge_column([table]).tolist() == [0, 0, 0, 1]


def test_one_value_and_one_bin():
    assert merge_column([[[5, 6]]]).tolist() == [0]
    assert merge_column([[[5], [600]]]).tolist() == [0, 0]
    assert merge_column([[[5], [600]]], df="m", pool=False).tolist() == [0, 0]


def test_several_sensitive_columns():
    same, other = [[500, 500], [505, 495]], [[100, 900], [900, 100]]
    assert merge_column([same]).tolist() == [0, 0]
    assert merge_column([same, other]).tolist() == [0, 1]
    assert merge_column([other, same]).tolist() == [0, 1]
    # Bonferroni: p = .03 tells apart as the only test, not as one of two.
    close = np.array([[500, 500], [549, 451]])
    p = chi2_contingency(close, correction=False).pvalue
    assert 0.025 < p < 0.05
    assert merge_column([close]).tolist() == [0, 1]
    assert merge_column([close, same]).tolist() == [0, 0]


def test_bonferroni_keeps_the_false_rate():
    rng = np.random.default_rng(6)
    runs = 1500
    apart = sum(
        merge_column([rng.multinomial(900, [0.3, 0.3, 0.4], size=2) for _ in range(4)]).max()
        for _ in range(runs)
    )
    assert abs(apart / runs - 0.05) < 0.02


def test_published_counts_merge_the_same_values():
    rng = np.random.default_rng(7)
    shapes = np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.1, 0.8, 0.1]])
    raw = np.array([rng.multinomial(40_000, shapes[i]) for i in (0, 1, 0, 2, 1)])
    channel = Uniform(0.3, 3).matrix
    published = np.array([sum(map(rng.multinomial, row, channel)) for row in raw])
    # At .05 one pair of equals in twenty is told apart, on either side.
    assert merge_column([raw], significance=0.001).tolist() == [0, 1, 0, 2, 1]
    assert merge_column([published], significance=0.001).tolist() == [0, 1, 0, 2, 1]


def crossed(*sizes):
    return list(np.indices(sizes).reshape(len(sizes), -1))


def test_merge_and_number():
    columns = {
        "job": [[[500, 500], [900, 100], [510, 490]]],
        "sex": [[[1400, 100], [510, 990]]],
    }
    tuples = crossed(3, 2)
    merging = merge(columns, tuples, np.full(6, 500))
    assert merging.columns == ("job", "sex")
    assert [label.tolist() for label in merging.labels] == [[0, 1, 0], [0, 1]]
    assert merging.sizes == (2, 2)
    assert merging.warnings == ()
    assert not merging.fell_back
    assert personal_groups(tuples, merging).tolist() == [0, 1, 2, 3, 0, 1]
    again = merge(columns, tuples, np.full(6, 500))
    assert all(np.array_equal(*pair) for pair in zip(again.labels, merging.labels, strict=True))
    # Groups are numbered without gaps even where some do not occur.
    assert personal_groups([[0, 1], [1, 0]], merging).tolist() == [0, 1]


def chain():
    """Four different values and a rare one that cannot be told from any of them."""
    return [[8000, 2000], [7000, 3000], [3, 2], [6000, 4000], [100, 9900]]


def test_chaining_through_rare_values_is_said():
    columns = {"job": [chain()], "sex": [[[15_000, 5000], [8000, 12_000]]]}
    tuples = crossed(5, 2)
    rows = np.array([5000, 5000, 5000, 5000, 3, 2, 5000, 5000, 5000, 5000])
    names = {"job": ["a", "b", "soldier", "d", "e"].__getitem__}
    merging = merge(columns, tuples, rows, names=names)
    assert merging.labels[0].tolist() == [0, 0, 0, 0, 1]
    (warning,) = merging.warnings
    assert warning.startswith("job: 1 rare value ('soldier') links 4 of 5 values into one group")
    assert "there would be 3 groups" in warning
    assert "10000" not in warning
    (unnamed,) = merge(columns, tuples, rows).warnings
    assert "soldier" not in unnamed
    assert merge(columns, tuples, rows, minimum=6).warnings == ()
    assert merge(columns, tuples, rows, minimum=6).sizes == (5, 2)
    assert merge(columns, tuples, rows, rare=0.0).warnings == ()


def test_chaining_names_chains_of_rare_values_and_not_bystanders():
    # 2 ~ 3 are both rare and only together join 0 and 1; 4 is rare and joins nothing.
    table = np.array([[7000, 3000], [5800, 4200], [119, 61], [108, 72], [137, 43]])
    links = linked(table)
    assert links[0, 2]
    assert links[2, 3]
    assert links[3, 1]
    assert not links[0, 3]
    assert not links[1, 2]
    assert links[0, 4]
    assert not links[1:4, 4].any()
    assert not links[0, 1]
    merging = merge({"c": [table]}, crossed(5), table.sum(axis=1), names={"c": "abcde".__getitem__})
    assert merging.fell_back
    assert "2 rare values ('c', 'd') link " in merging.warnings[1]


def test_links_between_frequent_values_are_no_chain():
    columns = {"job": [[[500, 500], [510, 490], [3, 3], [900, 100], [880, 120]]]}
    merging = merge(columns, crossed(5), [1000, 1000, 6, 1000, 1000], minimum=7)
    assert merging.sizes == (3,)
    assert merging.warnings == ()


def test_fallback_when_nothing_keeps_two_values():
    columns = {"a": [[[50, 50], [51, 49]]], "b": [[[30, 30], [71, 69], [0, 0]]]}
    merging = merge(columns, crossed(2, 3), [30, 70, 0, 30, 70, 0])
    assert merging.fell_back
    assert [label.tolist() for label in merging.labels] == [[0, 1], [0, 1, 2]]
    assert "no public column" in merging.warnings[0]


def test_fallback_when_one_group_holds_over_half():
    columns = {"a": [[[500, 500], [505, 495], [900, 100]]]}
    assert not merge(columns, crossed(3), [1000, 1000, 2000]).fell_back
    merging = merge(columns, crossed(3), [1000, 1000, 1999])
    assert merging.fell_back
    assert merging.sizes == (3,)
    assert "over half" in merging.warnings[0]
    # Where nothing was merged there is nothing to fall back from.
    assert not merge({"a": [[[500, 500], [900, 100]]]}, crossed(2), [1000, 10]).fell_back


def test_many_columns_do_not_overflow():
    merging = Merging(tuple(map(str, range(30))), tuple(np.arange(1000) for _ in range(30)))
    codes = [np.arange(1000)[::-1]] * 30
    assert personal_groups(codes, merging).tolist() == list(range(1000))[::-1]
    assert personal_groups([[]] * 30, merging).tolist() == []


def test_order_of_values_does_not_change_the_merging():
    rng = np.random.default_rng(8)
    table = rng.multinomial(400, [0.5, 0.3, 0.2], size=40) + rng.integers(0, 60, (40, 3))
    labels, order = merge_column([table]), rng.permutation(40)
    moved = merge_column([table[order]])
    together = labels[:, None] == labels[None, :]
    np.testing.assert_array_equal(together[np.ix_(order, order)], moved[:, None] == moved)


def test_refused():
    good = [[1, 2], [3, 4]]
    for counts in ([1, 2], [], [[]], [[1, -1]], [[1, float("nan")]], [["a"]], [[1], [1, 2]]):
        with pytest.raises(DataError):
            linked(counts)
    for options in ({"significance": 0}, {"significance": 1}, {"df": "2"}, {"tests": 0}):
        with pytest.raises(DataError):
            linked(good, **options)
    with pytest.raises(TooLargeError):
        linked(np.ones((VALUES_LIMIT + 1, 2)))
    with pytest.raises(DataError):
        links_of([])
    with pytest.raises(DataError):
        links_of([good, [[1, 2]]])
    merging = Merging(("a",), (np.array([0, 0]),))
    for tuples in ([], [[0], [1]], [[0, 2]], [[-1]], [[0.5]]):
        with pytest.raises(DataError):
            personal_groups(tuples, merging)
    with pytest.raises(DataError):
        personal_groups([], Merging((), ()))
    with pytest.raises(DataError):
        merge({"a": [[[50, 50], [50, 50]]]}, [[0, 1]], [1])


@pytest.fixture(scope="module")
def adult():
    table = census.rows(census.GROUPS)
    _, income = np.unique(table["income"].to_pylist(), return_inverse=True)
    columns, names, codes = {}, {}, []
    for name in ("education", "occupation", "race", "sex"):
        names[name], code = np.unique(table[name].to_pylist(), return_inverse=True)
        columns[name] = [np.zeros((len(names[name]), 2))]
        np.add.at(columns[name][0], (code, income), 1)
        codes.append(code)
    tuples, rows = np.unique(codes, axis=1, return_counts=True)
    return columns, list(tuples), rows, {k: v.tolist().__getitem__ for k, v in names.items()}


@pytest.mark.parametrize("pool", [True, False])
def test_table_4_of_the_paper(adult, pool):
    columns, tuples, rows, names = adult
    assert [len(tables[0]) for tables in columns.values()] == [16, 14, 5, 2]
    merging = merge(columns, tuples, rows, names=names, pool=pool)
    assert merging.sizes == (7, 4, 2, 2)
    assert np.prod(merging.sizes) == 112
    assert personal_groups(tuples, merging).max() + 1 == 89
    (warning,) = merging.warnings
    assert re.match(r"occupation: \d+ rare values? .* links? 11 of 14 values", warning)
    assert "'Armed-Forces'" in warning


def test_table_4_needs_m_minus_1(adult):
    columns, tuples, rows, _ = adult
    assert merge(columns, tuples, rows, df="m").sizes == (7, 3, 2, 2)


def test_a_minimum_count_undoes_the_chain(adult):
    columns, tuples, rows, _ = adult
    merging = merge(columns, tuples, rows, minimum=30)
    assert merging.sizes == (7, 9, 2, 2)
    assert merging.warnings == ()
