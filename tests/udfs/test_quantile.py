"""Quantiles against DuckDB's own where nothing is perturbed, and against slow kernels else."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from tests.strategies import publish_states, random_channel, seeds
from udfs.errors import KernelError
from udfs.intervals import critical, woodruff_interval
from udfs.invert import invert, invert_function
from udfs.kron import Kron, retention_factor
from udfs.quantile import Tallies, added, quantile, tally
from udfs.register import register
from udfs.variance import published_floor, variance, weights_of_states

Z = critical(0.95)
SHARES = ["0", "1", "0.5", "0.25", "0.75", "0.9", "0.95", "0.99", "0.07", "0.29", "0.1", "0.001"]


@pytest.fixture(scope="module")
def con():
    with duckdb.connect() as connection:
        register(connection)
        yield connection


def whole(sums, places, q, kind, kron, z, size=None):
    """Quantiles of groups that have one part each."""
    size = max(1, int(np.max(places)) + 1) if size is None else size
    return quantile(tally(sums, places, q, size, kron), q, kind, z)


def test_duckdbs_quantiles_where_nothing_was_perturbed(con):
    """Values are even numbers, so that a position taken for a value shows."""
    rng = np.random.default_rng(3)
    for rows in [1, 2, 3, 7, 20, 29, 50, *rng.integers(4, 400, 12).tolist(), 100, 700]:
        width = int(rng.integers(1, 40))
        values = np.sort(rng.choice(1000, width, replace=False)) * 2
        data = rng.integers(0, width, rows)
        y = np.bincount(data, minlength=width + 1)[None].astype(float)
        y[0, width] = 50.0  # a state that is not counted
        places = [*range(width), -1]
        table = values[data].tolist()
        for share in [*SHARES, f"0.{rng.integers(1, 9999):04d}"]:
            expected = con.execute(
                f"SELECT quantile_disc(v, {share}), quantile_cont(v, {share})"
                " FROM (SELECT unnest($1) AS v)",
                [table],
            ).fetchone()
            found = [
                whole((y, y, y), places, float(share), kind, Kron([np.eye(width + 1)]), Z)
                for kind in ("disc", "cont")
            ]
            answers = []
            for one in found:
                low, high = values[one.lower[0]], values[one.upper[0]]
                answers.append(low * (1 - one.fraction[0]) + high * one.fraction[0])
                assert (one.low, one.high) == (one.lower, one.upper)
                assert one.reliable
                assert one.known
            # DuckDB multiplies and adds in one step, which rounds once less.
            assert answers == pytest.approx(expected, rel=1e-15), (rows, share)


def test_decimal_shares_land_on_whole_ranks(con):
    """0.07 * 100 is above 7 in floats, and not in DuckDB's decimals."""
    for percent in range(101):
        share = f"{percent / 100:.2f}"
        for rows in (100, 300, 1000):
            (expected,) = con.execute(
                f"SELECT quantile_disc(i, {share}) FROM range({rows}) t(i)"
            ).fetchone()
            y = np.ones((1, rows))
            below = _at(y, float(share), rows)
            assert below == expected, (share, rows)


def _at(y, q, rows):
    # One row a value: the rank is the position.  A short way around a big identity matrix.
    from udfs.quantile import _locate, _ranks

    rank, _, _ = _ranks(q, np.array([float(rows)]), "disc")
    return int(_locate(np.cumsum(y, axis=1), rank)[0])


def random_case(seed, states=6):
    rng = np.random.default_rng(seed)
    kind = ["uniform", "replace", "finegrain", "matrix"][int(rng.integers(4))]
    factors = [random_channel(rng, kind, states).matrix, random_channel(rng, "uniform", 2).matrix]
    kron = Kron(factors)
    places = np.repeat(rng.permutation(states), 2)
    places[1::2] = -1  # the second column's condition is false
    if rng.random() < 0.5:
        places[places == places.max()] = -1
    products = rng.integers(0, 60, (4, kron.size)).astype(float)
    weight = rng.integers(1, 3, (4, kron.size))
    return rng, kron, places, (products, products * weight, products * weight**3)


def slow_weights(squares, fourths, g, kron):
    """``weights`` on the states as they are: every position is one of its own."""
    return weights_of_states(squares, fourths, invert_function(g, kron), published_floor(kron))


def effective_states(squares, fourths, g, kron):
    second, fourth = slow_weights(squares, fourths, g, kron)
    known = np.where(squares.sum(axis=1) > 0, np.inf, 0.0)
    return np.where(fourth > 0, second**2 / np.where(fourth > 0, fourth, 1.0), known)


