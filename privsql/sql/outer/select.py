"""SELECTs over answers: projections, joins, windows and aggregates of estimates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from privsql.sql.expressions import ENOUGH_ROWS, any_of, call, least, quotient, with_columns
from privsql.sql.nodes import (
    Unsupported,
    bare,
    column,
    columns_of,
    copied,
    define,
    is_aggregate,
    of_kind,
    outermost,
    place_of,
    sources_of,
    sql,
)
from privsql.sql.outer import error_bars
from privsql.sql.outer.calculus import depends
from privsql.sql.outer.error_bars import FIELDS, NOT_AT_HAND, Bars, realised, variance_of
from privsql.sql.outer.frames import with_names
from privsql.sql.outer.parts import (
    Compiled,
    Out,
    Part,
    block_covariance,
    default_name,
    has_window,
    hidden_name,
    is_window,
    nodes_in,
    our_function,
    pairs_of,
)
from privsql.sql.outer.ratios import divisor, divisors, guard
from privsql.sql.outer.result import TWO_QUERIES, Showing, held_bars
from privsql.sql.outer.totals import NoTotal, Translate, read_total
from privsql.sql.reconstruct.columns import (
    AGGREGATE,
    CERTAIN,
    CONSTANT,
    CRITICAL,
    TOTAL,
    WINDOW,
    covariance_of,
    effective_of,
    size_of_total,
)

NOT_ADDED = "only sums and averages over public groups keep the errors of an answer's rows"


class Outer:
    """Rewrites a SELECT whose sources are answers and public tables."""

    def __init__(self, showing: Showing) -> None:
        self._showing = showing
        self._constants: dict[str, exp.Expr] = {}
        self._where: exp.Expr | None = None  # of the SELECT at hand

    def outer(self, select: exp.Select) -> Compiled:
        """A SELECT over answers and public tables."""
        tree = copied(select)
        with_names(tree)
        # The copy's sources must keep the identity by which CTEs are found.
        sources = map(sources_of, (select, tree))
        items = [self._item(original, source) for original, source in zip(*sources, strict=True)]
        for node in nodes_in(tree, "expressions", "where", "group", "having", "qualify", "order"):
            self._showing.subqueries(node)
        hidden = [name for _, made in items if made is not None for name in made.hidden]
        repeated = {name for name in hidden if hidden.count(name) > 1}
        columns = _Columns(items, repeated, self._starred(select))
        grouped = bool(
            tree.args.get("group")
            or tree.args.get("distinct")
            or any(next(outermost(p, _is_plain_aggregate), None) for p in tree.expressions)
        )
        for part in nodes_in(tree, "where", "having", "qualify", "order"):
            if part.arg_key != "order":
                self._showing.note_selected(part, any(map(columns.uncertain, columns_of(part))))
            self._replace_ours(part, columns)
        self._where = tree.args.get("where")
        outs: list[Out] = []
        projections: list[exp.Expr] = []
        for projection in tree.expressions:
            self._replace_ours(projection, columns)
            if projection.is_star:
                projections.append(_star_without(projection, hidden))
                outs += columns.star(projection)
                continue
            outs.append(self._out(projection.unalias(), projection, columns, grouped))
            projections.append(projection)
        tree.set("expressions", projections)
        for node in nodes_in(tree, "expressions", "where", "having", "qualify", "order"):
            guard(node, lambda quotient: self._doubt(quotient, columns, grouped))
        if grouped:
            self._constants = {}
            outs = [replace(out, definition=None, bars=()) for out in outs]
            return self._aggregated(tree, outs, columns)
        for name, node in self._constants.items():
            define(tree, name, node)
        owners = {n: alias for alias, made in items if made is not None for n in made.hidden}
        kept = {name: alias for name, alias in owners.items() if name not in repeated}
        for name, alias in kept.items():
            define(tree, name, column(name, alias or None))
        hidden = [*self._constants, *kept]
        self._constants = {}
        for number, each in enumerate(self._showing.parts):
            if each.totals or each.constants:
                hidden += self.export_totals(tree, number, each)
        whole = columns.whole and not nodes_in(tree, "where", "qualify", "limit", "offset")
        return Compiled(tree, outs, hidden, whole)

    def _starred(self, select: exp.Select) -> dict[str, list[str]]:
        """Columns of the public tables that a star of a SELECT stands for."""
        joins = select.args.get("joins") or ()
        if not any(p.is_star for p in select.expressions) or any(
            j.args.get("using") for j in joins
        ):
            return {}
        named = {
            each.alias_or_name: self._showing.sources.names(each) for each in sources_of(select)
        }
        return {alias: names for alias, names in named.items() if names is not None}

    def _doubt(self, quotient: exp.Expr, columns: _Columns, grouped: bool) -> exp.Expr | None:
        """Where a denominator over answers cannot be distinguished from zero."""
        below = divisor(quotient)
        found = {c.sql(): c for c in columns_of(below) if columns.uncertain(c)}
        if not found:
            return None
        if grouped and not _inside_aggregate(quotient):
            sums = self._sum_bars(below, columns)
            return None if sums is None else error_bars.doubt_by(sums)
        if has_window(below):
            return self._doubt_of_window(below, columns)
        parts = [self._doubt_at(below, list(found.values()), columns)]
        if parts[0] is None:
            parts = [self._doubt_at(each, [each], columns) for each in found.values()]
        return any_of(part for part in parts if part is not None)

    def _doubt_at(
        self, below: exp.Expr, named_: list[exp.Column], columns: _Columns
    ) -> exp.Expr | None:
        """The doubt of an expression over estimates of one block, in the names of this SELECT."""
        hits = [hit for hit in map(columns.hit, named_) if hit is not None]
        if len({(alias, out.block) for alias, out in hits}) != 1:
            return None
        alias, out = hits[0]
        if out.definition is None and out.bars and isinstance(bare(below), exp.Column):
            return error_bars.doubt_by(held_bars(out, alias))
        if any(each.definition is None for _, each in hits):
            return None
        constants: dict[str, exp.Expr] = {}

        def constant(each: exp.Column) -> str:
            constants[CONSTANT(len(constants))] = copied(each)
            return CONSTANT(len(constants) - 1)

        definition = _defined(bare(below), columns.hit, constant)
        part = self._showing.parts[out.block]
        doubt = part.doubt(definition) if _paired(definition, part) else None
        if doubt is None:
            return None

        def outside(each: exp.Column) -> exp.Expr:
            hidden = column(hidden_name(out.block, each.name), alias)
            return copied(constants.get(each.name, hidden))

        return exp.Paren(this=with_columns(doubt, outside))

    def _doubt_of_window(self, below: exp.Expr, columns: _Columns) -> exp.Expr | None:
        """The doubt of a denominator with a window, over the rows of one answer."""
        out = self._out(below, below, columns, grouped=False)
        if out.definition is None:
            return None
        part = self._showing.parts[out.block]
        made = self.columns_of_totals(part)
        doubt = part.doubt(out.definition, made)
        if doubt is None:
            return None
        return self._translated(realised(doubt, made), out.block, self._constants)

    def _aggregated(self, tree: exp.Select, outs: list[Out], columns: _Columns) -> Compiled:
        """Sums and averages over the rows of an answer keep their error, others lose it.

        Rows with different public keys stand for different people, so variances add up; the
        cells of a sensitive key do not, and rows of a join may repeat.
        """
        hidden: list[str] = []
        for i, out in enumerate(outs):
            if not out.estimate:
                continue
            inner = bare(tree.expressions[i].unalias())
            bars = None if tree.args.get("distinct") else self._sum_bars(inner, columns)
            if bars is None:
                outs[i] = replace(out, why=out.why or NOT_ADDED)
                continue
            names = tuple(f"privsql_sum{len(self._showing.parts)}_{i}_{f}" for f in FIELDS)
            for name, part in zip(names, FIELDS, strict=True):
                define(tree, name, bars.field(part))
            outs[i] = replace(out, bars=names)
            hidden += names
        return Compiled(tree, outs, hidden)

    def _sum_bars(self, node: exp.Expr, columns: _Columns) -> Bars | None:
        argument = bare(node.this) if isinstance(node, exp.Sum | exp.Avg) else None
        if not columns.alone or not isinstance(argument, exp.Column):
            return None
        hit = columns.find(argument)
        if hit is None or hit[1].definition is None:
            return None
        out, definition = hit[1], hit[1].definition
        part = self._showing.parts[out.block]
        block, known = part.leaf.block, part.uncertain()
        if len(block.sets) != 1 or block.sensitive_keys:
            return None
        spread = variance_of(definition, known, block_covariance(part.exported))
        if spread is None or any(depends(definition, name) for name in part.totals_done):
            return None

        def hidden(name: str) -> exp.Expr:
            return column(hidden_name(out.block, name))

        error: exp.Expr = exp.Sqrt(this=exp.Sum(this=self._showing.exported(spread, out.block)))
        if isinstance(node, exp.Avg):
            error = quotient(error, exp.Count(this=copied(node.this)))
        half = exp.Paren(this=exp.Mul(this=exp.Max(this=hidden(CRITICAL)), expression=error))
        used = [name for name in known if depends(definition, name)]
        rows = exp.Min(this=least([hidden(effective_of(name)) for name in used]))
        enough = exp.GTE(this=rows, expression=exp.Literal.number(ENOUGH_ROWS))
        sure = call("bool_and", hidden(CERTAIN))
        return Bars(
            copied(error),
            exp.Sub(this=copied(node), expression=half),
            exp.Add(this=copied(node), expression=copied(half)),
            exp.Or(this=exp.Paren(this=enough), expression=sure),
        )

    def _item(self, original: exp.Expr, source: exp.Expr) -> tuple[str, Compiled | None]:
        alias = source.alias_or_name
        if isinstance(source, exp.Table):
            cte = None if source.db else self._showing.lookup(source.name)
            if cte is not None:
                return alias, self._showing.compiled.get(id(cte))
            if not isinstance(source.this, exp.Identifier):
                raise Unsupported(
                    "a table function in FROM", hint="query the published table or a public one"
                )
            if self._showing.catalog.public_table(source.name) is None:
                place = place_of(original, self._showing.text)
                raise self._showing.catalog.no_table(source.name, place)
            return alias, None
        if isinstance(source, exp.Subquery):
            made = self._showing.query(source.this)
            source.set("this", made.tree)
            if source.alias_column_names:
                made = self._showing.renamed(made, source)
                source.set("this", made.tree)
                source.args["alias"].set("columns", None)
            if not alias:
                alias = f"privsql_unnamed{len(self._showing.parts)}"
                source.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
            return alias, made
        if isinstance(source, exp.Values):
            return alias, None
        raise Unsupported(f"{source.key.upper()} in FROM")

    def _out(self, inner: exp.Expr, projection: exp.Expr, columns: _Columns, grouped: bool) -> Out:
        name = projection.alias_or_name or default_name(projection)
        for each in columns_of(inner):
            if columns.is_row(each):
                raise Unsupported(
                    f"a whole row of {each.name!r} as one value",
                    hint="list its columns",
                    place=place_of(each, self._showing.text),
                )
        found = [columns.find(c) for c in columns_of(inner)]
        uncertain = [out for out in found if out is not None and out[1].estimate]
        deep = self._showing.has_estimate_below(inner)
        if not uncertain and not deep:
            return Out(name)
        plain = bare(inner)
        if isinstance(plain, exp.Column) and uncertain and not grouped:
            return replace(uncertain[0][1], name=name)
        ratio = any(out.ratio for _, out in uncertain) or self._divides(inner, columns)
        blocks = {(item, out.block) for item, out in uncertain}
        defined = all(out.definition is not None for _, out in uncertain)
        if deep or grouped or not defined or len(blocks) != 1:
            why = next((out.why for _, out in uncertain if out.why), "")
            if deep or len(blocks) > 1:
                why = TWO_QUERIES
            why = "" if grouped and not deep else why or NOT_AT_HAND
            return Out(name, True, why=why, ratio=ratio)
        block = uncertain[0][1].block
        # The value of a constant of the row must be at hand where the error is.
        plain = _defined(plain, columns.find, lambda each: self._constant(each, block))
        part, definition = self._showing.parts[block], plain
        if has_window(plain):
            # Joined rows may repeat; the rows of one answer alone are what its block says.
            if not columns.alone:
                why = "a window over joined rows, which may repeat"
                return Out(name, True, why=why, ratio=ratio)
            filtered = not columns.whole or self._where is not None
            before, totals = set(part.pairs), dict(part.totals)
            try:
                definition = self.with_totals(definition, part, filtered, self._outside(block))
                if not part.pairs <= before:
                    raise NoTotal(NOT_AT_HAND)  # the inner query did not pass them on
            except NoTotal as problem:
                part.pairs, part.totals = before, totals
                return Out(name, True, why=str(problem), ratio=ratio)
        if not _paired(plain, part):
            return Out(name, True, why=NOT_AT_HAND, ratio=ratio)
        return self.made(Out(name, True, definition, block))

    def _divides(self, node: exp.Expr, columns: _Columns) -> bool:
        """Whether an expression over answers divides by an estimate."""
        names = [c.name for c in columns_of(node) if columns.uncertain(c)]
        return bool(divisors(node, names)) or self._showing.divides_by_query(node)

    def _constant(self, node: exp.Column, block: int) -> str:
        """The name of a constant of the row in a block's definitions, the same for the same."""
        text = sql(node)
        prefix = hidden_name(block, "")
        for name, known in self._constants.items():
            if name.startswith(prefix) and sql(known) == text:
                return name.removeprefix(prefix)
        name = CONSTANT(len(self._constants))
        self._constants[prefix + name] = copied(node)
        return name

    def made(self, out: Out) -> Out:
        """A column with what its definition says about when it may come to nothing."""
        if out.definition is None:
            return out
        part = self._showing.parts[out.block]
        ratio = out.ratio or part.divides(out.definition)
        return replace(out, ratio=ratio, spread=part.is_spread(out.definition))

    def _outside(self, block: int) -> Translate:
        """Columns of a block, and constants of the row, as an outer SELECT names them."""
        constants = dict(self._constants)
        return lambda node: self._translated(node, block, constants)

    @staticmethod
    def _translated(node: exp.Expr, block: int, constants: dict[str, exp.Expr]) -> exp.Expr:
        def outside(each: exp.Column) -> exp.Expr:
            name = hidden_name(block, each.name)
            return copied(constants[name]) if name in constants else column(name)

        return with_columns(node, outside)

    def _replace_ours(self, node: exp.Expr, columns: _Columns) -> None:
        for each in of_kind(node, exp.Anonymous):
            field_ = our_function(each)
            if field_ is None:
                continue
            argument = bare(each.expressions[0]) if each.expressions else None
            hit = columns.find(argument) if isinstance(argument, exp.Column) else None
            if hit is None:
                raise Unsupported(
                    f"privsql_{field_} of this expression", hint="give it the alias of an aggregate"
                )
            out = hit[1]
            if field_ == "observed" or not out.estimate:
                raise Unsupported(f"privsql_{field_} outside of the query that aggregates")
            if out.definition is None:
                each.replace(exp.Paren(this=error_bars.none().field(field_)))
                continue
            made = self._showing.bars(out).written(field_)
            each.replace(exp.Paren(this=self._showing.exported(made, out.block)))

    def columns_of_totals(self, part: Part) -> dict[str, exp.Expr]:
        """Totals and their covariances with everything, over the columns of the block."""
        made: dict[str, exp.Expr] = {}
        for name, (total, _) in part.totals.items():
            made[name] = total.window
            made[effective_of(name)] = total.effective()
            made[size_of_total(name)] = total.size()
            for i in part.estimates():
                if all((min(i, j), max(i, j)) in part.pairs for j in total.slopes):
                    made[covariance_of(name, AGGREGATE(i))] = total.with_estimate(i)
            for other, (second, _) in part.totals.items():
                wanted = {(min(i, j), max(i, j)) for i in total.slopes for j in second.slopes}
                both = total.with_total(second) if name <= other and wanted <= part.pairs else None
                if both is not None:
                    made[covariance_of(name, other)] = both
            if total.classes:
                part.classes |= {(i, j) for i in part.estimates() for j in total.slopes}
        return made

    def export_totals(self, tree: exp.Select, number: int, part: Part) -> list[str]:
        """Totals, their covariances with everything, and constants that are windows."""
        made: dict[str, exp.Expr] = dict(part.constants)
        if part.totals:
            # The last one knows the constants of all.
            _, translate = list(part.totals.values())[-1]
            made |= {name: translate(n) for name, n in self.columns_of_totals(part).items()}
        for name, node in made.items():
            define(tree, hidden_name(number, name), node)
        part.exported |= set(made)
        part.totals_done |= part.totals
        part.constants, part.totals = {}, {}
        return [hidden_name(number, name) for name in made]

    def with_totals(
        self, node: exp.Expr, part: Part, filtered: bool, translate: Translate
    ) -> exp.Expr:
        """A definition in which windows are variables of their own, or NoTotal."""
        holder = exp.Paren(this=copied(node))
        known = part.estimates()
        for window in list(outermost(holder, is_window)):
            if any(depends(window, name) for name in part.totals_done):
                raise NoTotal("a window over another window's estimates")
            if not any(depends(window, AGGREGATE(i)) for i in known):
                name = WINDOW(len(part.constants))
                part.constants[name] = translate(window)
            else:
                name = self._total(window, part, filtered, translate)  # type: ignore[arg-type]
            window.replace(column(name))
        inner: exp.Expr = holder.this
        totals = [total for name, (total, _) in part.totals.items() if depends(inner, name)]
        if totals:
            slopes = (i for total in totals for i in total.slopes)
            part.pairs |= pairs_of([*part.used(inner), *slopes])
        return inner

    @staticmethod
    def _total(window: exp.Window, part: Part, filtered: bool, translate: Translate) -> str:
        """The variable of a window, the same for the same window."""
        known, block = part.estimates(), part.leaf.block
        name = TOTAL(len(part.totals_done) + len(part.totals))
        total = read_total(window, name, block, known, filtered, part.entangled)
        for old, (other, _) in part.totals.items():
            if other.key == total.key:
                return old
        part.totals[name] = (total, translate)
        part.pairs |= pairs_of(total.slopes)
        return name


