"""Grids: rounding and counting against exact arithmetic on every point."""

import json
import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privsql.channels import Grid, Interval, domain_from_dict
from privsql.channels.steps import parse_step, step_text
from privsql.errors import DomainError

D = Decimal
MAKERS = (
    Interval.below,
    Interval.at_most,
    Interval.above,
    Interval.at_least,
    Interval.between,
    Interval.open,
    lambda low, high: Interval(low, high, high_closed=False),
    lambda low, high: Interval(low, high, low_closed=False),
)


def compare(maker, value, low, high):
    """What the interval means, in Python's own comparisons."""
    return {
        0: lambda: value < low,
        1: lambda: value <= low,
        2: lambda: value > low,
        3: lambda: value >= low,
        4: lambda: low <= value <= high,
        5: lambda: low < value < high,
        6: lambda: low <= value < high,
        7: lambda: low < value <= high,
    }[MAKERS.index(maker)]()


def make(maker, low, high):
    return maker(low) if MAKERS.index(maker) < 4 else maker(low, high)


def points(grid):
    """Every point as a fraction, by addition and nothing else."""
    if grid.kind in ("date", "timestamp"):
        return [grid.lower + i * grid.step for i in range(grid.points)]
    return [Fraction(grid.lower) + i * Fraction(grid.step) for i in range(grid.points)]


def test_numbers_past_the_largest_double_lie_on_their_own_side():
    grid = Grid("real", 0.0, 10.0, 0.5)
    assert grid.kind == "real"
    for huge in (10**400, D(10) ** 400):
        assert list(grid.ranges(Interval.below(huge))) == list(grid.ranges(Interval()))
        assert not list(grid.ranges(Interval.above(huge)))
        assert list(grid.ranges(Interval.above(-huge))) == list(grid.ranges(Interval()))
        assert not list(grid.ranges(Interval.below(-huge)))


# --- counting ---------------------------------------------------------------------------------

off_grid = st.one_of(
    st.integers(-30, 30),
    st.decimals(-30, 30, places=2),
    st.fractions(-30, 30, max_denominator=12),
)
number_grids = st.builds(
    lambda lower, step, count, nullable: Grid.of(
        lower, lower + (count - 1) * step, step, nullable=nullable
    ),
    st.decimals(-20, 20, places=1),
    st.decimals(D("0.1"), 5, places=1),
    st.integers(1, 40),
    st.booleans(),
)
integer_grids = st.builds(
    lambda lower, step, count: Grid.of(lower, lower + (count - 1) * step, step),
    st.integers(-20, 20),
    st.integers(1, 7),
    st.integers(1, 40),
)


@settings(max_examples=400, deadline=None)
@given(st.one_of(number_grids, integer_grids), st.sampled_from(MAKERS), off_grid, off_grid)
def test_count_is_that_of_every_point_compared(grid, maker, low, high):
    truth = [compare(maker, p, Fraction(low), Fraction(high)) for p in points(grid)]
    interval = make(maker, low, high)
    assert grid.count(interval) == sum(truth)
    assert [i in grid.slice(interval) for i in range(grid.points)] == truth
    assert grid.mass(interval) == float(Fraction(sum(truth), grid.points + grid.nullable))


@settings(deadline=None)
@given(integer_grids, st.lists(st.tuples(st.sampled_from(MAKERS), off_grid, off_grid), max_size=4))
def test_a_union_counts_each_value_once(grid, parts):
    truth = sum(
        any(compare(m, p, Fraction(a), Fraction(b)) for m, a, b in parts) for p in points(grid)
    )
    assert grid.count([make(*part) for part in parts]) == truth


moments = st.datetimes(datetime(2020, 1, 1), datetime(2020, 1, 20))


