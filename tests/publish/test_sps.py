from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsql.audit.criteria.trials import group_cap
from privsql.channels import FineGrain, Matrix, Replace, Uniform
from privsql.channels.caps import cap_of, chances
from privsql.errors import ChannelError, DataError
from privsql.publish.groups import group_caps as sps
from privsql.publish.groups.sampling import cut_down
from privsql.publish.keys.randomness import SystemSource
from privsql.publish.perturb.draws import Draws
from privsql.publish.perturb.rows import ORDER, POSITION
from privsql.publish.prepare import Column, Job
from privsql.publish.report import Notes
from privsql.release.names import GROUP
from privsql.release.spec import parse_spec
from tests.strategies import seeds

ASKED = {"relative_error": 0.3, "probability": 0.3}


def uniform(codes, channel, rng):
    kept = rng.random(len(codes)) < channel.retention
    return np.where(kept, codes, rng.integers(channel.size, size=len(codes)))


def rounded_up(frequency):
    """The least level of the public grid that is not below a frequency."""
    return np.min([np.where(frequency <= level, level, 1.0) for level in sps.GRID], axis=0)


def test_formula():
    # -2 (.9*.5 + .5/2) ln .3 / (.3*.5*.9)^2, by hand
    assert group_cap(0.9, 0.5, 2, 0.3, 0.3) == pytest.approx(92.4867, abs=1e-3)
    f = np.array([[0.1, 0.5], [0.9, 1.0]])
    found = group_cap(f, 0.2, 10, 0.1, 0.05)
    assert found.shape == f.shape
    np.testing.assert_allclose(found, -2 * (f * 0.2 + 0.08) * np.log(0.05) / (0.02 * f) ** 2)
    assert (np.diff(found.ravel()) < 0).all()


def test_range_of_the_formula():
    limit = 1 + 0.5 / (2 * 0.5 * 0.8)
    assert np.isfinite(group_cap(0.8, 0.5, 2, limit - 1e-9, 0.3))
    assert group_cap(0.8, 0.5, 2, limit + 1e-9, 0.3) == np.inf
    assert group_cap(0.0, 0.5, 2, 0.3, 0.3) == np.inf


@pytest.mark.parametrize(
    "channel",
    [
        Uniform(0.3, 6),
        Replace(0.4, [0.1, 0.2, 0.3, 0.4]),
        FineGrain([0.1, 0.3, 0.5]),
        Matrix([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.05, 0.05, 0.9]]),
    ],
)
def test_chances_are_those_of_the_matrix(channel):
    kept, false = chances(channel)
    others = channel.matrix + np.diag(np.full(channel.size, np.inf))
    np.testing.assert_allclose(false, others.min(axis=0), atol=1e-12)
    np.testing.assert_allclose(kept, channel.matrix.diagonal() - false, atol=1e-12)


def test_chances_of_one_value():
    assert cap_of(1.0, *chances(Uniform(0.5, 1)), 0.3, 0.3) == np.inf


@given(k=st.integers(1, 100))
def test_grid_rounds_up(k):
    """One group of 100 rows: k hold one value, each other row a value of its own."""
    codes = np.maximum(np.arange(100) - k + 1, 0)
    found = sps.caps(np.zeros(100, int), [codes], [Uniform(0.5, 100)], source="raw", **ASKED)
    level = float(rounded_up(k / 100))
    assert level in sps.GRID
    assert k / 100 <= level
    assert level == sps.GRID[0] or k / 100 > level / 2
    assert found == group_cap(level, 0.5, 100, 0.3, 0.3)


@pytest.mark.parametrize(
    "channel",
    [
        Uniform(0.3, 5),
        Replace(0.4, [0.1, 0.0, 0.5, 0.4]),
        FineGrain([0, 0.3, 0.5, 0.2]),
        FineGrain([0.1, 0.3, 0.5, 0.2]),
        Matrix([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.05, 0.05, 0.9]]),
    ],
)
@pytest.mark.parametrize("dense", [0, 1 << 23])
def test_reconstructed_frequencies(channel, dense, monkeypatch):
    monkeypatch.setattr(sps, "DENSE_CELLS", dense)
    rng = np.random.default_rng(2)
    table = rng.integers(0, 9, size=(4, channel.size))
    table[2] = 0  # a group without rows
    groups = np.repeat(np.arange(4), table.sum(axis=1))
    values = np.concatenate([np.repeat(np.arange(channel.size), row) for row in table])
    sizes = table.sum(axis=1)
    group, value, share = sps._frequencies(groups, values, channel, sizes, "published")
    found = np.zeros_like(table, dtype=float)
    found[group, value] = share
    exact = table @ np.linalg.inv(channel.matrix) / np.maximum(sizes, 1)[:, None]
    np.testing.assert_allclose(found, np.clip(exact, 0, 1), atol=1e-9)


