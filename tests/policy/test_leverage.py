"""Answers taken together say no more about one group than the limit allows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from privsql.errors import DataError, InternalError
from privsql.policy.functions import Atoms
from privsql.policy.sketch import leverage as module
from privsql.policy.sketch.leverage import Cells, Leverage
from tests.policy.spans import admit, leverages, stacked

LIMIT = 0.9


def atoms(rows: list[int], groups: list[int] | None = None) -> Atoms:
    numbers = list(range(len(rows))) if groups is None else groups
    return Atoms(np.array(rows, dtype=np.int64), np.array(numbers, dtype=np.int64))


def weights(table: Atoms, *row_weights: float) -> np.ndarray:
    """W of an aggregate that gives every row of atom a the weight ``row_weights[a]``."""
    return np.array(row_weights, dtype=float) * table.rows


def ask(user: Leverage, *row_weights: float) -> bool:
    return bool(admit(user, stacked([weights(user.atoms, *row_weights)])).admitted[0])


def slow_leverages(table: Atoms, raw: np.ndarray) -> np.ndarray:
    """The definition, from scratch: an SVD of everything that was answered."""
    V = np.atleast_2d(raw) / np.sqrt(table.rows)
    V = V[np.abs(V).max(axis=1) > 0] if V.size else np.empty((0, table.rows.size))
    found = []
    if len(V):
        V = V / np.linalg.norm(V, axis=1, keepdims=True)
        _, values, right = np.linalg.svd(V, full_matrices=False)
        Q = right[values > 1e-9 * values[0]]
    else:
        Q = V
    for g in np.unique(table.groups):
        part = Q[:, table.groups == g]
        found.append(np.linalg.norm(part, 2) ** 2 if part.size else 0.0)
    return np.array(found)


# -- by hand ---------------------------------------------------------------------------------


def test_one_group_alone_is_not_admitted_and_leaves_no_trace():
    user = Leverage(atoms([40, 60]))
    assert not ask(user, 1, 0)
    assert user._basis.dimension == 0
    assert leverages(user).tolist() == [0, 0]


def test_the_leverage_of_a_count_is_the_groups_share_of_its_rows():
    user = Leverage(atoms([40, 60]))
    assert ask(user, 1, 1)
    np.testing.assert_allclose(leverages(user), [0.4, 0.6])


def test_nine_rows_of_ten_are_at_the_limit_and_not_above_it():
    assert ask(Leverage(atoms([9, 1])), 1, 1)
    assert not ask(Leverage(atoms([91, 9])), 1, 1)


def test_a_set_and_the_same_set_less_one_group():
    user = Leverage(atoms([30, 30, 30]))
    assert ask(user, 1, 1, 1)
    assert not ask(user, 1, 1, 0)
    np.testing.assert_allclose(leverages(user), [1 / 3] * 3)
    assert ask(user, 1, 1, 1)


def test_a_complement_against_the_total():
    user = Leverage(atoms([30, 30, 30, 30]))
    assert ask(user, 1, 1, 1, 1)
    assert ask(user, 1, 1, 0, 0)
    assert ask(user, 0, 0, 1, 1)  # known already
    assert user._basis.dimension == 2
    assert not ask(user, 1, 0, 0, 0)
    assert not ask(user, 0, 1, 1, 1)


def test_a_chain_of_three():
    user = Leverage(atoms([20] * 5))
    assert ask(user, 1, 1, 0, 0, 0)
    assert ask(user, 0, 1, 1, 0, 0)
    # a+b, b+c, c+a would give 2a: the third closes the chain.
    assert not ask(user, 1, 0, 1, 0, 0)
    np.testing.assert_allclose(leverages(user)[:3], [2 / 3] * 3)


def test_a_partner_group_of_one_row():
    # Exact spans see nothing here: A + g less A + one row is g less one row.
    user = Leverage(atoms([250, 250, 50, 1]))
    assert ask(user, 1, 1, 1, 0)
    assert not ask(user, 1, 1, 0, 1)


def test_after_the_total_a_second_cell_is_suppressed():
    # Cells {0, 1}, {2, 3}, {4}: the last is personal, and the total less the others is it.
    table = atoms([50, 50, 30, 30, 20])
    user = Leverage(table)
    assert ask(user, 1, 1, 1, 1, 1)
    cells = [
        weights(table, 1, 1, 0, 0, 0),
        weights(table, 0, 0, 1, 1, 0),
        weights(table, 0, 0, 0, 0, 1),
    ]
    assert admit(user, stacked(cells)).admitted.tolist() == [True, False, False]
    # Without the total both large cells are fine.
    assert admit(Leverage(table), stacked(cells)).admitted.tolist() == [True, True, False]


def test_a_condition_that_cuts_a_merged_group():
    # Atoms 0, 1, 2 are one group: any weighting within it counts, not only its total.
    table = atoms([10, 10, 10, 40, 40], [7, 7, 7, 8, 9])
    user = Leverage(table)
    assert not ask(user, 1, 0, 0, 0, 0)
    assert not ask(user, 1, 1, 0, 0, 0)
    assert ask(user, 1, 0, 0, 1, 0)
    assert not ask(user, 0, 1, 0, 1, 0)  # the difference is atom 0 less atom 1, within the group
    assert ask(user, 0, 0, 0, 1, 1)
    np.testing.assert_allclose(leverages(user)[0], slow_leverages(table, np.array([
        weights(table, 1, 0, 0, 1, 0), weights(table, 0, 0, 0, 1, 1)]))[0])  # fmt: skip


def test_one_heavy_weight_is_a_personal_answer():
    table = atoms([10, 500, 500])
    for weight in (1e3, 1e6, 1e9, 1e200, 1e308):
        user = Leverage(table)
        with np.errstate(over="raise"):
            W = stacked([weights(table, weight / 1e3, 1 / 1e3, 1 / 1e3)])
        assert not admit(user, W).admitted[0]
    assert ask(Leverage(table), 10, 1, 1)


@pytest.mark.parametrize("digits", [1e-3, 1e-7, 1e-9, 1e-11, 1e-13])
def test_a_group_hidden_in_late_digits_is_a_new_direction(digits):
    user = Leverage(atoms([30, 400, 500, 20]))
    assert ask(user, 1, 1, 1, 0)
    assert not ask(user, 1 + digits, 1, 1, 0)
    assert user._basis.dimension == 1
    assert ask(user, 2.5, 2.5, 2.5, 0)


def test_a_weight_that_drowns_in_rounding_is_not_taken_for_an_old_answer():
    # 1e15 times an old answer, and a group: the residual is below the noise of the vector.
    user = Leverage(atoms([30, 400, 500, 20]))
    assert ask(user, 1, 1, 1, 0)
    assert not ask(user, 1e15, 1e15, 1e15, 1)
    assert not ask(user, 1e9, 1e9, 1e9, 1)
    assert ask(user, 1e15, 1e15, 1e15, 0)


def test_a_residual_too_faint_to_know_its_direction_is_not_admitted():
    # One part in 1e12 of a harmless answer: measured alone, it would pass.
    table = atoms([20] * 8)
    old, other = weights(table, 1, 1, 1, 1, 0, 0, 0, 0), weights(table, 0, 0, 1, 1, 1, 1, 0, 0)
    user = Leverage(table)
    assert admit(user, stacked([old])).admitted[0]
    assert not admit(user, stacked([old + 1e-12 * other])).admitted[0]
    fine = weights(table, 0, 0, 0, 0, 1, 1, 1, 1)
    pair = np.stack([fine, old + 1e-12 * other])
    assert not admit(user, stacked([pair])).admitted[0]
    assert user._basis.dimension == 1
    assert admit(user, stacked([other])).admitted[0]


def test_a_drowning_weight_in_a_wide_statement():
    table = atoms([20] * 280)
    user = Leverage(table)
    assert ask(user, *[1] * 200, *[0] * 80)
    cells = grouped(table, np.arange(280) // 4).weights
    hidden = weights(table, *[1e15] * 200, 1, *[0] * 79)
    answer = admit(user, stacked([hidden, *(cells[[i]] for i in range(70))]))
    assert answer.admitted.tolist() == [False, *[True] * 70]


def test_an_exact_repeat_is_admitted_whatever_its_digits():
    user = Leverage(atoms([30, 400, 500, 20]))
    odd = (1e-9, 1, 1, 1e-12)
    assert ask(user, *odd)
    assert ask(user, 1, 2, 1, 3)
    before = user._basis.dimension
    assert ask(user, *odd)
    assert user._basis.dimension == before


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_weights_that_are_no_numbers_are_refused(bad):
    user = Leverage(atoms([10, 10]))
    answer = admit(user, stacked([np.array([bad, 1.0]), np.array([10.0, 10.0])]))
    assert answer.admitted.tolist() == [False, True]


def test_an_aggregate_of_nothing_says_nothing():
    user = Leverage(atoms([10, 10]))
    assert ask(user, 0, 0)
    assert user._basis.dimension == 0


def test_all_vectors_of_a_cell_or_none():
    table = atoms([30, 30, 30])
    user = Leverage(table)
    pair = np.stack([weights(table, 1, 1, 1), weights(table, 1, 1, 0)])
    answer = admit(user, stacked([pair, weights(table, 1, 1, 1)]))
    assert answer.admitted.tolist() == [False, True]
    assert user._basis.dimension == 1
    assert answer.added.toarray().tolist() == [[30, 30, 30]]


def test_nothing_changes_before_the_commit():
    user = Leverage(atoms([30, 30, 30]))
    first = user.propose(stacked([weights(user.atoms, 1, 1, 0)]))
    assert first.admission.admitted.all()
    assert user._basis.dimension == 0
    second = user.propose(stacked([weights(user.atoms, 0, 1, 1)]))
    with pytest.raises(InternalError):
        user.commit(first)
    before = leverages(user)
    user.commit(second)
    assert before.tolist() == [0, 0, 0]
    np.testing.assert_allclose(leverages(user), [0, 0.5, 0.5])
    with pytest.raises(InternalError):
        user.commit(second)


def test_a_proposal_that_is_dropped_leaves_merged_groups_as_they_were():
    user = Leverage(atoms([10, 10, 40, 40], [0, 0, 1, 2]))
    assert ask(user, 1, 0, 1, 0)
    before = leverages(user).tolist()
    dropped = user.propose(stacked([weights(user.atoms, 0, 2, 0, 1)]))
    assert dropped.admission.admitted.all()
    assert leverages(user).tolist() == before


@pytest.mark.parametrize("cap", [{"most_rank": 1}, {"most_entries": 7}])
def test_past_the_cap_only_old_answers_are_given(cap):
    user = Leverage(atoms([10] * 6), **cap)
    assert ask(user, 1, 1, 0, 0, 0, 0)
    late = admit(user, stacked([weights(user.atoms, 0, 0, 1, 1, 0, 0)]))
    assert (late.admitted.tolist(), late.full) == ([False], True)
    again = admit(user, stacked([weights(user.atoms, 3, 3, 0, 0, 0, 0)]))
    assert (again.admitted.tolist(), again.full) == ([True], False)


def test_atoms_that_are_no_table_are_an_error():
    with pytest.raises(DataError):
        atoms([1, 0])
    with pytest.raises(DataError):
        atoms([])
    with pytest.raises(DataError):
        admit(Leverage(atoms([1, 2])), stacked([np.ones(3)]))


# -- against slow computations ---------------------------------------------------------------


def random_table(rng: np.random.Generator, most: int = 14) -> Atoms:
    size = int(rng.integers(3, most))
    rows = rng.choice([1, 2, 5, 10, 50, 1000], size)
    return Atoms(rows.astype(np.int64), rng.integers(0, rng.integers(2, size + 1), size))


def random_weights(rng: np.random.Generator, table: Atoms) -> np.ndarray:
    size = table.rows.size
    chosen = (rng.random(size) < rng.choice([0.3, 0.6, 0.9])).astype(float)
    kind = rng.integers(4)
    if kind == 1:
        chosen *= rng.integers(1, 5, size)
    elif kind == 2:
        chosen *= rng.normal(size=size)
    elif kind == 3:
        chosen[rng.integers(size)] = rng.choice([1e3, 1.001, -1])
    return chosen * table.rows


def random_cell(rng: np.random.Generator, table: Atoms) -> np.ndarray:
    return np.stack([random_weights(rng, table) for _ in range(rng.choice([1, 1, 1, 2, 3]))])


@given(st.integers(0, 2**32 - 1))
def test_decisions_and_leverages_are_those_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    table = random_table(rng)
    # Half of the time the matrices of groups are not kept: the other way to the same numbers.
    stored = 2**25 if rng.random() < 0.5 else table.rows.size**2
    user = Leverage(table, most_entries=stored)
    kept = np.empty((0, table.rows.size))
    for _ in range(int(rng.integers(1, 9))):
        cells = [random_cell(rng, table) for _ in range(int(rng.integers(1, 4)))]
        if len(kept) and rng.random() < 0.3:  # an old answer in another dress
            cells.append(rng.normal(size=(1, len(kept))) @ kept)
        answer = admit(user, stacked(cells))
        for cell, admitted in zip(cells, answer.admitted, strict=True):
            grown = np.concatenate([kept, cell])
            worst = slow_leverages(table, grown).max(initial=0)
            if abs(worst - LIMIT) > 1e-6:
                assert admitted == (worst <= LIMIT)
            if admitted:
                kept = grown
        np.testing.assert_allclose(leverages(user), slow_leverages(table, kept), atol=1e-7)


@given(st.integers(0, 2**32 - 1))
def test_no_least_squares_attack_comes_closer_than_the_bound(seed):
    rng = np.random.default_rng(seed)
    table = random_table(rng)
    user = Leverage(table)
    asked = [random_cell(rng, table) for _ in range(25)]
    admitted = admit(user, stacked(asked)).admitted
    kept = [cell for cell, fine in zip(asked, admitted, strict=True) if fine]
    if not kept:
        return
    V = (np.concatenate(kept) / np.sqrt(table.rows)).T
    V = V / np.maximum(np.linalg.norm(V, axis=0), 1e-300)
    least = math.sqrt(1 - LIMIT) - 1e-6
    for g in np.unique(table.groups):
        mine = np.flatnonzero(table.groups == g)
        targets = [np.sqrt(table.rows[mine])]  # the group's count
        targets += [np.eye(mine.size)[i] for i in range(mine.size)]
        targets += list(rng.normal(size=(20, mine.size)))
        for target in targets:
            wanted = np.zeros(table.rows.size)
            wanted[mine] = target / np.linalg.norm(target)
            weight, *_ = np.linalg.lstsq(V, wanted, rcond=1e-10)
            assert np.linalg.norm(V @ weight - wanted) >= least


# -- wide statements -------------------------------------------------------------------------


def grouped(table: Atoms, keys: np.ndarray, row_weights: np.ndarray | None = None) -> Cells:
    """The cells of a GROUP BY, the largest first."""
    W = table.rows * (np.ones(keys.size) if row_weights is None else row_weights)
    made = sparse.csr_array((W, (keys, np.arange(keys.size))), shape=(keys.max() + 1, keys.size))
    order = np.argsort(-np.bincount(keys, table.rows), kind="stable")
    made = made[order]
    return Cells(made, np.arange(made.shape[0]), made.shape[0])


def wide_table(rng: np.random.Generator, size: int, groups: int) -> Atoms:
    return Atoms(rng.integers(1, 60, size), rng.integers(0, groups, size))


@pytest.mark.parametrize("way", ["one by one", "halving"])
@pytest.mark.parametrize("seed", range(4))
def test_a_wide_group_by_is_decided_as_its_cells_in_turn(seed, way, monkeypatch):
    rng = np.random.default_rng(seed)
    table = wide_table(rng, 400, 250)
    history = [np.ones(400) * table.rows, *((rng.random((4, 400)) < 0.5) * table.rows)]
    statements = [
        grouped(table, rng.integers(0, 120, 400)),
        grouped(table, np.arange(400) // 4),
        stacked([rng.integers(0, 2, 400) * table.rows]),
    ]
    turn, together = Leverage(table), Leverage(table)
    for cells in [stacked(history), *statements]:
        with monkeypatch.context() as patched:
            patched.setattr(module, "TOGETHER", 10**9)
            slow = admit(turn, cells)
        with monkeypatch.context() as patched:
            if way == "halving":
                patched.setattr(module, "MOST_WORK", 0)
                patched.setattr(module, "MOST_TRIALS", 10**6)
            fast = admit(together, cells)
        assert fast.admitted.tolist() == slow.admitted.tolist()
        assert together._basis.dimension == turn._basis.dimension
        np.testing.assert_allclose(leverages(together), leverages(turn), atol=1e-9)
    assert turn._basis.dimension > 100


def test_two_aggregates_a_cell_and_a_total_in_one_statement():
    rng = np.random.default_rng(5)
    table = wide_table(rng, 900, 900)
    keys = np.arange(900) // 9
    counts, sums = (grouped(table, keys, w).weights for w in (None, rng.uniform(1, 3, 900)))
    pairs = [sparse.vstack([counts[[i]], sums[[i]]], format="csr") for i in range(100)]
    cells = stacked([table.rows.astype(float), *map(sparse.csr_array, pairs)])
    user = Leverage(table)
    answer = admit(user, cells)
    kept = np.concatenate([c.toarray() for c in np.array(pairs, dtype=object)[answer.admitted[1:]]])
    assert answer.admitted.sum() > 90
    assert user._basis.dimension == len(kept) + (not answer.admitted.all())
    expected = slow_leverages(table, np.concatenate([kept, table.rows[np.newaxis]]))
    np.testing.assert_allclose(leverages(user), expected, atol=1e-9)


def test_ten_thousand_cells_behind_a_total_stay_sparse():
    rng = np.random.default_rng(6)
    size = 40_000
    table = Atoms(rng.integers(10, 60, size), np.arange(size))
    user = Leverage(table)
    assert admit(user, stacked([table.rows.astype(float)])).admitted.all()
    answer = admit(user, grouped(table, np.arange(size) // 4))
    assert answer.admitted.all()
    assert user._basis.dimension == 10_000
    assert user.entries < 20 * size
    again = admit(user, grouped(table, np.arange(size) // 8))  # sums of answered cells
    assert again.admitted.all()
    assert again.added.shape[0] == 0


def test_a_statement_that_costs_too_much_is_turned_away_and_says_so(monkeypatch):
    # One cell is personal, so behind the total not all others can go in together.
    rows = np.full(400, 30)
    rows[-1] = 2_000
    table = Atoms(rows, np.arange(400))
    cells = grouped(table, np.arange(400) // 4)
    monkeypatch.setattr(module, "MOST_WORK", 0)
    given = {}
    for trials in (3, 200):
        monkeypatch.setattr(module, "MOST_TRIALS", trials)
        user = Leverage(table)
        assert admit(user, stacked([table.rows.astype(float)])).admitted.all()
        given[trials] = admit(user, cells)
        assert leverages(user).max() <= LIMIT + 1e-9
    assert given[3].full
    assert not given[200].full
    # With one more cell of 120 rows, 2,000 of the 2,210 rows that are left are one group's.
    assert given[200].admitted.tolist() == [False, *[True] * 97, False, False]
    assert given[3].admitted.sum() < 97


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_restored_vectors_give_the_same_leverages(seed):
    rng = np.random.default_rng(seed)
    table = wide_table(rng, 300, 200)
    user, stored = Leverage(table), []
    for _ in range(3):
        few = stacked([random_cell(rng, table) for _ in range(3)])
        stored += [admit(user, few).added]
        stored += [admit(user, grouped(table, rng.integers(0, 70, 300))).added]
    twin = Leverage(table)
    twin.restore(stored)
    assert twin._basis.dimension == user._basis.dimension
    np.testing.assert_allclose(leverages(twin), leverages(user), atol=1e-9)
    late = stacked([random_cell(rng, table) for _ in range(5)])
    assert admit(twin, late).admitted.tolist() == admit(user, late).admitted.tolist()
