"""An expression over public and sensitive columns, as a sum of separate products.

Every aggregate adds up some ``g(row)``.  The scan can only evaluate what is public, and the
reconstruction only what is a function of sensitive cells, so g is written as

    g(row) = sum over pieces of   [guards are true] * value   *   [truths are true] * factor
                                  `----- public -----'            `---- sensitive ----'

Branches of CASE, and conditions that mix the two kinds, become pieces that exclude each
other.  What cannot be separated (``disease = favourite``, one public and one sensitive)
stays in the sensitive half with its public columns *hidden* in it: the scan then groups by
those, which makes them constants.

    CASE WHEN disease = 'flu' THEN cost ELSE 0 END     value cost, truths disease = 'flu'
    disease = 'flu' OR city = 'Oslo'                   truths disease = 'flu';
                                                       guards city = 'Oslo', truths not flu
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product

from sqlglot import exp

from privsql.sql.nodes import Unsupported, bare, cast, copied, given, sql, wrapped

# A condition that mixes more sensitive parts than this with public ones in one OR.
MOST_PARTS = 4

Term = tuple[exp.Expr | None, exp.Expr | None]


@dataclass(frozen=True)
class Piece:
    """One product: a public half and a sensitive half; None stands for 1."""

    guards: tuple[exp.Expr, ...] = ()
    value: exp.Expr | None = None
    truths: tuple[exp.Expr, ...] = ()
    factor: exp.Expr | None = None

    @property
    def sensitive(self) -> tuple[exp.Expr, ...]:
        """Every expression of the sensitive half."""
        return self.truths if self.factor is None else (*self.truths, self.factor)

    @cached_property
    def key(self) -> str:
        """What makes two pieces the same."""
        conditions = (sorted(map(sql, each)) for each in (self.guards, self.truths))
        values = (each and sql(each) for each in (self.value, self.factor))
        return repr((*conditions, *values))


@dataclass(frozen=True)
class Branch:
    """Where the guards and truths hold, the expression is the sum of ``terms``.

    A term is (public or None, sensitive or None).  It is NULL where one of its parts is.
    """

    guards: tuple[exp.Expr, ...] = ()
    truths: tuple[exp.Expr, ...] = ()
    terms: tuple[Term, ...] = ((None, None),)

    def __and__(self, other: Branch) -> Branch:
        """Both hold; the terms are ours."""
        guards, truths = _union(self.guards, other.guards), _union(self.truths, other.truths)
        return Branch(guards, truths, self.terms)


def _union(one: Iterable[exp.Expr], two: Iterable[exp.Expr]) -> tuple[exp.Expr, ...]:
    return tuple({sql(node): node for node in (*one, *two)}.values())


@dataclass(frozen=True)
class Separator:
    """Separates expressions; ``sensitive`` names the sensitive columns of one."""

    sensitive: Callable[[exp.Expr], frozenset[str]]
    public: Callable[[exp.Expr], bool]  # whether one has public columns

    def is_public(self, node: exp.Expr) -> bool:
        """No sensitive column in it."""
        return not self.sensitive(node)

    def is_sensitive(self, node: exp.Expr) -> bool:
        """No public column in it."""
        return not self.public(node)

    def condition(self, node: exp.Expr) -> list[Branch]:
        """Branches that exclude each other and together are where the condition is true."""
        node = bare(node)
        if is_true(node):
            return [Branch()]
        if self.is_public(node):
            return [Branch(guards=(node,))]
        if isinstance(node, exp.And):
            return within(self.condition(node.left), self.condition(node.right))
        if self.is_sensitive(node):
            return [Branch(truths=(_certainly(node),))]
        return self._cases(node)

    def _cases(self, node: exp.Expr) -> list[Branch]:
        """Try every truth value of the sensitive parts; what is left is public."""
        parts = {sql(part): part for part in self._parts(node)}
        if list(parts) == [sql(node)]:
            return [Branch(truths=(node,))]
        if len(parts) > MOST_PARTS:
            raise Unsupported(
                f"a condition mixes {len(parts)} sensitive parts with public ones",
                hint=f"at most {MOST_PARTS} can stand in one OR; split the query",
            )
        found: dict[str, tuple[tuple[exp.Expr, ...], list[exp.Expr]]] = {}
        for values in product((True, False, None), repeat=len(parts)):
            rest = _where(_substituted(node, dict(zip(parts, values, strict=True))))
            if rest is False:
                continue
            guards = () if rest is True else (rest,)
            truths = [_is(part, value) for part, value in zip(parts.values(), values, strict=True)]
            ways = found.setdefault("".join(map(sql, guards)), (guards, []))[1]
            ways.append(_connected(exp.And, truths))
        # Where several guards could hold at once the truths differ, so branches exclude
        # each other: every way of the sensitive parts has exactly one guard.
        return [Branch(guards, (_connected(exp.Or, ways),)) for guards, ways in found.values()]

    def _parts(self, node: exp.Expr) -> Iterable[exp.Expr]:
        node = bare(node)
        if self.is_public(node):
            return
        if isinstance(node, exp.And | exp.Or):
            yield from self._parts(node.left)
            yield from self._parts(node.right)
        elif isinstance(node, exp.Not) or (
            isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean)
        ):
            yield from self._parts(node.this)
        else:
            yield node

    def value(self, node: exp.Expr) -> list[Branch]:
        """Branches that exclude each other; outside of all of them the value is NULL."""
        node = bare(node)
        if isinstance(node, exp.Literal) and not node.is_string:
            # ELSE 0 counts a row but adds nothing.
            zero = not float(node.this)
            return [Branch(terms=() if zero else ((node, None),))]
        if self.is_public(node):
            return [Branch(guards=(given(node),), terms=((node, None),))]
        if self.is_sensitive(node):
            return [Branch(truths=_finite(node), terms=((None, node),))]
        if isinstance(node, exp.Neg):
            return [replace(b, terms=_negated(b)) for b in self.value(node.this)]
        if isinstance(node, exp.Mul):
            return times(self.value(node.left), self.value(node.right))
        if isinstance(node, exp.Add | exp.Sub):
            minus = isinstance(node, exp.Sub)
            return [
                replace(a & b, terms=(*a.terms, *(_negated(b) if minus else b.terms)))
                for a, b in product(self.value(node.left), self.value(node.right))
            ]
        if isinstance(node, exp.Div) and not node.args.get("safe"):
            return self._division(node)
        if isinstance(node, exp.Case):
            return self._case(node)
        return [Branch(truths=(given(node),), terms=((None, node),))]

    def _division(self, node: exp.Div) -> list[Branch]:
        below = bare(node.right)
        public = self.is_public(below)
        if not public and not self.is_sensitive(below):
            return [Branch(truths=(given(node),), terms=((None, node),))]

        def divided(p: exp.Expr | None, s: exp.Expr | None) -> Term:
            top = wrapped((p if public else s) or _one())
            made = exp.Div(this=top, expression=wrapped(below), typed=False, safe=False)
            return (made, s) if public else (p, made)

        # By zero there is no value: in doubles it would be infinite, and poison every sum.
        some = exp.NEQ(this=wrapped(below), expression=exp.Literal.number(0))
        defined = Branch((some,)) if public else Branch(truths=(_certainly(some),))
        return [
            replace(b, terms=tuple(divided(*term) for term in b.terms)) & defined
            for b in self.value(node.left)
        ]

    def _case(self, node: exp.Case) -> list[Branch]:
        subject = node.args.get("this")
        found: list[Branch] = []
        earlier: list[exp.Expr] = []
        for when in node.args["ifs"]:
            condition: exp.Expr = when.this
            if subject:
                condition = exp.EQ(this=wrapped(subject), expression=wrapped(condition))
            found += self._chosen([*earlier, condition], when.args["true"])
            earlier.append(exp.Not(this=_is(condition, True)))
        default = node.args.get("default")
        return found if default is None else found + self._chosen(earlier, default)

    def _chosen(self, conditions: Sequence[exp.Expr], result: exp.Expr) -> list[Branch]:
        ways = reduce(within, map(self.condition, conditions), [Branch()])
        return [] if isinstance(bare(result), exp.Null) else within(self.value(result), ways)


def is_true(node: exp.Expr) -> bool:
    """Whether a condition is the word TRUE, which excludes nothing."""
    node = bare(node)
    return isinstance(node, exp.Boolean) and bool(node.this)


def pieces_of(branches: Iterable[Branch]) -> tuple[Piece, ...]:
    """The value of branches as pieces."""
    return tuple(
        Piece(branch.guards, _unless_one(p), branch.truths, s)
        for branch in branches
        for p, s in branch.terms
    )


def _unless_one(node: exp.Expr | None) -> exp.Expr | None:
    """None for the number 1: a sum of ones is a count."""
    one = isinstance(node, exp.Literal) and not node.is_string and float(node.this) == 1
    return None if one else node


def counting(branches: Iterable[Branch]) -> tuple[Piece, ...]:
    """How many rows have a value that is not NULL."""
    return tuple(Piece(branch.guards, None, branch.truths, None) for branch in branches)


def times(left: Iterable[Branch], right: Iterable[Branch]) -> list[Branch]:
    """The product of two expressions, branch by branch."""

    def multiplied(a: Branch, b: Branch) -> Iterable[Term]:
        for (p, s), (q, t) in product(a.terms, b.terms):
            yield _times(p, q), _times(s, t)

    return [replace(a & b, terms=tuple(multiplied(a, b))) for a, b in product(left, right)]


def within(branches: Iterable[Branch], conditions: Iterable[Branch]) -> list[Branch]:
    """Restrict a value to where one of the conditions' branches holds."""
    return [a & b for a, b in product(branches, conditions)]


