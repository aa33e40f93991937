"""Random aggregates and arithmetic over them, each with the size its error is measured by."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.oracle.expressions import Expressions, refer
from tests.oracle.nodes import Node, clause, node
from tests.oracle.sources import Source


@dataclass(frozen=True)
class Aggregate:
    """An aggregate expression, and how it is compared with the raw answer.

    ``size`` is an aggregate whose value over the whole source bounds the terms that were
    added up; rounding is measured by it.
    """

    node: Node
    measure: str = "count"
    size: Node | None = None
    typing: str = "follow"
    unique: Node | None = None  # the column whose most frequent value must be the only one


@dataclass(frozen=True)
class Aggregates:
    """Writes aggregates over one source."""

    rng: random.Random
    expressions: Expressions
    exact: bool  # nothing sensitive is near: DuckDB's other aggregates may be used too

    def any(self) -> Aggregate:
        rng = self.rng
        makers = (
            [self.count] * 3 + [self.total] * 4 + [self.spread] * 2 + [self.together, self.line]
        )
        makers += [self.arithmetic] * 3 + [self.tally] * 2 + [self.shared]
        if self.exact:
            makers += [self.passed_through] * 3
        else:
            makers += [self.distinct] * 3 + [self.quantile] * 3 + [self.mode]
        return rng.choice(makers)()

    def count(self) -> Aggregate:
        rng = self.rng
        shape = rng.choice(("*", "*", "column", "expression", "case", "if"))
        typing = "follow"
        if shape == "*":
            made = node("aggregate", "COUNT(*)", self._filter(), feature="count(*)")
        elif shape == "column":
            column = rng.choice(list(self.expressions.columns))
            # Without NULLs it is COUNT(*), which may be exact or not.
            typing = "follow" if column.nullable or not column.sensitive else "any"
            made = node(
                "aggregate", "COUNT(", refer(column), ")", self._filter(), feature="count(x)"
            )
        elif shape == "expression":
            made = node("aggregate", "COUNT(", self.expressions.number(), ")", feature="count(x)")
            typing = "any"
        elif shape == "case":
            tested = self.expressions.condition(1)
            made = node(
                "aggregate", "COUNT(CASE WHEN ", tested, " THEN 1 END)", feature="count(case)"
            )
        else:
            made = node(
                "aggregate", "COUNT_IF(", self.expressions.condition(1), ")", feature="count_if"
            )
        return Aggregate(made, typing=typing)

    def total(self) -> Aggregate:
        value, word = self._value(), self.rng.choice(("SUM", "SUM", "AVG"))
        bound = node("number", "SUM(ABS(" if word == "SUM" else "MAX(ABS(", value, "))")
        filtered = self._filter()
        made = node("aggregate", f"{word}(", value, ")", filtered, feature=word.lower())
        if word == "SUM" and self.rng.random() < 0.1:
            made = node("aggregate", "COALESCE(", made, ", 0)", feature="coalesce of a sum")
        return Aggregate(made, "sum", bound)

    def tally(self) -> Aggregate:
        """A condition inside a value: counts and averages as people write them."""
        value = self.expressions.indicator()
        word = self.rng.choice(("SUM", "SUM", "AVG"))
        bound = node("number", "SUM(ABS(" if word == "SUM" else "MAX(ABS(", value, "))")
        what = "sum of a condition" if word == "SUM" else "avg of a condition"
        made = node("aggregate", f"{word}(", value, ")", self._filter(), feature=what)
        return Aggregate(made, "sum", bound)

    def shared(self) -> Aggregate:
        """``SUM(CASE ...) / COUNT(*)``, with or without care for no rows."""
        value = self.expressions.indicator()
        bound = node("number", "100 * MAX(ABS(", value, "))")
        before, after = self.rng.choice(
            (
                ("SUM(", ") / COUNT(*)"),
                ("SUM(", ") * 1.0 / NULLIF(COUNT(*), 0)"),
                ("100.0 * SUM(", ") / COUNT(*)"),
                ("100 * AVG(", ")"),
            )
        )
        made = node("aggregate", before, value, after, feature="share by a sum")
        return Aggregate(made, "sum", bound)

    def several(self) -> list[Aggregate]:
        """Two aggregates, each over a sensitive column of its own."""
        kept = [c for c in self.expressions.columns if c.sensitive]
        if len(kept) < 2:
            return []
        found = []
        for column in self.rng.sample(kept, 2):
            alone = Aggregates(
                self.rng,
                Expressions(self.rng, [column], self.expressions.parameters),
                exact=False,
            )
            found.append(self.rng.choice((alone.tally, alone.total, alone.count))())
        return found

    def beside(self) -> list[Aggregate]:
        """The same or another condition, in FILTER and in CASE."""
        rng = self.rng
        tested = self.expressions.condition(1)
        other = tested if rng.random() < 0.5 else self.expressions.condition(1)
        counted = node("aggregate", "COUNT(*) FILTER (WHERE ", tested, ")", feature="filter")
        value = self.expressions.indicator(other)
        word = rng.choice(("SUM", "AVG"))
        bound = node("number", "SUM(ABS(", value, "))")
        total = node("aggregate", f"{word}(", value, ")")
        found = [Aggregate(counted), Aggregate(total, "sum", bound)]
        rng.shuffle(found)
        return found

    def spread(self) -> Aggregate:
        value = self._value()
        word = self.rng.choice(
            ("VAR_SAMP", "VAR_POP", "VARIANCE", "STDDEV_SAMP", "STDDEV_POP", "STDDEV")
        )
        bound = node("number", "MAX(CAST(", value, " AS DOUBLE) ** 2)")
        made = node("aggregate", f"{word}(", value, ")", self._filter(), feature=word.lower())
        return Aggregate(made, "root" if word.startswith("STD") else "square", bound)

    def together(self) -> Aggregate:
        one, two = self._value(), self._value()
        word = self.rng.choice(("COVAR_SAMP", "COVAR_POP", "CORR"))
        bound = node("number", "MAX(ABS(", one, ")) * CAST(MAX(ABS(", two, ")) AS DOUBLE)")
        made = node(
            "aggregate", f"{word}(", one, ", ", two, ")", self._filter(), feature=word.lower()
        )
        return Aggregate(made, "corr" if word == "CORR" else "square", bound)

    def line(self) -> Aggregate:
        """Regression: the line itself, or one of the moments behind it."""
        one, two = self._value(), self._value()
        largest = node("number", "MAX(ABS(", one, ")) + MAX(ABS(", two, "))")
        squared = node("number", "COUNT(*) * (", largest, ") * CAST(", largest, " AS DOUBLE)")
        word, measure, bound = self.rng.choice(
            (
                ("REGR_SLOPE", "corr", None),
                ("REGR_INTERCEPT", "corr", None),
                ("REGR_R2", "corr", None),
                ("REGR_AVGX", "sum", largest),
                ("REGR_AVGY", "sum", largest),
                ("REGR_SXX", "square", squared),
                ("REGR_SYY", "square", squared),
                ("REGR_SXY", "square", squared),
            )
        )
        made = node("aggregate", f"{word}(", one, ", ", two, ")", self._filter(), feature="regr_*")
        return Aggregate(made, measure, bound)

    def quantile(self) -> Aggregate:
        """Of a sensitive column, through its distribution, or of a public number."""
        rng = self.rng
        ordered = [
            c
            for c in self.expressions.columns
            if c.sensitive and c.type in ("int", "date") and c.key
        ]
        ordered += [c for c in self.expressions.columns if not c.sensitive and c.type == "int"][:1]
        if not ordered:
            return self.total()
        column = rng.choice(ordered)
        at = refer(column)
        share = rng.choice(("0.5", "0.25", "0.9", "0.1"))
        if column.type == "int" and rng.random() < 0.65:
            word = rng.choice(("MEDIAN", "QUANTILE_CONT"))
            feature = word.lower() if column.sensitive else "quantile of public values"
            made = node(
                "aggregate", f"{word}(", at, ")" if word == "MEDIAN" else f", {share})",
                self._filter(), feature=feature,
            )  # fmt: skip
            return Aggregate(made, "sum")
        feature = "quantile_disc" if column.sensitive else "quantile of public values"
        made = node("aggregate", "QUANTILE_DISC(", at, f", {share})", self._filter(),
                    feature=feature)  # fmt: skip
        return Aggregate(made, "any", typing="any")

    def distinct(self) -> Aggregate:
        """Distinct values of public columns, with conditions of any kind around or inside."""
        rng = self.rng
        shown = [c for c in self.expressions.columns if not (c.sensitive or c.mixed)]
        if not shown:
            return self.count()
        value: Node = refer(rng.choice(shown))
        what = "distinct count"
        if len(shown) > 1 and rng.random() < 0.3:
            one, two = rng.sample(shown, 2)
            value = node("value", "(", refer(one), ", ", refer(two), ")")
            what = "distinct count of a pair"
        if rng.random() < 0.3:
            tested = self.expressions.condition(1)
            value = node("value", "CASE WHEN ", tested, " THEN ", value, " END")
            what = "distinct count of a case"
        made = node("aggregate", "COUNT(DISTINCT ", value, ")", self._filter(), feature=what)
        return Aggregate(made)

    def mode(self) -> Aggregate:
        kept = [c for c in self.expressions.columns if c.sensitive and c.key and not c.mixed]
        if not kept:
            return self.count()
        at = refer(self.rng.choice(kept))
        return Aggregate(
            node("aggregate", "MODE(", at, ")", feature="mode"), "any", typing="any", unique=at
        )

    def arithmetic(self) -> Aggregate:
        """Shares, differences of rates, and comparisons."""
        rng = self.rng
        shape = rng.choice(("share", "share", "percent", "rates", "counts", "verdict", "word"))
        tested = self.expressions.condition(1)
        part = node("aggregate", "COUNT(*) FILTER (WHERE ", tested, ")")
        if shape == "share":
            made = node("aggregate", part, " * 1.0 / NULLIF(COUNT(*), 0)", feature="share")
            return Aggregate(made, "sum")
        if shape == "percent":
            column = rng.choice(list(self.expressions.columns))
            rest = node("number", "NULLIF(COUNT(", refer(column), "), 0)")
            return Aggregate(
                node("aggregate", "100.0 * ", part, " / ", rest, feature="share"), "sum"
            )
        if shape == "rates":
            value = self._value()
            bound = node("number", "MAX(ABS(", value, "))")
            first = node("aggregate", "AVG(", value, ") FILTER (WHERE ", tested, ")")
            second = node("aggregate", "AVG(", value, ") FILTER (WHERE NOT ", tested, ")")
            made = node("aggregate", "(", first, " - ", second, ")", feature="difference of rates")
            return Aggregate(made, "sum", bound)
        if shape == "counts":
            other = node("aggregate", "COUNT(*) FILTER (WHERE ", self.expressions.condition(1), ")")
            made = node(
                "aggregate", "(", part, " - 2 * ", other, ")", feature="difference of counts"
            )
            return Aggregate(made)
        many = str(rng.choice((3, 20, 100)))
        if shape == "verdict":
            made = node("aggregate", "(", part, f" > {many})", feature="comparison of an estimate")
        else:
            made = node("aggregate", "CASE WHEN ", part, f" > {many} THEN 'many' ELSE 'few' END",
                        feature="case over an estimate")  # fmt: skip
        return Aggregate(made, "any", typing="any")

    def passed_through(self) -> Aggregate:
        """What only public columns can be asked: the answer is DuckDB's own."""
        rng = self.rng
        at = refer(rng.choice(list(self.expressions.columns)))
        whole = [c for c in self.expressions.columns if c.type in ("int", "decimal", "date")]
        forms = [("MIN(", ")"), ("MAX(", ")"), ("COUNT(DISTINCT ", ")")]
        if whole and rng.random() < 0.5:
            at = refer(rng.choice(whole))
            forms = [
                ("QUANTILE_DISC(", ", 0.5)"),
                ("string_agg(DISTINCT {}::VARCHAR, ',' ORDER BY ", ")"),
            ]
        before, after = rng.choice(forms)
        if "{}" in before:
            cast = node("value", at, "::VARCHAR")
            made = node("aggregate", "string_agg(DISTINCT ", cast, ", ',' ORDER BY ", cast, ")",
                        feature="exact aggregate")  # fmt: skip
        else:
            made = node("aggregate", before, at, after, feature="exact aggregate")
        return Aggregate(made, "any")

    def _value(self) -> Node:
        return self.expressions.number()

    def _filter(self) -> Node:
        if self.rng.random() < 0.7:
            return Node("empty")
        return clause(" FILTER (WHERE ", self.expressions.condition(1), ")", feature="filter")


def scale_query(source: Source, size: Node) -> Node:
    """Ask the raw table how large the terms of a sum are, all rows together."""
    return node("scale", *source.before(), "SELECT CAST(", size, " AS DOUBLE) FROM ", source.node)
