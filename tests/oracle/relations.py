"""Relations between answers that hold whatever the truth is.

Nothing tells the right answer of one release below retention 1, but inversion is linear: what
is equal or adds up over original rows does so, to rounding, over estimates.  A relation asks
one thing in two ways.

    partition       COUNT_IF(p) + COUNT_IF(NOT p) + COUNT_IF(p IS NULL) = COUNT(*)
    spellings       SUM(CASE WHEN p THEN 1 ELSE 0 END) = COUNT(*) FILTER (WHERE p) = COUNT_IF(p)
                    = COUNT(*) ... WHERE p, and casts and IF where p is never NULL
    beside          an aggregate alone is the same aggregate beside others
    adding up       the cells of a public GROUP BY add up to the total
    wrapping        a CTE or a sub-select around a query changes nothing
    renaming        aliases of tables and columns change nothing
    reordering      neither does the order of SELECT items, keys and operands

An answer that has no rows to speak of (SUM is NULL) counts as 0 where answers are added.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Protocol

from privsql.errors import NotSupportedError
from tests.oracle.blocks import Block, Blocks, Wish
from tests.oracle.expressions import Expressions
from tests.oracle.nodes import Node, Output, node, replaced, text, touches
from tests.oracle.running import LIMITS
from tests.oracle.sources import Source, focus, source
from tests.oracle.tables import COLUMNS, TABLE

CLOSE = 1e-9  # of the larger of estimate and standard error
BARS = ("stderr", "low", "high", "reliable")
FORMS = ("states", "axes", "conjunctions", "counts", "weights")  # of Session.form; None: by cost

# What must be alike of two answers that say the same: "bars" (estimate, standard error, interval
# and reliability) or "estimates" alone.
# An aggregate's interval and reliability still depend on what stands beside it: "estimates" there.
ALIKE = {"beside": "bars", "wrapping": "bars", "renaming": "bars", "reordering": "bars"}

NUMBERS = (int, float, Decimal)
Key = tuple[Any, ...]


@dataclass(frozen=True)
class Cell:
    """One estimate with its bars; an exact number or a key has none."""

    value: Any
    stderr: float | None = None
    low: float | None = None
    high: float | None = None
    reliable: bool | None = None


@dataclass(frozen=True)
class Read:
    """An answer: names of columns, and rows of cells."""

    names: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


class Reads(Protocol):
    """Somebody who answers SQL."""

    def read(self, sql: str) -> Read: ...


class Reader:
    """A session's answers, each asked once; ``form`` is the scan form it is told to use.

    The session is opened with the first question.
    """

    def __init__(self, session: Callable[[], Any], form: str | None = None) -> None:
        self._open, self._form = session, form
        self._known: dict[str, Read] = {}

    @cached_property
    def session(self) -> Any:
        made = self._open()
        if self._form is not None:
            made.form = self._form
        return made

    def read(self, sql: str) -> Read:
        if sql not in self._known:
            outcome = self.session.run(sql, error_bars=True, estimator="inversion")
            lists = []
            for i, values in enumerate(outcome.table.columns):
                bars = outcome.bars.get(i)
                given = [[None] * len(values)] * 4
                if bars is not None:
                    given = [bars.column(name).to_pylist() for name in BARS]
                lists.append([Cell(*all_) for all_ in zip(values.to_pylist(), *given, strict=True)])
            names = tuple(column.name for column in outcome.columns)
            self._known[sql] = Read(names, tuple(zip(*lists, strict=True)))
        return self._known[sql]


@dataclass(frozen=True)
class Asked:
    """Columns of a query's answer; rows of the same key are added up."""

    sql: str
    columns: tuple[str, ...]
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """The sum of some answers is the sum of others; or one answer is another, bars and all."""

    relation: str
    left: tuple[Asked, ...]
    right: tuple[Asked, ...]
    same: bool = False  # row for row, with bars

    def __str__(self) -> str:
        sides = [[each.sql for each in side] for side in (self.left, self.right)]
        return f"{self.relation}:\n    " + "\n  = ".join("\n  + ".join(s) for s in sides)


@dataclass(frozen=True)
class Broken:
    """A claim that does not hold; ``kind`` is estimates, bars, rows or an error."""

    claim: Claim
    kind: str
    text: str

    def __str__(self) -> str:
        return f"[{self.claim.relation}, {self.kind}] {self.text}\n{self.claim}"