@settings(deadline=None)
@given(
    st.integers(1, 4),
    st.integers(1, 12),
    st.sampled_from(MAKERS),
    st.one_of(moments, moments.map(lambda m: m.date())),
    st.one_of(moments, moments.map(lambda m: m.date())),
)
def test_a_date_compares_as_its_midnight(step, count, maker, low, high):
    def midnight(value):
        return (
            value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        )

    first = date(2020, 1, 3)
    days = Grid.of(first, first + timedelta(step * (count - 1)), f"{step} days")
    hours = Grid.of(midnight(first), datetime(2020, 1, 9), timedelta(hours=6))
    for grid in (days, hours):
        truth = sum(
            compare(maker, midnight(p), midnight(low), midnight(high)) for p in points(grid)
        )
        assert grid.count(make(maker, low, high)) == truth


def test_closed_integer_ranges_count_both_ends():
    age = Grid.of(0, 120)
    assert age.mass(Interval.between(25, 45)) == 21 / 121
    assert age.mass(Interval.open(25, 45)) == 19 / 121
    assert age.mass(Interval(25, 45, high_closed=False)) == 20 / 121
    assert age.mass(Interval.between(24.5, D("45.5"))) == 21 / 121
    assert age.count(Interval.between(45, 25)) == 0
    assert age.count([Interval.below(40), Interval.above(40)]) == 120


def test_null_is_in_no_interval():
    age = Grid.of(0, 9, nullable=True)
    assert (age.size, age.count(Interval())) == (11, 10)
    assert age.count([Interval(), None]) == 11
    assert age.ranges([Interval(), None]) == (range(0, 11),)


def test_a_float_means_its_shortest_decimal_on_decimals_and_reals():
    # 0.1 as a double lies above a tenth, 0.7 below seven tenths.
    for grid in (Grid.of(D(0), D(1), D("0.1")), Grid.of(0.0, 1.0, 0.1)):
        for tenth in range(11):
            assert grid.slice(Interval.at_least(tenth / 10)).start == tenth
            assert grid.slice(Interval.at_most(tenth / 10)).stop == tenth + 1
            assert grid.count([tenth / 10]) == 1
    # SQL rounds to a double before it compares with one.
    near = D("0.1000000000000000001")
    assert Grid.of(0.0, 1.0, 0.1).count([near]) == 1
    assert Grid.of(D(0), D(1), D("0.1")).count([near]) == 0


def test_a_float_is_exact_on_large_integers():
    grid = Grid.of(2**60 - 5, 2**60 + 5)
    assert grid.slice(Interval.at_least(2.0**60)).start == 5
    assert grid.count([2.0**60]) == 1


def test_count_of_a_set_takes_only_points():
    grid = Grid.of(0, 10, 5, nullable=True)
    assert grid.count({0, 5.0, D("10.00"), Fraction(5), 3, 15, -5, 2.5, math.nan, math.inf}) == 3
    assert grid.count([None, 5]) == 2
    assert (
        Grid.of(date(2020, 1, 1), date(2020, 1, 9)).count(
            [datetime(2020, 1, 2), datetime(2020, 1, 2, 1), date(2020, 1, 9)]
        )
        == 2
    )
    for wrong in (True, "5", date(2020, 1, 1)):
        with pytest.raises(DomainError):
            grid.count([wrong])


def test_bounds_far_away_are_not_written_out():
    grid = Grid.of(-5, 5)
    huge, tiny = D("1e999999999"), D("1e-999999999")
    assert grid.count(Interval.below(huge)) == 11
    assert grid.count(Interval.below(D("-1e999999999"))) == 0
    assert grid.count(Interval.below(tiny)) == 6
    assert grid.count(Interval.below(D("-1e-999999999"))) == 5
    assert grid.count(Interval.open(-math.inf, math.inf)) == 11
    assert grid.count(Interval.at_least(math.inf)) == 0
    assert Grid.of(0.0, 1.0, 0.5).count(Interval.below(10**400)) == 3


def test_bounds_of_another_family_are_refused():
    with pytest.raises(DomainError):
        Grid.of(0, 9).count(Interval.above(date(2020, 1, 1)))
    with pytest.raises(DomainError):
        Grid.of(date(2020, 1, 1), date(2020, 1, 9)).slice(Interval.above(3))
    with pytest.raises(DomainError):
        Interval.above(datetime(2020, 1, 1, tzinfo=UTC))


