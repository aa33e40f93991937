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

import numpy as np
import pyarrow as pa

from privsql.channels.domain import MATERIALISE_LIMIT
from privsql.errors import DataError
from privsql.publish.checks import check_columns, check_units, open_for, spare
from privsql.publish.database import store, working
from privsql.publish.groups.numbering import group_rows, marked, stage_again
from privsql.publish.groups.sampling import cut_down
from privsql.publish.keys.ledger import ROW
from privsql.publish.perturb.draws import open_draws, spec_beside
from privsql.publish.perturb.rows import (
    Progress,
    perturb_whole,
    published_batches,
    published_channel,
)
from privsql.publish.prepare import WHOLE, Job, resolve
from privsql.publish.recode import check_unique
from privsql.publish.report import Notes, PublishReport
from privsql.publish.rounded import Rounding
from privsql.publish.staging import check_room, staging
from privsql.release import manifest as m
from privsql.release.folder import wants_folder
from privsql.release.names import GROUP, MULTIPLICITY, WEIGHT, domain_table, published_table, quoted
from privsql.release.reading import folded
from privsql.release.shapes import commit_release, in_shape
from privsql.release.spec import Spec, refuse_undecided
from privsql.release.store import count_rows, open_release, write_manifest

STAGED = "CREATE TEMP TABLE staged AS"


def publish(
    source: str | Sequence[str] | None,
    out: str | Path,
    *,
    spec: str | Path | Spec,
    force: bool = False,
    seed: int | None = None,
    accept_loss: bool = False,
    show_values: bool = False,
    ignore_disk: bool = False,
    progress: Progress | None = None,
    say: Callable[[str], None] | None = None,
) -> PublishReport:
    """Publish a table as a release: one DuckDB file with the published rows and the manifest.

    Where ``out`` is a folder, or ends with a slash, the release is a folder of Parquet.  ``source``
    overrides the spec's; ``-`` is standard input.  ``seed`` is for tests and makes the release
    unsafe.  ``ignore_disk`` tries although the disk seems too small; it fails then without harm
    where it is.  ``show_values`` puts values that do not fit into the error about them, and
    ``say`` takes what is to be told before the work begins.  Nothing is left on disk unless all
    of it succeeded.
    """
    wanted = spec if isinstance(spec, Spec) else spec_beside(Path(spec))
    refuse_undecided(wanted)
    target, parquet = Path(out), wants_folder(out)
    notes = Notes()
    paths = [source] if isinstance(source, str) else source
    with ExitStack() as held:
        folder = held.enter_context(staging(target, force=force, folder=parquet))
        opened = open_for(wanted, paths, notes, show_values=show_values)
        wanted, raw = opened.spec, held.enter_context(closing(opened.source))
        check_columns(wanted, raw)
        check_unique(wanted, raw)
        spare(target, raw, wanted, spec)
        width = len(wanted.public) + len(wanted.sensitive)
        need = check_room(folder, opened.rows, width, ignored=ignore_disk)
        if need is not None and say is not None:
            say(need)
        several = check_units(wanted, raw, notes)
        draws = open_draws(wanted, seed, notes)
        if draws.ledger is not None:
            held.enter_context(draws.ledger.locked())
            draws = replace(draws, state=f"{folded(wanted.table)} {raw.state()}")
        types = {folded(name): kind for name, kind in raw.columns}
        columns = [resolve(each, types[folded(each.name)], raw, notes) for each in wanted.sensitive]
        made = folder / "release.duckdb"
        with closing(working(made, folder)) as con:
            job = Job(wanted, raw, columns, draws, notes, con)
            manifest, rows, record = _make(job, several, accept_loss, progress)
        made = in_shape(made, folder=parquet)
        open_release(made)  # what cannot be opened must not replace what can
        # Entered before it is in view: after a crash in between the ledger knows of one
        # publication too many, never of one too few.
        if record is not None:
            record()
        commit_release(made, target)
    return PublishReport(
        target,
        manifest,
        rows,
        tuple(notes.facts),
        tuple(notes.warnings),
        notes.rounded,
        notes.clipped,
        notes.others,
    )