def close(one: Any, two: Any, scale: float) -> bool:
    """Whether two figures are the same up to rounding."""
    if isinstance(one, NUMBERS) and isinstance(two, NUMBERS):
        return abs(float(one) - float(two)) <= CLOSE * scale or one == two
    return bool(one == two)


def _size(*cells: Cell) -> float:
    found = [abs(float(x)) for c in cells for x in (c.value, c.stderr) if isinstance(x, NUMBERS)]
    return max(found, default=0.0)


def _key(cell: Cell) -> tuple[str, str]:
    return type(cell.value).__name__, repr(cell.value)


def _summed(asked: Sequence[Asked], by: Reads) -> tuple[dict[Key, float], dict[Key, float]]:
    """Totals by key, and the largest term of each."""
    totals: dict[Key, float] = defaultdict(float)
    sizes: dict[Key, float] = defaultdict(float)
    for each in asked:
        found = by.read(each.sql)
        keys = [found.names.index(name) for name in each.keys]
        (place,) = (found.names.index(name) for name in each.columns)
        for row in found.rows:
            key = tuple(_key(row[i]) for i in keys)
            cell = row[place]
            totals[key] += float(cell.value or 0)
            sizes[key] = max(sizes[key], _size(cell))
    return totals, sizes


def _added(claim: Claim, by: Reads) -> Iterator[Broken]:
    (left, most), (right, more) = (_summed(side, by) for side in (claim.left, claim.right))
    for key in left | right:
        scale = max(most.get(key, 0.0), more.get(key, 0.0))
        one, two = left.get(key, 0.0), right.get(key, 0.0)
        if not close(one, two, scale):
            yield Broken(claim, "estimates", f"{one!r} is not {two!r} at {key}")


def _sorted(asked: Asked, by: Reads) -> list[tuple[Cell, ...]]:
    found = by.read(asked.sql)
    keys = [found.names.index(name) for name in asked.keys]
    shown = [found.names.index(name) for name in asked.columns]

    def order(row: tuple[Cell, ...]) -> tuple[Any, ...]:
        numbers = [row[i].value for i in shown if isinstance(row[i].value, int | float)]
        return tuple(_key(row[i]) for i in keys), [round(x, 6) for x in numbers if x == x]

    rows = sorted(found.rows, key=order)
    return [tuple(row[i] for i in (*keys, *shown)) for row in rows]


def _same(claim: Claim, by: Reads, bars: bool) -> Iterator[Broken]:
    (one,), (two,) = claim.left, claim.right
    rows, others = _sorted(one, by), _sorted(two, by)
    if len(rows) != len(others):
        yield Broken(claim, "rows", f"{len(rows)} rows, not {len(others)}")
        return
    names = (*one.keys, *one.columns)
    for row, other in zip(rows, others, strict=True):
        for name, a, b in zip(names, row, other, strict=True):
            scale = _size(a, b)
            if not close(a.value, b.value, scale) and not _nan(a.value, b.value):
                yield Broken(claim, "estimates", f"{name} is {a.value!r}, not {b.value!r}")
            elif bars:
                # An interval's end may be far out: it is measured by itself as well.
                pairs = [(_bar(a, bar), _bar(b, bar)) for bar in BARS]
                for bar, (x, y) in zip(BARS, pairs, strict=True):
                    more = max(scale, *(abs(v) for v in (x, y) if isinstance(v, float)), 0.0)
                    if not close(x, y, more):
                        text = f"{bar} of {name} is {x!r}, not {y!r}, of {a.value!r}"
                        yield Broken(claim, "bars", text)


def _bar(cell: Cell, name: str) -> Any:
    """A bar; a standard error that is the root of a rounding error is none."""
    found = getattr(cell, name)
    if name == "stderr" and found is not None and isinstance(cell.value, int | float):
        return found if found > 1e-7 * abs(cell.value) else 0.0
    return found


def _nan(one: Any, two: Any) -> bool:
    return all(isinstance(x, float) and math.isnan(x) for x in (one, two))


def _refused(asked: Asked, by: Reads) -> bool:
    """Whether distinct values are not counted here: rows are sampled, or depend on each other."""
    if "COUNT(DISTINCT " not in asked.sql:
        return False
    try:
        by.read(asked.sql)
    except NotSupportedError as problem:
        return problem.code == "dependent-rows" or "keeps a sample" in problem.reason
    return False