def test_a_century_of_microseconds():
    grid = Grid.of(datetime(1950, 1, 1), datetime(2050, 1, 1), "1 microsecond", nullable=True)
    days = (date(2050, 1, 1) - date(1950, 1, 1)).days
    assert grid.size == days * 86_400_000_000 + 2
    day = Interval(date(2000, 1, 1), date(2000, 1, 2), high_closed=False)
    assert grid.count(day) == 86_400_000_000
    moment = datetime(1999, 12, 31, 23, 59, 59, 999_999)
    code = int(grid.codes([moment])[0])
    assert grid.value_at(code) == moment
    assert grid.slice(Interval.at_most(moment)).stop == code + 1
    assert grid.decode([code, grid.size - 1]).to_pylist() == [moment, None]


# --- codes and rounding -----------------------------------------------------------------------


def nearest(grid, value):
    """The point nearest to a fraction, halfway up; None outside."""
    index = math.floor((value - Fraction(grid.lower)) / Fraction(grid.step) + Fraction(1, 2))
    return index if 0 <= index < grid.points else None


def check(grid, column, exact):
    """Codes of a column are the nearest points of its exact values, and outside is counted."""
    truth = [nearest(grid, value) for value in exact]
    inside = [i for i, code in enumerate(truth) if code is not None]
    kept = column.take(pa.array(inside, pa.int64()))
    assert grid.codes(kept).tolist() == [truth[i] for i in inside]
    if len(inside) < len(truth):
        with pytest.raises(
            DomainError, match=rf"of {len(truth)} .* {len(truth) - len(inside)} lie"
        ):
            grid.codes(column)


@settings(max_examples=300, deadline=None)
@given(st.one_of(number_grids, integer_grids), st.lists(st.integers(-40, 150), min_size=1))
def test_rounding_of_integers(grid, values):
    for kind in (pa.int16(), pa.int64()):
        check(grid, pa.array(values, kind), map(Fraction, values))


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(number_grids, integer_grids),
    st.sampled_from([2, 5, 18, 20]),
    st.lists(st.integers(-4000, 20000), min_size=1),
    st.integers(0, 3),
)
def test_rounding_of_decimals(grid, scale, values, more):
    # From scale 18 on, all but the smallest need more than 64 bits.
    column = pa.array([D(v).scaleb(-2) for v in values], pa.decimal128(38, scale))
    column = pa.concat_arrays([pa.array([D(0)] * more, column.type), column])[more:]
    check(grid, column, [Fraction(v, 100) for v in values])


@settings(max_examples=400, deadline=None)
@given(
    st.one_of(number_grids, integer_grids),
    st.lists(
        st.one_of(
            st.floats(-50, 250),
            st.integers(-5000, 25000).map(lambda n: n / 100),  # many of them ties
        ),
        min_size=1,
    ),
)
def test_rounding_of_doubles(grid, values):
    exact = [Fraction(v) if grid.kind == "integer" else Fraction(D(repr(v))) for v in values]
    check(grid, pa.array(values, pa.float64()), exact)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**14 - 1), st.integers(1, 6), st.integers(0, 14), st.data())
def test_doubles_next_to_ties_are_rounded_by_their_decimal(origin, stride, scale, data):
    lower, step = D(origin).scaleb(-scale), D(stride).scaleb(-scale)
    grid = Grid.of(lower, lower + 9 * step, step, kind="real")
    code = data.draw(st.integers(0, 8))
    tie = float((lower + code * step) + step / 2)
    values = [math.nextafter(tie, -math.inf), tie, math.nextafter(tie, math.inf)]
    check(grid, pa.array(values), [Fraction(D(repr(v))) for v in values])


