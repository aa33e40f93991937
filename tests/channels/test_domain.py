"""Categorical domains, selections and their mass, JSON; grids are in test_domain_grid.py."""

import json
import math
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privsql.channels import Categorical, Domain, Grid, Interval, domain_from_dict
from privsql.channels.domain import MATERIALISE_LIMIT
from privsql.channels.intervals import union
from privsql.errors import DomainError, TooLargeError

ILLNESS = Categorical(("flu", "hiv", "none"), nullable=True)


@pytest.mark.parametrize(
    "values",
    [(), ("a", 1), (True, 1), (1, Decimal(2)), ("a", "a"), (Decimal("1.0"), Decimal("1.00"))],
)
def test_categories_are_of_one_kind_and_different(values):
    with pytest.raises(DomainError):
        Categorical(values)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (None, "nullable"),
        (math.inf, "finite"),
        (math.nan, "finite"),
        (datetime(2020, 1, 1), "range"),
    ],
)
def test_what_is_no_category_comes_with_a_way_out(value, hint):
    with pytest.raises(DomainError) as caught:
        Categorical((value,))
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    "value", [2**63, Decimal("NaN"), Decimal("1e39"), Decimal("1e-99"), "\ud800", b"x"]
)
def test_what_no_column_can_store_is_no_category(value):
    with pytest.raises(DomainError):
        Categorical((value,))


def test_text_is_not_taken_for_a_list_of_letters():
    with pytest.raises(DomainError):
        Categorical("flu")
    with pytest.raises(DomainError):
        ILLNESS.count("flu")


def test_booleans_and_integers_are_different_domains():
    booleans, integers = Categorical((True, False)), Categorical((1, 0))
    assert booleans != integers
    assert {booleans: 1, integers: 2} == {integers: 2, booleans: 1}
    assert len({booleans, integers}) == 2
    for domain, wrong in ((booleans, [1, 0]), (integers, [True, False])):
        with pytest.raises(DomainError):
            domain.codes(wrong)
        with pytest.raises(DomainError):
            domain.count(set(wrong))


def test_boolean_has_the_order_of_sql():
    assert Categorical((False, True)).values().to_pylist() == [False, True]
    assert Categorical((False, True), nullable=True).codes([True, None, False]).tolist() == [
        1,
        2,
        0,
    ]


def test_null_is_the_last_value():
    assert (ILLNESS.size, ILLNESS.points, ILLNESS.null_index) == (4, 3, 3)
    assert ILLNESS.values().to_pylist() == ["flu", "hiv", "none", None]
    assert [ILLNESS.value_at(i) for i in range(4)] == ["flu", "hiv", "none", None]
    assert Categorical(("a",)).null_index is None
    for index in (-1, 4):
        with pytest.raises(DomainError):
            ILLNESS.value_at(index)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["hiv", None, "flu"]),
        pa.array(["hiv", None, "flu"], pa.large_string()),
        pa.array(["hiv", None, "flu"], pa.string_view()),
        pa.array(["hiv", None, "flu"]).dictionary_encode(),
        # A dictionary may hold what no row uses, and NULL as an entry.
        pa.DictionaryArray.from_arrays(
            pa.array([2, 1, 3], pa.int8()), pa.array(["plague", None, "hiv", "flu"])
        ),
        pa.chunked_array([["hiv"], [], [None, "flu"]]),
        pa.array(["none", "hiv", None, "flu", "none"])[1:4],
        ["hiv", None, "flu"],
        ("hiv", None, "flu"),
        np.array(["hiv", None, "flu"], dtype=object),
    ],
)
def test_codes_of_every_shape_of_a_text_column(column):
    assert ILLNESS.codes(column).tolist() == [1, 3, 0]
    assert ILLNESS.decode(ILLNESS.codes(column)).to_pylist() == ["hiv", None, "flu"]


@pytest.mark.parametrize(
    "empty", [[], pa.array([], pa.string()), pa.chunked_array([], pa.string())]
)
def test_codes_of_nothing(empty):
    assert ILLNESS.codes(empty).tolist() == []
    assert ILLNESS.decode(ILLNESS.codes(empty)).to_pylist() == []


def test_a_column_of_nulls_only():
    assert ILLNESS.codes(pa.nulls(2)).tolist() == [3, 3]
    empty = pa.DictionaryArray.from_arrays(pa.array([None], pa.int32()), pa.array([], pa.string()))
    assert ILLNESS.codes(empty).tolist() == [3]


