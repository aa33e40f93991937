"""The digest of a source's state: equal for equal states, and for nobody else to read."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from privsql.channels import Uniform
from privsql.publish.groups.units import row_units
from privsql.publish.keys.fingerprint import Witness, label
from privsql.publish.keys.randomness import CHUNK, Keyed
from privsql.publish.perturb.retention import Sampler

KEY, OTHER_KEY = bytes(range(32)), bytes(32)
RULES = Sampler(Uniform(0.5, 10))


def state(units, codes, *, key=KEY, cuts=(), sampler=RULES, column="age") -> str:
    witness = Witness(key)
    bounds = [0, *cuts, len(codes)]
    for start, stop in pairwise(bounds):
        sampler.perturb(codes[start:stop], witness, units[start:stop], column)
    return witness.state(column, sampler.digest)


@pytest.fixture
def people():
    count = CHUNK + 1000
    return row_units(0, count), np.random.default_rng(1).integers(0, 10, count)


def test_the_order_and_the_batches_of_rows_are_no_matter(people):
    units, codes = people
    mixed = np.random.default_rng(2).permutation(len(codes))
    assert state(units[mixed], codes[mixed], cuts=(1, 5000)) == state(units, codes)
    assert state(units, codes, column="AGE") == state(units, codes)


def test_every_change_is_another_state(people):
    units, codes = people
    changed = codes.copy()
    changed[7] = (changed[7] + 1) % 10
    exchanged = codes.copy()
    first, second = np.flatnonzero(codes == 1)[0], np.flatnonzero(codes == 2)[0]
    exchanged[[first, second]] = 2, 1  # the same values, with other persons
    twice = np.arange(len(codes)).repeat(2)
    found = [
        state(units, codes),
        state(units, changed),
        state(units, exchanged),
        state(units[1:], codes[1:]),
        state(units[twice], codes[twice]),
        state(units, codes, key=OTHER_KEY),
        state(units, codes, column="cost"),
        state(units, codes, sampler=Sampler(Uniform(0.2, 10))),
    ]
    assert len(set(found)) == len(found)


def test_rows_that_come_twice_do_not_cancel(people):
    units, codes = people
    assert state(units[[0, 0]], codes[[0, 0]]) != state(units[[1, 1]], codes[[1, 1]])


def test_the_witness_draws_what_the_key_draws(people):
    units, codes = people
    drawn = RULES.perturb(codes, Witness(KEY), units, "age")
    assert (drawn == RULES.perturb(codes, Keyed(KEY), units, "age")).all()
    assert repr(Witness(KEY)) == "Witness(key hidden)"
    assert Witness(KEY).unit_key == Keyed(KEY).unit_key


def test_the_state_of_one_row_does_not_show_its_draw():
    units, codes = row_units(0, 1), np.array([3])
    words = Keyed(KEY).words(units, label("age", RULES.digest), codes)
    shown = bytes.fromhex(state(units, codes))
    assert len(shown) == 16
    assert shown != words.astype("<u8").tobytes()


def test_what_was_not_drawn_has_no_state():
    assert Witness(KEY).state("age", RULES.digest) == ""