def test_halfway_is_up_also_below_zero():
    grid = Grid.of(-10, 10, 5)
    # -12.5 is halfway to the grid and goes up into it, 12.5 goes up and out of it.
    assert grid.decode(grid.codes([-12.5, -7.5, -2.5, 2.5, 7.5])).to_pylist() == [-10, -5, 0, 5, 10]
    assert grid.decode(grid.codes([D("12.4"), 12])).to_pylist() == [10, 10]
    for value in (12.5, D("12.5"), 13, -13, D("-12.6")):
        with pytest.raises(DomainError, match="1 lies outside"):
            grid.codes([value])
    for column in ([0.5, -0.5, -0.25, 1.25], [D("0.5"), D("-0.5"), D("-0.25"), D("1.25")]):
        assert Grid.of(0, 1).codes(column).tolist() == [1, 0, 0, 1]


def test_doubles_of_many_digits_take_the_exact_way():
    # Half above 2^54 is no double, so comparing doubles would see a tie here.
    large = Grid.of(0, 2**55)
    assert large.codes([2.0**54, 2.0**54 + 4]).tolist() == [2**54, 2**54 + 4]
    fine = Grid.of(D(0), D("2e8"), D("1e-9"))
    assert fine.codes([123456789.12345679]).tolist() == [123456789_123456790]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e308, -1e308])
def test_what_is_no_number_is_outside(value):
    wide = Grid.of(-(10**17), 10**17)  # too many digits for the fast way
    for grid in (Grid.of(0.0, 1.0, 0.5), Grid.of(0, 9), wide, Grid.of(D(0), D("1e8"), D("1e-9"))):
        with pytest.raises(DomainError, match="of 2 values, 1 lies outside"):
            grid.codes([0.0, value])


def test_integers_at_the_edge_of_64_bits():
    low, high = Grid.of(-(2**63), -3), Grid.of(2**62, 2**63 - 1)
    for grid in (low, high):
        ends = pa.array([grid.lower, grid.upper], pa.int64())
        assert grid.codes(ends).tolist() == [0, grid.points - 1]
        assert grid.decode([0, grid.points - 1]).to_pylist() == [grid.lower, grid.upper]
    with pytest.raises(DomainError, match="of 3 values, 3 lie outside"):
        low.codes(pa.array([-2, 2**63 - 1, 5]))
    with pytest.raises(DomainError, match="of 2 values, 2 lie outside"):
        high.codes(pa.array([-(2**63), 2**62 - 1]))
    assert high.codes(pa.array([2**63 - 1], pa.uint64())).tolist() == [2**62 - 1]
    with pytest.raises(DomainError, match="of 1 value, 1 lies outside"):
        high.codes(pa.array([2**63], pa.uint64()))
    steep = Grid.of(-(2**62), 2**61, 2**61)
    assert steep.codes([-(2**62), 2**60, 2**60 - 1, 2**61]).tolist() == [0, 3, 2, 3]
    with pytest.raises(DomainError, match="of 2 values, 2 lie outside"):
        steep.codes([2**63 - 1, -(2**63)])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_every_unit(unit):
    first = datetime(2020, 1, 1)
    times = [first + timedelta(hours=h) for h in (0, 11, 12, 13, 36)]
    column = pa.array([*times, None], pa.timestamp(unit))
    days = Grid.of(date(2020, 1, 1), date(2020, 1, 5), nullable=True)
    assert days.codes(column).tolist() == [0, 0, 1, 1, 2, 5]
    quarters = Grid.of(first, datetime(2020, 1, 5), "15 minutes")
    assert quarters.codes(column[:5]).tolist() == [0, 44, 48, 52, 144]
    with pytest.raises(DomainError, match="of 1 value, 1 lies outside"):
        quarters.codes(pa.array([datetime(1700, 1, 1)], pa.timestamp(unit)))


def test_nanoseconds_round_to_an_odd_step():
    first = datetime(2020, 1, 1)
    grid = Grid.of(first, first + timedelta(microseconds=9), "3 microseconds")
    start = int(pa.array([first], pa.timestamp("ns")).cast(pa.int64())[0].as_py())
    column = pa.array([start + n for n in (-1500, 1499, 1500, 10499)]).cast(pa.timestamp("ns"))
    assert grid.codes(column).tolist() == [0, 0, 1, 3]
    for n in (-1501, 10500):
        with pytest.raises(DomainError):
            grid.codes(pa.array([start + n]).cast(pa.timestamp("ns")))


