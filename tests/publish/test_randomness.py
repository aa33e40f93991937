from __future__ import annotations

import itertools
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from privsql.errors import DataError, InterfaceError
from privsql.publish.groups.units import row_units, unit_words
from privsql.publish.keys.randomness import (
    CHUNK,
    Blocks,
    Keyed,
    Randomness,
    Seeded,
    SystemSource,
    _reduced,
    bounded,
    subkey,
    uniform,
)

N = 200_000
KEY = bytes(range(32))
UNLIKELY = 1e-4


def codes(n: int = N, value: int = 0) -> np.ndarray:
    return np.full(n, value, dtype=np.int64)


def fits(observed: np.ndarray, expected: np.ndarray) -> bool:
    return stats.chisquare(observed, expected).pvalue > UNLIKELY


def unrelated(a: np.ndarray, b: np.ndarray, bins: int = 16) -> bool:
    """Chi-square of the pairs against independence, and no correlation."""
    pairs = np.bincount((a * bins).astype(int) * bins + (b * bins).astype(int), minlength=bins**2)
    correlation = abs(np.corrcoef(a, b)[0, 1]) * np.sqrt(len(a))
    return fits(pairs, np.full(bins**2, len(a) / bins**2)) and correlation < 4


# --- the pseudo-random function


def test_the_cipher_is_aes_256_on_every_block():
    # FIPS 197, C.3
    plain = np.frombuffer(bytes.fromhex("00112233445566778899aabbccddeeff") * 3, dtype="<u8")
    found = Blocks(KEY)(plain.reshape(-1, 2))
    assert found.tobytes() == bytes.fromhex("8ea2b7ca516745bfeafc49904b496089") * 3


def test_words_are_the_cbc_mac_of_unit_and_value():
    units, values = np.array([[5, 6]], dtype=np.uint64), np.array([-3])
    inner, outer = Blocks(subkey(KEY, "unit")), Blocks(subkey(KEY, "column", "age"))
    mixed = inner(units)[0] ^ np.array([2**64 - 3, 9], dtype=np.uint64)
    assert (Keyed(KEY).words(units, "age", values, 9) == outer(mixed[None])).all()


def test_both_words_are_uniform_and_unrelated():
    words = Seeded(1).words(row_units(0, N), "age", codes())
    first, second = uniform(words[:, 0]), uniform(words[:, 1])
    for numbers in (first, second):
        assert stats.kstest(numbers, "uniform").pvalue > UNLIKELY
    assert unrelated(first, second)
    bits = np.unpackbits(words.view(np.uint8).reshape(N, 16), axis=1).sum(axis=0)
    assert (abs(bits - N / 2) < 5 * np.sqrt(N / 4)).all()


def test_rows_columns_values_streams_and_keys_are_independent():
    units, draws = row_units(0, N), Seeded(2)
    base = uniform(draws.words(units, "age", codes())[:, 0])
    others = {
        "column": draws.words(units, "cost", codes()),
        "value": draws.words(units, "age", codes(value=1)),
        "stream": draws.words(units, "age", codes(), 1),
        "key": Seeded(3).words(units, "age", codes()),
        "table": draws.words(row_units(0, N, "other"), "age", codes()),
    }
    for name, words in others.items():
        assert unrelated(base, uniform(words[:, 0])), name
    assert unrelated(base[:-1], base[1:]), "neighbours"
    for (a, first), (b, second) in itertools.combinations(others.items(), 2):
        assert unrelated(uniform(first[:, 0]), uniform(second[:, 0])), (a, b)


def test_value_and_stream_do_not_stand_for_each_other():
    draws, unit = Seeded(1), row_units(0, 1)
    seen = {
        draws.words(unit, "age", codes(1, value), stream).tobytes()
        for value in (-2, -1, 0, 1, 2, 2**62)
        for stream in (0, 1, 2, 2**32, 2**33)
    }
    assert len(seen) == 30


def test_the_key_repeats_the_draws_in_any_order_and_any_batches():
    n = 2 * CHUNK + 17
    units, values = row_units(0, n), np.arange(n) % 7
    whole = Keyed(KEY).words(units, "age", values)
    order = np.random.default_rng(0).permutation(n)
    again = Keyed(KEY)
    assert (again.words(units[order], "age", values[order]) == whole[order]).all()
    cuts = [0, 1, 5, 70_000, n]
    parts = [again.words(units[a:b], "age", values[a:b]) for a, b in itertools.pairwise(cuts)]
    assert (np.concatenate(parts) == whole).all()
    assert (again.words(np.asfortranarray(units)[::2], "age", values[::2]) == whole[::2]).all()


