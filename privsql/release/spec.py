r"""The spec: the publisher's choices, read from TOML and checked before any row is read.

>>> spec = parse_spec('''
... [release]
... table = "patients"
... [columns.name]
... role = "drop"
... [columns.job]
... role = "public"
... [columns.disease]
... role = "sensitive"
... mechanism = "uniform"
... epsilon = 1
... domain = ["flu", "hiv", "none"]
... ''')
>>> [column.name for column in spec.sensitive], spec.column("disease").conversion
(['disease'], 'epsilon = 1 over 3 values is retention 0.364')

Everything that is wrong is said at once, each mistake with its place:

>>> parse_spec('''[release]
... [columns.age]
... role = "sensitiv"
... ''')
Traceback (most recent call last):
privsql.release.reading.SpecError: ERROR 42601 [spec]: 2 mistakes in spec.toml
spec.toml:1 [release]: needs table, the name of the published table (such as table = "patients")
spec.toml:3 [columns.age] role: must be one of "drop", "public", "sensitive", not "sensitiv"
    (did you mean "sensitive"?)
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from privsql.channels import Categorical, Domain
from privsql.channels.domain import MATERIALISE_LIMIT
from privsql.errors import OperationalError, ProgrammingError, how_many
from privsql.release.columns import ColumnSpec as ColumnSpec
from privsql.release.columns import (
    own_epsilon,
    read_sensitive,
    settled,
    states_strength,
)
from privsql.release.keys import names
from privsql.release.manifest import Leverage, Policy, Protection
from privsql.release.names import RESERVED
from privsql.release.reading import (
    MOST_CHARACTERS,
    SHOWN,
    Mistake,
    Report,
    Section,
    SpecError,
    did_you_mean,
    folded,
    listed,
    opened,
    place_of,
    quoted,
)
from privsql.release.recoding import read_public

# What a spec asks for in these stands in the manifest as it is.
ProtectSpec = Protection
PolicySpec = Policy

ROLES = ("drop", "public", "sensitive")
UNDECIDED = "decide"
COLUMN_KEYS = names("columns")
PUBLIC_KEYS = names("columns", "public")
PRIVATE_KEYS = names("columns", "sensitive")
TABLES = {
    "release": names("release"),
    "columns": (),
    "groups": names("groups"),
    "protect": ("reconstruction",),
    "policy": names("policy"),
    "tables": (),
}
PROTECT_KEYS = names("protect.reconstruction")
TABLE_KEYS = names("tables")

# Mechanisms whose trials are independent, as the cap of [protect.reconstruction] needs them.
INDEPENDENT = ("uniform", "replace", "finegrain", "matrix")


@dataclass(frozen=True)
class GroupsSpec:
    """How public values merge into generalised personal groups (RECON 3.4)."""

    merge: str = "chi2"  # or "none"
    significance: float = 0.05
    source: str = "published"  # or "raw", which costs the release its epsilon
    df: str = "m-1"  # or "m", as the paper's text has it
    minimum: int = 0  # values rarer than this never link others


@dataclass(frozen=True)
class TableSpec:
    """A public table that is published beside the perturbed one, to be joined with it."""

    name: str
    source: str  # a file
    key: str  # a column that identifies its rows


@dataclass(frozen=True)
class Spec:
    """The publisher's choices for one release."""

    table: str
    source: tuple[str, ...] = ()  # paths or globs, "file.duckdb::table"; may come later
    unit: str = "row"
    key: str | None = None
    epsilon: float | None = None  # of the whole release, shared out over columns
    columns: tuple[ColumnSpec, ...] = ()
    groups: GroupsSpec = GroupsSpec()
    protect: ProtectSpec | None = None
    policy: PolicySpec = field(default_factory=PolicySpec)
    tables: tuple[TableSpec, ...] = ()
    join: str | None = None
    sources_joined: tuple[tuple[str, ...], ...] = ()  # the parts that ``join`` puts side by side
    name: str = field(default="spec.toml", compare=False)

    @property
    def sensitive(self) -> tuple[ColumnSpec, ...]:
        """The columns that are perturbed."""
        return tuple(column for column in self.columns if column.role == "sensitive")

    @property
    def words(self) -> tuple[str, ...]:
        """Columns that are text, whatever a CSV file makes of them.

        Their domain lists words, or they are recoded by what is written.
        """
        return tuple(
            column.name
            for column in self.columns
            if column.recoding.of_text
            or (isinstance(column.domain, Categorical) and column.domain.kind == "text")
        )

    @property
    def undecided(self) -> tuple[ColumnSpec, ...]:
        """The columns whose role is still to be decided."""
        return tuple(column for column in self.columns if column.role == UNDECIDED)

    @property
    def public(self) -> tuple[ColumnSpec, ...]:
        """The columns that are published as they are."""
        return tuple(column for column in self.columns if column.role == "public")

    def column(self, name: str) -> ColumnSpec:
        """The column of this name, in whatever case, as in SQL."""
        for column in self.columns:
            if folded(column.name) == folded(name):
                return column
        near = did_you_mean(name, [column.name for column in self.columns])
        raise ProgrammingError(f"the spec has no column {quoted(name)}", hint=near)