def test_dates_on_grids_of_time():
    days = [date(2020, 1, 1), date(2020, 1, 3)]
    hours = Grid.of(datetime(2020, 1, 1), datetime(2020, 1, 5), "1 hour")
    for kind in (pa.date32(), pa.date64()):
        assert hours.codes(pa.array(days, kind)).tolist() == [0, 48]
        assert Grid.of(*days).codes(pa.array(days, kind)).tolist() == [0, 2]
    # Arrow alone would take these for two dates.
    assert hours.codes([days[0], datetime(2020, 1, 1, 5)]).tolist() == [0, 5]
    # Days this late wrap around 64 bits of microseconds, some of them back into the grid.
    always = Grid.of(datetime(1, 1, 1), datetime(9999, 12, 31), "1 hour")
    days = np.linspace(4_000_000, 2**31 - 1, 1000).astype(np.int32)
    far = pa.array(days).cast(pa.date32())
    with pytest.raises(DomainError, match="of 1,000 values, 1,000 lie outside"):
        always.codes(far)


@pytest.mark.parametrize(
    ("grid", "column"),
    [
        (Grid.of(0, 9), pa.array([True])),
        (Grid.of(0, 9), pa.array(["1"])),
        (Grid.of(0, 9), pa.array([date(1970, 1, 2)])),
        (Grid.of(date(1970, 1, 1), date(1970, 1, 9)), pa.array([1])),
        (Grid.of(date(1970, 1, 1), date(1970, 1, 9)), pa.array(["1970-01-02"])),
        (
            Grid.of(date(1970, 1, 1), date(1970, 1, 9)),
            pa.array([datetime(1970, 1, 2, tzinfo=UTC)]),
        ),
    ],
)
def test_columns_of_another_type_are_refused_by_type(grid, column):
    with pytest.raises(DomainError, match="does not fit") as caught:
        grid.codes(column)
    assert "1970-01-02" not in str(caught.value)


def test_dictionaries_chunks_and_nulls():
    grid = Grid.of(D(0), D(1), D("0.5"), nullable=True)
    column = pa.array([D("0.4"), None, D("0.9")])
    assert grid.codes(column).tolist() == [1, 3, 2]
    assert grid.codes(column.dictionary_encode()).tolist() == [1, 3, 2]
    assert grid.codes(pa.chunked_array([column, column[1:]])).tolist() == [1, 3, 2, 3, 2]
    assert grid.codes(pa.array([0.4, None])).tolist() == [1, 3]
    assert grid.codes(pa.array([1, None], pa.uint64())).tolist() == [2, 3]
    assert grid.codes([None]).tolist() == [3]
    for kind in (pa.decimal128(5, 2), pa.decimal256(50, 2), pa.int8(), pa.float32(), pa.uint64()):
        assert grid.codes(pa.array([], kind)).tolist() == []
        assert grid.codes(pa.array([], kind).dictionary_encode()).tolist() == []
        assert grid.codes(pa.nulls(2, kind)).tolist() == [3, 3]
    assert grid.decode([]).to_pylist() == []
    with pytest.raises(DomainError, match="1 is NULL"):
        Grid.of(0, 1).codes([None, 1])


GRIDS = [
    Grid.of(-3, 11, 2, nullable=True),
    Grid.of(D("-0.75"), D("1.00"), D("0.25"), nullable=True),
    Grid.of(-0.3, 0.9, 0.1, nullable=True),
    Grid.of(date(1969, 12, 1), date(1970, 2, 1), "1 day", nullable=True),
    Grid.of(datetime(1969, 12, 31, 23), datetime(1970, 1, 1, 3), "7500 milliseconds"),
]


