"""Where the papers are wrong: their version fails, side by side with ours (reconstruction, 9).

Those of the audit's own formulas are beside them: 9.2 in ``test_trials``, 9.5 and 9.12 in
``test_criteria``, 9.9 in ``test_sums``, 9.13 in ``test_job``.
"""

from __future__ import annotations

import numpy as np
import pytest

from privsql.audit.criteria.trials import group_cap
from privsql.channels import Grid, Interval
from privsql.publish.groups.group_caps import sample_duplicate
from tests.channels.decoys import proportional


def test_error_bars_that_count_duplicates_are_too_small():
    """Section 9.4: 8,000 rows cut to 500 and duplicated have error bars 4 times too small."""
    rng = np.random.default_rng(4)
    n, s, p = 8_000, 500, 0.5
    raw = (np.arange(n) < 0.3 * n).astype(int)
    groups = np.zeros(n, dtype=int)
    estimates = []
    for _ in range(300):
        rows = sample_duplicate(groups, raw, np.array([float(s)]), rng)
        kept, copies = np.unique(rows, return_counts=True)
        drawn = np.where(rng.random(len(kept)) < p, raw[kept], rng.integers(0, 2, len(kept)))
        estimates.append(((drawn * copies).sum() / len(rows) - (1 - p) / 2) / p)
    share = 0.3 * p + (1 - p) / 2
    naive = np.sqrt(share * (1 - share) / n) / p  # every row taken for a trial
    honest = np.sqrt(share * (1 - share) / s) / p
    assert np.std(estimates) > 3 * naive
    assert np.std(estimates) == pytest.approx(honest, rel=0.2)


def test_decoys_by_the_papers_chance_do_not_keep_the_count():
    """Section 9.7: c f/N adds 1/c to every expected count; f(c-1)/(N-f) keeps it."""
    totals, c = np.array([60.0] * 10), 5
    f, n = totals[0], totals.sum()
    paper = f / c + (n - f) * (c * f / n) / c
    ours = f / c + (n - f) * (f * (c - 1) / (n - f)) / c
    assert ours == pytest.approx(f)
    assert paper == pytest.approx(f * (1 / c + 1 - f / n))
    assert paper > 1.09 * f
    published = proportional(totals, c).expected(totals)
    np.testing.assert_allclose(published, totals)


def test_the_papers_mass_of_a_closed_range_moves_a_count():
    """Section 9.10: age 25 to 45 on whole years, at p = .2, by some hundredths of all rows."""
    p, n, x = 0.2, 10_000, 4_500
    age = Grid.of(17, 90)
    ours, paper = age.mass(Interval(25, 45)), (45 - 25) / (90 - 17)
    seen = x * p + n * (1 - p) * ours  # expected
    assert (seen - n * (1 - p) * ours) / p == pytest.approx(x)
    assert (seen - n * (1 - p) * paper) / p - x > 0.03 * n


def test_a_private_group_can_be_cut_finer():
    """Section 9.15: 214 rows at f = .5 are private, the half of them that all agree is not."""
    whole, part = group_cap([0.5, 1.0], 0.5, 2, 0.3, 0.3)
    assert whole >= 214
    assert part < 214 / 2