def test_caps_by_hand():
    groups = np.repeat([0, 2], [4, 10])
    codes = np.array([0, 0, 0, 1] + [0, 1] * 5)
    raw = sps.caps(groups, [codes], [Uniform(0.5, 2)], cap="exact", source="raw", **ASKED)
    np.testing.assert_allclose(
        raw, [group_cap(0.75, 0.5, 2, 0.3, 0.3), np.inf,
              group_cap(0.5, 0.5, 2, 0.3, 0.3)]
    )  # fmt: skip
    # Published 3 of 4 is reconstructed as (3/4 - 1/4)/.5 = 1.
    for cap in ("exact", "grid"):
        found = sps.caps(groups, [codes], [Uniform(0.5, 2)], cap=cap, **ASKED)
        assert found[0] == pytest.approx(float(group_cap(1, 0.5, 2, 0.3, 0.3)))
    one = sps.caps(groups, [codes], [Uniform(0.5, 2)], cap="one", **ASKED)
    assert one[0] == one[2] == found[0]
    assert one[1] == np.inf


def test_smallest_over_columns_and_values():
    rng = np.random.default_rng(3)
    groups = rng.integers(0, 20, 5000)
    columns = [rng.integers(0, 4, 5000), rng.integers(0, 3, 5000)]
    channels = [Replace(0.5, [0.4, 0.3, 0.2, 0.1]), Uniform(0.7, 3)]
    for cap in ("grid", "one", "exact"):
        both = sps.caps(groups, columns, channels, cap=cap, **ASKED)
        single = [
            sps.caps(groups, [column], [channel], cap=cap, **ASKED)
            for column, channel in zip(columns, channels, strict=True)
        ]
        np.testing.assert_array_equal(both, np.minimum(*single))
    # On the grid every value is private, whichever the group holds: at most exact's cap.
    grid = sps.caps(groups, columns, channels, **ASKED)
    exact = sps.caps(groups, columns, channels, cap="exact", **ASKED)
    assert (grid <= exact).all()
    assert len(set(grid.tolist())) <= len(sps.GRID) * 2


def test_a_million_values_need_no_matrix():
    m, rng = 1_000_000, np.random.default_rng(4)
    groups, codes = rng.integers(0, 50, 20_000), rng.integers(0, m, 20_000)
    codes[groups == 7] = 3
    found = sps.caps(groups, [codes], [Uniform(0.5, m)], **ASKED)
    assert found[7] == group_cap(1.0, 0.5, m, 0.3, 0.3)
    assert found[8] == group_cap(0.125, 0.5, m, 0.3, 0.3)


def test_refusals():
    one = (np.zeros(3, int), [np.zeros(3, int)], [Uniform(0.5, 2)])
    for wrong in ({"relative_error": 1.0}, {"probability": 0}, {"cap": "none"}, {"source": "x"}):
        with pytest.raises(ChannelError):
            sps.caps(*one, **(ASKED | wrong))
    with pytest.raises(DataError):
        sps.sample(np.array([0, 1]), np.array([1.0]), np.zeros(2))
    with pytest.raises(DataError):
        sps.sample(np.array([0]), np.array([np.nan]), np.zeros(1))


@given(seed=seeds)
def test_sampled_groups(seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 30, rng.integers(0, 3000))
    sizes = np.where(rng.random(30) < 0.2, np.inf, rng.uniform(0.2, 150, 30))
    keep, weight = sps.sample(groups, sizes, rng.random(len(groups)))
    before, after = (np.bincount(groups[rows], minlength=30) for rows in (keep | True, keep))
    capped = before > sizes
    np.testing.assert_array_equal(after[capped], np.maximum(np.floor(sizes[capped]), 1))
    np.testing.assert_array_equal(after[~capped], before[~capped])
    assert (weight[~keep] == 0).all()
    np.testing.assert_allclose(np.bincount(groups, weight, minlength=30), before, rtol=1e-12)
    assert (weight[keep & ~capped[groups]] == 1).all()


