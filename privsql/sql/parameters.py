"""Statements as text with bound values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from privsql.errors import ProgrammingError
from privsql.sql.nodes import walked
from privsql.sql.printing import text_of


@dataclass(frozen=True)
class Printed:
    """A statement and the values bound in it."""

    sql: str
    parameters: Mapping[str, object] = field(default_factory=dict)

    @property
    def both(self) -> tuple[str, Mapping[str, object]]:
        """As the arguments that an engine takes."""
        return self.sql, self.parameters


@dataclass(frozen=True)
class Parameters:
    """Values for ``?``, ``$1`` and ``:name``, by the name that the tree has for them."""

    values: Mapping[str, object]

    def bind(self, tree: exp.Expr, *, used_up: bool = True) -> Printed:
        """Print a tree, which may be used up, and find the values of its parameters."""
        used = {str(node.this) for node in tree.find_all(exp.Placeholder)} if self.values else set()
        return Printed(text_of(tree, used_up=used_up), {name: self.values[name] for name in used})


def read_parameters(
    tree: exp.Expr, given: Sequence[object] | Mapping[str, object] | None
) -> Parameters:
    """Name every placeholder of the tree, in place, and find its value."""
    values: dict[str, object] = {}
    for node in walked(tree):
        if not isinstance(node, exp.Placeholder | exp.Parameter):
            continue
        text = str(getattr(node.this, "name", node.this))
        if text.isdigit():
            at, name = int(text) - 1, f"parameter{text}"
            if isinstance(given, Mapping) or given is None or at >= len(given):
                raise ProgrammingError(
                    f"the statement has a parameter {int(text)}, for which no value was given",
                    hint="give a sequence with one value for each parameter",
                )
            values[name] = given[at]
        else:
            name = f"n_{text}"
            if not isinstance(given, Mapping) or text not in given:
                raise ProgrammingError(
                    f"the statement has a parameter {text!r}, for which no value was given",
                    hint="give a mapping from names to values",
                )
            values[name] = given[text]
        node.replace(exp.Placeholder(this=name))
    count = len(given or ())
    if count != len(values):
        raise ProgrammingError(f"the statement takes {len(values)} parameters; {count} were given")
    return Parameters(values)