@pytest.mark.parametrize(
    ("domain", "column", "codes"),
    [
        (Categorical((7, -2)), pa.array([-2, 7], pa.int8()), [1, 0]),
        (Categorical((7, -2)), pa.array([7], pa.uint64()), [0]),
        (Categorical((7, -2)), pa.array([Decimal("7.00")]), [0]),
        (Categorical((Decimal("1.5"), Decimal(2))), pa.array([Decimal("2.000")]), [1]),
        (Categorical((Decimal("1.5"), Decimal(2))), pa.array([2]), [1]),
        (Categorical((date(2020, 1, 2),)), pa.array([date(2020, 1, 2)], pa.date64()), [0]),
    ],
)
def test_equal_values_of_another_type_have_the_same_code(domain, column, codes):
    assert domain.codes(column).tolist() == codes


@pytest.mark.parametrize(
    ("domain", "column"),
    [
        (Categorical((7,)), pa.array([2**64 - 1, 2**63 + 1], pa.uint64())),
        (Categorical((7,)), pa.array([Decimal("7.1"), Decimal("6.9")])),
        (Categorical((Decimal("1.5"),)), pa.array([Decimal("1.51"), Decimal("1.49")])),
        (Categorical(("a",)), pa.array(["secret", "A"])),
    ],
)
def test_values_outside_are_counted_and_never_shown(domain, column):
    with pytest.raises(DomainError) as caught:
        domain.codes(column)
    assert "of 2 values, 2 lie outside" in str(caught.value)
    for value in column.to_pylist():
        assert str(value) not in str(caught.value).replace("22023", "")


def test_nulls_outside_are_counted_apart():
    with pytest.raises(DomainError, match=r"of 4 values, 1 lies outside .* and 2 are NULL"):
        Categorical(("a",)).codes(["a", None, "b", None])


def test_an_error_does_not_carry_the_message_of_arrow():
    with pytest.raises(DomainError) as caught:
        Categorical((1,)).codes([1, "secret"])
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__  # a traceback prints the context otherwise


@pytest.mark.parametrize("codes", [[-1], [4], [0.0], [[0]], ["flu"]])
def test_codes_that_are_none_are_refused(codes):
    with pytest.raises(DomainError):
        ILLNESS.decode(codes)


def test_count_of_a_set():
    assert ILLNESS.count({"flu", "plague"}) == 1
    assert ILLNESS.count(["flu", "flu"]) == 1
    assert ILLNESS.count([]) == 0
    assert ILLNESS.count([None]) == 1
    assert Categorical(("a",)).count([None]) == 0
    assert Categorical((1, 2)).count([Decimal("1.0"), 2.0, 1.5, math.nan, np.int64(2)]) == 2
    assert Categorical((date(2020, 1, 1),)).count([datetime(2020, 1, 1)]) == 1
    with pytest.raises(DomainError):
        ILLNESS.count([1])


def test_intervals_need_an_order():
    assert Categorical((30, 10, 20)).count(Interval.at_most(20)) == 2
    assert Categorical((30, 10, 20)).ranges(Interval.above(10)) == (range(0, 1), range(2, 3))
    assert Categorical((Decimal("0.1"), Decimal("0.2"))).count(Interval.above(0.1)) == 1
    days = Categorical((date(2020, 1, 1), date(2020, 1, 2)), nullable=True)
    assert days.count(Interval.above(datetime(2020, 1, 1, 12))) == 1
    assert days.count(Interval()) == 2
    for domain in (ILLNESS, Categorical((False, True))):
        with pytest.raises(DomainError) as caught:
            domain.count(Interval.above(1))
        assert "SQL engine" in caught.value.hint
    with pytest.raises(DomainError):
        days.count(Interval.above(3))


@pytest.mark.parametrize(
    "bounds", [(True, None), ("a", None), (math.nan, 1), (None, Decimal("sNaN")), (1, date.max)]
)
def test_bounds_that_bound_nothing(bounds):
    with pytest.raises(DomainError):
        Interval(*bounds)


