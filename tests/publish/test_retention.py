from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from scipy import stats

from privsql.channels import Categorical, FineGrain, Matrix, Replace, Uniform
from privsql.errors import DataError, InterfaceError, NotSupportedError
from privsql.publish.groups.units import row_units
from privsql.publish.keys.randomness import CHUNK, Keyed, Randomness, Seeded, SystemSource
from privsql.publish.perturb.retention import Sampler, cumulative, digest, inverse_rows
from tests.channels.decoys import proportional
from tests.publish.drawing import perturb

N = 200_000
KEY = bytes(range(32))
UNLIKELY = 1e-4

PRAM = np.array(
    [
        [0.7, 0.1, 0.2, 0.0, 0.0],
        [0.0, 0.9, 0.0, 0.1, 0.0],
        [0.0, 0.0, 0.5, 0.25, 0.25],
        [0.3, 0.0, 0.0, 0.7, 0.0],
        [0.2, 0.2, 0.2, 0.2, 0.2],
    ]
)
CHANNELS = [
    Uniform(0.2, 7),
    Uniform(0.5, 121),
    Uniform(1.0, 5),
    Uniform(0.5, 1),
    Replace(0.3, [0.5, 0.25, 0.125, 0.125]),
    Replace(0.5, [0.0, 0.3, 0.0, 0.7, 0.0]),
    Replace(0.5, [0.0, 1.0, 0.0]),
    Replace(0.4, np.arange(1, 101) / 5050),
    FineGrain([0.0, 0.1, 0.5, 0.9, 1.0]),
    FineGrain(np.linspace(0.05, 0.95, 60)),
    Matrix(PRAM),
    Matrix(Uniform(0.3, 64).matrix),
    Matrix(Uniform(0.3, 33).matrix),
    Matrix([[1.0]]),
]


def originals(size: int, n: int = N) -> np.ndarray:
    return np.arange(n, dtype=np.int64) % size


