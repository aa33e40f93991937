"""Attacks on a naive way of publishing that do not work on ours.

Each is shown to work where it should, so that its failure here means something.
"""

from __future__ import annotations

import numpy as np

from privsql.channels import Grid, Uniform
from privsql.publish.groups.units import row_units
from privsql.publish.keys.randomness import Seeded
from tests.publish.drawing import perturb


def publish(domain: Grid, values: np.ndarray, retention: float, seed: int = 1) -> np.ndarray:
    channel = Uniform(retention, domain.size)
    units = row_units(0, len(values))
    codes = domain.codes(values)
    drawn = perturb(codes, channel, Seeded(seed), units, "x", domain=domain)
    return np.asarray(domain.decode(drawn).to_pylist())


def posterior_guess(published: np.ndarray, common: np.ndarray) -> np.ndarray:
    """An attacker who knows which values people really have calls those rows kept."""
    return np.isin(published, common)


def test_digits_give_kept_values_away_on_a_continuum_and_not_on_a_grid():
    """Section 1: at p = .2 cents in a real interval recognise every kept row."""
    rng = np.random.default_rng(1)
    truth = rng.integers(0, 50_000, 20_000) / 100  # prices in cents
    kept = rng.random(len(truth)) < 0.2
    naive = np.where(kept, truth, rng.uniform(0, 500, len(truth)))
    recognised = np.isclose(naive * 100, np.round(naive * 100), rtol=0, atol=1e-6)
    assert (recognised == kept).mean() > 0.999, "the attack works on a continuum"

    coarse = Grid.of(0, 500, 10)
    ours = publish(coarse, truth, 0.2)
    on_cents = np.isclose(ours * 100, np.round(ours * 100), rtol=0, atol=1e-6)
    assert on_cents.all(), "every published value looks alike: there are no digits to read"
    # What is left is the channel's own epsilon, which the release prints.
    assert Uniform(0.2, coarse.size).epsilon < 3


def test_heaps_give_kept_values_away_on_a_fine_grid_and_the_epsilon_says_so():
    """Section 1: integers to 500,000 heaped at thousands, 99.7% of the kept rows recognised."""
    rng = np.random.default_rng(2)
    truth = rng.integers(0, 500, 20_000) * 1000
    fine = Grid.of(0, 499_999)
    published = publish(fine, truth, 0.2)
    called = published % 1000 == 0
    kept = published == truth
    assert (kept & called).sum() / called.sum() > 0.99, "the attack works on a fine grid"
    assert Uniform(0.2, fine.size).epsilon > 5, "and that is why the spec must accept it"

    coarse = Grid.of(0, 499_000, 1000)
    ours = publish(coarse, truth, 0.2)
    called = posterior_guess(ours, np.unique(truth))
    right = (ours == truth)[called].mean()
    honest = 0.2 + 0.8 / coarse.size
    assert abs(right - honest) < 0.02, "on the heaps' own grid nothing is learnt from digits"
