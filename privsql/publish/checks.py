"""Checks of a source against its spec, before anything is made of it.

    opened    the source: columns that are missing, and values that do not fit, of all columns
    columns   names and types that no release can hold
    units     how many rows a person has
    files     what would be overwritten

Whoever reads raw rows for a spec opens them here, so that all read the same and none reads rows
that were not checked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from privsql.errors import DataError, OperationalError, ProgrammingError, how_many
from privsql.publish.groups.units import rows_per_unit, rows_told
from privsql.publish.keys.ledger import ROW
from privsql.publish.misfits import misfits
from privsql.publish.recode import moved, recoded, with_observed
from privsql.publish.report import Notes
from privsql.publish.source import Source, in_utc, open_source, readable
from privsql.release.names import RESERVED
from privsql.release.reading import folded
from privsql.release.spec import Spec, check_source_columns

# Types whose values groups cannot be told apart by, as DuckDB calls them.
NESTED = {"list", "array", "struct", "map", "union", "variant"}


@dataclass(frozen=True)
class Opened:
    """Raw rows as a spec recodes them, each value of which fits it."""

    spec: Spec  # observed domains are settled
    source: Source
    rows: int


def open_for(
    spec: Spec,
    paths: Sequence[str] | None = None,
    notes: Notes | None = None,
    *,
    text: Collection[str] = (),
    cast: bool = False,
    show_values: bool = False,
) -> Opened:
    """Open the source of a spec, or other paths, check its values and recode them.

    Refused are sources whose columns are not those of the spec, values that do not fit it, all
    columns at once, and observed domains that show too much.  Columns in ``text`` are text in CSV
    files; ``cast`` allows text in place of numbers; ``show_values`` puts values into the error
    about them.
    """
    joined = spec.sources_joined if paths is None else ()
    given = spec.source if paths is None else paths
    source = open_source(given, joined=joined, on=spec.join, text=(*spec.words, *text))
    with ExitStack() as failing:
        failing.callback(source.close)
        opened = checked(source, spec, notes or Notes(), cast=cast, show_values=show_values)
        failing.pop_all()
    return opened


def checked(
    source: Source,
    spec: Spec,
    notes: Notes,
    *,
    cast: bool = False,
    show_values: bool = False,
    before: int = 0,
) -> Opened:
    """Check the values of an open source, of all columns at once, and recode them.

    Rows are counted after those ``before``.
    """
    check_source_columns(spec, source.names)
    source = in_utc(source, [column.name for column in spec.sensitive])
    found = misfits(source, spec, cast=cast, before=before)
    found.raise_any(show_values=show_values)
    spec = with_observed(source, spec, notes)
    notes.move(*moved(source, spec))
    return Opened(spec, recoded(source, spec), found.rows)


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
    needed["public table"] = [Path(each.source) for each in wanted.tables]
    needed["key"] = [] if key is None else [key, key.with_name(key.name + ".ledger")]
    for name, paths in needed.items():
        if any(path.exists() and target.exists() and path.samefile(target) for path in paths):
            raise OperationalError(
                f"{target} is the {name} of this publication and would be overwritten",
                hint="name another file for the release",
            )