class _Columns:
    """The columns that an outer SELECT can name."""

    def __init__(
        self,
        items: list[tuple[str, Compiled | None]],
        repeated: set[str],
        public: Mapping[str, Sequence[str]],
    ) -> None:
        self._items = items
        self._public = public  # columns of public tables, where a star stands for them
        self._repeated = repeated
        self.alone = len(items) == 1
        self.whole = self.alone and items[0][1] is not None and items[0][1].whole

    def hit(self, node: exp.Column) -> tuple[str, Out] | None:
        """The answer's column of this name with all that is known about it."""
        for alias, made in self._items:
            if made is None or (node.table and node.table.casefold() != alias.casefold()):
                continue
            for out in made.outs:
                if out.name.casefold() == node.name.casefold():
                    return alias, out
        return None

    def find(self, node: exp.Column) -> tuple[str, Out] | None:
        """The answer's column of this name, with the alias of its query.

        What two sources bring under one name cannot be told apart further out.
        """
        found = self.hit(node)
        if found is None:
            return None
        made = next(made for alias, made in self._items if alias == found[0] and made)
        if set(made.hidden) & self._repeated:
            return found[0], replace(found[1], definition=None, why=TWO_QUERIES)
        return found

    def uncertain(self, node: exp.Column) -> bool:
        """Whether a name is that of an estimate."""
        hit = self.find(node)
        return hit is not None and hit[1].estimate

    def is_row(self, node: exp.Column) -> bool:
        """Whether a name is that of an answer itself, so that it stands for its whole rows."""
        if node.table or self.find(node) is not None:
            return False
        name = node.name.casefold()
        return any(made is not None and alias.casefold() == name for alias, made in self._items)

    def star(self, node: exp.Expr) -> list[Out]:
        """What a star stands for, as far as it is answers."""
        table = node.table if isinstance(node, exp.Column) else ""
        star = node.this if isinstance(node, exp.Column) else node
        if star.args.get("replace") or star.args.get("rename"):
            raise Unsupported(
                "a star with REPLACE or RENAME over an answer", hint="list the columns"
            )
        without = {each.name.casefold() for each in star.args.get("except_") or ()}
        found: list[Out] = []
        for alias, made in self._items:
            if table and alias.casefold() != table.casefold():
                continue
            if made is None and alias not in self._public:
                raise Unsupported(
                    "a star over a public table joined by USING, or whose columns are not known",
                    hint="list the columns",
                )
            outs = made.outs if made else [Out(name, False) for name in self._public[alias]]
            found += [out for out in outs if out.name.casefold() not in without]
        return found


