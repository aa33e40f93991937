"""Random conditions, numbers and keys over the columns of a source.

Everything here is deterministic SQL that cannot fail on any row: no division by a column, no
casts that may not parse, no overflow.  Literals of conditions may become parameters; those of
keys may not, because a key is printed twice and two ``?`` are not one expression.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.oracle.nodes import Node, features, items, literal, node
from tests.oracle.subqueries import subquery
from tests.oracle.tables import Column

COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
NUMERIC = ("int", "double", "decimal")
PATTERNS = ("%u%", "f%", "_i%", "%e", "none", "%", "b_r", "%\\%%")


@dataclass(frozen=True)
class Expressions:
    """Writes expressions over some columns, from a seeded generator."""

    rng: random.Random
    columns: Sequence[Column]
    parameters: bool = True

    def of(self, kind: str) -> list[Column]:
        return [column for column in self.columns if column.type == kind]

    def only(self, sensitive: bool) -> Expressions:
        kept = [column for column in self.columns if column.sensitive == sensitive]
        return Expressions(self.rng, kept, self.parameters)

    def fixed(self) -> Expressions:
        return Expressions(self.rng, self.columns, parameters=False)

    def literal(self, value: Any) -> Node:
        return literal(value, parameter=self.parameters)

    # --- conditions ------------------------------------------------------------------

    def condition(self, depth: int = 2) -> Node:
        """Any Boolean combination; NULLs are left to three-valued logic."""
        rng = self.rng
        if depth == 0 or rng.random() < 0.35:
            return self.atom()
        shape = rng.choice(("and", "and", "or", "or", "not", "case", "equal", "coalesce"))
        first = self.condition(depth - 1)
        if shape == "not":
            return node("bool", "(NOT ", first, ")", feature="not")
        second = self.condition(depth - 1)
        if shape == "case":
            tested = self.atom()
            return node(
                "bool", "(CASE WHEN ", tested, " THEN ", first, " ELSE ", second, " END)",
                feature="case condition",
            )  # fmt: skip
        if shape == "equal":
            return node("bool", "((", first, ") = (", second, "))", feature="condition = condition")
        if shape == "coalesce":
            return node("bool", "COALESCE(", first, ", ", second, ")", feature="coalesce")
        return node("bool", "(", first, f" {shape.upper()} ", second, ")", feature=shape)

    def atom(self) -> Node:
        rng = self.rng
        if rng.random() < 0.05:
            made = subquery(rng, self.columns)
            if made is not None:
                return made
        if rng.random() < 0.2:
            pair = self._pair()
            if pair is not None:
                return pair
        column = rng.choice(list(self.columns))
        at = refer(column)
        if rng.random() < 0.12:
            test = rng.choice(("IS NULL", "IS NOT NULL"))
            return node("bool", "(", at, f" {test})", feature="is null")
        if rng.random() < 0.12:
            test = rng.choice(("IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
            return node(
                "bool", "(", at, f" {test} ", self.sample(column), ")", feature="distinct from"
            )
        if column.type == "bool":
            return self._flag(at)
        if rng.random() < 0.3:
            return self._listed(column, at)
        if column.type == "text" and rng.random() < 0.55:
            return self._pattern(at)
        if column.type == "date" and rng.random() < 0.4:
            return self._calendar(at)
        if column.type == "int" and rng.random() < 0.4:
            return self._arithmetic(column, at)
        return node("bool", "(", at, f" {rng.choice(COMPARISONS)} ", self.sample(column), ")",
                    feature="comparison")  # fmt: skip

    def sample(self, column: Column) -> Node:
        return self.literal(self.rng.choice(column.samples))

    def _pair(self) -> Node | None:
        """Two columns in one condition: sensitive with sensitive, or with public."""
        rng = self.rng
        by_type: dict[str, list[Column]] = {}
        for column in self.columns:
            by_type.setdefault("int" if column.type == "double" else column.type, []).append(column)
        likely = [group for group in by_type.values() if len(group) > 1]
        if not likely:
            return None
        one, two = rng.sample(rng.choice(likely), 2)
        what = "sensitive" if one.sensitive and two.sensitive else "public"
        what = "sensitive with public" if one.sensitive != two.sensitive else f"two {what}"
        a: Node = refer(one)
        b: Node = refer(two)
        if one.type == "text" and rng.random() < 0.2:
            a, b = (node("number", "length(", each, ")") for each in (a, b))
        elif one.type in ("int", "double") and rng.random() < 0.6:
            b = node("number", "(", b, " * ", self.literal(rng.choice((2, 3, 10))), ")")
        signs = (*COMPARISONS, "=", "<>", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
        return node("bool", "(", a, f" {rng.choice(signs)} ", b, ")", feature=what)

    def _flag(self, at: Node) -> Node:
        form = self.rng.choice(
            ("{}", "(NOT {})", "({} IS TRUE)", "({} IS NOT FALSE)", "({} = TRUE)")
        )
        before, after = form.split("{}")
        return node("bool", before, at, after, feature="boolean column")

    def _listed(self, column: Column, at: Node) -> Node:
        rng = self.rng
        count = min(rng.randint(1, 3), len(column.samples))
        values = rng.sample(column.samples, count)
        if rng.random() < 0.4 and column.type != "text":
            low, high = self.sample(column), self.sample(column)
            word = rng.choice(("BETWEEN", "NOT BETWEEN"))
            return node("bool", "(", at, f" {word} ", low, " AND ", high, ")", feature="between")
        listed: list[Node] = [self.literal(value) for value in values]
        if rng.random() < 0.1:
            listed.append(node("literal", "NULL", feature="null in list"))
        word = rng.choice(("IN", "NOT IN"))
        return node(
            "bool", "(", at, f" {word} (", items("list", listed), "))", feature=word.lower()
        )

    def _pattern(self, at: Node) -> Node:
        rng = self.rng
        word = rng.choice(
            ("LIKE", "NOT LIKE", "ILIKE", "regexp", "length", "lower", "concat", "sub")
        )
        if word == "regexp":
            pattern = rng.choice(("^[fh]", "n$", "u|o", "^.{3}$"))
            return node("bool", f"regexp_matches(", at, f", '{pattern}')", feature="regexp")  # noqa: F541
        if word == "length":
            return node(
                "bool", "(length(", at, ") > ", self.literal(3), ")", feature="text function"
            )
        if word == "lower":
            wanted = self.literal(rng.choice(("dun", "flu", "f", "virus")))
            return node("bool", "(lower(", at, ") = ", wanted, ")", feature="text function")
        if word == "concat":
            wanted = self.literal(rng.choice(("flu!", "ams!")))
            return node("bool", "(", at, " || '!' <> ", wanted, ")", feature="text function")
        if word == "sub":
            return node("bool", "(substring(", at, ", 1, 1) IN ('f', 'h', 'a', 'F'))",
                        feature="text function")  # fmt: skip
        pattern = rng.choice(PATTERNS[:-1] if word == "ILIKE" else PATTERNS)
        escape = " ESCAPE '\\'" if "\\" in pattern else ""
        return node("bool", "(", at, f" {word} ", self.literal(pattern), f"{escape})",
                    feature=word.lower())  # fmt: skip

    def _calendar(self, at: Node) -> Node:
        form = self.rng.choice(
            (
                ("(month(", ") = 2)"),
                ("(EXTRACT(day FROM ", ") > 12)"),
                ("(date_trunc('month', ", ") = DATE '2024-02-01')"),
                ("(", " + INTERVAL 10 DAY > DATE '2024-01-25')"),
                ("(date_diff('day', DATE '2024-01-01', ", ") % 2 = 0)"),
                ("(dayofyear(", ") BETWEEN 8 AND 30)"),
            )
        )
        return node("bool", form[0], at, form[1], feature="date function")

    def _arithmetic(self, column: Column, at: Node) -> Node:
        rng = self.rng
        turn = rng.choice(
            (
                ("(abs(", " - 30) < ", 8),
                ("(", " % 3 = ", 1),
                ("(", " // 10 = ", 3),
                ("(2 * ", " + 1 > ", 61),
                ("(-", " < ", -25),
                ("(", " / 2 >= ", 15.5),
                ("(greatest(", ", 30) = ", 30),
                ("(sqrt(abs(", ")) > ", 5.5),
                ("(sign(", " - 30) = ", 1),
                ("(sign(30 - ", ") >= ", 0),
                ("(least(", ", 30) < ", 25),
                ("(least(abs(", "), 3) <> ", 3),
                ("(greatest(", ", 25) - 25 > ", 5),
            )
        )
        for word in ("sign", "least", "greatest"):
            if turn[0].startswith(f"({word}("):
                made = node("bool", turn[0], at, turn[1], self.literal(turn[2]), ")")
                return replace(made, feature=f"{word} in a condition")
        return node("bool", turn[0], at, turn[1], self.literal(turn[2]), ")", feature="arithmetic")

    # --- numbers ---------------------------------------------------------------------

    def number(self, depth: int = 1) -> Node:
        """A number of a row: a column, arithmetic, or a CASE."""
        rng = self.rng
        numeric = [c for c in self.columns if c.type in NUMERIC]
        if not numeric or rng.random() < 0.12:
            return rng.choice((self.indicator, self.steps))()
        column = refer(rng.choice(numeric))
        if depth == 0 or rng.random() < 0.45:
            return column
        other = self.number(depth - 1)
        shape = rng.choice(
            ("product", "sum", "scaled", "case", "case null", "square", "coalesce", "bent", "bent")
        )
        if shape == "bent":
            return self.bent(column)
        if shape == "product":
            return node("number", "(", column, " * ", other, ")", feature="product")
        if shape == "sum":
            sign = rng.choice("+-")
            return node("number", "(", column, f" {sign} ", other, ")", feature="sum of columns")
        if shape == "scaled":
            factor = rng.choice(("2", "0.5", "10"))
            return node("number", f"({factor} * ", column, " + 1)", feature="scaled")
        if shape == "square":
            return node("number", "(", column, " * ", column, ")", feature="square")
        if shape == "coalesce":
            return node("number", "COALESCE(", column, ", 0)", feature="coalesce value")
        otherwise = " ELSE 0 END" if shape == "case" else " END"
        return node("number", "CASE WHEN ", self.condition(1), " THEN ", column, otherwise,
                    feature="case value")  # fmt: skip

    def indicator(self, tested: Node | None = None) -> Node:
        """A condition as a number: CASE, IF, or a cast."""
        tested = tested or self.condition(1)
        before, after, what = self.rng.choice(
            (
                ("CASE WHEN ", " THEN 1 ELSE 0 END", "case of 0 and 1"),
                ("CASE WHEN ", " THEN 0 ELSE 1 END", "case of 0 and 1"),
                ("CASE WHEN ", " THEN 1 END", "case without else"),
                ("CASE WHEN ", " THEN 1.0 ELSE 0 END", "case of decimals"),
                ("CASE WHEN ", " THEN 1.0 ELSE 0.0 END", "case of decimals"),
                ("CASE WHEN ", " THEN 100 ELSE 0 END", "case of numbers"),
                ("CASE WHEN ", " THEN 1 ELSE -1 END", "case of numbers"),
                ("(", ")::INT", "condition cast"),
                ("CAST(", " AS DOUBLE)", "condition cast"),
                ("CAST(", " AS INTEGER)", "condition cast"),
                ("IF(", ", 1, 0)", "if value"),
                ("IF(", ", 100, 1)", "if value"),
            )
        )
        return node("number", before, tested, after, feature=what)

    def steps(self) -> Node:
        """A CASE of several conditions, or of several values of one column."""
        rng = self.rng
        otherwise = rng.choice((" ELSE 0 END", " ELSE 10 END", " END", " ELSE NULL END"))
        count = rng.randint(2, 3)
        numbers = rng.sample(("1", "2", "0.5", "100", "0", "-3"), count)
        if rng.random() < 0.4:
            column = rng.choice([c for c in self.columns if c.type != "bool"] or list(self.columns))
            values = rng.sample(column.samples, min(count, len(column.samples)))
            parts: list[str | Node] = ["CASE ", refer(column)]
            for value, number in zip(values, numbers, strict=False):
                parts += [" WHEN ", self.literal(value), f" THEN {number}"]
            return node("number", *parts, otherwise, feature="case of a column")
        parts = ["CASE"]
        for number in numbers:
            parts += [" WHEN ", self.condition(1), f" THEN {number}"]
        return node("number", *parts, otherwise, feature="case of several conditions")

    def bent(self, at: Node) -> Node:
        """SIGN, ABS, LEAST or GREATEST of a number."""
        word, before, after = self.rng.choice(
            (
                ("sign", "sign(", " - 30)"),
                ("sign", "sign(", ")"),
                ("abs", "abs(", " - 33)"),
                ("abs", "abs(", ")"),
                ("least", "least(", ", 30)"),
                ("least", "least(40, ", ")"),
                ("greatest", "greatest(", ", 25)"),
                ("greatest", "greatest(", ", 0, 33)"),
            )
        )
        return node("number", before, at, after, feature=f"{word} value")

    # --- keys ------------------------------------------------------------------------

    def key(self) -> tuple[Node, str, bool]:
        """An expression to group by, the name for it, and whether it is the column itself."""
        rng = self.rng
        fixed = self.fixed()
        column = rng.choice([c for c in self.columns if c.key])
        at = refer(column)
        if rng.random() < 0.55:
            # A dimension has columns of these names too: an alias must not be either.
            shared = column.ref.startswith("t.") and column.name in ("city", "disease")
            return at, f"own_{column.name}" if shared else column.name, True
        if column.type == "int":
            form = rng.choice(
                (("(", " // 10)"), ("(", " % 4)"), ("(", " > 30)"), ("abs(", " - 33)"))
            )
            return node("value", form[0], at, form[1], feature="key expression"), "band", False
        if column.type == "date":
            form = rng.choice((("month(", ")"), ("date_trunc('month', ", ")"), ("(", " + 1)")))
            return node("value", form[0], at, form[1], feature="key expression"), "period", False
        if column.type == "text" and rng.random() < 0.5:
            form = rng.choice((("upper(", ")"), ("substring(", ", 1, 1)"), ("COALESCE(", ", '?')")))
            return node("value", form[0], at, form[1], feature="key expression"), "word", False
        tested = Expressions(rng, [column], parameters=False).atom()
        if rng.random() < 0.3:
            tested = fixed.condition(1)
        what = "key of mixed columns" if is_mixed(tested) else "key case"
        found = node("value", "CASE WHEN ", tested, " THEN 'yes' ELSE 'no' END", feature=what)
        return found, "verdict", False


def refer(column: Column) -> Node:
    kind = "number" if column.type in ("int", "double", "decimal") else "value"
    what = "sensitive column" if column.sensitive else "public column"
    what = "computed of mixed columns" if column.mixed else what
    return Node(kind, (column.sql,), what, sensitive=column.sensitive)


def is_mixed(tree: Node) -> bool:
    """Whether an expression reads sensitive and public columns together."""
    found = features(tree)
    both = {"sensitive column", "public column"}
    return both <= found or "computed of mixed columns" in found
