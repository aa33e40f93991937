"""FROM: published rows under any alias, filtered, projected and joined with public tables.

Sub-selects and CTEs that only filter or project are merged away, so that what is left is
one published table ``t``, public tables ``j0, j1, ...`` joined to it, and expressions over
their columns.  Aggregated sub-queries are not rows; the caller meets them elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from privsql.sql.bind.explicit_joins import make_explicit
from privsql.sql.catalog import PUBLISHED, Catalog, UnknownColumn, UnknownName
from privsql.sql.nodes import (
    Unsupported,
    aliases_of,
    bare,
    column,
    conjuncts,
    copied,
    is_aggregate,
    is_call,
    of_kind,
    outermost,
    queries_of,
    replace_below,
    sources_of,
    sql,
)

# The clauses of a sub-select that only filters or projects.
_ROWWISE = {"expressions", "from_", "joins", "where", "with_", "kind", "hint"}


@dataclass(frozen=True)
class Joined:
    """A public table beside the published one; at most one of its rows fits each of ours."""

    alias: str
    table: exp.Expr  # a Table, or a Subquery over public tables only
    kind: str  # INNER or LEFT
    on: tuple[tuple[exp.Expr, exp.Expr], ...]  # (ours, theirs), compared with =
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Item:
    """One source in FROM: its alias and its columns as canonical expressions."""

    alias: str
    columns: Mapping[str, tuple[str, exp.Expr]]  # folded name -> (name, expression)


@dataclass(frozen=True)
class Rows:
    """Published rows: what they are called and what they went through."""

    items: tuple[Item, ...]
    where: tuple[exp.Expr, ...] = ()
    joins: tuple[Joined, ...] = ()
    merged: frozenset[str] = field(default_factory=frozenset)  # USING columns, named once

    def find(self, node: exp.Column) -> exp.Expr | None:
        """The canonical expression of a column, or None if there is no such name."""
        name, table = node.name.casefold(), node.table.casefold()
        found = [
            item.columns[name][1]
            for item in self.items
            if name in item.columns and (not table or item.alias.casefold() == table)
        ]
        if not found:
            return None
        if len(found) > 1 and name not in self.merged:
            raise UnknownColumn(f"column {node.name!r} is ambiguous", hint="name its table as well")
        return copied(found[0])

    def all_columns(self, table: str = "") -> Iterator[tuple[str, exp.Expr]]:
        """What ``*`` stands for."""
        seen: set[str] = set()
        for item in self.items:
            if table and item.alias.casefold() != table.casefold():
                continue
            for folded, (name, expression) in item.columns.items():
                if folded in self.merged and folded in seen:
                    continue
                seen.add(folded)
                yield name, expression


# What a name in FROM means: the query of a CTE, or None for a table.
Lookup = Callable[[str], exp.Expr | None]


class Sources:
    """Reads FROM clauses against a catalog; ``lookup`` finds CTEs by name."""

    def __init__(self, catalog: Catalog, lookup: Lookup) -> None:
        self.catalog = catalog
        self._lookup = lookup

    def kind(self, node: exp.Expr | None) -> str:
        """``rows`` (published), ``answer`` (aggregated from them) or ``public``."""
        if node is None:
            return "public"
        if isinstance(node, exp.Table):
            if (cte := self._cte(node)) is not None:
                return self.kind(cte)
            return "rows" if self.catalog.is_published(node.name) else "public"
        if isinstance(node, exp.Subquery | exp.Paren | exp.CTE | exp.Alias):
            return self.kind(node.this)
        if isinstance(node, exp.SetOperation):
            kinds = {self.kind(node.left), self.kind(node.right)}
            return "public" if kinds == {"public"} else "answer"
        if isinstance(node, exp.Select):
            return self._select_kind(node)
        return "public"

    def _select_kind(self, select: exp.Select) -> str:
        kinds = {self.kind(source) for source in sources_of(select)}
        if "rows" in kinds:
            return "rows" if _rowwise(select) else "answer"
        kinds |= {self.kind(query) for e in _expressions(select) for query in queries_of(e)}
        return "public" if kinds <= {"public"} else "answer"

    def _cte(self, node: exp.Table) -> exp.Expr | None:
        return None if node.db else self._lookup(node.name)

    def rows(self, select: exp.Select) -> Rows:
        """The published rows that a SELECT reads, with everything merged.

        Joins and conditions are brought into one shape, in place (``explicit_joins``).
        """
        make_explicit(select, self.names, lambda node: self.kind(node) == "rows")
        start = source = select.args["from_"].this
        rest = list(select.args.get("joins") or ())
        if self.kind(source) != "rows":
            # The published table may stand on the right of an inner join: turn it round.
            at = next(i for i, join in enumerate(rest) if self.kind(join.this) == "rows")
            join = rest[at]
            if at != 0 or join.side or (join.kind or "INNER") not in ("INNER", "CROSS"):
                raise Unsupported(
                    "the published table is on the outer side of a join",
                    hint="begin FROM with the published table",
                )
            turned = copied(join)
            turned.set("this", copied(source))
            start, rest = join.this, [turned, *rest[1:]]
        rows = self._start(start)
        for join in rest:
            rows = self._join(rows, join)
        return rows

    def _start(self, node: exp.Expr) -> Rows:
        alias = node.alias_or_name
        for clause in ("sample", "pivots"):
            if node.args.get(clause):
                raise Unsupported(
                    f"{clause.rstrip('s').upper()} on published rows",
                    hint="ask for the aggregate of the whole table",
                )
        if isinstance(node, exp.Table) and self._cte(node) is None:
            columns: dict[str, tuple[str, exp.Expr]] = {
                name.casefold(): (name, column(name, PUBLISHED)) for name, _ in self.catalog.columns
            }
            return Rows((_renamed(Item(alias, columns), node),))
        inner = self._cte(node) if isinstance(node, exp.Table) else node.this
        while isinstance(inner, exp.Subquery | exp.CTE):
            inner = inner.this
        if not isinstance(inner, exp.Select):
            raise Unsupported("published rows through this kind of sub-query")
        rows = self.rows(inner)
        columns = _numbered(pair for node in inner.expressions for pair in _projected(rows, node))
        where = [*rows.where, *conditions_of(inner, rows)]
        return Rows((_renamed(Item(alias, columns), node),), tuple(where), rows.joins)

    def names(self, node: exp.Expr) -> list[str] | None:
        """The columns of an item of FROM, or None where it is refused anyway."""
        kind = self.kind(node)
        try:
            if kind == "rows":
                items = self._start(node).items
            elif kind == "public":
                names = self._public_columns(self._written_out(node))
                items = (self._public_item(node, names, ""),)
            else:
                return None
        except (Unsupported, UnknownName):
            return None
        return [name for item in items for name, _ in item.columns.values()]

    def _public_item(self, node: exp.Expr, names: Sequence[str], alias: str) -> Item:
        theirs = {name.casefold(): (name, column(name, alias)) for name in names}
        return _renamed(Item(node.alias_or_name, theirs), node)

    def _written_out(self, node: exp.Expr) -> exp.Expr:
        """A public item of FROM with CTEs as sub-queries: it is scanned beside published rows."""
        query = self._cte(node) if isinstance(node, exp.Table) else None
        if query is not None:
            alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name))
            made: exp.Expr = exp.Subquery(this=copied(query), alias=copied(alias))
        elif isinstance(node, exp.Values):
            made = exp.Subquery(this=copied(node), alias=copied(node.args["alias"]))
            made.this.set("alias", None)
        else:
            made = copied(node)
        own = {cte.alias.casefold() for cte in of_kind(made, exp.CTE)}
        for each in of_kind(made, exp.Table):
            if each is not made and each.name.casefold() not in own and self._cte(each) is not None:
                each.replace(self._written_out(each))
        return made

    def _join(self, rows: Rows, join: exp.Join) -> Rows:
        kind = self.kind(join.this)
        if kind != "public":
            what = "two published tables" if kind == "rows" else "published rows with an answer"
            raise Unsupported(
                f"a join of {what}",
                hint="rows carry no identity that a join could follow; aggregate both first",
            )
        words = [join.method, join.side, join.kind]
        if words[0] or words[1] not in ("", "LEFT") or words[2] not in ("", "INNER", "OUTER"):
            text = " ".join(filter(None, words))
            raise Unsupported(f"{text} JOIN with a public table", hint="use JOIN or LEFT JOIN")
        alias = f"j{len(rows.joins)}"
        table = self._written_out(join.this)
        names = self._public_columns(table)
        item = self._public_item(table, names, alias)
        wider = replace(rows, items=(*rows.items, item))
        on: list[tuple[exp.Expr, exp.Expr]] = []
        merged = set(rows.merged)
        for name in join.args.get("using") or ():
            ours = rows.find(exp.column(name.name))
            its = item.columns.get(name.name.casefold())
            if ours is None or its is None:
                raise UnknownColumn(f"USING names {name.name!r}, which is not in both tables")
            on.append((ours, copied(its[1])))
            merged.add(name.name.casefold())
        if condition := join.args.get("on"):
            on += _equalities(canonical(condition, wider, {}), alias)
        if not on:
            raise Unsupported(
                "a join without a condition multiplies published rows",
                hint="join on the key of the public table: ON t.x = d.x",
            )
        if not table.alias_column_names:
            table.set("alias", None)
        made = Joined(alias, table, join.side or "INNER", tuple(on), tuple(names))
        return replace(wider, joins=(*rows.joins, made), merged=frozenset(merged))

    def _public_columns(self, node: exp.Expr) -> list[str]:
        if isinstance(node, exp.Table):
            name = self.catalog.public_table(node.name)
            if name is None:
                raise self.catalog.no_table(node.name)
            return [column for column, _ in self.catalog.tables[name]]
        inner = node.this
        if isinstance(inner, exp.Values):
            names = node.alias_column_names
        else:
            names = list(self._selected(inner))
        if not names or not all(names) or len({n.casefold() for n in names}) < len(names):
            raise Unsupported(
                "a join with a sub-query whose columns have no names of their own",
                hint="give each column a name",
            )
        return names

    def _selected(self, query: exp.Expr) -> Iterator[str]:
        """Names of the columns of a query over public tables; empty where there is none."""
        while isinstance(query, exp.SetOperation | exp.Subquery):
            query = query.this
        if not isinstance(query, exp.Select):
            return
        for each in query.expressions:
            if not each.is_star:
                yield each.alias_or_name
                continue
            star = each.this if isinstance(each, exp.Column) else each
            if any(star.args.values()):
                yield ""
                return
            wanted = each.text("table").casefold()
            for source in sources_of(query):
                if wanted in ("", source.alias_or_name.casefold()):
                    names = self._public_columns(self._written_out(source))
                    yield from (n for n, _ in self._public_item(source, names, "").columns.values())


def _rowwise(select: exp.Select) -> bool:
    """Whether a SELECT gives one row for each row it reads."""
    if any(value for key, value in select.args.items() if key not in _ROWWISE):
        return False

    def several(node: exp.Expr) -> bool:
        return is_aggregate(node) or isinstance(node, exp.Window)

    return not any(next(outermost(p, several), None) for p in select.expressions)


def _projected(rows: Rows, node: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    if not node.is_star:
        yield node.alias_or_name or sql(node).lower(), canonical(node.unalias(), rows, {})
        return
    star = node.this if isinstance(node, exp.Column) else node
    if any(star.args.values()):
        raise Unsupported(
            "a star with EXCLUDE, REPLACE or RENAME over published rows",
            hint="list the columns that you want",
        )
    yield from rows.all_columns(node.text("table"))


def _equalities(condition: exp.Expr, alias: str) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    for part in conjuncts(condition):
        sides = (part.left, part.right) if isinstance(part, exp.EQ) else ()
        for ours, theirs in (sides, sides[::-1]) if sides else ():
            if (
                isinstance(theirs, exp.Column)
                and theirs.table == alias
                and all(c.table != alias for c in ours.find_all(exp.Column))
            ):
                yield ours, theirs
                break
        else:
            raise Unsupported(
                "a join on something other than equality with columns of the public table",
                hint="write ON t.x = d.x [AND t.y = d.y], and put other conditions into WHERE",
            )


def _renamed(item: Item, node: exp.Expr) -> Item:
    """Apply the column names of ``AS t(a, b)``."""
    names = node.alias_column_names
    if not names:
        return item
    columns = list(item.columns.values())
    renamed = [(new, expression) for new, (_, expression) in zip(names, columns, strict=False)]
    return Item(item.alias, _numbered((*renamed, *columns[len(names) :])))


def _numbered(columns: Iterable[tuple[str, exp.Expr]]) -> dict[str, tuple[str, exp.Expr]]:
    """Columns by their names; as DuckDB does, the first keeps its name, the next is numbered."""
    made: dict[str, tuple[str, exp.Expr]] = {}
    for given, expression in columns:
        name, again = given, 0
        while name.casefold() in made:
            again += 1
            name = f"{given}_{again}"
        made[name.casefold()] = (name, expression)
    return made


# Whether an unqualified name is the alias rather than the column, and whether it stands within
# an aggregate.
First = Callable[[exp.Column, bool], bool]


def canonical(
    node: exp.Expr,
    rows: Rows,
    aliases: Mapping[str, exp.Expr],
    alias_first: bool = False,
) -> exp.Expr:
    """A copy with every column resolved: to the rows', or to an alias of the SELECT list.

    DuckDB prefers the column to the alias everywhere but in HAVING (:func:`of_groups`) and where
    a name is all that ORDER BY sorts by, which ``alias_first`` stands for: ``ORDER BY x`` is the
    alias, ``ORDER BY x + 0`` and ``ORDER BY MAX(x)`` are the column.  Sub-queries are left alone:
    they have names of their own.
    """
    whole = alias_first and isinstance(bare(node), exp.Column)
    return _resolved(node, rows, aliases, lambda _, __: whole)


def projected(node: exp.Expr, rows: Rows, aliases: Mapping[str, exp.Expr]) -> exp.Expr:
    """A projection with every column resolved; it cannot refer to its own alias."""
    own = node.alias.casefold() if isinstance(node, exp.Alias) else ""
    return canonical(node.unalias(), rows, {k: v for k, v in aliases.items() if k != own})


def conditions_of(select: exp.Select, rows: Rows) -> Iterator[exp.Expr]:
    """The conditions of WHERE with every column resolved."""
    if condition := select.args.get("where"):
        yield from conjuncts(canonical(condition.this, rows, aliases_of(select)))


def of_groups(
    node: exp.Expr,
    rows: Rows,
    aliases: Mapping[str, exp.Expr],
    keys: Collection[str],
    every_column: bool,
) -> exp.Expr:
    """A copy of a condition of HAVING with every column resolved.

    There DuckDB prefers the column only within aggregates and where the column itself is a key;
    ``keys`` are their texts.  Under GROUP BY ALL (``every_column``) not even the key is preferred.

        SELECT job, SUM(y) AS x FROM t GROUP BY job HAVING x > 40         x is SUM(y)
        SELECT job, SUM(y) AS x FROM t GROUP BY job, x HAVING x > 40      x is the column
        SELECT job, SUM(y) AS x FROM t GROUP BY job HAVING MAX(x) > 40    x is the column
    """

    def first(each: exp.Column, within: bool) -> bool:
        if within:
            return False
        found = None if every_column else rows.find(each)
        if found is None or sql(bare(found)) not in keys:
            return True
        if sum(sql(other) == sql(found) for _, other in rows.all_columns()) > 1:
            raise Unsupported(
                f"{each.name!r} in HAVING, which is an alias and one of several names of a key",
                hint="write the aggregate itself, or the name of the column with its table",
            )
        return False

    made = _resolved(node, rows, aliases, first)
    if every_column:
        for each in _outside_aggregates(made):
            if sql(each) not in keys:
                # DuckDB would group by the columns of the condition as well.
                raise Unsupported(
                    f"HAVING on {each.name!r} under GROUP BY ALL, where it becomes a key as well",
                    hint="write the keys into GROUP BY",
                )
    return made


def _resolved(
    node: exp.Expr, rows: Rows, aliases: Mapping[str, exp.Expr], first: First
) -> exp.Expr:
    def resolve(each: exp.Expr, depth: int, within: bool) -> exp.Expr:
        if isinstance(each, exp.Query):
            return each
        if isinstance(each, exp.Column) and not isinstance(each.this, exp.Star):
            alias = None if each.table else aliases.get(each.name.casefold())
            # Within an alias its own name is a column again: SELECT x AS x ... ORDER BY x.
            preferred = depth == 0 and alias is not None and first(each, within)
            found = None if preferred else rows.find(each)
            if found is None and alias is not None and depth < 8:
                return exp.Paren(this=resolve(copied(alias), depth + 1, within))
            if found is None:
                raise UnknownColumn(f"there is no column {each.sql('duckdb')!r} here")
            if isinstance(found, exp.Column):
                # Keep where the analyst wrote it, for the caret.
                found.this.meta.update(each.this.meta)
            return found if isinstance(found, exp.Column) else exp.Paren(this=found)
        within = within or is_call(each)
        replace_below(each, lambda below: resolve(below, depth, within))
        return each

    return resolve(copied(node), 0, False)


def _outside_aggregates(node: exp.Expr) -> Iterator[exp.Column]:
    if isinstance(node, exp.Column):
        yield node
    elif not is_call(node) and not isinstance(node, exp.Query):
        for child in node.iter_expressions():
            yield from _outside_aggregates(child)


def _expressions(select: exp.Select) -> Iterator[exp.Expr]:
    yield from select.expressions
    for clause in ("where", "having", "qualify"):
        if part := select.args.get(clause):
            yield part.this
