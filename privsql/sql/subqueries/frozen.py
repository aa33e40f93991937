"""Exact answers as constants: what a sub-query over public columns says, asked once.

Public columns of published rows are exact, and so is every query over them alone.  It runs beside
the published table while a statement is planned, and its answer takes the sub-query's place:

    cost > (SELECT AVG(cost) FROM patients)                  cost > CAST('51.25' AS DOUBLE)
    job IN (SELECT job FROM patients GROUP BY job ...)       job IN ('eng', 'cook')
    JOIN (SELECT job, MAX(cost) AS most ...) AS m            JOIN (SELECT ... two lists ...) AS m

So conditions say the same wherever they are evaluated: over published rows, over domains, and over
the rows of a later publication, where an account of answers looks at them again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from privsql.errors import TooLargeError
from privsql.sql.catalog import Catalog
from privsql.sql.expressions import call
from privsql.sql.nodes import Unsupported, cast, column, define, derived, joined, named, sql, table
from privsql.sql.parameters import Parameters, Printed
from privsql.sql.subqueries.scopes import SCOPE, sensitive_in

# Values of one exact answer: they are part of a statement's conditions.
MOST_VALUES = 20_000
# Values that are written as a list after IN.
MOST_LISTED = 64

MULTIPLICITY = "privsql_multiplicity"
PUBLIC_ROWS = "privsql_public_rows"

ASK_FIRST = "ask for the estimate first and write its value in, or use public columns alone"


@dataclass(frozen=True)
class Answer:
    """An exact answer: names and types of its columns, and its values as text.

    Its rows are in an order of their own, so that equal answers make equal conditions.
    """

    columns: tuple[tuple[str, str], ...]
    values: tuple[list[str | None], ...]

    def constant(self, i: int, column_: int = 0) -> exp.Expr:
        """One value."""
        return _constant(self.values[column_][i], self.columns[column_][1])

    @property
    def rows(self) -> int:
        """How many rows it has."""
        return len(self.values[0])

    def relation(self) -> exp.Select:
        """As a SELECT without a source."""
        made = exp.Select()
        kind = exp.Literal.string('["VARCHAR"]')
        for (name, type_), values in zip(self.columns, self.values, strict=True):
            texts = exp.Literal.string(json.dumps(values, ensure_ascii=False))
            listed = call("unnest", call("from_json", texts, kind.copy()))
            define(made, name, cast(listed, type_))
        return made


def _constant(text: str | None, type_: str) -> exp.Expr:
    return cast(exp.Null() if text is None else exp.Literal.string(text), type_)


@dataclass(frozen=True)
class Exact:
    """Asks queries over public columns of the published table, and over public tables.

    ``run`` does so beside the published table; without it answers have no rows, where only the
    columns of a statement are wanted.  ``describe`` says names and types of columns.
    """

    catalog: Catalog
    parameters: Parameters
    run: Callable[[Printed], pa.Table] | None
    describe: Callable[[Printed], list[tuple[str, str]]]
    _known: dict[str, Answer] = field(default_factory=dict)

    def check(self, query: exp.Expr) -> None:
        """Refuse a query whose answer is an estimate."""
        found = sensitive_in(query)
        if found:
            raise Unsupported(
                "rows beside an estimate: this sub-query depends on the sensitive column"
                f" {found!r}, and a row cannot be compared or joined with an estimate",
                hint=ASK_FIRST,
            )
        if self.catalog.weighted:
            raise Unsupported(
                "rows beside an estimate: this release keeps a sample of the rows, so the answer"
                " of a sub-query over them is an estimate",
                hint="ask for it first and write its value in",
            )

    def answer(self, query: exp.Expr) -> Answer:
        """What a query says that refers to nothing around it."""
        text = sql(query)
        if text not in self._known:
            self.check(query)
            self._known[text] = self._asked(query)
        return self._known[text]

    def _asked(self, query: exp.Expr) -> Answer:
        described = self.describe(self.parameters.bind(_unwrapped(query.copy())))
        columns = tuple((name, _type(kind)) for name, kind in described)
        if self.run is None:
            return Answer(columns, tuple([] for _ in columns))
        names = [f"given{i}" for i in range(len(columns))]
        source = derived(self._over_public_columns(query), "answer")
        source.args["alias"].set("columns", [exp.to_identifier(name) for name in names])
        made = exp.Select()
        for name in names:
            define(made, name, cast(column(name, "answer"), "VARCHAR"))
        most = MOST_VALUES // max(1, len(columns))
        made.from_(source, copy=False).limit(most + 1, copy=False)
        found = self.run(self.parameters.bind(made))
        if found.num_rows > most:
            raise TooLargeError(
                f"a sub-query with more than {most} rows of {len(columns)} columns beside rows",
                hint=f"its answer may have {MOST_VALUES} values; select fewer rows or columns",
            )
        rows = zip(*(each.to_pylist() for each in found.columns), strict=True)
        ordered = sorted(rows, key=lambda row: [(text is None, text or "") for text in row])
        lists = map(list, zip(*ordered, strict=True)) if ordered else ([] for _ in columns)
        return Answer(columns, tuple(lists))

    def _over_public_columns(self, query: exp.Expr) -> exp.Expr:
        """The query over rows of the published table that have no sensitive column."""
        made = _unwrapped(query.copy())
        for each in list(made.find_all(exp.Table)):
            if self.catalog.is_published(each.name):
                alias = each.args.get("alias") or exp.TableAlias(
                    this=exp.to_identifier(each.name, quoted=True)
                )
                each.replace(exp.Subquery(this=self._rows(), alias=alias.copy()))
        return made

    def _rows(self) -> exp.Select:
        sensitive = self.catalog.sensitive
        made = exp.Select()
        for name, _ in self.catalog.columns:
            if name not in sensitive:
                define(made, name, column(name, PUBLIC_ROWS))
        if not made.expressions:
            define(made, "privsql_one", exp.Literal.number(1))
        made.from_(table(self.catalog.table, PUBLIC_ROWS), copy=False)
        if self.catalog.multiplicity:  # equal rows are stored once
            times = call("range", column(MULTIPLICITY, PUBLIC_ROWS))
            alias = exp.TableAlias(this=exp.to_identifier("privsql_times"))
            joined(made, exp.Table(this=times, alias=alias))
        return made

    # -- in the place of sub-queries --------------------------------------------------

    def value(self, query: exp.Expr) -> exp.Expr:
        """The value of a scalar sub-query; of no row it is NULL, of several DuckDB's error."""
        made = exp.Select(expressions=[named(exp.Subquery(this=_unwrapped(query.copy())), "value")])
        found = self.answer(made)
        return found.constant(0) if found.rows else cast(exp.Null(), found.columns[0][1])

    def exists(self, query: exp.Expr) -> exp.Boolean:
        """Whether a query has any row."""
        own = _unwrapped(query.copy())
        if isinstance(own, exp.Select) and not _shows(own):
            own.set("expressions", [named(exp.Literal.number(1), "one")])
        made = exp.Select(expressions=[named(exp.Exists(this=own), "value")])
        return exp.Boolean(this=self.answer(made).values[0] == ["true"])

    def within(self, node: exp.In) -> exp.Expr:
        """``x IN (query)`` with the query's answer."""
        found = self.answer(node.args["query"])
        made: exp.In = node.copy()
        if len(found.columns) == 1 and 0 < found.rows <= MOST_LISTED:
            made.set("query", None)
            made.set("expressions", [found.constant(i) for i in range(found.rows)])
        else:
            made.set("query", exp.Subquery(this=found.relation()))
        return made

    def relation(self, query: exp.Expr) -> exp.Select:
        """The answer as a SELECT without a source."""
        made = self.answer(query).relation()
        if SCOPE in query.meta:
            made.meta[SCOPE] = query.meta[SCOPE]
        return made