def broken(claim: Claim, by: Reads, alike: str = "") -> Broken | None:
    """What is wrong with a claim, or None; limits that are said are raised.

    ``alike`` is "bars" or "estimates", and otherwise what ALIKE says of the relation.
    """
    bars = (alike or ALIKE.get(claim.relation, "estimates")) == "bars"
    both = (*claim.left, *claim.right)
    try:
        found = _same(claim, by, bars) if claim.same else _added(claim, by)
        return next(found, None)
    except LIMITS:
        raise
    except NotSupportedError as problem:
        # What a release does not tell by either spelling.
        if problem.code == "distinct-error" or all(_refused(each, by) for each in both):
            return None
        return Broken(claim, f"raises {type(problem).__name__}", str(problem))
    except Exception as problem:  # a refusal of one side, or a bug, is a finding
        return Broken(claim, f"raises {type(problem).__name__}", str(problem))


NO_EXACT = "keeps a sample of the rows, so the answer of a sub-query"


# --- the relations ---------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What a condition is asked in: a source, a WHERE, keys."""

    source: Source
    expressions: Expressions
    where: Node | None
    keys: tuple[tuple[Node, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.keys)

    def condition(self, depth: int = 2) -> Node:
        """A condition, likely one that depends on a sensitive column."""
        for _ in range(2):
            found = self.expressions.condition(depth)
            if touches(found):
                return found
        return self.expressions.condition(depth)

    def sql(self, shown: str, where: Node | None = None, grouped: bool = True) -> str:
        """A query of ``shown AS v``, under the setting's condition and one more."""
        keys = self.keys if grouped else ()
        listed = ", ".join([*(f"{text(key)} AS {name}" for key, name in keys), f"{shown} AS v"])
        needed = (*self.source.keys, self.where, where)
        conditions = [f"({text(each)})" for each in needed if each is not None]
        tail = " WHERE " + " AND ".join(conditions) if conditions else ""
        tail += " GROUP BY " + ", ".join(text(key) for key, _ in keys) if keys else ""
        before = text(node("with", *self.source.before()))
        return f"{before}SELECT {listed} FROM {text(self.source.node)}{tail}"

    def asked(self, shown: str, where: Node | None = None, grouped: bool = True) -> Asked:
        return Asked(self.sql(shown, where, grouped), ("v",), self.names if grouped else ())


def setting(
    rng: random.Random, *, keys: Sequence[int] = (0, 0, 1), public: bool = False
) -> Setting:
    at = source(rng, sensitive=rng.choice((1, 1, 2)), public=rng.randint(1, 2))
    expressions = Expressions(rng, at.columns, parameters=False)
    where = expressions.condition(1) if rng.random() < 0.4 else None
    found: list[tuple[Node, str]] = []
    for place in range(rng.choice(list(keys))):
        for _ in range(20):
            key = expressions.key()[0]
            if not (public and touches(key)) and text(key) not in {text(k) for k, _ in found}:
                found.append((key, f"k{place}"))
                break
    return Setting(at, expressions, where, tuple(found))


def partition(rng: random.Random) -> list[Claim]:
    """Three-valued logic leaves nobody out."""
    at = setting(rng)
    p = at.condition()
    parts = [f"COUNT_IF({text(p)})", f"COUNT_IF(NOT ({text(p)}))", f"COUNT_IF(({text(p)}) IS NULL)"]
    left = tuple(at.asked(part) for part in parts)
    beside = at.asked(" + ".join(f"COALESCE({part}, 0)" for part in parts))
    whole = (at.asked("COUNT(*)"),)
    return [Claim("partition", left, whole), Claim("partition", (beside,), whole)]


def spellings(rng: random.Random) -> list[Claim]:
    """The ways to count rows on which a condition is true."""
    at = setting(rng)
    p = at.condition()
    written = text(p)
    first = (at.asked(f"COUNT(*) FILTER (WHERE {written})"),)
    others = [
        f"SUM(CASE WHEN {written} THEN 1 ELSE 0 END)",
        f"SUM(CASE WHEN {written} THEN 1.0 END)",
        f"COUNT_IF({written})",
        f"COUNT(CASE WHEN {written} THEN 1 END)",
        f"SUM(CASE WHEN {written} THEN 100 ELSE 0 END) / 100",
        f"SUM(1) FILTER (WHERE {written})",
    ]
    never = rng.choice((f"COALESCE({written}, FALSE)", f"(({written}) IS TRUE)"))
    others += [
        f"SUM(({never})::INT)",
        f"SUM(CAST({never} AS DOUBLE))",
        f"SUM(IF({never}, 1, 0))",
        f"COUNT(*) FILTER (WHERE {never})",
    ]
    claims = [Claim("spellings", (at.asked(other),), first) for other in rng.sample(others, 5)]
    return [*claims, Claim("spellings", (at.asked("COUNT(*)", p),), first)]


def adding_up(rng: random.Random) -> list[Claim]:
    """Counts and sums of a public GROUP BY, and of the whole."""
    at = setting(rng, keys=(1, 1, 2), public=True)
    while not at.keys:
        at = setting(rng, keys=(1, 1, 2), public=True)
    value = text(at.expressions.number())
    p = text(at.condition(1))
    claims = []
    for shown in (f"SUM({value})", f"COUNT_IF({p})", f"SUM({value}) FILTER (WHERE {p})"):
        cells = replace(at.asked(shown), keys=())
        claims.append(Claim("adding up", (cells,), (at.asked(shown, grouped=False),)))
    return claims


@dataclass(frozen=True)
class Query:
    """A generated query of one block, whose SELECT list may be changed."""

    block: Block
    top: Node

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.block.keys)

    @property
    def compared(self) -> tuple[str, ...]:
        """Columns but for keys, and for variances: what those leave of zero is rounding."""
        outputs = [item.output for item in self.block.items]
        return tuple(o.name for o in outputs if o is not None and _linear(o))

    def sql(self, change: Callable[[Node], Node] = lambda tree: tree) -> str:
        body = change(self.block.node)
        ctes = ", ".join(text(each) for each in self.block.with_)
        return f"WITH {ctes} {text(body)}" if ctes else text(body)

    def asked(self, sql: str) -> Asked:
        return Asked(sql, self.compared, self.keys)