def joint(a: np.ndarray, b: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(a * size + b, minlength=size * size).reshape(size, size)


def fits(observed: np.ndarray, expected: np.ndarray, unlikely: float = UNLIKELY) -> bool:
    """Chi-square of counts with known margins of rows; what has no chance never happens."""
    possible = expected > 0
    if observed[~possible].any():
        return False
    freedom = int(possible.sum() - possible.any(axis=1).sum())
    statistic = ((observed - expected)[possible] ** 2 / expected[possible]).sum()
    return statistic == 0 if freedom == 0 else stats.chi2.sf(statistic, freedom) > unlikely


# --- frequencies


@pytest.mark.parametrize("source", [Seeded(1), SystemSource()], ids=["keyed", "system"])
@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_frequencies_are_those_of_the_channel(channel, source):
    codes = originals(channel.size)
    published = perturb(codes, channel, source, row_units(0, N), "age")
    assert published.dtype == np.int64
    counts = np.bincount(codes, minlength=channel.size)
    # What is not seeded must not fail once in a while.
    unlikely = UNLIKELY if source.memory else 1e-10
    assert fits(joint(codes, published, channel.size), counts[:, None] * channel.matrix, unlikely)


def test_the_chi_square_test_can_fail():
    codes = originals(7)
    published = perturb(codes, Uniform(0.2, 7), Seeded(1), row_units(0, N), "age")
    counts = np.bincount(codes)[:, None]
    assert not fits(joint(codes, published, 7), counts * Uniform(0.21, 7).matrix)
    assert not fits(joint(codes, published, 7), counts * Replace(0.2, [0.15] * 6 + [0.1]).matrix)


def test_a_domain_of_2_to_the_62_and_one_values():
    channel, codes = Uniform(0.5, 2**62 + 1), np.full(N, 2**62, dtype=np.int64)
    published = perturb(codes, channel, Seeded(3), row_units(0, N), "id")
    kept = published == codes
    assert abs(kept.mean() - 0.5) < 4 * np.sqrt(0.25 / N)
    drawn = published[~kept]
    bins = np.bincount((drawn / channel.size * 32).astype(int), minlength=32)
    assert stats.chisquare(bins).pvalue > UNLIKELY


# --- independence


@pytest.mark.parametrize("channel", [Uniform(0.3, 5), Matrix(PRAM)], ids=repr)
def test_rows_and_columns_are_independent(channel):
    codes, units, draws = np.full(N, 2, dtype=np.int64), row_units(0, N), Seeded(4)
    age = perturb(codes, channel, draws, units, "age")
    cost = perturb(codes, channel, draws, units, "cost")
    other = perturb(np.full(N, 4, dtype=np.int64), channel, draws, units, "age")
    chances = channel.matrix
    product = np.outer(chances[2], chances[2])
    for a, b in [(age, cost), (age[0::2], age[1::2])]:
        observed = joint(a, b, channel.size)
        assert fits(observed.reshape(1, -1), len(a) * product.reshape(1, -1))
    observed = joint(age, other, channel.size)
    assert fits(observed.reshape(1, -1), N * np.outer(chances[2], chances[4]).reshape(1, -1))


def test_other_parameters_draw_independently():
    """Else two retentions give kept values away: see the module's docstring."""
    codes, units, draws = np.full(N, 1, dtype=np.int64), row_units(0, N), Seeded(5)
    high, low = Uniform(0.5, 4), Uniform(0.2, 4)
    first, second = (perturb(codes, c, draws, units, "age") for c in (high, low))
    product = np.outer(high.matrix[1], low.matrix[1])
    assert fits(joint(first, second, 4).reshape(1, -1), N * product.reshape(1, -1))


class Careless(Randomness):
    """What the key would be without the parameters in the draw."""

    memory = True

    def words(self, units, column, codes, stream=0):
        return Seeded(6).words(units, column.split("\x1f")[0], codes, stream)


def test_the_attack_by_two_retentions_works_on_shared_draws_and_not_on_ours():
    codes, units = originals(10), row_units(0, N)

    def right_where_different(draws):
        first, second = (perturb(codes, Uniform(p, 10), draws, units, "age") for p in (0.5, 0.2))
        return (first == codes)[first != second].mean()

    assert right_where_different(Careless()) == 1.0
    assert right_where_different(Seeded(6)) < 0.55


def test_another_domain_of_the_same_size_draws_independently():
    codes, units = np.zeros(N, dtype=np.int64), row_units(0, N)
    domains = [Categorical(("a", "b", "c")), Categorical(("a", "c", "b"))]
    first, second = (
        perturb(codes, Uniform(0.4, 3), Seeded(7), units, "x", domain=d) for d in domains
    )
    chances = Uniform(0.4, 3).matrix[0]
    product = np.outer(chances, chances).reshape(1, -1)
    assert fits(joint(first, second, 3).reshape(1, -1), N * product)


# --- memory


@pytest.mark.parametrize("channel", CHANNELS, ids=repr)
def test_the_key_repeats_what_was_published_in_any_order_and_any_batches(channel):
    n = CHUNK + 1000
    codes, units = originals(channel.size, n), row_units(0, n)
    sampler = Sampler(channel)
    whole = sampler.perturb(codes, Keyed(KEY), units, "age")
    order = np.random.default_rng(0).permutation(n)
    shuffled = perturb(codes[order], channel, Keyed(KEY), units[order], "AGE")
    assert (shuffled == whole[order]).all()
    cuts = [0, 3, 40_000, n]
    parts = [
        sampler.perturb(codes[a:b], Keyed(KEY), units[a:b], "age")
        for a, b in itertools.pairwise(cuts)
    ]
    assert (np.concatenate(parts) == whole).all()


def test_another_key_or_column_changes_what_is_published():
    codes, units, channel = originals(1000), row_units(0, N), Uniform(0.1, 1000)
    base = perturb(codes, channel, Keyed(KEY), units, "age")
    for key, column in ((bytes(32), "age"), (KEY, "cost")):
        other = perturb(codes, channel, Keyed(key), units, column)
        assert (other == base).mean() < 0.02  # both kept: .01, and a little by chance


def votes(releases: list[np.ndarray], size: int) -> np.ndarray:
    """The value published most often for each row; ties go to the first one published."""
    counts = np.zeros((len(releases[0]), size))
    rows = np.arange(len(counts))
    for k, published in enumerate(releases):
        counts[rows, published] += 1 - 1e-3 * k
    return counts.argmax(axis=1)


def test_averaging_ten_releases_gains_nothing_with_a_key_and_nearly_all_without():
    n, channel = 20_000, Uniform(0.5, 10)
    codes, units = originals(10, n), row_units(0, n)

    def recovered(draws: Randomness, times: int) -> float:
        releases = [perturb(codes, channel, draws, units, "disease") for _ in range(times)]
        return float((votes(releases, 10) == codes).mean())

    assert abs(recovered(SystemSource(), 1) - 0.55) < 0.02
    assert 0.78 < recovered(SystemSource(), 5) < 0.88
    assert recovered(SystemSource(), 10) > 0.93
    once = recovered(Keyed(KEY), 1)
    assert abs(once - 0.55) < 0.02
    assert recovered(Keyed(KEY), 10) == once


# --- tables of chances


def test_cumulated_chances_are_exact_at_the_ends_and_leave_no_value_out():
    masses = np.array([0.0, 1e-30, 0.1, 0.0, 0.2, 0.7, 0.0])
    table = cumulative(masses)
    parts = np.diff(table.astype(object), prepend=0)
    assert table[-1] == table[-2] == 2**63
    assert [part == 0 for part in parts] == [mass == 0 for mass in masses]
    assert parts[1] == 1
    shares = parts.astype(float) / 2.0**63
    assert np.allclose(shares[2:], masses[2:], rtol=1e-15)


@pytest.mark.parametrize(
    "masses",
    [[1.0], [1.0, 1e-18], [1e-18, 1.0], [0.5 + 4e-10, 0.5 + 4e-10], np.full(100_000, 1e-5)],
    ids=["one", "rest", "start", "above", "many"],
)
def test_cumulated_chances_end_at_one(masses):
    table = cumulative(np.array(masses))
    assert table[-1] == 2**63
    assert (np.diff(table.astype(object), prepend=0) > 0).all()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9])