def read_spec(path: str | os.PathLike[str]) -> Spec:
    """Read a spec from a file."""
    name = os.fspath(path)
    try:
        with Path(name).open("rb") as file:  # no more than is looked at: it may be anything
            text = file.read(4 * MOST_CHARACTERS).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        mistake = Mistake("", line, "is not UTF-8", "save the file as UTF-8")
        raise SpecError([mistake], name=Path(name).name) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        raise OperationalError(
            f"the spec {quoted(name)} cannot be read: {reason}",
            hint="privsql init SOURCE -o spec.toml writes one to start from",
        ) from None
    return parse_spec(text, name=Path(name).name)


def parse_spec(text: str, *, name: str = "spec.toml") -> Spec:
    """Read a spec from its text; raises ``SpecError`` with all mistakes at once."""
    report, top = opened(text, name)
    homes = {key: f"[{table}]" for table, keys in TABLES.items() for key in keys}
    top.unknown(tuple(TABLES), homes)
    columns = _read_columns(top)
    groups = _read_groups(top)
    protect = _read_protect(top)
    if protect is not None:
        for column in columns:
            if column.mechanism and column.mechanism not in INDEPENDENT:
                what = "is incompatible with [protect.reconstruction], which needs independent rows"
                place = ("columns", column.name)
                report.add(place, "mechanism", what, f"use one of {listed(INDEPENDENT)}")
            if column.domain is not None and column.domain.size > MATERIALISE_LIMIT:
                # Frequencies of every value are looked at, group by group.
                what = f"[protect.reconstruction] takes at most {MATERIALISE_LIMIT} values"
                report.add(("columns", column.name), "domain", what, "coarsen its step")
    policy = _read_policy(top, default="flag" if protect is not None else "refuse")
    spec = Spec("", columns=columns, groups=groups, protect=protect, policy=policy, name=name)
    spec = _read_release(top, spec)
    spec = replace(spec, tables=_read_tables(top, spec.table))
    if spec.epsilon is not None and not report.mistakes:
        spec = _share_out(report, spec, spec.epsilon)
    report.raise_if_any()
    return spec


def refuse_undecided(spec: Spec) -> None:
    """Refuse a spec in which the role of a column is still to be decided."""
    hint = f"write {' or '.join(map(quoted, ROLES))}"
    mistakes = [
        Mistake(place_of(("columns", c.name), "role"), c.line, "is still to be decided", hint)
        for c in spec.undecided
    ]
    if mistakes:
        count = how_many(len(mistakes), "column is", "columns are")
        said = f"{count} still to be decided in {spec.name}"
        raise SpecError(mistakes, name=spec.name, said=said)


def with_domain(column: ColumnSpec, domain: Domain, *, name: str = "spec.toml") -> ColumnSpec:
    """Complete a column whose domain was observed; raises ``SpecError`` if it cannot be.

    >>> from privsql.channels import Categorical
    >>> wanted = ColumnSpec("a", "sensitive", mechanism="uniform", wanted_epsilon=1.0)
    >>> with_domain(wanted, Categorical(("x", "y", "z"))).conversion
    'epsilon = 1 over 3 values is retention 0.364'
    """
    path = ("columns", column.name)
    report = Report(name, {path: column.line} if column.line else {})
    known = replace(column, domain=domain, nullable=domain.nullable)
    done = settled(known, Section(report, path, {}).wrong)
    report.raise_if_any()
    return done