def query(rng: random.Random, at: Source, *, plain: bool = False) -> Query:
    """A query by the generator; ``plain`` keeps its keys by name, without sets of them."""
    while True:
        wish = Wish(
            keys=rng.choice((0, 1, 1, 2)),
            values=rng.choice((2, 3)),
            empty="marker",
            sets=not plain and rng.random() < 0.15,
            windows=not plain and rng.random() < 0.1,
        )
        block = Blocks(rng).block(at, wish)
        found = {each.feature for each in block.node.walk()}
        if plain and {"group by ordinal", "alias in having", "group by all"} & found:
            continue
        top = next(each for each in block.node.walk() if each.kind == "top")
        return Query(block, top)


def _source(rng: random.Random) -> Source:
    return source(rng, sensitive=rng.choice((1, 1, 2)), public=rng.randint(1, 2))


def beside(rng: random.Random) -> list[Claim]:
    """Each aggregate alone, and all of them together."""
    made = query(rng, _source(rng), plain=True)
    together = made.sql()
    claims = []
    for item in made.block.items:
        if item.output is None or not _linear(item.output):
            continue
        shown = [each for each in made.block.items if each is item or _is_key(each)]
        alone = replace(made.top, parts=tuple(shown))
        sql = made.sql(lambda tree, alone=alone: replaced(tree, made.top, alone))  # type: ignore[misc]
        sides = [Asked(s, (item.output.name,), made.keys) for s in (sql, together)]
        claims.append(Claim("beside", (sides[0],), (sides[1],), same=True))
    return claims


def _linear(output: Output) -> bool:
    return not output.key and output.measure not in ("square", "root", "corr")


def _is_key(item: Node) -> bool:
    return item.output is not None and item.output.key


def wrapping(rng: random.Random) -> list[Claim]:
    made = query(rng, _source(rng))
    inner = made.sql()
    forms = [f"SELECT * FROM ({inner}) AS w", f"WITH w AS ({inner}) SELECT * FROM w"]
    listed = ", ".join((*made.keys, *made.compared))
    forms.append(f"SELECT {listed} FROM (SELECT * FROM ({inner}) AS w) AS w2")
    one = made.asked(inner)
    claims = [Claim("wrapping", (made.asked(s),), (one,), same=True) for s in rng.sample(forms, 1)]
    # Around the table instead of the answer.
    seed, columns = rng.random(), focus(rng, rng.choice((1, 2)), rng.randint(1, 2))
    bare = query(random.Random(seed), Source(node("source", TABLE), columns))
    inside = rng.choice((f"(SELECT * FROM {TABLE}) AS s", f"(SELECT * FROM {TABLE} WHERE TRUE)"))
    other = query(random.Random(seed), Source(node("source", inside), columns))
    sides = bare.asked(bare.sql()), other.asked(other.sql())
    return [*claims, Claim("wrapping", (sides[1],), (sides[0],), same=True)]


