"""Notices about conditions on sensitive columns with values off the grid or the domain.

A comparison with a value that the domain does not have is no mistake in SQL: nobody has the
value, and the count is exactly 0.  But a word that is spelt otherwise than in the domain looks
the same, so the answer says it.  Values of a grid were rounded before they were perturbed, which
is told where it may change the answer (:mod:`privsql.sql.bind.rounded_values`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from sqlglot import exp

from privsql.channels import Categorical, Grid
from privsql.errors import DomainError, Notice
from privsql.sql.bind.block import Leaf
from privsql.sql.bind.comparisons import Comparison, Constants, comparisons, uses
from privsql.sql.bind.rounded_values import grid_text, is_worth_telling, judge
from privsql.sql.catalog import Catalog, Sensitive
from privsql.sql.nodes import copied
from privsql.sql.parameters import Parameters
from privsql.sql.reconstruct.columns import KEY

# Conditions on one column that are told one by one.
_MOST = 3


def about_conditions(
    leaves: Iterable[Leaf], catalog: Catalog, constants: Constants | None
) -> list[Notice]:
    """Notices about the conditions of a statement, at most one of each kind for a column."""
    nodes = [node for leaf in leaves if leaf.block.sensitive for node in _expressions(leaf)]
    if not nodes:
        return []
    reader = constants or Constants(Parameters({}))
    found = list(comparisons(nodes, catalog.sensitive))
    kinds = {name: column.type for name, column in catalog.sensitive.items()}
    wanted = [(node, kinds[each.column]) for each in found for node in each.constants]
    values = iter(reader.read(wanted))
    read = [(each, [next(values) for _ in each.constants]) for each in found]
    notices = []
    for name, column in catalog.sensitive.items():
        own = [(each, those) for each, those in read if each.column == name]
        if isinstance(column.domain, Categorical):
            if any(_foreign(each, those, column.domain) for each, those in own):
                text = f"{name} is compared with a value outside its domain, which no row has"
                notices.append(Notice("not-in-domain", text))
        elif isinstance(column.domain, Grid):
            used = any(uses(node, name) for node in nodes)
            notices += _of_grid(column, column.domain, own, used)
    return notices


def _of_grid(
    column: Sensitive, domain: Grid, own: list[tuple[Comparison, list[object]]], used: bool
) -> Iterator[Notice]:
    judged = list(filter(None, (judge(column, each.sign, values) for each, values in own)))
    outside = _listed([each.outside for each in judged])
    if outside:
        yield Notice("not-in-domain", outside)
    rounded = _listed([each.rounded for each in judged])
    if not rounded and used and is_worth_telling(column.type, domain):
        rounded = "this answer is about the rounded values"
    if rounded:
        text = f"{column.name} was rounded to {grid_text(domain)} before it was published"
        yield Notice("rounded", f"{text}: {rounded}")


def _listed(texts: list[str]) -> str:
    said = list(dict.fromkeys(filter(None, texts)))
    if len(said) > _MOST:
        said[_MOST:] = [f"and {len(said) - _MOST} more conditions"]
    return "; ".join(said)


def _foreign(each: Comparison, values: list[object], domain: Categorical) -> bool:
    """Whether a column is said to be equal to a value that its list does not have."""
    if each.sign not in ("=", "IN"):
        return False
    known = [value for value in values if value is not None]
    with suppress(DomainError):  # it is of another kind, as a number is for words
        return any(domain.count([value]) == 0 for value in known)  # type: ignore[list-item]
    return False


def _expressions(leaf: Leaf) -> Iterator[exp.Expr]:
    """Every canonical expression of a block, and conditions of HAVING on its keys."""
    block = leaf.block
    yield from block.conditions
    yield from (key.expression for key in block.keys)
    yield from (each.call.node for each in block.aggregates)
    yield from (ours for join in block.rows.joins for ours, _ in join.on)
    if (having := leaf.select.args.get("where")) is not None and block.keys:
        yield having.this.transform(_as_key, leaf)


def _as_key(node: exp.Expr, leaf: Leaf) -> exp.Expr:
    found = KEY.number(node.name) if isinstance(node, exp.Column) else None
    if found is not None and found < len(leaf.block.keys):
        return copied(leaf.block.keys[found].expression)
    return node