@pytest.mark.parametrize("numbers", ["skewed low", "skewed high", "ties"])
def test_lowest_of_any_numbers(numbers):
    # Numbers far from uniform miss the bracket and take the long way.
    rng = np.random.default_rng(5)
    given_numbers = {
        "skewed low": rng.random(4000) * 1e-3,
        "skewed high": 1 - rng.random(4000) * 1e-3,
        "ties": np.full(4000, 0.5),
    }[numbers]
    groups, quotas = rng.integers(0, 3, 4000), np.array([100, 0, 5000])
    keep = sps.lowest(groups, quotas, given_numbers)
    counts = np.bincount(groups)
    np.testing.assert_array_equal(np.bincount(groups[keep], minlength=3), [100, 0, counts[2]])
    limit = np.sort(given_numbers[groups == 0])[99]
    assert (given_numbers[keep & (groups == 0)] <= limit).all()


def test_every_row_is_as_likely():
    rng, runs = np.random.default_rng(6), 4000
    groups = np.repeat([0, 1, 2], [40, 7, 5])
    times = sum(sps.sample(groups, np.array([10.5, 3, 9]), rng.random(len(groups)))[0].astype(int)
                for _ in range(runs))  # fmt: skip
    np.testing.assert_array_equal(times[47:], runs)
    for rows, share in ((slice(0, 40), 0.25), (slice(40, 47), 3 / 7)):
        error = np.sqrt(runs * share * (1 - share))
        assert np.abs(times[rows] - runs * share).max() < 4 * error


def test_estimates_are_unbiased():
    rng, channel = np.random.default_rng(7), Uniform(0.5, 4)
    groups = np.repeat([0, 1, 2], [3000, 900, 40])
    raw = rng.choice(4, len(groups), p=[0.6, 0.2, 0.15, 0.05])
    public = rng.random(len(groups)) < 0.3  # a condition that cuts the groups
    truth = np.bincount(raw[public], minlength=4)
    inverse = channel.inverse(np.eye(4)).T
    runs = []
    for _ in range(1500):
        published = uniform(raw, channel, rng)
        sizes = sps.caps(groups, [published], [channel], **ASKED)
        keep, weight = sps.sample(groups, sizes, rng.random(len(groups)))
        assert (np.bincount(groups[keep]) <= np.maximum(sizes, 1)).all()
        runs.append(np.bincount(published[public], weight[public], minlength=4) @ inverse)
    error = np.std(runs, axis=0) / np.sqrt(len(runs))
    assert (np.abs(np.mean(runs, axis=0) - truth) < 4 * error).all()


@pytest.mark.parametrize("dense", [0, 1 << 23])
def test_duplicates_keep_the_frequencies(dense, monkeypatch):
    monkeypatch.setattr(sps, "DENSE_CELLS", dense)
    rng, runs = np.random.default_rng(8), 1500
    groups = np.repeat([0, 1], [500, 30])
    raw = rng.choice(3, 530, p=[0.7, 0.2, 0.1])
    counts, written = np.zeros(3), []
    for _ in range(runs):
        rows = sps.sample_duplicate(groups, raw, np.array([81.3, 90.0]), rng)
        assert (np.diff(rows) >= 0).all()
        assert set(range(500, 530)) <= set(rows.tolist())
        first = rows[rows < 500]
        distinct = np.unique(first)
        assert abs(len(distinct) - 81.3) < 3
        counts += np.bincount(raw[first], minlength=3)
        written.append(len(first))
    assert np.mean(written) == pytest.approx(500, abs=1)
    np.testing.assert_allclose(counts / runs, np.bincount(raw[:500]), rtol=0.02)


def test_duplicates_of_tiny_and_of_whole_groups():
    rng = np.random.default_rng(9)
    rows = sps.sample_duplicate(np.zeros(50, int), np.arange(50), np.array([1e-9]), rng)
    assert len(rows) == 50
    assert len(set(rows.tolist())) == 1
    rows = sps.sample_duplicate(np.zeros(5, int), np.arange(5), np.array([5.0]), rng)
    np.testing.assert_array_equal(rows, np.arange(5))


def frequency_of(trials, channel):
    """What an attacker does who knows the parameters: solve eq. 10 for f."""
    p, u, a = channel.retention, (1 - channel.retention) / channel.size, -2 * np.log(0.3)
    square = trials * (0.3 * p) ** 2
    return (a * p + np.sqrt((a * p) ** 2 + 4 * square * a * u)) / (2 * square)


