"""A publication from start to end: a spec and raw rows to a release.

    spec ── checked before any row is read
         ── rows perturbed batch by batch, staged in temporary tables
         ── groups merged and numbered, from what was published
         ── groups cut down (SPS), equal rows stored once
         ── written in the order of the published content, with the manifest
         ── renamed into view, and entered in the ledger

All that a release shows besides perturbed values is computed from published ones, unless
the spec asks for the papers' way; then the manifest says so and no epsilon is claimed.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
from duckdb import ColumnExpression, FunctionExpression

from privsql.channels import Channel
from privsql.channels.domain import MATERIALISE_LIMIT
from privsql.errors import DataError
from privsql.files import commit
from privsql.publish.checks import check_columns, check_units, spare
from privsql.publish.database import working
from privsql.publish.groups.numbering import Grouping, group_rows, mark, marked
from privsql.publish.groups.sampling import cut_down
from privsql.publish.keys.ledger import ROW
from privsql.publish.perturb.draws import Draws, open_draws, spec_beside
from privsql.publish.perturb.rows import (
    Progress,
    perturb_whole,
    published_batches,
    published_channel,
)
from privsql.publish.prepare import WHOLE, Column, resolve
from privsql.publish.report import Notes, PublishReport
from privsql.publish.rounded import Rounding
from privsql.publish.source import Source, open_source
from privsql.publish.staging import staging
from privsql.release import manifest as m
from privsql.release.names import GROUP, MULTIPLICITY, WEIGHT, domain_table, quoted
from privsql.release.reading import folded
from privsql.release.spec import Spec
from privsql.release.store import open_release, write_manifest


def publish(
    source: str | Sequence[str] | None,
    out: str | Path,
    *,
    spec: str | Path | Spec,
    force: bool = False,
    seed: int | None = None,
    accept_loss: bool = False,
    progress: Progress | None = None,
) -> PublishReport:
    """Publish a table as a release: one DuckDB file with the published rows and the manifest.

    ``source`` overrides the spec's.  ``seed`` is for tests and makes the release unsafe.
    Nothing is left on disk unless all of it succeeded.
    """
    wanted = spec if isinstance(spec, Spec) else spec_beside(Path(spec))
    target = Path(out)
    notes = Notes()
    paths = wanted.source if source is None else [source] if isinstance(source, str) else source
    with ExitStack() as held:
        folder = held.enter_context(staging(target, force=force))
        joined = wanted.sources_joined if source is None else ()
        opened = open_source(paths, joined=joined, on=wanted.join, text=wanted.words)
        raw = held.enter_context(closing(opened))
        check_columns(wanted, raw)
        spare(target, raw, wanted, spec)
        check_units(wanted, raw, notes)
        draws = open_draws(wanted, seed, notes)
        if draws.ledger is not None:
            held.enter_context(draws.ledger.locked())
            draws = replace(draws, state=f"{folded(wanted.table)} {raw.state()}")
        types = {folded(name): kind for name, kind in raw.columns}
        columns = [resolve(each, types[folded(each.name)], raw, notes) for each in wanted.sensitive]
        made = folder / "release.duckdb"
        with closing(working(made, folder)) as con:
            manifest, rows, record = _make(
                con, wanted, raw, columns, draws, notes, accept_loss, progress or _silent
            )
        open_release(made)  # what cannot be opened must not replace what can
        # Entered before it is in view: after a crash in between the ledger knows of one
        # publication too many, never of one too few.
        if record is not None:
            record()
        commit(made, target)
    return PublishReport(
        target, manifest, rows, tuple(notes.facts), tuple(notes.warnings), notes.rounded
    )


def _make(
    con: duckdb.DuckDBPyConnection,
    spec: Spec,
    raw: Source,
    columns: Sequence[Column],
    draws: Draws,
    notes: Notes,
    accept_loss: bool,
    progress: Progress,
) -> tuple[m.Manifest, int, Callable[[], None] | None]:
    public = [column.name for column in spec.public]
    con.execute("CREATE SCHEMA privsql")
    rows = _stage(con, spec, raw, public, columns, draws, notes, progress)
    channels = _channels(con, columns, draws)
    grouping = group_rows(con, spec, raw, columns, notes)
    weighted = spec.protect is not None and spec.protect.scaling == "weight"
    if spec.protect is not None:
        mark(con, grouping.columns)
        cut_down(con, spec.protect, columns, channels, raw, draws.generator("sps"), notes)
    names = [*public, *(column.name for column in columns)]
    multiplicity = _write(con, spec.table, names, grouping, weighted=weighted)
    _write_domains(con, columns)
    release = secrets.token_hex(16)
    stored = con.table(f"release.main.{quoted(spec.table)}")
    kinds = dict(zip(stored.columns, map(str, stored.types), strict=True))
    sensitive = tuple(
        m.SensitiveColumn(
            column.name,
            kinds[column.name],
            str(column.spec.mechanism),
            column.domain,
            channels[column.name],
            math.inf if column.spec.mechanism in WHOLE else channels[column.name].epsilon,
        )
        for column in columns
    )
    privacy, record = _account(spec, sensitive, draws, release, accept_loss, notes)
    manifest = m.Manifest(
        release=release,
        software=f"privsql {version('privsql')}",
        created=datetime.now(UTC).date().isoformat(),
        table=spec.table,
        public=tuple(
            m.PublicColumn(each.name, kinds[each.name], each.grouping) for each in spec.public
        ),
        sensitive=sensitive,
        rows=int(stored.aggregate([FunctionExpression("count")]).fetchall()[0][0]),
        grouped=grouping.stored,
        weighted=weighted,
        multiplicity=multiplicity,
        privacy=privacy,
        groups=_groups(spec, grouping),
        protection=None
        if spec.protect is None
        else m.Protection(
            spec.protect.relative_error,
            spec.protect.probability,
            spec.protect.cap,
            spec.protect.scaling,
            spec.protect.source,
        ),
        policy=m.Policy(
            spec.policy.personal_groups,
            spec.policy.min_rows,
            spec.policy.differences,
            spec.policy.rows,
        ),
    )
    write_manifest(con, manifest)
    con.execute("CHECKPOINT")
    return manifest, rows, record


def _groups(spec: Spec, grouping: Grouping) -> m.Groups:
    return m.Groups(
        merge=spec.groups.merge if not grouping.fell_back else "none",
        significance=spec.groups.significance,
        source=spec.groups.source,
        df=spec.groups.df,
        minimum=spec.groups.minimum,
        columns=grouping.columns,
        count=grouping.count,
    )


def _stage(
    con: duckdb.DuckDBPyConnection,
    spec: Spec,
    raw: Source,
    public: Sequence[str],
    columns: Sequence[Column],
    draws: Draws,
    notes: Notes,
    progress: Progress,
) -> int:
    """Perturb all rows into the temporary table ``staged``."""
    unit = None if spec.unit == ROW else spec.unit
    rounding = Rounding()
    whole = perturb_whole(raw, columns, draws.generator, rounding)
    read = 0
    for count, table in published_batches(
        raw,
        public,
        columns,
        # Row k of a changed source is somebody else, who must not share k's draws.
        f"{spec.table} {draws.state}",
        unit,
        draws.randomness,
        whole,
        rounding,
        order=spec.protect is not None,
    ):
        con.register("batch", table)
        if read == 0:
            con.execute("CREATE TEMP TABLE staged AS SELECT * FROM batch")
        else:
            con.execute("INSERT INTO staged SELECT * FROM batch")
        con.unregister("batch")
        read += count
        progress(count)
    if read == 0:
        raise DataError("the source has no rows", hint="publish a source with at least one row")
    notes.round(rounding)
    counted = con.execute("SELECT count(*) FROM staged").fetchall()[0][0]
    if counted == 0:
        raise DataError("no row is left to publish: there are fewer than one decoy group needs")
    return int(counted)


def _channels(
    con: duckdb.DuckDBPyConnection, columns: Sequence[Column], draws: Draws
) -> dict[str, Channel]:
    channels: dict[str, Channel] = {}
    for column in columns:
        if column.channel is not None:
            channels[column.name] = column.channel
            continue
        table = con.table("staged").select(ColumnExpression(column.name)).to_arrow_table()
        codes = column.domain.codes(table.column(0))
        channels[column.name] = published_channel(column, codes, draws.generator)
    return channels


def _write(
    con: duckdb.DuckDBPyConnection,
    table: str,
    names: Sequence[str],
    grouping: Grouping,
    *,
    weighted: bool,
) -> bool:
    """Write the published table in the order of its content; returns whether equal rows are one."""
    # As text: each expression would be held against the names of all columns.
    shown = ", ".join(map(quoted, names))
    content = ", ".join([shown, *[GROUP] * grouping.stored, *[WEIGHT] * weighted])
    staged = con.table("staged")
    if grouping.stored and GROUP not in staged.columns:
        staged = marked(con, grouping.columns)
    rows = con.execute("SELECT count(*) FROM staged").fetchall()[0][0]
    # The group follows from public columns, so it is no part of what makes rows differ.
    distinct = _about_distinct(con.table("staged"), shown)
    if 2 * distinct <= rows:
        grouped = staged.aggregate(f"{content}, count(*) AS {MULTIPLICITY}", content)
        _create(con, table, grouped.order(shown))
        return True
    _create(con, table, staged.project(content).order(shown))
    return False


def _create(con: duckdb.DuckDBPyConnection, table: str, relation: duckdb.DuckDBPyRelation) -> None:
    # As a statement of its own: the relation's own create() does not notice Ctrl-C.
    con.execute(f"CREATE TABLE release.main.{quoted(table)} AS {relation.sql_query()}")


def _about_distinct(relation: duckdb.DuckDBPyRelation, content: str) -> int:
    """About how many rows differ; a sketch is enough to choose how to store them."""
    sketch = relation.aggregate(f"approx_count_distinct(hash(row({content})))")
    return int(sketch.fetchall()[0][0])


def _write_domains(con: duckdb.DuckDBPyConnection, columns: Sequence[Column]) -> None:
    for column in columns:
        if column.domain.size <= MATERIALISE_LIMIT:
            listed = pa.table(
                {
                    "code": pa.array(np.arange(column.domain.size)),
                    "value": column.domain.values(),
                }
            )
            con.from_arrow(listed).create(domain_table(column.name))


def _account(
    spec: Spec,
    sensitive: Sequence[m.SensitiveColumn],
    draws: Draws,
    release: str,
    accept_loss: bool,
    notes: Notes,
) -> tuple[m.Privacy, Callable[[], None] | None]:
    """The privacy of a release after all publications so far, and what enters it in the ledger."""
    losses = draws.losses((c.name, c.mechanism, c.domain, c.channel, c.epsilon) for c in sensitive)
    ledger, state = draws.ledger, draws.state if spec.unit == ROW else ""
    total = sum(column.epsilon for column in sensitive)
    publications, states, worst, record = 1, 1, total, None
    if ledger is not None:
        accounting = ledger.check(
            spec.table, spec.unit, losses, release=release, source=state, accept_loss=accept_loss
        )
        notes.account(accounting)
        publications, states = accounting.publications, accounting.states
        total, worst = accounting.epsilon, accounting.worst

        def record() -> None:
            ledger.record(spec.table, spec.unit, losses, release, source=state)

    privacy = m.Privacy(
        unit="row" if spec.unit == ROW else "person",
        epsilon=math.inf if notes.raw else total,
        publications=publications,
        memory=draws.randomness.memory,
        raw=tuple(notes.raw),
        seeded=draws.randomness.unsafe,
        states=states,
        changed=math.inf if notes.raw else worst,
    )
    return privacy, record


def _silent(rows: int) -> None:
    """No progress is shown."""
