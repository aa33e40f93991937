"""The names of all columns that pass from a scan to the reconstruction, the gate and the answer.

A *family* names the columns of one meaning by a word and numbers: ``KEY(0)`` is ``key0``, and
``COVARIANCE(0, 1)`` is ``covariance0_1``.  Numbers count, from 0,

    i, j   aggregates of a block, or its keys       k, l   bases: the sums that formulas are over
    t, u   pieces: products of a public and a sensitive half, which bases are sums of
    s      supports: the rows that matter to a base or a piece

Nothing else makes such a name, and what a name means is asked of its family.

>>> KEY(0), TRUTH(1, 2), KEY.number("key3"), KEY.number("keys"), COVARIANCE.numbers("covariance0_1")
('key0', 'truth1_2', 3, None, (0, 1))
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

ALL: list[Family] = []


@dataclass(frozen=True)
class Family:
    """Columns of one meaning."""

    word: str
    meaning: str

    def __post_init__(self) -> None:  # noqa: D105
        ALL.append(self)

    def __call__(self, *numbers: int) -> str:
        """The name of one of them."""
        return self.word + "_".join(map(str, numbers))

    def numbers(self, name: str) -> tuple[int, ...] | None:
        """The numbers in a name; None where it is of another family."""
        rest = name.removeprefix(self.word)
        if rest == name or not re.fullmatch(r"[0-9]+(_[0-9]+)*", rest):
            return None
        return tuple(map(int, rest.split("_")))

    def number(self, name: str) -> int | None:
        """The one number in a name; None where it is of another family."""
        found = self.numbers(name)
        return found[0] if found is not None and len(found) == 1 else None

    def within(self, names: list[str]) -> list[str]:
        """Those of some names that are of this family."""
        return [name for name in names if self.numbers(name) is not None]


# --- the scan: rows of the published table, then sums over them --------------------------------

KEY = Family("key", "key i of GROUP BY")
GROUPING = Family("grouping", "1 where key i is left out of the row's grouping set, 0 elsewhere")
HIDDEN = Family("hidden", "public expression i that a sensitive column is compared with")
CODE = Family("code", "published value of sensitive column i")
TRUTH = Family("truth", "whether condition n on sensitive column i is true of the published value")
UNKNOWN = Family("unknown", "whether condition n on sensitive column i is NULL")
PUBLIC = Family("public", "public half of a piece, computed for each row")
CONDITION = Family("condition", "truth of a condition, computed for each row and counted")
WEIGHT = Family("weight", "inverted weight of a row, which is added up")
TIMES = "times"  # how many rows a stored row stands for
ROW_WEIGHT = "row_weight"  # how many original rows a sampled row stands for
SUM = Family("sum", "sum n over the rows of a state, or of a cell")
COUNTED = Family("counted", "rows in which a conjunction is true")
ARGUMENT = Family("argument", "argument of exact aggregate n, computed for each row")
FILTER = Family("filter", "condition of exact aggregate n, computed for each row")
EXACT = Family("exact", "exact aggregate n, from parts that are put together")
BESIDE = Family("beside", "exact aggregate i, from a scan of its own")
ROWS = "published_rows"  # number of published rows

# --- states: every combination of cells of the sensitive columns ---------------------------------

STATE = "state"
CELL = "cell"
KEPT = "kept"  # whether WHERE can hold in a state
ATOM = Family("atom", "value of expression n over a domain")
FUNCTION = Family("function", "sensitive half of piece t, over states")
FUNCTION_ALL = Family("function_all", "the same without classes of sensitive keys")
INVERSE = Family("inverse", "FUNCTION multiplied with the inverse of the channel")
INVERSE_ALL = Family("inverse_all", "FUNCTION_ALL multiplied with the inverse of the channel")
PRODUCT = Family("product", "INVERSE of t times INVERSE of u: the second moment of a row")
PRODUCT_ALL = Family("product_all", "INVERSE of t times INVERSE_ALL of u")
MEAN = Family("mean", "inverse of FUNCTION t times FUNCTION u: the squared mean of a row")
MEAN_ALL = Family("mean_all", "inverse of FUNCTION t times FUNCTION_ALL u")
TAIL = Family("tail", "share of the whole column in the covariance of pieces t and u")
TAIL_ALL = Family("tail_all", "share of the whole column, without classes")
CELL_OF = Family("cell_of", "cell of sensitive column i, of a published state")
LABEL = Family("label", "number of the class that sensitive keys make of a cell of column i")
ESTIMATE = Family("estimate", "sum of piece t over original rows, estimated")
OBSERVED_SUM = Family("observed_sum", "sum of piece t over published rows")
SHARED = Family("shared", "covariance of pieces t and u")
SHARED_ALL = Family("shared_all", "covariance of piece t with piece u over all classes")
ORDERED = Family("ordered", "values that quantile or mode i is chosen from")
RANK = Family("rank", "rank of a state's value among those of quantile i")
PLACE = Family("place", "rank less 1 for piece t of quantile i, -1 where it does not count")
MASSES = Family("masses", "chances of the states of sensitive column i when a value is replaced")
FLOOR = Family("floor", "least chance of each published state, along these sensitive columns")
SOLVED = Family("solved", "state counts of greatest likelihood")

# --- bases: sums over original rows, estimated ------------------------------------------------

BASE = Family("base", "estimate of base k")
INVERTED = Family("inverted", "estimate of base k by inversion, where BASE has the likelihood's")
LEAST = Family("least", "least value that base k can have")
MOST = Family("most", "largest value that base k can have")
OBSERVED_BASE = Family("observed_base", "base k of the published table, as if it were the original")
BASE_COVARIANCE = Family("base_covariance", "covariance of bases k and l")
BASE_WITH_TOTAL = Family("base_with_total", "covariance of base k with base l over all classes")
SECOND = Family("second", "sum over rows of the squared error of piece t")
FOURTH = Family("fourth", "sum over rows of the fourth power of the error of piece t")
MOST_ROWS = Family("most_rows", "effective rows of piece t, bounded from above")
MASS = Family("mass", "chance that piece t's condition holds when a value is replaced")
CONDITION_ROWS = Family("condition_rows", "rows in which the public condition of piece t holds")
TALLY = Family("tally", "distribution that quantile i is found in")
PARTIAL = Family("partial", "sum over rows that several bases share")
MISSED = Family("missed", "sum over values of power j of 1 - P, P a product over a value's rows")
RATIO = Family("ratio", "sum over rows of power j of the ratio 1 - G that P is a product of")
FLOORED = Family("floored", "the same over states, each with its FLOOR, for each row")
MEAN_RATIO = Family("mean_ratio", "RATIO j for each row")
MIXED_RATIO = Family("mixed_ratio", "RATIO j and FLOORED j together for each row")
DISTINCT = Family("distinct", "what is known of distinct count i, as a struct")

# --- aggregates and totals: the block's table --------------------------------------------------

AGGREGATE = Family("aggregate", "value of aggregate i: an estimate, or exact")
STDERR = Family("stderr", "standard error of aggregate i")
LOW = Family("low", "lower end of the interval of aggregate i")
HIGH = Family("high", "upper end of the interval of aggregate i")
RELIABLE = Family("reliable", "whether the interval of aggregate i has its level")
EFFECTIVE = Family("effective", "effective rows of aggregate i")
OBSERVED = Family("observed", "aggregate i of the published table, as if it were the original")
COVARIANCE = Family("covariance", "covariance of aggregates i and j in one row")
WITH_TOTAL = Family("with_total", "covariance of aggregate i with j over all classes")
SLOPE = Family("slope", "derivative of aggregate i by base k")
INTERVAL = Family("interval", "interval of aggregate i as a struct")
LEVEL = Family("level", "intermediate result of aggregate i")
POSITION = Family("position", "where quantile i and the ends of its interval are")
TOTAL = Family("total", "window total n of estimates")
CONSTANT = Family("constant", "exact column n that a definition refers to")
WINDOW = Family("window", "exact window n that a definition refers to")
SHOWN = Family("shown", "column i of the answer")
CRITICAL = "z"  # critical value of the confidence level
CERTAIN = "certain"  # whether all aggregates of the row are exact

# What is known of an aggregate, with the names that people use for it.
BARS = {"stderr": STDERR, "low": LOW, "high": HIGH, "reliable": RELIABLE}

# --- the gate: personal groups behind cells ------------------------------------------------------

GROUP_LOW = Family("group_low", "smallest personal group behind support s")
GROUP_HIGH = Family("group_high", "largest personal group behind support s")
GROUP_ROWS = Family("group_rows", "rows behind support s")
GROUP_SUM = Family("group_sum", "sum of absolute weights of the rows behind support s")
GROUP_SQUARES = Family("group_squares", "sum of squared weights of the rows behind support s")
GROUP_BITS = Family("group_bits", "bits that some group number has, above those that some lack")
SUPPORT = Family("support", "whether a row is in support s")
SUPPORT_WEIGHT = Family("support_weight", "weight of a row in support s")
PERSONAL_GROUP = "personal_group"
INFORMATIVE = Family("informative", "whether piece t depends on a sensitive value")
REFUSED = Family("refused", "whether aggregate i of the cell is refused")
VECTOR = Family("vector", "sum of weight v over the rows of a public tuple")
SKETCH = Family("sketch", "sum of weight v times secret number b of each row")
SECRET = Family("secret", "sum of secret number b over the rows of a public tuple")


@dataclass(frozen=True)
class Pair:
    """The columns about a pair of pieces, within classes of sensitive keys or, for u, over all."""

    t: int
    u: int
    over_all: bool = False

    @property
    def functions(self) -> tuple[str, str]:
        """Both functions."""
        return FUNCTION(self.t), (FUNCTION_ALL if self.over_all else FUNCTION)(self.u)

    @property
    def inverses(self) -> tuple[str, str]:
        """Both functions inverted."""
        return INVERSE(self.t), (INVERSE_ALL if self.over_all else INVERSE)(self.u)

    @property
    def product(self) -> str:
        """Second moment of a row."""
        return (PRODUCT_ALL if self.over_all else PRODUCT)(self.t, self.u)

    @property
    def mean(self) -> str:
        """Squared mean of a row."""
        return (MEAN_ALL if self.over_all else MEAN)(self.t, self.u)

    @property
    def tail(self) -> str:
        """Share of the whole column."""
        return (TAIL_ALL if self.over_all else TAIL)(self.t, self.u)


def ordered_pairs(pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Each pair once and in order, with the smaller number first."""
    return sorted({(min(pair), max(pair)) for pair in pairs})


def effective_of(name: str) -> str:
    """The column with the effective rows of an aggregate or a total."""
    i = AGGREGATE.number(name)
    return f"{EFFECTIVE.word}_{name}" if i is None else EFFECTIVE(i)


def covariance_of(one: str, two: str) -> str:
    """The column with the covariance of two aggregates or totals; totals come first."""
    i, j = AGGREGATE.number(one), AGGREGATE.number(two)
    if i is not None and j is not None:
        return COVARIANCE(min(i, j), max(i, j))
    first, second = sorted((one, two), key=lambda name: (TOTAL.number(name) is None, name))
    return f"{COVARIANCE.word}_{first}_{second}"


def size_of_total(name: str) -> str:
    """The column with a total's variance summed without signs, which rounding is measured by."""
    return f"size_{name}"


def least_of(half: str) -> str:
    """The scan's column that is below zero where a public half is."""
    return f"least_{half}"


def sampled_of(half: str) -> tuple[str, str]:
    """The scan's columns with the second and fourth power of a public half's sampling error."""
    return f"sampled_{half}", f"sampled_{half}_squared"


def solved_of(half: str) -> str:
    """The column with a public half's likeliest states."""
    return f"{SOLVED.word}_{half}"
