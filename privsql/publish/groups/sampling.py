"""Reconstruction privacy: personal groups of the staged rows cut down to their caps (SPS)."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb
import numpy as np
import pyarrow as pa
from duckdb import ColumnExpression

from privsql.channels import Channel
from privsql.publish.groups import group_caps as sps
from privsql.publish.groups.numbering import stage_again
from privsql.publish.keys.randomness import uniform
from privsql.publish.perturb.rows import ORDER, POSITION, raw_codes
from privsql.publish.prepare import Job
from privsql.release.names import GROUP, WEIGHT
from privsql.release.spec import ProtectSpec

# The staged rows by their weights, or each as often as its weight says.
WEIGHED = "SELECT staged.*, privsql_weight FROM staged POSITIONAL JOIN cut WHERE privsql_weight > 0"
COPIED = (
    "SELECT * EXCLUDE (privsql_copy) FROM (SELECT staged.*,"
    " unnest(range(privsql_weight)) AS privsql_copy FROM staged POSITIONAL JOIN cut)"
)


def cut_down(job: Job, protect: ProtectSpec, channels: Mapping[str, Channel]) -> None:
    """Cut every group of the table ``staged`` down to s_g rows, with weights or copies."""
    columns, notes, rng = job.columns, job.notes, job.draws.generator("sps")
    names = [column.name for column in columns]
    staged = job.con.table("staged").select(
        *(ColumnExpression(name) for name in (GROUP, ORDER, POSITION, *names))
    )
    table = staged.to_arrow_table()
    groups = table.column(GROUP).to_numpy().astype(np.int64)
    position = table.column(POSITION).to_numpy()
    from_raw = protect.source == "raw"
    if from_raw:
        notes.depends_on_raw("group caps were computed from raw frequencies")
    if protect.cap == "exact":
        notes.warn("cap = exact: the size of a cut group reveals its largest frequency")
    codes = [
        raw_codes(job.raw, column)[position]
        if from_raw
        else column.domain.codes(table.column(column.name))
        for column in columns
    ]
    sizes = sps.caps(
        groups,
        codes,
        [channels[name] for name in names],
        relative_error=protect.relative_error,
        probability=protect.probability,
        cap=protect.cap,  # type: ignore[arg-type]
        source=protect.source,  # type: ignore[arg-type]
    )
    counts = np.bincount(groups, minlength=len(sizes))
    notes.say(f"{int((counts > sizes).sum())} of {int((counts > 0).sum())} groups were cut down")
    if protect.scaling == "duplicate":
        notes.warn("scaling = duplicate: copies reveal the number of trials of a group, hence f")
        notes.depends_on_raw("rows were sampled by their raw values")
        kept = sps.sample_duplicate(groups, raw_codes(job.raw, columns[0])[position], sizes, rng)
        _apply(job.con, COPIED, np.bincount(kept, minlength=len(groups)))
        return
    order = table.column(ORDER).to_numpy()
    # Rows of one person carry one number: ties are broken at random, never by position.
    mixed = rng.permutation(len(groups))
    weights = np.empty(len(groups))
    weights[mixed] = sps.sample(groups[mixed], sizes, uniform(order[mixed]))[1]
    _apply(job.con, WEIGHED, weights)


def _apply(con: duckdb.DuckDBPyConnection, query: str, cut: np.ndarray) -> None:
    con.register("cut", pa.table({WEIGHT: cut}))
    stage_again(con, con.sql(query))
    con.unregister("cut")