def test_a_tally_does_not_depend_on_what_other_aggregates_cut():
    """A column beside it, and cells of its own that it does not tell apart."""
    rng = np.random.default_rng(8)
    alone = Kron([retention_factor(0.4, [0.2, 0.3, 0.5]), retention_factor(0.6, [0.5, 0.5])])
    place = np.array([0, -1, 1, -1, 2, -1])
    masses = [0.2, 0.1, 0.2, 0.5]
    beside = Kron(
        [
            retention_factor(0.4, masses),
            retention_factor(0.6, [0.5, 0.5]),
            retention_factor(0.7, [0.9, 0.1]),
        ]
    )
    cut = np.array([0, 1, 1, 2])  # the second value falls into two cells
    y = rng.integers(0, 40, (5, 4, 2, 2)).astype(float)
    whole = np.zeros((5, 3, 2))
    for cell, value in enumerate(cut):
        whole[:, value] += y[:, cell].sum(axis=-1)
    places = np.repeat(place.reshape(3, 2)[cut].reshape(-1, 1), 2, axis=1).ravel()
    one = tally((whole.reshape(5, -1),) * 3, place, 0.5, 3, alone)
    two = tally((y.reshape(5, -1),) * 3, places, 0.5, 3, beside)
    for name in ("total", "excess", "variance", "second", "fourth"):
        np.testing.assert_allclose(getattr(two, name), getattr(one, name), rtol=1e-9, atol=1e-9)


@settings(max_examples=60)
@given(seed=seeds, share=st.sampled_from([0, 0.1, 0.5, 0.83, 1]))
def test_interval_is_woodruffs_with_the_errors_at_every_position(seed, share):
    _, kron, places, (products, squares, fourths) = random_case(seed)
    found = whole((products, squares, fourths), places, share, "disc", kron, Z)
    counted = (places >= 0).astype(float)
    functions = [((places >= 0) & (places <= i)) - share * counted for i in range(places.max() + 1)]
    excess, spread, rows = [], [], []
    for g in functions:
        excess.append(invert(products, kron) @ g)
        spread.append(variance(products, squares, g, kron))
        rows.append(effective_states(squares, fourths, g, kron))
    slow = woodruff_interval(*(np.stack(part, axis=1) for part in (excess, spread, rows)), Z)
    known = invert(products, kron) @ counted > 0
    np.testing.assert_array_equal(found.known, known)
    np.testing.assert_array_equal(found.low[known], np.minimum(slow.low, found.lower)[known])
    np.testing.assert_array_equal(found.high[known], np.maximum(slow.high, found.upper)[known])
    np.testing.assert_array_equal(found.reliable[known], slow.reliable[known])


@settings(max_examples=60)
@given(seed=seeds, share=st.sampled_from([0, 0.02, 0.4, 0.5, 0.9, 1]))
def test_a_tally_is_that_of_the_slow_kernels_at_every_position(seed, share):
    """Also before the first position in use, between those in use, and after the last."""
    rng, kron, places, (products, squares, fourths) = random_case(seed)
    scattered = np.sort(rng.choice(20, places.max() + 1, replace=False))
    places = np.where(places >= 0, scattered[places], -1)
    found = tally((products, squares, fourths), places, share, 20, kron)
    counted = (places >= 0).astype(float)
    states = invert(products, kron)
    assert not found.certain.any()
    for i in range(20):
        below = (places >= 0) & (places <= i)
        g = below - share * counted
        close = {"rtol": 1e-7, "atol": 1e-7}
        np.testing.assert_allclose(found.total[:, i], states @ below, **close)
        np.testing.assert_allclose(found.excess[:, i], states @ g, **close)
        np.testing.assert_allclose(
            found.variance[:, i], variance(products, squares, g, kron), rtol=1e-7, atol=1e-6
        )
        second, fourth = slow_weights(squares, fourths, g, kron)
        np.testing.assert_allclose(found.second[:, i], second, rtol=1e-7)
        np.testing.assert_allclose(found.fourth[:, i], fourth, rtol=1e-7)


def joined(*parts: Tallies) -> Tallies:
    """One part of each of several groups after another's, as a list a group has them."""
    fields = []
    for name in Tallies.__dataclass_fields__:
        values = np.stack([getattr(part, name) for part in parts], axis=1)
        fields.append(values.reshape(-1, *values.shape[2:]))
    return Tallies(*fields)