def _one() -> exp.Expr:
    return exp.Literal.number(1)


def _negated(branch: Branch) -> tuple[Term, ...]:
    return tuple((exp.Neg(this=wrapped(p or _one())), s) for p, s in branch.terms)


def _certainly(node: exp.Expr) -> exp.Expr:
    """``(node) IS TRUE``: where only truth counts, FALSE and UNKNOWN are one cell."""
    inner = bare(node.this) if isinstance(node, exp.Not) else node
    return node if isinstance(inner, exp.Is) else _is(node, True)


def _finite(node: exp.Expr) -> tuple[exp.Expr, ...]:
    """Where a value is one; a quotient is infinite over zero, which a domain may hold."""
    if node.find(exp.Div) is None:
        return (given(node),)
    number = cast(wrapped(node), "DOUBLE")
    return (given(node), exp.Anonymous(this="isfinite", expressions=[number]))


def _times(one: exp.Expr | None, two: exp.Expr | None) -> exp.Expr | None:
    if one is None or two is None:
        return two if one is None else one
    # As DOUBLE: the product of two integers may leave the range of their type.
    return exp.Mul(this=cast(wrapped(one), "DOUBLE"), expression=cast(wrapped(two), "DOUBLE"))


def _is(part: exp.Expr, value: bool | None) -> exp.Expr:
    other = exp.Null() if value is None else exp.Boolean(this=value)
    return exp.Is(this=wrapped(part), expression=other)


