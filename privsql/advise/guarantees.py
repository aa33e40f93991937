"""From a given guarantee to lines of a spec, with an explanation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from privsql.advise import formulas
from privsql.advise.formulas import AdviseError, Part
from privsql.advise.text import Advice, entry, retention_lines
from privsql.audit.criteria.amplification import breach
from privsql.audit.criteria.small_sums import (
    large_sum_utility,
    large_sum_utility_exact,
    small_sum_privacy,
)
from privsql.audit.criteria.trials import exact_of
from privsql.channels import Channel, Uniform
from privsql.channels.caps import cap_of, chances
from privsql.channels.channel import checked_size
from privsql.publish.staging import private_folder
from privsql.release.columns import EPSILON_LIMIT
from privsql.release.names import MULTIPLICITY, published_table
from privsql.release.spec import INDEPENDENT, ColumnSpec, ProtectSpec, Spec
from privsql.release.store import open_release

# Frequencies that a group's largest one is rounded up to, as publishing does.
LEVELS = (0.125, 0.25, 0.5, 1.0)

# The cap that needs no estimate of a group's largest frequency, so that the guarantee is sure.
SURE = "one"

# A prior whose rise is told, and the chance at which large sums are.
PRIOR = 0.1
LARGE = 0.05

# Mechanisms whose epsilon a retention decides.
BOUNDED = ("uniform", "replace")


@dataclass(frozen=True)
class Columns:
    """The columns to advise on: names with the chance of their rarest replacement."""

    parts: tuple[tuple[str, float], ...]
    others: tuple[tuple[str, float], ...] = ()  # further sensitive ones, with their epsilon
    named: bool = True  # whether a spec names them


def columns_of(spec: Spec | None, names: Sequence[str], values: Sequence[int]) -> Columns:
    """Columns from a spec, or from numbers of values."""
    if spec is None:
        if names:
            raise AdviseError("a column is named, and there is no spec", hint="give the spec")
        sizes = [checked_size(each) for each in values]
        if not sizes:
            raise AdviseError(
                "the number of values of the column is not known", hint="give --values 3, or a spec"
            )
        if min(sizes) < 2:
            raise AdviseError("a column with a single value carries no information")
        several = len(sizes) > 1
        labels = [f"column_{i + 1}" if several else "column" for i in range(len(sizes))]
        pairs = zip(labels, sizes, strict=True)
        return Columns(tuple((name, 1 / size) for name, size in pairs), named=False)
    if values:
        raise AdviseError("the spec gives the number of values already", hint="leave --values out")
    wanted = [spec.column(name) for name in names] or [
        column for column in spec.sensitive if column.mechanism in BOUNDED
    ]
    for column in wanted:
        _check_bounded(column)
    if not wanted:
        raise AdviseError(
            f"the spec has no column that is {' or '.join(BOUNDED)}",
            hint="only their retention decides an epsilon",
        )
    chosen = {column.name for column in wanted}
    return Columns(
        tuple({c.name: (c.name, rarest_of(c)) for c in wanted}.values()),
        tuple((c.name, epsilon_in_spec(c)) for c in spec.sensitive if c.name not in chosen),
    )


def advise_epsilon(total: float, columns: Columns, split: str, wanted: str) -> Advice:
    """A total epsilon, shared out over the columns."""
    parts = formulas.split_epsilon(total, columns.parts, split)
    advice = _retentions(parts, columns, wanted, split)
    if not columns.others:
        return advice
    # A belief in one column may rise by what another one shows: only the total is a promise.
    caution = (
        f"this goal covers {', '.join(part.name for part in parts)} only, not the"
        f" release: {', '.join(name for name, _ in columns.others)} add to its epsilon"
    )
    return replace(advice, warnings=(*advice.warnings, caution))


def advise_s(s: float, rho1: float, rho2: float, columns: Columns) -> Advice:
    """(s, rho1, rho2), one retention for all columns."""
    count = len(columns.parts)
    kept = formulas.retention_for_s(s, rho1, rho2, count)
    parts = [Part(n, q, kept, formulas.epsilon_of(kept, q)) for n, q in columns.parts]
    wanted = (
        f"goal: no ({s:g}, {rho1:g}, {rho2:g}) breach: for a set of values at most {s:g} times"
        f" as likely as by chance, a belief of {rho1:g} stays below {rho2:g}"
    )
    if count > 1:
        wanted += f"; for sets over all {count} columns, the same retention for each"
    advice = _retentions(parts, columns, wanted, "retention")
    caution = "this guarantee is about beliefs in such sets only; epsilon bounds all of them"
    return replace(advice, meaning=(*advice.meaning, caution))


def advise_groups(
    relative_error: float,
    probability: float,
    *,
    spec: Spec | None,
    source: Sequence[str] | None,
    columns: Columns,
    retention: float | None,
    people: float | None,
    seed: int | None,
) -> Advice:
    """(lambda, delta): the caps of personal groups, and what a source keeps under them."""
    error, chance = formulas.checked_lambda(relative_error, probability)
    wanted = (
        f"goal: ({error:g}, {chance:g}) reconstruction privacy: no Chernoff bound below"
        f" {chance:g} on the chance that a personal group's estimate is {error:.0%} too small"
    )
    if people is not None:
        if any(rarest <= 0 for _, rarest in columns.parts):
            raise AdviseError("a value is never drawn", hint="give it a replacement probability")
        sizes = [1 / rarest for _, rarest in columns.parts]
        kept = min(formulas.retention_for_groups(people, m, error, chance) for m in sizes)
        parts = [Part(n, q, kept, formulas.epsilon_of(kept, q)) for n, q in columns.parts]
        wanted += f", for groups of up to {people:g} people without cutting any"
        return _retentions(parts, columns, wanted, "retention")
    spec = _protected(spec, error, chance)
    channels = _channels(columns, spec, retention)
    stayed: list[str] = []
    counted: dict[str, int] = {}
    if spec is not None and (source is not None or spec.source or spec.sources_joined):
        channels, stayed, counted = _kept(spec, source, seed)
    cap = SURE if spec is None or spec.protect is None else spec.protect.cap
    shown = LEVELS[-1:] if cap == SURE else LEVELS
    levels = [_level(f, channels, error, chance) for f in LEVELS]
    lines = [
        *(level.text(error) for level in levels if level.frequency in shown),
        "the exact chance is larger than the Chernoff bound suggests",
        "rows that stay carry a weight, so that totals stay right; errors grow with it",
        *stayed,
    ]
    caps = [{"frequency": f.frequency, "rows": f.cap, "within": f.within} for f in levels]
    numbers = {"lambda": error, "delta": chance, "caps": caps, **counted}
    toml = f'[protect.reconstruction]\nlambda = {error!r}\ndelta = {chance!r}\ncap = "{cap}"'
    warnings = []
    if cap == SURE:
        lines.append(
            'cap = "grid" keeps more rows where no value dominates a group, but relies on'
            " estimates: groups whose most frequent value is estimated too low keep too many"
        )
    elif spec is None or spec.protect is None or spec.protect.source != "raw":
        warnings.append(
            f'cap = "{cap}", as in the spec, relies on estimated frequencies: groups whose most'
            " frequent value is estimated too low keep too many rows, and an audit with raw data"
            f' says so; cap = "{SURE}" is sure'
        )
    if levels[-1].cap < 1:
        warnings.append(
            "a single row already exceeds the cap of a group with one value: no release can"
            " satisfy this"
        )
    return Advice(wanted, toml, tuple(lines), numbers, tuple(warnings))


def advise_small_sum(
    wanted: float, error: float, alpha: int, spec: Spec | None, names: Sequence[str]
) -> Advice:
    """T_P: the smallest decoy group."""
    c = formulas.smallest_group(wanted, error, alpha)
    got = small_sum_privacy(c, error, alpha)
    name = "column"
    if spec is not None:
        if len(names) != 1:
            raise AdviseError(
                "decoy groups are chosen for one column at a time", hint="name it with --column"
            )
        column = spec.column(names[0])
        if column.role != "sensitive":
            raise AdviseError(f"{column.name} is {column.role}", hint="name a sensitive column")
        name = column.name
        if column.domain is not None and column.domain.size < c:
            raise AdviseError(
                f"decoy groups of {c} need {c} different values, and {name} has"
                f" {column.domain.size}",
                hint="ask for a lower T_P",
            )
    lines = (
        f"a sum of 1 to {alpha} comes out more than {error:.0%} off with chance {got:.4g} or more",
        f"no value may have a share above {0.9 / c:.3g} of the rows (.9/c)",
        f"sums from {large_sum_utility_exact(c, error, LARGE):,} on are within {error:.0%} with"
        f" chance {1 - LARGE:g} (by Chebyshev from {large_sum_utility(c, error, LARGE):,.0f})",
        "decoy groups are formed from raw values: the release claims no epsilon",
    )
    return Advice(
        f"goal: small sum privacy T_P of {wanted:g} at e = {error:g} for sums up to {alpha}",
        entry(name, ['mechanism = "decoy"', f"group_size = {c}"]),
        lines,
        {"group_size": c, "small_sum_privacy": got, "error": error, "alpha": alpha},
    )


def _retentions(parts: Sequence[Part], columns: Columns, wanted: str, split: str) -> Advice:
    lines, warnings = [], []
    for part in parts:
        posterior = breach(PRIOR, math.exp(min(part.epsilon, 700.0))).high
        truth = part.retention + (1 - part.retention) * part.rarest
        lines.append(
            f"{part.name}: epsilon {part.epsilon:.4g} (gamma {math.exp(part.epsilon):.4g}); a"
            f" belief of {PRIOR:.0%} rises to at most {posterior:.1%}; the rarest value is"
            f" published as it is with chance {truth:.4g}"
        )
        if part.epsilon > EPSILON_LIMIT:
            warnings.append(
                f"epsilon of {part.name} is above {EPSILON_LIMIT:g}: published values reveal"
                " originals"
            )
    total = sum(part.epsilon for part in parts)
    if len(parts) > 1:
        how = "split equally" if split == "equal" else "one retention for all"
        each = ", ".join(f"{part.name} {part.epsilon:.4g}" for part in parts)
        lines.append(f"epsilon {total:.4g} in all, {how}: {each}")
    if columns.others:
        total += sum(epsilon for _, epsilon in columns.others)
        each = ", ".join(
            f"{name} {epsilon:.4g}" if math.isfinite(epsilon) else f"{name} without epsilon"
            for name, epsilon in columns.others
        )
        lines.append(
            f"with the other sensitive columns, as the spec has them ({each}):"
            f" epsilon {total:.4g} in all"
            if math.isfinite(total)
            else f"other sensitive columns, as the spec has them: {each}; no epsilon in all"
        )
    lines.append("for one publication; publishing the same people anew without a key adds to it")
    return Advice(
        wanted,
        "\n\n".join(
            entry(
                part.name,
                [
                    *['mechanism = "uniform"'] * (not columns.named),
                    *retention_lines(f"{part.retention:g}", part.epsilon),
                ],
            )
            for part in parts
        ),
        tuple(lines),
        {
            "columns": [
                {"name": p.name, "retention": p.retention, "epsilon": p.epsilon} for p in parts
            ],
            "epsilon": sum(part.epsilon for part in parts),
            "epsilon_of_release": total,
        },
        tuple(warnings),
    )


def _check_bounded(column: ColumnSpec) -> None:
    if column.mechanism not in BOUNDED:
        kind = column.role if column.role != "sensitive" else column.mechanism
        raise AdviseError(
            f"{column.name} is {kind}, and no retention decides its epsilon",
            hint=f"name a column that is {' or '.join(BOUNDED)}",
        )
    if column.domain is None:
        raise AdviseError(
            f"the domain of {column.name} is observed, so its size is not known here",
            hint="list the domain in the spec (an observed one has no epsilon), or give --values",
        )


def rarest_of(column: ColumnSpec) -> float:
    """The chance of the rarest replacement, q = 1/m for a uniform column."""
    if column.replacing:
        return min(column.replacing)
    return 1 / (column.domain.size if column.domain else 1)


def epsilon_in_spec(column: ColumnSpec) -> float:
    """Epsilon of a column as the spec has it."""
    channel = column.channel()
    return math.inf if channel is None else channel.epsilon


@dataclass(frozen=True)
class _Level:
    """A level of the largest frequency: the cap, and the exact chance to be within lambda."""

    frequency: float
    cap: float
    within: float

    def text(self, error: float) -> str:
        group = f"a group whose most frequent value has up to {self.frequency:.1%} of it"
        if not math.isfinite(self.cap):
            return f"{group} is never cut"
        return (
            f"{group} keeps at most {max(1, math.floor(self.cap)):,} rows; from so many an"
            f" estimate is within {error:.0%} with an exact chance of {self.within:.4f}"
        )


def _level(frequency: float, channels: Sequence[Channel], error: float, chance: float) -> _Level:
    """The smallest cap of any value of any column."""
    cap, kept, false = math.inf, 1.0, 0.0
    for channel in channels:
        own, others = chances(channel)
        found = cap_of(frequency, own, others, error, chance)
        least = int(found.argmin())
        if found[least] < cap:
            cap, kept, false = float(found[least]), float(own[least]), float(others[least])
    if not math.isfinite(cap):
        return _Level(frequency, cap, math.nan)
    rows = max(1, math.floor(cap))
    tails = exact_of(rows, round(rows * frequency), kept, false, error)
    return _Level(frequency, cap, tails.within)


def _protected(spec: Spec | None, error: float, chance: float) -> Spec | None:
    if spec is None:
        return None
    for column in spec.sensitive:
        if column.mechanism not in INDEPENDENT:
            raise AdviseError(
                f"{column.name} is {column.mechanism}, and reconstruction privacy needs"
                " independent rows",
                hint=f"use one of {', '.join(INDEPENDENT)}",
            )
    before = spec.protect or ProtectSpec(error, chance, cap=SURE)
    return replace(
        spec, protect=replace(before, relative_error=error, probability=chance), key=None
    )


def _channels(columns: Columns, spec: Spec | None, retention: float | None) -> list[Channel]:
    if spec is None:
        if retention is None:
            raise AdviseError(
                "the cap of a group depends on the retention", hint="give --retention, or a spec"
            )
        return [Uniform(retention, round(1 / rarest)) for _, rarest in columns.parts]
    if retention is not None:
        raise AdviseError("the spec has the retention", hint="leave --retention out")
    found = [column.channel() for column in spec.sensitive]
    known = [channel for channel in found if channel is not None]
    if len(known) < len(found) and not spec.source and not spec.sources_joined:
        raise AdviseError(
            "what a column keeps follows from the data, and there is no source",
            hint="give --source",
        )
    return known


def _kept(
    spec: Spec, source: Sequence[str] | None, seed: int | None
) -> tuple[list[Channel], list[str], dict[str, int]]:
    """Publish once into a folder of ours, count what stayed, delete it: in words and numbers."""
    from privsql.publish.job import publish

    with private_folder() as folder:
        out = folder / "pilot.duckdb"
        report = publish(source, out, spec=spec, seed=seed)
        manifest = report.manifest
        count = f"sum({MULTIPLICITY})" if manifest.multiplicity else "count(*)"
        with open_release(out).connection() as con:
            sql = f"SELECT {count} FROM {published_table(manifest.table)}"  # noqa: S608
            kept = int(con.execute(sql).fetchall()[0][0])
    cut = next((fact for fact in report.facts if fact.endswith("cut down")), "")
    stayed = (
        f"of this source {kept:,} of {report.rows:,} rows would stay ({kept / report.rows:.1%});"
        f" {cut}"
    )
    channels = [column.channel for column in manifest.sensitive]
    return channels, [stayed], {"rows": report.rows, "kept": kept}
