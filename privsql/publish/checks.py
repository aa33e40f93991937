"""Checks before any row is read: names, types, units, and files that would be overwritten."""

from __future__ import annotations

from pathlib import Path

from privsql.errors import DataError, OperationalError, ProgrammingError, how_many
from privsql.publish.groups.units import rows_per_unit, rows_told
from privsql.publish.keys.ledger import ROW
from privsql.publish.report import Notes
from privsql.publish.source import Source, readable
from privsql.release.names import RESERVED
from privsql.release.reading import folded
from privsql.release.spec import Spec, check_source_columns

# Types whose values groups cannot be told apart by, as DuckDB calls them.
NESTED = {"list", "array", "struct", "map", "union", "variant"}


def check_columns(spec: Spec, raw: Source) -> None:
    """Refuse a source whose columns the spec does not fit, or that no release can hold."""
    check_source_columns(spec, raw.names)
    reserved = [name for name in raw.names if name.casefold().startswith(RESERVED)]
    if reserved:
        raise ProgrammingError(
            f"{how_many(len(reserved), 'column begins', 'columns begin')} with {RESERVED}, which is"
            " reserved",
            hint="rename them in the source",
        )
    raw.check_types([column.name for column in spec.public])
    kinds = {
        folded(name): kind.id
        for name, kind in zip(raw.relation.columns, raw.relation.types, strict=True)
    }
    nested = [c.name for c in spec.public if c.grouping and kinds[folded(c.name)] in NESTED]
    if nested:
        raise DataError(
            f"column{'s' * (len(nested) > 1)} {', '.join(nested)}: lists and structures cannot"
            " distinguish personal groups",
            hint="take them apart in the source, drop them, or write grouping = false",
        )


def check_units(spec: Spec, raw: Source, notes: Notes) -> int:
    """Rows of a person, at most; where they are several, their losses add and it is said."""
    if spec.unit == ROW:
        return 1
    with readable():
        most = rows_per_unit(raw.relation, spec.unit)
    if most <= 1:
        return 1
    if spec.protect is not None:
        raise DataError(
            "some persons have several rows, and reconstruction privacy counts rows as people",
            hint=(
                "keep one row per person in the source, or publish without [protect.reconstruction]"
            ),
        )
    notes.warn(
        f"some persons have several rows (at most {most:,}): each row adds to the loss of its"
        " person, so the release promises no epsilon, and error bars that count rows are too"
        " narrow; keep one row per person in the source if it must have one"
    )
    return rows_told(most)


def spare(target: Path, raw: Source, wanted: Spec, spec: str | Path | Spec) -> None:
    """Refuse to overwrite what the release is made from, whatever it is called."""
    needed = {"source": [Path(file.partition("::")[0]) for file in raw.files]}
    needed["spec"] = [] if isinstance(spec, Spec) else [Path(spec)]
    key = None if wanted.key is None else Path(wanted.key)
    needed["key"] = [] if key is None else [key, key.with_name(key.name + ".ledger")]
    for name, paths in needed.items():
        if any(path.exists() and target.exists() and path.samefile(target) for path in paths):
            raise OperationalError(
                f"{target} is the {name} of this publication and would be overwritten",
                hint="name another file for the release",
            )
