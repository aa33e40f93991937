"""SELECTs over answers: projections, joins, windows and aggregates of estimates."""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from privsql.sql import bars as error_bars
from privsql.sql.bars import FIELDS, variance_of
from privsql.sql.calculus import depends
from privsql.sql.catalog import UnknownColumn
from privsql.sql.compiled import (
    Compiled,
    Out,
    Part,
    block_covariance,
    default_name,
    effective_name,
    hidden_name,
    ordered_pairs,
    our_function,
)
from privsql.sql.showing import Showing
from privsql.sql.totals import Translate, read_total
from privsql.sql.tree import (
    Unsupported,
    bare,
    column,
    columns_of,
    is_aggregate,
    named,
    outermost,
    place_of,
)
from privsql.sql.writing import ENOUGH_ROWS


class Outer(Showing):
    """Rewrites a SELECT whose sources are answers and public tables."""

    def _outer(self, select: exp.Select) -> Compiled:
        """A SELECT over answers and public tables."""
        tree = select.copy()
        items: list[tuple[str, Compiled | None]] = []
        # The copy's sources must keep the identity by which CTEs are found.
        originals = self._sources.sources(select)
        copies = self._sources.sources(tree)
        for original, source in zip(originals, copies, strict=True):
            items.append(self._item(original, source))
        for clause in ("expressions", "where", "group", "having", "qualify", "order"):
            part = tree.args.get(clause)
            for node in part if isinstance(part, list) else [part]:
                if isinstance(node, exp.Expr):
                    self._subqueries(node)
        hidden = [name for _, made in items if made is not None for name in made.hidden]
        repeated = {name for name in hidden if hidden.count(name) > 1}
        columns = _Columns(items, repeated)
        grouped = bool(
            tree.args.get("group")
            or tree.args.get("distinct")
            or any(next(outermost(p, _is_plain_aggregate), None) for p in tree.expressions)
        )
        for clause in ("where", "having", "qualify", "order"):
            part = tree.args.get(clause)
            if isinstance(part, exp.Expr):
                if clause != "order" and any(columns.uncertain(c) for c in columns_of(part)):
                    self._say_selected()
                self._replace_ours(part, columns)
        outs: list[Out] = []
        projections: list[exp.Expr] = []
        for projection in tree.expressions:
            self._replace_ours(projection, columns)
            if projection.is_star:
                projections.append(_star_without(projection, hidden))
                outs += columns.star(projection)
                continue
            inner = projection.this if isinstance(projection, exp.Alias) else projection
            out = self._out(inner, projection, columns, grouped)
            outs.append(out)
            projections.append(projection)
        tree.set("expressions", projections)
        if grouped:
            self._constants = {}
            outs = [replace(out, definition=None, bars=()) for out in outs]
            return self._aggregated(tree, outs, columns)
        kept = [name for name in dict.fromkeys(hidden) if name not in repeated]
        for name, node in self._constants.items():
            tree.append("expressions", named(node, name))
        for alias, made in items:
            for name in made.hidden if made is not None else ():
                if name in kept:
                    tree.append("expressions", named(column(name, alias or None), name))
        hidden = [*self._constants, *kept]
        self._constants = {}
        for number, each in enumerate(self.parts):
            if each.totals or each.constants:
                hidden += self._export_totals(tree, number, each)
        return Compiled(tree, outs, hidden)

    def _aggregated(self, tree: exp.Select, outs: list[Out], columns: _Columns) -> Compiled:
        """Sums and averages over the rows of an answer keep their error, others lose it.

        Rows with different public keys stand for different people, so variances add up; the
        cells of a sensitive key do not, and rows of a join may repeat.
        """
        hidden: list[str] = []
        for i, out in enumerate(outs):
            if not out.estimate:
                continue
            projection = tree.expressions[i]
            inner = bare(projection.this if isinstance(projection, exp.Alias) else projection)
            fields = self._sum_bars(inner, columns) if not tree.args.get("distinct") else None
            if fields is None:
                self._lost(f"{out.name!r}")
                continue
            names = tuple(f"privsql_sum{len(self.parts)}_{i}_{f}" for f in FIELDS)
            for name, node in zip(names, fields, strict=True):
                tree.append("expressions", named(node, name))
            outs[i] = replace(out, bars=names)
            hidden += names
        return Compiled(tree, outs, hidden)

    def _sum_bars(self, node: exp.Expr, columns: _Columns) -> tuple[exp.Expr, ...] | None:
        argument = bare(node.this) if isinstance(node, exp.Sum | exp.Avg) else None
        if not columns.alone or not isinstance(argument, exp.Column):
            return None
        hit = columns.find(argument)
        if hit is None or hit[1].definition is None:
            return None
        out = hit[1]
        part = self.parts[out.block]
        block = part.leaf.block
        if len(block.sets) != 1 or any(key.sensitive for key in block.keys):
            return None
        known = part.uncertain()
        definition = hit[1].definition
        spread = variance_of(definition, known, block_covariance(part.exported))
        if spread is None or any(depends(definition, name) for name in part.totals_done):
            return None
        error: exp.Expr = exp.Sqrt(this=exp.Sum(this=self._exported(spread, out.block)))
        if isinstance(node, exp.Avg):
            below = exp.Count(this=node.this.copy())
            error = exp.Div(this=error, expression=below, typed=False, safe=False)
        z = exp.Max(this=column(hidden_name(out.block, "z")))
        half = exp.Paren(this=exp.Mul(this=z, expression=error))
        used = [name for name in known if depends(definition, name)]
        rows = [column(hidden_name(out.block, effective_name(name))) for name in used]
        least = rows[0] if len(rows) == 1 else exp.Least(this=rows[0], expressions=rows[1:])
        sure = exp.Anonymous(
            this="bool_and", expressions=[column(hidden_name(out.block, "certain"))]
        )
        enough = exp.GTE(this=exp.Min(this=least), expression=exp.Literal.number(ENOUGH_ROWS))
        return (
            error.copy(),
            exp.Sub(this=node.copy(), expression=half),
            exp.Add(this=node.copy(), expression=half.copy()),
            exp.Or(this=exp.Paren(this=enough), expression=sure),
        )

    def _item(self, original: exp.Expr, source: exp.Expr) -> tuple[str, Compiled | None]:
        alias = source.alias_or_name
        if isinstance(source, exp.Table):
            cte = None if source.db else self._lookup(source.name)
            if cte is None:
                if not isinstance(source.this, exp.Identifier):
                    raise Unsupported(
                        "a table function in FROM", hint="query the published table or a public one"
                    )
                name = self._catalog.public_table(source.name)
                if name is None:
                    raise UnknownColumn(
                        f"there is no table {source.name!r}",
                        hint=f"the published table is {self._catalog.table!r}",
                        place=place_of(original, self._text),
                    )
                return alias, None
            return alias, self._compiled.get(id(cte))
        if isinstance(source, exp.Subquery):
            made = self._query(source.this)
            source.set("this", made.tree)
            if (a := source.args.get("alias")) is not None and a.columns:
                made = self._renamed(made, source)
                source.set("this", made.tree)
                source.set("alias", exp.TableAlias(this=a.this.copy()))
            if not alias:
                alias = f"privsql_unnamed{len(self.parts)}"
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
                    place=place_of(each, self._text),
                )
        found = [columns.find(c) for c in columns_of(inner)]
        uncertain = [out for out in found if out is not None and out[1].estimate]
        deep = self._has_estimate_below(inner)
        if not uncertain and not deep:
            return Out(name)
        plain = bare(inner)
        if isinstance(plain, exp.Column) and uncertain and not grouped:
            return replace(uncertain[0][1], name=name)
        blocks = {(item, out.block) for item, out in uncertain}
        defined = all(out.definition is not None for _, out in uncertain)
        if deep or grouped or not defined or len(blocks) != 1:
            if not grouped:
                self._lost(f"{name!r}")
            return Out(name, True)
        holder = exp.Paren(this=plain.copy())
        block = uncertain[0][1].block
        for each in list(columns_of(holder)):
            hit = columns.find(each)
            if hit is not None and hit[1].estimate and hit[1].definition is not None:
                each.replace(exp.Paren(this=hit[1].definition.copy()))
            else:
                # A constant of the row: its value must be at hand where the error is.
                known = f"x{len(self._constants)}"
                self._constants[hidden_name(block, known)] = each.copy()
                each.replace(column(known))
        part = self.parts[block]
        definition: exp.Expr | None = bare(holder)
        if next(outermost(holder, lambda n: isinstance(n, exp.Window)), None) is not None:
            # Joined rows may repeat; the rows of one answer alone are what its block says.
            sensitive = any(key.sensitive for key in part.leaf.block.keys)
            definition = None
            if columns.alone and not sensitive:
                outside = self._outside(block)
                definition = self._with_totals(bare(holder), part, True, outside)
        names = {f"a{i}" for i in part.estimates()}
        used = sorted(int(c.name[1:]) for c in columns_of(holder) if c.name in names)
        pairs = ordered_pairs(part.pairs)
        if definition is None or any(
            (i, j) not in pairs for n, i in enumerate(used) for j in used[n:]
        ):
            self._lost(f"{name!r}")
            return Out(name, True)
        return Out(name, True, definition, block)

    def _outside(self, block: int) -> Translate:
        """Columns of a block, and constants of the row, as an outer SELECT names them."""
        constants = dict(self._constants)

        def translate(node: exp.Expr) -> exp.Expr:
            holder = exp.Paren(this=node.copy())
            for each in list(columns_of(holder)):
                name = hidden_name(block, each.name)
                each.replace(constants[name].copy() if name in constants else column(name))
            inner: exp.Expr = holder.this
            return inner

        return translate

    def _replace_ours(self, node: exp.Expr, columns: _Columns) -> None:
        for each in list(node.find_all(exp.Anonymous)):
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
            made = self._bars(out).field(field_)
            each.replace(exp.Paren(this=self._exported(made, out.block)))

    def _export_totals(self, tree: exp.Select, number: int, part: Part) -> list[str]:
        """Totals, their covariances with everything, and constants that are windows."""
        made: dict[str, exp.Expr] = dict(part.constants)
        for name, (total, translate) in part.totals.items():
            made[name] = translate(total.window)
            made[f"e{name}"] = translate(total.effective())
            for i in part.estimates():
                if all((min(i, j), max(i, j)) in ordered_pairs(part.pairs) for j in total.slopes):
                    made[f"c{name}_a{i}"] = translate(total.with_estimate(i))
            for other, (second, _) in part.totals.items():
                both = total.with_total(second)
                if name <= other and both is not None:
                    made[f"c{name}_{other}"] = translate(both)
            if total.classes:
                part.classes |= {(i, j) for i in part.estimates() for j in total.slopes}
        exported = []
        for name, node in made.items():
            exported.append(hidden_name(number, name))
            tree.append("expressions", named(node, exported[-1]))
        part.exported |= set(made)
        part.constants, part.totals_done = {}, {**part.totals_done, **part.totals}
        part.totals = {}
        return exported

    def _with_totals(
        self, node: exp.Expr, part: Part, filtered: bool, translate: Translate
    ) -> exp.Expr | None:
        """A definition in which windows are variables of their own, or None."""
        holder = exp.Paren(this=node.copy())
        known = part.estimates()
        for window in list(outermost(holder, lambda n: isinstance(n, exp.Window))):
            if not any(depends(window, f"a{i}") for i in known):
                name = f"y{len(part.constants)}"
                part.constants[name] = translate(window)
            else:
                name = f"w{len(part.totals)}"
                block = part.leaf.block
                total = read_total(window, name, block, known, filtered)  # type: ignore[arg-type]
                if total is None:
                    return None
                part.totals[name] = (total, translate)
                part.pairs |= {(i, j) for i in total.slopes for j in total.slopes}
            window.replace(column(name))
        inner: exp.Expr = holder.this
        used = {c.name for c in columns_of(inner)}
        for name in used & set(part.totals):
            for i in (i for i in known if f"a{i}" in used):
                part.pairs |= {(i, j) for j in part.totals[name][0].slopes}
        return inner