def _shows(query: exp.Select) -> bool:
    """Whether its columns decide how many rows a SELECT has, or need be there for its clauses."""
    return any(query.args.get(c) for c in ("group", "having", "distinct", "qualify", "order")) or (
        any(each.find(exp.AggFunc, exp.Window, exp.Anonymous) for each in query.expressions)
    )


def _unwrapped(query: exp.Expr) -> exp.Expr:
    """A query without the parentheses around it, where nothing else stands there."""
    while isinstance(query, exp.Subquery) and not any(
        value for key, value in query.args.items() if key not in ("this", "alias")
    ):
        query = query.this
    if isinstance(query, exp.Subquery):
        inner = query.copy()
        inner.set("alias", None)
        return exp.Select(expressions=[exp.Star()]).from_(_around(inner), copy=False)
    query.pop() if query.parent is not None else None
    return query


def _around(inner: exp.Subquery) -> exp.Subquery:
    inner.set("alias", exp.TableAlias(this=exp.to_identifier("privsql_inner")))
    return inner


_NESTED = ("[", "STRUCT", "MAP", "UNION", "VARIANT")


def _type(kind: str) -> str:
    """A type that values have as text and get back."""
    if kind.strip('"') == "NULL":
        return "INTEGER"
    if kind.startswith("ENUM"):
        return "VARCHAR"
    if any(word in kind for word in _NESTED):
        raise Unsupported(
            f"a sub-query beside rows with values of the type {kind}",
            hint="select numbers, texts or times",
        )
    return kind