def _make(
    job: Job, several: int, accept_loss: bool, progress: Progress | None
) -> tuple[m.Manifest, int, Callable[[], None] | None]:
    con, spec = job.con, job.spec
    con.execute("CREATE SCHEMA privsql")
    rows = _stage(job, progress)
    channels = {column.name: published_channel(job, column) for column in job.columns}
    groups, grouped = group_rows(job)
    weighted = spec.protect is not None and spec.protect.scaling == "weight"
    if spec.protect is not None:
        stage_again(con, marked(con, groups.columns))
        cut_down(job, spec.protect, channels)
    multiplicity = _write(job, groups.columns, [GROUP] * grouped, [WEIGHT] * weighted)
    _write_domains(job)
    release = secrets.token_hex(16)
    stored = con.table(published_table(spec.table))
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
        for column in job.columns
    )
    privacy, record = _account(job, sensitive, release, several, accept_loss)
    manifest = m.Manifest(
        release=release,
        software=f"privsql {version('privsql')}",
        created=datetime.now(UTC).date().isoformat(),
        table=spec.table,
        public=tuple(
            m.PublicColumn(each.name, kinds[each.name], each.grouping) for each in spec.public
        ),
        sensitive=sensitive,
        rows=count_rows(stored),
        grouped=grouped,
        weighted=weighted,
        multiplicity=multiplicity,
        privacy=privacy,
        groups=groups,
        protection=spec.protect,
        policy=spec.policy,
    )
    write_manifest(con, manifest)
    con.execute("CHECKPOINT")
    return manifest, rows, record


def _stage(job: Job, progress: Progress | None) -> int:
    """Perturb all rows into the temporary table ``staged``."""
    con, rounding, read = job.con, Rounding(), 0
    for count, batch in published_batches(job, perturb_whole(job, rounding), rounding):
        con.register("batch", batch)
        store(con, "INSERT INTO staged" if read else STAGED, con.table("batch"))
        con.unregister("batch")
        read += count
        if progress is not None:
            progress(count)
    if read == 0:
        raise DataError("the source has no rows", hint="publish a source with at least one row")
    job.notes.round(rounding)
    counted = count_rows(con.table("staged"))
    if counted == 0:
        raise DataError("no row is left to publish: there are fewer than one decoy group needs")
    return counted


def _write(job: Job, grouping: Sequence[str], group: list[str], weight: list[str]) -> bool:
    """Write the published table in the order of its content; returns whether equal rows are one.

    ``group`` and ``weight`` name the columns of these that rows carry, if they do.
    """
    # As text: each expression would be held against the names of all columns.
    shown = ", ".join(quoted(column.name) for column in (*job.spec.public, *job.spec.sensitive))
    content = ", ".join([shown, *group, *weight])
    whole = staged = job.con.table("staged")
    if group and GROUP not in staged.columns:
        staged = marked(job.con, grouping)
    # A sketch is enough to choose how to store rows.  The group follows from public columns, so
    # it is no part of what makes them differ.
    distinct = whole.aggregate(f"approx_count_distinct(hash(row({shown})))").fetchall()[0][0]
    multiplicity: bool = 2 * distinct <= count_rows(whole)
    if multiplicity:
        made = staged.aggregate(f"{content}, count(*) AS {MULTIPLICITY}", content)
    else:
        made = staged.project(content)
    store(job.con, f"CREATE TABLE {published_table(job.spec.table)} AS", made.order(shown))
    return multiplicity


def _write_domains(job: Job) -> None:
    for column in job.columns:
        if column.domain.size <= MATERIALISE_LIMIT:
            listed = {"code": np.arange(column.domain.size), "value": column.domain.values()}
            job.con.from_arrow(pa.table(listed)).create(domain_table(column.name))


def _account(
    job: Job,
    sensitive: Sequence[m.SensitiveColumn],
    release: str,
    several: int,
    accept_loss: bool,
) -> tuple[m.Privacy, Callable[[], None] | None]:
    """The privacy of a release after all publications so far, and what enters it in the ledger.

    ``several`` are the rows of a person, at most.
    """
    spec, draws, notes = job.spec, job.draws, job.notes
    losses = {
        c.name: draws.loss(c.name, c.mechanism, c.domain, c.channel, c.epsilon) for c in sensitive
    }
    ledger, state = draws.ledger, draws.state if spec.unit == ROW else ""
    total = sum(column.epsilon for column in sensitive)
    publications, states, worst, most, record = 1, 1, total, several, None
    if ledger is not None:
        accounting = ledger.check(
            *(spec.table, spec.unit, losses),
            release=release,
            source=state,
            accept_loss=accept_loss,
            rows_per_unit=several,
        )
        notes.account(accounting)
        publications, states = accounting.publications, accounting.states
        total, worst = accounting.epsilon, accounting.worst
        most = accounting.rows_per_unit

        def record() -> None:
            ledger.record(
                *(spec.table, spec.unit, losses, release), source=state, rows_per_unit=several
            )

    bounded = most == 1 and not notes.raw
    privacy = m.Privacy(
        unit="row" if spec.unit == ROW else "person",
        epsilon=total if bounded else math.inf,
        publications=publications,
        memory=draws.randomness.memory,
        raw=tuple(notes.raw),
        seeded=draws.randomness.unsafe,
        states=states,
        changed=worst if bounded else math.inf,
        rows_per_unit=most,
    )
    return privacy, record