def _connected(kind: type[exp.Connector], parts: Iterable[exp.Expr]) -> exp.Expr:
    return reduce(lambda a, b: kind(this=wrapped(a), expression=wrapped(b)), parts)


Residue = exp.Expr | bool | None  # None is UNKNOWN


def _substituted(node: exp.Expr, values: dict[str, bool | None]) -> Residue:
    """The condition with its sensitive parts given, simplified in three-valued logic."""
    node = bare(node)
    text = sql(node)
    if text in values:
        return values[text]
    if isinstance(node, exp.And | exp.Or):
        return _either(node, _substituted(node.left, values), _substituted(node.right, values))
    if isinstance(node, exp.Not):
        inner = _substituted(node.this, values)
        if inner is None or isinstance(inner, bool):
            return None if inner is None else not inner
        return exp.Not(this=wrapped(inner))
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean):
        inner = _substituted(node.this, values)
        wanted = bool(node.expression.this)
        if inner is None or isinstance(inner, bool):
            return inner is wanted
        return exp.Is(this=wrapped(inner), expression=copied(node.expression))
    return copied(node)


def _either(node: exp.Connector, left: Residue, right: Residue) -> Residue:
    """AND or OR of what became of its two sides."""
    absorbing = isinstance(node, exp.Or)
    if left is absorbing or right is absorbing:
        return absorbing
    if isinstance(left, bool):  # the neutral one
        return right
    if isinstance(right, bool):
        return left
    if left is None and right is None:
        return None
    sides = [exp.Null() if side is None else wrapped(side) for side in (left, right)]
    return type(node)(this=sides[0], expression=sides[1])


def _where(rest: Residue) -> exp.Expr | bool:
    """What WHERE keeps: UNKNOWN is as good as FALSE, also inside AND and OR."""
    if rest is None or isinstance(rest, bool):
        return bool(rest)
    rest = bare(rest)
    if isinstance(rest, exp.And | exp.Or):
        return _either(rest, _where(rest.left), _where(rest.right)) or False
    return False if isinstance(rest, exp.Null) else rest