def test_another_column_or_key_changes_every_draw():
    units = row_units(0, 1000)
    base = Keyed(KEY).words(units, "age", codes(1000))
    other = Keyed(bytes(32)).words(units, "age", codes(1000))
    assert not (base == other).any()
    assert not (base == Keyed(KEY).words(units, "ag", codes(1000))).any()


def test_column_names_cannot_be_confused():
    assert len({subkey(KEY, *labels) for labels in (("ab", "c"), ("a", "bc"), ("abc",))}) == 3
    assert subkey(KEY, "\udcff") != subkey(KEY, "?")


def test_sources_say_what_they_are():
    assert (Keyed.memory, Keyed.unsafe) == (True, False)
    assert (SystemSource.memory, SystemSource.unsafe) == (False, False)
    assert (Seeded.memory, Seeded.unsafe) == (True, True)


def test_the_system_never_repeats_itself():
    source, units = SystemSource(), row_units(0, 1000)
    first, second = (source.words(units, "age", codes(1000)) for _ in range(2))
    assert not (first == second).any()
    bits = np.unpackbits(np.concatenate([first, second]).view(np.uint8)).mean()
    assert abs(bits - 0.5) < 7 * np.sqrt(0.25 / (8 * 32 * 1000))


def test_no_key_is_shown():
    for shown in (repr(Keyed(KEY)), str(Keyed(KEY)), repr(Seeded(5))):
        assert "hidden" in shown
        assert KEY.hex() not in shown
        assert "5" not in shown
    with pytest.raises(InterfaceError) as error:
        Keyed(b"secret")
    assert "secret" not in str(error.value)


def test_units_must_fit_the_values():
    with pytest.raises(InterfaceError):
        Keyed(KEY).words(row_units(0, 3), "age", codes(4))
    for source in (Keyed(KEY), SystemSource()):
        assert source.words(row_units(0, 0), "age", codes(0)).shape == (0, 2)


# --- bounded draws


@pytest.mark.parametrize("size", [1, 2, 3, 10, 121, 1000])
def test_bounded_draws_are_uniform(size):
    drawn = bounded(Seeded(4), row_units(0, N), "age", codes(), size)
    assert drawn.dtype == np.int64
    counts = np.bincount(drawn, minlength=size)
    assert len(counts) == size
    assert size == 1 or fits(counts, np.full(size, N / size))


