r"""Output of ``\d``: tables and columns from the manifest, without hidden columns.

Everything here is public: it stands in the manifest of the release.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privsql.channels import Channel, Domain, Grid
from privsql.errors import ProgrammingError, printable
from privsql.fronts.shell.display import Display, listing
from privsql.release.manifest import Manifest, Policy
from privsql.sql.catalog import Catalog

LONGEST = 50  # characters of a domain that are shown


@dataclass(frozen=True)
class Told:
    """The release as the shell describes it."""

    manifest: Manifest
    catalog: Catalog

    @property
    def tables(self) -> Mapping[str, tuple[tuple[str, str], ...]]:
        """Names and types of the columns of each table."""
        return {self.catalog.table: self.catalog.columns, **self.catalog.tables}


def tables(told: Told, display: Display) -> str:
    """All tables."""
    sizes = {each.name: f"{each.rows:,}" for each in told.manifest.tables}
    sizes[told.catalog.table] = f"{told.manifest.rows:,}"
    rows = [
        [
            name,
            "published" if told.catalog.is_published(name) else "public",
            str(len(columns)),
            sizes.get(name, ""),
        ]
        for name, columns in told.tables.items()
    ]
    return listing(["table", "kind", "columns", "rows"], rows, display)


def table(told: Told, name: str, display: Display) -> str:
    """The columns of one table: what each is, and how it was perturbed."""
    asked = name.strip('"')
    if not told.catalog.is_published(asked):
        known = told.catalog.public_table(asked)
        if known is None:
            raise ProgrammingError("there is no such table", hint="\\d names all tables")
        released = {each.name: each for each in told.manifest.tables}
        if known not in released:
            rows = [[*column] for column in told.catalog.tables[known]]
            return listing(["column", "type"], rows, display)
        public = released[known]
        rows = [[c.name, c.type, "unique" * (c.name == public.key)] for c in public.columns]
        return listing(["column", "type", "key"], rows, display)
    rows = [
        [c.name, "public" if c.grouping else "public, measure", c.type, "", "", ""]
        for c in told.manifest.public
    ]
    rows += [
        [c.name, "sensitive", c.type, c.mechanism, retention(c.channel), domain(c.domain)]
        for c in told.manifest.sensitive
    ]
    order = {name: i for i, (name, _) in enumerate(told.catalog.columns)}
    rows.sort(key=lambda row: order.get(row[0], len(order)))
    heading = ["column", "role", "type", "mechanism", "retention", "domain"]
    return "\n".join([listing(heading, rows, display), *_promises(told.manifest)])


def retention(channel: Channel) -> str:
    """How much is kept, where a channel is made of that; a range where values differ.

    >>> from privsql.channels import FineGrain, Uniform
    >>> retention(Uniform(0.5, 3)), retention(FineGrain([0.2, 0.5, 0.25]))
    ('0.5', '0.2 to 0.5')
    """
    kept = getattr(channel, "retention", None)
    if kept is not None:
        return f"{kept:.6g}"
    each = getattr(channel, "retentions", None)
    return "" if each is None else f"{np.min(each):.6g} to {np.max(each):.6g}"


def domain(given: Domain) -> str:
    """The values of a domain, shortened.

    >>> from privsql.channels import Categorical, Grid
    >>> print(domain(Categorical(("flu", "hiv", "it's"), nullable=True)))
    'flu', 'hiv', 'it''s', NULL
    >>> print(domain(Grid.of(0, 120)))
    0 to 120
    >>> print(domain(Categorical(tuple(f"value {i}" for i in range(50)))))
    'value 0', 'value 1', 'value 2', ... (50 values)
    """
    null = ", NULL" if given.nullable else ""
    if isinstance(given, Grid):
        by = "" if given.step_text in ("1", "1 day") else f" by {given.step_text}"
        return f"{given.lower} to {given.upper}{by}{null}"
    shown: list[str] = []
    tail = f"... ({given.size} values)"
    for i in range(given.points):
        shown.append(literal(given.value_at(i)))
        if len(", ".join(shown)) + len(null) > LONGEST:
            while shown and len(", ".join(shown)) + len(tail) + 2 > LONGEST:
                shown.pop()
            return ", ".join([*shown, tail])
    return ", ".join(shown) + null


def literal(value: object) -> str:
    """A value as SQL writes it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return str(value).lower()
    text = str(value).replace("'", "''")
    return f"'{text}'"


def _promises(manifest: Manifest) -> list[str]:
    """What is promised, and what is not answered."""
    return [printable(manifest.privacy.statement()), f"Policy: {policy_text(manifest.policy)}."]


def policy_text(policy: Policy) -> str:
    """What is not answered.

    >>> print(policy_text(Policy()))
    personal groups: refuse; at least 10 rows behind a sensitive answer
    """
    said = [f"personal groups: {policy.personal_groups}"]
    if policy.min_rows:
        said.append(f"at least {policy.min_rows} rows behind a sensitive answer")
    if policy.rows == "allow":
        said.append("published rows can be listed")
    return "; ".join(said)