@pytest.mark.parametrize("grid", GRIDS, ids=lambda g: g.kind)
def test_codes_undo_decode(grid):
    values = grid.values()
    assert values.type == grid.arrow_type
    values.validate(full=True)
    assert len(values) == grid.size
    assert grid.codes(values).tolist() == list(range(grid.size))
    assert values.to_pylist() == [grid.value_at(i) for i in range(grid.size)]
    assert grid.decode(grid.codes(values)).equals(values)
    assert values.null_count == grid.nullable


@settings(deadline=None)
@given(st.integers(-(10**15) + 1000, 10**15 - 1000), st.integers(1, 100), st.integers(0, 18))
def test_reals_are_the_doubles_nearest_to_the_points(origin, stride, scale):
    lower, step = D(origin).scaleb(-scale), D(stride).scaleb(-scale)
    grid = Grid.of(lower, lower + 9 * step, step, kind="real")
    truth = [float(Fraction(origin + i * stride, 10**scale)) for i in range(10)]
    assert grid.decode(range(10)).to_pylist() == truth
    assert [grid.value_at(i) for i in range(10)] == truth
    assert len(set(truth)) == 10
    assert grid.codes(truth).tolist() == list(range(10))


def test_the_context_of_decimals_does_not_matter():
    with localcontext() as context:
        context.prec = 3
        grid = Grid.of(D("12345.25"), D("12346.25"), D("0.25"))
        assert grid.value_at(1) == D("12345.50")
        assert grid.count(Interval.above(D("12345.75"))) == 2
        assert grid.codes([D("12345.4")]).tolist() == [1]


# --- describing a grid ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ((0, 10), "integer"),
        ((np.int64(0), np.int32(10)), "integer"),
        ((0, 10, D("0.5")), "decimal"),
        ((0, 1, 0.01), "real"),
        ((D(0), 1, 0.01), "real"),
        ((date(2020, 1, 1), date(2020, 1, 8)), "date"),
        ((date(2020, 1, 1), datetime(2020, 1, 8), "1 hour"), "timestamp"),
    ],
)
def test_the_kind_follows_from_the_types(arguments, kind):
    assert Grid.of(*arguments).kind == kind


def test_equal_grids_are_equal():
    assert Grid.of(D("0.0"), D("1.00"), D("0.50")) == Grid.of(D(0), D(1), D("0.5"))
    assert Grid.of(0, 1) != Grid.of(0, 1, D(1))
    assert Grid.of(0, 1) != Grid.of(0, 1, nullable=True)
    assert Grid.of(0.0, 1.0, 0.1).points == 11  # three tenths of a double are not one


@pytest.mark.parametrize(
    ("arguments", "keywords"),
    [
        ((10, 0), {}),
        ((0, 10, 0), {}),
        ((0, 10, -1), {}),
        ((True, 10), {}),
        ((0, True), {}),
        ((0, 10, True), {}),
        (("0", "10"), {}),
        ((None, 10), {}),
        ((0.0, 1.0), {}),
        ((D(0), D(1)), {}),
        ((datetime(2020, 1, 1), datetime(2020, 1, 2)), {}),
        ((0.0, math.nan, 1.0), {}),
        ((0.0, math.inf, 1.0), {}),
        ((D(0), D("NaN"), D(1)), {}),
        ((D(0), D("Infinity"), D(1)), {}),
        ((0, 10, D("1e-19")), {}),
        ((D(0), D("1e999999999"), D(1)), {}),
        ((D(0), D("1e-999999999"), D(1)), {}),
        ((D(0), D(10) ** 18, D(1)), {}),
        ((0.0, 1e15, 1.0), {}),
        ((0, 2**63), {}),
        ((-(2**63), 2**63 - 1), {}),
        ((-(2**62), 2**62), {"nullable": 1}),
        ((0.5, 1.5, 1), {"kind": "integer"}),
        ((0, 10), {"kind": "complex"}),
        ((datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 2, tzinfo=UTC), "1 day"), {}),
        ((date(2020, 1, 1), date(2020, 1, 2), "1 hour"), {}),
        ((date(2020, 1, 1), date(2020, 1, 2), 1), {}),
        ((date(2020, 1, 1), date(2020, 1, 2), "1"), {}),
        ((date(2020, 1, 1), date(2020, 1, 2), "-1 day"), {}),
        ((date(2020, 1, 1), date(2020, 1, 2), "0 days"), {}),
        ((date(2020, 1, 1), 10), {}),
        ((datetime(2020, 1, 1), datetime(2020, 1, 2), "1 day"), {"kind": "date"}),
    ],
)
def test_what_makes_no_grid_is_refused(arguments, keywords):
    with pytest.raises(DomainError):
        Grid.of(*arguments, **keywords)