class _Columns:
    """The columns that an outer SELECT can name."""

    def __init__(self, items: list[tuple[str, Compiled | None]], repeated: set[str]) -> None:
        self._items = items
        self._repeated = repeated
        self.alone = len(items) == 1

    def find(self, node: exp.Column) -> tuple[str, Out] | None:
        """The answer's column of this name, with the alias of its query."""
        for alias, made in self._items:
            if made is None or (node.table and node.table.casefold() != alias.casefold()):
                continue
            for out in made.outs:
                if out.name.casefold() == node.name.casefold():
                    if set(made.hidden) & self._repeated:
                        return alias, replace(out, definition=None)
                    return alias, out
        return None

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
        without = {_excluded(e) for e in star.args.get("except_") or star.args.get("except") or ()}
        found: list[Out] = []
        for alias, made in self._items:
            if table and alias.casefold() != table.casefold():
                continue
            if made is None:
                raise Unsupported(
                    "a star over a public table joined with an answer", hint="list the columns"
                )
            found += [out for out in made.outs if out.name.casefold() not in without]
        return found


def _excluded(node: exp.Expr) -> str:
    return node.name.casefold()


def _star_without(node: exp.Expr, hidden: list[str]) -> exp.Expr:
    made = node.copy()
    star = made.this if isinstance(made, exp.Column) else made
    key = "except_" if "except_" in exp.Star.arg_types else "except"
    already = list(star.args.get(key) or ())
    names = list(dict.fromkeys(hidden))
    star.set(key, already + [exp.to_identifier(name, quoted=True) for name in names] or None)
    return made


def _is_plain_aggregate(node: exp.Expr) -> bool:
    return is_aggregate(node) and not isinstance(node.parent, exp.Window)