def renaming(rng: random.Random) -> list[Claim]:
    """The same draws over columns of other names."""
    seed, columns = rng.random(), focus(rng, rng.choice((1, 2)), rng.randint(1, 2))

    # Only names with their table: a bare one within a sub-query would be that one's.
    qualified = rng.random() < 0.5

    def written(shown: str, alias: str, prefix: str = "") -> Query:
        before = f"{alias}.{prefix}" if qualified else prefix
        own = tuple(replace(column, ref=f"{before}{column.name}") for column in columns)
        return query(random.Random(seed), Source(node("source", shown), own))

    bare = written(TABLE, TABLE)
    names = ", ".join(f"{c.name} AS r_{c.name}" for c in columns)
    lists = ", ".join(f"l_{c.name}" for c in COLUMNS)
    kept = ", ".join(c.name for c in COLUMNS)
    others = [
        written(f"{TABLE} AS t", "t"),
        written(f"{TABLE} v", "v"),
        written(f"(SELECT {names} FROM {TABLE}) AS q", "q", "r_"),
        written(f"(SELECT {kept} FROM {TABLE}) AS t({lists})", "t", "l_"),
        written(f"{TABLE} AS t({lists})", "t", "l_"),
    ]
    one = bare.asked(bare.sql())
    return [
        Claim("renaming", (other.asked(other.sql()),), (one,), same=True)
        for other in rng.sample(others, 2)
    ]


def reordering(rng: random.Random) -> list[Claim]:
    made = query(rng, _source(rng), plain=True)
    one = made.asked(made.sql())
    shuffled = list(made.top.parts)
    rng.shuffle(shuffled)
    top = replace(made.top, parts=tuple(shuffled))
    changes: list[Callable[[Node], Node]] = [
        lambda tree: replaced(tree, made.top, top),
        turned,
        lambda tree: turned(replaced(tree, made.top, top)),
    ]
    found = []
    for change in changes:
        sql = made.sql(change)
        if sql != one.sql:
            found.append(Claim("reordering", (made.asked(sql),), (one,), same=True))
    return found


def turned(tree: Node) -> Node:
    """The tree with operands of AND and OR, and keys of GROUP BY, the other way round."""
    parts = tuple(part if isinstance(part, str) else turned(part) for part in tree.parts)
    if tree.feature in ("and", "or") and len(parts) == 5:
        parts = (parts[0], parts[3], parts[2], parts[1], parts[4])
    elif tree.kind == "keys":
        parts = parts[::-1]
    return replace(tree, parts=parts, hidden=(), checks=(), scale=None)


RELATIONS: Mapping[str, Callable[[random.Random], list[Claim]]] = {
    "partition": partition,
    "spellings": spellings,
    "adding up": adding_up,
    "beside": beside,
    "wrapping": wrapping,
    "renaming": renaming,
    "reordering": reordering,
}


@dataclass
class Tried:
    """What came of many claims."""

    claims: Counter[str] = field(default_factory=Counter)
    limited: int = 0
    broken: list[Broken] = field(default_factory=list)

    def __str__(self) -> str:
        kinds = Counter((each.claim.relation, each.kind) for each in self.broken)
        lines = [f"{self.claims.total()} claims, {len(self.broken)} broken, {self.limited} limited"]
        lines += [f"  {name:12}{many:6}" for name, many in sorted(self.claims.items())]
        lines += [f"  {name:12}{kind:28}{n:6} broken" for (name, kind), n in kinds.items()]
        return "\n".join(lines)


def tried(
    readers: Sequence[Reads], names: Sequence[str], count: int, seed: int, *, alike: str = ""
) -> Tried:
    """Put ``count`` random settings of each relation to the readers in turn."""
    found = Tried()
    for name in names:
        rng = random.Random(f"{seed} {name}")
        for place in range(count):
            by = readers[place % len(readers)]
            for claim in RELATIONS[name](rng):
                try:
                    wrong = broken(claim, by, alike)
                except LIMITS:
                    found.limited += 1
                    continue
                found.claims[name] += 1
                if wrong is not None and NO_EXACT in str(wrong):
                    found.limited += 1  # a sample has no exact answer to compare rows with
                    continue
                if wrong is not None:
                    found.broken.append(wrong)
    return found
