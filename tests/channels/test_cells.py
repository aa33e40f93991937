from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsql.channels import Cells, FineGrain, Matrix, Uniform, refine
from privsql.errors import ChannelError
from tests.channels import logic
from tests.strategies import channels, seeds
from udfs.invert import invert
from udfs.kron import transition


def all_partitions(size: int):
    """Every partition of ``size`` values, as canonical labels."""

    def grow(prefix):
        if len(prefix) == size:
            yield prefix
            return
        for label in range(max(prefix, default=-1) + 2):
            yield from grow([*prefix, label])

    return map(Cells.of, grow([]))


def refines(fine: Cells, coarse: Cells) -> bool:
    return all(
        coarse.labels[i] == coarse.labels[j]
        for i, j in product(range(fine.size), repeat=2)
        if fine.labels[i] == fine.labels[j]
    )


def is_lumpable(cells: Cells, matrix: np.ndarray) -> bool:
    for cell in range(cells.count):
        masses = matrix[:, cells.labels == cell].sum(axis=1)
        for other in range(cells.count):
            if np.ptp(masses[cells.labels == other]) > 1e-9:
                return False
    return True


@st.composite
def blocky(draw):
    """A channel of up to 5 values in which some values are perturbed alike."""
    rng = np.random.default_rng(draw(seeds))
    m = draw(st.integers(2, 5))
    if draw(st.booleans()):
        return FineGrain(rng.choice([0.2, 0.5, 0.8], size=m))
    # Mix identity with a matrix that is constant on random blocks: partly lumpable.
    blocks = Cells.of(rng.integers(0, 2, size=m))
    between = rng.dirichlet(np.ones(blocks.count), size=blocks.count)
    spread = between[blocks.labels][:, blocks.labels] / blocks.sizes[blocks.labels]
    return Matrix(0.5 * np.eye(m) + 0.5 * spread)


@settings(max_examples=150)
@given(channel=blocky(), seed=seeds)
def test_refinement_is_the_coarsest_lumpable_one(channel, seed):
    labels = np.random.default_rng(seed).integers(0, 3, size=channel.size)
    cells = Cells.of(labels)
    found = refine(cells, channel)
    assert refines(found, cells)
    assert is_lumpable(found, channel.matrix)
    candidates = [
        candidate
        for candidate in all_partitions(channel.size)
        if refines(candidate, cells) and is_lumpable(candidate, channel.matrix)
    ]
    assert found.count == min(candidate.count for candidate in candidates)
    assert all(refines(candidate, found) for candidate in candidates)


@given(channel=channels(), seed=seeds)
def test_lumped_channel_is_exact_on_counts(channel, seed):
    rng = np.random.default_rng(seed)
    asked = Cells.of(rng.integers(0, 3, size=channel.size))
    cells = refine(asked, channel)
    counts = rng.integers(0, 100, size=channel.size)
    lumped = channel.lump(cells)
    published = cells.sums(channel.expected(counts))
    np.testing.assert_allclose(lumped.expected(cells.sums(counts)), published)
    original = invert(published, transition([lumped.matrix]))
    back = np.bincount(logic.parents(cells, asked), weights=original, minlength=asked.count)
    np.testing.assert_allclose(back, asked.sums(counts), atol=1e-6)


def test_uniform_and_replace_never_need_refining():
    cells = Cells.of([0, 1, 1, 0])
    assert refine(cells, Uniform(0.3, 4)) is cells


def test_fine_grain_two_state_shortcut_is_biased_and_refining_is_not():
    """Section 9.6: with m = 8 and p_i from .1 to .9 a true .447 comes out as .524."""
    channel = FineGrain(np.linspace(0.1, 0.9, 8))
    asked = Cells.of([0, 1] * 4)  # every second value satisfies the predicate
    shares = np.empty(8)
    shares[1::2] = 0.447 / 4
    shares[0::2] = 0.553 * (0.25 + 0.01575 * np.array([3, 1, -1, -3]))
    published = asked.sums(channel.expected(shares))
    shortcut = invert(published, transition([Uniform(0.5, 2).matrix]))  # the mean retention
    assert shortcut[1] == pytest.approx(0.524, abs=5e-4)
    cells = refine(asked, channel)
    assert cells.count == 8
    states = invert(channel.expected(shares), transition([channel.lump(cells).matrix]))
    back = np.bincount(logic.parents(cells, asked), weights=states)
    assert back[1] == pytest.approx(0.447, abs=1e-12)


