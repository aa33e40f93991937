"""Exact leverage: functions by atoms and a triangular factor, against vectors over rows."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from privsql.errors import DataError, InternalError
from privsql.policy.account import Account, Admission, Caps, Limits, Part
from privsql.policy.functions import Atoms, Expressed, Function, Functions
from tests.policy.rows import Ints, Rows
from tests.sizes import sized

Floats = NDArray[np.floating]

CLOSE = 1e-9


class Release:
    """Rows of a made-up release, for the account and for brute force."""

    def __init__(
        self, atom: Ints, group_of_atom: Ints, times: NDArray[np.float64] | None = None
    ) -> None:
        self.lengths = np.bincount(atom)
        self.times = np.ones(atom.size) if times is None else times
        rows = np.bincount(atom, self.times).astype(np.int64)
        self.atoms = Atoms(rows, group_of_atom)
        self.functions = Functions(self.atoms, self.lengths, times)
        self.atom = atom
        self.brute = Rows(atom, group_of_atom[atom], self.times)

    @classmethod
    def random(cls, rng: np.random.Generator) -> Release:
        atoms = int(rng.integers(3, 12))
        group = np.sort(rng.integers(0, max(2, atoms // 2), atoms))
        _, group = np.unique(group, return_inverse=True)
        lengths = rng.integers(1, 25, atoms)
        times = None
        if rng.random() < 0.3:
            times = rng.integers(1, 5, int(lengths.sum())).astype(np.float64)
        return cls(np.repeat(np.arange(atoms), lengths), group.astype(np.int64), times)

    def part(self, values: NDArray[np.bool_] | Floats | None, weights: Floats) -> Part:
        function: Function | Expressed = self.functions[0]
        if values is not None:
            numbers = values if values.dtype == np.bool_ else values.astype(np.float64)
            function = self.functions.add(numbers)
        chosen = np.flatnonzero(weights)
        return Part(function, chosen, weights[chosen].astype(np.float64))


Question = tuple["NDArray[np.bool_] | Floats | None", Floats]


def ask(account: Account, *cells: Sequence[Part]) -> Admission:
    proposal = account.propose(list(cells))
    account.commit(proposal)
    return proposal.admission


def random_values(rng: np.random.Generator, cost: Floats) -> NDArray[np.bool_] | Floats | None:
    """A condition on a measure, a weight, or both; None is the constant."""
    kind = int(rng.integers(6))
    low = rng.choice([1, 2, 3, 5, 8])
    if kind == 0:
        return None
    if kind <= 2:
        return np.asarray(cost < low)
    if kind == 3:
        return np.asarray(cost == low)
    if kind == 4:
        return cost
    return np.asarray(cost * cost * (cost >= low))


def near(rng: np.random.Generator, release: Release, cost: Floats) -> Question:
    """A group padded with other rows until its share is about one of the limits."""
    rows = release.atoms.rows
    group = release.atoms.groups
    g = int(rng.integers(group.max() + 1))
    weights = (group == g) * 1.0
    wanted = rng.choice([0.8, 0.9]) * rng.choice([0.99, 0.999, 1.0, 1.001, 1.01])
    values = random_values(rng, cost)
    plain = np.ones(cost.size) if values is None else np.asarray(values, dtype=np.float64)
    square = np.bincount(release.atom, plain**2 * release.times)
    own = float(square @ weights)
    others = np.flatnonzero((group != g) & (square > 0))
    if own == 0 or others.size == 0:
        return None, (rows > 0) * 1.0
    pad = int(rng.choice(others))
    weights[pad] = np.sqrt(own * (1 / wanted - 1) / square[pad])
    return values, weights


def random_question(rng: np.random.Generator, release: Release, cost: Floats) -> Question:
    atoms = release.atoms.rows.size
    weights = (rng.random(atoms) < rng.choice([0.3, 0.6, 1.0])) * 1.0
    if rng.random() < 0.3:
        weights *= rng.choice([-1.0, 0.5, 1.0, 3.0, 1e3], atoms)
    return random_values(rng, cost), weights


def compare(seed: int) -> tuple[int, int]:
    """One history: every decision and every leverage; how many were admitted and refused."""
    rng = np.random.default_rng([17, seed])
    release = Release.random(rng)
    brute, account = release.brute, Account(release.functions)
    cost = rng.choice([0.0, 1.0, 1.5, 2.0, 4.0, 7.0, 10.0], release.atom.size)
    made = [0, 0]
    for _ in range(12):
        question = near if rng.random() < 1 / 3 else random_question
        asked = [question(rng, release, cost) for _ in range(int(rng.choice([1, 1, 2])))]
        parts = [release.part(*each) for each in asked]
        vectors: list[Floats] = []
        faint = False
        for values, weights in asked:
            plain = np.ones(cost.size) if values is None else np.asarray(values, dtype=np.float64)
            v = brute.vector(weights, plain)
            left = brute.residual(v, vectors)
            faint |= 1e-11 < left < 1e-5
            if left >= 1e-5:
                vectors.append(v)
        admission = ask(account, parts)
        if faint:
            break
        excess = brute.excess(vectors) if vectors else -1.0
        if abs(excess - 1e-9) > CLOSE:  # a tie within rounding is decided either way
            assert bool(admission.admitted[0]) == (excess < 0), seed
        if admission.admitted[0]:
            brute.answers += vectors
        made[not admission.admitted[0]] += 1
        assert account.rank == len(brute.answers), seed
        leverage, total = account.leverages()
        expected, expected_total = brute.measured([])
        assert np.abs(leverage - expected).max() < CLOSE, seed
        assert np.abs(total - expected_total).max() < CLOSE, seed
    return made[0], made[1]


def test_random_histories_are_decided_as_by_brute_force() -> None:
    """A third of the questions bring a group within a percent of one of its limits."""
    admitted, refused = np.sum([compare(seed) for seed in range(sized(150, 5_000))], axis=0)
    assert admitted > 300
    assert refused > 300


# -- named cases ---------------------------------------------------------------------------


def clinic(rng: np.random.Generator, rows: int, tuples: int) -> tuple[Release, Floats]:
    """Tuples of uneven size, two or three a group, and a cost for each row."""
    atom = np.sort(rng.choice(tuples, rows, p=rng.dirichlet(np.full(tuples, 3.0))))
    _, atom = np.unique(atom, return_inverse=True)
    groups = np.arange(int(atom.max()) + 1) * 2 // 5
    return Release(atom.astype(np.int64), groups), np.round(rng.gamma(2.0, 200.0, rows), 2)


def indicator(release: Release, atoms: Ints) -> Floats:
    made = np.zeros(release.atoms.rows.size)
    made[atoms] = 1.0
    return made


def test_a_dashboard_with_a_slider_is_answered() -> None:
    """Three panels, 19 positions of ``cost < x`` each: harmless, and brute force says so."""
    rng = np.random.default_rng(3)
    release, cost = clinic(rng, sized(8_000, 300_000), 120)
    account, brute = Account(release.functions), release.brute
    every = np.ones(release.atoms.rows.size)
    panels = [every, (rng.random(every.size) < 0.5) * 1.0, (rng.random(every.size) < 0.5) * 1.0]
    parts: list[list[Part]] = []
    for x in range(50, 1000, 50):
        parts = [[release.part(cost < x, panel)] for panel in panels]
        assert ask(account, *parts).admitted.all(), x
    leverage, _ = account.leverages()
    assert leverage.max() < 0.3
    if cost.size < 10_000:
        brute.answers = [
            brute.vector(panel, (cost < x) * 1.0) for x in range(50, 1000, 50) for panel in panels
        ]
        assert np.abs(leverage - brute.measured([])[0]).max() < CLOSE
    # And the same once more is in the span.
    rank = account.rank
    assert ask(account, *parts).added == ()
    assert account.rank == rank
    # While the group within a slider's position is not to be had by subtraction.
    without = np.where(release.atoms.groups == 7, 0.0, every)
    assert not ask(account, [release.part(cost < 500, without)]).admitted[0]


@pytest.mark.parametrize("more", [1e-12, 1e-10, -1e-12])
def test_weights_that_hide_a_group_in_the_last_digits_are_refused(more: float) -> None:
    release, cost = clinic(np.random.default_rng(4), 2_000, 30)
    every = np.ones(release.atoms.rows.size)
    hidden = np.where(release.atoms.groups == 3, 1.0 + more, 1.0)
    account = Account(release.functions)
    assert ask(account, [release.part(None, every)]).admitted[0]
    assert not ask(account, [release.part(None, hidden)]).admitted[0]
    # Rows within tuples as well: the function itself is too faint to be used.
    some = np.where((release.brute.group == 3) & (cost < 300), 1.0 + more, 1.0)
    assert not ask(account, [release.part(some, every)]).admitted[0]
    assert ask(account, [release.part(None, 2 * every)]).admitted[0]


def nearly_parallel(rng: np.random.Generator, steps: int, small: float) -> tuple[Floats, Floats]:
    """d0, d0 + s d1, d1 + s d2, ...: harmless directions, each known from the last digits alone.

    The second array is the next direction; nothing has a weight in the first atom.
    """
    d = rng.standard_normal((steps + 2, 30))
    d[:, 0] = 0.0
    d = np.linalg.qr(d.T)[0].T
    return np.array([d[0], *(d[i] + small * d[i + 1] for i in range(steps))]), d[steps]


def independent(vectors: Sequence[Floats], wanted: Floats) -> float:
    """What is left of a vector, in exact arithmetic: fractions, not rounding."""
    basis: list[tuple[int, list[Fraction]]] = []

    def reduced(row: list[Fraction]) -> list[Fraction]:
        for pivot, other in basis:
            factor = row[pivot] / other[pivot]
            row = [a - factor * b for a, b in zip(row, other, strict=True)]
        return row

    for vector in vectors:
        row = reduced([Fraction(float(value)) for value in vector])
        pivot = next((i for i, value in enumerate(row) if value), None)
        if pivot is not None:
            basis.append((pivot, row))
    return float(max(map(abs, reduced([Fraction(float(value)) for value in wanted]))))


@pytest.mark.parametrize("wide", [False, True], ids=["one by one", "wide"])
@pytest.mark.parametrize("small", [1e-4, 1e-5, 1e-6, 2e-7])
def test_a_group_does_not_hide_in_rounding_that_grew(wide: bool, small: float) -> None:
    """Each answer magnifies the rounding of the one before it, until anything would be noise."""
    size = 400
    functions = Functions(Atoms(np.full(size, 50), np.arange(size)))
    own = np.zeros(30)
    own[0] = 1.0
    others = [[Part(functions[0], np.arange(i, i + 4), np.ones(4))] for i in range(40, size, 4)]
    for steps in range(1, 5):
        chain, last = nearly_parallel(np.random.default_rng(steps), steps, small)
        for share in (small, 0.01, 0.5):
            asked = [*chain, last + share * own, last - share * own]
            cells = [[Part(functions[0], np.arange(30), x)] for x in asked]
            account = Account(functions)
            if wide:
                found = ask(account, *cells, *others)
                assert found.admitted[len(cells) :].all()
                admitted = found.admitted[: len(cells)].tolist()
            else:
                admitted = [bool(ask(account, cell).admitted[0]) for cell in cells]
            given = [x for x, yes in zip(asked, admitted, strict=True) if yes]
            # What was admitted does not have the group in its span.
            assert independent(given, own) > 0, (steps, share, admitted)


@pytest.mark.parametrize("small", [1e-15, 5e-15, 1e-12])
def test_tiny_weights_do_not_hide_among_many_cells(small: float) -> None:
    size = 400
    functions = Functions(Atoms(np.full(size, 50), np.arange(size)))
    some = np.array([1, 2, 3, 4, 5, 6])
    cells = [
        [Part(functions[0], some, np.ones(6))],
        [Part(functions[0], np.append(some, 0), np.append(np.ones(6), small))],
        *([Part(functions[0], np.arange(i, i + 4), np.ones(4))] for i in range(40, size, 4)),
    ]
    found = ask(Account(functions), *cells)
    assert np.flatnonzero(~found.admitted).tolist() == [1]


def test_tiny_weights_do_not_hide_in_the_span() -> None:
    release, _ = clinic(np.random.default_rng(4), 2_000, 30)
    half = (release.atoms.groups > 5) * 1.0
    account = Account(release.functions)
    assert ask(account, [release.part(None, half)]).admitted[0]
    for small in (1e-15, 1e-60, 1e-250):
        hidden = np.where(release.atoms.groups == 3, small, half)
        assert not ask(account, [release.part(None, hidden)]).admitted[0]
    values = np.where(release.brute.group == 3, 1e-200, 1.0)
    third = indicator(release, np.flatnonzero(release.atoms.groups == 3))
    assert not ask(account, [release.part(values, third)]).admitted[0]


def test_classical_attacks_are_refused() -> None:
    release, cost = clinic(np.random.default_rng(6), 3_000, 40)
    every = np.ones(release.atoms.rows.size)
    own = (release.atoms.groups == 4) * 1.0
    chains: list[list[Question]] = [
        [(None, own)],
        [(None, every), (None, every - own)],
        [(cost, every), (cost, every - own)],
        [(cost < 300, every), (cost >= 300, every), (None, every - own)],
        [(None, 1.0 + 1e9 * own)],
        [(np.where(release.brute.group == 4, 1e6 * (cost - 400), 1.0), every)],
    ]
    for chain in chains:
        account = Account(release.functions)
        found = [bool(ask(account, [release.part(*each)]).admitted[0]) for each in chain]
        assert found == [True] * (len(chain) - 1) + [False]


def test_padding_stops_at_the_limit_on_totals() -> None:
    """500 rows with 112 others are .817 of the answer: below one limit, above the other."""
    lengths = np.array([500, 112, 126, 3_000])
    release = Release(np.repeat(np.arange(4), lengths), np.arange(4))
    for atoms, admitted in (([0, 1], False), ([0, 2], True)):
        account = Account(release.functions)
        part = release.part(None, indicator(release, np.array(atoms)))
        assert ask(account, [part]).admitted[0] == admitted
    loose = Account(release.functions, Limits(any=0.9, total=0.9))
    assert ask(loose, [release.part(None, indicator(release, np.array([0, 1])))]).admitted[0]


def test_a_group_of_most_rows_does_not_stop_the_count_of_everybody() -> None:
    for rows, protected in ((850, True), (950, False)):
        lengths = np.array([rows, (1000 - rows) // 2, (1000 - rows) // 2])
        release = Release(np.repeat(np.arange(3), lengths), np.arange(3))
        account = Account(release.functions)
        every = np.ones(3)
        assert ask(account, [release.part(None, every)]).admitted[0]
        part = release.part(None, np.array([1.0, 0.0, 0.0]))
        assert ask(account, [part]).admitted[0] != protected


def test_the_order_of_answers_does_not_matter() -> None:
    rng = np.random.default_rng(9)
    release, cost = clinic(rng, 2_000, 40)
    asked = [random_question(rng, release, cost // 100) for _ in range(25)]
    parts = [release.part(*each) for each in asked]
    found = []
    for order in (range(25), rng.permutation(25), range(24, -1, -1)):
        account = Account(release.functions)
        account.restore(parts[i] for i in order)
        found.append((account.rank, *account.leverages()))
    for rank, leverage, total in found[1:]:
        assert rank == found[0][0]
        assert np.abs(leverage - found[0][1]).max() < CLOSE
        assert np.abs(total - found[0][2]).max() < CLOSE


def test_nothing_changes_before_it_is_committed() -> None:
    release, _ = clinic(np.random.default_rng(4), 2_000, 30)
    account = Account(release.functions)
    every = np.ones(release.atoms.rows.size)
    rest = np.where(release.atoms.groups == 3, 0.0, 1.0)
    first = account.propose([[release.part(None, every)]])
    second = account.propose([[release.part(None, rest)]])
    assert second.admission.admitted.all()
    assert account.rank == 0
    with pytest.raises(InternalError, match="newest"):
        account.commit(first)
    account.commit(second)
    with pytest.raises(InternalError, match="newest"):
        account.commit(second)
    assert not ask(account, [release.part(None, every)]).admitted[0]


def test_stored_answers_count_although_a_group_is_above_its_limit() -> None:
    """What was answered elsewhere is taken in; only what makes such a group worse is refused."""
    release, cost = clinic(np.random.default_rng(4), 2_000, 30)
    groups = release.atoms.groups
    account = Account(release.functions)
    account.restore([release.part(None, (groups == 3) * 1.0)])
    assert account.leverages()[0][3] == pytest.approx(1.0)
    # The other three groups are what is new in it.
    assert ask(account, [release.part(None, (groups <= 3) * 1.0)]).admitted[0]
    assert not ask(account, [release.part(cost < 300, (groups <= 3) * 1.0)]).admitted[0]
    others = (groups > 5) * 1.0
    assert ask(account, [release.part(None, others)]).admitted[0]
    assert ask(account, [release.part(None, 5.0 * (groups == 3))]).admitted[0]


def test_a_cell_is_taken_whole_or_not_at_all() -> None:
    release, cost = clinic(np.random.default_rng(4), 2_000, 30)
    every = np.ones(release.atoms.rows.size)
    own = (release.atoms.groups == 3) * 1.0
    account = Account(release.functions)
    cell = [release.part(cost, every), release.part(None, own)]
    assert not ask(account, cell).admitted[0]
    assert account.rank == 0


# -- caps ----------------------------------------------------------------------------------


def test_at_a_cap_the_span_is_answered_and_nothing_else() -> None:
    rng = np.random.default_rng(8)
    release, cost = clinic(rng, 3_000, 40)
    account = Account(release.functions, caps=Caps(answers=6))
    size = release.atoms.rows.size
    parts = [release.part(cost < 100 * i, (rng.random(size) < 0.7) * 1.0) for i in range(2, 9)]
    found = ask(account, *([part] for part in parts))
    assert found.admitted.tolist() == [True] * 6 + [False]
    assert found.cap == "answers"
    again = ask(account, *([part] for part in parts[:6]))
    assert again.admitted.all()
    assert again.cap is None


def test_at_the_cap_on_functions_known_ones_go_on() -> None:
    rng = np.random.default_rng(8)
    release, cost = clinic(rng, 3_000, 40)
    every = np.ones(release.atoms.rows.size)
    kept = release.part(cost < 300, every)
    account = Account(release.functions)
    assert ask(account, [kept]).admitted[0]
    assert ask(account, [release.part(None, every)]).admitted[0]
    release.functions.most_bytes = release.functions.held
    new = release.part(cost < 400, every)
    assert isinstance(new.function, Expressed)
    found = ask(account, [new])
    assert not found.admitted[0]
    assert found.cap == "functions"
    # The complement is a new function, and what it says is known.
    other = release.part(cost >= 300, every)
    assert isinstance(other.function, Expressed)
    found = ask(account, [other])
    assert found.admitted[0]
    assert found.cap is None
    half = release.part(cost >= 300, (release.atoms.groups < 7) * 1.0)
    found = ask(account, [half])
    assert not found.admitted[0]
    assert found.cap == "functions"


def test_at_the_cap_on_functions_many_cells_are_judged_as_few() -> None:
    release, cost = clinic(np.random.default_rng(8), 3_000, 200)
    keys = np.arange(release.atoms.rows.size) % 40
    account = Account(release.functions)

    def cells(values: NDArray[np.bool_] | None) -> list[list[Part]]:
        return [[release.part(values, (keys == k) * 1.0)] for k in range(40)]

    assert ask(account, *cells(cost < 300), *cells(None)).admitted.all()
    release.functions.most_bytes = release.functions.held
    known, new = cells(cost >= 300), cells(cost >= 350)
    assert all(isinstance(part.function, Expressed) for cell in (*known, *new) for part in cell)
    found = ask(account, *known, *known)
    assert found.admitted.all()
    assert (found.added, found.cap) == ((), None)
    found = ask(account, *known, *new)
    assert found.admitted.tolist() == [True] * 40 + [False] * 40
    assert found.cap == "functions"


def test_at_the_cap_on_groups_what_is_in_doubt_is_refused() -> None:
    rng = np.random.default_rng(8)
    release, _ = clinic(rng, 3_000, 40)
    size = release.atoms.rows.size
    parts = [release.part(None, (rng.random(size) < 0.5) * 1.0) for _ in range(12)]
    plain = ask(Account(release.functions), *([part] for part in parts))
    capped = ask(Account(release.functions, caps=Caps(watched=0)), *([p] for p in parts))
    assert capped.cap == "groups"
    assert plain.cap is None
    assert 0 < capped.admitted.sum() < plain.admitted.sum()


# -- functions -----------------------------------------------------------------------------


def test_functions_are_shared_and_never_rewritten() -> None:
    release, cost = clinic(np.random.default_rng(4), 2_000, 30)
    functions = release.functions
    first = functions.add(cost < 300)
    assert isinstance(first, Function)
    before = first.coordinates.copy()
    where = functions.where.copy()
    assert functions.add((cost < 300) * 4.0) is first
    assert functions.add(np.ones(cost.size)) is functions[0]
    for x in range(100, 1000, 100):
        functions.add(cost * (cost < x))
    assert (first.coordinates == before).all()
    assert (functions.where[: where.size] == where).all()
    complement = functions.add(cost >= 300)
    assert isinstance(complement, Function)
    assert complement.coordinates.size == functions.width


@pytest.mark.parametrize(
    "values", [np.ones(3), np.full(2_000, np.nan), np.full(2_000, np.inf)], ids=str
)
def test_what_is_no_function_is_refused(values: Floats) -> None:
    release, _ = clinic(np.random.default_rng(4), 2_000, 30)
    with pytest.raises(DataError):
        release.functions.add(values)


def test_coordinates_keep_inner_products() -> None:
    """Powers of a date are nearly dependent; inner products within atoms hold all the same."""
    rng = np.random.default_rng(5)
    release, cost = clinic(rng, sized(5_000, 300_000), 60)
    day = 20_000.0 + np.round(cost)
    made = [day < 20_400, day, cost, day * day, day * (cost < 100), cost < 5, cost == cost.max()]
    stored = [release.functions.add(values) for values in made]
    where, atoms = release.functions.where, release.atoms.rows.size
    for one, f in zip(stored, made, strict=True):
        for two, g in zip(stored, made, strict=True):
            assert isinstance(one, Function)
            assert isinstance(two, Function)
            assert one.faint is None
            n = min(one.coordinates.size, two.coordinates.size)
            inner = one.coordinates[:n] * two.coordinates[:n]
            scale = 1.0
            for each, values in ((one, f), (two, g)):
                squares = float(np.asarray(values, dtype=np.float64) @ values)
                scale *= np.sqrt(squares / float(each.coordinates @ each.coordinates))
            exact = np.bincount(release.atom, np.multiply(f, g, dtype=np.float64), atoms)
            lengths = [
                np.sqrt(np.bincount(release.atom, np.multiply(h, h, dtype=np.float64), atoms))
                for h in (f, g)
            ]
            error = np.abs(np.bincount(where[:n], inner, atoms) * scale - exact)
            assert (error <= 1e-13 * lengths[0] * lengths[1]).all()


# -- many cells ----------------------------------------------------------------------------


def tables(
    rng: np.random.Generator, release: Release, cost: Floats, count: int
) -> list[list[Part]]:
    """The cells of a GROUP BY with two aggregates, and of its total."""
    size = release.atoms.rows.size
    key = rng.integers(0, count, size)
    cells = [
        [release.part(None, (key == k) * 1.0), release.part(cost, (key == k) * 1.0)]
        for k in range(count)
        if (key == k).any()
    ]
    return [*cells, [release.part(cost, np.ones(size))]]


@pytest.mark.parametrize("seed", range(sized(2, 40)))
def test_many_cells_are_decided_as_one_by_one(seed: int) -> None:
    rng = np.random.default_rng([5, seed])
    release, cost = clinic(rng, 2_000, 150)
    single, wide = Account(release.functions), Account(release.functions)
    every = np.ones(release.atoms.rows.size)
    one: list[bool] = []
    for step, count in enumerate((0, 40, 35, 40)):
        cells = tables(rng, release, cost, count) if count else [[release.part(None, every)]]
        one = [bool(ask(single, cell).admitted[0]) for cell in cells]
        found = ask(wide, *cells)
        assert found.admitted.tolist() == one, step
        assert found.cap is None
        assert wide.rank == single.rank
        for mine, other in zip(wide.leverages(), single.leverages(), strict=True):
            assert np.abs(mine - other).max() < CLOSE
        again = ask(wide, *cells)
        assert again.admitted.tolist() == one
    assert not all(one)


def test_a_group_by_of_ten_thousand_cells_stays_sparse() -> None:
    rng = np.random.default_rng(1)
    size = 4 * sized(2_000, 10_000)
    functions = Functions(Atoms(rng.integers(10, 60, size), np.arange(size)))
    account = Account(functions)
    everybody = Part(functions[0], np.arange(size), np.ones(size))
    assert ask(account, [everybody]).admitted[0]
    cells = [[Part(functions[0], np.arange(i, i + 4), np.ones(4))] for i in range(0, size, 4)]
    found = ask(account, *cells)
    assert found.admitted.all()
    assert found.cap is None
    assert account.rank == size // 4
    assert account.entries < 3 * size
    # Known now: sums of cells.  Not to be had: a group within one.
    half = Part(functions[0], np.arange(size // 2), np.ones(size // 2))
    assert ask(account, [half]).added == ()
    inside = Part(functions[0], np.arange(3, size), np.ones(size - 3))
    assert not ask(account, [inside]).admitted[0]


def test_of_very_many_cells_only_those_that_tell_a_group_are_refused() -> None:
    """More than are ever taken one by one: halves are tried until they fit."""
    size = 4 * 600
    rows = np.full(size, 40)
    rows[[801, 1_600]] = 40 * 17  # 17 of 20 rows of their cells: the total of a group
    functions = Functions(Atoms(rows, np.arange(size)))
    cells = [[Part(functions[0], np.arange(i, i + 4), np.ones(4))] for i in range(0, size, 4)]
    account = Account(functions)
    found = ask(account, *cells)
    assert np.flatnonzero(~found.admitted).tolist() == [200, 400]
    assert found.cap is None
    assert account.rank == 598


def test_slices_between_positions_of_a_slider_are_in_the_span() -> None:
    """Small differences of large answers: noise is in proportion to what is added up."""
    release, cost = clinic(np.random.default_rng(3), sized(8_000, 300_000), 40)
    account = Account(release.functions)
    every = np.ones(release.atoms.rows.size)
    stops = [*range(100, 1000, 100), *range(1000, 1200, 20)]
    for x in stops:
        assert ask(account, [release.part(cost < x, every)]).admitted[0]
    rank = account.rank
    for low, high in pairwise(stops):
        found = ask(account, [release.part((cost >= low) & (cost < high), every)])
        assert found.admitted[0], low
        assert found.added == (), low
    assert account.rank == rank


@pytest.mark.parametrize("small", [1e-3, 1e-5])
def test_noise_grows_with_what_is_added_up(small: float) -> None:
    """Answers that nearly agree: their difference, made long again, is in the span."""
    rng = np.random.default_rng(3)
    release, cost = clinic(rng, 8_000, 120)
    every = np.ones(release.atoms.rows.size)
    for values in (None, cost):
        account = Account(release.functions)
        more = rng.random(every.size)
        assert ask(account, [release.part(values, every)]).admitted[0]
        assert ask(account, [release.part(values, every + small * more)]).admitted[0]
        found = ask(account, [release.part(values, more)])
        assert found.admitted[0]
        assert found.added == ()