@settings(max_examples=60)
@given(seed=seeds, share=st.sampled_from([0, 0.3, 0.5, 1]))
def test_parts_of_perturbed_rows_add_up_to_the_whole(seed, share):
    rng, kron, places, sums = random_case(seed)
    size = int(places.max()) + 2
    cuts = [tuple(np.zeros_like(part) for part in sums) for _ in range(3)]
    counts = rng.multinomial(sums[0].astype(int), [0.5, 0.3, 0.2])
    ratio = [part / np.maximum(sums[0], 1) for part in sums]
    for k, cut in enumerate(cuts):
        for part, each in zip(cut, ratio, strict=True):
            part[:] = counts[..., k] * each
    one = tally(sums, places, share, size, kron)
    pieces = [tally(cut, places, share, size, kron) for cut in cuts]
    sum_of = added(joined(*pieces), [3] * len(one.certain))
    for name in ("total", "excess", "variance"):
        np.testing.assert_allclose(getattr(sum_of, name), getattr(one, name), rtol=1e-9, atol=1e-7)
    for name in ("second", "fourth"):
        expected = sum(getattr(piece, name) for piece in pieces)
        np.testing.assert_allclose(getattr(sum_of, name), expected, rtol=1e-9)
    found, direct = (quantile(t, share, "cont", Z) for t in (sum_of, one))
    np.testing.assert_array_equal(found.low, direct.low)
    np.testing.assert_array_equal(found.high, direct.high)


@settings(max_examples=30)
@given(seed=seeds)
def test_random_parts_give_duckdbs_answer_in_every_form(con, seed):
    """Classes and parts with positions, states and retention-one factors of their own."""
    rng = np.random.default_rng(seed)
    width, rows = int(rng.integers(1, 15)), int(rng.integers(1, 200))
    values = np.sort(rng.choice(500, width, replace=False)) * 2
    data, label = rng.integers(0, width, rows), rng.integers(0, 3, rows)
    cut = rng.integers(0, 4, rows)
    share = SHARES[int(rng.integers(len(SHARES)))]
    rows_of = []
    for g in range(3):
        for part in range(4):
            there = data[(label == g) & (cut == part)]
            # Not every value is possible in every part, and some states do not count.
            possible = np.union1d(there, rng.integers(0, width, 2))
            places = rng.permutation(np.concatenate([possible, [-1]]))
            y = [float(np.sum(there == i)) if i >= 0 else 7.0 for i in places]
            rows_of.append((g, part, y, places.tolist(), [np.eye(len(places)).tolist()]))
    con.execute(
        "CREATE OR REPLACE TABLE p (g INT, part INT, y DOUBLE[], i BIGINT[], f DOUBLE[][][])"
    )
    con.executemany("INSERT INTO p VALUES (?, ?, ?, ?, ?)", rows_of)
    con.execute("CREATE OR REPLACE TABLE d (g INT, v INT)")
    con.executemany(
        "INSERT INTO d VALUES (?, ?)", list(zip(label.tolist(), values[data].tolist(), strict=True))
    )
    tally_of = f"privsql_tally(y, y, y, i, {share}, {width}, f)"
    chosen = [f"(SELECT {tally_of} FROM p WHERE p.g = s.g AND part = {k})" for k in range(4)]
    for kind in ("disc", "cont"):
        expected = dict(
            con.execute(f"SELECT g, quantile_{kind}(v, {share}) FROM d GROUP BY g").fetchall()
        )
        forms = [
            f"SELECT g, privsql_quantile(list({tally_of}), {share}, '{kind}', 1.96)"
            " FROM p GROUP BY g",
            f"SELECT s.g, privsql_quantile([{', '.join(chosen)}], {share}, '{kind}', 1.96)"
            " FROM (SELECT DISTINCT g FROM p) s",
        ]
        for form in forms:
            answers = dict(con.execute(form).fetchall())
            assert set(answers) == {0, 1, 2}
            for g, found in answers.items():
                if g not in expected:
                    assert set(found.values()) == {None}
                    continue
                low, high = float(values[found["lower"]]), float(values[found["upper"]])
                between = low * (1 - found["fraction"]) + high * found["fraction"]
                assert between == pytest.approx(expected[g], rel=1e-15)
                assert (found["low"], found["high"]) == (found["lower"], found["upper"])
                assert found["reliable"] is True