def check_source_columns(spec: Spec, names: Sequence[str]) -> None:
    """Refuse a spec that lacks a column of the source, or names one that does not exist."""
    known = {folded(column.name) for column in spec.columns}
    there = {folded(name) for name in names}
    missing = [name for name in names if folded(name) not in known]
    mistakes: list[Mistake] = []
    for column in spec.columns:
        if folded(column.name) in there:
            continue
        place = place_of(("columns", column.name))
        for key, value in (("unit", spec.unit), ("join", spec.join)):
            if folded(column.name) == folded(value or ""):
                place = place_of(("release",), key)
        near = did_you_mean(column.name, missing or names) if len(mistakes) < SHOWN else None
        what = f"the source has no column {quoted(column.name)}"
        mistakes.append(Mistake(place, column.line, what, near))
    for name in missing:
        place = place_of(("columns", name))
        hint = f"add {place} with role = {' or '.join(map(quoted, ROLES))}"
        mistakes.append(Mistake(place, None, "this column of the source has no role", hint))
    if mistakes:
        raise SpecError(mistakes, name=spec.name)


SHARES = {1: "all", 2: "half", 3: "a third", 4: "a quarter"}


def _share_out(report: Report, spec: Spec, total: float) -> Spec:
    """Give the columns that state no strength equal shares of what the others leave."""
    taken, place = 0.0, ("release",)
    sharing = [column for column in spec.sensitive if not states_strength(column)]
    for column in spec.sensitive:
        if column in sharing:
            continue
        own = own_epsilon(column)
        if own is None or math.isinf(own):
            why = "has no epsilon" if own else "has an epsilon that the spec alone does not tell"
            what = f"{why}, so the release cannot keep to its own, {total:g}"
            hint = "use uniform or replace with epsilon, or take epsilon out of [release]"
            report.add(("columns", column.name), "mechanism", what, hint)
        else:
            taken += own
    left = total - taken
    if left <= 1e-9 * total and (sharing or left < -1e-9 * total):
        what = f"the columns that state their own take {taken:.3g} of {total:g}"
        what += f", and {listed(column.name for column in sharing)} would have none" * bool(sharing)
        report.add(place, "epsilon", what, "raise it, or lower theirs")
    if report.mistakes or not sharing:
        return spec
    share, count = left / len(sharing), len(sharing)
    part = SHARES.get(count, f"1/{count}")
    of = (
        f"the release's {total:g}" if not taken else f"what others leave of the release's {total:g}"
    )

    def wrong(_key: str, what: str, hint: str | None) -> None:
        if not report.mistakes:
            report.add(place, "epsilon", f"gives {count} columns {share:.3g} each: {what}", hint)

    columns = list(spec.columns)
    for i, column in enumerate(columns):
        if column in sharing:
            given = replace(column, wanted_epsilon=share, share=f"{part} of {of}")
            columns[i] = settled(given, wrong)
    return replace(spec, columns=tuple(columns))


def _read_columns(top: Section) -> tuple[ColumnSpec, ...]:
    section = top.table("columns", "one table per column: [columns.age]")
    if section is None:
        if "columns" not in top:
            top.wrong(None, "no column is given", "name each one: [columns.age]")
        return ()
    columns: list[ColumnSpec] = []
    release = top.data.get("release")
    shared = isinstance(release, dict) and "epsilon" in release
    seen: dict[str, str] = {}
    for name in section.data:
        twin = seen.setdefault(folded(name), name)
        if not name.strip() or "\0" in name or folded(name).startswith(RESERVED):
            what = f"a column needs a name, and none that begins with {RESERVED}"
            section.report.add((*section.path, name), None, what)
        if twin != name:
            what = f"repeats {quoted(twin)}: names that differ only in case are the same in SQL"
            section.report.add((*section.path, name), None, what)
        table = section.table(name, f"[columns.{name}] and below it role = ...")
        if table is not None:
            columns.append(_read_column(table, name, shared=shared))
    # A role that is wrong may have been meant to be that.
    if all(column.role in ("drop", "public") for column in columns):
        what = "no column is sensitive, so nothing would be perturbed"
        section.wrong(None, what, 'give one of them role = "sensitive"')
    return tuple(columns)