def _star_without(node: exp.Expr, hidden: list[str]) -> exp.Expr:
    made = copied(node)
    star = made.this if isinstance(made, exp.Column) else made
    names = [exp.to_identifier(name, quoted=True) for name in dict.fromkeys(hidden)]
    star.set("except_", [*(star.args.get("except_") or ()), *names] or None)
    return made


def _defined(
    node: exp.Expr,
    find: Callable[[exp.Column], tuple[str, Out] | None],
    constant: Callable[[exp.Column], str],
) -> exp.Expr:
    """An expression in which estimates are their definitions, and all else constants."""

    def written(each: exp.Column) -> exp.Expr:
        hit = find(each)
        if hit is not None and hit[1].estimate and hit[1].definition is not None:
            return exp.Paren(this=copied(hit[1].definition))
        return column(constant(each))

    return bare(with_columns(node, written))


def _paired(definition: exp.Expr, part: Part) -> bool:
    """Whether the covariances of all estimates in a definition are at hand."""
    return pairs_of(part.used(definition)) <= part.pairs


def _inside_aggregate(node: exp.Expr) -> bool:
    above = node.parent
    while above is not None and not isinstance(above, exp.Query):
        if is_aggregate(above):
            return True
        above = above.parent
    return False


def _is_plain_aggregate(node: exp.Expr) -> bool:
    around = node.parent
    while isinstance(around, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        around = around.parent
    return is_aggregate(node) and not isinstance(around, exp.Window)