def test_the_search_in_rows_agrees_with_a_search_in_each(size):
    rng = np.random.default_rng(size)
    masses = rng.dirichlet(np.ones(size), size) * (rng.random((size, size)) < 0.7)
    masses[:, 0] += masses.sum(axis=1) == 0
    table = np.stack([cumulative(row) for row in masses])
    codes = np.repeat(np.arange(size), 200)
    words = rng.integers(0, 2**64, len(codes), dtype=np.uint64)
    # The ends of each interval are where a search goes wrong.
    edges = np.concatenate([table.reshape(-1), table.reshape(-1) - np.uint64(1)])
    edges = edges[edges < 2**63] << np.uint64(1)
    words[: len(edges)] = edges[: len(words)]
    found = inverse_rows(table, codes, words)
    expected = [
        np.searchsorted(table[c], w >> np.uint64(1), side="right")
        for c, w in zip(codes, words, strict=True)
    ]
    assert found.tolist() == expected
    assert (masses[codes, found] > 0).all()


def test_the_ends_of_the_words_draw_values_with_mass():
    class Ends(Randomness):
        memory = True

        def words(self, units, column, codes, stream=0):
            return np.array([[2**64 - 1, 0], [2**64 - 1, 2**64 - 1]], dtype=np.uint64)

    channel, codes = Replace(0.5, [0.0, 0.4, 0.6, 0.0]), np.array([0, 0])
    assert perturb(codes, channel, Ends(), row_units(0, 2), "x").tolist() == [1, 2]


def test_memory_stays_flat():
    codes, units = originals(256, 20 * CHUNK), row_units(0, 20 * CHUNK)
    sampler = Sampler(Matrix(Uniform(0.3, 256).matrix))
    tracemalloc.start()
    sampler.perturb(codes, Keyed(KEY), units, "age")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < codes.nbytes + codes.nbytes // 4 + 16 * 2**20


# --- what is refused


def test_values_outside_of_the_domain_are_counted_and_not_named():
    for codes in ([0, 77, 78], [-1, 0, -2]):
        with pytest.raises(DataError, match="2 values lie outside") as error:
            perturb(np.array(codes), Uniform(0.5, 3), Seeded(1), row_units(0, 3), "age")
        assert "77" not in str(error.value)


def test_mechanisms_that_need_the_whole_table_are_refused():
    decoy = proportional([100, 100, 100, 100], 2)
    for channel in (decoy, Matrix(PRAM, independent=False)):
        with pytest.raises(NotSupportedError, match="row by row"):
            Sampler(channel)


def test_units_and_domains_must_fit():
    with pytest.raises(InterfaceError):
        perturb(np.array([0, 1]), Uniform(0.5, 3), Seeded(1), row_units(0, 3), "age")
    with pytest.raises(InterfaceError):
        Sampler(Uniform(0.5, 3), Categorical(("a", "b")))


def test_no_rows_are_perturbed_to_none():
    for channel in CHANNELS:
        empty = np.empty(0, dtype=np.int64)
        assert len(perturb(empty, channel, Keyed(KEY), row_units(0, 0), "age")) == 0


def test_digests_tell_parameters_apart():
    domains = [None, Categorical(("a", "b")), Categorical(("b", "a"))]
    channels = [
        *(Uniform(0.5, 2), Uniform(0.25, 2), Replace(0.5, [0.5, 0.5]), FineGrain([0.5, 0.5])),
        *(Matrix([[0.75, 0.25], [0.25, 0.75]]), Matrix([[0.75, 0.25], [0.5, 0.5]])),
    ]
    digests = {digest(channel, domain) for channel in channels for domain in domains}
    assert len(digests) == len(domains) * len(channels)
    assert digest(channels[0], domains[1]) == digest(Uniform(0.5, 2), Categorical(("a", "b")))