def _read_column(section: Section, name: str, *, shared: bool) -> ColumnSpec:
    section.unknown(COLUMN_KEYS)
    if "role" not in section:
        section.wrong(None, "needs a role", f"one of {listed(ROLES)}")
    role = UNDECIDED
    if section.data.get("role") != UNDECIDED:
        role = section.choice("role", ROLES, "")
    private = [key for key in PRIVATE_KEYS if key in section]
    if role in ("drop", "public"):
        hint = 'take it out, or write role = "sensitive" if the column is to be perturbed'
        for key in private:
            section.wrong(key, f"belongs to a sensitive column, and this one is {role}", hint)
    if role in ("drop", "sensitive"):
        for key in PUBLIC_KEYS:
            if key in section:
                section.wrong(key, f"belongs to a public column, and this one is {role}")
    if role == "drop" and "cast" in section:
        section.wrong("cast", "belongs to a column that is published, and this one is drop")
    if role == "sensitive" or (private and not role):  # find its other mistakes as well
        return read_sensitive(section, name, shared=shared)
    column = ColumnSpec(name, role, line=section.report.line(section.path))
    if role != "public":
        return column
    return replace(
        column,
        grouping=section.flag("grouping", default=True),
        accept_unique=section.flag("accept_unique"),
        recoding=read_public(section),
    )


def _read_release(top: Section, spec: Spec) -> Spec:
    release = top.table("release")
    if release is None:
        if "release" not in top:
            top.wrong(None, "there is no [release]", 'write [release] and table = "patients"')
        return spec
    release.unknown(TABLES["release"])
    table = release.text("table")
    if "table" not in release:
        what = "needs table, the name of the published table"
        release.wrong(None, what, 'such as table = "patients"')
    elif table and (not table.isidentifier() or folded(table).startswith(RESERVED)):
        what = f"must be a name of letters, digits and _, and not begin with {RESERVED}"
        release.wrong("table", what, 'such as "patients"')
    source = _paths(release.data.get("source", []))
    if "source" in release and not source:
        release.wrong("source", "must be a path or a list of paths")
    given = release.data.get("sources", [])
    parts = tuple(map(_paths, given)) if isinstance(given, list) else ()
    if "sources" in release and (len(parts) < 2 or not all(parts)):
        hint = 'such as sources = [["a1.csv", "a2.csv"], ["b.csv"]]'
        release.wrong("sources", "must list at least two parts, each a list of paths", hint)
    inside = release.text("source_table")
    if inside is not None:
        if not source or any("::" in path for path in source):
            hint = 'or write source = "file.duckdb::table"'
            release.wrong("source_table", "needs a source that is the path of a DuckDB file", hint)
        source = tuple(f"{path}::{inside}" for path in source)
    unit, join = release.text("unit") or "row", release.text("join")
    if ("join" in release) != ("sources" in release):
        present, absent = ("join", "sources") if "join" in release else ("sources", "join")
        release.wrong(present, f"needs {absent} beside it", "several files as one: source = [...]")
    if "source" in release and "sources" in release:
        release.wrong("sources", "source is given already", "give one of them")
    columns = list(spec.columns)
    for key, wanted in (("unit", unit if unit != "row" else None), ("join", join)):
        named = [column for column in columns if folded(column.name) == folded(wanted or "")]
        if wanted and not named:  # implied
            columns.append(ColumnSpec(wanted, "drop", line=release.report.line(("release", key))))
        elif wanted and named[0].role not in ("drop", ""):
            what = f"{quoted(wanted)} identifies a person, and its role is {named[0].role}"
            release.wrong(key, what, f'write role = "drop" in {place_of(("columns", wanted))}')
    return replace(
        spec,
        table=table or "",
        source=source,
        unit=unit,
        key=release.text("key"),
        epsilon=release.number("epsilon", lambda x: x > 0, "must be a number above 0"),
        columns=tuple(columns),
        join=join,
        sources_joined=parts,
    )