def test_an_interval_prints_its_ends():
    shown = [str(i) for i in (Interval(), Interval.open(1, 2), Interval.below(3))]
    assert shown == ["(..., ...)", "(1, 2)", "(..., 3)"]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_union_holds_each_index_once(pairs):
    ranges = [range(a, b) for a, b in pairs]
    merged = union(ranges)
    flat = [i for r in merged for i in r]
    assert flat == sorted({i for r in ranges for i in r})
    assert all(a.stop < b.start for a, b in pairwise(merged))


def test_mass_of_values_and_intervals():
    assert ILLNESS.mass({"flu", "hiv"}) == ILLNESS.mass({"flu", None}) == 0.5
    assert Grid.of(0, 9).mass([Interval.below(2), 9]) == 0.3


def test_mass_is_rounded_once():
    # 2^53 + 1 is not a double: dividing floats would round twice.
    domain = Grid.of(1, 3 * (2**53 + 1))
    exact = Fraction(2**53 + 1, 3 * (2**53 + 1))
    assert domain.mass(Interval.at_most(2**53 + 1)) == float(exact)


def test_large_domains_are_not_written_out():
    assert len(Grid.of(1, MATERIALISE_LIMIT).values()) == MATERIALISE_LIMIT
    with pytest.raises(TooLargeError):
        Grid.of(1, MATERIALISE_LIMIT, nullable=True).values()


DOMAINS: list[Domain] = [
    ILLNESS,
    Categorical((False, True), nullable=True),
    Categorical((1, -5)),
    Categorical((Decimal("1.50"), Decimal("2"), Decimal("1e3"))),
    Categorical((Decimal("1234567890123456789.5"),)),
    Categorical((date(2020, 2, 29), date(1, 1, 1))),
    Grid.of(0, 120),
    Grid.of(-(2**63), -(2**63) + 6, 2, nullable=True),
    Grid.of(Decimal("-1.50"), Decimal("2"), Decimal("0.25")),
    Grid.of(0.1, 0.7, 0.1),
    Grid.of(date(2000, 1, 1), date(2000, 1, 15), "1 week"),
    Grid.of(datetime(2000, 1, 1), datetime(2000, 1, 1, 0, 0, 1), "1 microsecond"),
    Grid.of(datetime(2000, 1, 1), datetime(2000, 1, 1, 3), "90 minutes", nullable=True),
]


@pytest.mark.parametrize("domain", DOMAINS, ids=str)
def test_json_round_trip(domain):
    text = json.dumps(domain.to_dict())
    back = domain_from_dict(json.loads(text))
    assert back == domain
    assert hash(back) == hash(domain)
    assert back.arrow_type == domain.arrow_type
    assert json.dumps(back.to_dict()) == text


GRID = Grid.of(Decimal("0.5"), Decimal(2), Decimal("0.5")).to_dict()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        ([], "named keys"),
        ({}, "'domain'"),
        ({"domain": "circle"}, "'domain'"),
        ({k: v for k, v in GRID.items() if k != "step"}, "'step'"),
        (GRID | {"steps": 1}, "'steps'"),
        (GRID | {"kind": "complex"}, "'kind'"),
        (GRID | {"kind": []}, "'kind'"),
        (GRID | {"lower": 0.5}, "'lower'"),
        (GRID | {"lower": "half"}, "'lower'"),
        (GRID | {"upper": None}, "'upper'"),
        (GRID | {"nullable": 0}, "'nullable'"),
        (Grid.of(0, 1).to_dict() | {"lower": False}, "'lower'"),
        (Grid.of(0, 1).to_dict() | {"upper": "1"}, "'upper'"),
        (Grid.of(date.min, date.max).to_dict() | {"lower": "1.1.2000"}, "'lower'"),
        (Grid.of(date.min, date.max).to_dict() | {"step": 1}, "'step'"),
        (ILLNESS.to_dict() | {"values": "flu"}, "'values'"),
        (ILLNESS.to_dict() | {"values": [1]}, "'values'"),
        (ILLNESS.to_dict() | {"kind": "timestamp"}, "'kind'"),
        (ILLNESS.to_dict() | {"kind": "real"}, "'values'"),
        (ILLNESS.to_dict() | {"kind": {}}, "'kind'"),
        (Categorical((1, 0)).to_dict() | {"kind": "boolean"}, "'values'"),
        (Categorical((1, 0)).to_dict() | {"values": [True, False]}, "'values'"),
    ],
)
def test_malformed_json_is_refused_with_the_key(data, named):
    with pytest.raises(DomainError) as caught:
        domain_from_dict(data)
    assert named in caught.value.reason