def largest_shares(groups, published, weights, channel):
    cells = np.bincount(groups * channel.size + published, weights).reshape(-1, channel.size)
    shares = channel.inverse(cells / cells.sum(axis=1, keepdims=True))  # T is symmetric
    return np.clip(shares.max(axis=1), 1 / channel.size, 1)


@pytest.mark.parametrize(("m", "lowest"), [(2, 0.5), (10, 0.15)])
def test_duplication_gives_f_away_and_weights_do_not(m, lowest):
    """Section 9.1: the number of trials of a group is visible, and s_g is a function of f."""
    rng, channel, count = np.random.default_rng(10), Uniform(0.5, m), 400
    f = rng.uniform(lowest, 0.95, count)
    sizes = rng.integers(3000, 6000, count)
    groups = np.repeat(np.arange(count), sizes)
    common = rng.random(len(groups)) < f[groups]
    raw = np.where(common, 0, rng.integers(1, m, len(groups)))
    f = np.bincount(groups, raw == 0) / sizes

    def hits(guess):
        return np.mean(np.abs(guess / f - 1) < 0.05)

    # The paper: exact caps from raw values, one draw a sampled row, copies.
    s = sps.caps(groups, [raw], [channel], cap="exact", source="raw", **ASKED)
    rows = sps.sample_duplicate(groups, raw, s, rng)
    distinct = np.unique(rows)
    published = uniform(raw, channel, rng)
    trials = np.bincount(groups[distinct])
    attack = hits(frequency_of(trials, channel))
    honest = hits(largest_shares(groups[rows], published[rows], None, channel))
    assert attack > 0.85
    assert attack > honest + 0.3

    # Ours: the same attacker sees rows and weights.
    s = sps.caps(groups, [published], [channel], **ASKED)
    keep, weight = sps.sample(groups, s, rng.random(len(groups)))
    trials = np.bincount(groups[keep])
    fair = largest_shares(groups[keep], published[keep], weight[keep], channel)
    assert len(set(trials.tolist())) <= len(sps.GRID)
    level = frequency_of(trials, channel)
    assert hits(level) <= hits(fair)
    # Nor does the public level help the honest estimate by much.
    level = rounded_up(level * 0.99)
    assert hits(np.clip(fair, level / 2, level)) <= hits(fair) + 0.05


def test_ties_are_broken_at_random_and_not_by_position():
    """Rows with one number, as rows of one person have: where they stand does not matter."""
    spec = parse_spec(
        '[release]\ntable = "t"\n[columns.x]\nrole = "sensitive"\nmechanism = "uniform"\n'
        'retention = 0.5\ndomain = ["a", "b"]\n'
        '[protect.reconstruction]\nlambda = 0.3\ndelta = 0.3\ncap = "one"\n'
    )
    [wanted], rows, runs = spec.sensitive, 400, 300
    channel = Uniform(0.5, 2)
    column = Column(wanted, "VARCHAR", wanted.domain, channel)
    staged = pa.table(
        {
            GROUP: pa.array(np.zeros(rows), pa.uint32()),
            ORDER: pa.array(np.full(rows, 2**63, dtype=np.uint64)),
            POSITION: np.arange(rows),
            "x": np.array(["a", "b"])[np.arange(rows) % 2],
        }
    )
    times, left = np.zeros(rows), set()
    with duckdb.connect() as con:
        for seed in range(runs):
            con.register("given", staged)
            con.execute("CREATE OR REPLACE TABLE staged AS FROM given")
            draws = Draws(SystemSource(), None, bytes([seed % 256, seed // 256]))
            job = Job(spec, None, [column], draws, Notes(), con)
            cut_down(job, spec.protect, {"x": channel})
            kept = con.table("staged").fetchnumpy()[POSITION]
            con.execute("DROP TABLE staged")
            left.add(len(kept))
            times[kept] += 1
    [size] = left
    assert size < rows / 2
    share = size / rows
    assert np.abs(times / runs - share).max() < 4.5 * np.sqrt(share * (1 - share) / runs)
    # The first half of the source is kept as often as the second.
    assert abs(times[: rows // 2].sum() / times.sum() - 0.5) < 0.01


def test_a_matrix_that_turns_values_round_is_capped_as_its_mirror_is():
    """Publishing the other value mostly tells as much as publishing one's own."""
    straight = Matrix(((0.8, 0.2), (0.2, 0.8)))
    turned = Matrix(((0.2, 0.8), (0.8, 0.2)))
    for ours, mirror in zip(chances(turned), chances(straight), strict=True):
        assert ours == pytest.approx(mirror)
