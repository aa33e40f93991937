"""Methods that the papers compare with: what each of them promises."""

from __future__ import annotations

import doctest
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from privsql.errors import ChannelError

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "papers"


@pytest.fixture(scope="module")
def baselines():
    sys.path.insert(0, str(FOLDER))
    import baselines

    yield baselines
    sys.path.remove(str(FOLDER))


@pytest.mark.parametrize("name", ["baselines", "fine_utility", "formulas"])
def test_examples_of_the_docstrings(name):
    found = doctest.testmod(importlib.import_module(f"examples.papers.{name}"))
    assert found.attempted
    assert not found.failed


def test_anatomy_buckets_are_diverse(baselines):
    rng = np.random.default_rng(1)
    codes = rng.choice(8, 1003, p=[0.2, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    tables = baselines.anatomy(codes, 4, rng)
    sizes = np.bincount(tables.bucket)
    assert set(sizes.tolist()) <= {4, 5, 6, 7}
    assert (tables.values[:, 2] == 1).all()
    np.testing.assert_array_equal(np.bincount(tables.values[:, 1]), np.bincount(codes))
    # The counts of the sensitive table are exact; a public condition spreads over buckets.
    everything = np.ones(len(codes), bool)
    assert baselines.anatomy_count(tables, everything, [0, 3]) == pytest.approx(
        np.isin(codes, [0, 3]).sum()
    )
    selected = rng.random(len(codes)) < 0.5
    answer = baselines.anatomy_count(tables, selected, [0])
    assert answer == pytest.approx((selected & (codes == 0)).sum(), rel=0.25)


def test_anatomy_refuses(baselines):
    rng = np.random.default_rng(1)
    with pytest.raises(ChannelError, match="share"):
        baselines.anatomy(np.array([0, 0, 0, 1]), 2, rng)
    with pytest.raises(ChannelError, match="share"):
        baselines.anatomy(np.array([0]), 2, rng)


def test_dbr_keeps_the_distribution_and_nothing_else(baselines):
    rng = np.random.default_rng(2)
    codes = np.repeat([0, 1], [80_000, 20_000])
    drawn = baselines.dbr(codes, rng)
    assert (drawn == 1).mean() == pytest.approx(0.2, abs=0.006)
    assert (drawn[codes == 1] == 1).mean() == pytest.approx(0.2, abs=0.015)
    assert len(baselines.dbr(np.zeros(0, int), rng)) == 0


def test_laplace(baselines):
    rng = np.random.default_rng(3)
    noise = baselines.laplace(np.zeros((100, 1000)), 3.0, rng)
    assert noise.shape == (100, 1000)
    assert np.abs(noise).mean() == pytest.approx(3.0, rel=0.02)
    with pytest.raises(ChannelError):
        baselines.laplace([1.0], 0.0, rng)