class Counted(Seeded):
    """Remembers which streams were asked for, and how often."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.asked: list[tuple[int, int]] = []

    def words(self, units, column, codes, stream=0):
        self.asked.append((stream, len(codes)))
        return super().words(units, column, codes, stream)


@pytest.mark.parametrize(
    ("size", "rejected"), [(2**62 + 1, 1 / 4), (2**64 // 3 + 1, 1 / 3), (2**63, 0), (2**63 - 1, 0)]
)
def test_bounded_draws_are_uniform_where_words_are_rejected(size, rejected):
    draws = Counted(5)
    drawn = bounded(draws, row_units(0, N), "age", codes(), size, stream=7)
    assert drawn.min() >= 0
    assert drawn.max() < size
    # Modulo alone would give the lower numbers twice the chance of the others.
    bins = np.bincount((drawn / size * 64).astype(int), minlength=64)
    assert fits(bins, np.full(64, N / 64))
    again = draws.asked[1][1] if len(draws.asked) > 1 else 0
    assert abs(again - rejected * N) < 5 * np.sqrt(N)
    assert [stream for stream, _ in draws.asked] == [7 + (k << 32) for k in range(len(draws.asked))]


def test_rejected_draws_repeat_with_their_row():
    size, order = 2**62 + 1, np.random.default_rng(1).permutation(5000)
    units, values = row_units(0, 5000), np.arange(5000)
    whole = bounded(Keyed(KEY), units, "age", values, size)
    assert (bounded(Keyed(KEY), units[order], "age", values[order], size) == whole[order]).all()


class Fixed(Randomness):
    """Hands out prepared second words, one round after the other."""

    memory = True

    def __init__(self, *rounds: list[int]) -> None:
        self.rounds = iter(rounds)

    def words(self, units, column, codes, stream=0):
        second = np.array(next(self.rounds), dtype=np.uint64)
        assert len(second) == len(codes)
        return np.stack([np.zeros_like(second), second], axis=1)


def test_exactly_the_words_beyond_the_last_whole_multiple_are_rejected():
    # 2^64 = whole * size + 2^42: the last 2^42 words are drawn again.
    size, last = 6 * 2**40, 2**64 - 2**42 - 1
    assert 2**64 % size == 2**42
    source = Fixed([0, 5, last, last + 1, 2**64 - 1], [2**64 - 2, 4], [9])
    drawn = bounded(source, row_units(0, 5), "age", codes(5), size)
    assert drawn.tolist() == [0, 5, size - 1, 9, 4]


@pytest.mark.parametrize("size", [2, 3, 6, 100, 121, 65_537, 2**31 - 1])
def test_small_sizes_leave_each_number_equally_many_words(size):
    """Each number owns a run of upper halves; what is drawn again makes the runs equal."""
    first = (
        [-(-value * 2**32 // size) for value in range(size + 1)]
        if size < 200
        else [-(-value * 2**32 // size) for value in (*range(50), size // 2, size - 1, size)]
    )
    starts = np.array(first[:-1], dtype=np.uint64)
    drawn, rejected = _reduced(starts << np.uint64(32), size)
    values = [start * size // 2**32 for start in first[:-1]]
    assert drawn.tolist() == values
    again = np.isin(np.arange(len(starts)), rejected)
    for value, start, lost in zip(values, first[:-1], again, strict=True):
        length = -(-(value + 1) * 2**32 // size) - start
        assert length - int(lost) == 2**32 // size
    # Nothing but the first of a run is ever drawn again.
    second = (starts + np.uint64(1)) << np.uint64(32)
    low = (starts.astype(object) + 1) * size % 2**32
    assert set(_reduced(second, size)[1].tolist()) == {
        i for i, rest in enumerate(low) if rest < 2**32 % size
    }


@pytest.mark.parametrize("size", [0, -1, 2**63 + 1])
def test_impossible_sizes_are_refused(size):
    with pytest.raises(DataError):
        bounded(Seeded(1), row_units(0, 1), "age", codes(1), size)


def test_streams_of_repetitions_cannot_be_asked_for():
    with pytest.raises(InterfaceError):
        bounded(Seeded(1), row_units(0, 1), "age", codes(1), 6, stream=2**32)


def test_uniform_numbers_never_reach_one():
    ends = uniform(np.array([0, 2**11 - 1, 2**11, 2**64 - 1], dtype=np.uint64))
    assert ends.tolist() == [0.0, 0.0, 2.0**-53, 1 - 2.0**-53]


# --- units


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and bool((a == b).all())


def distinct(words: np.ndarray) -> int:
    return len({row.tobytes() for row in words})


def test_whole_numbers_do_not_depend_on_their_type():
    values = [0, 1, 17, 100]
    base = unit_words(pa.array(values, pa.int64()))
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64()),
        *(pa.decimal128(10, 0), pa.decimal128(12, 2), pa.decimal256(50, 9)),
    ):
        array = pa.array([Decimal(v) for v in values] if "decimal" in str(kind) else values, kind)
        assert same(unit_words(array), base), kind
    texts = [str(v) for v in values]
    assert same(unit_words(pa.array(texts)), base)
    assert same(unit_words(pa.array([*texts, "x"]))[:4], base)
    assert same(unit_words(pa.array([-5], pa.int8())), unit_words(pa.array(["-5"])))


def test_whole_numbers_are_injective_to_the_ends_of_64_bits():
    signed = unit_words(pa.array([-(2**63), -1, 0, 1, 2**63 - 1], pa.int64()))
    unsigned = unit_words(pa.array([2**63, 2**64 - 1], pa.uint64()))
    beyond = unit_words(pa.array([Decimal(2**64), Decimal(-(2**63) - 1)], pa.decimal128(38, 0)))
    assert distinct(np.concatenate([signed, unsigned, beyond])) == 9
    assert same(unit_words(pa.array([Decimal(2**64 - 1)], pa.decimal128(38, 0))), unsigned[1:])
    assert same(unit_words(pa.array([str(-(2**63)), "x"]))[:1], signed[:1])
    numbers = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 100_000)
    assert distinct(unit_words(pa.array(numbers))) == len(set(numbers.tolist()))


def test_other_ways_to_write_a_number_are_other_persons():
    texts = ["17", "017", "+17", "17 ", "17.0", "-0", "0", "", "1" * 18, "1" * 19, "1" * 21]
    assert distinct(unit_words(pa.array(texts))) == len(texts)


TEXTS = ["", "a", "b", "ab", "a\0", "\0", "x" * 15, "x" * 16, "x" * 17, "x" * 32, "x" * 33, "ü"]


def test_text_does_not_depend_on_its_storage():
    texts = [*TEXTS, "a", "17", "y" * 1000]
    base = unit_words(pa.array(texts), KEY)
    plain = pa.array(texts)
    for other in (
        pa.array(texts, pa.large_string()),
        pa.array(texts, pa.string_view()),
        plain.dictionary_encode(),
        pa.chunked_array([plain.slice(0, 4), plain.slice(4)]),
        pa.chunked_array(
            [plain.dictionary_encode().slice(0, 3), plain.slice(3).dictionary_encode()]
        ),
    ):
        assert same(unit_words(other, KEY), base), other.type
    assert same(unit_words(plain.slice(3, 5), KEY), base[3:8])
    repeated = pa.array([1, 1, 2]).cast(pa.int32())
    encoded = pa.compute.run_end_encode(repeated)
    assert same(unit_words(encoded), unit_words(repeated))
    raw = [t.encode() for t in TEXTS]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        assert same(unit_words(pa.array(raw, kind), KEY), base[: len(raw)])
    fixed = pa.array([b"abc", b"xyz"], pa.binary(3))
    assert same(unit_words(fixed), unit_words(pa.array(["abc", "xyz"])))


def test_text_is_injective_and_depends_on_the_key():
    words = unit_words(pa.array(TEXTS), KEY)
    assert distinct(words) == len(TEXTS)
    assert not (words == unit_words(pa.array(TEXTS))).any()
    many = pa.array([f"patient {i:07d} of the clinic" for i in range(100_000)])
    assert distinct(unit_words(many, KEY)) == 100_000


def test_text_words_are_the_cbc_mac_with_the_length_in_front():
    text = b"twenty bytes of text"
    cipher = Blocks(KEY)
    state = cipher(np.array([[20, 1]], dtype=np.uint64))
    for start in (0, 16):
        block = np.frombuffer(text[start : start + 16].ljust(16, b"\0"), dtype="<u8")
        state = cipher(state ^ block[None])
    assert same(unit_words(pa.array([b"other", text, b""]), KEY)[1:2], state)


def test_a_uuid_is_the_same_person_as_its_text():
    text = "550e8400-e29b-41d4-a716-446655440000"
    raw = pa.array([bytes.fromhex(text.replace("-", ""))], pa.binary(16))
    native = pa.ExtensionArray.from_storage(pa.uuid(), raw)
    assert same(unit_words(native, KEY), unit_words(pa.array([text]), KEY))


def test_times_do_not_depend_on_their_resolution():
    moments = [datetime(1960, 1, 1, 1, 2, 3), datetime(2024, 2, 29)]
    base = unit_words(pa.array(moments, pa.timestamp("s")))
    for unit in ("ms", "us", "ns"):
        assert same(unit_words(pa.array(moments, pa.timestamp(unit))), base)
    fractions = pa.array([0, 1, 10**9 - 1, -1], pa.timestamp("ns"))
    assert distinct(unit_words(fractions)) == 4
    days = [date(1960, 1, 1), date(2024, 2, 29)]
    dates = unit_words(pa.array(days, pa.date32()))
    assert same(unit_words(pa.array(days, pa.date64())), dates)
    numbers = unit_words(pa.array(days, pa.date32()).cast(pa.int32()))
    assert distinct(np.concatenate([base, dates, numbers, row_units(0, 2)])) == 8


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, None, None]),
        pa.array(["secret", None, None]),
        pa.array(["secret", None, None]).dictionary_encode(),
        pa.chunked_array([["secret", None], [None]]),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 1]), pa.array(["secret", None])),
        pa.array([1.0, float("nan"), None]),
        pa.nulls(2),
    ],
)
def test_rows_without_a_unit_are_refused_and_counted(array):
    with pytest.raises(DataError, match="2 rows have no unit") as error:
        unit_words(array)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("values", [[1.5], [2.0**53 + 2], [float("inf")]])
def test_floats_that_name_nobody_are_refused(values):
    with pytest.raises(DataError, match="1 row "):
        unit_words(pa.array(values))


@pytest.mark.parametrize("array", [pa.array([True]), pa.array([[1]]), pa.array([{"a": 1}])])
def test_types_that_name_nobody_are_refused(array):
    with pytest.raises(DataError, match="cannot identify persons"):
        unit_words(array)


def test_decimals_do_not_depend_on_their_scale():
    wide = pa.array([Decimal("1.50"), Decimal("0.00000001"), Decimal(0)], pa.decimal128(30, 10))
    narrow = pa.array([Decimal("1.5"), Decimal("0.00000001"), Decimal(0)], pa.decimal128(20, 8))
    assert same(unit_words(wide), unit_words(narrow))
    assert same(unit_words(wide)[2:], unit_words(pa.array([0])))


def test_no_rows_have_no_units():
    empty = pa.array([], pa.string())
    for array in (empty, pa.chunked_array([], pa.int64()), pa.chunked_array([empty, ["a"]])):
        assert unit_words(array).shape == (len(array), 2)


def test_positions_do_not_depend_on_batches_and_differ_between_tables():
    assert same(row_units(0, 10, "t")[4:], row_units(4, 6, "T"))
    assert distinct(np.concatenate([row_units(0, 10, "t"), row_units(0, 10, "u")])) == 20