@pytest.mark.parametrize(
    ("arguments", "fitting"),
    [
        ((0, 10, 3), "9 and 12"),
        ((D("0.1"), D("1"), D("0.4")), "0.9 and 1.3"),
        ((date(2020, 1, 1), date(2020, 1, 9), "1 week"), "2020-01-08 and 2020-01-15"),
        ((date(9999, 12, 1), date(9999, 12, 31), "1 week"), "9999-12-29"),
    ],
)
def test_an_upper_bound_off_the_grid_names_those_that_fit(arguments, fitting):
    with pytest.raises(DomainError) as caught:
        Grid.of(*arguments)
    assert caught.value.hint.endswith(f": {fitting}")


@pytest.mark.parametrize("text", ["3 centuries", "1 decade", "-1 month", "120000 months", "month"])
def test_what_is_no_step_of_time(text):
    with pytest.raises(DomainError, match="a whole number and a unit"):
        Grid.of(date(2020, 1, 1), date(2021, 1, 1), text)


def starts(grid, first, last):
    """The points of a calendar grid, one after the other."""
    year, month = first.year, first.month
    found = []
    while date(year, month, 1) <= last:
        found.append(date(year, month, 1))
        months = 12 * year + month - 1 + grid.stride
        year, month = months // 12, months % 12 + 1
    return found


dates = st.dates(date(1890, 1, 1), date(2110, 12, 31))


@given(
    dates,
    dates,
    st.sampled_from(["1 month", "3 months", "1 year", "5 months", "10 years"]),
    st.data(),
)
def test_a_grid_of_months_is_what_counting_its_days_says(one, other, step, data):
    lower, upper = sorted((one, other))
    kind = data.draw(st.sampled_from(["date", "timestamp"]))
    if kind == "timestamp":
        lower, upper = (datetime.combine(each, time(7, 30)) for each in (lower, upper))
    grid = Grid.of(lower, upper, step, nullable=data.draw(st.booleans()))
    first = grid.lower if kind == "date" else grid.lower.date()
    last = grid.upper if kind == "date" else grid.upper.date()
    points = starts(grid, first, last)
    plain = [
        value if kind == "date" else value.date() for value in grid.values().to_pylist() if value
    ]
    assert plain == points
    # Outwards: every moment between the bounds has a point, and none is wasted.
    assert points[0] <= min(one, other)
    assert points[-1] <= max(one, other) < starts(grid, first, date(2200, 1, 1))[len(points)]
    # Codes: the point at or before a moment.
    moments = data.draw(st.lists(st.dates(date(1870, 1, 1), date(2130, 1, 1)), min_size=1))
    after = starts(grid, first, date(2200, 1, 1))[len(points)]
    for moment in moments:
        inside = points[0] <= moment < after
        for each in (moment, datetime.combine(moment, time(23, 59, 59, 999999))):
            if inside:
                assert grid.codes([each])[0] == sum(point <= moment for point in points) - 1
            else:
                with pytest.raises(DomainError, match="outside"):
                    grid.codes([each])
        # Masses: conditions hold for the points for which they hold one by one.
        bound = data.draw(st.sampled_from([moment, datetime.combine(moment, time(1))]))
        seen = [datetime.combine(point, time()) for point in points]
        at = bound if isinstance(bound, datetime) else datetime.combine(bound, time())
        assert grid.count(Interval.below(bound)) == sum(each < at for each in seen)
        assert grid.count(Interval.at_most(bound)) == sum(each <= at for each in seen)
        assert grid.count(Interval.above(bound)) == sum(each > at for each in seen)
        assert grid.count(Interval.at_least(bound)) == sum(each >= at for each in seen)
        assert grid.count([bound]) == sum(each == at for each in seen)
    codes = np.arange(grid.size)
    assert (grid.codes(grid.decode(codes)) == codes).all()
    assert domain_from_dict(json.loads(json.dumps(grid.to_dict()))) == grid
    assert [grid.value_at(i) for i in range(grid.size)] == grid.values().to_pylist()


