"""Statements as text with bound values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from privsql.errors import ProgrammingError
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

    def bind(self, tree: exp.Expr) -> Printed:
        """Print a tree, which is used up, and find the values of its parameters."""
        if not self.values:
            return Printed(text_of(tree, used_up=True))
        used = {str(node.this) for node in tree.find_all(exp.Placeholder)}
        return Printed(text_of(tree, used_up=True), {name: self.values[name] for name in used})


def read_parameters(
    tree: exp.Expr, given: Sequence[object] | Mapping[str, object] | None
) -> Parameters:
    """Name every placeholder of the tree, in place, and find its value."""
    values: dict[str, object] = {}
    position = 0
    for node in tree.find_all(exp.Placeholder, exp.Parameter):
        text = "" if node.this is None else str(getattr(node.this, "name", node.this))
        if not text:
            position += 1
            text = str(position)
        if text.isdigit():
            at = int(text) - 1
            if isinstance(given, Mapping) or given is None or at >= len(given):
                raise ProgrammingError(
                    f"the statement has a parameter {int(text)}, for which no value was given",
                    hint="give a sequence with one value for each parameter",
                )
            values[f"parameter{text}"] = given[at]
            name = f"parameter{text}"
        else:
            if not isinstance(given, Mapping) or text not in given:
                raise ProgrammingError(
                    f"the statement has a parameter {text!r}, for which no value was given",
                    hint="give a mapping from names to values",
                )
            name = f"n_{text}"
            values[name] = given[text]
        node.replace(exp.Placeholder(this=name))
    count = len(given) if given is not None else 0
    if count != len(values):
        raise ProgrammingError(f"the statement takes {len(values)} parameters; {count} were given")
    return Parameters(values)