@given(seed=seeds, conditions=st.integers(0, 4), size=st.integers(1, 30))
def test_partition_separates_exactly_what_the_conditions_separate(seed, conditions, size):
    truths = np.random.default_rng(seed).integers(0, 3, size=(conditions, size))
    cells = logic.partition(list(truths), size)
    for i, j in product(range(size), repeat=2):
        same = all(truth[i] == truth[j] for truth in truths)
        assert (cells.labels[i] == cells.labels[j]) == same
    assert cells.labels[0] == 0
    assert (np.diff(np.unique(cells.labels, return_index=True)[1]) > 0).all()


def test_partition_of_a_million_values_is_quick_enough_to_use():
    values = np.arange(1 << 20)
    cells = logic.partition([values % 2, values // (1 << 19)], 1 << 20)
    assert cells.count == 4
    np.testing.assert_array_equal(cells.sizes, [1 << 18] * 4)


def test_sums_agree_between_one_and_many_dimensions():
    cells = Cells.of([2, 0, 2, 1, 0])
    table = np.arange(15.0).reshape(3, 5)
    np.testing.assert_allclose(cells.sums(table), [cells.sums(row) for row in table])


def test_partitions_are_compared_by_what_they_separate():
    assert Cells.of(["b", "a", "b"]) == Cells.of([5, 7, 5])
    assert Cells.of([0, 1, 1]) != Cells.of([0, 0, 1])
    assert len({Cells.of(["b", "a"]), Cells.of([0, 1])}) == 1


def test_labels_are_told_apart_as_python_tells_them_apart():
    assert Cells.of([1, "1", None, 1, None]).labels.tolist() == [0, 1, 2, 0, 2]
    assert Cells.of([2**60, 2**60 + 1, 0.5]).count == 3
    assert logic.partition([[True, None, False]], 3).count == 3


def test_wrong_shapes_are_refused():
    with pytest.raises(ChannelError, match="one label"):
        Cells.of([])
    for wrong in (np.ones(2), np.ones((2, 4)), 1.0):
        with pytest.raises(ChannelError, match="each of 3 values"):
            Cells.of([0, 0, 1]).sums(wrong)
    with pytest.raises(ChannelError, match="True, False or None"):
        logic.truth(["x"])
    with pytest.raises(ChannelError, match="partition is of 2 values"):
        refine(Cells.of([0, 1]), Uniform(0.5, 3))


# --- three-valued logic ------------------------------------------------------------


def kleene(op: str, *args: bool | None) -> bool | None:
    """SQL's tables written out, as the slow way."""
    if op == "not":
        return None if args[0] is None else not args[0]
    dominant = op == "or"
    if dominant in args:
        return dominant
    return None if None in args else not dominant


@pytest.mark.parametrize("left", [True, False, None])
@pytest.mark.parametrize("right", [True, False, None])
def test_logic_is_sqls(left, right):
    a, b = logic.truth([left]), logic.truth([right])
    assert logic.both(a, b) == logic.truth([kleene("and", left, right)])
    assert logic.either(a, b) == logic.truth([kleene("or", left, right)])
    assert logic.negation(a) == logic.truth([kleene("not", left)])
    assert logic.is_true(a) == (left is True)


@given(seed=seeds, p=st.floats(0.1, 0.9))
def test_conditions_over_a_nullable_domain_against_brute_force(seed, p):
    """Expected publication, cells, inversion and logic give the true count, NULLs included."""
    rng = np.random.default_rng(seed)
    m = 6  # five values and NULL
    channel = Uniform(p, m)
    chosen = [set(rng.choice(5, size=rng.integers(0, 5), replace=False).tolist()) for _ in "ab"]
    atoms = [logic.truth([*(v in members for v in range(5)), None]) for members in chosen]

    def phi(x, y):
        # NOT (x AND NOT y) OR y
        return logic.either(logic.negation(logic.both(x, logic.negation(y))), y)

    def slow(value):
        x, y = (None if value is None else value in members for members in chosen)
        inner = kleene("not", kleene("and", x, kleene("not", y)))
        return kleene("or", inner, y)

    counts = rng.integers(0, 500, size=m)
    cells = logic.partition(atoms, m)
    published = cells.sums(channel.expected(counts))
    states = invert(published, transition([channel.lump(cells).matrix]))
    satisfied = logic.is_true(phi(*(atom[cells.first] for atom in atoms)))
    truth = sum(int(n) for n, v in zip(counts, [*range(5), None], strict=True) if slow(v) is True)
    assert states @ satisfied == pytest.approx(truth, abs=1e-6)


def test_negation_is_not_the_complement_when_null_is_possible():
    atom = logic.truth([True, False, None])
    assert logic.is_true(atom).sum() + logic.is_true(logic.negation(atom)).sum() == 2