@pytest.mark.parametrize(
    ("lower", "upper", "step", "becomes"),
    [
        (date(2020, 1, 15), date(2024, 12, 31), "1 month", (date(2020, 1, 1), date(2024, 12, 1))),
        (date(2020, 5, 17), date(2024, 5, 17), "1 year", (date(2020, 1, 1), date(2024, 1, 1))),
        (date(1987, 5, 17), date(2024, 5, 17), "10 years", (date(1980, 1, 1), date(2020, 1, 1))),
        (date(2020, 4, 1), date(2024, 3, 31), "1 year", (date(2020, 4, 1), date(2023, 4, 1))),
        (date(2020, 2, 2), date(2020, 7, 1), "1 quarter", (date(2020, 1, 1), date(2020, 7, 1))),
        (date(1, 1, 2), date(9999, 12, 31), "1 month", (date(1, 1, 1), date(9999, 12, 1))),
        (date(1, 1, 2), date(9999, 12, 31), "10 years", (date(1, 1, 1), date(9991, 1, 1))),
        (
            datetime(2020, 1, 1, 0, 1),
            datetime(2020, 3, 1),
            "1 month",
            (datetime(2020, 1, 1), datetime(2020, 3, 1)),
        ),
    ],
)
def test_bounds_of_months_move_outwards(lower, upper, step, becomes):
    grid = Grid.of(lower, upper, step)
    assert (grid.lower, grid.upper) == becomes
    assert Grid.of(grid.lower, grid.upper, step) == grid
    assert (grid.codes([lower, upper]) == [0, grid.points - 1]).all()


@pytest.mark.parametrize(
    "kind", [pa.date32(), pa.date64(), *(pa.timestamp(u) for u in ("s", "ms", "us", "ns"))]
)
def test_months_of_every_type_of_time(kind):
    given = pa.array([datetime(1969, 12, 31), datetime(1970, 1, 1), None]).cast(kind)
    grid = Grid.of(date(1969, 12, 1), date(1970, 2, 1), "1 month", nullable=True)
    assert grid.codes(given).tolist() == [0, 1, 3]
    far = pa.array([-(2**31), 2**31 - 1] if kind == pa.date32() else [-(2**63), 2**63 - 1])
    wide = far.cast(pa.int32() if kind == pa.date32() else pa.int64()).view(kind)
    with pytest.raises(DomainError, match="2 lie outside"):
        grid.codes(wide)
    with pytest.raises(DomainError, match="does not fit"):
        grid.codes(pa.array([1, 2]))
    with pytest.raises(DomainError, match="does not fit"):
        grid.codes(pa.array([datetime(1970, 1, 1)], pa.timestamp("us", tz="UTC")))


@pytest.mark.parametrize(
    "text", ["", "day", "1.5 days", "1 fortnight", "1 day 2 hours", "9" * 18 + " weeks"]
)
def test_steps_that_are_none(text):
    with pytest.raises(DomainError, match="whole number and a unit"):
        parse_step(text)


@given(st.timedeltas(timedelta(microseconds=1), timedelta(days=10**6)))
def test_a_step_reads_as_it_was_written(step):
    assert parse_step(step_text(step)) == step


def test_index_and_slice_limits():
    grid = Grid.of(0, 9)
    for index in (-1, 10):
        with pytest.raises(DomainError):
            grid.value_at(index)
    with pytest.raises(DomainError):
        grid.decode([10])
    assert grid.slice(Interval.above(100)) == range(10, 10)
    assert len(grid.slice(Interval.below(-100))) == 0
