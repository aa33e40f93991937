"""At retention 1 every answer is DuckDB's on the raw table: thousands of random queries.

More on demand: ``python -m tests.oracle --count 20000 --seed 7``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.oracle.compare import Answer, difference
from tests.oracle.generator import Case, generate
from tests.oracle.nodes import Node, Output, items, node, text
from tests.oracle.running import (
    Failure,
    Summary,
    published,
    run,
    smallest,
    unusable,
    usable,
    wrong_with,
)
from tests.oracle.sessions import Layer, StandIn, on_raw
from tests.oracle.tables import World
from tests.sizes import sized

QUERIES = sized(120, 4_000)
PARTS = sized(2, 8)
SEED = 2026
LIMITED = 0.05

# Each must be seen at least once in every run, or the grammar has a hole.
GRAMMAR = """
and, or, not, case condition, condition = condition, coalesce, comparison, between, in, not in,
null in list, like, not like, ilike, regexp, is null, distinct from, text function, date function,
arithmetic, boolean column, two sensitive, sensitive with public, count(*), count(x), count(case),
count_if, filter, sum, avg, product, case value, var_samp, var_pop, variance, stddev, stddev_samp,
stddev_pop, covar_samp, covar_pop, corr, regr_*, median, quantile_cont, quantile_disc, mode, share,
quantile of public values,
difference of rates, difference of counts, comparison of an estimate, case over an estimate, exact
aggregate, group by, group by all, group by ordinal, group by alias, key expression, key case, key
of mixed columns, rollup, cube, grouping sets, grouping(), having, alias in having, average in
having, scalar in having, order by, order by an estimate, limit, offset, qualify, distinct public
columns, distinct over groups, window total, window share, window rank, window place, window
before, window running, table alias, sub-select, star in a sub-select, filter in a sub-select,
computed column, renamed column, cte, cte that filters, outer query over a cte, outer query over a
sub-select, aggregate of aggregates, group above, where above, window above, union, union all,
join using, left join on a public column, left join on a sensitive column, inner join on a public
column, inner join on a sensitive column, ctes joined, share of a total, difference of scalars,
parameters ?, parameters $1, parameters $name, comment, case of 0 and 1, case without else, case of
decimals, case of numbers, case of several conditions, case of a column, condition cast, if value,
sign value, abs value, least value, greatest value, sign in a condition, least in a condition,
greatest in a condition, sum of a condition, avg of a condition, share by a sum, aggregates of
several columns, filter beside case, in an exact answer, not in a list with null, in a public
table, compared with nothing, compared with all, compared with an exact answer, exists in a public
table, not exists in a public table, one value of a public table, exists among the rows, count of
the rows that fit, exists by two columns, in a correlated list, not in a correlated list, compared
with the rows that fit, exists by an inequality, semi join, anti join, comma join on a public
column, comma join on a sensitive column, join with an exact answer, left join with an exact
answer, cte with an exact answer
"""


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[World]]:
    with published(tmp_path_factory.mktemp("oracle"), SEED) as found:
        yield found


def explained(summary: Summary) -> str:
    shown = [str(each) for each in summary.failures if each.smallest is not None]
    return "\n\n".join([str(summary), *shown])


@pytest.mark.parametrize("part", range(PARTS))
def test_answers_at_retention_one_are_those_of_duckdb(worlds: list[World], part: int) -> None:
    """In parts, so that two processes can share them; together they ask QUERIES."""
    summary = run([(each, Layer(each)) for each in worlds], QUERIES // PARTS, SEED + part, shrunk=1)
    print(summary)
    assert not summary.failures, explained(summary)
    assert summary.cases == QUERIES // PARTS
    # Limits that are said are no wrong answers, but few may be.
    assert summary.limited.total() <= LIMITED * summary.cases


# --- the oracle itself ---------------------------------------------------------------


def test_every_query_runs_and_the_grammar_has_no_hole(worlds: list[World]) -> None:
    """All valid on the raw table, every feature among them, few without one answer there.

    Those are 5.1%: 1.8% group by what a sparse domain leaves empty, 1.4% have empty groups, 1.1%
    two modes, 0.8% filter below a check for empty groups (3,000 queries).
    """
    rng, seen, ambiguous = random.Random(SEED), set[str](), Counter[str]()
    for place in range(1_500):
        case, at = generate(rng), worlds[place % len(worlds)]
        names = on_raw(at.raw, case).names
        assert names == tuple(item.output.name for item in case.items if item.output is not None)
        ambiguous[unusable(case, at)] += 1
        seen |= case.features
    assert not {name.strip() for name in GRAMMAR.replace("\n", " ").split(",")} - seen
    del ambiguous[""]
    print(ambiguous)
    assert ambiguous.total() < 90


def test_an_honest_layer_passes(worlds: list[World]) -> None:
    summary = run([(each, StandIn(each)) for each in worlds], 300, SEED)
    assert not summary.failures, explained(summary)


def test_a_seed_repeats_its_queries() -> None:
    def some() -> list[str]:
        rng = random.Random(3)
        return [generate(rng).sql for _ in range(50)]

    assert some() == some()


def test_answers_do_not_depend_on_the_order_of_rows(worlds: list[World]) -> None:
    """A release is sorted otherwise than the raw table: no query may notice."""
    plain, rng = worlds[0], random.Random(11)
    other = plain.raw.cursor()
    other.execute("CREATE TEMP TABLE visits AS FROM main.visits ORDER BY hash(price, born, cost)")
    shuffled = World(plain.variant, plain.release, other, plain.tables)
    for _ in range(250):
        case = generate(rng)
        if usable(case, plain):
            wrong = wrong_with(case, plain, StandIn(shuffled))
            assert wrong is None, f"{wrong}\n{case.sql}"


@pytest.mark.parametrize(
    "fault",
    [
        "complement of NULL", "or is and", "filter forgotten", "left is inner",
        "sample is population", "row lost", "row twice", "order", "last digits", "null is zero",
        "types", "names", "refuses",
    ],
)  # fmt: skip
def test_a_layer_that_is_wrong_is_caught(worlds: list[World], fault: str) -> None:
    summary = run(
        [(each, StandIn(each, fault)) for each in worlds[:2]], 400, SEED, stop=1, shrunk=0
    )
    assert summary.failures


def test_a_failure_is_cut_down_to_its_core(worlds: list[World]) -> None:
    """OR read as AND: what is left is one OR, without grouping, windows or joins."""
    answers, rng = StandIn(worlds[0], "or is and"), random.Random(5)
    sizes = []
    for _ in range(200):
        case = generate(rng)
        if not usable(case, worlds[0]):
            continue
        wrong = wrong_with(case, worlds[0], answers)
        if wrong is None or case.root.size() < 40:
            continue
        small = smallest(Failure(case, "plain", wrong), worlds[0], answers)
        assert " OR " in small.sql
        assert wrong_with(small, worlds[0], answers) is not None
        sizes.append((case.root.size(), small.root.size()))
        if len(sizes) == 4:
            break
    before, after = (sum(each) for each in zip(*sizes, strict=True))
    assert after < before / 2


# --- the rules of comparison -----------------------------------------------------------


def asked(*outputs: Output, sensitive: bool = True, scale: float = 0.0) -> Case:
    hidden = (Node("value", ("x",), sensitive=sensitive),)
    size = node("scale", f"SELECT {scale}")
    shown = [Node("item", (o.name,), output=o, hidden=hidden, scale=size) for o in outputs]
    return Case(node("query", "SELECT ", items("top", shown)))


def compared(case: Case, raw: list[tuple[object, ...]], got: list[tuple[object, ...]]) -> str:
    names = tuple(item.output.name for item in case.items if item.output is not None)
    types = tuple(
        "VARCHAR" if item.output is not None and item.output.key else "DOUBLE"
        for item in case.items
    )
    one, two = Answer(names, types, tuple(raw)), Answer(names, types, tuple(got))
    found = difference(case, one, two, lambda query: float(text(query).split()[1]))
    return "" if found is None else found.kind


KEY, COUNT = Output("k", key=True, measure="any"), Output("n")
TOTAL, MARK = Output("s", measure="sum"), Output("rows_n", marker=True)


@pytest.mark.parametrize(
    ("case", "raw", "got", "kind"),
    [
        (asked(COUNT), [(5,)], [(5.0,)], ""),
        (asked(COUNT), [(5,)], [(5.0000001,)], "values"),
        (asked(COUNT), [(None,)], [(0.0,)], "values"),
        (asked(TOTAL, scale=1e6), [(1.0,)], [(1.0005,)], ""),
        (asked(TOTAL, scale=1e5), [(1.0,)], [(1.0005,)], "values"),
        (asked(Output("v", measure="root"), scale=1.0), [(0.0,)], [(None,)], ""),
        (asked(Output("v", measure="root"), scale=1.0), [(0.1,)], [(None,)], "values"),
        (asked(Output("v", measure="root"), scale=1.0), [(0.0,), (None,)], [(None,), (0.0,)], ""),
        (asked(Output("v", measure="corr")), [(float("nan"),)], [(None,)], ""),
        (asked(KEY, COUNT), [("a", 1), ("b", 2)], [("b", 2.0), ("a", 1.0)], ""),
        (asked(KEY, COUNT), [("a", 1), ("b", 2)], [("b", 1.0), ("a", 2.0)], "values"),
        (asked(KEY, COUNT), [(None, 1), (None, 2)], [(None, 2.0), (None, 1.0)], ""),
        (asked(KEY, COUNT), [("a", 1)], [("a", 1.0), ("z", 0.0)], "rows"),
        (asked(KEY, MARK), [("a", 1)], [("a", 1.0), ("z", 0.0)], ""),
        (asked(KEY, MARK), [("a", 1)], [("a", 1.0), ("z", None)], "rows"),
        (asked(KEY), [(1,)], [(True,)], "rows"),
    ],
)  # fmt: skip
def test_rules_of_comparison(
    case: Case, raw: list[tuple[object, ...]], got: list[tuple[object, ...]], kind: str
) -> None:
    assert compared(case, raw, got) == kind


def test_an_exact_answer_keeps_its_type_and_an_estimate_is_double() -> None:
    exact, estimate = asked(COUNT, sensitive=False), asked(COUNT)
    whole = Answer(("n",), ("BIGINT",), ((1,),), (False,))
    double = Answer(("n",), ("DOUBLE",), ((1.0,),), (True,))
    assert difference(exact, whole, whole, lambda _: 0) is None
    assert difference(estimate, whole, double, lambda _: 0) is None
    for case, got in ((exact, double), (estimate, whole)):
        found = difference(case, whole, got, lambda _: 0)
        assert found is not None
        assert found.kind == "types"


def test_raw_answers_carry_duckdb_types(worlds: list[World]) -> None:
    shown = Node("item", ("SUM(cost) AS n",), output=COUNT)
    case = Case(node("query", "SELECT ", items("top", [shown]), " FROM visits"))
    assert on_raw(worlds[0].raw, case).types == ("HUGEINT",)