def test_sql_gives_what_the_kernels_give_when_positions_and_factors_vary(con):
    """More rows than DuckDB hands over at once, NULL tallies among them."""
    rng = np.random.default_rng(8)
    orders = np.array([[0, 1, 2], [2, 4, -1], [3, -1, 0]])
    retentions = [0.3, 0.7, 1.0]
    krons = [Kron([retention_factor(p, [0.2, 0.3, 0.5])]) for p in retentions]
    rows = 5000
    y = 40 * rng.random((rows, 3))  # no ties, so that rounding decides nothing
    order, kind = rng.integers(0, 3, rows), rng.integers(0, 3, rows)
    con.execute("CREATE OR REPLACE TABLE v (g INT, y DOUBLE[], i BIGINT[], f DOUBLE[][][])")
    table = pa.table(
        {
            "g": pa.array(np.arange(rows) // 4),
            "y": pa.array(y.tolist()),
            "i": pa.array(orders[order].tolist()),
            "f": pa.array([[krons[k].factors[0].tolist()] for k in kind]),
        }
    )
    con.register("incoming", table)
    con.execute("INSERT INTO v FROM incoming")
    con.execute("INSERT INTO v SELECT DISTINCT g, NULL, [0, 1, 2], NULL FROM v WHERE g % 3 = 0")
    found = con.execute(
        "SELECT privsql_quantile(list(privsql_tally(y, y, y, i, 0.4, 6, f)), 0.4, 'disc', 1.96)"
        " FROM v GROUP BY g ORDER BY g"
    ).fetchall()
    parts = [
        tally((y[r : r + 1],) * 3, orders[order[r]], 0.4, 6, krons[kind[r]]) for r in range(rows)
    ]
    fields = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in Tallies.__dataclass_fields__
    )
    direct = quantile(added(Tallies(*fields), [4] * (rows // 4)), 0.4, "disc", 1.96)
    assert direct.known.sum() > 1000
    assert direct.reliable.mean() > 0.05
    for name in ("lower", "upper", "low", "high", "reliable"):
        answers = [row[0][name] for row in found]
        expected = [
            value if known else None
            for value, known in zip(getattr(direct, name).tolist(), direct.known, strict=True)
        ]
        assert answers == expected, name


def test_a_certain_part_lends_no_rows_to_an_uncertain_one():
    """A million rows without error do not make ten perturbed ones reliable."""
    exact, half = Kron([np.eye(2)]), Kron([retention_factor(0.5, [0.5, 0.5])])
    many, few = np.array([[500000.0, 500000.0]]), np.array([[6.0, 4.0]])
    sure = tally((many,) * 3, [0, 1], 0.5, 2, exact)
    unsure = tally((few,) * 3, [0, 1], 0.5, 2, half)
    assert sure.certain.all()
    assert not unsure.certain.any()
    np.testing.assert_array_equal(sure.second + sure.fourth + sure.variance, 0)
    both = added(joined(sure, unsure), [2])
    assert not both.certain.any()
    assert not quantile(both, 0.5, "disc", Z).reliable[0]
    assert quantile(added(joined(sure, sure), [2]), 0.5, "disc", Z).reliable[0]


def test_sampled_rows_are_not_certain_and_no_rows_are():
    exact, half = Kron([np.eye(2)]), Kron([retention_factor(0.5, [0.5, 0.5])])
    y, none = np.array([[6.0, 4.0]]), np.zeros((1, 2))
    sampled = tally((y, 2 * y, 8 * y), [0, 1], 0.5, 2, exact)
    assert not sampled.certain[0]
    assert sampled.variance[0, 0] > 0
    # Beside one another, each is what it is alone.
    beside = tally([np.vstack([y, part]) for part in (y, 2 * y, 8 * y)], [0, 1], 0.5, 2, exact)
    np.testing.assert_array_equal(beside.certain, [True, False])
    for name in ("variance", "second", "fourth"):
        expected = np.vstack([[0.0, 0.0], getattr(sampled, name)])
        np.testing.assert_allclose(getattr(beside, name), expected)
    assert beside.second[1, 0] > 0
    assert tally((none,) * 3, [0, 1], 0.5, 2, half).certain[0]
    assert tally((y,) * 3, [-1, -1], 0.5, 2, half).certain[0]


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_positions_that_the_rows_cannot_have_are_not_in_the_interval(share):
    """The number of rows is known, so before the first position in use there are none."""
    third = Kron([retention_factor(0.37, [0.21, 0.33, 0.46])])
    y = np.array([[700.0, 333.0, 456.0], [71.0, 33.0, 45.0]])
    tight = whole((y,) * 3, [0, 1, 2], share, "cont", third, Z)
    loose = whole((y,) * 3, [3, 4, 5], share, "cont", third, Z, size=9)
    for name in ("lower", "upper", "low", "high"):
        np.testing.assert_array_equal(getattr(loose, name), getattr(tight, name) + 3)
    np.testing.assert_array_equal(loose.reliable, tight.reliable)


@settings(max_examples=60)
@given(seed=seeds)
def test_estimate_is_read_off_the_monotone_fit(seed):
    rng, kron, places, sums = random_case(seed)
    share = float(rng.random())
    found = whole(sums, places, share, "disc", kron, Z)
    states = invert(sums[0], kron)
    for group in range(len(states)):
        steps = np.zeros(places.max() + 1)
        np.add.at(steps, places[places >= 0], states[group, places >= 0])
        total = steps.sum()
        if total <= 0:
            continue
        fit = isotonic_regression(np.cumsum(steps)).x
        reached = fit >= max(share * total, min(1, total)) - 1e-9
        expected = int(np.argmax(reached)) if reached.any() else len(steps) - 1
        assert found.lower[group] == min(expected, len(steps) - 1)


def test_interval_covers_the_true_median():
    rng = np.random.default_rng(5)
    m, releases = 30, 1500
    kron = Kron([retention_factor(0.4, np.full(m, 1 / m))])
    original = np.round(5000 * np.exp(-0.5 * ((np.arange(m) - 11.3) / 6) ** 2) / 15).astype(int)
    published = publish_states(rng, original, kron.dense, releases)
    truth = int(np.searchsorted(np.cumsum(original), original.sum() / 2))
    found = whole((published,) * 3, np.arange(m), 0.5, "cont", kron, Z)
    held = (found.low <= truth) & (truth <= found.high)
    assert found.reliable.all()
    assert held.mean() >= 0.94
    assert (found.high - found.low).mean() < 5
    assert abs(found.lower.mean() - truth) < 0.5


def test_no_rows_have_no_quantile():
    kron = Kron([retention_factor(0.5, [0.5, 0.5])])
    y = np.array([[0.0, 0.0], [0.0, 10.0], [10.0, 0.0]])
    found = whole((y, y, y), [0, -1], 0.5, "cont", kron, Z)
    np.testing.assert_array_equal(found.known, [False, False, True])
    nothing = whole((y, y, y), [-1, -1], 0.5, "disc", kron, Z)
    assert not nothing.known.any()


def test_many_groups_in_blocks_equal_one_by_one(monkeypatch):
    """Blocks of rows and blocks of positions."""
    rng, kron, places, _ = random_case(9)
    y = rng.integers(0, 60, (50, kron.size)).astype(float)
    expected = tally((y, y, y), places, 0.3, 7, kron)
    monkeypatch.setattr("udfs.quantile.BLOCK", 3 * kron.size)
    parts = tally((y, y, y), places, 0.3, 7, kron)
    for name in Tallies.__dataclass_fields__:
        np.testing.assert_allclose(
            getattr(expected, name), getattr(parts, name), rtol=1e-9, atol=1e-9
        )


def test_a_wrong_call_is_told():
    kron, y = Kron([np.eye(2)]), np.ones((1, 2))
    with pytest.raises(KernelError, match="between 0 and 1"):
        tally((y, y, y), [0, 1], float("nan"), 2, kron)
    with pytest.raises(KernelError, match="whole number"):
        tally((y, y, y), [0, 0.5], 0.5, 2, kron)
    with pytest.raises(KernelError, match="each of the 2 states"):
        tally((y, y, y), [0], 0.5, 2, kron)
    with pytest.raises(KernelError, match="at least one position"):
        tally((y, y, y), [-1, -1], 0.5, 0, kron)
    with pytest.raises(KernelError, match="below the number of positions"):
        tally((y, y, y), [0, 2], 0.5, 2, kron)
    with pytest.raises(KernelError, match="as many rows"):
        tally((y, y, np.ones((2, 2))), [0, 1], 0.5, 2, kron)
    part = tally((y, y, y), [0, 1], 0.5, 2, kron)
    with pytest.raises(KernelError, match="between 0 and 1"):
        quantile(part, 1.5, "disc", Z)
    with pytest.raises(KernelError, match="same q"):
        quantile(part, 0.4, "disc", Z)
    with pytest.raises(KernelError, match="every part a group"):
        added(part, [2])
    with pytest.raises(KernelError, match="must have a part"):
        added(part, [1, 0])