def _paths(given: object) -> tuple[str, ...]:
    """One path or a list of them; nothing if anything else is there."""
    listed = given if isinstance(given, list) else [given]
    paths = tuple(path for path in listed if isinstance(path, str) and path.strip("\0 "))
    return paths if len(paths) == len(listed) else ()


def _read_tables(top: Section, published: str) -> tuple[TableSpec, ...]:
    section = top.table("tables", "one table per public table: [tables.countries]")
    if section is None:
        return ()
    found: list[TableSpec] = []
    taken = {folded(published): "the published table"}
    for name in section.data:
        table = section.table(name, f"[tables.{name}] and below it source = ... and key = ...")
        if table is None:
            continue
        table.unknown(TABLE_KEYS)
        if not name.isidentifier() or folded(name).startswith(RESERVED):
            what = f"must be a name of letters, digits and _, and not begin with {RESERVED}"
            table.wrong(None, what, "such as [tables.countries]")
        elif folded(name) in taken:
            table.wrong(None, f"has the name of {taken[folded(name)]}", "give it another")
        taken[folded(name)] = "another public table"
        for key, example in (("source", "countries.parquet"), ("key", "code")):
            if key not in table:
                table.wrong(None, f"needs {key}", f'such as {key} = "{example}"')
        found.append(TableSpec(name, table.text("source") or "", table.text("key") or ""))
    return tuple(found)


def _read_groups(top: Section) -> GroupsSpec:
    section = top.table("groups")
    if section is None:
        return GroupsSpec()
    section.unknown(TABLES["groups"])
    significance = section.share("significance")
    return GroupsSpec(
        merge=section.choice("merge", ("chi2", "none"), "chi2"),
        significance=significance or GroupsSpec.significance,
        source=section.choice("from", ("published", "raw"), "published"),
        df=section.choice("df", ("m-1", "m"), "m-1"),
        minimum=section.whole("minimum", 0, 0),
    )


def _read_protect(top: Section) -> ProtectSpec | None:
    outer = top.table("protect")
    if outer is None:
        return None
    outer.unknown(TABLES["protect"], dict.fromkeys(PROTECT_KEYS, "[protect.reconstruction]"))
    section = outer.table("reconstruction")
    if section is None:
        if "reconstruction" not in outer:
            outer.wrong(None, "holds nothing", "write [protect.reconstruction]")
        return None
    section.unknown(PROTECT_KEYS)
    for key in ("lambda", "delta"):
        if key not in section:
            section.wrong(None, f"needs {key}", f"such as {key} = 0.3")
    return ProtectSpec(
        section.number("lambda", lambda x: x > 0, "must be a number above 0") or 0.0,
        section.share("delta") or 0.0,
        cap=section.choice("cap", ("grid", "one", "exact"), "grid"),
        scaling=section.choice("scaling", ("weight", "duplicate"), "weight"),
        source=section.choice("from", ("published", "raw"), "published"),
    )


def _read_policy(top: Section, *, default: str) -> PolicySpec:
    section = top.table("policy")
    if section is None:
        return PolicySpec(personal_groups=default)
    section.unknown(TABLES["policy"])
    return PolicySpec(
        personal_groups=section.choice("personal_groups", ("refuse", "flag", "allow"), default),
        min_rows=section.whole("min_rows", 0, 10),
        differences=section.choice("differences", ("check", "ignore"), "check"),
        rows=section.choice("rows", ("deny", "allow"), "deny"),
        leverage=_read_leverage(section),
        always=section.texts("always"),
    )


def _read_leverage(section: Section) -> Leverage:
    inner = section.table("leverage")
    if inner is None:
        return Leverage()
    inner.unknown(("any", "total"))
    default = Leverage()
    any_ = inner.share("any") if "any" in inner else default.any
    total = inner.share("total") if "total" in inner else min(default.total, any_ or 0.0)
    made = Leverage(any_ or 0.0, total or 0.0)
    if not 0 < made.total <= made.any < 1:
        inner.wrong(None, "needs 0 < total <= any < 1", "such as { any = 0.9, total = 0.8 }")
    return made
